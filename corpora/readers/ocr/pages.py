"""A scanned page becomes lines: its texts in the order of reading, rows of tables as `a | b`.

    picture -> lines; none where the engine does not know its script

Order and rows are those of PDF pages (`pdf.tables`), from the boxes of what was recognised, and lines that are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from ragidx.corpora.left_out import UNKNOWN_SCRIPT, Tally
from ragidx.corpora.limits import Limits
from ragidx.corpora.readers.ocr.engines import AUTO, Ask, Recognised, confidence, recognised
from ragidx.corpora.readers.pdf.tables import APART, merged, page_lines
from ragidx.corpora.readers.pdf.text import Box, Piece
from ragidx.corpora.records import OCR_FIELDS, Scalar

if TYPE_CHECKING:
    from PIL.Image import Image

_DPI = 200
_LONGEST = 3_500  # pixels of a side: an A4 page at 300 dpi
_READ, _WHOLE = 0.5, 0.9  # of the letters of a page are known: it is read; it is read whole
_POINTS = 12.0  # height of a line, to which pages of any resolution are scaled
_MOST_ACROSS = 0.25  # of the pieces of a page of columns
_MOST_PLACES = 64
_BROKEN = re.compile(r"[^\W\d_]{2}-$")
_DARK = 140  # of 255
_RULE = 25  # lines that are drawn are longer than a 25th of the page


@dataclass
class Scans:
    """Reads the scanned pages of a file.

    Args:
        setting: `auto`, or languages of tesseract.
        limits: bounds on files.
        ask: what runs tesseract.
        on_page: called after each page with the share of the file that is done.

    Attributes:
        n_pages: pages that were read.
    """

    setting: str
    limits: Limits
    ask: Ask
    on_page: Callable[[float], None] = lambda share: None
    n_pages: int = 0
    _tried: int = 0
    _n_chars: int = 0
    _sure: float = 0.0  # confidence times characters

    def scale(self, wide: float, high: float) -> float:
        """Pixels a point in which a page of so many points is drawn."""
        return min(_DPI / 72, _LONGEST / max(wide, high))

    def lines(self, draw: Callable[[], Image], left: Tally, at: str = "", share: float = 0.0) -> list[str]:
        """The lines of a page, which `draw` makes. What is not read is counted, and so is that it was read."""
        self._tried += 1
        if self._tried > self.limits.ocr_pages:
            left.leave("scanned pages", 1, at)
            return []
        picture = _sized(draw())
        try:
            straight, found, known = recognised(picture, self.setting, self.ask)
        except OSError:
            left.leave("scanned pages", 1, at)
            return []
        finally:
            self.on_page(share)
        left.leave(UNKNOWN_SCRIPT, int(known < _WHOLE), at)  # or a part of it
        if known < _READ:
            return []
        left.leave("pages read by OCR", 1, at)
        self.n_pages += 1
        n_chars = sum(len(one.text) for one in found)
        self._n_chars, self._sure = self._n_chars + n_chars, self._sure + confidence(found) * n_chars
        return _lines(found, straight, is_ordered=self.setting != AUTO)

    @property
    def fields(self) -> dict[str, Scalar]:
        """The fields of the file, if any page was read."""
        if not self._n_chars:
            return {}
        return dict(zip(OCR_FIELDS, (self.n_pages, round(self._sure / self._n_chars, 3)), strict=True))


def _sized(picture: Image) -> Image:
    grey = picture if picture.mode == "L" else picture.convert("L")
    if max(grey.size) > _LONGEST:
        grey.thumbnail((_LONGEST, _LONGEST))
    return grey


def _lines(found: Sequence[Recognised], picture: Image, *, is_ordered: bool) -> list[str]:
    """The lines of a page, by the code of PDF pages; `is_ordered`: they come in the order of reading."""
    if not found:
        return []
    scale = _POINTS / max(1.0, median(one.bottom - one.top for one in found))
    pieces = [
        Piece(one.text, scale * one.left, scale * one.right, scale * one.top, scale * one.bottom) for one in found
    ]
    ordered = pieces if is_ordered else list(_in_order(pieces))
    return _unbroken(line.replace(APART, " ") for line in page_lines({0: ordered}, _ruled(picture, scale)))


def _unbroken(lines: Iterable[str]) -> list[str]:
    """Lines with words whole that a hyphen cuts at the end of one.

    >>> _unbroken(["the light-", "house keeper", "of 1862-", "1904"])
    ['the lighthouse', 'keeper', 'of 1862-', '1904']
    """
    out: list[str] = []
    for line in lines:
        if out and _BROKEN.search(out[-1]) and line[:1].islower():
            half, _, line = line.partition(" ")  # noqa: PLW2901
            out[-1] = out[-1][:-1] + half
        if line:
            out.append(line)
    return out


def _in_order(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Pieces as they are read: row by row; where a gap parts prose from prose, the left column first.

    What goes over both columns, a title, is between those above and those below it.
    """
    read = [piece for row in _rows(pieces) for piece in row]
    cut = _gutter(read)
    if cut is None:
        yield from read
        return
    sides: tuple[list[Piece], list[Piece]] = ([], [])
    for piece in read:
        if not piece.left < cut < piece.right:
            sides[piece.left >= cut].append(piece)
            continue
        yield from (one for side in sides for one in _in_order(side))
        yield piece
        sides = ([], [])
    yield from (one for side in sides for one in _in_order(side))


def _gutter(pieces: Sequence[Piece]) -> float | None:
    """The place of an upright gap between two columns of prose, over which the fewest pieces go."""
    places = sorted({round(piece.right + piece.height / 2) for piece in pieces})
    best, fewest = None, _MOST_ACROSS * len(pieces)
    for place in places[:: 1 + len(places) // _MOST_PLACES]:
        n_across = sum(piece.left < place < piece.right for piece in pieces)
        if n_across < fewest and all(
            _is_prose(side)
            for side in ([one for one in pieces if one.right <= place], [one for one in pieces if one.left >= place])
        ):
            best, fewest = float(place), n_across
    return best


def _is_prose(side: Sequence[Piece]) -> bool:
    """Whether pieces are a column of prose: three lines or more, of four words or twelve letters of Chinese."""
    return len(side) > 2 and sum(max(len(one.text.split()), len(one.text) // 12) for one in side) >= 4 * len(side)


def _rows(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Pieces that share a height, from top to bottom, each row from left to right."""
    rows: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda one: one.middle):
        if rows and piece.middle - rows[-1][0].middle < 0.5 * min(piece.height, rows[-1][0].height):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return [sorted(row, key=lambda one: one.left) for row in rows]


def _ruled(picture: Image, scale: float) -> list[Box]:
    """The level and the upright lines that are drawn in a picture, in points of a page, y upwards."""
    dark = np.asarray(picture) < _DARK
    boxes: list[Box] = []
    for level, rows in ((1, dark), (0, dark.T)):
        least = max(2, max(picture.size) // _RULE)
        runs = (
            (start, at, stop, at) if level else (at, start, at, stop)
            for at in np.flatnonzero(rows.sum(axis=1) >= least).tolist()
            for start, stop in _runs(rows[at], least)
        )
        boxes += merged(((scale * x0, scale * y0, scale * x1, scale * y1) for x0, y0, x1, y1 in runs), level)
    return [(left, -bottom, right, -top) for left, top, right, bottom in boxes]


def _runs(row: np.ndarray[tuple[int], np.dtype[np.bool_]], least: int) -> Iterator[tuple[int, int]]:
    """Where so many pixels in a row are dark."""
    ends = np.flatnonzero(np.diff(np.concatenate(([0], row.view(np.int8), [0]))))
    for start, stop in zip(ends[::2].tolist(), ends[1::2].tolist(), strict=True):
        if stop - start >= least:
            yield start, stop
