"""The rows of a committed state by chunk id: what an upsert asks before it writes.

A row is known by the digest of its chunk id and has the hash of what it holds. Some 70 bytes a row, whatever the length
of the ids. Rows are counted through all segments; `runs` gives them back as (segment, first, count). What is written,
and when, is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.digests import DIGEST_BYTES, Digests, DigestTable, as_digests, digest
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.store.store import Store

Numbers: TypeAlias = NDArray[np.int64]


class KnownRows:
    """All rows that are alive, by chunk id. No two of them have the same.

    Args:
        store: the committed state; None: there is none, or it is about to be replaced.
    """

    def __init__(self, store: Store | None) -> None:
        segments = [] if store is None else store.segments
        self._starts = np.cumsum([0, *(segment.entry.rows for segment in segments)], dtype=np.int64)
        total = int(self._starts[-1])
        self._hashes: Digests = np.zeros(total, f"S{DIGEST_BYTES}")
        self._documents = np.zeros(total, np.uint64)
        self._alive = np.ones(total, np.bool_)
        self._kept = np.zeros(total, np.bool_)
        self._table = DigestTable()
        for number, segment in enumerate(segments):
            assert store is not None
            self._load(number, segment, store.dead[number])

    def find(self, keys: Sequence[bytes]) -> Numbers:
        """The row of each chunk id, by its digest; -1 where none is alive."""
        numbers = self._table.first(keys)
        if len(self._alive):
            numbers[(numbers >= 0) & ~self._alive[numbers]] = -1
        return numbers

    def hold(self, numbers: Numbers, hashes: Digests) -> NDArray[np.bool_]:
        """Whether the rows hold what these hashes say; False for -1."""
        same = np.zeros(len(numbers), np.bool_)
        there = numbers >= 0
        same[there] = self._hashes[numbers[there]] == hashes[there]
        return same

    def keep(self, numbers: Numbers) -> None:
        """Mark rows, so that they are not among the others."""
        self._kept[numbers] = True

    def others(self) -> Numbers:
        """The rows that are alive and were not kept."""
        return np.flatnonzero(self._alive & ~self._kept)

    def drop(self, numbers: Numbers) -> Iterator[tuple[int, int, int]]:
        """Forget rows: runs of neighbours as (segment, first row in it, count)."""
        self._alive[numbers] = False
        ordered = np.sort(numbers)
        owners = np.searchsorted(self._starts, ordered, "right") - 1
        ends = np.flatnonzero((np.diff(ordered) != 1) | (np.diff(owners) != 0)) + 1
        for run in np.split(np.arange(len(ordered)), ends) if len(ordered) else ():
            owner = int(owners[run[0]])
            yield owner, int(ordered[run[0]] - self._starts[owner]), len(run)

    def documents(self) -> NDArray[np.uint64]:
        """The document of each row that is alive, as `document_numbers` has it."""
        return self._documents[self._alive]

    def _load(self, number: int, segment: Segment, dead: NDArray[np.bool_] | None) -> None:
        """Read a segment's ids. Dead rows stay out of the table: a row that replaced one of them has the same id."""
        start, at = int(self._starts[number]), int(self._starts[number])
        every: list[Digests] = []
        for batch in segment.batches(["chunk_id", "doc_id", "doc_hash"]):
            ids, documents, hashes = (batch.column(column) for column in range(3))
            here = slice(at, at + len(ids))
            keys = as_digests([digest(name) for name in ids.to_pylist()])
            own = keys if ids.equals(documents) else as_digests([digest(name) for name in documents.to_pylist()])
            self._documents[here] = document_numbers(own)
            self._hashes[here] = as_digests(hashes.to_pylist())
            every.append(keys)
            at += len(ids)
        if dead is not None:
            self._alive[start:at] = ~dead
        alive = np.flatnonzero(self._alive[start:at])
        self._table.extend(np.concatenate(every)[alive], start + alive)


def document_numbers(keys: Digests) -> NDArray[np.uint64]:
    """The first 8 bytes of digests as numbers, to count different ones: two of a million share one in 3 of 10**8 runs.

    >>> document_numbers(as_digests([b"a" * 16, b"a" * 16, b"b" * 16])).tolist()[0] == 0x6161616161616161
    True
    """
    return np.frombuffer(keys.tobytes(), "<u8").reshape(len(keys), 2)[:, 0].astype(np.uint64)
