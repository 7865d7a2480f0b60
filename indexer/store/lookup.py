"""Which rows belong to which document: what an incremental build asks before it encodes anything.

A document is known by the digest of its id. Its rows lie together, in as few runs of adjacent rows as they were added
in. 70 bytes a run of fixed-size numbers, whatever the length of the ids. Only runs whose rows are alive are kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragidx.indexer.digests import Digests, DigestTable, as_digests, digest
from ragidx.indexer.store.rows import numbers_of, places_of, true_places
from ragidx.indexer.store.segment import Segment

_RUN = np.dtype(
    [
        ("document", "S16"),
        ("hash", "V16"),
        ("segment", "<i4"),
        ("first", "<i4"),
        ("count", "<i4"),
        ("kept", "?"),
        ("dead", "?"),
    ]
)


class Documents:
    """Runs of rows by document. `get(doc_id)` is the hash of the document as it was added."""

    def __init__(self) -> None:
        self._runs = np.zeros(0, _RUN)
        self._count = 0
        self._table = DigestTable()
        self._asked: tuple[str | None, list[int]] = (None, [])  # a document is looked up, and then kept or popped

    def add(self, doc_id: str, doc_hash: bytes, segment: int, first: int, count: int, *, kept: bool = False) -> None:
        """Note that `count` rows of a segment, by its number, from row `first` on, are of this document."""
        if self._count == len(self._runs):
            self._runs = np.concatenate([self._runs, np.zeros(max(1024, len(self._runs)), _RUN)])
        key = digest(doc_id)
        self._asked = (None, [])
        self._runs[self._count] = (key, doc_hash, segment, first, count, kept, False)
        self._table.add(key, self._count)
        self._count += 1

    def load(self, number: int, segment: Segment, dead: NDArray[np.bool_] | None) -> None:
        """Note all documents of a segment that are alive."""
        first, found = 0, []
        for batch in segment.batches(["doc_id", "doc_hash"]):
            ids, hashes = batch.column(0), batch.column(1)
            gone = np.zeros(len(ids), np.bool_) if dead is None else dead[first : first + len(ids)]
            changes = np.zeros(len(ids), np.bool_)
            changes[0] = True
            changes[1 + true_places(pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)))] = True
            changes[1:] |= gone[1:] != gone[:-1]
            starts = np.flatnonzero(changes)
            runs = np.zeros(len(starts), _RUN)
            runs["document"] = as_digests([digest(doc_id) for doc_id in ids.take(places_of(starts)).to_pylist()])
            runs["hash"] = numbers_of(hashes, "V16")[starts]
            runs["segment"], runs["first"] = number, first + starts
            runs["count"] = np.diff(starts, append=len(ids))
            found.append(runs[~gone[starts]])
            first += len(ids)
        self._extend(np.concatenate(found))

    def match(self, documents: Digests, hashes: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which of these documents, by the digests of their ids, are here with just these hashes (V16)."""
        runs = self._table.first(documents)
        same = np.zeros(len(documents), np.bool_)
        here = np.flatnonzero(runs >= 0)
        found = self._runs[runs[here]]
        same[here] = (found["hash"] == hashes[here]) & ~found["dead"]
        return same

    def keep_all(self, documents: Digests) -> None:
        """Mark these documents, by the digests of their ids, as `keep` does."""
        runs = self._runs[: self._count]
        runs["kept"] |= np.isin(runs["document"], documents)

    def get(self, doc_id: str) -> bytes | None:
        """The hash of the document, None where it has no row that is alive."""
        runs = self._alive(doc_id)
        return self._runs[runs[0]]["hash"].tobytes() if runs else None

    def __len__(self) -> int:
        """Runs that were noted, those that were popped since too."""
        return self._count

    def __contains__(self, doc_id: str) -> bool:
        """Whether the document has rows that are alive."""
        return bool(self._alive(doc_id))

    def keep(self, doc_id: str) -> None:
        """Mark the document, so that `pop_others` leaves it."""
        self._runs["kept"][self._alive(doc_id)] = True

    def pop(self, doc_id: str) -> Iterator[tuple[int, int, int]]:
        """Forget a document: its runs, as (segment, first, count)."""
        for number in self._alive(doc_id):
            yield self._pop(number)

    def pop_others(self) -> Iterator[tuple[int, int, int]]:
        """Forget all documents that were not kept: their runs, as (segment, first, count)."""
        for number in self._others().tolist():
            yield self._pop(number)

    def count_others(self) -> int:
        """How many documents `pop_others` would forget."""
        return len(np.unique(self._runs["document"][self._others()]))

    def _extend(self, runs: NDArray[np.void]) -> None:
        self._runs = np.concatenate([self._runs[: self._count], runs])
        self._table.extend(runs["document"], self._count + np.arange(len(runs)))
        self._count += len(runs)
        self._asked = (None, [])

    def _others(self) -> NDArray[np.int64]:
        runs = self._runs[: self._count]
        return np.flatnonzero(~runs["kept"] & ~runs["dead"])

    def _alive(self, doc_id: str) -> list[int]:
        if self._asked[0] != doc_id:
            self._asked = doc_id, self._table.find(digest(doc_id))
        return [number for number in self._asked[1] if not self._runs[number]["dead"]]

    def _pop(self, number: int) -> tuple[int, int, int]:
        run = self._runs[number]
        run["dead"] = True
        return int(run["segment"]), int(run["first"]), int(run["count"])
