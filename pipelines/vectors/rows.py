"""What a program may give as rows of precomputed vectors, checked, as batches like those of files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ragidx.corpora.errors import CorpusError, lone_surrogate
from ragidx.corpora.readers.fields import from_value
from ragidx.corpora.vectors.batch import VectorRows, batch_rows
from ragidx.corpora.whole_documents import check_metadata

NOTHING_ADDED = "repair it, or remove the row; nothing of this call was added"


def checked_rows(
    dim: int,
    ids: Iterable[str | int],
    vectors: ArrayLike,
    texts: Sequence[str | None] | None,
    metadata: Sequence[Mapping[str, object]] | None,
    doc_ids: Iterable[str | int] | None,
) -> list[VectorRows]:
    """What a program gives, as batches of rows that an index can hold.

    Raises:
        ValueError: there are not n of everything, the vectors are not `dim` wide, or something is masked.
        TypeError: an id, a text or metadata are of a wrong type; the message names the row.
        CorpusError: a string is not Unicode text, or a value is nothing that metadata can be.
    """
    _check_whole(vectors, "vectors")
    names, matrix = names_of(ids, "ids"), np.asarray(vectors)
    if matrix.dtype.kind not in "fiu" or matrix.dtype.itemsize > 8 or matrix.shape != (len(names), dim):
        raise ValueError(
            f"vectors have the shape {matrix.shape} and hold {matrix.dtype}, not ({len(names)}, {dim}) and numbers "
            "of at most 64 bits"
        )
    documents = None if doc_ids is None else names_of(doc_ids, "doc_ids")
    for what, column in (("texts", texts), ("metadata", metadata), ("doc_ids", documents)):
        if column is not None and len(column) != len(names):
            raise ValueError(f"{len(column)} {what} for {len(names)} ids")
    written = [""] * len(names) if texts is None else _written(texts)
    for what, strings in (("id", names), ("text", written), ("document's id", documents or [])):
        for row, string in enumerate(strings):
            if lone_surrogate(string) is not None:
                raise CorpusError(f"the {what} is not Unicode text", NOTHING_ADDED, where=shown(names[row]))
    values = [{}] * len(names) if metadata is None else list(map(_given, names, metadata))
    step = batch_rows(dim)
    return [
        VectorRows(
            ids=names[start : start + step],
            vectors=matrix[start : start + step],
            texts=written[start : start + step],
            metadata=values[start : start + step],
            doc_ids=None if documents is None else documents[start : start + step],
        )
        for start in range(0, len(names), step)
    ]


def names_of(ids: Iterable[str | int], what: str) -> list[str]:
    """Ids as strings, none of them empty; `what` they are, for messages."""
    if isinstance(ids, str):
        raise TypeError(f"expected a list of {what}, got one string")
    _check_whole(ids, what)
    names = list(ids)
    for row, name in enumerate(names):
        if isinstance(name, bool) or not isinstance(name, str | int | np.integer):
            raise TypeError(f"{what}[{row}] is {name!r}, neither text nor a whole number")
    if "" in names:
        raise ValueError(f"one of the {what} is empty")
    return [str(name) for name in names]


def _written(texts: Sequence[str | None]) -> list[str]:
    """Texts, "" where there is none."""
    if isinstance(texts, str):
        raise TypeError("expected a list of texts, got one string")
    _check_whole(texts, "texts")
    for row, text in enumerate(texts):
        if not isinstance(text, str | None):
            raise TypeError(f"texts[{row}] is {text!r}, not text")
    return [text or "" for text in texts]


def _check_whole(values: object, what: str) -> None:
    """Refuse an array of NumPy of which something is masked: what is below a mask is no value."""
    if np.ma.is_masked(values):
        raise ValueError(f"some of the {what} are masked: remove these rows, or fill them")


def _given(name: str, fields: Mapping[str, object]) -> dict[str, Any]:
    """The metadata of a row, sorted by name."""
    if not isinstance(fields, Mapping) or not all(isinstance(field, str) for field in fields):
        raise TypeError(f"the metadata of {shown(name)} are {fields!r}, not a mapping of names to values")
    found: dict[str, Any] = {}
    for field in sorted(fields):
        try:
            if lone_surrogate(field) is not None:
                raise ValueError("its name is not Unicode text")
            found[field] = _plain(fields[field])
        except (ValueError, RecursionError) as fault:
            raise CorpusError(
                f"the field {field!a} cannot be kept: {fault}", NOTHING_ADDED, where=shown(name)
            ) from fault
    check_metadata(found, shown(name))
    return found


def _plain(value: object) -> Any:
    """A value in the types of JSON, or a time."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value if isinstance(value, int) else from_value(value)


def shown(name: str) -> str:
    """An id for a message, whatever it holds."""
    return f"id {name!a}" if lone_surrogate(name) is not None else f"id '{name}'"
