"""Scores of single rows, and how the scores of all rows spread: what a fusion of cosines and BM25 needs.

cosines(vectors, query)                (n,) the real cosine of each row, whichever way it was found
spread_of_cosines(parts, queries)      mean and squares over all rows, by moments or by a scan
LexicalPart(spec, postings)            terms of a question, and BM25 of every row
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragidx.indexer.ann.moments import ScoreSpread, merged_spread, spread_of
from ragidx.indexer.arrays import Floats, slices
from ragidx.indexer.lexical.postings import Postings
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store.live import LivePostings
from ragidx.indexer.store.topk import Searched, SegmentRows

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


def spread_of_cosines(parts: Sequence[SegmentRows], queries: Floats, n_zeros: int = 0) -> ScoreSpread:
    """The spread of the cosines of queries (q, width) with all rows but so many that are zero; `parts` is not empty."""
    spreads = ((part.view, part.view.spread(queries)) for part in parts)
    found = merged_spread([_scanned(view, queries) if spread is None else spread for view, spread in spreads])
    return found.without(spread_of(np.zeros((len(queries), n_zeros), np.float32))) if n_zeros else found


def _scanned(view: Searched, queries: Floats) -> ScoreSpread:
    count = view.n_rows
    step = max(1, _BLOCK // max(1, count))
    parts = [spread_of(view.scan(block, count, None)) for block in slices(queries, step)]
    return ScoreSpread(
        count, np.concatenate([part.mean for part in parts]), np.concatenate([part.squares for part in parts])
    )


class LexicalPart:
    """The lexical part of a committed state.

    Args:
        spec: spec of the index.
        postings: postings of all rows, in their order.
    """

    def __init__(self, spec: LexicalSpec, postings: Sequence[Postings | LivePostings]) -> None:
        from ragidx.indexer.lexical.bm25 import Bm25  # a search by vectors needs none

        self.spec, self.bm25 = spec, Bm25(postings)

    @functools.cached_property
    def analyzer(self) -> Analyzer:
        """Texts to terms.

        Raises:
            SpecError: its version is not installed.
        """
        return self.spec.make_analyzer()

    def scores(self, question: str) -> Floats | None:
        """BM25 (rows,) of all rows; None if no row has a word of the question."""
        return self.bm25.scores(self.analyzer(question))

    def spread(self, scores: Floats) -> ScoreSpread:
        """The spread of the BM25 of all rows."""
        n = self.bm25.n_rows
        mean = np.array([scores.sum(dtype=np.float64) / max(1, n)])
        squares = np.square(scores, dtype=np.float64).sum()
        return ScoreSpread(n, mean, np.maximum(squares - n * mean**2, 0))
