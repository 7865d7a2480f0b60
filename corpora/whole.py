"""A program's documents, stored whole beside their chunks: the column `whole`.

Document <-> JSON text

The text is in the first row of a document, and empty in its others; rows of documents from a source have null. So a
document is written, deleted, merged and rolled back with its rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ragidx.corpora.errors import IndexFormatError, printable
from ragidx.corpora.records import Document, Scalar

_TIME = "time"


def whole_of(document: Document) -> str:
    """A document's text, metadata and form as JSON.

    >>> whole_of(Document("a", "Bees.", {"n": 1}))
    '{"heading":"","markdown":false,"metadata":{"n":1},"text":"Bees."}'
    """
    metadata = values_to_json(document.metadata)
    found = {"text": document.text, "metadata": metadata, "markdown": document.markdown, "heading": document.heading}
    return json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def document_from(doc_id: str, whole: str) -> Document:
    """The document that `whole_of` wrote.

    Raises:
        IndexFormatError: it did not.
    """
    try:
        found = json.loads(whole, parse_constant=lambda _: None)  # earlier versions took NaN, which no JSON has
        metadata = values_from_json(found["metadata"])
        return Document(doc_id, found["text"], metadata, found["markdown"], heading=found["heading"])
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        hint = "go back with `ragidx rollback`"
        raise IndexFormatError(f"the document is damaged: {fault}", hint, where=printable(doc_id)) from fault


def values_to_json(metadata: Mapping[str, Scalar]) -> dict[str, Any]:
    """Metadata as JSON: a time is an object, which no value is."""
    return {name: {_TIME: one.isoformat()} if isinstance(one, datetime) else one for name, one in metadata.items()}


def values_from_json(found: Mapping[str, Any]) -> dict[str, Scalar]:
    """The inverse."""
    return {
        name: datetime.fromisoformat(value[_TIME]) if isinstance(value, dict) else value
        for name, value in found.items()
    }
