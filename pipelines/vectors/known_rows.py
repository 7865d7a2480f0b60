"""Which rows an index of precomputed vectors has, and which a writer adds: found by the digests of their ids.

Some 70 bytes a row, whatever the lengths of the ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.arrays import Bools, Ints, numbers_of
from ragidx.indexer.digests import DIGEST_BYTES, Digests, DigestTable, as_digests, digest
from ragidx.indexer.store import Store

_DIGEST = f"S{DIGEST_BYTES}"
_ROW = np.dtype([("document", "<u8"), ("hash", _DIGEST), ("alive", "?"), ("kept", "?")])  # the hash: as committed


class KnownRows:
    """All live rows, by their unique chunk id: those of a committed state, and behind them those that are added.

    Args:
        store: the committed state; None: there is none, or it will be replaced.

    Attributes:
        n_committed: the rows of the committed state, dead ones included.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.n_committed = self._count = 0 if store is None else int(store.stored_starts[-1])
        self._rows, self._table = np.zeros(self._count, _ROW), DigestTable()
        if store is not None and store.n_rows:
            self._rows["alive"][store.stored] = True
            self._table.extend(np.concatenate(list(self._load(store))), store.stored)

    def add(self, keys: Digests, documents: Digests) -> None:
        """Note rows that are added, by the digests of their ids and of their documents' ids; they are kept."""
        first, self._count = self._count, self._count + len(keys)
        if self._count > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros(self._count, _ROW)])
        new = self._rows[first : self._count]
        new["document"], new["alive"], new["kept"] = document_numbers(documents), True, True
        self._table.extend(keys, np.arange(first, self._count))

    def find(self, keys: Sequence[bytes]) -> Ints:
        """The row of each chunk id, by its digest; -1 where none is alive."""
        numbers = self._table.first(keys)
        known = np.flatnonzero(numbers >= 0)
        for place in known[~self._rows["alive"][numbers[known]]].tolist():  # another row may have come in its place
            rows = self._table.find(keys[place])
            numbers[place] = next((row for row in rows if self._rows["alive"][row]), -1)
        return numbers

    def added_of(self, keys: Sequence[bytes]) -> tuple[Ints, Bools]:
        """The living rows that were added whose id, or document's id, is one of these (digests); which of these are."""
        numbers, wanted = self.find(keys), document_numbers(as_digests(keys))
        added = self._rows[self.n_committed : self._count]
        of_documents = np.flatnonzero(np.isin(added["document"], wanted) & added["alive"]) + self.n_committed
        is_added = numbers >= self.n_committed
        documents = self._rows["document"][of_documents]
        return np.union1d(numbers[is_added], of_documents), is_added | np.isin(wanted, documents)

    def hold(self, numbers: Ints, hashes: Digests) -> Bools:
        """Whether the rows hold what these hashes say; False for -1, and for those that were added."""
        same = np.zeros(len(numbers), np.bool_)
        there = (numbers >= 0) & (numbers < self.n_committed)
        same[there] = self._rows["hash"][numbers[there]] == hashes[there]
        return same

    def keep(self, numbers: Ints) -> None:
        """Mark rows, so that they are not among `others`."""
        self._rows["kept"][numbers] = True

    def kept(self, numbers: Ints) -> Bools:
        """Which of the rows were marked or added; False for -1."""
        return (numbers >= 0) & self._rows["kept"][numbers] if len(self._rows) else np.zeros(len(numbers), np.bool_)

    def others(self) -> Ints:
        """The rows that are alive and were not kept."""
        return np.flatnonzero(self._rows["alive"] & ~self._rows["kept"])

    def drop(self, numbers: Ints) -> None:
        """Forget rows."""
        self._rows["alive"][numbers] = False

    def documents(self) -> NDArray[np.uint64]:
        """The document of each row that is alive, as `document_numbers` has it."""
        numbers: NDArray[np.uint64] = self._rows["document"][self._rows["alive"]]
        return numbers

    def _load(self, store: Store) -> Iterator[Digests]:
        """Read what is known of the rows; the digests of their ids, in the order of the index."""
        for batch in stored_rows(store):
            of, rows = document_numbers(batch.documents), store.stored[batch.numbers]
            self._rows["document"][rows], self._rows["hash"][rows] = of, batch.hashes
            yield as_digests(batch.keys)


class StoredRows(NamedTuple):
    """Some live rows of an index: their numbers and ids; digests of the ids, of their documents' ids, of all else."""

    numbers: Ints
    ids: Any  # an Arrow array
    keys: list[bytes]
    documents: Digests
    hashes: Digests


def stored_rows(store: Store) -> Iterator[StoredRows]:
    """All live rows, batch by batch, in the order of the index."""
    for rows, batch in store.batches(["chunk_id", "doc_id", "doc_hash"]):
        ids, documents, hashes = batch.columns
        keys = [digest(name) for name in ids.to_pylist()]
        of = keys if ids.equals(documents) else [digest(name) for name in documents.to_pylist()]
        yield StoredRows(rows, ids, keys, as_digests(of), numbers_of(hashes, _DIGEST))


def document_numbers(keys: Digests) -> NDArray[np.uint64]:
    """The first 8 bytes of digests as numbers, to count different ones: two of a million share one in 3 of 10**8 runs.

    >>> document_numbers(as_digests([b"a" * 16, b"a" * 16, b"b" * 16])).tolist()[0] == 0x6161616161616161
    True
    """
    return np.frombuffer(keys.tobytes(), "<u8").reshape(len(keys), 2)[:, 0].astype(np.uint64)
