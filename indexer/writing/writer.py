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
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.ann.faiss_files import faiss
from ragidx.indexer.ann.index_types import DEFAULT_OPTIONS, IndexOptions
from ragidx.indexer.ann.tuning import OnStage
from ragidx.indexer.arrays import Bools, Ints, grouped
from ragidx.indexer.lexical.spec import OFF, decided
from ragidx.indexer.lexical.stemming import check_stemmer
from ragidx.indexer.store.deletions import Masks, read_deletions
from ragidx.indexer.store.entries import SegmentEntry
from ragidx.indexer.store.generations import segments_of
from ragidx.indexer.store.lock import Lock, now
from ragidx.indexer.store.lookup import CommittedVectors, Documents
from ragidx.indexer.store.manifest import (
    JOURNAL,
    MAX_DIM,
    SEGMENTS,
    Manifest,
    file_entry,
    is_file_name,
    is_fingerprint,
    segment_id,
)
from ragidx.indexer.store.rows import Row, union
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.store.store import Store
from ragidx.indexer.writing.base_state import read_base, retuned
from ragidx.indexer.writing.commit import commit, write_blobs, write_deletions
from ragidx.indexer.writing.field_bounds import FieldBounds
from ragidx.indexer.writing.journal import Journal
from ragidx.indexer.writing.lexical_files import MakePieces, sample_texts
from ragidx.indexer.writing.merging import MAX_TEXT_BYTES, MAX_VECTOR_BYTES, Copier, Form, SegmentState, derived, merged
from ragidx.indexer.writing.segment_writer import SegmentWriter
from ragidx.indexer.writing.vacuum import check_folder, vacuum


class StoreWriter:
    """The only writer of an index from its creation until `close`. A context manager.

    Args:
        path: the index folder; made if it is missing.
        spec: how the vectors are made; stored in the manifest.
        fingerprint: of the spec and the weights: vectors of different fingerprints are never mixed.
        dim: width of the vectors.
        index: which index large segments get. Its type must be that of the index in the folder. If its recall is
            another, the existing segments are tuned for it too.
        blobs: small files that belong to the spec, by name; they may be changed until the commit.
        replace: the new state has only what this writer adds; the old state stays until the commit.
        journal: whether vectors are written to the journal as soon as they are added. False for precomputed vectors;
            the journal of an interrupted build then stays.
        timeout: seconds to wait for another writer.
        opened: a state of this index that is open: what both have of segments is not read again.
        on_stage: called during the commit with the progress of the indexes of large segments.
        make_pieces: gives the postings of a segment during the commit; None: they are made in this process.

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
        opened: Store | None = None,
        on_stage: OnStage = lambda stage, rows, done: None,
        make_pieces: MakePieces | None = None,
    ) -> None:
        self.path = Path(path)
        self._spec, self._fingerprint, self._dim, self._index = dict(spec), fingerprint, dim, index
        self._keeps_journal, self._on_stage, self._replace = journal, on_stage, replace
        self._make_pieces = make_pieces
        self.blobs = dict(blobs or {})
        self._check_arguments()
        faiss()  # a missing faiss is reported before anything is encoded
        check_folder(self.path)
        atomic.make_folder(self.path)
        self._lock = Lock(self.path, timeout)
        try:
            self.base, self._generation = read_base(
                self.path,
                {"fingerprint": fingerprint, "dim": dim, "index_type": index.index_type},
                replace=replace,
                opened=None if opened is None else opened.manifest,
            )
            vacuum(self.path)
            self._segments = [] if self.base is None or replace else self._tuned_segments(self.base, opened)
            self._dead: Masks = [] if self.base is None or replace else read_deletions(self.path, self.base)
        except BaseException:
            self._lock.release()
            raise
        self.fields = FieldBounds({} if self.base is None or replace else self.base.schema)
        self._committed = CommittedVectors(self._segments, self._dead)
        self._current: SegmentWriter | None = None
        self._finished: list[tuple[SegmentEntry, Mapping[str, str]]] = []
        self._dead_again: list[tuple[int, int, int]] = []  # runs that this writer added and deleted
        self._journal: Journal | None = None
        self._deleted = self._ended = self._failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def known_documents(self) -> Documents:
        """The documents of the committed state without those deleted, and those added here."""
        self._check_running()
        return self._documents

    def keep_document(self, doc_id: str) -> None:
        """Note that the document is still in the corpus, so that `delete_others` leaves it."""
        self._check_running()
        self._documents.keep(doc_id)

    def delete_document(self, doc_id: str) -> bool:
        """Mark all rows of a document dead; False if it has none."""
        with self.whole():
            return self._delete(self._documents.pop(doc_id)) > 0

    def delete_others(self) -> int:
        """Delete every document that was neither added nor kept; returns how many."""
        with self.whole():
            count = self._documents.count_others()
            self._delete(self._documents.pop_others())
            return count

    def reuse(self, hashes: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """The vectors that exist already, by text hash: committed ones (dead rows too) and those in the journal.

        They have float16 precision: added unchanged, they are stored bit for bit as before.
        """
        self._check_running()
        found, journal = self._committed.get(hashes), self._open_journal(make=False)
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
                segment = self._segment_for(members)
                number = len(self._segments) + len(self._finished)
                first = segment.n_rows
                segment.add(members, vectors[start : start + len(members)])
                owner = members[0].owner
                self._documents.add(doc_id, doc_hash, number, first, len(members), kept=True, owner=owner)
                start += len(members)

    def add_rows(self, rows: Sequence[Row], vectors: NDArray[np.float32]) -> None:
        """As `add`, for rows that are identified by their own ids: no table of documents and no journal are kept.

        Raises:
            ModelError: a vector is not finite or not of unit length.
            CorpusError: a string cannot be written as UTF-8.
        """
        with self.whole():
            rows = self.fields.bounded(rows)
            self._segment_for(rows).add(rows, vectors)

    def delete_rows(self, rows: Ints) -> None:
        """Mark rows dead, by their numbers: those of the committed state, and behind them those of `add_rows`."""
        with self.whole():
            added = [entry.rows for entry, _ in self._finished] + ([self._current.n_rows] if self._current else [])
            starts = np.cumsum([0, *(segment.entry.rows for segment in self._segments), *added])
            for number, _, mine in grouped(starts, rows):
                if number < len(self._segments):
                    self._mask(number)[mine] = True
                else:
                    self._dead_again += [(number, row, 1) for row in mine.tolist()]

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
            self._drop_segment()
            raise

    def commit(self, notes: Mapping[str, Json], n_documents: int, *, changed: bool = False) -> Manifest:
        """Make everything visible at once, and end this writer; where nothing differs, the committed state is returned.

        Args:
            notes: what the build reports; stored in the manifest. Alone they are no difference, unless `changed`.
            n_documents: of the corpus, those without chunks included.
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
            self._finish_segment()
            self.__dict__.pop("_documents", None)  # frees memory for the making of an index
            manifest = self._write_state(notes, n_documents)
            commit(self.path, manifest)
            self._end()
            return manifest

    def close(self) -> None:
        """Release the index. Rows that were not committed are lost, but their vectors stay in the journal."""
        self._drop_segment()
        self._close_journal()
        try:
            if not self._ended:
                self._ended = True
                vacuum(self.path)
        finally:
            self._lock.release()

    @functools.cached_property
    def _documents(self) -> Documents:
        return Documents.read(self._segments, self._dead)

    def _check_arguments(self) -> None:
        """Refuse mistakes of the calling program, and a stemmer that is not there."""
        if not 1 <= self._dim <= MAX_DIM:
            raise ValueError(f"dim {self._dim} is not from 1 to {MAX_DIM}")
        if not is_fingerprint(self._fingerprint):
            raise ValueError(f"fingerprint {self._fingerprint!r} is not 16 to 128 letters and digits")
        if wrong := [name for name in self.blobs if not is_file_name(name)]:
            raise ValueError(f"{wrong[0]!r} is not a plain file name")
        if self._index.lexical != OFF:
            check_stemmer(self._index.lexical)

    def _tuned_segments(self, base: Manifest, opened: Store | None) -> list[Segment]:
        tuned = dataclasses.replace(base, segments=retuned(self.path, base, self._index))
        return segments_of(self.path, tuned, () if opened is None else opened.segments)

    def _check_running(self) -> None:
        if self._ended:
            raise ValueError("this writer has committed or was closed; make another one")
        if self._failed:
            raise ValueError("this writer failed, and what it wrote may be incomplete; make another one")

    def _delete(self, runs: Iterable[tuple[int, int, int]]) -> int:
        count = 0
        for number, first, length in runs:
            count += 1
            if number < len(self._segments):
                self._mask(number)[first : first + length] = True
            else:
                self._dead_again.append((number, first, length))
        return count

    def _mask(self, number: int) -> Bools:
        """The dead rows of a committed segment, to add to."""
        self._deleted = True
        mask = self._dead[number]
        if mask is None:
            mask = self._dead[number] = np.zeros(self._segments[number].entry.rows, np.bool_)
        return mask

    def _open_journal(self, *, make: bool) -> Journal | None:
        folder = self.path / JOURNAL
        if self._journal is None and (make or Journal.path_of(folder, self._fingerprint).exists()):
            self._journal = Journal.open(folder, self._fingerprint, self._dim)
        return self._journal

    def _close_journal(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _segment_for(self, rows: Sequence[Row]) -> SegmentWriter:
        """The segment being written, or another one where that is full or its columns cannot hold the rows."""
        current = self._current
        if current is not None and (
            current.vector_bytes >= MAX_VECTOR_BYTES or current.text_bytes >= MAX_TEXT_BYTES or not current.takes(rows)
        ):
            self._finish_segment()
        if self._current is None:
            name = segment_id(self._generation, len(self._finished))
            known = self.base.schema if self.base is not None and not self._replace else {}
            known = union(known, *(schema for _, schema in self._finished))
            atomic.remove(self.path / SEGMENTS / name)  # left by a writer before the index was damaged
            self._current = SegmentWriter(self.path / SEGMENTS / name, self._dim, known)
        return self._current

    def _finish_segment(self) -> None:
        if self._current is not None:
            self._finished.append((self._current.finish(), self._current.schema))
            self._current = None

    def _drop_segment(self) -> None:
        if self._current is not None:
            self._current.abort()
            self._current = None

    def _is_unchanged(self, n_documents: int) -> bool:
        base = self.base
        return (
            base is not None
            and not (self._replace or self._finished or self._current or self._deleted)
            and (base.n_documents, dict(base.spec), base.index) == (n_documents, self._spec, self._index)
            and base.files == {name: file_entry(data) for name, data in self.blobs.items()}
            and base.lexical == decided(self._index.lexical, base.lexical, lambda: sample_texts(self._segments))
        )

    def _write_state(self, notes: Mapping[str, Json], n_documents: int) -> Manifest:
        """Write what the new manifest names besides the segments; a segment without live rows is dropped."""
        entries = [segment.entry for segment in self._segments] + [entry for entry, _ in self._finished]
        dead: Masks = [*self._dead, *(None for _ in self._finished)]
        for number, first, count in self._dead_again:
            mask = dead[number]
            if mask is None:
                mask = dead[number] = np.zeros(entries[number].rows, np.bool_)
            mask[first : first + count] = True
        old = len(self._segments)
        parts = [SegmentState(*part, number >= old) for number, part in enumerate(zip(entries, dead, strict=True))]
        parts = [part for part in parts if part.dead is None or not part.dead.all()]
        schemas = [schema for _, schema in self._finished]
        if self.base is not None and not self._replace:
            schemas.insert(0, self.base.schema)
        schema = union(*schemas)
        copier = Copier(self.path, self._generation, len(self._finished), schema, self._dim, self._on_stage)
        parts = merged(self.path, parts, copier, self._dim, schema)
        before = None if self.base is None or self._replace else self.base.lexical
        form = Form(self._generation, self._dim, schema, self._index, before, self._make_pieces)
        parts, lexical = derived(self.path, parts, form, self._on_stage)
        segments = tuple(part.entry for part in parts)
        return Manifest(
            generation=self._generation,
            created=now(),
            spec=self._spec,
            fingerprint=self._fingerprint,
            dim=self._dim,
            index=self._index,
            schema=schema,
            segments=segments,
            lexical=lexical,
            files=write_blobs(self.path, self.blobs, None if self.base is None or self._replace else self.base.files),
            deletions=write_deletions(self.path, self._generation, segments, [part.dead for part in parts]),
            n_chunks=sum(entry.rows - (0 if mask is None else int(mask.sum())) for entry, mask, _ in parts),
            n_documents=n_documents,
            notes=notes,
        )

    def _end(self) -> None:
        """After a commit: remove what is no longer needed."""
        self._ended = True
        self._close_journal()
        if self._keeps_journal:  # what it holds is committed
            atomic.remove(Journal.path_of(self.path / JOURNAL, self._fingerprint))
        if self._replace:
            atomic.remove(self.path / JOURNAL)
        vacuum(self.path)
