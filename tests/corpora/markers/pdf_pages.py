"""PDFs written operator by operator, each with a word of its own in every place that can hold one."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from pypdf import PdfWriter
from pypdf.generic import (
    ArrayObject,
    DictionaryObject,
    FloatObject,
    NameObject,
    NullObject,
    NumberObject,
    StreamObject,
    TextStringObject,
)

WIDE, HIGH = 595, 842
TURNS = {0: "1 0 0 1", 90: "0 1 -1 0", 180: "-1 0 0 -1", 270: "0 -1 1 0"}


def entries(**values: Any) -> DictionaryObject:
    """A dictionary of PDF: Python's numbers, names that begin with a slash, other texts, lists."""
    return DictionaryObject({NameObject(f"/{name}"): value_of(value) for name, value in values.items()})


def value_of(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return NullObject()
    if isinstance(value, int):
        return NumberObject(value)
    if isinstance(value, float):
        return FloatObject(value)
    if isinstance(value, list):
        return ArrayObject(map(value_of, value))
    if type(value) is str:
        return NameObject(value) if value.startswith("/") else TextStringObject(value)
    return value


def stream(writer: PdfWriter, data: bytes, **values: Any) -> Any:
    made = StreamObject()
    made.set_data(data)
    made.update(entries(**values))
    return writer._add_object(made)


FONT = entries(Type="/Font", Subtype="/Type1", BaseFont="/Helvetica", Encoding="/WinAnsiEncoding")


def shown(text: str, x: float, y: float, *, size: float = 11, turn: int = 0) -> str:
    """The operators that show a text."""
    return f"BT /F1 {size} Tf {TURNS[turn]} {x} {y} Tm ({text}) Tj ET"


def page(writer: PdfWriter, operators: Sequence[str], *, rotate: int = 0, fonts: Any = None, **resources: Any) -> Any:
    """A page with Helvetica as F1."""
    made = writer.add_blank_page(WIDE, HIGH)
    made[NameObject("/Contents")] = stream(writer, "\n".join(operators).encode("latin-1"))
    made[NameObject("/Resources")] = entries(Font=entries(F1=FONT, **(fonts or {})), **resources)
    if rotate:
        made[NameObject("/Rotate")] = NumberObject(rotate)
    return made


def form(writer: PdfWriter, operators: Sequence[str], **resources: Any) -> Any:
    """A form XObject."""
    box = [0, 0, WIDE, HIGH]
    inner = entries(Font=entries(F1=FONT), **resources)
    return stream(writer, "\n".join(operators).encode(), Type="/XObject", Subtype="/Form", BBox=box, Resources=inner)


def note(writer: PdfWriter, made: Any, kind: str, **values: Any) -> Any:
    """An annotation on a page."""
    kept = entries(Type="/Annot", Subtype=f"/{kind}", Rect=[50, 50, 90, 70], **({"F": 4} | values))
    one = writer._add_object(kept)
    made.setdefault(NameObject("/Annots"), ArrayObject()).append(one)
    return one


def forms(writer: PdfWriter, fields: Sequence[Any]) -> None:
    """The fields of a document."""
    writer._root_object[NameObject("/AcroForm")] = entries(Fields=list(fields))


def written(writer: PdfWriter) -> bytes:
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def plain(*pages: Sequence[str], step: float = 16) -> bytes:
    """Pages of lines, one below the other."""
    writer = PdfWriter()
    for lines in pages:
        page(writer, [shown(line, 50, 800 - step * at) for at, line in enumerate(lines)])
    return written(writer)
