"""Scores of single rows, and how the scores of all rows spread: what a fusion of cosines and BM25 needs.

cosines(vectors, query)                (n,) the real cosine of each row, whichever way it was found
nearest_and_spread(parts, queries, k)  the best rows; mean and squares over all rows, by moments or by a scan
LexicalPart(spec, postings)            terms of a question, and BM25 of every row
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragidx.indexer.ann.moments import ScoreSpread, merged_spread, spread_of
from ragidx.indexer.arrays import Floats, Ints, slices
from ragidx.indexer.lexical.postings import Postings
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store.live import LivePostings
from ragidx.indexer.store.topk import Searched, SegmentRows, limited, merged, search_part

if TYPE_CHECKING:  # a search by vectors alone does not need it
    from ragidx.indexer.lexical.analyzer import Analyzer

_BLOCK = 1 << 22  # scores held at once


def cosines(vectors: Floats, query: Floats) -> Floats:
    """(n,) the cosines of rows (n, width) with a query (width,), limited to [-1, 1].

    They are added in float64 row by row, so that they do not depend on which other rows are asked for.
    """
    products = np.einsum("ij,j->i", vectors.astype(np.float64), query.astype(np.float64))  # of float64: row by row
    found: Floats = np.clip(products, -1, 1).astype(np.float32)
    return found


def nearest_and_spread(
    parts: Sequence[SegmentRows], queries: Floats, k: int, n_zeros: int = 0
) -> tuple[Floats, Ints, ScoreSpread]:
    """The nearest of the rows that are allowed, as `nearest`, and the spread of the cosines with all rows that are not
    zero, of which there are `n_zeros`; one scan of a part is enough for both. `parts` is not empty.
    """
    found, spreads = [], []
    for part in parts:
        spread = part.view.spread(queries)
        if spread is None and part.view.is_exact() and len(queries) * part.view.n_rows <= _BLOCK:
            scores, rows = part.view.search(queries, part.view.n_rows, None)
            spread = spread_of(scores)
            if part.allowed is not None:  # as many of each query, since all rows are there
                passes = part.allowed[rows]
                scores, rows = scores[passes].reshape(len(scores), -1), rows[passes].reshape(len(scores), -1)
            found.append((limited(scores[:, :k]), rows[:, :k] + part.first))
        else:
            found.append(search_part(part, queries, k))
        spreads.append(_scanned(part.view, queries) if spread is None else spread)
    spread = merged_spread(spreads)
    if n_zeros:
        spread = spread.without(spread_of(np.zeros((len(queries), n_zeros), np.float32)))
    scores, rows = merged(found)
    return scores[:, :k], rows[:, :k], spread


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
