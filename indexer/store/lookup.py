"""Lookup in an index: rows by document, vectors by the hash of their text.

Ids and texts are found by digest, so memory does not depend on their lengths: 90 bytes a run of adjacent rows
(`Documents`), 44 bytes a row (`CommittedVectors`). The larger part of these is kept with an open segment, for the next
change. Documents are those of live rows; vectors are those of dead rows too.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragidx.corpora.errors import printable
from ragidx.corpora.records import Document
from ragidx.corpora.whole import document_from
from ragidx.indexer.arrays import Bools, Floats, Ints, grouped, numbers_of
from ragidx.indexer.damage import damaged
from ragidx.indexer.digests import DIGEST_BYTES, Digests, DigestTable, as_digests, digest
from ragidx.indexer.store.deletions import Masks
from ragidx.indexer.store.rows import places_of, true_places
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.store.source_list import PROGRAM

if TYPE_CHECKING:
    from ragidx.indexer.store.store import Store

_DIGEST = f"S{DIGEST_BYTES}"
_RUN = np.dtype([("document", "S16"), ("hash", "V16"), ("owner", "<i4"), ("first", "<i4"), ("count", "<i4")])
_ADDED = np.dtype([*_RUN.descr, ("segment", "<i4")])
_FLAGS = np.dtype([("kept", "?"), ("dead", "?")])


class Documents:
    """Runs of rows by document. `get(doc_id)` is the hash of the document as it was added.

    Runs are numbered: first those of the segments that were loaded, then those that were added. What is read of a
    segment stays with it, so that a second table of the same open segments costs nothing that grows with their rows.
    """

    def __init__(self) -> None:
        self._loaded: list[tuple[int, Segment, NDArray[np.void]]] = []  # number, segment, runs
        self._starts: list[int] = []  # of their numbers
        self._n_loaded = self._count = 0
        self._added = np.zeros(0, _ADDED)
        self._flags = np.zeros(0, _FLAGS)
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
        owner: int = 0,
    ) -> None:
        """Note that `count` rows of a segment, by its number, from row `first` on, are of this document."""
        place = self._count - self._n_loaded
        if place == len(self._added):
            more = max(1024, place)
            self._added = np.concatenate([self._added, np.zeros(more, _ADDED)])
            self._flags = np.concatenate([self._flags, np.zeros(more, _FLAGS)])
        key = digest(doc_id)
        self._asked = (None, [])
        self._added[place] = (key, doc_hash, owner, first, count, segment)
        self._flags[self._count] = (kept, False)
        self._table.add(key, self._count)
        self._count += 1

    @classmethod
    def read(cls, segments: Sequence[Segment], dead: Masks) -> Documents:
        """All documents of a committed state that are alive."""
        documents = cls()
        for number, (segment, mask) in enumerate(zip(segments, dead, strict=True)):
            documents._load(number, segment, mask)
        return documents

    def _load(self, number: int, segment: Segment, dead: Bools | None) -> None:
        """Note all documents of a segment that are alive; all segments are loaded before anything is added."""
        runs, keys, order = segment.kept(document_runs)
        flags = np.zeros(len(runs), _FLAGS)
        if dead is not None:
            flags["dead"] = np.logical_and.reduceat(dead, runs["first"])
            alive = ~flags["dead"][order]
            keys, order = keys[alive], order[alive]
        self._table.extend(keys, order + np.int64(self._count), ordered=True)
        self._loaded.append((number, segment, runs))
        self._starts.append(self._count)
        self._flags = np.concatenate([self._flags, flags])
        self._count = self._n_loaded = self._count + len(runs)
        self._asked = (None, [])

    def match(self, documents: Digests, hashes: NDArray[np.void]) -> Bools:
        """Which of these documents (digests of their ids, V16) are here with exactly these hashes."""
        runs = self._table.first(documents)
        same = np.zeros(len(documents), np.bool_)
        here = np.flatnonzero(runs >= 0)
        same[here] = (self._column("hash")[runs[here]] == hashes[here]) & ~self._flags["dead"][runs[here]]
        return same

    def keep_all(self, documents: Digests) -> None:
        """Mark these documents, by the digests of their ids, as `keep` does."""
        self._flags["kept"][: self._count] |= np.isin(self._column("document"), documents)

    def get(self, doc_id: str) -> bytes | None:
        """The hash of the document, None where it has no row that is alive."""
        runs = self._alive(doc_id)
        return self._run(runs[0])[1]["hash"].tobytes() if runs else None

    def owner(self, doc_id: str) -> int | None:
        """The number of the document's source, 0 for a program; None where it has no row that is alive."""
        runs = self._alive(doc_id)
        return int(self._run(runs[0])[1]["owner"]) if runs else None

    def of(self, owners: Collection[int]) -> Digests:
        """The digests of the ids of all documents of these owners, each once."""
        alive = ~self._flags["dead"][: self._count]
        return np.unique(self._column("document")[alive & np.isin(self._column("owner"), list(owners))])

    def __len__(self) -> int:
        """The number of runs added, popped ones included."""
        return self._count

    def __contains__(self, doc_id: str) -> bool:
        """Whether the document has rows that are alive."""
        return bool(self._alive(doc_id))

    def keep(self, doc_id: str) -> None:
        """Mark the document, so that `pop_others` leaves it."""
        self._flags["kept"][self._alive(doc_id)] = True

    def runs(self, doc_id: str) -> list[tuple[int, int, int]]:
        """The runs of a document, as (segment, first, count); none if it is not here."""
        return [self._place(number) for number in self._alive(doc_id)]

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
        return np.unique(self._column("document")[self._others()])

    def records(self) -> NDArray[np.void]:
        """The digests of all ids, and what is known of them: `document` (S16), `hash` (V16) and `owner` (<i4)."""
        alive = ~self._flags["dead"][: self._count]
        found = np.zeros(int(alive.sum()), [("document", "S16"), ("hash", "V16"), ("owner", "<i4")])
        for name in found.dtype.names or ():
            found[name] = self._column(name)[alive]
        return found

    def _column(self, name: str) -> Any:
        """One field of all runs."""
        added = self._added[name][: self._count - self._n_loaded]
        return np.concatenate([*(runs[name] for _, _, runs in self._loaded), added])

    def _others(self) -> Ints:
        flags = self._flags[: self._count]
        return np.flatnonzero(~flags["kept"] & ~flags["dead"] & (self._column("owner") != PROGRAM))

    def _alive(self, doc_id: str) -> list[int]:
        if self._asked[0] != doc_id:
            self._asked = doc_id, self._table.find(digest(doc_id))
        return [number for number in self._asked[1] if not self._flags["dead"][number]]

    def _run(self, number: int) -> tuple[int, Any]:
        """The number of its segment, and the run."""
        if number >= self._n_loaded:
            run = self._added[number - self._n_loaded]
            return int(run["segment"]), run
        place = bisect.bisect_right(self._starts, number) - 1
        return self._loaded[place][0], self._loaded[place][2][number - self._starts[place]]

    def _place(self, number: int) -> tuple[int, int, int]:
        segment, run = self._run(number)
        return segment, int(run["first"]), int(run["count"])

    def _pop(self, number: int) -> tuple[int, int, int]:
        self._flags["dead"][number] = True
        return self._place(number)


def document_runs(segment: Segment) -> tuple[NDArray[np.void], Digests, NDArray[np.int32]]:
    """The runs of adjacent rows of one document, dead or alive, and their digests in order with their numbers."""
    first, found = 0, []
    for batch in segment.batches(["doc_id", "doc_hash", "owner"]):
        ids, hashes, owners = batch.column(0), numbers_of(batch.column(1), "V16"), numbers_of(batch.column(2), "<i4")
        changes = np.ones(len(ids), np.bool_)
        changes[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])  # one that a writer added twice
        changes[1 + true_places(pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)))] = True
        starts = np.flatnonzero(changes)
        runs = np.zeros(len(starts), _RUN)
        runs["document"] = as_digests([digest(doc_id) for doc_id in ids.take(places_of(starts)).to_pylist()])
        runs["hash"], runs["owner"], runs["first"] = hashes[starts], owners[starts], first + starts
        runs["count"] = np.diff(starts, append=len(ids))
        found.append(runs)
        first += len(ids)
    every = np.concatenate(found)
    order = np.argsort(every["document"], kind="stable").astype(np.int32)
    return every, every["document"][order], order


def text_rows(segment: Segment) -> tuple[Digests, NDArray[np.int32]]:
    """The hashes of the texts in order, with their rows."""
    hashes = np.concatenate([numbers_of(batch.column(0), _DIGEST) for batch in segment.batches(["text_hash"])])
    order = np.argsort(hashes, kind="stable").astype(np.int32)
    return hashes[order], order


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
        here = np.flatnonzero(numbers >= 0)
        for segment, places, rows in grouped(self._starts, numbers[here]):
            keys = (hashes[place] for place in here[places].tolist())
            found |= zip(keys, self._segments[segment].vectors(rows), strict=True)
        return found

    @functools.cached_property
    def _table(self) -> DigestTable:
        """Text hash -> row, counted through all segments: the first one that is alive, else the first."""
        table, dead_rows = DigestTable(), []
        for start, segment, dead in zip(self._starts[:-1], self._segments, self._dead, strict=True):
            hashes, rows = segment.kept(text_rows)
            if dead is not None:
                gone = dead[rows]
                dead_rows.append((hashes[gone], start + rows[gone]))
                hashes, rows = hashes[~gone], rows[~gone]
            table.extend(hashes, start + rows, ordered=True)
        for hashes, numbers in dead_rows:
            table.extend(hashes, numbers, ordered=True)
        return table


def documents_of(store: Store) -> Documents:
    """Where the documents of an opened index are."""
    return Documents.read(store.segments, store.dead)


def document_rows(store: Store, names: Sequence[str]) -> dict[str, tuple[Ints, int]]:
    """The rows of documents, in their order, and their owners; of those of the names that the index has."""
    known, live = documents_of(store), store.live
    starts, found = np.cumsum([0, *(segment.entry.rows for segment in store.segments)]), {}
    for name in names:
        runs = [starts[number] + np.arange(first, first + count) for number, first, count in known.runs(name)]
        if runs:
            rows = np.sort(np.concatenate(runs))
            places = np.minimum(np.searchsorted(live, rows), len(live) - 1)
            found[name] = rows[live[places] == rows], known.owner(name) or PROGRAM
    return found


def vectors_of(store: Store) -> CommittedVectors:
    """The vectors of an opened index."""
    return CommittedVectors(store.segments, store.dead)


def program_documents(store: Store) -> Iterator[Document]:
    """The documents of a program, in the order of the index."""
    for _, batch in store.batches(["owner", "doc_id", "whole", "doc_hash"]):
        for row in np.flatnonzero(numbers_of(batch.column(0), "<i4") == PROGRAM).tolist():
            doc_id, whole, doc_hash = (column[row].as_py() for column in batch.columns[1:])
            if whole != "":
                yield checked_document(store.path, doc_id, whole, doc_hash)


def checked_document(folder: Path, doc_id: str, whole: str | None, doc_hash: bytes) -> Document:
    """A program's document from its first row; `folder` is of the index, or of the segment.

    Raises:
        IndexFormatError: it is not what was written.
    """
    if whole is None or digest(whole) != doc_hash:
        raise damaged(folder, f"the document '{printable(doc_id)}' is not the one that was added")
    return document_from(doc_id, whole)
