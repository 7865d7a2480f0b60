"""Deleting from an index, by id or by a condition on metadata, in one commit.

ids and a condition -> the rows to delete -> dead rows. No file is rewritten; readers that are open keep what they see.
The corpus is not touched, and builds skip what was deleted until one with `restore`.

What is deleted depends on what the index was built from. Documents of a corpus go whole: their metadata are one, and a
build that finds a document in the index takes it to be whole there, so that a part would never come back. Rows of
precomputed vectors have metadata and ids of their own, and go one by one; new rows of the same document are taken.
"""

from __future__ import annotations

import bisect
import dataclasses
import difflib
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ragidx.corpora.errors import QueryError, lone_surrogate, printable
from ragidx.corpora.records import known_form, with_nfc
from ragidx.corpora.spec import Json
from ragidx.indexer.arrays import Bools, Ints, numbers_of
from ragidx.indexer.specs import holds_precomputed
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import DELETED_FILE
from ragidx.indexer.store.generations import committed
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.lookup import document_rows
from ragidx.indexer.store.rows import COLUMNS
from ragidx.indexer.store.source_list import PROGRAM, SOURCES, sources_of
from ragidx.indexer.writing import StoreWriter
from ragidx.pipelines.ingest.ledger import LEFT
from ragidx.pipelines.ingest.removal import deleted_file, deleted_ids, note_deleted
from ragidx.retriever.where.conditions import Condition
from ragidx.retriever.where.masks import bind_to, matching_rows

Missing: TypeAlias = Literal["error", "skip"]

_SHOWN = 10
_COMPARED = 1_000  # ids on each side of a wrong one; comparing 200,000 takes 20 s
_NOTHING_DELETED = "ids are those that queries show; nothing was deleted"


@dataclass(frozen=True)
class DeleteReport:
    """What was deleted, and what is left.

    Attributes:
        n_documents: number of documents of which nothing is left, or with `dry_run` would be.
        n_documents_partly: documents that lost some of their chunks; 0 for an index of a corpus.
        n_chunks: deleted, or with `dry_run` what would be.
        n_matched: number of these chunks that the ids and the condition chose; the others went with their documents.
        documents: the first ten ids of documents that lost anything, in the order of the index.
        generation: number of the committed generation.
        committed: whether this made it.
        n_documents_left, n_chunks_left: what the index holds now.
    """

    n_documents: int
    n_documents_partly: int
    n_chunks: int
    n_matched: int
    documents: list[str]
    generation: int
    committed: bool
    n_documents_left: int
    n_chunks_left: int

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return dataclasses.asdict(self)


def delete(
    index: str | Path = "ragidx-index",
    *,
    ids: Sequence[str] | None = None,
    where: str | Condition | None = None,
    missing: Missing = "error",
    dry_run: bool = False,
    compact: bool = True,
    opened: Store | None = None,
    timeout: float = 0.0,
) -> DeleteReport:
    """Delete documents of a corpus, or rows of precomputed vectors; all in one commit or none.

    The arguments are those of `Index.delete`. An id that is a document's and a row's is the document's. A condition
    deletes a document of a corpus whole if one of its chunks fulfils it, and of precomputed vectors just the rows that
    do. After waiting for another writer, both are looked up in what that one has committed. `opened` is a state of the
    index that is open.

    Raises:
        QueryError: neither ids nor a condition, an id that the index does not have, or a wrong condition.
        IndexFormatError: there is no index, or it is damaged.
        BusyError: a writer holds the index for longer.
    """
    if isinstance(ids, str):
        raise TypeError("expected a list of ids, got one string")
    store = Store.open(index, opened)
    if dry_run:
        return chosen(store, ids, where, missing).report
    store, writer = writer_on(store, timeout)
    writer.compacts = compact
    with writer:
        gone, notes = chosen(store, ids, where, missing), dict[str, Json]()
        if not holds_precomputed(store.manifest.spec):
            entries = sources_of(store.manifest.notes, store.path)
            notes[SOURCES] = note_deleted(writer.blobs, entries, zip(gone.ids, gone.owners, strict=True))
        elif gone.ids:
            deleted = deleted_ids(writer.blobs.get(DELETED_FILE)).get(PROGRAM, set())
            writer.blobs[DELETED_FILE] = deleted_file({PROGRAM: deleted.union(gone.ids)})
        writer.delete_rows(gone.rows)
        report = gone.report
        manifest = writer.commit(notes, max(0, report.n_documents_left - report.n_documents))
    return dataclasses.replace(
        report,
        generation=manifest.generation,
        committed=manifest.generation != report.generation,
        n_documents_left=manifest.n_documents,
        n_chunks_left=manifest.n_chunks,
    )


def remove_source(name: str, index: str | Path = "ragidx-index") -> int:
    """Take a source out of an index with all of its documents, whose number is returned; files are not touched.

    Raises:
        QueryError: there is no such source.
        IndexFormatError: there is no index, or it is damaged.
        BusyError: a writer holds the index.
    """
    store, writer = writer_on(Store.open(index))
    with writer:
        manifest = store.manifest
        entries = sources_of(manifest.notes, store.path)
        source = next((entry for entry in entries if entry.name == name), None)
        if source is None:
            near = difflib.get_close_matches(name, [entry.name for entry in entries], n=1)
            guess = f"; did you mean '{near[0]}'?" if near else ""
            raise QueryError(f"the index has no source '{name}'{guess}", "`ragidx sources` lists them", where="`name`")
        deleted = deleted_ids(writer.blobs.get(DELETED_FILE))
        if deleted.pop(source.number, None):
            writer.blobs[DELETED_FILE] = deleted_file(deleted)
        known = writer.known_documents()
        known.keep_all(known.of([entry.number for entry in entries if entry != source]))
        n_removed = writer.delete_others()
        notes: dict[str, Json] = {SOURCES: [entry.to_json() for entry in entries if entry != source]}
        if isinstance(left := manifest.notes.get(LEFT), dict):
            notes[LEFT] = {number: counts for number, counts in left.items() if number != str(source.number)}
        writer.commit(notes, max(0, manifest.n_documents - source.n_documents), changed=True)
    return n_removed


def writer_on(store: Store, timeout: float = 0.0, *, journal: bool = False) -> tuple[Store, StoreWriter]:
    """The committed state of an index, and a writer that continues it.

    Args:
        store: a state of the index that is open.
        timeout: seconds to wait for another writer.
        journal: whether something will be encoded; else the journal of an interrupted build stays for the next one.

    Raises:
        BusyError: another writer holds the index for longer.
        IndexFormatError: the index is gone, or damaged now.
    """
    committed(store.path)  # reports what is there if it is not an index
    lock = Lock(store.path, timeout)
    try:
        base = committed(store.path)
        writer = StoreWriter(
            store.path,
            spec=base.spec,
            fingerprint=base.fingerprint,
            dim=base.dim,
            index=base.index,
            lock=lock,
            opened=store,
            journal=journal,
        )
        assert writer.store is not None
        writer.blobs = {name: writer.store.blob(name) for name in base.files}
    except BaseException:
        lock.release()
        raise
    return writer.store, writer


def _report(
    store: Store, documents: Sequence[str], *, n_chunks: int, n_matched: int, n_partly: int = 0
) -> DeleteReport:
    """What is deleted: all of these documents, but `n_partly` of them in part."""
    return DeleteReport(
        n_documents=len(documents) - n_partly,
        n_documents_partly=n_partly,
        n_chunks=n_chunks,
        n_matched=n_matched,
        documents=list(documents[:_SHOWN]),
        generation=store.manifest.generation,
        committed=False,
        n_documents_left=store.manifest.n_documents,
        n_chunks_left=store.manifest.n_chunks,
    )


class Chosen(NamedTuple):
    """What ids and a condition mean in an index."""

    rows: Ints  # that go, by their numbers among all that are stored
    ids: list[str]  # of all documents that are touched, or of all rows of precomputed vectors that go: builds skip them
    owners: list[int]  # of each document that is touched
    report: DeleteReport


def chosen(
    store: Store,
    ids: Collection[str] | None,
    where: str | Condition | None,
    missing: Missing,
    known: Collection[str] = (),
) -> Chosen:
    """What is deleted: as `delete`; ids that are `known` elsewhere need not be in this index.

    Raises:
        QueryError: as `delete`.
    """
    if ids is None and where is None:
        raise QueryError("nothing says what to delete", "give `ids` or `where`")
    has_rows = holds_precomputed(store.manifest.spec)  # that can be deleted one by one
    if where is None and not has_rows:
        of_documents = document_rows(store, with_nfc(ids or ()))
        wanted = {known_form(name, of_documents.__contains__) for name in ids or ()}
        if wanted <= of_documents.keys():  # then not all ids of the index are read
            names = sorted(wanted, key=lambda name: int(of_documents[name][0][0]))
            rows = np.concatenate([np.zeros(0, np.int64), *(of_documents[name][0] for name in names)])
            report = _report(store, names, n_chunks=len(rows), n_matched=len(rows))
            return Chosen(rows, names, [of_documents[name][1] for name in names], report)
    doc_ids = _column(store, "doc_id").combine_chunks()
    goes = np.ones(len(doc_ids), np.bool_)
    if where is not None:
        goes = matching_rows(store, bind_to(store, where))
    if ids is not None:
        goes = goes & _named(store, doc_ids, ids, missing, known, has_rows=has_rows)
    encoded = doc_ids.dictionary_encode()
    documents, document = encoded.dictionary, encoded.indices.to_numpy()  # their ids; (rows,) the number of each row's
    n_matched = int(goes.sum())
    n_rows = np.bincount(document, minlength=len(documents))
    n_gone = np.bincount(document[goes], minlength=len(documents))
    if not has_rows:
        goes, n_gone = (n_gone > 0)[document], np.where(n_gone > 0, n_rows, 0)
    touched = np.flatnonzero(n_gone)
    names = [documents[number].as_py() for number in touched.tolist()]
    owners = np.zeros(len(documents), np.int32)
    owners[document] = numbers_of(_column(store, "owner").combine_chunks(), "<i4")
    n_partly = int((n_gone[touched] < n_rows[touched]).sum())
    report = _report(store, names, n_chunks=int(goes.sum()), n_matched=n_matched, n_partly=n_partly)
    row_ids = _column(store, "chunk_id").filter(pa.array(goes)).to_pylist() if has_rows else names
    return Chosen(store.stored[goes], row_ids, owners[touched].tolist(), report)


def _named(
    store: Store, doc_ids: Any, ids: Collection[str], missing: Missing, known: Collection[str], *, has_rows: bool
) -> Bools:
    """(rows,) which live rows have one of the ids: their document's, else their own."""
    if not all(unicodedata.is_normalized("NFC", name) for name in ids):
        present = set(pc.unique(doc_ids).to_pylist())
        ids = [known_form(name, present.__contains__) for name in ids]
    named = _is_in(doc_ids, ids)
    others = sorted(set(ids) - set(pc.unique(doc_ids.filter(pa.array(named))).to_pylist()))
    if not others:
        return named
    chunk_ids = _column(store, "chunk_id").combine_chunks()
    of_rows = _is_in(chunk_ids, others)
    unknown = sorted(set(others) - set(chunk_ids.filter(pa.array(of_rows)).to_pylist()) - set(known))
    if unknown and missing == "error":
        near = _nearest(unknown[0], pc.unique(doc_ids).to_pylist())
        more = f", and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        raise QueryError(
            f"the index has no document{' or row' if has_rows else ''} '{printable(unknown[0])}'{more}"
            + (f"; did you mean '{printable(near)}'?" if near else ""),
            _NOTHING_DELETED,
            where="`ids`",
        )
    if of_rows.any() and not has_rows:
        row = int(np.flatnonzero(of_rows)[0])
        raise QueryError(
            f"'{chunk_ids[row]}' is a chunk of the document '{doc_ids[row]}'",
            "documents of a corpus go whole: give the document's id; nothing was deleted",
            where="`ids`",
        )
    return named | of_rows


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """The id that is most like a wrong one, if one is: of many, among those around it in their order."""
    ordered = sorted(known)
    place = bisect.bisect(ordered, name)
    around = ordered[max(0, place - _COMPARED) : place + _COMPARED]
    return next(iter(difflib.get_close_matches(name, around, n=1)), None)


def _column(store: Store, name: str) -> Any:
    """A column of the live rows, as a ChunkedArray."""
    return pa.chunked_array([batch.column(0) for _, batch in store.batches([name])], COLUMNS.field(name).type)


def _is_in(values: Any, wanted: Collection[str]) -> Bools:
    possible = [name for name in wanted if lone_surrogate(name) is None]  # no other can be in an index
    answer: Bools = pc.is_in(values, value_set=pa.array(possible, pa.large_string())).to_numpy(zero_copy_only=False)
    return answer
