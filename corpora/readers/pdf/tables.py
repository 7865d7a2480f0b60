"""Rows of tables in a page of a PDF: cells of a row are one line, `a | b | c`.

    page -> strokes; pieces in a frame, strokes -> lines of text

Drawn lines that cross make a grid, whose rows lie between its heights. Elsewhere two or more lines are a table where
they have the same gap, unless their pieces are prose. Pieces of other lines are parted by a tab.
"""

from __future__ import annotations

import ctypes
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pypdfium2.raw as pdfium_c

from ragidx.corpora.readers.pdf.text import Box, Line, Piece, lines, turned

APART = "\t"
"""Between pieces of a line that is no row."""
CELLS = " | "

_MOST_OBJECTS = 20_000  # of a page, and
_MOST_SEGMENTS = 5_000  # of its paths: more are a drawing
_MOST_CROSSINGS = 250_000
_MOST_CELLS = 100  # of a row
_FORMS_DEEP = 3
_SHORTEST = 8.0  # points, of a line that is drawn
_NEAR = 3.0  # points: lines touch
_SAME = 1.5  # points: one height
_MOST_BETWEEN = 2  # lines of one piece, as of wrapped cells, between two rows
_FULL = 0.6  # of the columns: the lines of a row that have them are rows
_MARKER = re.compile(r"[^\w\s]{1,3}|[(\[]?\w{1,3}[)\].:]")  # of a list
_LEADER = re.compile(r"(?:\. ?){4,}")  # to the number of a page
_NUMBER = re.compile(r"[\W\d]+")


class _Grid(NamedTuple):
    """Drawn lines that cross: where they are, with the heights of the level and the places of the upright ones."""

    box: Box
    heights: Sequence[float]
    places: Sequence[float]

    def holds(self, piece: Piece) -> bool:
        """Whether the middle of a piece is in it."""
        left, top, right, bottom = self.box
        return left - 2 < (piece.left + piece.right) / 2 < right + 2 and top - 2 < piece.middle < bottom + 2


def strokes(page: Any) -> list[Box]:
    """The level and the upright lines that are drawn on a page, edges of frames too; none of a drawing.

    Those that go on in one another are one.
    """
    boxes: list[Box] = []
    if pdfium_c.FPDFPage_CountObjects(page) > _MOST_OBJECTS:
        return []
    budget = _MOST_SEGMENTS
    for path, matrices in _paths(page, pdfium_c.FPDFPage_CountObjects, pdfium_c.FPDFPage_GetObject, ()):
        n = pdfium_c.FPDFPath_CountSegments(path)
        budget -= max(n, 1)
        if budget < 0:
            return []
        boxes += _segments(path, n, matrices)
    levels = merged((box for box in boxes if box[2] - box[0] >= box[3] - box[1]), 1)
    return levels + merged((box for box in boxes if box[2] - box[0] < box[3] - box[1]), 0)


def _paths(holder: Any, count: Any, get: Any, matrices: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The paths in a page or a form, with the matrices that move them, the innermost first."""
    for at in range(min(count(holder), _MOST_OBJECTS)):
        each = get(holder, at)
        kind = pdfium_c.FPDFPageObj_GetType(each)
        if kind not in (pdfium_c.FPDF_PAGEOBJ_PATH, pdfium_c.FPDF_PAGEOBJ_FORM):
            continue
        matrix = pdfium_c.FS_MATRIX()
        pdfium_c.FPDFPageObj_GetMatrix(each, ctypes.byref(matrix))
        if kind == pdfium_c.FPDF_PAGEOBJ_PATH:
            yield each, (matrix, *matrices)
        elif len(matrices) < _FORMS_DEEP:
            inner = pdfium_c.FPDFFormObj_CountObjects, pdfium_c.FPDFFormObj_GetObject
            yield from _paths(each, *inner, (matrix, *matrices))


def _segments(path: Any, n: int, matrices: Sequence[Any]) -> Iterator[Box]:
    """The level and the upright lines of a path."""
    x_now, y_now = ctypes.c_float(), ctypes.c_float()
    to_x, to_y = ctypes.byref(x_now), ctypes.byref(y_now)
    start = last = (0.0, 0.0)
    for at in range(n):
        segment = pdfium_c.FPDFPath_GetPathSegment(path, at)
        pdfium_c.FPDFPathSegment_GetPoint(segment, to_x, to_y)
        x, y = x_now.value, y_now.value
        for matrix in matrices:
            x, y = matrix.a * x + matrix.c * y + matrix.e, matrix.b * x + matrix.d * y + matrix.f
        kind = pdfium_c.FPDFPathSegment_GetType(segment)
        ends = [(last, (x, y))] if kind == pdfium_c.FPDF_SEGMENT_LINETO else []
        start = (x, y) if kind == pdfium_c.FPDF_SEGMENT_MOVETO else start
        if pdfium_c.FPDFPathSegment_GetClose(segment):
            ends.append(((x, y), start))
        for (x0, y0), (x1, y1) in ends:
            wide, high = abs(x1 - x0), abs(y1 - y0)
            if min(wide, high) < _SAME and max(wide, high) > _SHORTEST:
                yield min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)
        last = (x, y)


def page_lines(by_turn: dict[int, list[Piece]], drawn: Sequence[Box]) -> list[str]:
    """The lines of a page: first those of the direction that has most text."""
    out: list[str] = []
    for turn in sorted(by_turn, key=lambda each: -len(by_turn[each])):
        out += _frame_lines(by_turn[turn], _grids([turned(box, turn) for box in drawn]))
    return out


def _frame_lines(pieces: Sequence[Piece], grids: Sequence[_Grid]) -> list[str]:
    """In the order in which they are drawn; a grid stands where its first piece does."""
    inside: dict[int, list[Piece]] = {}
    order: list[Piece | _Grid] = []
    for piece in pieces:
        grid = next((each for each in grids if each.holds(piece)), None)
        if grid is None:
            order.append(piece)
            continue
        if id(grid) not in inside:
            inside[id(grid)] = []
            order.append(grid)
        inside[id(grid)].append(piece)
    out: list[str] = []
    plain: list[Piece] = []
    for each in order:
        if isinstance(each, Piece):
            plain.append(each)
            continue
        rows = _grid_rows(each, inside[id(each)])
        if rows is None:
            plain += inside[id(each)]
        else:
            out += _plain_lines(lines(plain))
            plain = []
            out += rows
    return out + _plain_lines(lines(plain))


def merged(drawn: Iterable[Box], level: int) -> list[Box]:
    """Level (1) or upright (0) lines, those that go on in one another as one."""
    along, across = 1 - level, level
    out: list[Box] = []
    row: list[list[float]] = []

    def flush() -> None:
        place, spans = row[0][2], list[tuple[float, float]]()
        for begin, end, _ in sorted(row):
            if spans and begin <= spans[-1][1] + _NEAR:
                spans[-1] = spans[-1][0], max(end, spans[-1][1])
            else:
                spans.append((begin, end))
        out.extend((begin, place, end, place) if level else (place, begin, place, end) for begin, end in spans)

    for box in sorted(drawn, key=lambda each: each[across]):
        if row and box[across] - row[0][2] > _SAME:
            flush()
            row = []
        row.append([box[along], box[along + 2], box[across]])
    if row:
        flush()
    return out


def _grids(drawn: Sequence[Box]) -> list[_Grid]:
    """Groups of lines that cross, with at least three heights and two places."""
    levels = [box for box in drawn if box[2] - box[0] >= box[3] - box[1]]
    uprights = [box for box in drawn if box[2] - box[0] < box[3] - box[1]]
    if len(levels) * len(uprights) > _MOST_CROSSINGS:
        return []
    group = list(range(len(levels) + len(uprights)))

    def root(at: int) -> int:
        while group[at] != at:
            group[at] = at = group[group[at]]
        return at

    for n, (left, height, right, _) in enumerate(levels):
        for m, (place, top, _, bottom) in enumerate(uprights, start=len(levels)):
            if left - _NEAR < place < right + _NEAR and top - _NEAR < height < bottom + _NEAR:
                group[root(m)] = root(n)
    members: dict[int, tuple[list[Box], list[Box]]] = {}
    for n, box in enumerate([*levels, *uprights]):
        members.setdefault(root(n), ([], []))[n >= len(levels)].append(box)
    crossed: list[_Grid] = []
    for level, upright in members.values():
        heights, places = _places(box[1] for box in level), _places(box[0] for box in upright)
        if len(heights) > 1 and len(places) > 1:
            left, right = min(places[0], *(box[0] for box in level)), max(places[-1], *(box[2] for box in level))
            crossed.append(_Grid((left, heights[0], right, heights[-1]), heights, places))
    grids = [each for each in _banded(crossed) if len(each.heights) > 2]
    return sorted(grids, key=lambda each: (each.box[2] - each.box[0]) * (each.box[3] - each.box[1]))  # inner ones first


def _banded(grids: Iterable[_Grid]) -> list[_Grid]:
    """Frames of the same left and right, one below the other, as one: every other row is shaded."""
    stacks: list[list[_Grid]] = []
    for grid in sorted(grids, key=lambda each: (round(each.box[0]), round(each.box[2]), each.box[1])):
        if stacks:
            (left, top, right, bottom), (x0, y0, x1, y1) = stacks[-1][-1].box, grid.box
            close = -_SAME < y0 - bottom < 2 * max(bottom - top, y1 - y0)
            if close and abs(left - x0) < _NEAR and abs(right - x1) < _NEAR:
                stacks[-1].append(grid)
                continue
        stacks.append([grid])
    out: list[_Grid] = []
    for stack in stacks:
        gaps = [below.box[1] - above.box[3] for above, below in pairwise(stack)]
        row = max(0.0, min(gaps, default=0.0))  # a first and a last one may be without a shade
        left, top, right, bottom = (*stack[0].box[:3], stack[-1].box[3])
        heights = _places(height for grid in stack for height in grid.heights)
        places = _places(place for grid in stack for place in grid.places)
        out.append(_Grid((left, top - row, right, bottom + row), heights, places))
    return out


def _places(values: Iterable[float]) -> list[float]:
    """Values that differ, rising."""
    out: list[float] = []
    for value in sorted(values):
        if not out or value - out[-1] > 2 * _SAME:
            out.append(value)
    return out


def _grid_rows(grid: _Grid, inside: Sequence[Piece]) -> list[str] | None:
    """The rows of a grid; None where it has one column."""
    if len(grid.places) > 2:
        columns = [bisect_right(grid.places, (piece.left + piece.right) / 2) for piece in inside]
    else:
        spans = _spans([inside])
        columns = [_column(piece, spans) for piece in inside]
    if len(set(columns)) < 2:
        return None
    bands: dict[int, list[tuple[Piece, int]]] = {}
    for piece, column in zip(inside, columns, strict=True):
        bands.setdefault(bisect_right(grid.heights, piece.middle), []).append((piece, column))
    rows: list[str] = []
    for _, band in sorted(bands.items()):
        n = len({column for _, column in band})
        split = _by_height(band)
        if len(split) > 1 and sum(len({column for _, column in row}) for row in split) > _FULL * n * len(split):
            rows += [_row(row) for row in split]
        else:
            rows.append(_row([each for row in split for each in row]))
    return rows


def _by_height(band: Sequence[tuple[Piece, int]]) -> list[list[tuple[Piece, int]]]:
    """Pieces that share a height, from top to bottom."""
    rows: list[list[tuple[Piece, int]]] = []
    for piece, column in sorted(band, key=lambda each: (each[0].middle, each[0].left)):
        if rows and piece.middle - rows[-1][0][0].middle < 0.4 * piece.height:
            rows[-1].append((piece, column))
        else:
            rows.append([(piece, column)])
    return rows


def _row(cells: Iterable[tuple[Piece, int]]) -> str:
    """Pieces of a cell follow one another."""
    held: dict[int, list[str]] = {}
    for piece, column in cells:
        held.setdefault(column, []).append(piece.text)
    return CELLS.join(" ".join(texts) for _, texts in sorted(held.items()))


def _plain_lines(rows: Sequence[Line]) -> list[str]:
    """Lines without a grid: rows of tables, columns of prose one after the other, and lines as they are."""
    out: list[str] = []
    at = 0
    while at < len(rows):
        end = _run(rows, at)
        run = rows[at:end]
        at = end
        multi = [line for line in run if len(line) > 1]
        if len(multi) > 1 and _is_prose(multi) and len(spans := _spans(multi)) > 1:
            for column in range(len(spans)):
                out += [piece.text for line in run for piece in line if _column(piece, spans) == column]
        else:
            apart = APART if len(multi) < 2 or _is_contents(multi) or _is_prose(multi) else CELLS
            out += [apart.join(piece.text for piece in line) for line in run]
    return out


def _run(rows: Sequence[Line], at: int) -> int:
    """The end of the run of lines from here that have a gap in common, with at most two other lines between."""
    if not _unmarked(rows[at]):
        return at + 1
    last = at
    for n in range(at + 1, len(rows)):
        line = rows[n]
        if n - last > _MOST_BETWEEN + 1 or not _follows(rows[n - 1], line):
            break
        if _unmarked(line):
            if not _share_a_gap(rows[last], line):
                break
            last = n
    return last + 1


def _unmarked(line: Line) -> bool:
    """Whether a line has a gap; the mark of a list goes to the text behind it."""
    if len(line) > 1 and _MARKER.fullmatch(line[0].text):
        line[0].text, line[0].right = f"{line[0].text} {line[1].text}", line[1].right
        del line[1]
    return 1 < len(line) <= _MOST_CELLS


def _follows(above: Line, below: Line) -> bool:
    gap = min(piece.top for piece in below) - max(piece.bottom for piece in above)
    return -0.5 < gap / below[0].height < 2.5


def _share_a_gap(one: Line, other: Line) -> bool:
    return any(
        min(b.left, d.left) - max(a.right, c.right) > 0.3 * a.height
        for a, b in pairwise(one)
        for c, d in pairwise(other)
    )


def _spans(found: Sequence[Sequence[Piece]]) -> list[tuple[float, float]]:
    """Where the columns are: pieces that overlap. One over several of them does not count."""
    spans: list[tuple[float, float]] = []
    for piece in sorted((piece for line in found for piece in line), key=lambda each: each.right - each.left):
        hit = [n for n, (left, right) in enumerate(spans) if piece.left < right - 1 and piece.right > left + 1]
        if not hit and len(spans) < _MOST_CELLS:
            spans.append((piece.left, piece.right))
        elif len(hit) == 1:
            left, right = spans[hit[0]]
            spans[hit[0]] = min(left, piece.left), max(right, piece.right)
    return sorted(spans)


def _column(piece: Piece, spans: Sequence[tuple[float, float]]) -> int:
    """The column with which a piece shares most."""
    return max(range(len(spans)), key=lambda n: min(piece.right, spans[n][1]) - max(piece.left, spans[n][0]))


def _is_prose(multi: Sequence[Line]) -> bool:
    """Whether lines are columns of prose: few columns, several words in a piece, few numbers, both sides alike."""
    held = [piece for line in multi for piece in line]
    counts = [len(piece.text.split()) for piece in held]
    n_numbers = sum(_NUMBER.fullmatch(piece.text) is not None for piece in held)
    if sum(counts) < (3 if len(multi) > 3 else 4) * len(held) or 5 * n_numbers >= len(held):
        return False
    spans = _spans(multi)
    if len(spans) > 3:
        return False
    sides = [0] * len(spans)
    for piece, n in zip(held, counts, strict=True):
        sides[_column(piece, spans)] += n
    return 2 * min(sides) >= max(sides)


def _is_contents(multi: Sequence[Line]) -> bool:
    """Whether lines are titles with the numbers of their pages."""
    if 2 * sum(any(_LEADER.search(piece.text) for piece in line) for line in multi) > len(multi):
        return True
    ends = [line[-1].text for line in multi]
    if len(multi) < 3 or any(len(line) > 3 for line in multi) or not all(end.isdecimal() for end in ends):
        return False
    numbers = [int(end[:9]) for end in ends]
    return numbers == sorted(numbers) and all(len(line[-2].text.split()) > 1 for line in multi[:-1])
