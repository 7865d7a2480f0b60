"""What a worker says of a file, as messages: skips, bytes read, layouts and drafts, in their order.

    events -> header {"kind": "events", "ids": n}, body: JSON, and behind it n bytes of token ids -> events
    rows of precomputed vectors -> header {"kind": "vectors", ...}, body: an Arrow IPC stream -> `VectorRows`

JSON, since most files have a few chunks, and an Arrow stream of these takes nine times as long to make.
A draft has the items that were cut; or neither them nor the document, where the worker saw that it is known; or, where
another process is to cut it, the document. Times and texts come back as the values that they were. Whoever decodes
checks: a worker that a hostile file took over may say anything.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ragidx.corpora.chunking import ID_DTYPE
from ragidx.corpora.errors import SpecError
from ragidx.corpora.left_out import Left
from ragidx.corpora.readers.layouts import Layout
from ragidx.corpora.records import Document, Place, Skip
from ragidx.corpora.vectors.batch import VectorRows
from ragidx.corpora.whole_documents import values_from_json, values_to_json
from ragidx.indexer.digests import DIGEST_BYTES
from ragidx.indexer.store.rows import Row
from ragidx.pipelines.ingest.workers.chunks import Draft, Item
from ragidx.pipelines.ingest.workers.frames import FrameError
from ragidx.pipelines.ingest.workers.lanes import Message

_FAULTS = (
    *(pa.ArrowException, OSError, MemoryError, RuntimeError, StopIteration),
    *(LookupError, TypeError, ValueError, AttributeError, OverflowError, SpecError),
)


class NRead(NamedTuple):
    """Bytes of the file that were read, and pages of it by text recognition."""

    n_bytes: int
    n_pages: int = 0


class Decided(NamedTuple):
    """How the records of a file are read."""

    name: str
    layout: Layout


Event: TypeAlias = Skip | Left | NRead | Decided | Draft | VectorRows


def encoded(events: Sequence[Event]) -> Message:
    """The message of events other than vectors."""
    said: list[list[Any]] = []
    ids = bytearray()
    for event in events:
        match event:
            case Skip(where, reason):
                said.append(["skip", where, reason])
            case Left(where, kind, count):
                said.append(["left", where, kind, count])
            case NRead():
                said.append(["read", *event])
            case Decided(name, layout):
                said.append(["layout", name, layout.to_json()])
            case Draft():
                said.append(_said(event, ids))
    return {"kind": "events", "ids": len(ids)}, json.dumps(said, separators=(",", ":")).encode() + ids


def _said(draft: Draft, ids: bytearray) -> list[Any]:
    """What is said of a draft in JSON; the ids of its chunks come behind those that there are."""
    head = ["draft", draft.id, draft.hash.hex(), draft.n_chars]
    if draft.document is not None:
        d = draft.document
        metadata, file = values_to_json(d.metadata), values_to_json(d.file)
        return [*head, "document", [d.text, d.heading, metadata, d.markdown, d.line, d.places, file, d.parts]]
    if draft.items is None:
        return [*head, "known", None]
    rows = []
    for item in draft.items:
        r = item.row
        encoded_text = None if item.text == r.text else item.text
        ids += item.ids or b""
        n_ids = None if item.ids is None else len(item.ids)
        rows.append(
            (r.start, r.end, r.text, r.heading, r.text_hash.hex(), r.line, r.page, r.turns, encoded_text, n_ids)
        )
    first = draft.items[0].row if draft.items else None
    metadata, fields = (values_to_json(first.metadata), first.fields) if first else ({}, None)
    seen = None if fields is None else values_to_json(fields)
    return [*head, "items", [rows, metadata, seen, first.gaps if first else None]]


def encoded_vectors(batch: VectorRows) -> Message:
    """The message of rows of precomputed vectors."""
    columns = {
        "row": pa.array(batch.rows),
        "id": pa.array(batch.ids, pa.large_string()),
        "text": pa.array(batch.texts, pa.large_string()),
        "document": pa.array(batch.doc_ids or batch.ids, pa.large_string()),
        "metadata": pa.array([json.dumps(values_to_json(values)) for values in batch.metadata], pa.large_string()),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(batch.vectors.reshape(-1)), batch.vectors.shape[1]),
    }
    has_documents = batch.doc_ids is not None
    return {"kind": "vectors", "file": batch.file, "share": batch.share, "documents": has_documents}, _stream(columns)


def decoded(message: Message, owner: int = 0) -> list[Event]:
    """The inverse; rows get the number of their source. Messages of another kind are no events.

    Raises:
        FrameError: it is no such message.
    """
    header, body = message
    try:
        if header.get("kind") == "vectors":
            return [_vectors(header, body)]
        if header.get("kind") != "events":
            return []
        end = len(body) - _int(header.get("ids", 0))
        return list(_events(json.loads(body[:end]), owner, BytesIO(body[end:])))
    except _FAULTS as fault:
        raise FrameError(f"events that are none: {type(fault).__name__}: {fault}") from fault


def _events(said: Any, owner: int, ids: BytesIO) -> Iterator[Event]:
    for kind, *values in said:
        if kind == "skip":
            yield Skip(*map(_text, values))
        elif kind == "left":
            yield Left(_text(values[0]), _text(values[1]), _int(values[2]))
        elif kind == "read":
            yield NRead(*map(_int, values))
        elif kind == "layout":
            yield Decided(_text(values[0]), Layout.from_json(values[1]))
        else:
            yield _draft(owner, ids, *values)


def _vectors(header: Mapping[str, Any], body: bytes) -> VectorRows:
    with pa.ipc.open_stream(body) as stream:
        table = stream.read_next_batch()
    table.validate(full=True)
    rows, vectors = table["row"].to_numpy(), table["vector"]
    numbers = vectors.flatten().to_numpy()
    if numbers.dtype.kind != "f" or rows.dtype != np.int64:
        raise ValueError("no vectors")
    return VectorRows(
        file=_text(header["file"]),
        rows=rows,
        ids=list(map(_text, table["id"].to_pylist())),
        vectors=numbers.reshape(len(rows), vectors.type.list_size),
        texts=list(map(_text, table["text"].to_pylist())),
        doc_ids=list(map(_text, table["document"].to_pylist())) if header["documents"] else None,
        metadata=[values_from_json(json.loads(values)) for values in table["metadata"].to_pylist()],
        share=float(header["share"]),
    )


def _draft(owner: int, ids: BytesIO, doc_id: Any, doc_hash: Any, n_chars: Any, what: Any, values: Any) -> Draft:
    draft = Draft(_utf8(doc_id), _digest(doc_hash), _int(n_chars), owner)
    if what == "known":
        return draft
    if what == "document":
        text, heading, metadata, markdown, line, places, file, parts = values
        document = Document(
            *(draft.id, _utf8(text), values_from_json(metadata), bool(markdown), _place(line), _utf8(heading)),
            *(_places(places), values_from_json(file), _places(parts)),
        )
        return dataclasses.replace(draft, document=document)
    rows, metadata, seen, gaps = values
    shared, items = values_from_json(metadata), list[Item]()
    fields = None if seen is None else values_from_json(seen)
    for start, end, text, heading, text_hash, line, page, turns, longer, n_ids in rows:
        row = Row(
            chunk_id=f"{draft.id}:{_int(start)}-{_int(end)}",
            doc_id=draft.id,
            start=start,
            end=end,
            text=_utf8(text),
            heading=_utf8(heading),
            text_hash=_digest(text_hash),
            doc_hash=draft.hash,
            metadata=shared,
            line=_place(line),
            page=_place(page),
            turns=None if turns is None else _places(turns),
            owner=owner,
            gaps=None if items or gaps is None else _utf8(gaps),
            fields=fields,
        )
        items.append(Item(row, text if longer is None else _utf8(longer), None if n_ids is None else _ids(ids, n_ids)))
    return dataclasses.replace(draft, items=items)


def _stream(columns: Mapping[str, Any]) -> bytes:
    batch, sink = pa.record_batch(dict(columns)), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _places(said: Any) -> tuple[Place, ...]:
    return tuple(Place(_int(start), _place(line), _place(page)) for start, line, page in said)


def _place(value: Any) -> int | None:
    return None if value is None else _int(value, 2**31)


def _int(value: Any, end: int = 2**63) -> int:
    if type(value) is not int or not 0 <= value < end:
        raise ValueError(f"no number from 0 to {end - 1}")
    return value


def _digest(value: Any) -> bytes:
    digest = bytes.fromhex(value)
    if len(digest) != DIGEST_BYTES:
        raise ValueError(f"a digest of {len(digest)} bytes")
    return digest


def _ids(ids: BytesIO, size: Any) -> bytes:
    found = ids.read(_int(size))
    if len(found) != size or size % ID_DTYPE.itemsize:
        raise ValueError("ids of another length")
    return found


def _utf8(value: Any) -> str:
    """A text without halves of surrogate pairs, which names and reasons of skips alone may hold."""
    _text(value).encode()
    return value  # type: ignore[no-any-return]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value
