"""Haystack's documents as rows of precomputed vectors, and back. Extra `haystack`, for `ragidx.frameworks.haystack`.

    Document -> id, vector, text, metadata: fields of meta by their names, and what is Haystack's own by `haystack.`

A field of meta is a field of the index where its value has the one type that the index has for that name. Any other
value (a dictionary, a list of other things than text, a time, a number among texts) is JSON text in
`haystack.meta.NAME`, so that it comes back as it was; conditions cannot ask for it. A row of a document without an
embedding holds a vector that says nothing, and is marked: searches pass it over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from haystack import Document
from numpy.typing import NDArray

import ragidx
from ragidx.pipelines.integrations.frameworks.conditions import placed

_OWN = "haystack."
BARE = f"{_OWN}bare"  # the document has no embedding, or one of zeros
META = f"{_OWN}meta."  # before the name of a field: its value as JSON text
_LENGTH = f"{_OWN}length"  # of the embedding, where it is not 1; 0: it is zeros
_BLANK = f"{_OWN}blank"  # the content is empty text, not None
SCORE = f"{_OWN}score"
_UNIT = 1e-3  # as near to length 1 as half precision is


class HaystackRow(NamedTuple):
    """A row of precomputed vectors."""

    name: str
    vector: NDArray[np.float32]
    text: str
    metadata: dict[str, Any]


def packed(document: Document, kinds: dict[str, str], dim: int) -> HaystackRow:
    """A document as a row.

    Args:
        document: a document of Haystack.
        kinds: the kinds of the fields of the index, by name; those of new fields are put in.
        dim: dimensions of the vectors of the index.

    Raises:
        CorpusError: the document holds what a row cannot; the message names what.
    """
    name = document.id
    if not isinstance(name, str):
        raise ragidx.CorpusError(f"the id is of the type {type(name).__name__}", "give text", where=f"{name!r:.80}")
    for part in ("blob", "sparse_embedding"):
        if getattr(document, part) is not None:
            raise refused(name, f"has a {part}, which an index cannot hold", f"write it without: {part}=None")
    metadata = _fields(document, kinds)
    if document.content == "":
        metadata[_BLANK] = True
    if document.score is not None:
        metadata[SCORE] = float(document.score)
    vector = np.zeros(dim, np.float32)
    vector[0] = 1
    if document.embedding is None:
        metadata[BARE] = True
    else:
        vector = np.asarray(document.embedding, np.float32)
        if vector.shape != (dim,):
            shape = "x".join(map(str, vector.shape))
            raise refused(name, f"has an embedding of {shape} dimensions, and the store of {dim}", "embed it alike")
        length = float(np.linalg.norm(vector))
        vector, is_bare = placed(vector)
        if is_bare:
            metadata[BARE] = True
        if abs(length - 1) > _UNIT and math.isfinite(length):  # else the index refuses it
            metadata[_LENGTH] = length
    return HaystackRow(name, vector, document.content or "", metadata)


def repacked(
    document: Document, held: ragidx.Document, vector: NDArray[np.float16], kinds: dict[str, str]
) -> HaystackRow:
    """The row of a document whose meta alone have changed: its vector is that of the index, to the bit."""
    row = packed(document, kinds, len(vector))
    kept = {name: held.metadata[name] for name in (BARE, _LENGTH) if name in held.metadata}
    ours = {name: value for name, value in row.metadata.items() if name not in (BARE, _LENGTH)}
    return row._replace(vector=vector.astype(np.float32), metadata=ours | kept)


def unpacked(
    name: str,
    text: str,
    metadata: Mapping[str, Any],
    vector: NDArray[np.float16] | None = None,
    score: float | None = None,
) -> Document:
    """The document of a row, with its embedding where the vector is here; `score` in place of its own."""
    meta: dict[str, Any] = {}
    for field, value in metadata.items():
        if field.startswith(META):
            meta[field.removeprefix(META)] = untagged(json.loads(value))
        elif not field.startswith(_OWN):
            meta[field] = value.isoformat() if isinstance(value, datetime) else value
    embedding = None
    length = metadata.get(_LENGTH, None if metadata.get(BARE) else 1.0)
    if vector is not None and length is not None:
        embedding = (vector.astype(np.float32) * length).tolist()
    return Document(
        id=name,
        content=text or ("" if metadata.get(_BLANK) else None),
        meta=meta,
        score=metadata.get(SCORE) if score is None else score,
        embedding=embedding,
    )


def is_plain(name: str) -> bool:
    """Whether a field of meta may be a field of the index: filters of Haystack read a dot as a step into a value."""
    return name.isprintable() and name not in ("", "doc_id") and "." not in name


def value_key(value: Any) -> str:
    """Text that is the same for the same value of the same type."""
    return json.dumps([type(value).__name__, _tagged(value)], sort_keys=True)


def _fields(document: Document, kinds: dict[str, str]) -> dict[str, Any]:
    """Meta as fields of the index."""
    fields: dict[str, Any] = {}
    for name, value in document.meta.items():
        if not isinstance(name, str):
            raise refused(document.id, f"has meta whose name {name!r:.80} is no text", "name it by text")
        kind = _kind(value)
        fits = value is None or (kind is not None and kinds.setdefault(name, kind) == kind)
        if is_plain(name) and fits:
            fields[name] = value
        else:
            try:
                fields[META + name] = json.dumps(_tagged(value), ensure_ascii=False)
            except (TypeError, ValueError, RecursionError) as fault:
                hint = "make it text, numbers, times, or lists and dictionaries of them"
                raise refused(document.id, f"has meta '{name}' that cannot be kept: {fault}", hint) from fault
    return fields


def _kind(value: object) -> str | None:
    """The type of the field that holds a value exactly; None: none does."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -(2**63) <= value < 2**63 else None
    if isinstance(value, float):
        return "float" if math.isfinite(value) else None
    if isinstance(value, str):
        return "string"
    return "list" if isinstance(value, list) and value and all(isinstance(one, str) for one in value) else None


def _tagged(value: Any) -> Any:
    """A value as JSON has it; what JSON has not, and dictionaries, as a dictionary of one type and its content."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, list):
        return [_tagged(one) for one in value]
    if type(value) is tuple:
        return {"tuple": [_tagged(one) for one in value]}
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {"dict": {name: _tagged(one) for name, one in value.items()}}
    raise TypeError(f"it holds a {type(value).__name__}" + " with names that are no text" * isinstance(value, dict))


def untagged(value: Any) -> Any:
    """A value of what `_tagged` makes of it."""
    if isinstance(value, list):
        return [untagged(one) for one in value]
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind == "datetime":
        return datetime.fromisoformat(content)
    if kind == "tuple":
        return tuple(untagged(one) for one in content)
    return {name: untagged(one) for name, one in content.items()}


def refused(name: str, message: str, hint: str) -> ragidx.CorpusError:
    """Why a document is not written."""
    return ragidx.CorpusError(f"the document {message}", f"{hint}; nothing of this call was written", where=name)
