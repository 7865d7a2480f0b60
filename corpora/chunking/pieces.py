"""Pieces: a text in parts at its white space, and the tokens of each from a cache.

text (n characters) -> `Pieces` of p pieces: where each ends, tokens up to there, what kind of place follows.
With most tokenizers the tokens of a text are the sum of those of its pieces, if a piece takes its white space from the
right side. Which side that is depends on the tokenizer: `Counter` tries three patterns on texts of many kinds, and
takes the first whose sums are right. Where none is, each text is tokenised once, and the counts are near, not exact.
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import tokenizers
from numpy.typing import NDArray

from ragidx.corpora.chunking.places import whole_cluster

Numbers: TypeAlias = NDArray[np.int64]
_N = TypeVar("_N", bound=np.generic)

ID_DTYPE = np.dtype(np.uint32)
"""Of token ids, where many are kept or sent."""

PIECE_CHARS = 64
"""A longer word is cut up: its parts alone may have other tokens than in it, so what holds one is counted again."""

_CACHED = 1 << 19  # pieces, some 70 MB; then the cache begins again
_CACHED_CHARS = 2 * PIECE_CHARS

# What a piece is, in one number: tokens, characters, and these bits.
KIND, NEWLINES, SMALL, DOUBT, LEAD, TRAIL, BLANK, MARK = 3, 3 << 2, *(1 << bit for bit in range(4, 10))
WORD, CLAUSE, SENTENCE = 0, 1, 2
_CHARS, _TOKENS = 12, 36
_CHARS_MASK = (1 << (_TOKENS - _CHARS)) - 1

# Where white space belongs: to no token (BERT), before a word (GPT-2), newlines behind a mark (Llama 3, Qwen 2).
_FREE = re.compile(r"\S+\s*|\s+")
_PATTERNS = (
    _FREE,
    re.compile(r" ?\S+|\s+(?!\S)|\s+"),
    re.compile(r"[^\S\r\n]?\S+(?:(?<![^\W_])[\r\n]+)?|\s*[\r\n]+|\s+(?!\S)|\s+"),
)
_SENTENCE = re.compile(r"[.!?…。！？][\"'”’»)\]*_]*\Z")
_CLAUSE = re.compile(r"[,;:、，；：][\"'”’»)\]]*\Z")
_MARKS = frozenset(".!?…。！？,;:、，；：\"'”’»)]*_")
_ABBREVIATION = re.compile(
    r"[\"'“‘(\[]*(?:[^\W\d_]|e\.g|i\.e|U\.S|[A-Z]\.[A-Z]|[Dd]r|[Mm]rs?|Ms|Prof|St|Jr|Sr|vs|cf|[Ff]igs?|No|Nos|[Vv]ol|pp|al|approx|ca|Inc|Ltd|Co)\.\Z"
)
_APART = ".,;:!?\"'()[]“”‘’"
_NOT_PLAIN_SPACE = re.compile("[\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")

_TRIED = """The lease (no. 7) wasn't signed in Bergen; it's "due" on 3 May 2024, e.g. at 10:30, isn't it?  Two spaces.
A line that goes on\nand on - to 1,234.50 EUR - https://example.org/a/b?c=1&d=%20e_f.\r\n\r\nWindows lines.\r\n
END!\n\n\n\n\tdef f(x, *y):\n\t\treturn {"a": [1, 2]}  # why?\n\n    if x >= 1.5:\n        y += 1\n\n\n/usr/bin\n \n  a)
one,\ntwo;\nthree:\n(four)\n[five]\n{six}\n"seven"\n*eight*\n<nine>\nten...\n\n|\n\n;\n--\n==\n\n#!\n//\n
## Über die Größe\n\nNaïve café, señor; Ελληνικά και мир. 日本語の文章。 次の文。\n\n한국어 문장입니다. مرحبا بالعالم.
שלום עולם हिन्दी में लिखा। ไทย 🇳🇴 👍🏽 ½ ﬁ №5 x² “quoted” ‘so’ – and — …\n| a | b |\n|---|--:|\n| 1 | 2 |\n
```sh\nmake -j2 && ls *.md\n```\n"""


@dataclass(frozen=True, slots=True)
class Pieces:
    """A text of p pieces; offsets are those of the document, and the place behind a piece has its number.

    Attributes:
        ends: (p,) where each ends.
        tokens: (p + 1,) before each, and in all.
        seen: (p,) tokens up to the end of each, without white space at that end.
        kinds: (p,) of the places: what the text before one ends, and how many newlines follow it, as bits.
        glued: (p,) whether a place is inside a word, or before white space.
        leads: (p,) white space in front of the text of each.
        doubts: (p + 1,) how many pieces before each may have other tokens in a chunk than here.
        ids: (t,) `ID_DTYPE`, the tokens themselves; None where they were not asked for, or are not the sum of those of
            pieces without the white space between them.
    """

    ends: Numbers
    tokens: Numbers
    seen: Numbers
    kinds: Numbers
    glued: NDArray[np.bool_]
    leads: Numbers
    doubts: Numbers
    ids: NDArray[np.uint32] | None = None

    def span_ids(self, first: int, last: int) -> bytes | None:
        """The ids of some pieces in a row; None where they are not known, or one of them may have others there."""
        if self.ids is None or self.doubts[last + 1] > self.doubts[first]:
            return None
        return self.ids[self.tokens[first] : self.tokens[last + 1]].tobytes()


class _Known:
    """Pieces by number, from 1 on: what each is, and its token ids. It only grows, and a reader needs no lock."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.size = 1
        self._codes, self._starts = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._ids, self._n_ids = np.zeros(1, ID_DTYPE), 0

    def add(self, codes: Sequence[int], ids: bytes) -> range:
        """The numbers of further pieces, of which each has as many ids as its code says, or none has any."""
        counts = np.array(codes, np.int64) >> _TOKENS
        first, self.size = self.size, self.size + len(codes)
        self._codes, self._starts = _with_room(self._codes, self.size), _with_room(self._starts, self.size)
        self._codes[first : self.size] = codes
        self._starts[first : self.size] = self._n_ids + np.cumsum(counts) - counts
        before, self._n_ids = self._n_ids, self._n_ids + len(ids) // ID_DTYPE.itemsize
        self._ids = _with_room(self._ids, self._n_ids)
        self._ids[before : self._n_ids] = np.frombuffer(ids, ID_DTYPE)
        return range(first, self.size)

    def codes(self, numbers: Numbers) -> Numbers:
        """(p,) what pieces are."""
        return self._codes[numbers]

    def ids(self, numbers: Numbers) -> NDArray[np.uint32]:
        """(t,) the ids of pieces, one after the other."""
        return self._ids[run_places(self._starts[numbers], self._codes[numbers] >> _TOKENS)]


class Counter:
    """Tokens of texts, by one tokenizer. Threads may share it.

    Args:
        tokenizer: without truncation, padding and special tokens.

    Attributes:
        tokenizer: the tokenizer that was given.
        exact: whether the tokens of a text are the sum of its pieces'.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._lock = threading.Lock()
        self._known = _Known()
        self._words: dict[str, bytes] = {}  # ids of words, without the white space around them
        self.exact = self._adds_up(_FREE, apart=True) or any(map(self._adds_up, _PATTERNS))
        if not self.exact:
            self._pattern = _FREE
        self._known = _Known()

    def counts(self, texts: list[str]) -> list[int]:
        """The tokens of whole texts."""
        return [len(one) for one in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def ids(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of whole texts, as bytes: those of their words, where white space is no part of a token."""
        if not self._adds_ids:
            return self._ids(texts)
        words = [[] if _NOT_PLAIN_SPACE.search(text) else text.split() for text in texts]
        every = set(itertools.chain.from_iterable(words))
        known = self._ids_of_words([word for word in every if len(word) <= PIECE_CHARS])
        rows = [_joined(one, known) if one and all(map(known.__contains__, one)) else None for one in words]
        left = iter(self._ids([text for text, row in zip(texts, rows, strict=True) if row is None]))
        return [next(left) if row is None else row for row in rows]

    def gain(self, piece: str, bare: str) -> int:
        """How many tokens more a piece has without the white space around it."""
        if self._free or not self.exact or piece == bare:
            return 0
        known = self._known
        more, less = known.codes(self._numbers(known, [bare, piece])) >> _TOKENS
        return int(more - less)

    def pieces(self, text: str, start: int, *, ids: bool = False) -> Pieces:
        """The pieces of a text that begins at `start` of its document, with their `ids` if they are asked for."""
        parts, known = self._pattern.findall(text), self._known
        numbers = self._numbers(known, parts)
        if len(long := np.flatnonzero(numbers == 0)):
            cut = [list(_parts(parts[place])) for place in long.tolist()]
            places = np.repeat(long - np.arange(len(long)), [len(one) for one in cut])
            found = self._numbers(known, list(itertools.chain.from_iterable(cut)), long=True)
            numbers = np.insert(np.delete(numbers, long), places, found)
        codes = known.codes(numbers)
        ends = np.cumsum(codes >> _CHARS & _CHARS_MASK)
        if self.exact:
            tokens = np.concatenate(([0], np.cumsum(codes >> _TOKENS)))
        else:
            tokens = np.concatenate(([0], self._counted(text, ends)))
        laid_out = _laid_out(codes, ends + start, tokens, known.ids(numbers) if ids and self._adds_ids else None)
        if known.size > _CACHED:
            self._known = _Known()
        return laid_out

    def _counted(self, text: str, ends: Numbers) -> Numbers:
        """The tokens that end up to each of `ends`; a token that ends before its neighbour counts with that one."""
        offsets = self.tokenizer.encode(text, add_special_tokens=False).offsets
        token_ends = np.maximum.accumulate(np.fromiter((end for _, end in offsets), np.int64, len(offsets)))
        return np.searchsorted(token_ends, ends, "right")

    @property
    def _adds_ids(self) -> bool:
        """Whether the ids of a text are those of its words."""
        return self.exact and self._free

    def _numbers(self, known: _Known, pieces: list[str], *, long: bool = False) -> Numbers:
        """The numbers of pieces, (p,), which are known afterwards; 0 for one that is to be cut up, unless `long`."""
        numbers = np.fromiter(map(known.numbers.get, pieces, itertools.repeat(0)), np.int64, len(pieces))
        missing = np.flatnonzero(numbers == 0)
        if len(missing):
            found = self._learn(known, [pieces[place] for place in missing.tolist()], long=long)
            numbers[missing] = [found[pieces[place]] for place in missing.tolist()]
        return numbers

    def _learn(self, known: _Known, pieces: Iterable[str], *, long: bool) -> dict[str, int]:
        """The numbers of pieces, of which the short ones are found from now on."""
        with self._lock:
            found = {piece: known.numbers.get(piece, 0) for piece in pieces}
            new = [one for one, number in found.items() if not number and (long or len(one.strip()) <= PIECE_CHARS)]
            tokens, ids = self._tokens(new)
            codes = [n << _TOKENS | len(one) << _CHARS | _bits(one) for one, n in zip(new, tokens, strict=True)]
            learned = dict(zip(new, known.add(codes, ids), strict=True))
            known.numbers.update(item for item in learned.items() if len(item[0]) <= _CACHED_CHARS)
        return found | learned

    def _tokens(self, pieces: list[str]) -> tuple[list[int], bytes]:
        """How many tokens each piece has; and these, where white space is no part of one."""
        if not self.exact:
            return [0] * len(pieces), b""
        if not self._free:
            return self.counts(pieces), b""
        words = [piece.strip() for piece in pieces]
        known = self._ids_of_words(words)
        ids = [known[word] for word in words]
        return [len(one) // ID_DTYPE.itemsize for one in ids], b"".join(ids)

    def _ids_of_words(self, words: Iterable[str]) -> dict[str, bytes]:
        """The cache of words, which has these with the marks around them afterwards."""
        known = self._words
        if len(known) > _CACHED:
            known = self._words = {}
        new = {word: word.strip(self._marks) for word in words if word not in known} if self._marks else {}
        inner = [*new.values(), *self._marks] if self._marks else words
        missing = list({word for word in inner if word not in known})
        known.update(zip(missing, self._ids(missing), strict=True))
        for word, bare in new.items():
            if word != bare:
                at = word.find(bare)
                known[word] = _joined([*word[:at], bare, *word[at + len(bare) :]], known)
        return known

    def _ids(self, texts: Sequence[str]) -> list[bytes]:
        encoded = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [array(ID_DTYPE.char, one.ids).tobytes() for one in encoded]

    def _adds_up(self, pattern: re.Pattern[str], *, apart: bool = False) -> bool:
        """Whether the tokens of texts of many kinds are the sums of those of the pattern's pieces.

        With `apart`, each mark around a word is taken for a token of its own: there are half as many words to count.
        """
        self._pattern, self._free, self._marks, self.exact = pattern, pattern is _FREE, _APART if apart else "", True
        self._known, self._words = _Known(), {}
        added = self.tokenizer.get_added_tokens_decoder().values()
        if any(not one.special and (one.lstrip or one.rstrip or re.search(r"\s", one.content)) for one in added):
            return False
        texts = [text.strip() for text in (_TRIED, *_TRIED.split("\n\n"), *_TRIED.splitlines())]
        known = self._known
        parts = (self._numbers(known, pattern.findall(text)) for text in texts)
        sums = [int((known.codes(numbers) >> _TOKENS).sum()) for numbers in parts]
        return sums == self.counts(texts) and (not self._free or self.ids(texts) == self._ids(texts))


def run_places(starts: Numbers, counts: Numbers) -> Numbers:
    """The places of some runs of values, one after the other, by where each begins and how many it has.

    >>> run_places(np.array([7, 2]), np.array([2, 3])).tolist()
    [7, 8, 2, 3, 4]
    """
    ends = np.cumsum(counts)
    places: Numbers = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
    return places


def _with_room(values: NDArray[_N], size: int) -> NDArray[_N]:
    """The same values in an array of at least so many."""
    if size <= len(values):
        return values
    grown = np.zeros(max(size, 2 * len(values)), values.dtype)
    grown[: len(values)] = values
    return grown


def _joined(words: Iterable[str], known: dict[str, bytes]) -> bytes:
    return b"".join(map(known.__getitem__, words))


def _bits(piece: str) -> int:
    """What a piece is beside its tokens and characters."""
    word = piece.strip()
    if not word:
        return BLANK | LEAD | TRAIL | _space(piece)
    bits = SMALL if word[0].islower() else 0
    if word[-1] in _MARKS:
        bits |= kind_of(word)
    if not word.isprintable():  # what a normaliser may drop, so that neighbours join
        bits |= DOUBT
    if not word.isascii():
        bits |= (MARK | DOUBT if unicodedata.category(word[0])[0] == "M" else 0) | (DOUBT if "\ufffd" in word else 0)
    start = 0 if piece[0] == word[0] else 1
    space = piece[start + len(word) :]
    return bits | (LEAD if start else 0) | (TRAIL | _space(space) if space else 0)


@functools.lru_cache(maxsize=1024)
def _space(space: str) -> int:
    """The newlines in white space (2 for more), and whether a normaliser may drop some of it."""
    newlines = min(2, max(space.count("\n"), space.count("\r"), 2 * space.count("\f")))
    return newlines << 2 | (DOUBT if _NOT_PLAIN_SPACE.search(space) else 0)


def kind_of(word: str) -> int:
    """What the end of a word, its marks included, ends: WORD, CLAUSE or SENTENCE."""
    if _SENTENCE.search(word):
        return WORD if _ABBREVIATION.match(word) else SENTENCE
    return CLAUSE if _CLAUSE.search(word) else WORD


def _parts(piece: str) -> Iterator[str]:
    """A long word in parts, cut behind the last full stop of each where there is one, and in no cluster."""
    at, end = 0, len(piece.rstrip())
    while end - at > PIECE_CHARS:
        high = at + PIECE_CHARS
        stop = max(piece.rfind(mark, at, high) for mark in "。！？") + 1
        cut = stop if stop > at else whole_cluster(piece, high, at)
        yield piece[at:cut]
        at = cut
    yield piece[at:]


def _laid_out(codes: Numbers, ends: Numbers, tokens: Numbers, ids: NDArray[np.uint32] | None) -> Pieces:
    newlines, seen, kinds = codes >> 2 & 3, tokens[1:], codes & KIND
    blank = codes & BLANK != 0
    if blank.any():  # the place behind white space is that of the word before it
        last = np.maximum.accumulate(np.where(blank, 0, np.arange(len(codes))))
        lines = np.cumsum(newlines)
        newlines = np.minimum(lines - (lines - newlines)[last], 2)
        seen, kinds = seen[last], kinds[last]
    following = np.append(codes[1:], LEAD)
    kinds = np.where((kinds == SENTENCE) & (following & SMALL != 0), WORD, kinds) | newlines << 2
    inside = (codes & TRAIL) | (following & LEAD) == 0
    doubts = (codes & DOUBT != 0) | inside
    doubts[1:] |= inside[:-1]
    return Pieces(
        ends=ends,
        tokens=tokens,
        seen=seen,
        kinds=kinds,
        glued=inside | (following & (BLANK | MARK) != 0),
        leads=((codes & LEAD != 0) & ~blank).astype(np.int64),
        doubts=np.concatenate(([0], np.cumsum(doubts))),
        ids=ids,
    )
