"""Query vectors of a file or of standard input.

path or "-", an .npy array or JSON (a list of numbers, or of such lists) -> (q, n) float64, or as the array has it
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import QueryError, check_machine, first_line
from ragidx.corpora.limits import MIB, UnreadableError, read_all

MAX_BYTES = 256 * MIB

_NPY_MARK = b"\x93NUMPY"
_FAULTS = (
    *(UnreadableError, ValueError, TypeError, OverflowError, EOFError, MemoryError),
    *(SyntaxError, TokenError, RecursionError),  # of what is in a header or in JSON
)
_FORMS = "give an .npy array, or JSON: [0.1, 0.2], or a list of such lists"


def read_query_vectors(path: str | Path) -> NDArray[Any]:
    """The vectors of a file, or of standard input for `-`; one alone is one row.

    Raises:
        QueryError: it cannot be read, or is neither of the two forms.
    """
    where = "standard input" if str(path) == "-" else str(path)
    try:
        data = _data(path)
        array = _npy(data) if data.startswith(_NPY_MARK) else _json(data)
    except OSError as fault:
        check_machine(fault, where)
        if where.startswith("["):
            message = "a file is expected, not the numbers themselves"
            raise QueryError(
                message, "write them to a file, or to standard input, which is -", where=where[:40]
            ) from fault
        raise QueryError(f"cannot be opened: {fault.strerror or fault}", _FORMS, where=where) from fault
    except _FAULTS as fault:
        raise QueryError(f"holds no vectors: {first_line(fault)}", _FORMS, where=where) from fault
    matrix = array[None] if array.ndim == 1 else array
    if matrix.ndim != 2 or not matrix.size:
        raise QueryError(f"holds an array of the shape {array.shape}, not (queries, width)", _FORMS, where=where)
    return matrix


def _data(path: str | Path) -> bytes:
    if str(path) == "-":
        return bytes(read_all(sys.stdin.buffer, MAX_BYTES))
    with Path(path).open("rb") as stream:
        return bytes(read_all(stream, MAX_BYTES))


def _npy(data: bytes) -> NDArray[Any]:
    array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise TypeError(f"the array holds {array.dtype}, not numbers of at most 64 bits")
    return array


def _json(data: bytes) -> NDArray[Any]:
    found = json.loads(data)
    if not isinstance(found, list):
        raise TypeError("the JSON is not a list")
    vectors = found if found and all(isinstance(row, list) for row in found) else [found]
    for number, vector in enumerate(vectors, start=1):
        for place, value in enumerate(vector, start=1):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(
                    f"vector {number} has at place {place} something that is not a number: {json.dumps(value)[:40]}"
                )
        if len(vector) != len(vectors[0]):
            raise TypeError(f"vector {number} has {len(vector):,} dimensions, the first {len(vectors[0]):,}")
    return np.array(vectors, np.float64)
