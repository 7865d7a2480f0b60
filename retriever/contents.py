"""What an index holds, read back: documents, chunks, values of fields, columns.

store, and a condition -> Documents, counts, values, record batches; one batch at a time

A document of a folder is put together of its chunks, and of what lies between them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragidx.corpora.errors import QueryError, unknown_name
from ragidx.corpora.records import OF_FILE, Chunk, Document, Scalar, known_form, with_nfc
from ragidx.corpora.whole_documents import document_from, joined
from ragidx.indexer.ann.alone import check_has_vectors
from ragidx.indexer.store import Store
from ragidx.indexer.store.rows import Row
from ragidx.retriever.rows import VECTOR, Rows
from ragidx.retriever.where.conditions import Condition, Field
from ragidx.retriever.where.masks import bind_to, fields_of
from ragidx.retriever.where.parser import condition as as_value

_FIXED = ("chunk_id", "doc_id", "text", "heading", "start", "end", "line", "page")


def chunks(store: Rows, ids: Sequence[str] | None = None, document: str | None = None) -> list[Chunk]:
    """The chunks of `rows`; with neither ids nor a document all, those of a document together."""
    found = store.by_document() if ids is None and document is None else rows(store, ids, document)
    return [row.chunk for row in found]


def rows(store: Rows, ids: Sequence[str] | None = None, document: str | None = None) -> list[Row]:
    """Rows by the ids of their chunks, in the order asked for, or those of a document, in that of its text.

    Raises:
        QueryError: the index has no such chunk or document.
    """
    if (ids is None) == (document is None):
        raise TypeError("give ids of chunks, or a document's id")
    if document is not None:
        of_document = _rows_named(store, "doc_id", [document])
        known = {row.doc_id for row in of_document}
        name = known_form(document, known.__contains__)
        _check_known("document", [name], known)
        of_document = [row for row in of_document if row.doc_id == name]
        return sorted(of_document, key=lambda row: (row.start, row.end))
    by_id = {row.chunk_id: row for row in _rows_named(store, "chunk_id", ids or ())}
    ids = [known_form(name, by_id.__contains__) for name in ids or ()]
    _check_known("chunk", ids, by_id)
    return [by_id[name] for name in ids]


def vectors(store: Rows, ids: Sequence[str], *, decoded: bool = False) -> NDArray[np.float32]:
    """(n, dim): the vectors of chunks, in the order asked for.

    Raises:
        QueryError: the index has no such chunk, or codes alone and `decoded` is false.
    """
    _check_stored(store, decoded)
    if isinstance(ids, str):
        raise TypeError("expected a list of ids, got one string")
    by_id = store.vectors_named(with_nfc(ids))
    ids = [known_form(name, by_id.__contains__) for name in ids]
    _check_known("chunk", ids, by_id)
    return np.array([by_id[name] for name in ids], np.float32).reshape(len(ids), store.manifest.dim)


def document_of(rows: Sequence[Row]) -> Document:
    """The document of its rows, all of them."""
    ordered = sorted(rows, key=lambda row: (row.start, row.end))
    if (whole := next((row.whole for row in rows if row.whole), None)) is not None:
        return document_from(ordered[0].doc_id, whole)
    first = ordered[0]
    if len(rows) > 1 and not any(row.start for row in rows):  # the texts of precomputed vectors are none of one text
        text = "\n".join(row.text for row in rows if row.text)
    else:
        gaps = next((row.gaps for row in rows if row.gaps), None)
        text = joined(first.doc_id, ((row.start, row.text) for row in ordered), gaps)
    of_file = OF_FILE if first.owner else ()  # else a program gave fields of these names
    metadata = {name: value for name, value in first.metadata.items() if name not in of_file}
    return Document(first.doc_id, text, metadata, line=first.line)


def documents(store: Rows, where: str | Condition | None = None, source: str | None = None) -> Iterator[Document]:
    """All documents, or those of which a chunk fulfils a condition, or of one source, in the order of the index."""
    wanted = set(_ids(store, _with_source(where, source))) if where is not None or source is not None else None
    for doc_id, rows in itertools.groupby(store.by_document(), key=lambda row: row.doc_id):
        if wanted is None or doc_id in wanted:
            yield document_of(list(rows))


def documents_by_id(store: Rows, ids: Sequence[str], *, missing: str = "error") -> list[Document]:
    """Documents, in the order asked for.

    Raises:
        QueryError: the index has no such document, and `missing` is `error`.
    """
    if missing not in ("error", "skip"):
        raise QueryError(f"missing={missing!r} is neither error nor skip", "give one of them", where="`missing`")
    by_id: dict[str, list[Row]] = {}
    for row in _rows_named(store, "doc_id", ids):
        by_id.setdefault(row.doc_id, []).append(row)
    ids = [known_form(name, by_id.__contains__) for name in ids]
    if missing == "error":
        _check_known("document", ids, by_id)
    return [document_of(by_id[name]) for name in ids if name in by_id]


def count(store: Rows, where: str | Condition | None = None) -> int:
    """How many documents there are, or have a chunk that fulfils a condition."""
    return store.manifest.n_documents if where is None else len(set(_ids(store, where)))


def largest_file(store: Store) -> tuple[str, int]:
    """The file with the most chunks, and how many; there is at least one. Ids of records have their file before `#`."""
    counts = Counter[str]()
    ids = pa.chunked_array([batch.column(0) for _, batch in store.batches(["doc_id"])], pa.large_string())
    for pair in pc.value_counts(ids).to_pylist():
        counts[pair["values"].partition("#")[0]] += pair["counts"]
    return counts.most_common(1)[0]


def values(store: Rows, field: str, where: str | Condition | None = None, limit: int = 20) -> list[tuple[Scalar, int]]:
    """The commonest values of a field of conditions, with the number of their chunks.

    Raises:
        QueryError: there is no such field, or the condition is wrong.
    """
    found, fields = Counter[Scalar](), fields_of(store)
    if field not in fields:
        fault = unknown_name("field", field, fields)
        raise QueryError(fault.message, fault.hint, where="`field`")
    names = {of: name for name, of in columns_of(store).items()}
    for batch in batches(store, [names[fields[field][0]]], where):
        column = batch.column(0)
        if pa.types.is_large_list(column.type):
            column = pc.list_flatten(column)
        if pa.types.is_floating(column.type):
            column = pc.add(column, 0.0)  # -0.0 is the same number
        for pair in pc.value_counts(pc.drop_null(column)).to_pylist():
            found[pair["values"]] += pair["counts"]
    return sorted(found.items(), key=lambda pair: (-pair[1], str(pair[0])))[:limit]


def columns_of(store: Rows) -> dict[str, str]:
    """The columns of `batches` but the vector, each with its name in the store.

    A field that has the name of a column, `text` for example, is there as `metadata.text`.
    """
    known = {name: name for name in _FIXED}
    for field, (of, _) in fields_of(store).items():
        name = field
        while name == VECTOR or known.get(name, of) != of:
            name = f"metadata.{name}"
        known[name] = of
    return known


def batches(
    store: Rows,
    columns: Sequence[str] | None = None,
    where: str | Condition | None = None,
    *,
    decoded: bool = False,
) -> Iterator[Any]:
    """The chunks as record batches.

    Raises:
        QueryError: there is no such column, the condition is wrong, or vectors are asked for, the index has codes
            alone, and `decoded` is false.
    """
    if VECTOR in (columns or ()):
        _check_stored(store, decoded)
    known = columns_of(store)
    asked = list(known) if columns is None else list(columns)
    for name in asked:
        if name not in known and name != VECTOR:
            fault = unknown_name("column", name, [*known, VECTOR])
            raise QueryError(fault.message, fault.hint, where="`columns`")
    condition = None if where is None else bind_to(store, where)
    found = store.record_batches([known.get(name, VECTOR) for name in asked], store.allowed(condition))
    return (pa.RecordBatch.from_arrays(batch.columns, names=asked) for batch in found)


def _check_stored(store: Rows, decoded: bool) -> None:
    if not decoded:
        check_has_vectors(store.manifest.index, "vectors")


def _rows_named(store: Rows, column: str, names: Sequence[str]) -> list[Row]:
    """The rows that have one of these names, or their form NFC, in a column, in the order of the index."""
    if isinstance(names, str):
        raise TypeError("expected a list of ids, got one string")
    return store.named(column, with_nfc(names))


def _check_known(what: str, names: Sequence[str], known: Collection[str]) -> None:
    """Whether all names are known.

    Raises:
        QueryError: one is not.
    """
    unknown = [name for name in names if name not in known]
    if unknown:
        more = f", and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        raise QueryError(f"the index has no {what} '{unknown[0]}'{more}", "ids are those that queries show")


def _ids(store: Rows, where: str | Condition | None) -> Iterator[str]:
    return itertools.chain.from_iterable(batch.column(0).to_pylist() for batch in batches(store, ["doc_id"], where))


def _with_source(where: str | Condition | None, source: str | None) -> str | Condition | None:
    """A condition, on a source too."""
    if source is None:
        return where
    named = Field("file.source") == source
    return named if where is None else as_value(where) & named
