"""What is typed into a page of a PDF: values of form fields, and notes.

    page -> `name: value` lines, and the contents of notes; what is left out is counted

Fields are asked for by the handle of the forms, which knows those in groups.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pypdfium2.raw as pdfium_c

from ragidx.corpora.left_out import Tally

_MOST_BYTES = 1 << 20  # of a value
_MOST_NOTES = 10_000  # of a page
_MOST_OPTIONS = 1_000  # of a field
_NO_VALUES = (pdfium_c.FPDF_FORMFIELD_PUSHBUTTON, pdfium_c.FPDF_FORMFIELD_SIGNATURE)
_BOXES = (pdfium_c.FPDF_FORMFIELD_CHECKBOX, pdfium_c.FPDF_FORMFIELD_RADIOBUTTON)
_LISTS = (pdfium_c.FPDF_FORMFIELD_COMBOBOX, pdfium_c.FPDF_FORMFIELD_LISTBOX)
_HIDDEN = pdfium_c.FPDF_ANNOT_FLAG_HIDDEN | pdfium_c.FPDF_ANNOT_FLAG_NOVIEW
_PASSWORD = 1 << 13


@contextmanager
def open_forms(document: Any, left: Tally) -> Iterator[Any]:
    """The handle of the forms; None without forms. Forms of XML alone (XFA) are counted: PDFium does not read them.

    Pages do not know it, unlike with `document.init_forms()`: PDFium would draw each list with all its choices.
    """
    kind = document.get_formtype()
    left.leave("embedded objects", int(kind == pdfium_c.FORMTYPE_XFA_FULL))
    config = pdfium_c.FPDF_FORMFILLINFO(version=2)
    form = None if kind == pdfium_c.FORMTYPE_NONE else pdfium_c.FPDFDOC_InitFormFillEnvironment(document, config)
    try:
        yield form or None
    finally:
        if form:
            pdfium_c.FPDFDOC_ExitFormFillEnvironment(form)


def notes(form: Any, page: Any, left: Tally, at: str) -> list[str]:
    """The values and notes of a page."""
    n = pdfium_c.FPDFPage_GetAnnotCount(page)
    left.leave("texts cut at a bound", max(0, n - _MOST_NOTES), at)
    said: list[str] = []
    for number in range(min(n, _MOST_NOTES)):
        note = pdfium_c.FPDFPage_GetAnnot(page, number)
        if not note:
            continue
        try:
            said += _said(form, note, left, at)
        finally:
            pdfium_c.FPDFPage_CloseAnnot(note)
    return list(dict.fromkeys(filter(None, said)))  # a field may have several places


def _said(form: Any, note: Any, left: Tally, at: str) -> list[str]:
    """The lines of one note or field."""
    kind = pdfium_c.FPDFAnnot_GetSubtype(note)
    if kind == pdfium_c.FPDF_ANNOT_LINK:
        left.leave("addresses of links", int(_has_action(note)), at)
        return []
    if kind == pdfium_c.FPDF_ANNOT_POPUP:  # it repeats its parent
        return []
    if kind == pdfium_c.FPDF_ANNOT_WIDGET:
        text = _field(form, note, left, at)
    else:
        text = _string(left, at, pdfium_c.FPDFAnnot_GetStringValue, note, b"Contents")
        left.leave("attached files", int(kind == pdfium_c.FPDF_ANNOT_FILEATTACHMENT), at)
        if not text.strip() and any(_texts_drawn(note)):
            left.leave("embedded objects", 1, at)
        author = _string(left, at, pdfium_c.FPDFAnnot_GetStringValue, note, b"T")
        left.leave("authors of comments", int(bool(author.strip())), at)
    if pdfium_c.FPDFAnnot_GetFlags(note) & _HIDDEN:
        left.leave("hidden words", len(text.split()), at)
        return []
    return [line.strip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]


def _field(form: Any, note: Any, left: Tally, at: str) -> str:
    """`name: value`; empty without a value."""
    kind = pdfium_c.FPDFAnnot_GetFormFieldType(form, note) if form else pdfium_c.FPDF_FORMFIELD_UNKNOWN
    if kind <= pdfium_c.FPDF_FORMFIELD_UNKNOWN:  # a field that the forms of the file do not list
        name = _string(left, at, pdfium_c.FPDFAnnot_GetStringValue, note, b"T")
        value = _string(left, at, pdfium_c.FPDFAnnot_GetStringValue, note, b"V")
        return _line(name, value)
    tip = _string(left, at, pdfium_c.FPDFAnnot_GetFormFieldAlternateName, form, note)
    left.leave("words of tooltips", len(tip.split()), at)
    if kind in _NO_VALUES:
        return ""
    if kind in _BOXES:  # of radio buttons, one by one: the group has one value
        state = _string(left, at, pdfium_c.FPDFAnnot_GetStringValue, note, b"AS")
        if state in ("", "Off"):
            return ""
    name = _string(left, at, pdfium_c.FPDFAnnot_GetFormFieldName, form, note)
    value = _string(left, at, pdfium_c.FPDFAnnot_GetFormFieldValue, form, note)
    if kind in _LISTS:
        n = pdfium_c.FPDFAnnot_GetOptionCount(form, note)
        chosen = [
            each for each in range(min(n, _MOST_OPTIONS)) if pdfium_c.FPDFAnnot_IsOptionSelected(form, note, each)
        ]
        labels = [_string(left, at, pdfium_c.FPDFAnnot_GetOptionLabel, form, note, each) for each in chosen]
        value = ", ".join(filter(None, labels)) or value
        left.leave("choices of forms", max(0, n - len(chosen)), at)
    if kind == pdfium_c.FPDF_FORMFIELD_TEXTFIELD and pdfium_c.FPDFAnnot_GetFormFieldFlags(form, note) & _PASSWORD:
        left.leave("hidden words", len(value.split()), at)
        return ""
    return _line(name, value)


def _line(name: str, value: str) -> str:
    value = " ".join(value.split())
    return f"{' '.join(name.split())}: {value}" if value else ""


def _has_action(note: Any) -> bool:
    link = pdfium_c.FPDFAnnot_GetLink(note)
    action = pdfium_c.FPDFLink_GetAction(link) if link else None
    return bool(action) and pdfium_c.FPDFAction_GetType(action) == pdfium_c.PDFACTION_URI


def _texts_drawn(note: Any) -> Iterator[bool]:
    """Whether each of the things that its picture is made of is a text."""
    for number in range(min(pdfium_c.FPDFAnnot_GetObjectCount(note), _MOST_OPTIONS)):
        each = pdfium_c.FPDFAnnot_GetObject(note, number)
        yield pdfium_c.FPDFPageObj_GetType(each) == pdfium_c.FPDF_PAGEOBJ_TEXT


def _string(left: Tally, at: str, call: Callable[..., int], *of: Any) -> str:
    """A string of one of PDFium's calls that tell the size first."""
    size = int(call(*of, None, 0))
    if size <= 2:
        return ""
    if size > _MOST_BYTES:
        left.leave("texts cut at a bound", 1, at)
        return ""
    buffer = ctypes.create_string_buffer(size)
    call(*of, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return buffer.raw[: size - 2].decode("utf-16-le", "replace")
