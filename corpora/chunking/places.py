"""Places in a text where it may be cut when nothing is counted: lines, sentences, words, whole clusters of characters.

Offsets are characters of the text given, end excluded.
"""

from __future__ import annotations

import re
import unicodedata

_SEEN = re.compile(r"\S")


def next_seen(text: str, start: int) -> int:
    """Where the text behind `start` begins, white space left out; its end where there is nothing else."""
    found = _SEEN.search(text, start)
    return found.start() if found else len(text)


def stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without white space around it; (end, end) where there is nothing else."""
    inner = text[start:end].lstrip()
    start = end - len(inner)
    return start, start + len(inner.rstrip()) if inner else end


def halves(text: str) -> list[tuple[int, int]]:
    """Two spans of a text, cut between lines, sentences or words where there is such a place near the middle."""
    at = _boundary(text, len(text) // 4, len(text) * 3 // 4, len(text) // 2)
    spans = [stripped(text, 0, at), stripped(text, at, len(text))]
    return [(start, end) for start, end in spans if start < end]


def whole_cluster(text: str, at: int, least: int) -> int:
    """The last place up to `at` that is not inside what a reader sees as one character; `at` if none is near.

    Not the whole of UAX 29: marks, joined and tinted emoji, flags, Hangul letters and CR LF, 32 characters back.
    """
    for place in range(at, max(at - 32, least), -1):
        if not _joined(text[place - 1], text[place]):
            return place
    return at


def _boundary(text: str, low: int, high: int, otherwise: int) -> int:
    """The last end of a paragraph, line, sentence or word in `text[low:high]`; else about `otherwise`."""
    for mark in ("\n\n", "\n", ". ", " "):
        found = text.rfind(mark, low, high)
        if found >= 0:
            return found + len(mark)
    return whole_cluster(text, otherwise, low)


def _joined(before: str, after: str) -> bool:
    return (
        unicodedata.category(after) in ("Mn", "Mc", "Me")
        or "\u200d" in (before, after)
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or ("\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff")
        or ("\u1160" <= after <= "\u11ff")
        or (before, after) == ("\r", "\n")
    )
