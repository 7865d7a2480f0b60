"""The text of a record, of the fields that were chosen.

one field                its value
several                  a paragraph each, `description: ...`
messages[].content       a paragraph a turn, `user: ...`
none                     every field, a line each, `name: value`
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers.records.paths import at, leaves

SPEAKERS = ("role", "speaker", "from", "author", "name", "user")
"""Fields of a turn that say whose it is."""

_MANY_NUMBERS = 20  # a longer list of them is data, and so is a longer string without a space
_BLOB_CHARS = 500


def text_of(fields: Mapping[str, object], paths: Sequence[str]) -> str:
    """The text of a record; empty where no field has any.

    Raises:
        UnreadableError: there is one field, and it is no text.
    """
    if not paths:
        return "\n".join(_lines(fields))
    parts = [(path, text) for path in paths if (text := _joined(fields, path, alone=len(paths) == 1)).strip()]
    if len(paths) == 1:
        return parts[0][1] if parts else ""
    return "\n\n".join(text if "[]" in path else f"{path}: {text.strip()}" for path, text in parts)


def _joined(fields: Mapping[str, object], path: str, *, alone: bool) -> str:
    if "[]" not in path:
        return next((_string(value, path, alone=alone) for _, value in at(fields, path)), "")
    turns = []
    for parent, value in at(fields, path):
        if text := _string(value, path, alone=False).strip():
            speaker = next((parent[name] for name in SPEAKERS if isinstance(parent.get(name), str)), "")
            turns.append(f"{speaker}: {text}" if speaker and "[]." in path else text)
    return "\n\n".join(turns)


def _string(value: object, path: str, *, alone: bool) -> str:
    """A value as text; `alone`: nothing else is the text of the record, so it must be one."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):  # the parts of a turn: [{"type": "text", "text": "..."}]
        parts = [item["text"] for item in value if isinstance(item, dict) and isinstance(item.get("text"), str)]
        if parts:
            return "\n".join(parts)
    if alone:
        raise UnreadableError(f"the field '{path}' is not text but {kind_name(value)}")
    return "" if isinstance(value, list | tuple | dict) else _shown(value)


def _lines(fields: Mapping[str, object]) -> Iterator[str]:
    for path, value in leaves(fields):
        items = value if isinstance(value, list | tuple) else (value,)
        if len(items) > _MANY_NUMBERS and not any(isinstance(item, str) for item in items):
            continue
        shown = ", ".join(text for item in items if (text := _shown(item).strip()) and not _is_blob(text))
        if shown:
            yield f"{path}: {shown}"


def _is_blob(text: str) -> bool:
    return len(text) > _BLOB_CHARS and text.isascii() and len(text.split(maxsplit=1)) == 1


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False, default=str)


def kind_name(value: Any) -> str:
    """The type of a value, as JSON names it."""
    if value is None or value == "":
        return "empty"
    kinds = ((bool, "true or false"), (int | float, "a number"), (list | tuple, "a list"), (dict, "an object"))
    return next((kind for types, kind in kinds if isinstance(value, types)), type(value).__name__)
