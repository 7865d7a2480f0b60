"""Blocks: the texts and names of consecutive rows become postings, some 100,000 words at a time.

(text, name) of each row -> tokens -> `PostingsPiece`s: the terms of a block, rising, with their rows and counts

A block ends when it has many tokens or many different ones, so that memory depends neither on the number of rows nor on
the number of different words. `postings_writer` joins blocks, whoever made them: a piece travels as bytes.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragidx.indexer.arrays import Ints, numbers_of
from ragidx.indexer.lexical.analyzer import Analyzer, joined, tokens
from ragidx.indexer.lexical.postings import LENGTHS, NAME, SCHEMA, Uints

_BLOCK_TOKENS = 1 << 18  # held until they are sorted
_BLOCK_CHARS = 1 << 20  # of different tokens


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


class _Vocabulary(dict[str, int]):
    """Token -> number of its term in a block; of several terms, -1 minus the place of their numbers in `several`."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._terms_of = analyzer.terms
        self.terms: dict[str, int] = {}
        self.several: list[list[int]] = []
        self.n_chars = 0

    def __missing__(self, token: str) -> int:
        mark = NAME if token.startswith(NAME) else ""
        numbers = [self.terms.setdefault(mark + term, len(self.terms)) for term in self._terms_of(token[len(mark) :])]
        if len(numbers) == 1:
            found = numbers[0]
        else:
            self.several.append(numbers)
            found = -len(self.several)
        self[token] = found
        self.n_chars += len(token)
        return found


def blocks(texts: Iterable[tuple[str, str]], analyzer: Analyzer, first: int = 0) -> Iterator[PostingsPiece]:
    """The postings of consecutive rows, block by block.

    Args:
        texts: the text of each row, with its name, or an empty one; a row without words has no name.
        analyzer: texts to terms.
        first: the number of the first row.
    """
    vocabulary, numbers, ends = _Vocabulary(analyzer), list[int](), list[int]()
    for text, name in texts:
        if words := tokens(text):
            numbers += map(vocabulary.__getitem__, words + joined(words))
            if name and any(map(analyzer.terms, words)):  # dots alone have no term
                numbers += (vocabulary[NAME + token] for token in tokens(name))
        ends.append(len(numbers))
        if len(numbers) >= _BLOCK_TOKENS or vocabulary.n_chars >= _BLOCK_CHARS:
            yield _piece(vocabulary, numbers, ends, first)
            first += len(ends)
            vocabulary, numbers, ends = _Vocabulary(analyzer), [], []
    yield _piece(vocabulary, numbers, ends, first)


def _piece(vocabulary: _Vocabulary, numbers: list[int], ends: list[int], first: int) -> PostingsPiece:
    """The postings of rows from `first` on, of which each ends there in the numbers of terms."""
    lengths = np.diff(np.array([0, *ends]))
    rows = np.repeat(np.arange(first, first + len(lengths)), lengths)
    terms_of = np.array(numbers, np.int64)
    several = np.flatnonzero(terms_of < 0)
    if several.size:
        parts = [vocabulary.several[-1 - number] for number in terms_of[several].tolist()]
        plain = terms_of >= 0
        rows = np.concatenate([rows[plain], np.repeat(rows[several], [len(part) for part in parts])])
        terms_of = np.concatenate([terms_of[plain], np.array(list(itertools.chain(*parts)), np.int64)])
    known = vocabulary.terms
    terms = sorted(known)  # by code points, which is the order of their UTF-8 bytes
    rank = np.empty(len(terms), np.int64)
    rank[[known[term] for term in terms]] = np.arange(1, len(terms) + 1)
    pairs, counts = np.unique((rank[terms_of] << 32) | rows, return_counts=True)
    row_numbers, places = pairs & 0xFFFFFFFF, pairs >> 32
    of_text = np.array([not term.startswith(NAME) for term in ("", *terms)])[places]
    filled = np.bincount(row_numbers - first, counts * of_text, minlength=len(lengths)).astype(np.int64)
    of_rows = np.flatnonzero(filled)
    sizes = np.bincount(places, minlength=len(terms) + 1)
    sizes[0] = len(of_rows)
    return PostingsPiece(
        [LENGTHS, *terms] if terms else [],
        sizes if terms else sizes[:0],
        np.concatenate([of_rows + first, row_numbers]).astype(np.uint32),
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
