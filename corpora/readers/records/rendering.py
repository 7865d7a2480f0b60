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


def text_of(fields: Mapping[str, object], paths: Sequence[str], speaker: str | None = None) -> str:
    """The text of a record; empty where no field has any.

    Args:
        fields: fields of the record by name.
        paths: paths of the fields that are its text; none: every field is.
        speaker: a path: beside the text of a turn who says it, else who says all; None: one of `SPEAKERS` says a turn.

    Raises:
        UnreadableError: there is one field, and it is no text.
    """
    if not paths:
        return "\n".join(_lines(fields))
    alone = len(paths) == 1
    parts = [(path, text) for path in paths if (text := _joined(fields, path, speaker, alone=alone)).strip()]
    if alone:
        text = parts[0][1] if parts else ""
    else:
        text = "\n\n".join(text if "[]" in path else f"{path}: {text.strip()}" for path, text in parts)
    if text and speaker and "[]." not in speaker and (who := one_line(fields, speaker)):
        return f"{who}: {text}"
    return text


def one_line(fields: object, path: str) -> str:
    """What is at a path, on one line; several values with commas between them."""
    found = [item for _, value in at(fields, path) for item in (value if isinstance(value, list | tuple) else (value,))]
    return ", ".join(text for item in found if item is not None and (text := " ".join(_shown(item).split())))


def _joined(fields: Mapping[str, object], path: str, speaker: str | None, *, alone: bool) -> str:
    if "[]" not in path:
        return next((_string(value, path, alone=alone) for _, value in at(fields, path)), "")
    turns = [(_string(value, path, alone=False).strip(), who) for who, value in _turns(fields, path, speaker)]
    return "\n\n".join(f"{who}: {text}" if who else text for text, who in turns if text)


def _turns(fields: Mapping[str, object], path: str, speaker: str | None) -> Iterator[tuple[str, object]]:
    """Each value at a path in a list, and who says it; empty: nobody is named."""
    before, sign, name = (speaker or "").rpartition("[].")
    if sign and path.startswith(f"{before}{sign}"):
        for _, turn in at(fields, f"{before}[]"):
            who = one_line(turn, name)
            yield from ((who, value) for _, value in at(turn, path.removeprefix(f"{before}{sign}")))
        return
    for parent, value in at(fields, path):
        who = next((parent[name] for name in SPEAKERS if isinstance(parent.get(name), str)), "")
        yield who if "[]." in path else "", value


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
