"""Scores of single rows, and how the scores of all rows spread: what a fusion of cosines and BM25 needs.

cosines(vectors, query)                (n,) the real cosine of each row, whichever way it was found
spread_of_cosines(parts, queries)      mean and squares over all live rows, by moments or by a scan
LexicalPart(spec, postings, dead)      terms of a question, and BM25 of every live row
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragidx.indexer.ann.moments import Spread, merged_spread, spread_of
from ragidx.indexer.arrays import Bools, Floats
from ragidx.indexer.lexical.postings import Postings
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store.topk import Part, Searched

if TYPE_CHECKING:  # a search by vectors alone does not need it
    from ragidx.indexer.lexical.analyzer import Analyzer

_BLOCK = 1 << 22  # scores held at once


def cosines(vectors: Floats, query: Floats) -> Floats:
    """(n,) the cosines of rows (n, width) with a query (width,), limited to [-1, 1].

    They are added in float64 row by row, so that they do not depend on which other rows are asked for.
    """
    products = (vectors.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    found: Floats = np.clip(products, -1, 1).astype(np.float32)
    return found


def spread_of_cosines(parts: Sequence[Part], queries: Floats) -> Spread:
    """Of the cosines of queries (q, width) with all rows that are allowed, the live ones; `parts` is not empty."""
    return merged_spread([_spread(part.view, part.allowed, queries) for part in parts])


def _spread(segment: Searched, alive: Bools | None, queries: Floats) -> Spread:
    if segment.moments is None:
        return _scanned(segment, alive, queries)
    found = segment.moments.spread(queries)
    if alive is None:
        return found
    rows = np.flatnonzero(~alive)
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
        postings: of all rows, in their order.
        dead: (rows,) which rows are dead; None: none.
    """

    def __init__(self, spec: LexicalSpec, postings: Sequence[Postings], dead: Bools | None) -> None:
        from ragidx.indexer.lexical.bm25 import Bm25  # a search by vectors needs none

        self.spec, self.bm25 = spec, Bm25(postings, dead)

    @functools.cached_property
    def analyzer(self) -> Analyzer:
        """Texts to terms.

        Raises:
            SpecError: its version is not installed.
        """
        return self.spec.make_analyzer()

    def scores(self, question: str) -> Floats | None:
        """BM25 (rows,) of all rows, 0 for dead ones; None if no live row has a word of the question."""
        return self.bm25.scores(self.analyzer(question))

    def spread(self, scores: Floats) -> Spread:
        """Of the BM25 of all live rows."""
        n = self.bm25.n_rows
        mean = np.array([scores.sum(dtype=np.float64) / max(1, n)])
        squares = np.square(scores, dtype=np.float64).sum()
        return Spread(n, mean, np.maximum(squares - n * mean**2, 0))
