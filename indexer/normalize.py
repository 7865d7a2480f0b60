"""Unit length: vectors of any floating type become float32 rows of length 1, and rows that cannot are named.

(n, dim) float16, float32 or float64 -> (n, dim) float32; of those, the first dimensions again. Lengths are taken in
float64 for any input: the squares of float16 and float32 numbers leave their own range long before the numbers
do. A row of zeros or with a number that is not finite has no direction: it becomes zeros and a fault, and the caller
decides whether that is an error. All unit vectors of this package are made here, and widths are checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import QueryError, SpecError

ZERO = "the vector is zero"
NOT_FINITE = "the vector holds a number that is not finite"

_ROUNDED = 2**-11  # of a number of float16, at most, and so of a row's length
_SQUARES_FIT = (1e-30, 1e30)  # lengths between these fit float32, and their squares float64


@dataclass(frozen=True, slots=True)
class UnitRows:
    """Rows of length 1; rows that have no direction are zero."""

    vectors: NDArray[np.float32]  # (n, dim)
    faults: list[tuple[int, str]]  # for each broken row, in order, its number and why: `ZERO` or `NOT_FINITE`


def l2_normalize(vectors: NDArray[Any]) -> UnitRows:
    """Bring each row to length 1.

    A float16 row whose length is 1 up to rounding is a stored one and stays unchanged: dividing it again would change
    some of its codes.

    Args:
        vectors: (n, dim) of a floating type, dim 1 or more.

    >>> l2_normalize(np.array([[3.0, 4.0], [0.0, 0.0]])).vectors.tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    >>> l2_normalize(np.array([[3.0, 4.0], [0.0, 0.0]])).faults
    [(1, 'the vector is zero')]
    """
    whole = vectors.astype(np.float32) if vectors.dtype == np.float16 else vectors  # exact, and faster from here on
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", whole, whole, dtype=np.float64))
        odd = np.flatnonzero(~((lengths > _SQUARES_FIT[0]) & (lengths < _SQUARES_FIT[1])))  # NaN is neither
        lengths[odd] = 1
        if vectors.dtype == np.float16:
            lengths[np.abs(lengths - 1) <= _ROUNDED] = 1
        unit = np.divide(whole, lengths[:, None], dtype=np.float64 if whole.dtype == np.float64 else np.float32)
        unit = unit.astype(np.float32, copy=False)
    faults: list[tuple[int, str]] = []
    for row in odd.tolist():
        peak = np.abs(whole[row]).max()
        if np.isfinite(peak) and peak > 0:
            scaled = whole[row].astype(np.float64) / peak
            unit[row] = scaled / np.linalg.norm(scaled)
        else:
            faults.append((row, ZERO if peak == 0 else NOT_FINITE))
            unit[row] = 0
    return UnitRows(unit, faults)


def cut_rows(unit: UnitRows, dim: int) -> UnitRows:
    """The first `dim` dimensions of each row, normalised to length 1 again; `unit` itself at full width.

    Old faults stay; a row whose first dimensions are all zero gets a new one.

    >>> cut = cut_rows(l2_normalize(np.array([[3.0, 0.0, 4.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])), 2)
    >>> cut.vectors.tolist()
    [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    >>> cut.faults
    [(1, 'the first 2 of 3 dimensions of the vector are zero'), (2, 'the vector is zero')]
    """
    width = unit.vectors.shape[1]
    if width == dim:
        return unit
    cut, before = l2_normalize(unit.vectors[:, :dim]), dict(unit.faults)
    nothing = f"the first {dim:,} of {width:,} dimensions of the vector are zero"  # else it is not finite
    return UnitRows(cut.vectors, [(row, before.get(row, nothing)) for row, _ in cut.faults])


def check_width(
    field: str, width: int, stored: int, *, error: type[QueryError | SpecError] = QueryError, or_else: str = ""
) -> None:
    """Check that an index of `stored` dimensions has the first `width`.

    Args:
        field: the option that asks for them.
        width: number of dimensions that are wanted.
        stored: number of dimensions of the index.
        error: class of the error that is raised.
        or_else: the end of its hint.
    """
    if not 1 <= width <= stored:
        raise error(
            f"{field.replace('_', ' ')} {width:,} is not from 1 to {stored:,}, the dimensions stored in the index",
            f"give at most {stored:,}; for more, build again with a larger `dim` and `rebuild=True`{or_else}",
            where=f"`{field}`",
        )


def check_widths(stored: int, dim: int | None, rerank_dim: int | None) -> None:
    """Check the widths of a search in an index of `stored` dimensions.

    Raises:
        QueryError: a width is out of range, or the two do not fit together.
    """
    if dim is None and rerank_dim is not None:
        raise QueryError("this compares again what `dim` has found", "give `dim`, too", where="`rerank_dim`")
    for field, width in (("dim", dim), ("rerank_dim", rerank_dim)):
        if width is not None:
            check_width(field, width, stored)
    if dim is not None and rerank_dim is not None and rerank_dim <= dim:
        raise QueryError(
            f"rerank dim {rerank_dim:,} adds nothing to the {dim:,} dimensions that are searched",
            f"give more than {dim:,}, or remove it",
            where="`rerank_dim`",
        )


def check_query_width(width: int, dim: int, *, input_dim: int | None = None, where: str = "") -> None:
    """Check that vectors of questions are as wide as those of the index, or as these were before they were cut.

    Raises:
        QueryError: they are not.
    """
    if width not in (dim, input_dim):
        before = "" if input_dim is None else f", and had {input_dim:,} before they were cut"
        raise QueryError(
            f"the query's vector has {width:,} dimensions, those of the index have {dim:,}{before}",
            "make it as the vectors of the index were made",
            where=where,
        )
