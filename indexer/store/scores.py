"""Scores of single rows, and how the scores of all rows spread: what a fusion of cosines and BM25 needs.

cosines(segment, query, rows)          (n,) the real cosine of each row, whichever way it was found
spread_of_cosines(segments, ...)       mean and squares over all live rows, by moments or by a scan
LexicalPart(spec, segments, dead)        terms of a question, and BM25 of every live row
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragidx.indexer.ann.moments import Spread, merged_spread, spread_of
from ragidx.indexer.arrays import Bools, Floats, Ints
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store.deletions import Masks
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.store.topk import Searched

if TYPE_CHECKING:  # a search by vectors alone needs none of it
    from ragidx.indexer.lexical import bm25
    from ragidx.indexer.lexical.analyzer import Analyzer

_BLOCK = 1 << 22  # scores held at once


def cosines(segment: Searched, query: Floats, rows: Ints) -> Floats:
    """(n,) the cosines of a query (width,) with some rows, limited to [-1, 1].

    They are added in float64 row by row, so that they do not depend on which other rows are asked for.
    """
    products = (segment.vectors(rows).astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    found: Floats = np.clip(products, -1, 1).astype(np.float32)
    return found


def spread_of_cosines(segments: Sequence[Searched], dead: Masks, queries: Floats) -> Spread:
    """Of the cosines of queries (q, width) with all live rows; `segments` is not empty."""
    return merged_spread(
        [_spread(segment, mask, queries) for segment, mask in zip(segments, dead, strict=True)],
    )


def _spread(segment: Searched, dead: Bools | None, queries: Floats) -> Spread:
    if segment.moments is None:
        return _scanned(segment, None if dead is None else ~dead, queries)
    found = segment.moments.spread(queries)
    if dead is None or not dead.any():
        return found
    rows = np.flatnonzero(dead)
    step = max(1, _BLOCK // max(len(queries), queries.shape[1]))
    gone = [spread_of(queries @ segment.vectors(rows[start : start + step]).T) for start in range(0, len(rows), step)]
    return found.without(merged_spread(gone))


def _scanned(segment: Searched, alive: Bools | None, queries: Floats) -> Spread:
    count = segment.entry.rows if alive is None else int(alive.sum())
    if not count:
        return spread_of(np.zeros((len(queries), 0), np.float32))
    step = max(1, _BLOCK // count)
    parts = [
        spread_of(segment.scan(queries[start : start + step], count, alive)) for start in range(0, len(queries), step)
    ]
    return Spread(
        count, np.concatenate([part.mean for part in parts]), np.concatenate([part.squares for part in parts])
    )


class LexicalPart:
    """The lexical part of a committed state.

    Args:
        spec: of the index.
        segments: all of them, each with postings.
        dead: a mask of dead rows for each.
    """

    def __init__(self, spec: LexicalSpec, segments: Sequence[Segment], dead: Masks) -> None:
        self.spec, self._dead = spec, dead
        self._postings = [segment.postings for segment in segments if segment.postings is not None]

    @functools.cached_property
    def statistics(self) -> bm25.Statistics:
        """Of the live rows."""
        from ragidx.indexer.lexical import bm25

        return bm25.statistics(self._postings, self._dead)

    @functools.cached_property
    def analyzer(self) -> Analyzer:
        """Texts to terms.

        Raises:
            SpecError: its version is not installed.
        """
        return self.spec.make_analyzer()

    def scores(self, question: str) -> list[Floats] | None:
        """BM25 (rows,) of each segment; None if no live row has a word of the question."""
        return self._bm25.scores(self.analyzer(question))

    @functools.cached_property
    def _bm25(self) -> bm25.Bm25:
        from ragidx.indexer.lexical import bm25

        return bm25.Bm25(self._postings, self._dead, self.statistics)

    def spread(self, scores: Sequence[Floats]) -> Spread:
        """Of the BM25 of all live rows."""
        n = self.statistics.n_rows
        total = sum(float(part.sum(dtype=np.float64)) for part in scores)
        squares = sum(float(np.square(part, dtype=np.float64).sum()) for part in scores)
        mean = np.array([total / max(1, n)])
        return Spread(n, mean, np.maximum(squares - n * mean**2, 0))
