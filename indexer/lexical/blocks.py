"""Blocks: the texts and names of consecutive rows become postings, some 100,000 words at a time.

(text, name) of each row -> tokens -> `PostingsPiece`s: the terms of a block, rising, with their rows and counts

Texts are split in Python, and each different token is analysed once; the rest is arrays of numbers. A block ends when
it has many tokens or characters, so that memory depends neither on the number of rows nor on the number of different
words. `postings_writer` joins blocks, whoever made them: a piece travels as bytes.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragidx.corpora.chunking.pieces import run_places
from ragidx.indexer.arrays import Ints, numbers_of
from ragidx.indexer.lexical.analyzer import Analyzer, is_short, tokens
from ragidx.indexer.lexical.postings import LENGTHS, NAME, SCHEMA, Uints

_BLOCK_TOKENS = 1 << 18  # held until they are sorted
_BLOCK_CHARS = 1 << 22  # of their texts
_VOCABULARY_CHARS = 1 << 21  # of different tokens, some 50 MB; then their numbers begin again


@dataclass
class PostingsPiece:
    """Some terms, rising, and their postings: `sizes[i]` rows and counts of `terms[i]`, one term after the other."""

    terms: list[str]
    sizes: Ints
    rows: Uints
    counts: Uints

    @functools.cached_property
    def ends(self) -> Ints:
        """Where the postings of each term end; a zero in front."""
        return np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)])

    def part(self, start: int, stop: int) -> PostingsPiece:
        """Some of the terms, by their places."""
        first, last = self.ends[start], self.ends[stop]
        return PostingsPiece(
            self.terms[start:stop], self.sizes[start:stop], self.rows[first:last], self.counts[first:last]
        )

    def split(self, last: str) -> tuple[PostingsPiece, PostingsPiece]:
        """The terms up to `last`, and the others."""
        at = bisect.bisect_right(self.terms, last)
        return self.part(0, at), self.part(at, len(self.terms))


class _Vocabulary:
    """Tokens by number, and the terms of each, by number too: a token is analysed once.

    Attributes:
        tokens: numbers of tokens; one that is new has the next number. `learn` comes before anything else is asked.
        terms: numbers of terms, likewise.
        n_chars: characters of all tokens.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        self.tokens, self.terms = (defaultdict[str, int](itertools.count().__next__) for _ in range(2))
        self.n_chars = 0
        self._terms_of = analyzer.terms
        self._spelt: list[str] = []  # tokens, by number
        self._counts, self._numbers = np.zeros(0, np.int64), np.zeros(0, np.int64)  # of terms, and these
        self._short, self._two = np.zeros(0, np.bool_), np.zeros(0, np.bool_)

    def learn(self) -> None:
        """Analyse the tokens that are new."""
        new = list(itertools.islice(self.tokens, len(self._spelt), None))
        found = [self._analysed(token) for token in new]
        numbers = map(self.terms.__getitem__, itertools.chain.from_iterable(found))
        short = np.array([is_short(token) for token in new], np.bool_)
        two = short & np.array([len(token) == 2 for token in new], np.bool_)
        self.n_chars += sum(map(len, new))
        self._spelt += new
        self._counts = np.append(self._counts, np.array([len(terms) for terms in found], np.int64))
        self._numbers = np.append(self._numbers, np.array(list(numbers), np.int64))
        self._short, self._two = np.append(self._short, short), np.append(self._two, two)
        self._starts = np.cumsum(self._counts) - self._counts

    def joined(self, tokens: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """Short words in a row as one, as `analyzer.joined` has them: the numbers of their tokens, and their rows."""
        at = np.flatnonzero(self._two[tokens[1:]] & self._short[tokens[:-1]] & (rows[1:] == rows[:-1]))
        pairs = zip(tokens[at].tolist(), tokens[at + 1].tolist(), strict=True)
        found = [self.tokens[self._spelt[first] + self._spelt[second]] for first, second in pairs]
        self.learn()
        return np.array(found, np.int64), rows[at]

    def terms_of(self, tokens: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """The numbers of the terms of tokens, and the row of each term."""
        counts = self._counts[tokens]
        return self._numbers[run_places(self._starts[tokens], counts)], np.repeat(rows, counts)

    def _analysed(self, token: str) -> Sequence[str]:
        if token.startswith(NAME):
            return [NAME + term for term in self._terms_of(token[len(NAME) :])]
        return self._terms_of(token)


def blocks(texts: Iterable[tuple[str, str]], analyzer: Analyzer, first: int = 0) -> Iterator[PostingsPiece]:
    """The postings of consecutive rows, block by block.

    Args:
        texts: the text of each row, with its name, or an empty one; a row without words has no name.
        analyzer: texts to terms.
        first: the number of the first row.
    """
    vocabulary, (words, names) = _Vocabulary(analyzer), _no_rows()
    n_chars = 0
    for text, name in texts:
        words.add(vocabulary.tokens, tokens(text))
        names.add(vocabulary.tokens, [NAME + token for token in tokens(name)] if name else [])
        n_chars += len(text) + len(name)
        if len(words.tokens) >= _BLOCK_TOKENS or n_chars >= _BLOCK_CHARS:
            yield _piece(vocabulary, words, names, first)
            first, n_chars = first + len(words.sizes), 0
            words, names = _no_rows()
            if vocabulary.n_chars >= _VOCABULARY_CHARS:
                vocabulary = _Vocabulary(analyzer)
    yield _piece(vocabulary, words, names, first)


class _Tokens:
    """The tokens of consecutive rows, by number, and how many each row has."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.sizes: list[int] = []

    def add(self, numbers: Mapping[str, int], row: Sequence[str]) -> None:
        self.tokens += map(numbers.__getitem__, row)
        self.sizes.append(len(row))

    def arrays(self) -> tuple[Ints, Ints]:
        """The numbers, and the row of each, from 0 on."""
        return np.array(self.tokens, np.int64), np.repeat(np.arange(len(self.sizes)), self.sizes)


def _no_rows() -> tuple[_Tokens, _Tokens]:
    return _Tokens(), _Tokens()


def _piece(vocabulary: _Vocabulary, words: _Tokens, names: _Tokens, first: int) -> PostingsPiece:
    """The postings of rows from `first` on."""
    vocabulary.learn()
    tokens_, rows = words.arrays()
    also, their_rows = vocabulary.joined(tokens_, rows)
    found, rows = vocabulary.terms_of(np.concatenate([tokens_, also]), np.concatenate([rows, their_rows]))
    filled = np.bincount(rows, minlength=len(words.sizes))
    of_names, rows_of_names = vocabulary.terms_of(*names.arrays())
    named = filled[rows_of_names] > 0
    found, rows = np.concatenate([found, of_names[named]]), np.concatenate([rows, rows_of_names[named]])
    spelt = list(vocabulary.terms)
    known = {spelt[number]: number for number in np.flatnonzero(np.bincount(found)).tolist()}
    terms = sorted(known)  # by code points, which is the order of their UTF-8 bytes
    rank = np.zeros(len(spelt), np.int64)
    rank[[known[term] for term in terms]] = np.arange(1, len(terms) + 1)
    pairs, counts = np.unique((rank[found] << 32) | rows, return_counts=True)
    of_rows = np.flatnonzero(filled)
    sizes = np.bincount(pairs >> 32, minlength=len(terms) + 1)
    sizes[0] = len(of_rows)
    return PostingsPiece(
        [LENGTHS, *terms] if terms else [],
        sizes if terms else sizes[:0],
        np.concatenate([of_rows + first, (pairs & 0xFFFFFFFF) + first]).astype(np.uint32),
        np.concatenate([filled[of_rows], counts]).astype(np.uint32),
    )


def packed(piece: PostingsPiece) -> bytes:
    """A piece as bytes: a stream of one record batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as target:
        target.write_batch(record_batch(piece.terms, piece.sizes, piece.rows, piece.counts, SCHEMA))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpacked(data: bytes, rows: range) -> list[PostingsPiece]:
    """The inverse, checked.

    Args:
        data: untrusted bytes, said to be the postings of some rows.
        rows: numbers of the rows that it must have postings of.

    Raises:
        ValueError: it is none, or not theirs.
        pyarrow.ArrowException, OSError: the same.
    """
    with pa.ipc.open_stream(data) as stream:
        if stream.schema != SCHEMA:
            raise ValueError("other columns")
        pieces = []
        for batch in stream:
            batch.validate(full=True)
            pieces.append(piece_of(batch))
            _check(pieces[-1], batch, rows)
    return pieces


def _check(piece: PostingsPiece, batch: Any, rows: range) -> None:
    ends = piece.ends
    offsets = [numbers_of(batch.column(place), "<i8", length=len(batch) + 1) for place in (1, 2)]
    if not all(np.array_equal(places, ends) for places in offsets) or len(piece.rows) != len(piece.counts):
        raise ValueError("rows and counts of other numbers")
    if not len(piece.terms):
        return
    if piece.sizes.min() < 1 or piece.counts.min() < 1:
        raise ValueError("rows or counts that cannot be")
    rising = np.diff(piece.rows.astype(np.int64)) > 0
    rising[ends[1:-1] - 1] = True
    in_range = len(piece.rows) == ends[-1] and piece.rows.min() >= rows.start and piece.rows.max() < rows.stop
    if not in_range or not rising.all():
        raise ValueError("rows that cannot be")
    if not all(map(str.__lt__, piece.terms, piece.terms[1:])):
        raise ValueError("terms that do not rise")


def piece_of(batch: Any) -> PostingsPiece:
    """The piece of a record batch."""
    rows, counts = batch.column(1), batch.column(2)
    sizes = np.diff(numbers_of(rows, "<i8", length=len(rows) + 1))
    return PostingsPiece(
        batch.column(0).to_pylist(), sizes, numbers_of(rows.values, "<u4"), numbers_of(counts.values, "<u4")
    )


def record_batch(terms: Sequence[str], sizes: Ints, rows: NDArray[Any], counts: NDArray[Any], schema: Any) -> Any:
    """A record batch of terms, and of the rows, or their gaps, and counts of each."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    columns = [_strings(terms), _lists(offsets, rows), _lists(offsets, counts)]
    return pa.record_batch(columns, schema=schema)


def _strings(terms: Sequence[str]) -> Any:
    """A string array; `pyarrow.array` would import pandas, where that is installed."""
    encoded = [term.encode() for term in terms]
    places = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(terms), pa.py_buffer(places), pa.py_buffer(b"".join(encoded)))


def _lists(offsets: Ints, values: NDArray[Any]) -> Any:
    """A list array, for the same reason by its buffers."""
    numbers = pa.Array.from_buffers(
        pa.uint32(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.uint32))]
    )
    places = pa.py_buffer(np.ascontiguousarray(offsets, np.int64))
    return pa.LargeListArray.from_buffers(
        SCHEMA.field("gaps").type, len(offsets) - 1, [None, places], children=[numbers]
    )
