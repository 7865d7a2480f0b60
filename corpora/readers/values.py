"""Metadata values: what a field of a record, a front matter or a column becomes.

    text that looks like a number  -> int, float, bool
    JSON, YAML and Arrow values    -> bool, int, float, str; dates as ISO text, lists and objects as JSON text

None means absent. An integer beyond 64 bits is kept as text. What cannot be kept is refused with its reason.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from collections.abc import Callable
from typing import TypeAlias

from ragidx.corpora.records import Scalar

ToScalar: TypeAlias = Callable[[object], Scalar]

_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_FLOAT = re.compile(r"-?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_SURROGATE = re.compile("[\ud800-\udfff]")
_INT64 = 1 << 63


def has_surrogate(text: str) -> bool:
    """Whether a text holds half of a UTF-16 pair, which no encoding can write."""
    return not text.isascii() and _SURROGATE.search(text) is not None


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
        if has_surrogate(value):
            raise ValueError("lone surrogate")
        return value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, list | tuple | dict):
        return _nested(value, nested_chars) if value else None
    raise ValueError(f"a value of type {type(value).__name__}")


def _nested(value: object, most: int) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_nested_leaf)
    except (TypeError, RecursionError) as fault:
        raise ValueError("nested values that JSON cannot hold") from fault
    except ValueError as fault:
        raise ValueError("not a finite number" if "Out of range" in str(fault) else str(fault)) from fault
    if len(text) > most:
        raise ValueError(f"nested values of more than {most} characters")
    if has_surrogate(text):
        raise ValueError("lone surrogate")
    return text


def _nested_leaf(value: object) -> Scalar:
    if isinstance(value, list | tuple | dict):  # json has handled them: an empty one would come back as None here
        raise TypeError
    return from_value(value)
