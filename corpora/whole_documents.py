"""What chunks lack of their document, stored beside them, so that it comes back as it was: `whole` and `gaps`.

A program's document <-> JSON text, the column `whole`
the text of a document from a source <-> its chunks, and JSON text, the column `gaps`

Both are in the first row of a document. So it is written, deleted, merged and rolled back with its rows. Of a program's
document the other rows have an empty `whole`, and rows of documents from a source have null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
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
        raise _damaged(doc_id, fault) from fault


def gaps_of(text: str, spans: Iterable[tuple[int, int]]) -> str | None:
    r"""What of a text is in none of the spans, and is not line ends alone, as JSON; None: there is no such thing.

    Args:
        text: the whole.
        spans: begin and end of its chunks, by rising begins.

    >>> gaps_of("One.\n\nTwo. Three.\n", [(0, 4), (6, 10), (11, 17)])
    '[[10," "],[17,"\\n"]]'
    """
    gaps, end = list[tuple[int, str]](), 0
    for start, stop in (*spans, (len(text), len(text))):
        between = text[end:start]
        if between.strip("\n") or (between and start == len(text)):  # that a text goes on behind its chunks is told
            gaps.append((end, between))
        end = max(end, stop)
    return json.dumps(gaps, ensure_ascii=False, separators=(",", ":")) if gaps else None


def joined(doc_id: str, parts: Iterable[tuple[int, str]], gaps: str | None) -> str:
    r"""The text of its chunks, each with where it begins, by rising begins, and of what `gaps_of` gave.

    Raises:
        IndexFormatError: it did not.

    >>> joined("a", [(0, "One."), (6, "Two."), (11, "Three.")], '[[10," "],[17,"\\n"]]')
    'One.\n\nTwo. Three.\n'
    """
    try:
        between = {begin: text + "" for begin, text in json.loads(gaps)} if gaps else {}
    except (ValueError, TypeError) as fault:
        raise _damaged(doc_id, fault) from fault
    pieces, end = list[str](), 0
    for start, text in parts:
        if start > end:
            pieces.append(between.get(end, "\n" * (start - end)))
        pieces.append(text[max(0, end - start) :])
        end = max(end, start + len(text))
    return "".join([*pieces, between.get(end, "")])


def _damaged(doc_id: str, fault: Exception) -> IndexFormatError:
    return IndexFormatError(
        f"the document is damaged: {fault}", "go back with `ragidx rollback`", where=printable(doc_id)
    )


def values_to_json(metadata: Mapping[str, Scalar]) -> dict[str, Any]:
    """Metadata as JSON: a time is an object, which no value is."""
    return {name: {_TIME: one.isoformat()} if isinstance(one, datetime) else one for name, one in metadata.items()}


def values_from_json(found: Mapping[str, Any]) -> dict[str, Scalar]:
    """The inverse."""
    return {
        name: datetime.fromisoformat(value[_TIME]) if isinstance(value, dict) else value
        for name, value in found.items()
    }
