"""Names of array types; shapes are in the docstrings of the functions. And numbers, of Arrow arrays and of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def numbers_of(column: Any, kind: str, length: int | None = None) -> NDArray[Any]:
    """The numbers of an Arrow array of fixed width without nulls, not copied; `to_numpy` would import pandas, too.

    Args:
        column: the array.
        kind: of its numbers, for numpy.
        length: of a list array, whose numbers are its offsets, one more than its cells.
    """
    width, count = np.dtype(kind).itemsize, len(column) if length is None else length
    if not count or column.buffers()[1] is None:
        return np.zeros(count, kind)
    return np.frombuffer(column.buffers()[1], kind, count, width * column.offset)


def grouped(starts: Ints, rows: Ints) -> Iterator[tuple[int, Ints, Ints]]:
    """Rows by the part that holds them: its number, which places they have in `rows`, and their numbers in the part.

    Args:
        starts: the first row of each part, and behind them how many rows there are.
        rows: numbers through all parts; those of one part keep their order.

    Raises:
        IndexError: there is no such row.

    >>> [(part, places.tolist(), mine.tolist()) for part, places, mine in grouped([0, 10, 30], np.array([12, 3, 10]))]
    [(0, [1], [3]), (1, [0, 2], [2, 0])]
    """
    if not len(rows):
        return
    if not 0 <= rows.min() <= rows.max() < starts[-1]:
        raise IndexError(f"rows {rows.min()} to {rows.max()} of {starts[-1]}")
    if len(starts) == 2:
        yield 0, np.arange(len(rows)), rows
        return
    owners = np.searchsorted(starts, rows, "right") - 1
    order = np.argsort(owners, kind="stable")
    ends = np.searchsorted(owners[order], np.arange(len(starts)))
    for part in np.flatnonzero(np.diff(ends)).tolist():
        places = order[ends[part] : ends[part + 1]]
        yield part, places, rows[places] - starts[part]
