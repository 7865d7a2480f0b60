"""What chunks and columns lack of a document, stored beside them, so that it comes back as it was.

A program's document <-> JSON text, the column `whole`
the text of a document from a source <-> its chunks, and JSON text, the column `gaps`
metadata, any JSON and times <-> JSON, the column `metadata` where the columns of fields do not say them exactly

The first two are in the first row of a document. So it is written, deleted, merged and rolled back with its rows. Of a
program's document the other rows have an empty `whole`, and rows of documents from a source have null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from ragidx.corpora.errors import CorpusError, IndexFormatError, an, lone_surrogate, printable
from ragidx.corpora.records import Document

_TIME, _OBJECT = "time", "object"
_MOST_DEEP = 100  # lists and objects in one another
_MOST_BITS = 10_000  # of a whole number; Python reads no longer ones from text


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
        text: the whole text.
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


def check_metadata(metadata: object, where: str) -> None:
    """Refuse what would not come back equal.

    Args:
        metadata: metadata of a document.
        where: what the message names it by.

    Raises:
        CorpusError: it holds what JSON cannot, half of a surrogate pair, or is nested too deep; it names the field.
    """
    if not isinstance(metadata, Mapping):
        raise CorpusError(f"the metadata are {an(type(metadata).__name__)}", "give a dict", where=where)
    for name, value in metadata.items():
        try:
            _check({name: value})
        except ValueError as fault:
            hint = "give texts, finite numbers, true, false, None, times, and lists and dicts of them"
            raise CorpusError(f"the field '{printable(str(name))}': {fault}", hint, where=where) from fault


def values_to_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON: a time is an object of its own kind.

    >>> values_to_json({"at": datetime(2024, 1, 31), "a": {"time": 1}})
    {'at': {'time': '2024-01-31T00:00:00'}, 'a': {'object': {'time': 1}}}
    """
    return {name: _to_json(value) for name, value in metadata.items()}


def values_from_json(found: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse."""
    return {name: _from_json(value) for name, value in found.items()}


def metadata_to_text(metadata: Mapping[str, Any]) -> str:
    """Metadata as JSON text."""
    return json.dumps(values_to_json(metadata), ensure_ascii=False, separators=(",", ":"))


def metadata_from_text(text: str) -> dict[str, Any]:
    """The inverse.

    Raises:
        ValueError: it is none of that.
    """
    try:
        return values_from_json(json.loads(text))
    except (AttributeError, TypeError, RecursionError) as fault:
        raise ValueError(f"metadata that are none: {fault}") from fault


def in_utc(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metadata of a file: a time without a zone, which is in UTC, says so."""
    bare = {k: v.replace(tzinfo=UTC) for k, v in metadata.items() if isinstance(v, datetime) and v.tzinfo is None}
    return {**metadata, **bare} if bare else metadata


def _damaged(doc_id: str, fault: Exception) -> IndexFormatError:
    return IndexFormatError(
        f"the document is damaged: {fault}", "go back with `ragidx rollback`", where=printable(doc_id)
    )


def _check(value: object, depth: int = 0) -> None:
    """Raise `ValueError` where a value would not come back as it is."""
    if isinstance(value, list | dict):
        if depth > _MOST_DEEP:
            raise ValueError(f"nested more than {_MOST_DEEP} levels deep")
        for item in value:
            if isinstance(value, dict) and not isinstance(item, str):
                raise ValueError(f"the key {item!r:.60} is {an(type(item).__name__)}")
            _check(item, depth + 1)
        for item in value.values() if isinstance(value, dict) else ():
            _check(item, depth + 1)
    elif isinstance(value, str):
        if lone_surrogate(value) is not None:
            raise ValueError("half of a surrogate pair, which no UTF-8 file can hold")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
    elif isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise ValueError(f"a whole number of {value.bit_length():,} bits")
    elif value is not None and not isinstance(value, datetime):
        raise ValueError(f"{value!r:.60} is {an(type(value).__name__)}")


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return {_TIME: value.isoformat()}
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        found = values_to_json(value)
        return {_OBJECT: found} if len(found) == 1 and next(iter(found)) in (_TIME, _OBJECT) else found
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    match list(value.items()):
        case [(str() as name, content)] if name == _TIME:
            return datetime.fromisoformat(content)
        case [(str() as name, content)] if name == _OBJECT:
            return values_from_json(content)
    return values_from_json(value)
