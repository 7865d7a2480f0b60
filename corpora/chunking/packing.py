"""Packing: pieces become spans of at most so many tokens, each cut at the best place in its second half.

Pieces, their levels and a budget -> `TextSpan`s. Greedy from left to right: a span depends on nothing further than its
budget behind it, so a text that is seen a window at a time is cut as if it were seen at once. Linear time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ragidx.corpora.chunking.levels import SENTENCES, WORD, Levels
from ragidx.corpora.chunking.pieces import Counter, Numbers, Pieces

CHARS_A_TOKEN = 16
"""No span is longer than this times its budget: 300,000 letters may be one unknown word, and one token."""

_AHEAD = 3  # pieces at the end of a window that may be others when more of the text is seen


@dataclass(frozen=True, slots=True)
class TextSpan:
    """`text[start:end]`, white space around it included."""

    start: int
    end: int
    doubtful: bool  # whether its tokens may be more than was counted
    ids: bytes | None = None  # its tokens, where no piece may have others


@dataclass(frozen=True, slots=True)
class Window:
    """`text[start:end]`, which begins with no white space, and its pieces; `last`: nothing follows it."""

    text: str
    start: int
    end: int
    pieces: Pieces
    last: bool


def pack(
    window: Window, levels: Levels, counter: Counter, budget: int, overlap: int, behind: int
) -> tuple[list[TextSpan], int]:
    """The spans of a window that do not depend on what follows it, and where the next one begins.

    Args:
        window: the text that is packed.
        levels: the levels of its document.
        counter: the counter that counted the pieces.
        budget: tokens of a span, at most; a single piece may have more, and is then doubtful.
        overlap: tokens that neighbours share, at most.
        behind: the first span ends behind this, where the one before it ended.
    """
    p = window.pieces
    if window.last and p.seen[-1] <= budget and window.end - window.start <= CHARS_A_TOKEN * budget:
        doubtful = bool(p.doubts[-1]) or not counter.exact
        return [TextSpan(window.start, window.end, doubtful, p.span_ids(0, len(p.ends) - 1))], window.end
    return _Packer(window, levels.of(p, window.start, window.end), counter, budget).spans(overlap, behind)


@dataclass(frozen=True, slots=True)
class _Packer:
    window: Window
    levels: Numbers
    counter: Counter
    budget: int

    def spans(self, overlap: int, behind: int) -> tuple[list[TextSpan], int]:
        p, found = self.window.pieces, list[TextSpan]()
        n, first = len(p.ends), 0
        least = int(p.ends.searchsorted(behind, "right"))  # the piece that the next span holds, or a later one
        while first < n:
            room = self.budget - self._gain(first)
            high = self._fitting(first, room)
            if high <= least:  # it would end with its overlap
                first = least
            elif self.window.last and high == n:
                found.append(self._span(first, n - 1))
                first = n
            elif not self.window.last and high >= n - _AHEAD:
                break
            else:
                cut = self._cut(first, max(first, least), high, room)
                found.append(self._span(first, cut))
                first, least = self._next(first, cut, overlap), cut + 1
        return found, self._begin(first) if first < n else self.window.end

    def _fitting(self, first: int, room: int) -> int:
        """The first piece that does not fit behind `first`; one fits always."""
        p = self.window.pieces
        high = p.seen.searchsorted(p.tokens[first] + room, "right")
        far = p.ends.searchsorted(self._begin(first) + CHARS_A_TOKEN * self.budget, "right")
        return max(first + 1, int(min(high, far)))

    def _cut(self, first: int, least: int, high: int, room: int) -> int:
        """The piece behind which the span ends: at the last of the best places in its second half."""
        p = self.window.pieces
        half = int(p.seen.searchsorted(p.tokens[first] + room - self.budget // 2))
        low = max(least, half if half < high else (first + high) // 2)
        while True:
            cut = high - 1 - int(self.levels[low:high][::-1].argmax())
            if cut == low or p.seen[cut] - p.tokens[first] + self._gain_at_end(cut) <= room:
                return cut
            high = cut

    def _next(self, first: int, cut: int, overlap: int) -> int:
        """The piece that the next span begins with: the first of the best that share at most `overlap` tokens."""
        p = self.window.pieces
        low = max(first + 1, int(p.tokens.searchsorted(p.seen[cut] - overlap)))
        levels = self.levels[low - 1 : cut]
        if not overlap or not len(levels):
            return cut + 1
        best = min(SENTENCES, int(levels.max()))
        return low + int((levels >= best).argmax()) if best >= WORD else cut + 1

    def _span(self, first: int, cut: int) -> TextSpan:
        p = self.window.pieces
        doubtful = p.doubts[cut + 1] > p.doubts[first] or p.seen[cut] - p.tokens[first] >= self.budget - 1
        doubtful = bool(doubtful or not self.counter.exact)
        return TextSpan(self._begin(first), int(p.ends[cut]), doubtful, p.span_ids(first, cut))

    def _begin(self, piece: int) -> int:
        """Where the text of a piece begins."""
        p = self.window.pieces
        return int(p.ends[piece - 1] + p.leads[piece]) if piece else self.window.start

    def _gain(self, piece: int) -> int:
        """Tokens more that a piece has without the white space in front of it."""
        start, end = self._begin(piece), int(self.window.pieces.ends[piece])
        whole = start - int(self.window.pieces.leads[piece]) if piece else start
        return self.counter.gain(self.window.text[whole:end], self.window.text[start:end])

    def _gain_at_end(self, piece: int) -> int:
        """Likewise, without that behind it."""
        text = self.window.text[self._begin(piece) : int(self.window.pieces.ends[piece])]
        return self.counter.gain(text, text.rstrip())
