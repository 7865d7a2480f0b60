"""Numbers of headings and items of lists in OpenDocument, which a file does not hold: they are counted.

    styles of lists; headings, lists and items in their order -> `3.2`, `b)`, `-`

Source: OASIS OpenDocument 1.3, part 3, 16.30 and 19.880.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from ragidx.corpora.left_out import Tally
from ragidx.corpora.readers.office.numbering import BULLET, roman
from ragidx.corpora.readers.office.trees import attribute, local, whole

_MOST_LEVELS: Final = 10


class _Level(NamedTuple):
    form: str = ""  # `1`, `a`, `A`, `i`, `I`; empty: no number
    before: str = ""
    behind: str = ""
    n_shown: int = 1  # numbers of levels in a label
    start: int = 1


class Labels:
    """The labels of one document; keeps count of the numbers.

    Args:
        roots: roots of the parts that hold styles.
        left: tally of what is guessed.
    """

    def __init__(self, roots: Iterable[Element], left: Tally) -> None:
        self._left = left
        self._styles: dict[str, dict[int, _Level]] = {}
        self._outline: dict[int, _Level] = {}
        parts = (part for root in roots for part in root if local(part) != "body")
        for node in (node for part in parts for node in part.iter()):
            if local(node) == "list-style":
                self._styles[attribute(node, "name")] = dict(_levels(node))
            elif local(node) == "outline-style":
                self._outline = dict(_levels(node))
        self._headings: list[int] = []
        self._lists: list[str] = []  # styles of the lists that the walk is in
        self._counts: list[int] = []
        self._ended: dict[str, list[int]] = {}  # counts of lists by their style and by their id

    @contextmanager
    def inside(self, node: Element) -> Iterator[None]:
        """While a list is read."""
        outer = self._lists[-1] if self._lists else ""
        style = attribute(node, "style-name") or outer
        if not self._lists:
            before = attribute(node, "continue-list") or style
            continues = attribute(node, "continue-numbering") == "true" or attribute(node, "continue-list")
            self._counts = list(self._ended.get(before, [])) if continues else []
        self._lists.append(style)
        try:
            yield
        finally:
            self._lists.pop()
            if not self._lists:
                self._ended[style] = self._ended[attribute(node, "id")] = self._counts

    def item(self, node: Element) -> str:
        """The label of the next item of the list that the walk is in."""
        levels = self._styles.get(self._lists[-1] if self._lists else "", {})
        return self._next(self._counts, levels, len(self._lists) or 1, attribute(node, "start-value")) or BULLET

    def heading(self, node: Element, level: int) -> str:
        """The label of the next heading; empty where headings have none."""
        if level not in self._outline or attribute(node, "is-list-header") == "true":
            return ""
        start = attribute(node, "start-value") or ("1" if attribute(node, "restart-numbering") == "true" else "")
        return self._next(self._headings, self._outline, level, start)

    def _next(self, counts: list[int], levels: dict[int, _Level], depth: int, start: str) -> str:
        """Count on, and write the numbers of the last levels that the style says."""
        if depth > _MOST_LEVELS:
            return ""
        was_counted = len(counts) >= depth
        del counts[depth:]
        counts += [levels.get(at, _Level()).start for at in range(len(counts) + 1, depth + 1)]
        counts[depth - 1] = whole(start, counts[depth - 1] + was_counted)
        level = levels.get(depth, _Level())
        if not level.form:
            return ""
        shown = range(max(1, depth - level.n_shown + 1), depth + 1)
        numbers = (self._number(counts[at - 1], levels.get(at, _Level()).form) for at in shown)
        return f"{level.before}{'.'.join(filter(None, numbers))}{level.behind}".strip()

    def _number(self, number: int, form: str) -> str:
        if form in ("a", "A"):
            return _letters(number).upper() if form == "A" else _letters(number)
        if form in ("i", "I"):
            return roman(number).upper() if form == "I" else roman(number)
        self._left.leave("labels of unknown forms", int(form not in ("", "1")))
        return str(number) if form else ""


def _levels(style: Element) -> Iterator[tuple[int, _Level]]:
    for node in style:
        depth = whole(attribute(node, "level"), 0)
        if local(node) in ("list-level-style-number", "outline-level-style") and 0 < depth <= _MOST_LEVELS:
            yield (
                depth,
                _Level(
                    attribute(node, "num-format"),
                    attribute(node, "num-prefix"),
                    attribute(node, "num-suffix"),
                    whole(attribute(node, "display-levels"), 1),
                    whole(attribute(node, "start-value"), 1),
                ),
            )


def _letters(number: int) -> str:
    """A number in letters.

    >>> [_letters(number) for number in (0, 1, 26, 27, 28)]
    ['', 'a', 'z', 'aa', 'ab']
    """
    found = ""
    while number > 0:
        number, at = divmod(number - 1, 26)
        found = chr(ord("a") + at) + found
    return found
