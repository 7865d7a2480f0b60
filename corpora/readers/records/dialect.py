"""How a table is written: the mark between its cells, and the lines above it.

    the first lines -> Dialect(mark, n_above, is_guess, is_said)

The mark is the one of `,` `;` tab `|` by which most of the first rows have the same number of cells, two at least;
quoted cells count as one. A first line `sep=;` says it, as Excel does.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ragidx.corpora.readers.fields import ID_FIELDS, TEXT_FIELDS

SAMPLE_LINES = 200
SAMPLE_CHARS = 1 << 18
_SAMPLE_ROWS = 50
_MARKS = ",;\t|"
_SAID = re.compile(r'"?sep=(.)"?[\r\n]*', re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[\d.,]*")
_NAMES = {*TEXT_FIELDS, *ID_FIELDS}
_NAME = re.compile(r"[^\W\d]\w*")


class Dialect(NamedTuple):
    """How the rows of a file are cut."""

    mark: str
    n_above: int  # rows above the header
    is_guess: bool = False  # whether the mark is neither said nor the one of the ending
    is_said: bool = False  # by the first line, which is no row


def dialect_of(lines: Sequence[str], ending: str) -> Dialect:
    """The dialect of a file.

    Args:
        lines: the first lines of the file, the last of them whole; the first has something in it.
        ending: ending of the file's name.

    >>> dialect_of(["Our lakes\\n", "\\n", "id;name\\n", "1;Baikal\\n", "2;Aral\\n"], ".csv")
    Dialect(mark=';', n_above=1, is_guess=True, is_said=False)
    """
    if said := _SAID.fullmatch(lines[0]):
        return Dialect(said[1], 0, is_said=True)
    usual = "\t" if ending == ".tsv" else ","
    bounded = [line[:SAMPLE_CHARS] for line in lines]
    tables = {mark: _rows(bounded, mark) for mark in _MARKS}
    is_name = _NAME.fullmatch(lines[0].strip()) and any(len(rows) > 1 for rows in tables.values())
    if is_name and (lines[0].strip().lower() in _NAMES or len(lines) < 2 or lines[1].strip()):
        return Dialect(usual, 0)  # one column, of texts that may hold any mark
    (share, width, _), mark = max(((*_evenness(rows), mark == usual), mark) for mark, rows in tables.items())
    rows = tables[mark]
    if share <= 0.5:  # no mark makes a table of most rows
        mark = next((each for each in (usual, *_MARKS) if each in lines[0]), usual)
        return Dialect(mark, 0, mark != usual)
    fitting = [place for place, row in enumerate(rows) if len(row) == width]
    if width > 2:  # a title of which the office program made a row as wide as the table
        fitting = [place for place in fitting if sum(map(bool, map(str.strip, rows[place]))) > 1] or fitting
    first = fitting[0]
    if first and _is_header(rows[first - 1]) and not _is_header(rows[first]):  # its rows are longer or shorter
        first -= 1
    while first + 1 < len(rows) and rows[first][0].startswith("#") and _NAMES & _lower(rows[first + 1]):
        first += 1  # a remark of as many cells as the table has
    return Dialect(mark, first, mark != usual)


def _lower(row: list[str]) -> set[str]:
    return {cell.strip().lower() for cell in row}


def _rows(lines: Sequence[str], mark: str) -> list[list[str]]:
    """The first rows that are not blank."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(lines, delimiter=mark):
            if row and len(rows) < _SAMPLE_ROWS:
                rows.append(row)
    except csv.Error:
        pass
    return rows


def _is_header(row: list[str]) -> bool:
    """Whether cells look like names: several, all filled, all different, none a number."""
    cells = [cell.strip() for cell in row]
    return len(set(cells)) == len(cells) > 1 and not any(_NUMBER.fullmatch(cell) for cell in cells)


def _evenness(rows: list[list[str]]) -> tuple[float, int]:
    """The share of rows that have the usual number of cells, and that number."""
    counts = Counter(len(row) for row in rows if len(row) > 1)
    return max(((n_rows / len(rows), width) for width, n_rows in counts.items()), default=(0.0, 0))
