"""Records become Documents: which field is the text, which the id, and why a record is skipped.

    Record(number, at, fields) -> Document(name#id, text, metadata)

Used by every format that holds many records (JSON, CSV, Parquet, Arrow). File formats are not known here.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import math
import re
import unicodedata
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ragidx.corpora.errors import lone_surrogate
from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, Scalar

TEXT_FIELDS = ("text", "contents", "content", "body", "passage", "page_content", "document")
ID_FIELDS = ("id", "_id", "doc_id", "docid")

_SHOWN_FIELDS = 8


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file, before its text and id are found.

    Args:
        number: its place in the file, from 1; broken records count.
        at: `:line` or `#number`, after the file's name in a report.
        fields: values by name, None if missing.
    """

    number: int
    at: str
    fields: Mapping[str, object]


def record_documents(file: SourceFile, records: Iterable[Record], to_scalar: ToScalar) -> Iterator[Document]:
    """One Document a record; a broken record is skipped."""
    seen = _SeenIds()
    missing: dict[str, str] = {}  # the first record's message serves all, so that skips can be counted
    for record in records:
        try:
            document = _document(file, record, to_scalar, seen, missing)
        except UnreadableError as fault:
            file.skip(str(fault), record.at)
        else:
            yield document


def text_field(names: Collection[str], chosen: str | None) -> str:
    """The field that is the text.

    Raises:
        UnreadableError: it is missing; the reason names the fields found.
    """
    field = chosen if chosen is not None else next((name for name in TEXT_FIELDS if name in names), None)
    if field is None or field not in names:
        raise UnreadableError(_missing(chosen or TEXT_FIELDS[0], names, "`text_field`"))
    return field


def check_text(text: str) -> None:
    """Refuse a text that is empty or has invalid characters.

    Raises:
        UnreadableError: it is empty, or has a NUL or a lone surrogate.
    """
    if not text or text.isspace():
        raise UnreadableError("empty text")
    if "\0" in text:
        raise UnreadableError("NUL character in the text")
    if lone_surrogate(text) is not None:
        raise UnreadableError("lone surrogate in the text")


def _document(
    file: SourceFile, record: Record, to_scalar: ToScalar, seen: _SeenIds, missing: dict[str, str]
) -> Document:
    fields = record.fields
    try:
        field = text_field(fields, file.options.text_field)
    except UnreadableError as fault:
        raise UnreadableError(missing.setdefault("text", str(fault))) from None
    text = fields[field]
    if text is None:
        raise UnreadableError("empty text")
    if not isinstance(text, str):
        raise UnreadableError(f"the field '{field}' is not text but {_kind(text)}")
    check_text(text)
    id_field = _id_field(fields, file.options.id_field, missing)
    record_id = _id(fields[id_field], id_field) if id_field else str(record.number)
    if not seen.add(record_id):
        raise UnreadableError(f"its id was seen before in this file: '{record_id}'")
    metadata = _metadata(file, record, to_scalar, leave={field, id_field})
    title = metadata.get("title")
    if file.source.beir and isinstance(title, str) and title.strip():
        text = f"{title} {text}"
    return Document(file.doc_id(record_id), text, metadata)


def _id_field(fields: Mapping[str, object], chosen: str | None, missing: dict[str, str]) -> str | None:
    """The field that is the id; None: the record's number is the id."""
    if chosen is None:
        return next((name for name in ID_FIELDS if _is_id(fields.get(name))), None)
    if chosen not in fields:
        raise UnreadableError(missing.setdefault("id", _missing(chosen, fields, "`id_field`")))
    return chosen


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def _id(value: object, field: str) -> str:
    if not _is_id(value):
        raise UnreadableError(f"the field '{field}' is not an id but {_kind(value)}")
    name = unicodedata.normalize("NFC", str(value))
    if lone_surrogate(name) is not None:
        raise UnreadableError("lone surrogate in the id")
    return name


def _metadata(
    file: SourceFile, record: Record, to_scalar: ToScalar, leave: Collection[str | None]
) -> dict[str, Scalar]:
    """Every other field that has a value, typed; what cannot be kept is skipped."""
    metadata: dict[str, Scalar] = {}
    for name, value in record.fields.items():
        if name in leave or value is None:
            continue
        try:
            if lone_surrogate(name) is not None:
                raise ValueError("lone surrogate")
            scalar = to_scalar(value)
        except ValueError as fault:
            shown = name.encode("utf-8", "replace").decode()
            file.skip(f"the field '{shown}': {fault}", record.at)
        else:
            if scalar is not None:
                metadata[name] = scalar
    return metadata


def _missing(field: str, names: Iterable[str], option: str) -> str:
    found = sorted(name.encode("utf-8", "replace").decode() for name in names)
    shown = ", ".join(f"'{name}'" for name in found[:_SHOWN_FIELDS]) or "no field"
    more = f" and {len(found) - _SHOWN_FIELDS} more" if len(found) > _SHOWN_FIELDS else ""
    return f"the field '{field}' is missing (found: {shown}{more}); say which one to read with {option}"


def _kind(value: object) -> str:
    """The type of a value, as JSON names it."""
    if value is None or value == "":
        return "empty"
    kinds = ((bool, "true or false"), (int | float, "a number"), (list | tuple, "a list"), (dict, "an object"))
    return next((kind for types, kind in kinds if isinstance(value, types)), type(value).__name__)


class _SeenIds:
    """The ids of one file, by 64-bit hash in an open table: some 16 bytes an id, where a set of texts takes 100.

    Two of ten million different ids share a hash in one file of 300,000.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * 1024))
        self._count = 0

    def add(self, name: str) -> bool:
        """Whether the id is new."""
        if 3 * self._count >= 2 * len(self._slots):
            old = self._slots
            self._slots = array("Q", bytes(16 * len(old)))
            for key in old:
                if key:
                    self._put(key)
        key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") or 1
        new = self._put(key)
        self._count += new
        return new

    def _put(self, key: int) -> bool:
        slots = self._slots
        mask = len(slots) - 1
        at = key & mask
        while slots[at]:
            if slots[at] == key:
                return False
            at = (at + 1) & mask
        slots[at] = key
        return True


ToScalar: TypeAlias = Callable[[object], Scalar]

_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_FLOAT = re.compile(r"-?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT64 = 1 << 63


def from_text(value: object) -> Scalar:
    """The typed value of a cell or a `content` attribute.

    >>> [from_text(text) for text in ("1861", "-0.5", "1e3", "true", "007", "", "1,5")]
    [1861, -0.5, 1000.0, True, '007', None, '1,5']
    """
    text = str(value)
    bare = text.strip()
    if not bare:
        return None
    if bare in _BOOLS:
        return _BOOLS[bare]
    if _INT.fullmatch(bare) and -_INT64 <= int(bare) < _INT64:
        return int(bare)
    if _FLOAT.fullmatch(bare) and math.isfinite(float(bare)) and not re.match("-?0[0-9]", bare):
        return float(bare)
    return text


def from_value(value: object, *, nested_chars: int = 10_000) -> Scalar:
    """The value of a typed source as metadata.

    Raises:
        ValueError: it cannot be kept; the text says why.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -_INT64 <= value < _INT64 else str(value)
    if isinstance(value, float | decimal.Decimal):
        if not math.isfinite(value):
            raise ValueError("not a finite number")
        return float(value)
    if isinstance(value, str):
        if lone_surrogate(value) is not None:
            raise ValueError("lone surrogate")
        return value
    if isinstance(value, datetime.date | datetime.time):
        return value if isinstance(value, datetime.datetime) else value.isoformat()
    if isinstance(value, list | tuple | dict):
        return _nested(value, nested_chars) if value else None
    raise ValueError(f"a value of type {type(value).__name__}")


def _nested(value: list[object] | tuple[object, ...] | dict[object, object], most: int) -> str | list[str]:
    """A list of strings as it is, anything else as JSON text."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_nested_leaf)
    except (TypeError, RecursionError) as fault:
        raise ValueError("nested values that JSON cannot hold") from fault
    except ValueError as fault:
        raise ValueError("not a finite number" if "Out of range" in str(fault) else str(fault)) from fault
    if len(text) > most:
        raise ValueError(f"nested values of more than {most} characters")
    if lone_surrogate(text) is not None:
        raise ValueError("lone surrogate")
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [str(item) for item in value]
    return text


def _nested_leaf(value: object) -> object:
    if isinstance(value, list | tuple | dict):  # json has handled them: an empty one would come back as None here
        raise TypeError
    found = from_value(value)
    return found.isoformat() if isinstance(found, datetime.datetime) else found
