"""LangChain's documents as a program's documents, or as rows of vectors, and back. Extra `langchain`.

texts, metadatas, ids -> ragidx.Document -> index -> langchain_core Document: equal, or refused before it is stored
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from langchain_core.documents import Document

import ragidx
from ragidx.pipelines.integrations.frameworks.conditions import told

BARE = "langchain.bare"  # a field of the store's own: the embedding is zeros
_PLACES = ("heading", "line", "page")


def documents_of(
    texts: Iterable[str], metadatas: Sequence[Mapping[str, Any] | None] | None, ids: Sequence[str | None] | None
) -> list[ragidx.Document]:
    """The documents that are added; one without an id gets a new one.

    Raises:
        ValueError: there are not as many of each.
        CorpusError: an index cannot hold a text or a value; the message names it.
    """
    found = list(texts)
    for what, one_each in (("metadatas", metadatas), ("ids", ids)):
        if one_each is not None and len(one_each) != len(found):
            raise ValueError(f"{len(one_each)} {what} for {len(found)} texts; give one for each")
    rows = zip(found, metadatas or [None] * len(found), ids or [None] * len(found), strict=True)
    return [_document(text, metadata or {}, name or str(uuid.uuid4())) for text, metadata, name in rows]


def packed(document: ragidx.Document, *, is_bare: bool) -> dict[str, Any]:
    """The metadata of a row of vectors.

    Raises:
        CorpusError: a field has the name of the store's own.
    """
    if BARE in document.metadata:
        raise ragidx.CorpusError(f"the field '{BARE}' is the store's own", "give it another name", where=document.id)
    return {**document.metadata, **({BARE: True} if is_bare else {})}


def row_document(name: str, text: str, metadata: Mapping[str, Any]) -> Document:
    """The document of a row of vectors."""
    return Document(id=name, page_content=text, metadata={k: value for k, value in metadata.items() if k != BARE})


def program_document(document: ragidx.Document) -> Document:
    """A program's document, as it was added."""
    return Document(id=document.id, page_content=document.text, metadata=dict(document.metadata))


def hit_document(hit: ragidx.Hit) -> Document:
    """A hit, with what ragidx knows of it beside the document's own metadata."""
    ours, own = told(hit, "start", "end", "score", "dense", "bm25")
    return Document(page_content=hit.text, id=hit.chunk_id, metadata=ours | own)


def chunk_document(row: Mapping[str, Any], fields: Iterable[str]) -> Document:
    """As `hit_document`, of a row of `Index.to_batches`, which no question found."""
    ours = {"source": row["doc_id"], "start": row["start"], "end": row["end"]}
    ours |= {name: row[name] for name in _PLACES if row[name] not in (None, "")}
    own = {
        name: value.replace(tzinfo=UTC).isoformat() if isinstance(value, datetime) else value
        for name in fields
        if (value := row[name]) is not None
    }
    return Document(page_content=row["text"], id=row["chunk_id"], metadata=ours | own)


def diverse(relevance: Sequence[float], vectors: Any, k: int, weight: float) -> list[int]:
    """The places of k hits: each next one has the best relevance less its likeness to those before.

    Carbonell and Goldstein 1998, as LangChain computes it.

    Args:
        relevance: (n,) cosines of the hits with the question.
        vectors: (n, dim) vectors of the hits, of unit length.
        k: how many hits are chosen.
        weight: the weight of the relevance, 0 to 1.
    """
    vectors, left, chosen = np.asarray(vectors, np.float32), list(range(len(relevance))), list[int]()
    alike = np.zeros(len(relevance))
    while left and len(chosen) < k:
        gains = weight * np.asarray(relevance) - (1 - weight) * alike if chosen else np.asarray(relevance)
        best = left.pop(int(np.argmax(gains[left])))
        near = vectors @ vectors[best]
        alike = np.maximum(alike, near) if chosen else near
        chosen.append(best)
    return chosen


def _document(text: object, metadata: Mapping[Any, Any], name: str) -> ragidx.Document:
    if not isinstance(name, str):
        raise ragidx.CorpusError(f"the id {name!r:.80} is of the type {type(name).__name__}", "give a str")
    where = ascii(name)[1:-1] if _is_broken(name) else name
    if not isinstance(text, str):
        raise ragidx.CorpusError(f"the text is of the type {type(text).__name__}", "give a str", where=where)
    if _is_broken(name + text):
        raise ragidx.CorpusError("holds half of a surrogate pair, which no UTF-8 file can", "repair it", where=where)
    return ragidx.Document(name, text, dict(metadata))


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
