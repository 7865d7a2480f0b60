"""Names of array types; shapes are in the docstrings of the functions. And the numbers of Arrow arrays."""

from __future__ import annotations

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
