"""Pieces of conditions that the filters of all frameworks are made of: names, texts, and long lists of values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

MAX_VALUES = 1_000  # of a list in a condition
MAX_CHARS = 9_000  # of a condition, which may have 10,000: callers put more beside it


def quoted(text: str) -> str:
    """Text, as a condition has it.

    >>> print(quoted('say "no"'))
    "say \\"no\\""
    """
    return _marked(text, '"')


def shown(field: str) -> str:
    """A field, as a condition has it.

    >>> print(shown("a`b"))
    `a\\`b`
    """
    return _marked(field, "`")


def lists(field: str, literals: Sequence[str], *, sign: str = "in") -> list[str]:
    """Tests whether a field is one of some values, each of as many as a list may have.

    >>> lists("year", ["1", "2"])
    ['`year` in (1, 2)']
    """
    parts = (literals[start : start + MAX_VALUES] for start in range(0, len(literals), MAX_VALUES))
    return [f"{shown(field)} {sign} ({', '.join(part)})" for part in parts]


def one_of(field: str, values: Iterable[str]) -> Iterator[str]:
    """Conditions that together find what has one of the values in a field of text, each short enough."""
    held, size = list[str](), 0
    for value in map(quoted, dict.fromkeys(values)):
        if held and (size + len(value) > MAX_CHARS or len(held) == MAX_VALUES):
            yield from lists(field, held)
            held, size = [], 0
        held.append(value)
        size += len(value) + 2
    yield from lists(field, held)


def _marked(text: str, mark: str) -> str:
    return mark + text.replace("\\", "\\\\").replace(mark, f"\\{mark}") + mark
