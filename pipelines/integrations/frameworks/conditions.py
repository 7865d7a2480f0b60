"""What the adapters of all frameworks share: pieces of conditions, what a hit says, an index that may not be there yet,
its vectors, widths of embeddings, and embeddings of zeros.

An embedding of zeros, of an empty text say, has no direction. Its row has another vector and a mark, a field of the
store's own, and searches by vectors pass it over.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ragidx

MOST_DEEP = 100  # filters in filters, which are read by recursion
_OF_HITS = ("line", "page", "heading", "context", "also")


def constant(answer: bool) -> ragidx.Condition:
    """A condition that all rows fulfil, or none: each has the id of a document."""
    without = ragidx.field("doc_id").is_null()
    return ~without if answer else without


def settled(field: str, found: ragidx.Condition, *, missing: bool) -> ragidx.Condition:
    """A condition on a field that is never unknown, so that `~` of it finds all others.

    Args:
        field: the name of a field of the index.
        found: the condition by which rows that have the field are found.
        missing: whether rows that do not have the field are found.
    """
    without = ragidx.field(field).is_null()
    return without | found if missing else ~without & found


def check_refresh(refresh: object) -> None:
    """Refuse what does not say which state is shown.

    Raises:
        SpecError: it is neither "auto" nor None.
    """
    if refresh not in ("auto", None):
        raise ragidx.SpecError(f"refresh is {refresh!r}", 'give "auto" or None', where="`refresh`")


def told(hit: ragidx.Hit, *more: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is known of a hit beside its text, as JSON has it: of the hit, and the metadata of its document.

    Args:
        hit: the hit whose `source`, the document's id, is told, and line, page, heading, context and also, if they are
            there.
        more: names of what else is told of the hit, if it is there.
    """
    found = hit.to_json()
    ours = {name: found[name] for name in (*more, *_OF_HITS) if found[name] not in (None, "", [])}
    return {"source": hit.doc_id} | ours, found["metadata"]


def opened(folder: Path) -> ragidx.Index | None:
    """The index in a folder; None: there is nothing yet, or another store is making it.

    Raises:
        IndexFormatError: there is something else.
    """
    if not folder.is_file() and not (folder.is_dir() and any(folder.iterdir())):
        return None
    try:
        return ragidx.Index(folder)
    except ragidx.IndexFormatError:
        if not (folder / "LOCK").exists():
            raise
        return ragidx.Index(folder) if (folder / "manifest.json").exists() else None  # it may be committed by now


def vectors_of(index: ragidx.Index, where: ragidx.Condition | None) -> dict[str, NDArray[np.float16]]:
    """The vectors of the rows that fulfil a condition, by their ids; another thread may have deleted some meanwhile."""
    found: dict[str, NDArray[np.float16]] = {}
    for batch in index.to_batches(["chunk_id", "vector"], where=where, decoded=True):
        vectors = batch.column(1).flatten().to_numpy(zero_copy_only=False).reshape(batch.num_rows, -1)
        found |= zip(batch.column(0).to_pylist(), vectors, strict=True)
    return found


def width_of(index: ragidx.Index) -> int:
    """Dimensions of an embedding that the index takes; it may keep the first ones alone."""
    return (index.spec.precomputed and index.spec.precomputed.input_dim) or index.info().dim


def check_widths(index: ragidx.Index | None, embeddings: Sequence[tuple[str, Sized]]) -> None:
    """Refuse an embedding of another width.

    Args:
        index: the index of precomputed vectors; None: the first embedding makes it.
        embeddings: the embeddings, each behind the name that a message has for it.

    Raises:
        SpecError: there is one.
    """
    width = len(embeddings[0][1]) if index is None else width_of(index)
    for where, embedding in embeddings:
        if len(embedding) != width:
            raise ragidx.SpecError(
                f"the embedding has {len(embedding)} dimensions, and those of the index have {width}",
                "embed with the model of the index, or take another folder",
                where=where,
            )


def placed(embedding: ArrayLike) -> tuple[NDArray[Any], bool]:
    """The vector of a row (dim,), and whether it stands for zeros.

    >>> placed([0.0, 0.0])
    (array([1., 0.]), True)
    """
    vector = np.asarray(embedding)
    if vector.any() or not vector.size:
        return vector, False
    return np.eye(1, vector.size)[0], True


def with_vector(where: str | ragidx.Condition | None, mark: str, index: ragidx.Index) -> str | ragidx.Condition | None:
    """A condition of a search by vectors: no row that stands for zeros is found."""
    if mark not in index.schema:
        return where
    placed = ragidx.field(mark).is_null()
    return placed if where is None else placed & ragidx.condition(where)
