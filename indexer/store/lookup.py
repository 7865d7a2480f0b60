"""Lookup in an index: rows by document, rows by chunk id, vectors by the hash of their text.

Ids and texts are found by digest, so memory does not depend on their lengths: 70 bytes a run of adjacent rows
(`Documents`), some 70 bytes a row (`KnownRows`), 24 bytes a row (`CommittedVectors`). Documents and
chunk ids are those of live rows; vectors are those of dead rows too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragidx.corpora.records import Document
from ragidx.corpora.whole import document_from
from ragidx.indexer.arrays import Bools, Floats, Ints, numbers_of
from ragidx.indexer.digests import DIGEST_BYTES, Digests, DigestTable, as_digests, digest
from ragidx.indexer.store.deletions import Masks
from ragidx.indexer.store.rows import places_of, true_places
from ragidx.indexer.store.segment import Segment

if TYPE_CHECKING:
    from ragidx.indexer.store.store import Store

_DIGEST = f"S{DIGEST_BYTES}"
_RUN = np.dtype(
    [
        ("document", "S16"),
        ("hash", "V16"),
        ("segment", "<i4"),
        ("first", "<i4"),
        ("count", "<i4"),
        ("kept", "?"),
        ("program", "?"),
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

    def add(
        self,
        doc_id: str,
        doc_hash: bytes,
        segment: int,
        first: int,
        count: int,
        *,
        kept: bool = False,
        program: bool = False,
    ) -> None:
        """Note that `count` rows of a segment, by its number, from row `first` on, are of this document."""
        if self._count == len(self._runs):
            self._runs = np.concatenate([self._runs, np.zeros(max(1024, len(self._runs)), _RUN)])
        key = digest(doc_id)
        self._asked = (None, [])
        self._runs[self._count] = (key, doc_hash, segment, first, count, kept, program, False)
        self._table.add(key, self._count)
        self._count += 1

    def load(self, number: int, segment: Segment, dead: Bools | None) -> None:
        """Note all documents of a segment that are alive."""
        first, found = 0, []
        for batch in segment.batches(["doc_id", "doc_hash", "whole"]):
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
            if batch.column(2).null_count < len(ids):
                runs["program"] = batch.column(2).is_valid().to_numpy(zero_copy_only=False)[starts]
            found.append(runs[~gone[starts]])
            first += len(ids)
        self._extend(np.concatenate(found))

    def match(self, documents: Digests, hashes: NDArray[np.void]) -> Bools:
        """Which of these documents (digests of their ids, V16) are here with exactly these hashes."""
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

    def is_of_program(self, doc_id: str) -> bool:
        """Whether the document is a program's, and of no source."""
        return any(bool(self._runs["program"][number]) for number in self._alive(doc_id))

    def count_of_program(self) -> int:
        """How many documents are a program's."""
        runs = self._runs[: self._count]
        return len(np.unique(runs["document"][runs["program"] & ~runs["dead"]]))

    def __len__(self) -> int:
        """The number of runs added, popped ones included."""
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
        """Forget all documents of sources that were not kept: their runs, as (segment, first, count)."""
        for number in self._others().tolist():
            yield self._pop(number)

    def count_others(self) -> int:
        """How many documents `pop_others` would forget."""
        return len(self.others())

    def others(self) -> Digests:
        """The digests of the ids of documents that `pop_others` would forget, each once."""
        return np.unique(self._runs["document"][self._others()])

    def records(self) -> NDArray[np.void]:
        """The digests of all ids with the hashes of their documents: fields `document` (S16) and `hash` (V16)."""
        runs = self._runs[: self._count]
        found: NDArray[np.void] = runs[~runs["dead"]][["document", "hash"]]
        return found

    def _extend(self, runs: NDArray[np.void]) -> None:
        self._runs = np.concatenate([self._runs[: self._count], runs])
        self._table.extend(runs["document"], self._count + np.arange(len(runs)))
        self._count += len(runs)
        self._asked = (None, [])

    def _others(self) -> Ints:
        runs = self._runs[: self._count]
        return np.flatnonzero(~runs["kept"] & ~runs["dead"] & ~runs["program"])

    def _alive(self, doc_id: str) -> list[int]:
        if self._asked[0] != doc_id:
            self._asked = doc_id, self._table.find(digest(doc_id))
        return [number for number in self._asked[1] if not self._runs[number]["dead"]]

    def _pop(self, number: int) -> tuple[int, int, int]:
        run = self._runs[number]
        run["dead"] = True
        return int(run["segment"]), int(run["first"]), int(run["count"])


class CommittedVectors:
    """The vectors of all rows by text hash; a dead row counts if no live one has the text.

    So a text that was deleted and comes back need not be encoded again.

    Args:
        segments: of the committed state.
        dead: their masks, as they were committed; copied.
    """

    def __init__(self, segments: Sequence[Segment], dead: Masks) -> None:
        self._segments = segments
        self._dead = [None if mask is None else mask.copy() for mask in dead]
        self._starts = np.cumsum([0, *(segment.entry.rows for segment in segments)], dtype=np.int64)

    def known(self, hashes: Sequence[bytes]) -> Bools:
        """Which of the hashes are here."""
        return self._table.first(hashes) >= 0

    def get(self, hashes: Sequence[bytes]) -> dict[bytes, Floats]:
        """The vectors of those hashes that are here."""
        found: dict[bytes, Floats] = {}
        numbers = self._table.first(hashes)
        owners = np.searchsorted(self._starts, numbers, "right") - 1
        for owner in np.unique(owners[numbers >= 0]).tolist():
            places = np.flatnonzero((owners == owner) & (numbers >= 0))
            vectors = self._segments[owner].vectors(numbers[places] - self._starts[owner])
            found |= zip((hashes[place] for place in places.tolist()), vectors, strict=True)
        return found

    @functools.cached_property
    def _table(self) -> DigestTable:
        """Text hash -> row, counted through all segments: the first one that is alive, else the first."""
        table, dead_rows = DigestTable(), []
        for number, segment in enumerate(self._segments):
            batches = segment.batches(["text_hash"])
            hashes = np.concatenate([numbers_of(batch.column(0), _DIGEST) for batch in batches])
            dead = self._dead[number]
            alive = np.ones(len(hashes), np.bool_) if dead is None else ~dead
            rows = self._starts[number] + np.arange(len(hashes))
            table.extend(hashes[alive], rows[alive])
            dead_rows.append((hashes[~alive], rows[~alive]))
        for hashes, rows in dead_rows:
            table.extend(hashes, rows)
        return table


class KnownRows:
    """All live rows, by their unique chunk id.

    Args:
        segments: of the committed state; none: there is no such state, or it will be replaced.
        dead: their masks.
    """

    def __init__(self, segments: Sequence[Segment] = (), dead: Sequence[Bools | None] = ()) -> None:
        self._starts = np.cumsum([0, *(segment.entry.rows for segment in segments)], dtype=np.int64)
        total = int(self._starts[-1])
        self._hashes: Digests = np.zeros(total, _DIGEST)
        self._documents = np.zeros(total, np.uint64)
        self._alive = np.ones(total, np.bool_)
        self._kept = np.zeros(total, np.bool_)
        self._table = DigestTable()
        for number, segment in enumerate(segments):
            self._load(number, segment, dead[number])

    def find(self, keys: Sequence[bytes]) -> Ints:
        """The row of each chunk id, by its digest; -1 where none is alive."""
        numbers = self._table.first(keys)
        if len(self._alive):
            numbers[(numbers >= 0) & ~self._alive[numbers]] = -1
        return numbers

    def hold(self, numbers: Ints, hashes: Digests) -> Bools:
        """Whether the rows hold what these hashes say; False for -1."""
        same = np.zeros(len(numbers), np.bool_)
        there = numbers >= 0
        same[there] = self._hashes[numbers[there]] == hashes[there]
        return same

    def keep(self, numbers: Ints) -> None:
        """Mark rows, so that they are not among `others`."""
        self._kept[numbers] = True

    def others(self) -> Ints:
        """The rows that are alive and were not kept."""
        return np.flatnonzero(self._alive & ~self._kept)

    def drop(self, numbers: Ints) -> Iterator[tuple[int, int, int]]:
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

    def _load(self, number: int, segment: Segment, dead: Bools | None) -> None:
        """Read a segment's ids. Dead rows stay out of the table: a row that replaced one of them has the same id."""
        start, at = int(self._starts[number]), int(self._starts[number])
        every: list[Digests] = []
        for batch in segment.batches(["chunk_id", "doc_id", "doc_hash"]):
            ids, documents, hashes = (batch.column(column) for column in range(3))
            here = slice(at, at + len(ids))
            keys = as_digests([digest(name) for name in ids.to_pylist()])
            own = keys if ids.equals(documents) else as_digests([digest(name) for name in documents.to_pylist()])
            self._documents[here] = document_numbers(own)
            self._hashes[here] = numbers_of(hashes, _DIGEST)
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


def program_documents(store: Store) -> Iterator[Document]:
    """The documents of a program, in the order of the index."""
    for doc_id, whole in _wholes(store):
        if whole:
            yield document_from(doc_id, whole)


def program_ids(store: Store) -> set[str]:
    """The ids of a program's documents."""
    return {doc_id for doc_id, _ in _wholes(store)}


def _wholes(store: Store) -> Iterator[tuple[str, str]]:
    for segment, dead in zip(store.segments, store.dead, strict=True):
        first = 0
        for batch in segment.batches(["doc_id", "whole"]):
            column = batch.column(1)
            if column.null_count < len(column):
                for row in pc.indices_nonzero(column.is_valid()).to_pylist():
                    if dead is None or not dead[first + row]:
                        yield batch.column(0)[row].as_py(), column[row].as_py()
            first += len(column)
