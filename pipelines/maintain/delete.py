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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragidx.corpora.errors import QueryError, lone_surrogate, printable
from ragidx.corpora.spec import Json
from ragidx.indexer.arrays import numbers_of
from ragidx.indexer.specs import holds_precomputed
from ragidx.indexer.store.generations import committed
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.lookup import document_rows
from ragidx.indexer.store.rows import COLUMNS
from ragidx.indexer.store.source_list import PROGRAM, SOURCES, sources_of
from ragidx.indexer.store.store import Store
from ragidx.indexer.writing.writer import StoreWriter
from ragidx.pipelines.ingest.removal import DELETED_FILE, deleted_file, deleted_ids, note_deleted
from ragidx.retriever.where.masks import matching_rows, parse_for

Missing: TypeAlias = Literal["error", "skip"]

_SHOWN = 10
_COMPARED = 1_000  # ids on each side of a wrong one; comparing 200,000 takes 20 s
_NOTHING_DELETED = "ids are those that queries show; nothing was deleted"


@dataclass(frozen=True)
class DeleteReport:
    """What was deleted, and what is left.

    Attributes:
        n_documents: of which nothing is left, or with `dry_run` would be.
        n_documents_partly: documents that lost some of their chunks; 0 for an index of a corpus.
        n_chunks: deleted, or with `dry_run` what would be.
        n_matched: of these chunks, those that the ids and the condition chose; the others went with their documents.
        documents: the first ten ids of documents that lost anything, in the order of the index.
        generation: of the committed state.
        committed: whether this made it.
        n_documents_left, n_chunks_left: what the index holds now.
        every: the ids of all documents that went, or of all rows of precomputed vectors; builds skip them. Not in the
            JSON.
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
    every: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """All fields but `every`."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "every"}


def delete(
    index: str | Path = "ragidx-index",
    *,
    ids: Sequence[str] = (),
    where: str | None = None,
    missing: Missing = "error",
    dry_run: bool = False,
    opened: Store | None = None,
    timeout: float = 0.0,
) -> DeleteReport:
    """Delete documents of a corpus, or rows of precomputed vectors; all in one commit or none.

    Args:
        index: the index folder.
        ids: ids of documents; of precomputed vectors, also of rows. One that is both is the document's.
        where: a condition as in a query. Of precomputed vectors just the rows that fulfil it go; a document of a corpus
            goes whole if one of its chunks does. With ids, only what is theirs and fulfils it.
        missing: whether an id that the index does not have is an error or skipped.
        dry_run: say what would be deleted, and leave the index as it is.
        opened: a state of the index that is open.
        timeout: seconds to wait for another writer; ids and condition are then looked up in what it has committed.

    Raises:
        QueryError: neither ids nor a condition, an id that the index does not have, or a wrong condition.
        IndexFormatError: there is no index, or it is damaged.
        BusyError: a writer holds the index for longer.
    """
    if isinstance(ids, str):
        raise TypeError("expected a list of ids, got one string")
    store = Store.open(index, opened)
    if dry_run:
        return _chosen(store, ids, where, missing)[1]
    store, writer = writer_on(store, timeout)
    with writer:
        rows, report, owners = _chosen(store, ids, where, missing)
        notes: dict[str, Json] = {}
        if not holds_precomputed(store.manifest.spec):
            gone = zip(report.every, owners, strict=True)
            notes[SOURCES] = note_deleted(writer.blobs, sources_of(store.manifest.notes, store.path), gone)
        elif report.every:
            deleted = deleted_ids(writer.blobs.get(DELETED_FILE)).get(PROGRAM, set())
            writer.blobs[DELETED_FILE] = deleted_file({PROGRAM: deleted.union(report.every)})
        writer.delete_rows(rows)
        manifest = writer.commit(notes, max(0, report.n_documents_left - report.n_documents))
    return dataclasses.replace(
        report,
        generation=manifest.generation,
        committed=manifest.generation != report.generation,
        n_documents_left=manifest.n_documents,
        n_chunks_left=manifest.n_chunks,
    )


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


def _chosen(
    store: Store, ids: Sequence[str], where: str | None, missing: Missing
) -> tuple[NDArray[np.int64], DeleteReport, list[int]]:
    """As `chosen`; all ids are not read where they are documents of a corpus."""
    if ids and where is None and not holds_precomputed(store.manifest.spec):
        found = document_rows(store, ids)
        if len(found) == len(set(ids)):
            names = sorted(found, key=lambda name: int(found[name][0][0]))
            rows = np.concatenate([found[name][0] for name in names])
            report = _report(store, names, n_chunks=len(rows), n_matched=len(rows), every=names)
            return rows, report, [found[name][1] for name in names]
    return chosen(store, ids, where, missing)


def _report(
    store: Store, documents: Sequence[str], *, n_chunks: int, n_matched: int, every: Sequence[str], n_partly: int = 0
) -> DeleteReport:
    """What would be deleted: all of these documents, but `n_partly` of them."""
    manifest = store.manifest
    return DeleteReport(
        n_documents=len(documents) - n_partly,
        n_documents_partly=n_partly,
        n_chunks=n_chunks,
        n_matched=n_matched,
        documents=list(documents[:_SHOWN]),
        generation=manifest.generation,
        committed=False,
        n_documents_left=manifest.n_documents,
        n_chunks_left=manifest.n_chunks,
        every=tuple(every),
    )


def chosen(
    store: Store, ids: Sequence[str], where: str | None, missing: Missing = "error"
) -> tuple[NDArray[np.int64], DeleteReport, list[int]]:
    """What ids and condition mean in this index.

    Returns:
        The rows that go; the report of it; the owner of each document that is touched.

    Raises:
        QueryError: as `delete`.
    """
    if not ids and where is None:
        raise QueryError("nothing says what to delete", "give `ids` or `where`")
    is_given = holds_precomputed(store.manifest.spec)
    column = _column(store, "doc_id").dictionary_encode().combine_chunks()
    documents, document = column.dictionary, column.indices.to_numpy()
    chosen = np.ones(len(document), np.bool_)
    if where is not None:
        chosen = matching_rows(store, parse_for(store, where))[store.live]
    if ids:
        chosen = chosen & _rows_of(store, ids, documents, document, missing, is_given=is_given)
    n_matched = int(chosen.sum())
    n_rows = np.bincount(document, minlength=len(documents))
    n_chosen = np.bincount(document[chosen], minlength=len(documents))
    if not is_given:
        chosen, n_chosen = (n_chosen > 0)[document], np.where(n_chosen > 0, n_rows, 0)
    touched = np.flatnonzero(n_chosen)
    names = [documents[number].as_py() for number in touched.tolist()]
    owners = np.zeros(len(documents), np.int32)
    owners[document] = numbers_of(_column(store, "owner").combine_chunks(), "<i4")
    report = _report(
        store,
        names,
        n_chunks=int(chosen.sum()),
        n_matched=n_matched,
        every=_column(store, "chunk_id").filter(pa.array(chosen)).to_pylist() if is_given else names,
        n_partly=int((n_chosen[touched] < n_rows[touched]).sum()),
    )
    return store.live[chosen], report, owners[touched].tolist()


def _rows_of(
    store: Store,
    ids: Sequence[str],
    documents: Any,
    document: NDArray[np.int64],
    missing: Missing,
    *,
    is_given: bool,
) -> NDArray[np.bool_]:
    """(rows,) which live rows ids name.

    Args:
        store: the index.
        ids: what is looked for: documents first, then rows.
        documents: the ids of all documents.
        document: (rows,) the number of each live row's among them.
        missing: as in `delete`.
        is_given: whether a row can be deleted by its own id.

    Raises:
        QueryError: nothing has one of them.
    """
    named = _is_in(documents, ids)
    found = {documents[number].as_py() for number in np.flatnonzero(named).tolist()}
    others = sorted(set(ids) - found)
    if not others:
        return named[document]
    chunks = _column(store, "chunk_id").combine_chunks()
    of_chunks = _is_in(chunks, others)
    owners = {chunks[place].as_py(): documents[document[place]].as_py() for place in np.flatnonzero(of_chunks).tolist()}
    unknown = [name for name in others if name not in owners]
    if unknown and missing == "error":
        near = _nearest(unknown[0], documents.to_pylist())
        more = f", and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        raise QueryError(
            f"the index has no document{' or row' if is_given else ''} '{printable(unknown[0])}'{more}"
            + (f"; did you mean '{printable(near)}'?" if near else ""),
            _NOTHING_DELETED,
            where="`ids`",
        )
    if owners and not is_given:
        name = min(owners)
        raise QueryError(
            f"'{name}' is a chunk of the document '{owners[name]}'",
            "documents of a corpus go whole: give the document's id; nothing was deleted",
            where="`ids`",
        )
    return named[document] | of_chunks


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """The id that is most like a wrong one, if one is: of many, among those around it in their order."""
    ordered = sorted(known)
    place = bisect.bisect(ordered, name)
    around = ordered[max(0, place - _COMPARED) : place + _COMPARED]
    return next(iter(difflib.get_close_matches(name, around, n=1)), None)


def _column(store: Store, name: str) -> Any:
    """A column of the live rows, as a ChunkedArray."""
    return pa.chunked_array([batch.column(0) for _, batch in store.batches([name])], COLUMNS.field(name).type)


def _is_in(values: Any, wanted: Sequence[str]) -> NDArray[np.bool_]:
    known = [name for name in wanted if lone_surrogate(name) is None]  # no other can be in an index
    found: NDArray[np.bool_] = pc.is_in(values, value_set=pa.array(known, pa.large_string())).to_numpy(
        zero_copy_only=False
    )
    return found
