"""The answers that a sweep compares with: the full width in float32, every row, no index.

rows (n, dim) float32 a block, read anew for each search, and queries (q, dim) -> scores and rows (q, k), best first.
Queries and raw rows are brought to unit length here, rows of an index are taken as they are stored: scores are cosines.
Memory is a block, its scores, and the k best.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.ann.prefixes import shortened
from ragidx.pipelines.sweep.source import SweepSource

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]

_QUERIES = 1024  # at a time


class Exact:
    """Exact search over a source.

    Args:
        source: the rows.
    """

    def __init__(self, source: SweepSource) -> None:
        self._source = source

    def search(self, queries: Floats, k: int) -> tuple[Floats, Ints]:
        """The k best, equal scores by row; k is at most the number of rows."""
        unit = shortened(queries, self._source.dim)
        parts = [self._search(unit[start : start + _QUERIES], k) for start in range(0, len(unit), _QUERIES)]
        return np.concatenate([scores for scores, _ in parts]), np.concatenate([rows for _, rows in parts])

    def scores(self, queries: Floats, rows: Ints) -> Floats:
        """(q, k) scores of given rows (q, k); -inf where there is none (-1)."""
        unit = shortened(queries, self._source.dim)
        found, start = np.full(rows.shape, -np.inf, np.float32), 0
        for block in self._source.blocks():
            of_query, place = np.nonzero((rows >= start) & (rows < start + len(block)))
            vectors = self._unit(block[rows[of_query, place] - start])
            found[of_query, place] = np.einsum("ij,ij->i", vectors, unit[of_query])
            start += len(block)
        return found

    def _unit(self, vectors: Floats) -> Floats:
        return vectors if self._source.is_unit else shortened(vectors, self._source.dim)

    def _search(self, unit: Floats, k: int) -> tuple[Floats, Ints]:
        best = np.full((len(unit), 0), -np.inf, np.float32)
        rows, start = np.zeros((len(unit), 0), np.int64), 0
        for block in self._source.blocks():
            numbers = np.arange(start, start + len(block))
            best = np.concatenate([best, unit @ self._unit(block).T], axis=1)
            rows = np.concatenate([rows, np.broadcast_to(numbers, (len(unit), len(block)))], axis=1)
            kept = np.argsort(-best, axis=1, kind="stable")[:, :k]
            best, rows = np.take_along_axis(best, kept, axis=1), np.take_along_axis(rows, kept, axis=1)
            start += len(block)
        return best, rows
