"""The part of a passage that is nearest to a question, as it is shown: a piece of about 320 characters, cleaned.

A passage keeps its lines, so that code and tables look as they do in the file; lines of prose are joined.
"""

from __future__ import annotations

import bisect
import functools
import re
import sys
from array import array
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from ragidx.indexer.byte_cache import ByteCache
from ragidx.retriever.printing import printable_lines

if TYPE_CHECKING:
    from ragidx.retriever.hit import Hit

Stem = Callable[[str], str]

WORD = re.compile(r"\w+(?:[\u00ad\u200b-\u200d\u2060\ufeff]+\w+)*")  # a soft hyphen does not end one
_SPACE = re.compile(r"\s+")
_LINE, _SENTENCE = re.compile(r"\n(?=\S)"), re.compile(r"[.!?] +(?=\S)")  # begin after these
_LEADING_HEADINGS = re.compile(r"\A(?:#{1,6} [^\n]*\n+)+")  # the heading path is shown beside the source
_PASSAGE = 320  # characters
_KEPT_BYTES = 8 << 20  # of passages that were shown
_PROSE, _PROSE_WORDS = 60, 8  # characters and spaces of a line that the next one continues, at least
_STOP = frozenset(
    re.findall(
        r"\w+",
        """a about all an and any are as at be by can did do does for from had has have how i in into is it its make
        makes more most of on one or our so than that the their them then they this to was were what when where which
        who why will with you""",
    )
)


class Excerpt(NamedTuple):
    """What is shown of a hit, and where that begins in its file; None where it has no lines, or no pages."""

    text: str
    line: int | None
    page: int | None


def passage(hit: Hit, query: str, stem: Stem) -> Excerpt:
    """The part of a hit's text that is nearest to a question."""
    text, begin = nearest(hit.text, query, stem)
    return Excerpt(text, *hit.position(begin))


def hits_json(hits: Sequence[Hit], query: str, stem: Stem) -> list[dict[str, Any]]:
    """Hits as JSON, each with the part that is nearest to the question and where that begins in the file."""
    return [hit.to_json() | {"passage": passage(hit, query, stem)._asdict()} for hit in hits]


@functools.lru_cache(maxsize=16)
def stem_of(language: str | None) -> Stem:
    """A word to its stem, as an index has it, without accents; without one, lower case without a plural s.

    Stems are kept: the same words are in the passages of many answers.
    """
    from ragidx.indexer.lexical.scripts import cleaned, folded  # a question that is shown plainly needs none
    from ragidx.indexer.lexical.stemming import NONE, stemmer

    stem = simple_stem if language in (None, NONE) else stemmer(str(language))
    return functools.lru_cache(maxsize=100_000)(lambda word: stem(word if word.isascii() else folded(cleaned(word))))


def simple_stem(word: str) -> str:
    """Lower case, without a plural s: enough to find the words of a question."""
    return word.lower().removesuffix("s")


def nearest(text: str, query: str, stem: Stem = simple_stem, length: int = _PASSAGE) -> tuple[str, int]:
    """The part of a chunk that shares the most words with the query, about `length` characters, whole words.

    It begins with a line or a sentence, if any such part has a word of the query, and holds one whole if it fits.

    Returns:
        It, and where in the text it begins; 0 where all of the text is shown.
    """
    shown = _kept.get((text, stem), lambda: _Shown(text, stem))
    whole, starts = shown.whole, shown.starts
    if len(whole) <= length:
        return whole, 0
    matches = shown.matches(stems_of(query, stem))
    best = _best_start(starts, matches, length)
    end = best + length
    if matches and not any(best <= first and last <= end for first, last, _ in matches):  # in a long line or sentence
        first = matches[0][0]
        earliest = max(0, first - length // 2)
        best = next((match.end() for match in _SPACE.finditer(whole, earliest, first)), min(earliest, first))
        end = best + length
    if end >= len(whole):  # its end: from the first line or sentence that lets all of it be shown, else from a word
        end, earliest = len(whole), len(whole) - length
        nearest = min(best, earliest + length // 2)
        word = next((match.end() for match in _SPACE.finditer(whole, earliest, best)), earliest)
        best = next((start for start in starts if earliest <= start <= nearest), word)
    else:
        inside = [last for first, last, _ in matches if best <= first and last <= end]
        cut = max(whole.rfind(" ", best, end), whole.rfind("\n", best, end), *inside[-1:])
        end = cut if cut > best else end
    part = f"{'… ' if best else ''}{whole[best:end].rstrip()}{' …' if end < len(whole) else ''}"
    return part, shown.begin(best) if best else 0


class _Shown:
    """A text as it is shown, with what every question asks of it; kept, for the same hits come again and again."""

    def __init__(self, text: str, stem: Stem) -> None:
        self.whole = printable_text(_LEADING_HEADINGS.sub("", text)).strip("\n")
        self.starts = _starts(self.whole)
        words = list(WORD.finditer(self.whole))
        self._firsts, self._lasts = (array("i", map(of, words)) for of in (re.Match.start, re.Match.end))
        self._stems: dict[str, list[int]] = {}  # where each is, by the numbers of words
        for number, word in enumerate(words):
            self._stems.setdefault(stem(word[0].lower()), []).append(number)
        headings = _LEADING_HEADINGS.match(text)
        self._in_text = array("i", (word.start() for word in WORD.finditer(text, headings.end() if headings else 0)))
        numbers = len(self.starts) + 2 * len(words) + len(self._in_text) + 16 * len(self._stems)
        self.nbytes = sys.getsizeof(text) + sys.getsizeof(self.whole) + 8 * numbers + 500

    def matches(self, wanted: Set[str]) -> list[tuple[int, int, str]]:
        """Where words with one of these stems are, and that stem; rising."""
        held = wanted & self._stems.keys()
        return sorted((self._firsts[at], self._lasts[at], stem) for stem in held for at in self._stems[stem])

    def begin(self, place: int) -> int:
        """Where in the text the first word from a place on begins: what is printed differs between words alone."""
        number = bisect.bisect_left(self._firsts, place)
        return self._in_text[number] if number < len(self._in_text) else 0


_kept: ByteCache[_Shown] = ByteCache(_KEPT_BYTES)


def _starts(text: str) -> list[int]:
    """Where lines and sentences begin; rising."""
    found = [match.end() for pattern in (_LINE, _SENTENCE) for match in pattern.finditer(text)]
    return sorted({*found, *([0] if text[:1].strip() else [])}) or [0]


def printable_text(text: str) -> str:
    """The lines of a text without control characters and without runs of empty lines; tabs are four spaces.

    Lines of prose that were broken at a fixed width are joined to paragraphs.
    """
    kept: list[str] = []
    before = ""  # the line before, as the text has it
    for raw in text.splitlines():
        line = printable_lines(raw.expandtabs(4)).rstrip()
        if kept and _is_prose(before) and line[:1].isalnum():
            kept[-1] += f" {line}"
        elif line or (kept and kept[-1]):
            kept.append(line)
        before = line
    return "\n".join(kept)


def _is_prose(line: str) -> bool:
    """Whether a line is of running text that continues: long, of many words, not indented and no part of a table."""
    return len(line) >= _PROSE and line.count(" ") >= _PROSE_WORDS and line[0].isalpha() and "  " not in line


@functools.lru_cache(maxsize=16)
def stems_of(query: str, stem: Stem) -> frozenset[str]:
    """Stems of the words of a question that are not among the commonest."""
    return frozenset(stem(word) for word in map(str.lower, WORD.findall(query)) if word not in _STOP)


def _best_start(starts: Sequence[int], matches: Sequence[tuple[int, int, str]], length: int) -> int:
    """The first of the starts with the most letters of different words in the `length` characters from there.

    Args:
        starts: starts of windows, rising.
        matches: begins, ends and words, rising.
        length: length of the window in characters.
    """
    begins, ends = [begin for begin, _, _ in matches], [end for _, end, _ in matches]

    def letters(start: int) -> int:
        if not matches or start > begins[-1]:
            return 0
        inside = matches[bisect.bisect_left(begins, start) : bisect.bisect_right(ends, start + length)]
        return sum(map(len, {word for _, _, word in inside}))

    return max(starts, key=letters)
