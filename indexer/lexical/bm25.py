"""BM25 over all rows of an index: k1 1.2, b 0.75, and statistics of all of them.

score(row) = sum over the terms t of the question
             n_t * idf_t * (tf / (tf + k1 * (1 - b + b * length / mean length)) + 0.2 if t is in the row's name)
idf_t = ln(1 + (N - df_t + 0.5) / (df_t + 0.5)), never negative

The name, that of the file, counts half as much as one occurrence in a text of mean length. df counts rows with t in the
text or in the name. N, mean length and df count the rows of all segments, so a row's score does not depend on how rows
are spread over segments. Rows are those that the postings give: the live ones, in a store. Robertson and Zaragoza 2009;
the idf is Lucene's.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.byte_cache import ByteCache
from ragidx.indexer.lexical.postings import NAME, TermPostings, Uints

K1, B = 1.2, 0.75
IN_NAME = np.float32(0.2)

_KEPT_BYTES = 64 << 20  # of terms
_DENSE = 4  # a term in more than a fourth of the rows is kept as an array over all of them


class RowPostings(Protocol):
    """The postings of some rows."""

    @property
    def lengths(self) -> Uints:
        """(rows,) how many terms each row has."""

    def find(self, term: str) -> TermPostings | None:
        """The rows of a term, None if no row has it."""


@dataclass(frozen=True, slots=True)
class _Term:
    """A term of a question: the rows with it, None: nearly all; and what it adds to each, None: no row has it."""

    rows: Ints | None
    added: Floats | None

    @property
    def nbytes(self) -> int:
        return 200 + sum(part.nbytes for part in (self.rows, self.added) if part is not None)


class Bm25:
    """The scores of the rows of some segments, numbered through all of them. Safe to use from several threads.

    What a term adds to each row is kept for the terms that were asked for last: the words that most questions have are
    in most rows, and reading them takes longest.

    Args:
        segments: segments of the index, in its order; at least one.

    Attributes:
        n_rows: how many rows there are.
        n_terms: the sum of their lengths.
    """

    def __init__(self, segments: Sequence[RowPostings]) -> None:
        self._segments = segments
        self._terms: ByteCache[_Term] = ByteCache(_KEPT_BYTES)
        lengths = np.concatenate([segment.lengths for segment in segments])
        self.n_rows, self.n_terms = len(lengths), int(lengths.sum(dtype=np.int64))
        scale = np.float32(K1 * B * self.n_rows / max(1, self.n_terms))
        self._norms = np.float32(K1 * (1 - B)) + scale * lengths.astype(np.float32)  # added to a count in the divisor

    def scores(self, terms: Sequence[str]) -> Floats | None:
        """(rows,) of all rows; 0 where a row has no term of the question.

        Args:
            terms: terms of the question, repeated as often as they occur.

        Returns:
            None if no row has any of the terms.
        """
        total = np.zeros(len(self._norms), np.float32)
        known = False
        for asked in sorted(Counter(terms).items()):  # in one order, so that sums are rounded alike
            entry = self._terms.get(asked, functools.partial(self._read, *asked))
            if entry.added is None:
                continue
            known = True
            if entry.rows is None:
                np.add(total, entry.added, out=total)
            else:
                total[entry.rows] += entry.added
        return total if known else None

    def _read(self, term: str, count: int) -> _Term:
        """What a term adds that occurs so often in a question."""
        first = 0
        parts: list[tuple[Ints, Floats]] = []
        for segment in self._segments:
            last = first + len(segment.lengths)
            rows, shares = _shares(segment, term, self._norms[first:last])
            parts.append((rows + first, shares))
            first = last
        rows, shares = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        df = len(rows)
        if not df:
            return _Term(None, None)
        added = np.float32(count * np.log1p((self.n_rows - df + 0.5) / (df + 0.5))) * shares
        if df * _DENSE < first:
            return _Term(rows, added)
        whole = np.zeros(first, np.float32)  # an array over all rows is smaller, and ten times as fast to add
        whole[rows] = added
        return _Term(None, whole)


def _shares(segment: RowPostings, term: str, norms: Floats) -> tuple[Ints, Floats]:
    """The rows with a term in their text or name, and what it adds to each but for its idf."""
    rows, shares = np.zeros(0, np.int64), np.zeros(0, np.float32)
    if (found := segment.find(term)) is not None:
        tf = found.counts.astype(np.float32)
        rows, shares = found.rows, tf / (tf + norms[found.rows])
    if (named := segment.find(NAME + term)) is None:
        return rows, shares
    every = np.union1d(rows, named.rows)
    total = np.zeros(len(every), np.float32)
    total[np.searchsorted(every, rows)] = shares
    total[np.searchsorted(every, named.rows)] += IN_NAME
    return every, total
