"""Changes of a program, many in one commit: documents, or rows of precomputed vectors, added, replaced, deleted by id.

Documents -> those that differ from what the index has -> chunks -> vectors -> rows -> one commit, or none

The lock is held from the first change to the commit. Documents are encoded in windows, and go to the writer at once, so
memory does not grow with their number. Of two changes of one document the later one wins. Where an exception or a kill
ends a batch, nothing of it is in the index; what a killed one has encoded is in the journal.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike

from ragidx.corpora.errors import CorpusError, QueryError, SpecError, an, lone_surrogate, printable
from ragidx.corpora.language import LANGUAGE
from ragidx.corpora.limits import MIB
from ragidx.corpora.readers.records.paths import fields_of
from ragidx.corpora.records import Document, known_form
from ragidx.corpora.spec import Json
from ragidx.corpora.whole_documents import check_metadata
from ragidx.indexer.digests import digest
from ragidx.indexer.specs import holds_precomputed
from ragidx.indexer.store import Store
from ragidx.indexer.store.generations import committed
from ragidx.indexer.store.rows import kind_of, schema_of
from ragidx.indexer.store.source_list import PROGRAM, SOURCES, SourceEntry, sources_of
from ragidx.indexer.unknown import script_of
from ragidx.indexer.writing import StoreWriter
from ragidx.pipelines.ingest.corpus import chunker_of
from ragidx.pipelines.ingest.encode import WINDOW_CHARS, WINDOW_CHUNKS, encode
from ragidx.pipelines.ingest.removal import note_deleted
from ragidx.pipelines.ingest.report import Progress
from ragidx.pipelines.ingest.workers.chunks import Cutter, Item, program_draft
from ragidx.pipelines.maintain.delete import Missing, chosen, writer_on
from ragidx.pipelines.vectors import RowWriter
from ragidx.pipelines.vectors.rows import names_of
from ragidx.pipelines.vectors.spec import check_given
from ragidx.retriever.searcher import Searcher
from ragidx.retriever.where.conditions import Condition

_MAX_CHARS = 64 * MIB  # of a program's document: as long as a line of JSON Lines


class Types:
    """The types that the values of a batch have: each field of the index has one, when all changes are in.

    What differs from the index is looked at in the end: the rows with the other type may be gone by then.
    """

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._new: dict[str, str] = {}  # of fields that the index did not have
        self._others: dict[str, tuple[str, str]] = {}  # of fields that had another: the type, and where it came in

    def note(self, metadata: Mapping[str, Any], where: str) -> None:
        """Metadata that are going to be added.

        Raises:
            CorpusError: JSON cannot hold one of the values, and it is no time either.
        """
        check_metadata(metadata, where)
        for name, value in fields_of(metadata).items():
            if (kind := kind_of(value)) is not None:
                known = self._writer.fields.kinds.get(name) or self._new.setdefault(name, kind)
                if kind != known and {kind, known} != {"int", "float"}:
                    self._others.setdefault(name, (kind, where))

    def check(self) -> None:
        """Refuse a field that has values of several types now.

        Raises:
            CorpusError: there is one; it names what brought the other type.
        """
        left = self._writer.kinds_of(self._others) if self._others else set()
        for name, (kind, where) in self._others.items():
            found = {one for field, one in left if field == name}
            if len(found) > 1 and found != {"int", "float"}:
                known = schema_of((name, one) for one in found - {kind})[name]
                raise CorpusError(
                    f"the field '{name}' holds values of the type {known} in this index, and this is a {kind}",
                    "give it the same type, or another name",
                    where=where,
                )


class Batch:
    """Changes of a program's documents, made visible together by the end of the block. A context manager.

        with index.batch() as batch:
            batch.add(documents)
            batch.delete(["old"])

    Args:
        shown: a state of the index.
        timeout: seconds to wait for another writer.
        compact: whether the commit may drop dead rows.

    Attributes:
        n_added, n_changed, n_unchanged, n_deleted: documents so far.
        blank: the ids of documents that were not added, since they have no text.
        unknown: chunks that were added without a vector, since the model does not know their words, by script.

    Raises:
        BusyError: another writer held the index for so long.
        IndexFormatError: there is no index, or it is damaged.
        SpecError: the index holds precomputed vectors.
    """

    def __init__(self, shown: Searcher, timeout: float, *, compact: bool = True) -> None:
        self.n_added = self.n_changed = self.n_unchanged = self.n_deleted = 0
        self.blank: list[str] = []
        self.unknown = Counter[str]()
        store, self._writer = writer_on(shown.folder, timeout, journal=True)
        self._writer.compacts = compact
        if holds_precomputed(store.manifest.spec):
            self._writer.close()
            raise SpecError(
                "the index holds precomputed vectors", "give it vectors: `add_vectors`", where=str(store.path)
            )
        self._state = state = Searcher.open(store.path, shown.place, shown)
        self._open, self._failed = True, False
        self.types = Types(self._writer)
        self._documents = self._writer.known_documents()
        self._cutter = Cutter(
            lambda: chunker_of(state.encoder, state.spec.chunk), language=bool(state.store.manifest.notes.get(LANGUAGE))
        )
        self._gone: list[tuple[str, int]] = []  # documents that were deleted, and their owners
        self._changed: set[str] = set()  # documents of this batch: a condition does not see them
        self._new: set[str] = set()  # those that the index did not have

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()

    def add(self, documents: Iterable[Document] | Document) -> None:
        """Add documents, or one alone, or replace those of the same ids; one that is as before is not written.

        One without a text is noted in `blank`, as a build counts an empty file; what the index had under its id goes.

        Raises:
            CorpusError: a document has no id, is too long, has metadata that an index cannot hold, or the id of a
                document of a source.
            ModelError: the model is not here.
        """
        self._check_open()
        self._failed, is_whole = True, self._failed  # unless all of it is done: what a failure left is never committed
        window: dict[str, Sequence[Item]] = {}
        n_chunks = n_chars = 0
        for document in [documents] if isinstance(documents, Document) else documents:
            self._check(document)
            if document.id in window or n_chunks >= WINDOW_CHUNKS or n_chars >= WINDOW_CHARS:
                self._write(list(itertools.chain(*window.values())))  # of two of one id the later wins
                window, n_chunks, n_chars = {}, 0, 0
            window[document.id] = items = self._items(document)
            n_chunks, n_chars = n_chunks + len(items), n_chars + len(document.text)
        self._write(list(itertools.chain(*window.values())))
        self._failed = is_whole

    def add_vectors(self, ids: Iterable[str | int], vectors: ArrayLike, **more: object) -> NoReturn:
        """Refused: only an index of precomputed vectors takes vectors.

        Raises:
            SpecError: always.
        """
        where = str(self._state.store.path)
        raise SpecError("the index holds encoded texts", "give it documents: `add`", where=where)

    def delete(
        self, ids: Sequence[str] | None = None, *, where: str | Condition | None = None, missing: Missing = "error"
    ) -> None:
        """Delete documents; a program's for good, one of a source until `build` with `restore`.

        Args:
            ids: ids of documents, those of this batch too; an empty list deletes nothing.
            where: a condition, asked of what the index held before the batch. With ids, only what is theirs.
            missing: whether an id that the index does not have is an error or skipped.

        Raises:
            QueryError: the index has no such document, or the condition is wrong.
        """
        self._check_open()
        if isinstance(ids, str):
            raise TypeError("expected a list of ids, got one string")
        ids = None if ids is None else [known_form(name, self._documents.__contains__) for name in ids]
        unknown = [name for name in ids or () if name not in self._documents]
        if unknown and missing == "error":
            name, hint = printable(unknown[0]), "ids are those that queries show"
            raise QueryError(f"the index has no document '{name}'", hint, where="`ids`")
        if ids is None or where is not None:
            matching = chosen(self._state.folder, ids, where, "skip").ids
            ids = [name for name in matching if name not in self._changed]
        for name in ids:
            if name in self._documents:
                self._gone.append((name, self._documents.owner(name) or PROGRAM))
                self._writer.delete_document(name)
                self.n_deleted += 1

    def commit(self) -> None:
        """Make the changes visible; where nothing differs, no commit is made.

        Raises:
            CorpusError: a field would have values of several types.
        """
        self._check_open()
        if self._failed:
            raise ValueError("a change of this batch failed, so none of it is committed; begin another one")
        self.types.check()
        notes: dict[str, Json] = {SOURCES: note_deleted(self._writer.blobs, self._sources(), self._gone)}
        n_before = self._state.store.manifest.n_documents
        self._writer.commit(notes, n_before + self.n_added - self.n_deleted)
        self.close()

    def close(self) -> None:
        """Let the next writer in; what was not committed is not in the index."""
        self._open = False
        self._writer.close()

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("the batch has ended; begin another one")

    def _items(self, document: Document) -> Sequence[Item]:
        """The chunks of a document that is new or changed; none of one that is as before."""
        draft, had = program_draft(document), self._documents.get(document.id)
        if owner := self._documents.owner(document.id):
            source = next((f"the source '{one.name}'" for one in self._sources() if one.number == owner), "a source")
            raise CorpusError(
                f"the document is one of {source}, and cannot be a program's too",
                "give it another id, or delete that one from its source",
                where=printable(document.id),
            )
        if had == draft.hash:
            self.n_unchanged += 1
            return []
        items = self._cutter.cut(draft)
        if had is not None:
            self._writer.delete_document(document.id)
        if not items:
            self.n_deleted += had is not None
            self.blank.append(document.id)
            return []
        self.n_changed += had is not None
        self.n_added += had is None
        if had is None:
            self._new.add(document.id)
        self._changed.add(document.id)
        return items

    def _sources(self) -> tuple[SourceEntry, ...]:
        return sources_of(self._state.store.manifest.notes, self._state.store.path)

    def _check(self, document: Document) -> None:
        """Whether an index can hold the document."""
        if not isinstance(document, Document):
            raise TypeError(f"expected a Document, got {document!r:.80}")
        if not isinstance(document.id, str) or not document.id:
            raise CorpusError("a document has no id", "give each one a text of its own as id")
        where = printable(document.id)
        if not isinstance(document.text, str):
            raise CorpusError(
                f"the text of the document is {an(type(document.text).__name__)}", "give a str", where=where
            )
        if len(document.text) > _MAX_CHARS:
            raise CorpusError(
                f"the document has {len(document.text):,} characters, more than {_MAX_CHARS:,}",
                "divide it",
                where=where,
            )
        if lone_surrogate(f"{document.id}{document.text}") is not None:
            raise CorpusError("holds half of a surrogate pair, which no UTF-8 file can", "repair the text", where=where)
        self.types.note(document.metadata, where)

    def _write(self, items: Sequence[Item]) -> None:
        """Encode what has no vector yet, and give the rows to the writer."""
        if not items:
            return
        vectors = self._writer.reuse(list({item.row.text_hash for item in items}))
        missing = [item for item in items if item.row.text_hash not in vectors]
        for keys, made in encode(missing, self._state.embedder, Progress()) if missing else ():
            vectors |= zip(keys, made, strict=True)
        for name, group in itertools.groupby((item.row for item in items), key=lambda row: row.doc_id):
            rows = [row for row in group if row.text_hash in vectors]
            if rows:
                found = np.stack([vectors[row.text_hash] for row in rows])
                self._writer.add(rows, found)
                self.unknown.update(script_of(rows[row].text) for row in np.flatnonzero(~found.any(axis=1)).tolist())
                continue
            is_new = name in self._new
            self.n_added, self.n_changed = self.n_added - is_new, self.n_changed - (not is_new)
            self.n_deleted += not is_new
            self.blank.append(name)


class VectorBatch(RowWriter):
    """As `Batch`, of an index of precomputed vectors.

        with index.batch() as batch:
            batch.add_vectors(["a", "b"], vectors)
            batch.delete(["old"])

    Raises:
        SpecError: the index holds encoded texts; and as `Batch`.
    """

    def __init__(self, store: Store, timeout: float, *, compact: bool = True) -> None:
        manifest = committed(store.path)
        dim = check_given(manifest, str(store.path)).given.input_dim or manifest.dim
        super().__init__(store.path, dim, timeout=timeout, opened=store, compact=compact)
        self.types, self.blank, self.unknown = Types(self._writer), list[str](), Counter[str]()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.closing(self):
            if kind is None:
                self.types.check()
                self.commit()

    def add(self, documents: Iterable[Document] | Document) -> NoReturn:
        """Refused: only an index that encodes texts takes documents.

        Raises:
            SpecError: always.
        """
        raise SpecError("the index holds precomputed vectors", "give it vectors: `add_vectors`", where=str(self.path))

    def delete(
        self,
        ids: Iterable[str | int] | None = None,
        *,
        where: str | Condition | None = None,
        missing: Missing = "error",
    ) -> None:
        """As `Batch.delete`, of rows, or of all rows of a document; builds from a file skip them."""
        names = None if ids is None else names_of(ids, "ids")
        added, here = np.zeros(0, np.int64), set[str]()
        if names is not None and where is None:
            added, is_added = self._known.added_of([digest(name) for name in names])
            here = set(itertools.compress(names, is_added))
        assert self._writer.store is not None  # a batch never replaces
        gone = chosen(self._writer.store, names, where, missing, known=here).ids
        rows = self._known.find([digest(name) for name in gone])
        # what this batch has replaced goes where it is named alone: a condition does not see it
        is_gone = (rows >= 0) & ((rows < self._known.n_committed) | np.isin(rows, added))
        self._deleted.update(itertools.compress(gone, is_gone))
        self.remove(np.union1d(added, rows[is_gone]))
