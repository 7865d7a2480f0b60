"""Paths of values in nested records: `meta.owner.team`, `messages[].content`.

Objects are joined by dots, and `[]` means every item of a list. A key that holds a dot itself comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

_DEPTH = 32  # of objects and lists that are looked into; deeper ones are values


def flattened(fields: Mapping[str, object], on_twice: Callable[[str], None]) -> dict[str, object]:
    """The fields of a record, those of nested objects by their dotted names; lists are values.

    Args:
        fields: by name.
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
