"""PDF by pypdfium2, pictures by text recognition, others by walks of their own: which module reads which ending.

    path, ending -> Converted

Time and memory are bounded by who runs this: a build reads these files in its workers.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ragidx.corpora.errors import check_machine, first_line, install
from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import NOT_ITS_FORMAT, Limits, UnreadableError, shown_bytes
from ragidx.corpora.records import Place

_MISSING = f"needs the extra 'docs': {install('docs')}"

PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")
SCANS = (".pdf", *PICTURES)
"""Endings of files of which text recognition may read pages."""

_MODULES = {
    ".pdf": "pdf.document",
    ".rtf": "office.rtf",
    **dict.fromkeys((".odt", ".ott", ".ods", ".ots", ".odp", ".otp", ".odg", ".otg"), "office.odf"),
    **dict.fromkeys((".docx", ".docm", ".dotx", ".dotm"), "office.docx"),
    **dict.fromkeys((".pptx", ".pptm", ".potx", ".potm", ".ppsx", ".ppsm"), "office.pptx"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xltx", ".xltm"), "office.xlsx"),
    **dict.fromkeys(PICTURES, "ocr.pictures"),
}
"""The module by ending, imported when a file has the ending."""
_NEEDS = {".pdf": "pypdfium2"}

ENDINGS = tuple(_MODULES)

_SAVE_AS = {
    **{".doc": ".docx", ".dot": ".docx", ".xls": ".xlsx", ".xlt": ".xlsx", ".xlsb": ".xlsx", ".ppt": ".pptx"},
    **{".pps": ".pptx", ".pot": ".pptx", ".sxw": ".odt", ".sxc": ".ods", ".sxi": ".odp"},
    **{".pages": ".docx", ".numbers": ".xlsx", ".key": ".pptx"},
}
"""Formats that are not read, and what their program can save them as."""

_MOST_FIELDS, _FIELD_CHARS = 64, 1000

_NO_TITLE = re.compile(  # what programs write where nobody gave a title
    r"untitled|microsoft (?:word|powerpoint|excel) - |\S+\.(?:doc|docx|pdf|dvi|tex|indd|qxd)$"
    r"|(?=.{0,40}$)(?=.*pr[eéä]sent).*powerpoint",
    re.IGNORECASE,
)


class About(NamedTuple):
    """What a document says of itself."""

    title: str
    author: str
    fields: Mapping[str, str]


def about_of(title: str, author: str, custom: Iterable[tuple[str, str]], usual: Mapping[str, str]) -> About:
    """What a document says of itself, each at most 1,000 characters; of the names that people made up, the first 64.

    >>> [about_of(title, "", (), {}).title for title in ("Présentation PowerPoint", "Untitled", "Bees and PowerPoint")]
    ['', '', 'Bees and PowerPoint']
    """
    fields: dict[str, str] = {}
    for name, text in custom:
        if text and len(fields) < _MOST_FIELDS:
            fields.setdefault(name[:_FIELD_CHARS], text[:_FIELD_CHARS])
    fields |= {name: text[:_FIELD_CHARS] for name, text in usual.items() if text}
    return About("" if _NO_TITLE.match(title) else title[:_FIELD_CHARS], author[:_FIELD_CHARS], fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What a file became: its text, as Markdown or plain, with its places; what was skipped or left out."""

    text: str
    about: About
    markdown: bool = True
    places: tuple[Place, ...] = ()
    skips: tuple[tuple[str, str], ...] = ()  # (after the file's name, reason)
    left: Tally = field(default_factory=Tally)


def convert(path: Path, ending: str, limits: Limits, scans: object = None) -> Converted:
    """The text of a file; `scans`: the `ocr.pages.Scans` that reads its scanned pages, if it may have some.

    Raises:
        UnreadableError: it is damaged or too large, or its library is not installed.
        MemoryError: it needs more than this process has.
    """
    if ending in _NEEDS and importlib.util.find_spec(_NEEDS[ending]) is None:
        raise UnreadableError(_MISSING)
    try:
        converter = importlib.import_module(f"ragidx.corpora.readers.{_MODULES[ending]}")
        more = {"scans": scans} if ending in SCANS else {}
        converted: Converted = converter.convert(path, ending, limits, **more)
    except (MemoryError, UnreadableError):
        raise
    except Exception as fault:  # the libraries raise anything
        check_machine(fault, path.name)
        raise UnreadableError(_reason(fault)) from fault
    data = converted.text.encode("utf-8", "replace")
    if len(data) > limits.office_text_bytes:
        raise UnreadableError(f"converts to more than {shown_bytes(limits.office_text_bytes)} of text")
    return dataclasses.replace(converted, text=data.decode())


def unread(ending: str) -> str:
    """Why a binary file is not read; `ending` may be empty."""
    if ending in _SAVE_AS:
        return f"{ending} files are not read: save it as {_SAVE_AS[ending]}"
    return f"binary file of unknown format '{ending}'" if ending else "binary file"


def _reason(fault: Exception) -> str:
    """A library's error as a reason."""
    name, text = type(fault).__name__, first_line(fault)
    if "Incorrect password" in text or (name, text) == ("ValueError", "encrypted"):
        return "encrypted"
    if "Data format error" in text:  # of PDFium
        return f"cannot be converted: {NOT_ITS_FORMAT}"
    if isinstance(fault, RecursionError):
        return "cannot be converted: nested too deep"
    return f"cannot be converted: {name}: {text}"
