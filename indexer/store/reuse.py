"""Vectors that are committed already, by the hash of their text: what a build need not encode again.

24 bytes a row in memory, read from the columns when the first hash is asked for; the vectors stay on the disk.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.digests import DigestTable
from ragidx.indexer.store.deletions import Masks
from ragidx.indexer.store.segment import Segment


class CommittedVectors:
    """The vectors of all rows that are alive, by text hash.

    Args:
        segments: of the committed state.
        dead: their masks, as they were committed; copied.
    """

    def __init__(self, segments: Sequence[Segment], dead: Masks) -> None:
        self._segments = segments
        self._dead = [None if mask is None else mask.copy() for mask in dead]
        self._starts = np.cumsum([0, *(segment.entry.rows for segment in segments)], dtype=np.int64)

    def known(self, hashes: Sequence[bytes]) -> NDArray[np.bool_]:
        """Which of the hashes are here."""
        return self._table.first(hashes) >= 0

    def get(self, hashes: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """The vectors of those hashes that are here."""
        found: dict[bytes, NDArray[np.float32]] = {}
        numbers = self._table.first(hashes)
        owners = np.searchsorted(self._starts, numbers, "right") - 1
        for owner in np.unique(owners[numbers >= 0]).tolist():
            places = np.flatnonzero((owners == owner) & (numbers >= 0))
            vectors = self._segments[owner].vectors(numbers[places] - self._starts[owner])
            found |= zip((hashes[place] for place in places.tolist()), vectors, strict=True)
        return found

    @functools.cached_property
    def _table(self) -> DigestTable:
        """Text hash -> row, counted through all segments."""
        table = DigestTable()
        for number, segment in enumerate(self._segments):
            columns = [batch.column(0) for batch in segment.batches(["text_hash"])]
            hashes = np.concatenate([np.frombuffer(column.buffers()[1], "S16", len(column)) for column in columns])
            dead = self._dead[number]
            alive = np.arange(len(hashes)) if dead is None else np.flatnonzero(~dead)
            table.extend(hashes[alive], self._starts[number] + alive)
        return table
