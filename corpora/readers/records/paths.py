"""Paths of values in nested records: `meta.owner.team`, `messages[].content`.

Objects are joined by dots, and `[]` means every item of a list. A key that holds a dot itself comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from ragidx.corpora.readers.fields import from_value
from ragidx.corpora.records import Scalar

_DEPTH = 32  # of objects and lists that are looked into; deeper ones are values


def flattened(fields: Mapping[str, object], on_twice: Callable[[str], None]) -> dict[str, object]:
    """The fields of a record, those of nested objects by their dotted names; lists are values.

    Args:
        fields: fields of the record by name.
        on_twice: called with a name that two values have; the first is kept.

    >>> flattened({"id": 1, "meta": {"owner": {"team": "a"}, "tags": ["x"]}}, print)
    {'id': 1, 'meta.owner.team': 'a', 'meta.tags': ['x']}
    """
    flat: dict[str, object] = {}
    for name, value in _flat(fields, "", 0):
        if name in flat:
            on_twice(name)
        else:
            flat[name] = value
    return flat


def _flat(fields: Mapping[str, object], before: str, depth: int) -> Iterator[tuple[str, object]]:
    for name, value in fields.items():
        if isinstance(value, dict) and depth < _DEPTH and all(isinstance(key, str) for key in value):
            yield from _flat(value, f"{before}{name}.", depth + 1)
        else:
            yield f"{before}{name}", value


def fields_of(metadata: Mapping[str, Any]) -> Mapping[str, Scalar]:
    """What conditions see: nested objects by dotted names, lists of other things than texts as JSON text.

    A whole number past 64 bits is a rounded one; what is too long for either is not seen.

    Returns:
        The metadata themselves, where all of them are such fields, which an index gives back as they are.

    >>> fields_of({"a": {"b": 1, "c": None}, "n": [1, 2], "tags": ["x"], "big": 2**70})
    {'a.b': 1, 'n': '[1,2]', 'tags': ['x'], 'big': 1.1805916207174113e+21}
    """
    if all(map(_is_field, metadata.values())) and "" not in metadata:
        return metadata
    flat = flattened(metadata, lambda _: None)
    fields = {name: _field(value) for name, value in flat.items() if name}
    return {name: value for name, value in fields.items() if value is not None}


def leaves(value: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Each value that is no object with its path; a list of values is one value.

    >>> list(leaves({"a": [{"b": 1}, {"b": 2}], "c": ["x", "y"]}))
    [('a[].b', 1), ('a[].b', 2), ('c', ['x', 'y'])]
    """
    if isinstance(value, Mapping) and depth < _DEPTH:
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else str(name), depth + 1)
    elif isinstance(value, list | tuple) and depth < _DEPTH and any(isinstance(item, dict | list) for item in value):
        for item in value:
            yield from leaves(item, f"{path}[]", depth + 1)
    elif value is not None:
        yield path, value


def at(value: object, path: str) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """The values at a path, each with the object that it is in.

    >>> [value for _, value in at({"messages": [{"content": "a"}, {"content": "b"}]}, "messages[].content")]
    ['a', 'b']
    """
    return _at(value, path.split("."), {})


def picked(fields: Mapping[str, object], paths: Iterable[str]) -> dict[str, object]:
    """The fields at these paths by their names; of those in a list, a list of their values.

    >>> picked({"a": {"b": 1}, "t": [{"k": "x"}, {"k": "y"}], "c": 2}, ["a.b", "t[].k"])
    {'a.b': 1, 't.k': ['x', 'y']}
    """
    found: dict[str, object] = {}
    for path in paths:
        values = [value for _, value in at(fields, path)]
        if values:
            found[path.replace("[]", "")] = values if "[]" in path else values[0]
    return found


def _at(value: object, steps: list[str], parent: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Any]]:
    if not steps:
        yield parent, value
        return
    if not isinstance(value, Mapping):
        return
    for count in range(len(steps), 0, -1):
        name, rest = ".".join(steps[:count]), steps[count:]
        if name in value:
            yield from _at(value[name], rest, value)
            return
        items = value.get(name.removesuffix("[]"))
        if name.endswith("[]") and isinstance(items, list | tuple):
            for item in items:
                yield from _at(item, rest, value)
            return


def _is_field(value: object) -> bool:
    """Whether a column of an index holds a value as it is."""
    if isinstance(value, bool | float | str):
        return True
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, datetime):
        return value.tzinfo is not None
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _field(value: object) -> Scalar:
    """A value as conditions see it; None: they do not."""
    if _is_field(value):
        return value  # type: ignore[return-value]  # it says so
    try:
        return float(value) if isinstance(value, int) else from_value(value)  # beside others it stays a number
    except (ValueError, OverflowError):  # a list that is too long for a condition, or a number
        return None
