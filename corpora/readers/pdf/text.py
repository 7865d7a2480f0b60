"""The words of a page of a PDF, as pieces of lines with their boxes, in the order in which they are drawn.

    text page -> its characters -> pieces by the direction of their text -> lines of pieces

Boxes are asked for at the ends of words alone. Points of the page, y upwards, become those of a frame in which the text
stands upright, y downwards, so that /Rotate and turned text do not matter.
"""

from __future__ import annotations

import ctypes
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pypdfium2.raw as pdfium_c

Box: TypeAlias = tuple[float, float, float, float]  # left, bottom, right, top of the page; in a frame left, top, ...

_QUARTER = 1.5707963
_WIDE = 1.0  # of the height of a word: a wider gap is between pieces
_OVERLAP = 0.3  # of the height of a word: words of a line share more than that
_MOST_CHARS = 10_000  # of a piece
_SAME_PLACE = 2.0  # points: what is drawn again so near is bold
_ANGLES = 16
_SAMPLE = 100  # characters of a page
_MOST_UNMAPPED = 0.3  # of them
_FEW_CHARS = 500  # of a page: more cannot be in lines of single ones
_HYPHEN = "\ufffe"  # at the end of a line; the word continues behind it
_CONTROLS = dict.fromkeys((*range(9), *range(11, 13), *range(14, 32), 127), "\x00") | {2: _HYPHEN}
_WORD = re.compile(f"(?:[^\\s{_HYPHEN}]|{_HYPHEN}(?:\r?\n)?)+")
_DROPPED = re.compile(f"[\x00\r\n{_HYPHEN}]")


@dataclass(slots=True)
class Piece:
    """Words of a line without a wide gap between them; y grows downwards."""

    text: str
    left: float
    right: float
    top: float
    bottom: float

    @property
    def middle(self) -> float:
        """The middle of its height."""
        return (self.top + self.bottom) / 2

    @property
    def height(self) -> float:
        """The height of the box, of at least a point."""
        return max(self.bottom - self.top, 1.0)


Line: TypeAlias = list[Piece]


def characters(textpage: Any) -> str:
    """One character for each of PDFium's; a control is NUL, a hyphen at the end of a line U+FFFE."""
    n, raw = textpage.count_chars(), textpage.raw
    text = str(textpage.get_text_range())
    if len(text) != n:  # some are not in it: those without Unicode, and those above U+FFFF
        codes = (pdfium_c.FPDFText_GetUnicode(raw, at) for at in range(n))
        text = "".join(chr(code) if code < 0x110000 else "\x00" for code in codes)
    return text.translate(_CONTROLS)


def is_unmapped(textpage: Any, text: str) -> bool:
    """Whether the font gives no Unicode for more than 30 % of the characters: what is there is no text."""
    raw, step = textpage.raw, max(1, len(text) // _SAMPLE)
    sample = [at for at in range(0, len(text), step) if not text[at].isspace()]
    n_unmapped = sum(bool(pdfium_c.FPDFText_HasUnicodeMapError(raw, at) == 1) for at in sample)
    return n_unmapped > _MOST_UNMAPPED * len(sample)


def main_turn(textpage: Any, text: str) -> int:
    """The quarter turns in which most of a sample of the characters stand, against the clock."""
    step = max(1, len(text) // _ANGLES)
    turns = Counter(_turn(textpage.raw, at) for at in range(0, len(text), step) if text[at].isalnum())
    return max(turns, key=lambda turn: (turns[turn], -turn), default=0)


def _turn(raw: Any, at: int) -> int:
    angle = pdfium_c.FPDFText_GetCharAngle(raw, at)  # clockwise; it may be no number
    return -round(angle / _QUARTER) % 4 if -10 < angle < 10 else 0


def turned(box: Box, turn: int) -> Box:
    """A box of the page in the frame of text that is turned by so many quarters: left, top, right, bottom."""
    left, low, right, high = box
    if turn == 0:
        return left, -high, right, -low
    if turn == 1:
        return low, left, high, right
    return (-right, low, -left, high) if turn == 2 else (-high, -right, -low, -left)


def pieces(textpage: Any, text: str, bars: Sequence[Box]) -> dict[int, list[Piece]]:
    """The pieces of a page by the quarter turns of their text; no piece goes across one of the bars that are drawn."""
    raw, box_of = textpage.raw, pdfium_c.FPDFText_GetLooseCharBox  # as high as the font, not the glyph
    first, last = pdfium_c.FS_RECTF(), pdfium_c.FS_RECTF()
    to_first, to_last = ctypes.byref(first), ctypes.byref(last)
    by_turn: dict[int, list[Piece]] = {}
    walls: dict[int, _Walls] = {}
    before, turn, broken = 0, 0, True
    piece = Piece("", 0.0, 0.0, 0.0, 0.0)
    for start, stop, is_alone in _spans(raw, text):
        shown = word = text[start:stop]
        end, whole = stop, shown.isprintable()
        if not whole:
            end = start + max(1, len(shown.partition(_HYPHEN)[0]))
            shown = _DROPPED.sub("", shown)
            if not shown:
                continue
        fresh = broken or is_alone or text.find("\n", before, start) >= 0
        before, broken = stop, not whole and _HYPHEN in word
        box_of(raw, start, to_first)
        box_of(raw, end - 1, to_last)
        left, right, low, high = first.left, last.right, first.bottom, first.top
        if last.left < left or right < first.right:  # from right to left, or turned
            left, right = min(left, last.left), max(right, first.right)
        if last.bottom != low or last.top != high:
            low, high = min(low, last.bottom), max(high, last.top)
        if fresh:
            turn = _turn(raw, start)
        left, top, right, bottom = (left, -high, right, -low) if turn == 0 else turned((left, low, right, high), turn)
        goes_on = not fresh and len(piece.text) < _MOST_CHARS and _goes_on(piece, shown, left, top, right, bottom)
        if goes_on and bars:
            if turn not in walls:
                walls[turn] = _Walls(bars, turn)
            goes_on = not walls[turn].between(piece, left, right)
        if goes_on:
            piece.text = f"{piece.text} {shown}"
            piece.left, piece.right = min(piece.left, left), max(piece.right, right)
            piece.top, piece.bottom = min(piece.top, top), max(piece.bottom, bottom)
            continue
        piece = Piece(shown, left, right, top, bottom)
        by_turn.setdefault(turn, []).append(piece)
    return {way: _once(each) for way, each in by_turn.items()}


def _spans(raw: Any, text: str) -> Iterator[tuple[int, int, bool]]:
    """Where words begin and end, and whether one is alone in its line, whatever PDFium says.

    Of single characters, each in a line of its own, PDFium makes one word where there are hardly others on the page.
    """
    may_be_glued = len(text) < _FEW_CHARS
    low, high = pdfium_c.FS_RECTF(), pdfium_c.FS_RECTF()
    for word in _WORD.finditer(text):
        start, end = word.span()
        if may_be_glued and end - start > 1:
            pdfium_c.FPDFText_GetLooseCharBox(raw, start, ctypes.byref(high))
            pdfium_c.FPDFText_GetLooseCharBox(raw, end - 1, ctypes.byref(low))
            gap = high.bottom - low.top
            if gap > (end - start - 1.8) * (high.top - high.bottom) > 0 and _turn(raw, start) == 0:
                yield from ((at, at + 1, True) for at in range(start, end))
                continue
        yield start, end, False


def _goes_on(piece: Piece, word: str, left: float, top: float, right: float, bottom: float) -> bool:
    """Whether a word stands beside a piece, in its line."""
    height = bottom - top
    height = max(height, 1.0)
    gap = left - piece.right
    if word[0] > "\u0590" and _is_leftward(word):
        gap = piece.left - right
    if not -_OVERLAP * height < gap < _WIDE * height:
        return False
    shared = min(bottom, piece.bottom) - max(top, piece.top)
    return shared > _OVERLAP * height or shared > _OVERLAP * piece.height


def _is_leftward(word: str) -> bool:
    return unicodedata.bidirectional(word[0]) in ("R", "AL")


class _Walls:
    """Upright lines that are drawn, in the frame of a direction."""

    def __init__(self, bars: Sequence[Box], turn: int) -> None:
        boxes = sorted(box for box in (turned(bar, turn) for bar in bars) if box[3] - box[1] > box[2] - box[0])
        self._boxes, self._places = boxes, [box[0] for box in boxes]

    def between(self, piece: Piece, left: float, right: float) -> bool:
        """Whether one stands between a piece and a word from `left` to `right`."""
        low, high = (piece.right, left) if left >= piece.left else (right, piece.left)
        low, high = min(low, high) - 1, max(low, high) + 1
        at = bisect_left(self._places, low)
        while at < len(self._boxes) and self._places[at] <= high:
            if self._boxes[at][1] <= piece.middle <= self._boxes[at][3]:
                return True
            at += 1
        return False


def _once(found: Iterable[Piece]) -> list[Piece]:
    """The pieces but those that are drawn again at their place, as for bold."""
    seen: dict[tuple[str, float, float], Piece] = {}
    once = []
    for piece in found:
        near = min(_SAME_PLACE, piece.height / 4)
        x, y = piece.left // _SAME_PLACE, piece.top // _SAME_PLACE
        around = (seen.get((piece.text, x + dx, y + dy)) for dx in (0, -1, 1) for dy in (0, -1, 1))
        if not any(
            one is not None and abs(one.left - piece.left) < near and abs(one.top - piece.top) < near for one in around
        ):
            once.append(piece)
        seen[piece.text, x, y] = piece
    return once


def lines(found: Iterable[Piece]) -> list[Line]:
    """Pieces in the order in which they are drawn; one that continues beside the last one is of its line.

    Pages are mostly drawn as they are read: to sort by height would mix the columns of every paper.
    """
    made: list[Line] = []
    for piece in found:
        last = made[-1][-1] if made else None
        if last is not None and abs(piece.middle - last.middle) < 0.3 * last.height:
            ahead = piece.right < last.left + 1 if _is_leftward(piece.text) else piece.left > last.right - 1
            if ahead:
                made[-1].append(piece)
                continue
        made.append([piece])
    return made
