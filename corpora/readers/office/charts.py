"""The words of a chart of Office: its titles, and a row for each category with a column for each series.

    element of a chart part -> lines

Charts of DrawingML, and the newer ones (`cx:`). Numbers are written where there are few; else they are counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from ragidx.corpora.left_out import Tally
from ragidx.corpora.readers.office.trees import attribute, local, one_line, words_of

_MOST_NUMBERS = 2_000  # of a chart that is written as a table; a cloud of points says nothing to a search
_NUMBER_CHARS = 40
_DULL = frozenset(
    {"f", "formatCode", "separator", "sqref", "spPr", "externalData", "printSettings", "pivotSource", "binary"}
)


@dataclass
class _Series:
    name: str = ""
    labels: dict[str, str] = field(default_factory=dict)  # of categories, by index
    values: dict[str, str] = field(default_factory=dict)


def chart_lines(root: Element, left: Tally) -> list[str]:
    """The lines of a chart; what is left out is counted."""
    lines: list[str] = []
    series: list[_Series] = []
    _collect(root, lines, series, left)
    n_numbers = sum(len(one.values) for one in series)
    if n_numbers > _MOST_NUMBERS:
        left.leave("numbers of charts", n_numbers)
        for one in series:
            one.values.clear()
    for _, group in itertools.groupby(series, lambda one: tuple(one.labels.items())):
        lines += _table(list(group))
    return lines


def _collect(nodes: Iterable[Element], lines: list[str], series: list[_Series], left: Tally) -> None:
    for child in nodes:
        name = local(child)
        if name == "p":
            runs = [each.text or " " for each in child.iter() if local(each) in ("t", "br")]
            lines += _line("".join(runs))
            left.leave("words of unknown elements", words_of(child) - sum(len(run.split()) for run in runs))
        elif name == "v":
            lines += _line(child.text or "")
        elif name == "ser":
            series.append(_series(child, lines, series, left))
        elif name == "strDim":  # of the newer charts: the labels of all series
            lines += _line(" | ".join(_points(child).values()))
        elif name in ("numDim", "numCache", "bubbleSize"):
            left.leave("numbers of charts", len(_points(child)))
        elif name.startswith("filtered"):
            left.leave("hidden words", words_of(child))
        elif name not in _DULL:
            left.leave("words of unknown elements", len((child.text or "").split()))
            _collect(child, lines, series, left)


def _series(node: Element, lines: list[str], series: list[_Series], left: Tally) -> _Series:
    new_series = _Series()
    for child in node:
        match local(child):
            case "tx":
                names: list[str] = []
                _collect(child, names, series, left)
                new_series.name = " ".join(names)
            case "cat" | "xVal":
                new_series.labels = _points(child)
                _count_loose(child, left)
            case "val" | "yVal":
                new_series.values = _points(child)
                _count_loose(child, left)
            case _:
                _collect((child,), lines, series, left)
    return new_series


def _points(node: Element) -> dict[str, str]:
    """Texts by index; of several levels the words of all."""
    found: dict[str, list[str]] = {}
    for point in node.iter():
        if local(point) == "pt":
            text = _number(one_line("".join(point.itertext())))
            found.setdefault(attribute(point, "idx"), []).append(text)
    return {index: " ".join(reversed(texts)) for index, texts in found.items()}  # the innermost level comes first


def _count_loose(node: Element, left: Tally) -> None:
    """Count the words beside points."""
    for child in node:
        if local(child) != "pt" and local(child) not in _DULL:
            left.leave("words of unknown elements", len((child.text or "").split()))
            _count_loose(child, left)


def _table(group: list[_Series]) -> Iterator[str]:
    """The rows of series with the same labels."""
    labels = group[0].labels
    names = " | ".join(one.name for one in group)
    if names.strip(" |"):
        yield f"| {names}" if labels else names
    for index in dict.fromkeys([*labels, *(index for one in group for index in one.values)]):
        yield " | ".join([labels.get(index, ""), *(one.values.get(index, "") for one in group)]).strip()


def _line(text: str) -> list[str]:
    words = one_line(text)
    return [words] if words.strip("| ") else []


def _number(text: str) -> str:
    """A number as a person writes it.

    >>> _number("0.30000000000000004"), _number("12.0"), _number("n/a")
    ('0.3', '12', 'n/a')
    """
    try:
        return f"{float(text):.15g}" if "." in text and len(text) < _NUMBER_CHARS else text
    except ValueError:
        return text
