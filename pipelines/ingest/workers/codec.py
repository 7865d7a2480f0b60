"""What a worker says of a file, as messages: skips, bytes read, layouts and drafts, in their order.

    events -> header {"kind": "events", "events": [...]}, body: the rows of all drafts as an Arrow IPC stream -> events

Rows of precomputed vectors are a message of their own.
A draft has the items that were cut; or neither them nor the document, where the worker saw that it is known; or, where
another process is to cut it, the document. Times and texts come back as the values that they were. Whoever decodes
checks: a worker that a hostile file took over may say anything.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ragidx.corpora.chunking import ID_DTYPE
from ragidx.corpora.errors import SpecError
from ragidx.corpora.readers.layouts import Layout
from ragidx.corpora.records import Document, Place, Skip
from ragidx.corpora.vectors.batch import VectorBatch
from ragidx.corpora.whole import values_from_json, values_to_json
from ragidx.indexer.store.rows import TURNS, Row, turns_of
from ragidx.pipelines.ingest.workers.chunks import Draft, Item
from ragidx.pipelines.ingest.workers.frames import FrameError
from ragidx.pipelines.ingest.workers.lanes import Message

_ROWS = pa.schema(
    [
        *(pa.field("start", pa.int64()), pa.field("end", pa.int64())),
        *(pa.field("text", pa.large_string()), pa.field("heading", pa.large_string())),
        *(pa.field("text_hash", pa.binary(16)), pa.field("line", pa.int32()), pa.field("page", pa.int32())),
        pa.field("turns", TURNS),
        pa.field("encoded", pa.large_string()),  # null where it is the text
        pa.field("ids", pa.large_binary()),  # null where they are not wanted
    ]
)
_FAULTS = (
    *(pa.ArrowException, OSError, MemoryError, RuntimeError, StopIteration),
    *(LookupError, TypeError, ValueError, AttributeError, OverflowError, SpecError),
)


class NRead(NamedTuple):
    """Bytes of the file that were read."""

    n_bytes: int


class Decided(NamedTuple):
    """How the records of a file are read."""

    name: str
    layout: Layout


Event: TypeAlias = Skip | NRead | Decided | Draft | VectorBatch


def encoded(events: Sequence[Event]) -> Message:
    """The message of events other than vectors."""
    said: list[list[Any]] = []
    rows: list[tuple[Any, ...]] = []
    for event in events:
        match event:
            case Skip(where, reason):
                said.append(["skip", where, reason])
            case NRead(n_bytes):
                said.append(["read", n_bytes])
            case Decided(name, layout):
                said.append(["layout", name, layout.to_json()])
            case Draft():
                said.append(_said(event, rows))
    return {"kind": "events", "events": said}, _body(rows)


def _said(draft: Draft, rows: list[tuple[Any, ...]]) -> list[Any]:
    head = ["draft", draft.id, draft.hash.hex(), draft.n_chars]
    if draft.document is not None:
        d = draft.document
        rows.append((0, 0, d.text, d.heading, *[None] * 6))
        fields = [values_to_json(d.metadata), d.markdown, d.line, d.places, values_to_json(d.file), d.parts]
        return [*head, "document", fields]
    if draft.items is None:
        return [*head, "known", None]
    for item in draft.items:
        r = item.row
        encoded_text = None if item.text == r.text else item.text
        rows.append((r.start, r.end, r.text, r.heading, r.text_hash, r.line, r.page, r.turns, encoded_text, item.ids))
    return [*head, "items", [len(draft.items), values_to_json(draft.items[0].row.metadata) if draft.items else {}]]


def encoded_vectors(batch: VectorBatch) -> Message:
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
        return list(_events(header["events"], _columns(body), owner)) if header.get("kind") == "events" else []
    except _FAULTS as fault:
        raise FrameError(f"events that are none: {type(fault).__name__}: {fault}") from fault


def _events(said: Any, rows: Iterator[tuple[Any, ...]], owner: int) -> Iterator[Event]:
    for kind, *values in said:
        if kind == "skip":
            yield Skip(*map(_text, values))
        elif kind == "read":
            yield NRead(int(values[0]))
        elif kind == "layout":
            yield Decided(_text(values[0]), Layout.from_json(values[1]))
        else:
            yield _draft(rows, owner, *values)
    if next(rows, None) is not None:
        raise ValueError("rows of no document")


def _vectors(header: Mapping[str, Any], body: bytes) -> VectorBatch:
    with pa.ipc.open_stream(body) as stream:
        table = stream.read_next_batch()
    table.validate(full=True)
    rows, vectors = table["row"].to_numpy(), table["vector"]
    numbers = vectors.flatten().to_numpy()
    if numbers.dtype.kind != "f" or rows.dtype != np.int64:
        raise ValueError("no vectors")
    return VectorBatch(
        file=_text(header["file"]),
        rows=rows,
        ids=list(map(_text, table["id"].to_pylist())),
        vectors=numbers.reshape(len(rows), vectors.type.list_size),
        texts=list(map(_text, table["text"].to_pylist())),
        doc_ids=list(map(_text, table["document"].to_pylist())) if header["documents"] else None,
        metadata=[values_from_json(json.loads(values)) for values in table["metadata"].to_pylist()],
        share=float(header["share"]),
    )


def _draft(
    rows: Iterator[tuple[Any, ...]], owner: int, doc_id: Any, doc_hash: Any, n_chars: Any, what: Any, values: Any
) -> Draft:
    draft = Draft(_text(doc_id), bytes.fromhex(doc_hash), int(n_chars), owner)
    if what == "known":
        return draft
    if what == "document":
        metadata, markdown, line, places, file, parts = values
        _, _, text, heading, *_ = next(rows)
        document = Document(
            *(draft.id, text, values_from_json(metadata), bool(markdown), line, heading),
            *(_places(places), values_from_json(file), _places(parts)),
        )
        return dataclasses.replace(draft, document=document)
    count, metadata = values
    shared, items = values_from_json(metadata), []
    for _ in range(count):
        start, end, text, heading, text_hash, line, page, turns, longer, ids = next(rows)
        if ids is not None and len(ids) % ID_DTYPE.itemsize:
            raise ValueError("ids of another length")
        row = Row(
            chunk_id=f"{draft.id}:{start}-{end}",
            doc_id=draft.id,
            start=start,
            end=end,
            text=text,
            heading=heading,
            text_hash=text_hash,
            doc_hash=draft.hash,
            metadata=shared,
            line=line,
            page=page,
            turns=turns_of(turns),
            owner=owner,
        )
        items.append(Item(row, text if longer is None else longer, ids))
    return dataclasses.replace(draft, items=items)


def _body(rows: Sequence[tuple[Any, ...]]) -> bytes:
    """Empty where there are no rows."""
    if not rows:
        return b""
    columns = zip(_ROWS, zip(*rows, strict=True), strict=True)
    return _stream({field.name: pa.array(values, field.type) for field, values in columns})


def _stream(columns: Mapping[str, Any]) -> bytes:
    batch, sink = pa.record_batch(dict(columns)), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _columns(body: bytes) -> Iterator[tuple[Any, ...]]:
    if not body:
        return iter(())
    with pa.ipc.open_stream(body) as stream:
        table = stream.read_all()
    if table.schema != _ROWS:
        raise ValueError("other columns")
    table.validate(full=True)
    return iter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _places(found: Any) -> tuple[Place, ...]:
    return tuple(Place(*one) for one in found)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value
