"""Levels: how good a place is to cut a text, from the inside of a word up to a heading of the first level.

`Pieces` and the structure of the text -> (p,) a level for the place behind each piece. In Markdown a line break inside
a paragraph is less than the end of a sentence; lines in fenced code are less than those around it. In other texts an
unindented line that begins a definition (`def`, `class`, `fn`, `func` ...) is more than a blank line. These are
preferences: no chunk is wrong where a text only looks like Markdown or code.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence

import numpy as np

from ragidx.corpora.chunking.pieces import CLAUSE, SENTENCE, Numbers, Pieces
from ragidx.corpora.chunking.places import next_seen
from ragidx.corpora.headings import Section

GLUE, INSIDE, WORD, SUBCLAUSE, SENTENCES, LINE, BLOCK, DEFINITION = range(8)
"""Below a heading; in a word; between words, clauses, sentences, lines, paragraphs; before a definition, a heading."""

_HEADING = 14  # less its level

# By `Pieces.kinds`: newlines << 2 | kind.
_PLAIN = np.array([WORD, SUBCLAUSE, SENTENCES, WORD, *[LINE] * 4, *[BLOCK] * 4])
_MARKDOWN = np.array([WORD, SUBCLAUSE, SENTENCES, WORD, SUBCLAUSE, SUBCLAUSE, SENTENCES, WORD, *[BLOCK] * 4])
_CODE = np.array([WORD, WORD, WORD, WORD, *[SENTENCES] * 4, *[LINE] * 4])
assert max(CLAUSE, SENTENCE) < 4

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*(?:\n|\Z)", re.MULTILINE)
_ITEM = re.compile(r"\n([ \t]*)(?=(?:[-*+]|\d{1,9}[.)])[ \t]|[|<]|```|~~~)")
_DEFINITION = re.compile(
    r"\n(?:@[^\n]*\n){0,8}(?="
    r"(?:(?:export|default|pub(?:\([a-z]+\))?|async|unsafe|static|public|private|protected|abstract|final|inline) +)*"
    r"(?:def|class|fn|func|function|impl|struct|enum|trait|interface|module|namespace|type|sub|macro_rules!)\b)"
)


class Levels:
    """The levels of one document.

    Args:
        text: the whole document.
        sections: sections of a Markdown document, in order; empty for others.
    """

    def __init__(self, text: str, sections: Sequence[Section]) -> None:
        self._text = text
        self._sections = sections
        self._code = _fenced(text) if sections else []

    def of(self, pieces: Pieces, start: int, end: int) -> Numbers:
        """The levels of the places in `text[start:end]`, which the pieces are of."""
        levels = (_MARKDOWN if self._sections else _PLAIN)[pieces.kinds]
        places = pieces.ends + np.append(pieces.leads[1:], 0)  # where the text behind each begins
        if self._sections:
            self._mark(levels, pieces, places, start, end)
        else:
            found = [match.start() + 1 for match in _DEFINITION.finditer(self._text, max(0, start - 1), end)]
            _set(levels, places, found, DEFINITION)
        levels[pieces.glued] = INSIDE
        return levels

    def _mark(self, levels: Numbers, pieces: Pieces, places: Numbers, start: int, end: int) -> None:
        blocks = levels == BLOCK
        items = list(_ITEM.finditer(self._text, max(0, start - 1), end))
        _set(levels, places, [match.end() for match in items if len(match[1]) < 2], LINE)
        _set(levels, places, [match.end() for match in items if len(match[1]) >= 2], SENTENCES)
        levels[blocks] = BLOCK
        first = max(0, bisect.bisect_left(self._code, (start, start)) - 1)
        for inner, outer in self._code[first : bisect.bisect_left(self._code, (end, end))]:
            low, high = np.searchsorted(places, inner, "left"), np.searchsorted(places, outer, "right")
            levels[low:high] = _CODE[pieces.kinds[low:high]]
        self._mark_headings(levels, places, start, end)

    def _mark_headings(self, levels: Numbers, places: Numbers, start: int, end: int) -> None:
        """A place between a heading and its text is the worst; headings without text between them go together."""
        number = max(0, bisect.bisect_right(self._sections, start, key=lambda section: section.start) - 1)
        found: list[tuple[int, int]] = []
        bare = False
        while number < len(self._sections) and self._sections[number].start < end:
            section = self._sections[number]
            number += 1
            if section.level:
                body = next_seen(self._text, section.body)
                found.append((next_seen(self._text, section.start), GLUE if bare else _HEADING - section.level))
                found.append((body, GLUE))
                bare = number < len(self._sections) and body >= self._sections[number].start
        _set(levels, places, [place for place, _ in found], [level for _, level in found])


def _fenced(text: str) -> list[tuple[int, int]]:
    """The lines between fences, in order."""
    found, fence, opened = [], "", 0
    for match in _FENCE.finditer(text):
        if not fence:
            fence, opened = match[1], match.end()
        elif match[1].startswith(fence) and match[0].strip() == match[1]:
            found.append((opened, match.start()))
            fence = ""
    return [*found, (opened, len(text))] if fence else found


def _set(levels: Numbers, places: Numbers, found: Sequence[int], level: int | Sequence[int]) -> None:
    """Give a level to those of `found` that are places; of two levels for one place, the later."""
    numbers = np.searchsorted(places, found)
    there = np.flatnonzero(numbers < len(places))
    there = there[places[numbers[there]] == np.asarray(found, np.int64)[there]]
    levels[numbers[there]] = np.broadcast_to(level, len(found))[there]
