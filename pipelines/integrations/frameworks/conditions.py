"""What the stores of all frameworks share: pieces of conditions, widths of embeddings, and embeddings of zeros.

An embedding of zeros, of an empty text say, has no direction. Its row has another vector and a mark, a field of the
store's own, and searches by vectors pass it over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ragidx

MAX_VALUES = 1_000  # of a list in a condition
MAX_CHARS = 9_000  # of a condition, which may have 10,000: callers put more beside it


def quoted(text: str) -> str:
    """Text, as a condition has it.

    >>> print(quoted('say "no"'))
    "say \\"no\\""
    """
    return _marked(text, '"')


def shown(field: str) -> str:
    """A field, as a condition has it.

    >>> print(shown("a`b"))
    `a\\`b`
    """
    return _marked(field, "`")


def lists(field: str, literals: Sequence[str], *, sign: str = "in") -> list[str]:
    """Tests whether a field is one of some values, each of as many as a list may have.

    >>> lists("year", ["1", "2"])
    ['`year` in (1, 2)']
    """
    parts = (literals[start : start + MAX_VALUES] for start in range(0, len(literals), MAX_VALUES))
    return [f"{shown(field)} {sign} ({', '.join(part)})" for part in parts]


def one_of(field: str, values: Iterable[str]) -> Iterator[str]:
    """Conditions that together find what has one of the values in a field of text, each short enough."""
    held, size = list[str](), 0
    for value in map(quoted, dict.fromkeys(values)):
        if held and (size + len(value) > MAX_CHARS or len(held) == MAX_VALUES):
            yield from lists(field, held)
            held, size = [], 0
        held.append(value)
        size += len(value) + 2
    yield from lists(field, held)


def width_of(index: ragidx.Index) -> int:
    """Numbers of an embedding that the index takes; it may keep the first ones alone."""
    return (index.spec.precomputed and index.spec.precomputed.input_dim) or index.info().dim


def check_widths(index: ragidx.Index | None, embeddings: Sequence[tuple[str, Sized]]) -> None:
    """Refuse an embedding of another width.

    Args:
        index: of precomputed vectors; None: one that the first embedding makes.
        embeddings: each behind what a message names it by.

    Raises:
        SpecError: there is one.
    """
    width = len(embeddings[0][1]) if index is None else width_of(index)
    for where, embedding in embeddings:
        if len(embedding) != width:
            raise ragidx.SpecError(
                f"the embedding has {len(embedding)} numbers, and those of the index have {width}",
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


def with_vector(where: str | None, mark: str, index: ragidx.Index) -> str | None:
    """A condition of a search by vectors: no row that stands for zeros is found."""
    if mark not in index.schema:
        return where
    return f"{shown(mark)} is null" + (f" and ({where})" if where else "")


def _marked(text: str, mark: str) -> str:
    return mark + text.replace("\\", "\\\\").replace(mark, f"\\{mark}") + mark
