"""Styles and numbers of the paragraphs of a .docx: which are headings, which are hidden, and what is before the text.

    styles.xml, numbering.xml -> Styles; a paragraph -> level of a heading, label such as `3.2`

The label of a numbered paragraph is not stored: it is counted, by the levels of its list, as ECMA-376 17.9 says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from xml.etree.ElementTree import Element

from ragidx.corpora.left_out import Tally
from ragidx.corpora.readers.office.trees import attribute, local, one_line, whole

BULLET = "-"
"""The label of every paragraph with a mark that is no number."""

_LEVELS = 9
_MOST_STYLES = 50  # based on one another
_LABEL_CHARS = 100
_MOST_LETTERS = 10
_OFF = ("0", "false", "off")
_ROMAN = {"m": 1000, "cm": 900, "d": 500, "cd": 400, "c": 100, "xc": 90, "l": 50, "xl": 40}
_ROMAN |= {"x": 10, "ix": 9, "v": 5, "iv": 4, "i": 1}


class Style(NamedTuple):
    """What a style says of paragraphs or runs, with what it is based on."""

    heading: int = 0  # its level, 1 to 6
    is_hidden: bool = False
    list_id: str = ""
    depth: int = 0  # in the list, from 0


class _Level(NamedTuple):
    start: int = 1
    form: str = "decimal"
    text: str = ""
    style: str = ""
    restarts: int | None = None  # behind which level, from 1; 0: never
    plain: bool = False  # the numbers of all levels are decimal


class _Numbers(NamedTuple):
    """A list of numbering.xml: the definition whose numbers it continues, and what is its own."""

    definition: str
    starts: Mapping[int, int]
    levels: Mapping[int, _Level]


class Styles:
    """The styles of one document; keeps count of the numbers.

    Args:
        styles, numbering: the roots of the parts.
        left: tally of what is guessed.
    """

    def __init__(self, styles: Element, numbering: Element, left: Tally) -> None:
        self._left = left
        self._styles = {attribute(each, "styleId"): each for each in styles if local(each) == "style"}
        self._known: dict[str, Style] = {}
        self._definitions: dict[str, dict[int, _Level]] = {}
        self._linked: dict[str, str] = {}  # definitions that are those of a style
        self._lists: dict[str, _Numbers] = {}
        for node in numbering:
            if local(node) == "abstractNum":
                key = attribute(node, "abstractNumId")
                self._definitions[key] = dict(_levels(node))
                self._linked[key] = _value(node, "numStyleLink")
            elif local(node) == "num":
                self._lists[attribute(node, "numId")] = _numbers(node)
        self._counts: dict[str, list[int | None]] = {}
        self._started: set[tuple[str, int]] = set()

    def style(self, key: str) -> Style:
        """What a style says; one that is not defined is a heading by its name alone."""
        if key not in self._known:
            self._known[key] = self._resolved(key)
        return self._known[key]

    def label(self, list_id: str, depth: int, style: str = "") -> str:
        """The next label of a list; empty where there is none.

        Args:
            list_id: id of the list in numbering.xml.
            depth: the level, from 0.
            style: style of the paragraph; a level that is linked to it is its level.
        """
        numbers = self._lists.get(list_id)
        if numbers is None:
            return ""
        definition = self._linked_to(numbers.definition)
        levels = {**self._definitions.get(definition, {}), **numbers.levels}
        depth = next((at for at, level in levels.items() if style and level.style == style), depth)
        if depth not in levels:
            return ""
        if levels[depth].form == "bullet":
            return BULLET
        counts = self._count(definition, list_id, depth, numbers, levels)
        return self._written(levels, counts, depth)

    def _resolved(self, key: str) -> Style:
        heading: int | None = None
        is_hidden: bool | None = None
        list_id, first = "", key
        depth: int | None = None
        for _ in range(_MOST_STYLES):
            node = self._styles.get(key)
            if node is None:
                break
            name = re.fullmatch(r"heading ([1-9])|(title)", _value(node, "name"), re.IGNORECASE)
            for each in _properties(node):
                if local(each) == "outlineLvl" and heading is None:
                    heading = outline_level(each)
                elif local(each) == "vanish" and is_hidden is None:
                    is_hidden = attribute(each, "val") not in _OFF
                elif local(each) == "numPr" and not list_id:
                    list_id, level = list_of(each)
                    depth = level if depth is None else depth
            if heading is None and name:
                heading = min(6, int(name[1] or 1))
            key = _value(node, "basedOn")
        if first not in self._styles and (named := re.fullmatch(r"Heading ?([1-9])", first)):
            heading = min(6, int(named[1]))
        return Style(heading or 0, bool(is_hidden), list_id, depth or 0)

    def _linked_to(self, definition: str) -> str:
        """The definition itself, or that of the style which it names."""
        style = self._linked.get(definition)
        numbers = self._lists.get(self.style(style).list_id) if style else None
        return definition if numbers is None else numbers.definition

    def _count(
        self, definition: str, list_id: str, depth: int, numbers: _Numbers, levels: Mapping[int, _Level]
    ) -> list[int | None]:
        """The numbers of all levels after one more paragraph."""
        counts = self._counts.setdefault(definition, [None] * _LEVELS)
        before = counts[depth]
        if (list_id, depth) not in self._started and depth in numbers.starts:
            counts[depth] = numbers.starts[depth]
        else:
            counts[depth] = levels[depth].start if before is None else before + 1
        self._started.add((list_id, depth))
        for above in range(depth):
            if counts[above] is None:
                counts[above] = levels[above].start if above in levels else 1
        for below in range(depth + 1, _LEVELS):
            restarts = levels[below].restarts if below in levels else None
            if restarts is None or depth < restarts:
                counts[below] = None
        return counts

    def _written(self, levels: Mapping[int, _Level], counts: list[int | None], depth: int) -> str:
        level = levels[depth]

        def number(found: re.Match[str]) -> str:
            at = int(found[1]) - 1
            count = counts[at]
            return self._number(count or 0, "decimal" if level.plain or at not in levels else levels[at].form)

        return one_line(re.sub("%([1-9])", number, level.text[:_LABEL_CHARS]))

    def _number(self, number: int, form: str) -> str:
        match form:
            case "none":
                return ""
            case "decimalZero":
                return f"{number:02d}"
            case "lowerLetter" | "upperLetter":
                letters = _letters(number)
                return letters.upper() if form == "upperLetter" else letters
            case "lowerRoman" | "upperRoman":
                return roman(number).upper() if form == "upperRoman" else roman(number)
            case "ordinal":
                return f"{number}{_ordinal_end(number)}"
        if form != "decimal":
            self._left.leave("labels of unknown forms")
        return str(number)


def list_of(node: Element) -> tuple[str, int | None]:
    """Id and level of the list that a `numPr` names; empty and None where it leaves that to the style."""
    level = _value(node, "ilvl")
    return _value(node, "numId"), min(_LEVELS - 1, whole(level)) if level else None


def outline_level(node: Element) -> int:
    """The level of an `outlineLvl`, 1 to 6; 0 is no heading."""
    level = whole(attribute(node, "val"), _LEVELS)
    return min(6, level + 1) if level < _LEVELS else 0


def is_on(nodes: Iterable[Element], name: str) -> bool | None:
    """Whether a property is set; None: nothing is said."""
    found = next((each for each in nodes if local(each) == name), None)
    return None if found is None else attribute(found, "val") not in _OFF


def _properties(style: Element) -> Iterator[Element]:
    return (each for group in style if local(group) in ("pPr", "rPr") for each in group)


def _numbers(node: Element) -> _Numbers:
    starts: dict[int, int] = {}
    levels: dict[int, _Level] = {}
    for each in node:
        if local(each) == "lvlOverride":
            levels.update(_levels(each))
            if start := _value(each, "startOverride"):
                starts[whole(attribute(each, "ilvl"))] = whole(start)
    return _Numbers(_value(node, "abstractNumId"), starts, levels)


def _levels(node: Element) -> Iterator[tuple[int, _Level]]:
    for each in node:
        at = whole(attribute(each, "ilvl"), _LEVELS)
        if local(each) == "lvl" and at < _LEVELS:
            restarts = _value(each, "lvlRestart")
            yield (
                at,
                _Level(
                    whole(_value(each, "start"), 0),
                    _value(each, "numFmt") or "decimal",
                    _value(each, "lvlText"),
                    _value(each, "pStyle"),
                    whole(restarts) if restarts else None,
                    bool(is_on(each, "isLgl")),
                ),
            )


def _value(node: Element, name: str) -> str:
    """The value of the first element of a name in a node."""
    return next((attribute(each, "val") for each in node if local(each) == name), "")


def _letters(number: int) -> str:
    """A number in letters.

    >>> [_letters(number) for number in (1, 26, 27, 53)]
    ['a', 'z', 'aa', 'aaa']
    """
    times, at = divmod(number - 1, 26)
    return chr(ord("a") + at) * (times + 1) if 0 <= times < _MOST_LETTERS else str(number)


def roman(number: int) -> str:
    """A number in Roman numerals.

    >>> roman(1994), roman(4), roman(0)
    ('mcmxciv', 'iv', '0')
    """
    if not 0 < number < 4000:
        return str(number)
    found = ""
    for letters, value in _ROMAN.items():
        times, number = divmod(number, value)
        found += letters * times
    return found


def _ordinal_end(number: int) -> str:
    return "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
