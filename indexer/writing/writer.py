"""Writing an index: rows and deletions are collected, and one rename makes all of them visible.

    with StoreWriter(path, spec=..., fingerprint=..., dim=...) as writer:
        vectors = writer.reuse(hashes)         vectors that need not be encoded again
        writer.add(rows, vectors)              (n, dim) float32 of unit length
        writer.delete_document("old.txt")
        writer.commit(notes, n_documents)

The order on disk: new segments, deletions, `manifest.<generation>.json`, each synced with its folder; then
`manifest.json` is renamed into place. Before that rename every reader sees the old state, after it the new one.
A writer that ends without `commit`, even one that is killed, leaves the old state and a journal of the vectors that it
encoded. After a failed write a writer takes no more rows, because its files may be incomplete.
This module does not interpret specs and does not know the corpus.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.ann.faiss_files import faiss
from ragidx.indexer.ann.index_types import DEFAULT_OPTIONS, IndexOptions
from ragidx.indexer.ann.tuning import OnStage
from ragidx.indexer.arrays import Ints
from ragidx.indexer.lexical.spec import OFF, decided
from ragidx.indexer.lexical.stemming import check_stemmer
from ragidx.indexer.specs import requirements
from ragidx.indexer.store import Store
from ragidx.indexer.store.deletions import by_segment
from ragidx.indexer.store.files import JOURNAL, SEGMENTS
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.lookup import CommittedVectors, Documents
from ragidx.indexer.store.manifest import MAX_DIM, Manifest, file_entry
from ragidx.indexer.store.rows import FieldKind, Row, union
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.writing.adoption import linked
from ragidx.indexer.writing.base_state import read_base, retuned
from ragidx.indexer.writing.commit import publish
from ragidx.indexer.writing.field_bounds import FieldBounds
from ragidx.indexer.writing.history import ROLLED_BACK
from ragidx.indexer.writing.journal import Journal
from ragidx.indexer.writing.lexical_files import MakePieces, sample_texts
from ragidx.indexer.writing.live_kinds import Marked, live_kinds, schema_after
from ragidx.indexer.writing.merging import SegmentState, foldable, merged
from ragidx.indexer.writing.segment_writer import NewSegments
from ragidx.indexer.writing.vacuum import check_folder, vacuum


class StoreWriter:
    """The only writer of an index from its creation until `close`. A context manager.

    Args:
        path: the index folder; made if it is missing.
        spec: how the vectors are made; stored in the manifest.
        fingerprint: fingerprint of the spec and the weights: vectors of different fingerprints are never mixed.
        dim: width of the vectors.
        index: options of large segments' index. Its type must be that of the index in the folder. If its recall is
            another, the existing segments are tuned for it too.
        blobs: small files that belong to the spec, by name; they may be changed until the commit.
        replace: the new state has only what this writer adds; the old state stays until the commit.
        journal: whether vectors are written to the journal as soon as they are added. False for precomputed vectors;
            the journal of an interrupted build then stays.
        timeout: seconds to wait for another writer.
        lock: lock of the folder, if it is held already; `close` releases it.
        opened: a state of this index that is open: what both have of segments is not read again.
        others: open indexes of the same fingerprint, of which `reuse` takes vectors, too.
        on_stage: called during the commit with the progress of the indexes of large segments.
        make_pieces: function that makes a segment's postings during the commit; None: they are made in this process.

    Attributes:
        base: the manifest of the committed state; None: there is none that can be read.
        store: the committed state, open; None: there is none, or it is replaced.
        compacts: whether the commit copies segments with many dead rows without them.

    Raises:
        BusyError: another writer holds the index.
        IndexFormatError: the folder is something else, or the index in it is damaged or newer.
        SpecError: the index in it was made with another spec, or cannot do what `index` asks for.
        RagidxError: the folder cannot be written.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        spec: Mapping[str, Json],
        fingerprint: str,
        dim: int,
        index: IndexOptions = DEFAULT_OPTIONS,
        blobs: Mapping[str, bytes] | None = None,
        replace: bool = False,
        journal: bool = True,
        timeout: float = 0.0,
        lock: Lock | None = None,
        opened: Store | None = None,
        others: Sequence[Store] = (),
        on_stage: OnStage = lambda stage, rows, done: None,
        make_pieces: MakePieces | None = None,
    ) -> None:
        self.path = Path(path)
        self._spec, self._fingerprint, self._dim, self._index = dict(spec), fingerprint, dim, index
        self._keeps_journal, self._on_stage, self._replace = journal, on_stage, replace
        self._make_pieces = make_pieces
        self.blobs, self.compacts = dict(blobs or {}), True
        self._check_arguments()
        faiss()  # a missing faiss is reported before anything is encoded
        check_folder(self.path)
        atomic.make_folder(self.path)
        self._lock = lock or Lock(self.path, timeout)
        try:
            same: dict[str, str | int] = {"fingerprint": fingerprint, "dim": dim}
            self.base, self.store, self._generation = read_base(self.path, same, index, replace=replace, opened=opened)
            if opened is None or opened.manifest != self.base:  # else its end removes what is left
                vacuum(self.path)
            self._entries = [] if self.store is None else retuned(self.store, index)
        except BaseException:
            self._lock.release()
            raise
        self._old = None if self.store is None else self.store.manifest  # of which the segments stay
        self._opened = [] if self.store is None else self.store.segments
        self._n_rows = 0 if self.store is None else int(self.store.stored_starts[-1])
        self.fields = FieldBounds({} if self._old is None else self._old.schema)
        self._committed = CommittedVectors(self.store)
        self._others = [CommittedVectors(other) for other in others]
        self._lexical = None if self._old is None else self._old.lexical
        self._adopted = set[str]()  # ids of segments
        self._new = NewSegments(self.path, self._generation, dim)
        self._deleted: list[Ints] = []  # rows, committed ones and those that were added
        self._journal: Journal | None = None
        self._ended = self._failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def known_documents(self) -> Documents:
        """The documents of the committed state without those deleted, and those added here."""
        self._check_running()
        return self._documents

    def delete_document(self, doc_id: str) -> bool:
        """Mark all rows of a document dead; False if it has none."""
        with self.whole():
            rows = self._documents.pop(doc_id)
            self.delete_rows(rows)
            return len(rows) > 0

    def delete_others(self) -> int:
        """Delete every document that was neither added nor kept; returns how many."""
        with self.whole():
            count = len(self._documents.others())
            self.delete_rows(self._documents.pop_others())
            return count

    def reuse(self, hashes: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """The vectors that exist already, by text hash: committed ones (dead rows too) and those in the journal.

        They have float16 precision: added unchanged, they are stored bit for bit as before.
        """
        self._check_running()
        found, journal = self._committed.get(hashes), self._open_journal(make=False)
        for other in self._others:
            if missing := [key for key in hashes if key not in found]:
                found |= other.get(missing)
        return found if journal is None else found | journal.get([key for key in hashes if key not in found])

    def remember(self, hashes: Sequence[bytes], vectors: NDArray[np.float32], *, again: bool = False) -> None:
        """Put vectors into the journal as soon as they are encoded, in any order; `add` does it as well."""
        self._check_running()
        journal = self._open_journal(make=True)
        assert journal is not None
        journal.append(hashes, vectors, again=again)

    def forget_since(self, key: bytes) -> None:
        """Drop what the journal has after the last vector of `key`, or all where it has none."""
        if (journal := self._open_journal(make=False)) is not None:
            journal.drop_since(key)

    def add(self, rows: Sequence[Row], vectors: NDArray[np.float32]) -> None:
        """Append rows with their vectors (n, dim), of unit length. The rows of a document are adjacent.

        Raises:
            ModelError: a vector is not finite or not of unit length.
            CorpusError: a string cannot be written as UTF-8.
        """
        if vectors.shape != (len(rows), self._dim):
            raise ValueError(f"vectors have the shape {vectors.shape}, not ({len(rows)}, {self._dim})")
        with self.whole():
            if self._keeps_journal:
                fresh = np.flatnonzero(~self._committed.known([row.text_hash for row in rows])).tolist()
                self.remember([rows[place].text_hash for place in fresh], vectors[fresh])
            start = 0
            for (doc_id, doc_hash), group in itertools.groupby(rows, key=lambda row: (row.doc_id, row.doc_hash)):
                members = self.fields.bounded(list(group))
                self._new.writer(members).add(members, vectors[start : start + len(members)])
                count, owner = len(members), members[0].owner
                self._documents.add(doc_id, doc_hash, self._n_rows, count, kept=True, owner=owner)
                self._n_rows += count
                start += count

    def add_rows(self, rows: Sequence[Row], vectors: NDArray[np.float32]) -> None:
        """As `add`, for rows that are identified by their own ids: no table of documents and no journal are kept.

        Raises:
            ModelError: a vector is not finite or not of unit length.
            CorpusError: a string cannot be written as UTF-8.
        """
        with self.whole():
            rows = self.fields.bounded(rows)
            self._new.writer(rows).add(rows, vectors)
            self._n_rows += len(rows)

    def adopt(self, other: Store) -> int:
        """Take over the segments of another index of the same fingerprint, after all rows so far; its files are linked.

        Returns:
            The number of its first row here. Its dead rows are dead here, too.
        """
        with self.whole():
            manifest, first = other.manifest, self._n_rows
            if (manifest.fingerprint, manifest.dim) != (self._fingerprint, self._dim):
                raise ValueError("the other index was made with another spec")
            is_first = not (self._entries or self._new.made)
            self._new.finish()
            for entry in manifest.segments:
                made = linked(other.path, self.path, entry, self._generation, len(self._new.made))
                self._new.made.append(made)
                self._adopted.add(made.id)
            if manifest.segments:
                atomic.sync_folder(self.path / SEGMENTS)
                same = is_first or self._lexical == manifest.lexical
                self._lexical = manifest.lexical if same else None  # then the words of all are written again
            self.fields.kinds = union(self.fields.kinds, manifest.schema)
            self._n_rows += int(other.stored_starts[-1])
            if other.dead is not None:
                self.delete_rows(first + np.flatnonzero(other.dead))
            return first

    def delete_rows(self, rows: Ints) -> None:
        """Mark rows dead, by their numbers among all that are stored; those that were added follow."""
        self._check_running()
        if len(rows):
            self._deleted.append(rows)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """If the block fails, every later call but `close` is refused.

        After a failed write it is unknown which rows a file holds, and a commit would make that the state of the index.
        """
        self._check_running()
        try:
            yield
        except BaseException:
            self._failed = True
            self._new.abort()
            raise

    def kinds_of(self, fields: Collection[str]) -> set[FieldKind]:
        """The kinds of the values of some fields in the rows that are alive, with all changes so far."""
        with self.whole():
            self._new.finish()
            return live_kinds(self._marked(self.store), fields)

    def commit(self, notes: Mapping[str, Json], n_documents: int, *, changed: bool = False) -> Manifest:
        """Make everything visible at once, and end this writer; where nothing differs, the committed state is returned.

        Args:
            notes: what the build reports; stored in the manifest, where other notes stay. Alone they are no difference,
                unless `changed`.
            n_documents: number of documents of the corpus, those without chunks included.
            changed: commit in any case.

        Raises:
            RagidxError: the disk is full or failed. The committed state is the old one, or the new one if only the last
                sync of the folder failed; run again to find out.
            SpecError: no index that fits into the memory reaches the requested recall.
        """
        with self.whole():
            if not changed and self._is_unchanged(n_documents):
                assert self.base is not None
                self._end()
                return self.base
            self._new.finish()
            self.__dict__.pop("_documents", None)  # frees memory for the making of an index
            manifest = self._publish(notes, n_documents)
            self._end()
            return manifest

    def close(self) -> None:
        """Release the index. Rows that were not committed are lost, but their vectors stay in the journal."""
        self._new.abort()
        if self._journal is not None:
            self._journal.close()
        try:
            if not self._ended:
                self._ended = True
                vacuum(self.path)
        finally:
            self._lock.release()

    @functools.cached_property
    def _documents(self) -> Documents:
        return Documents(self.store)

    def _check_arguments(self) -> None:
        """Refuse mistakes of the calling program, and a stemmer that is not there."""
        if not 1 <= self._dim <= MAX_DIM:
            raise ValueError(f"dim {self._dim} is not from 1 to {MAX_DIM}")
        if self._index.lexical != OFF:
            check_stemmer(self._index.lexical)

    def _check_running(self) -> None:
        if self._ended:
            raise ValueError("this writer has committed or was closed; make another one")
        if self._failed:
            raise ValueError("this writer failed, and what it wrote may be incomplete; make another one")

    def _open_journal(self, *, make: bool) -> Journal | None:
        if self._journal is None and (make or Journal.path_of(self.path / JOURNAL, self._fingerprint).exists()):
            self._journal = Journal.open(self.path / JOURNAL, self._fingerprint, self._dim)
        return self._journal

    def _is_unchanged(self, n_documents: int) -> bool:
        old = self._old
        return (
            old is not None
            and not (self._new.made or self._new.current or self._deleted)
            and (old.n_documents, dict(old.spec), old.index) == (n_documents, self._spec, self._index)
            and old.files == {name: file_entry(data) for name, data in self.blobs.items()}
            and old.lexical == decided(self._index.lexical, old.lexical, lambda: sample_texts(self._opened))
        )

    def _marked(self, before: Store | None = None) -> list[Marked]:
        """All segments, each with its rows that died here, and with those that were dead in a state before."""
        dead = np.zeros(self._n_rows, np.bool_)
        if before is not None and before.dead is not None:
            dead[: len(before.dead)] = before.dead
        if self._deleted:
            dead[np.concatenate(self._deleted)] = True
        made = [Segment(self.path / SEGMENTS / entry.id, entry, self._dim, {}) for entry in self._new.made]
        segments = [*self._opened, *made]
        return list(zip(segments, by_segment(dead, [one.entry for one in segments]), strict=True))

    def _parts(self) -> list[SegmentState]:
        """All segments with their dead rows; one without live rows is dropped."""
        entries = [*self._entries, *self._new.made]
        return [
            SegmentState(entry, mask, number >= len(self._entries) and entry.id not in self._adopted)
            for number, (entry, (_, mask)) in enumerate(zip(entries, self._marked(self.store), strict=True))
            if mask is None or not mask.all()
        ]

    def _publish(self, notes: Mapping[str, Json], n_documents: int) -> Manifest:
        """Merge small segments, leave dead rows behind, and commit all of them."""
        old = {} if self._old is None else self._old.notes  # a later version may have notes of its own
        draft = Manifest(
            generation=self._generation,
            created="",
            spec=self._spec,
            fingerprint=self._fingerprint,
            dim=self._dim,
            index=self._index,
            schema=schema_after(self.fields.kinds, self._marked(), self._marked(self.store)),
            segments=(),
            lexical=self._lexical,
            files={} if self._old is None else self._old.files,
            deletions=None,
            n_chunks=0,
            n_documents=n_documents,
            notes={**{name: note for name, note in old.items() if name != ROLLED_BACK}, **notes},
            requires=requirements(self._spec),
        )
        parts, n_changed = self._parts(), sum(map(len, self._deleted)) + sum(one.rows for one in self._new.made)
        folded = foldable(parts, self._dim, n_changed) if self.compacts else ()
        parts = merged(self.path, parts, self._new, self._dim, draft.schema, self._on_stage, folded)
        return publish(self.path, draft, parts, self.blobs, self._on_stage, self._make_pieces, self._opened)

    def _end(self) -> None:
        """After a commit: remove what is no longer needed."""
        self._ended = True
        if self._journal is not None:
            self._journal.close()
        if self._keeps_journal:  # what it holds is committed
            atomic.remove(Journal.path_of(self.path / JOURNAL, self._fingerprint))
        if self._replace:
            atomic.remove(self.path / JOURNAL)
        vacuum(self.path)
