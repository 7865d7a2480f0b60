"""A program's documents, stored whole beside their chunks: the column `whole`.

Document <-> JSON text

The text is in the first row of a document, and empty in its others; rows of documents from a source have null. So a
document is written, deleted, merged and rolled back with its rows.
"""

from __future__ import annotations

import json
from datetime import datetime

from ragidx.corpora.errors import IndexFormatError, printable
from ragidx.corpora.records import Document

_TIME = "time"


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
        hint = "go back with `ragidx rollback`"
        raise IndexFormatError(f"the document is damaged: {fault}", hint, where=printable(doc_id)) from fault
