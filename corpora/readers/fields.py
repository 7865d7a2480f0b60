"""Fields of structured files and of front matter: their usual names, and their values as text and as metadata.

cell, JSON value, YAML value -> Scalar
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from ragidx.corpora.errors import lone_surrogate, printable
from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.records import Scalar

TEXT_FIELDS = ("text", "contents", "content", "body", "passage", "page_content", "document")
ID_FIELDS = ("id", "_id", "doc_id", "docid")
NO_TEXT = "empty text"


def check_text(text: str) -> None:
    """Refuse a text that is empty or has invalid characters.

    Raises:
        UnreadableError: it is empty, or has a NUL or a lone surrogate.
    """
    if not text or text.isspace():
        raise UnreadableError(NO_TEXT)
    if "\0" in text:
        raise UnreadableError("NUL character in the text")
    if lone_surrogate(text) is not None:
        raise UnreadableError("lone surrogate in the text")


ToScalar: TypeAlias = Callable[[str, object], Scalar]
"""Of the name of a field and its value."""

_INT = re.compile(r"-?[1-9][0-9]{0,18}|0")
_FLOAT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]{2,3})?")
BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT64 = 1 << 63
_NESTED_CHARS = 10_000  # of a list or an object that becomes metadata, as JSON text


def from_text(value: object) -> Scalar:
    """The typed value of a `content` attribute or a field of a list: typed only where its text comes back from it.

    >>> [from_text(text) for text in ("1861", "-0.5", "3.10", "1e3", "true", "True", "007", "", "1,5")]
    [1861, -0.5, '3.10', '1e3', True, 'True', '007', None, '1,5']
    """
    text = str(value)
    bare = text.strip()
    if not bare:
        return None
    if bare in ("true", "false"):
        return BOOLS[bare]
    number = exact_number(bare)
    return text if number is None else number


def exact_number(text: str) -> int | float | None:
    """The number that Python writes so; None: there is none.

    >>> [exact_number(text) for text in ("12", "1.5", "1e+16", "1.50", "012", "-0", "5E10")]
    [12, 1.5, 1e+16, None, None, None, None]
    """
    if _INT.fullmatch(text):
        return whole if -_INT64 <= (whole := int(text)) < _INT64 else None
    if _FLOAT.fullmatch(text) and repr(number := float(text)) == text and math.isfinite(number):
        return number
    return None


_ZONED_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:[Zz]|[+-]\d\d(?::?\d\d)?)")


def zoned_time(value: object) -> datetime.datetime | None:
    """The time, in UTC, that a text in ISO form with a zone says; None: it is none.

    >>> zoned_time("2024-05-05T23:30:00-05:00"), zoned_time("2024-05-05T23:30:00")
    (datetime.datetime(2024, 5, 6, 4, 30, tzinfo=datetime.timezone.utc), None)
    """
    if not isinstance(value, str) or _ZONED_TIME.fullmatch(value.strip()) is None:
        return None
    try:
        return datetime.datetime.fromisoformat(value.strip().upper()).astimezone(datetime.UTC)
    except (ValueError, OverflowError):  # a 31st of February, or before the year 1
        return None


def from_value(value: object) -> Scalar:
    """The value of a typed source as metadata.

    Raises:
        ValueError: it cannot be kept; the text says why.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -_INT64 <= value < _INT64 else _digits(value)
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
        return _nested(value) if value else None
    raise ValueError(f"a value of type {type(value).__name__}")


def metadata_of(
    fields: Mapping[str, object], to_scalar: ToScalar, on_fault: Callable[[str], None]
) -> dict[str, Scalar]:
    """The fields that have a value, typed.

    Args:
        fields: fields of the record by name.
        to_scalar: function that makes a scalar of a name and its value, or raises `ValueError` where it cannot be kept.
        on_fault: called with the reason for skipping each that cannot be kept.
    """
    metadata: dict[str, Scalar] = {}
    for name, value in fields.items():
        try:
            if lone_surrogate(name) is not None:
                raise ValueError("lone surrogate")
            scalar = to_scalar(name, value)
        except ValueError as fault:
            on_fault(f"the field '{printable(name)}': {fault}")
        else:
            if scalar is not None:
                metadata[name] = scalar
    return metadata


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError as fault:
        raise ValueError("a number of too many digits") from fault


def _nested(value: list[object] | tuple[object, ...] | dict[object, object]) -> str | list[str]:
    """A list of strings as it is, anything else as JSON text."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_nested_leaf)
    except (TypeError, RecursionError) as fault:
        raise ValueError("nested values that JSON cannot hold") from fault
    except ValueError as fault:
        reasons = {"Out of range": "not a finite number", "Exceeds": "a number of too many digits"}
        raise ValueError(next((reasons[word] for word in reasons if word in str(fault)), str(fault))) from fault
    if len(text) > _NESTED_CHARS:
        raise ValueError(f"nested values of more than {_NESTED_CHARS} characters")
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
