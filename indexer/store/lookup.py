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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragidx.corpora.errors import printable
from ragidx.corpora.records import Document
from ragidx.corpora.whole_documents import document_from
from ragidx.indexer.arrays import Bools, Floats, Ints, numbers_of
from ragidx.indexer.damage import damaged
from ragidx.indexer.digests import DIGEST_BYTES, Digests, DigestTable, as_digests, digest
from ragidx.indexer.store.rows import places_of, true_places
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.store.source_list import PROGRAM

if TYPE_CHECKING:
    from ragidx.indexer.store.store import Store

_DIGEST = f"S{DIGEST_BYTES}"
DOCUMENT_RECORD = np.dtype([("document", "S16"), ("hash", "V16"), ("owner", "<i4")])
_RUN = np.dtype([*DOCUMENT_RECORD.descr, ("first", "<i8"), ("count", "<i4")])


class _Placed(NamedTuple):
    """A run, and the row from which its rows are counted."""

    row: int
    run: Any


class Documents:
    """Runs of stored rows, dead ones included, by document. `get(doc_id)` is the hash of the document as it was added.

    Runs are numbered: first those of the segments, then those that were added. What is read of a segment stays with it,
    so a second table of the same open segments is made of what the first one has read.

    Args:
        store: the committed state, of which the documents that are alive are noted; None: there is none.
    """

    def __init__(self, store: Store | None = None) -> None:
        self._parts: list[tuple[int, int, NDArray[np.void]]] = []  # the number of the first run, its first row, runs
        self._count = 0
        self._table = DigestTable()
        self._asked: tuple[str | None, list[int]] = (None, [])  # a document is looked up, and then kept or popped
        dead = [self._load(first, segment, store) for first, segment in _placed(store)]
        self._dead = np.concatenate([np.zeros(0, np.bool_), *dead])  # by the number of a run, and room for more
        self._kept = np.zeros(self._count, np.bool_)
        self._parts.append((self._count, 0, np.zeros(0, _RUN)))  # those that are added

    def _load(self, first: int, segment: Segment, store: Store | None) -> Bools:
        """Note the runs of a segment; which of them are dead."""
        runs, keys, order = segment.kept(document_runs)
        dead = np.zeros(len(runs), np.bool_)
        if (
            store is not None
            and store.dead is not None
            and (own := store.dead[first : first + segment.entry.rows]).any()
        ):
            dead = np.logical_and.reduceat(own, runs["first"])
            alive = ~dead[order]
            keys, order = keys[alive], order[alive]
        self._table.extend(keys, order + np.int64(self._count), ordered=True)
        self._parts.append((self._count, first, runs))
        self._count += len(runs)
        return dead

    def add(self, doc_id: str, doc_hash: bytes, first: int, count: int, *, kept: bool = False, owner: int = 0) -> None:
        """Note that `count` rows, from row `first` on, are of this document."""
        start, _, runs = self._parts[-1]
        place = self._count - start
        if place == len(runs):
            more = max(1024, place)
            runs = np.concatenate([runs, np.zeros(more, _RUN)])
            self._parts[-1] = (start, 0, runs)
            self._dead, self._kept = (np.append(marks, np.zeros(more, np.bool_)) for marks in (self._dead, self._kept))
        key = digest(doc_id)
        runs[place] = (key, doc_hash, owner, first, count)
        self._kept[self._count] = kept
        self._table.add(key, self._count)
        self._count += 1
        self._asked = (None, [])

    def extend(self, records: NDArray[np.void]) -> None:
        """Note documents whose rows are in another index, before any is added here; as `records` gives them."""
        start, _, none = self._parts.pop()
        runs, marks = np.zeros(len(records), _RUN), np.zeros(len(records), np.bool_)
        for name in records.dtype.names or ():
            runs[name] = records[name]
        self._table.extend(runs["document"], start + np.arange(len(runs)))
        self._count = start + len(runs)
        self._dead, self._kept = (np.append(before[:start], marks) for before in (self._dead, self._kept))
        self._parts += [(start, 0, runs), (self._count, 0, none[:0])]

    def match(self, documents: Digests, hashes: NDArray[np.void]) -> Bools:
        """Which of these documents (digests of their ids, V16) are here with exactly these hashes."""
        runs = self._table.first(documents)
        same = np.zeros(len(documents), np.bool_)
        here = np.flatnonzero(runs >= 0)
        same[here] = (self._column("hash")[runs[here]] == hashes[here]) & ~self._dead[runs[here]]
        return same

    def get(self, doc_id: str) -> bytes | None:
        """The hash of the document, None where it has no row that is alive."""
        runs = self._alive(doc_id)
        return self._run(runs[0]).run["hash"].tobytes() if runs else None

    def owner(self, doc_id: str) -> int | None:
        """The number of the document's source, 0 for a program; None where it has no row that is alive."""
        runs = self._alive(doc_id)
        return int(self._run(runs[0]).run["owner"]) if runs else None

    def of(self, owners: Collection[int]) -> Digests:
        """The digests of the ids of all documents of these owners, each once."""
        alive = ~self._dead[: self._count]
        return np.unique(self._column("document")[alive & np.isin(self._column("owner"), list(owners))])

    def __len__(self) -> int:
        """The number of runs added, popped ones included."""
        return self._count

    def __contains__(self, doc_id: str) -> bool:
        """Whether the document has rows that are alive."""
        return bool(self._alive(doc_id))

    def rows(self, doc_id: str) -> Ints:
        """The rows of a document."""
        return self._rows(self._alive(doc_id))

    def keep(self, doc_id: str) -> None:
        """Mark the document, so that `pop_others` leaves it."""
        self._kept[self._alive(doc_id)] = True

    def keep_all(self, documents: Digests) -> None:
        """Mark these documents, by the digests of their ids, as `keep` does."""
        self._kept[: self._count] |= np.isin(self._column("document"), documents)

    def pop(self, doc_id: str) -> Ints:
        """Forget a document; its rows."""
        return self._pop(self._alive(doc_id))

    def pop_all(self, documents: Digests) -> Ints:
        """Forget documents, by the digests of their ids; their rows."""
        alive = ~self._dead[: self._count]
        return self._pop(np.flatnonzero(alive & np.isin(self._column("document"), documents)).tolist())

    def others(self) -> Digests:
        """The digests of the ids of documents that `pop_others` would forget, each once."""
        return np.unique(self._column("document")[self._others()])

    def pop_others(self) -> Ints:
        """Forget all documents of sources that were not kept; their rows."""
        return self._pop(self._others().tolist())

    def records(self) -> NDArray[np.void]:
        """The digests of all ids, and what is known of them, as `DOCUMENT_RECORD`."""
        alive = ~self._dead[: self._count]
        found = np.zeros(int(alive.sum()), DOCUMENT_RECORD)
        for name in found.dtype.names or ():
            found[name] = self._column(name)[alive]
        return found

    def _column(self, name: str) -> Any:
        """One field of all runs."""
        return np.concatenate([runs[name] for _, _, runs in self._parts])[: self._count]

    def _others(self) -> Ints:
        is_left = ~self._kept[: self._count] & ~self._dead[: self._count]
        return np.flatnonzero(is_left & (self._column("owner") != PROGRAM))

    def _alive(self, doc_id: str) -> list[int]:
        if self._asked[0] != doc_id:
            self._asked = doc_id, self._table.find(digest(doc_id))
        return [number for number in self._asked[1] if not self._dead[number]]

    def _run(self, number: int) -> _Placed:
        start, row, runs = self._parts[bisect.bisect_right(self._parts, number, key=lambda part: part[0]) - 1]
        return _Placed(row, runs[number - start])

    def _rows(self, numbers: Sequence[int]) -> Ints:
        """The rows of some runs."""
        rows = [np.zeros(0, np.int64)]
        for row, run in map(self._run, numbers):
            first = row + int(run["first"])
            rows.append(np.arange(first, first + int(run["count"])))
        return np.concatenate(rows)

    def _pop(self, numbers: Sequence[int]) -> Ints:
        self._dead[numbers] = True
        return self._rows(numbers)


def document_runs(segment: Segment) -> tuple[NDArray[np.void], Digests, NDArray[np.int32]]:
    """The runs of adjacent rows of one document, dead or alive, and their digests in order with their numbers."""
    first, parts = 0, []
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
        parts.append(runs)
        first += len(ids)
    every = np.concatenate(parts)
    order = np.argsort(every["document"], kind="stable").astype(np.int32)
    return every, every["document"][order], order


def text_rows(segment: Segment) -> tuple[Digests, NDArray[np.int32]]:
    """The hashes of the texts in order, with their rows."""
    hashes = np.concatenate([numbers_of(batch.column(0), _DIGEST) for batch in segment.batches(["text_hash"])])
    order = np.argsort(hashes, kind="stable").astype(np.int32)
    return hashes[order], order


def _placed(store: Store | None) -> Iterator[tuple[int, Segment]]:
    """The segments of a state, each with its first row."""
    if store is not None:
        yield from zip(store.stored_starts.tolist(), store.segments, strict=False)


class CommittedVectors:
    """The vectors of all rows by text hash; a dead row counts if no live one has the text.

    So a text that was deleted and comes back need not be encoded again.

    Args:
        store: the committed state; None: there is none.
    """

    def __init__(self, store: Store | None) -> None:
        self._store = store

    def known(self, hashes: Sequence[bytes]) -> Bools:
        """Which of the hashes are here."""
        return self._table.first(hashes) >= 0

    def get(self, hashes: Sequence[bytes]) -> dict[bytes, Floats]:
        """The vectors of those hashes that are here."""
        rows = self._table.first(hashes)
        here = np.flatnonzero(rows >= 0)
        if self._store is None or not len(here):
            return {}
        vectors = self._store.stored_vectors(rows[here])
        return dict(zip([hashes[place] for place in here.tolist()], vectors, strict=True))

    @functools.cached_property
    def _table(self) -> DigestTable:
        """Text hash -> row: the first one that is alive, else the first."""
        table, dead_rows = DigestTable(), []
        for first, segment in _placed(self._store):
            hashes, rows = segment.kept(text_rows)
            numbers = np.int64(first) + rows
            if self._store is not None and self._store.dead is not None:
                gone = self._store.dead[numbers]
                dead_rows.append((hashes[gone], numbers[gone]))
                hashes, numbers = hashes[~gone], numbers[~gone]
            table.extend(hashes, numbers, ordered=True)
        for hashes, numbers in dead_rows:
            table.extend(hashes, numbers, ordered=True)
        return table


def document_rows(store: Store, names: Sequence[str]) -> dict[str, tuple[Ints, int]]:
    """The stored rows of documents, in their order, and their owners; of those of the names that the index has."""
    known, found = Documents(store), {}
    for name in names:
        rows = np.sort(known.rows(name))
        if len(rows):
            found[name] = rows if store.dead is None else rows[~store.dead[rows]], known.owner(name) or PROGRAM
    return found


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
