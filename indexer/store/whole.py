"""A program's documents, stored whole beside their chunks: the column `whole`.

Document <-> JSON text; store -> its documents, in the order of the index

The text is in the first row of a document, and empty in its others; rows of documents from a source have null. So a
document is written, deleted, merged and rolled back with its rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from ragidx.corpora.errors import IndexFormatError
from ragidx.corpora.records import Document
from ragidx.indexer.digests import digest

if TYPE_CHECKING:
    from ragidx.indexer.store.store import Store

_TIME = "time"
_DAMAGED = "go back with `ragidx rollback`"


def whole_of(document: Document) -> str:
    """A document's text, metadata and form as JSON.

    >>> whole_of(Document("a", "Bees.", {"n": 1}))
    '{"heading":"","markdown":false,"metadata":{"n":1},"text":"Bees."}'
    """
    metadata = {
        name: {_TIME: value.isoformat()} if isinstance(value, datetime) else value
        for name, value in document.metadata.items()
    }
    found = {"text": document.text, "metadata": metadata, "markdown": document.markdown, "heading": document.heading}
    return json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def document_from(doc_id: str, whole: str) -> Document:
    """The document that `whole_of` wrote.

    Raises:
        IndexFormatError: it did not.
    """
    try:
        found = json.loads(whole)
        metadata = {
            name: datetime.fromisoformat(value[_TIME]) if isinstance(value, dict) else value
            for name, value in found["metadata"].items()
        }
        return Document(doc_id, found["text"], metadata, found["markdown"], heading=found["heading"])
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        raise IndexFormatError(
            f"the document '{doc_id}' is damaged: {fault}", "go back with `ragidx rollback`"
        ) from fault


def hash_of(whole: str) -> bytes:
    """The hash of a program's document."""
    return digest(whole)


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
            column: Any = batch.column(1)
            if column.null_count < len(column):
                for row in pc.indices_nonzero(column.is_valid()).to_pylist():
                    if dead is None or not dead[first + row]:
                        yield batch.column(0)[row].as_py(), column[row].as_py()
            first += len(column)
