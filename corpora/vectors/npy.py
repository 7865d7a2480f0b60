"""An .npy file as a matrix that is read block by block: nothing of it is mapped, and nothing is unpickled.

    path -> NpyMatrix(total, width) -> rows (n, width), float16, float32 or float64 of this machine's byte order

A mapped file that becomes shorter ends the process, while a short read is only an error. Both orders of numbers in the
file, by rows and by columns, are read. Whether the file changed meanwhile is not known here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import CorpusError, first_line

_FAULTS = (ValueError, TypeError, OverflowError, SyntaxError, TokenError, EOFError, MemoryError)  # of a header
_HINT = "write it with numpy.save, as an array of numbers"


@dataclass(frozen=True, slots=True)
class NpyMatrix:
    """A matrix in an open file.

    Args:
        total, width: shape of the matrix.
        name: name of the file, for messages.
    """

    total: int
    width: int
    name: str
    _file: IO[bytes]
    _dtype: np.dtype[Any]
    _first: int  # where the numbers begin, in bytes
    _by_columns: bool

    def rows(self, start: int, count: int) -> NDArray[Any]:
        """(n, width) the rows from `start` on, at most `count`.

        Raises:
            CorpusError: the file ends before them.
        """
        count = min(count, self.total - start)
        if self._by_columns:
            columns = [self._numbers(number * self.total + start, count) for number in range(self.width)]
            block = np.stack(columns, axis=1)
        else:
            block = self._numbers(start * self.width, count * self.width).reshape(count, self.width)
        return np.ascontiguousarray(block, self._dtype.newbyteorder("="))

    def _numbers(self, place: int, count: int) -> NDArray[Any]:
        """(count,) from number `place` of the file on."""
        self._file.seek(self._first + place * self._dtype.itemsize)
        found = np.fromfile(self._file, self._dtype, count)
        if len(found) < count:
            raise _damaged("it ends before its last row", self.name)
        return found


@contextmanager
def open_npy(path: Path, name: str) -> Iterator[NpyMatrix]:
    """The matrix of an .npy file; `name` is the file's in messages.

    Raises:
        CorpusError: the header is damaged, the file is too short for it, or it holds no matrix of floating numbers.
        OSError: it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        shape, by_columns, dtype = _header(file, name)
        if dtype.kind != "f" or dtype.itemsize > 8:
            raise CorpusError(
                f"the array holds {dtype}, not float16, float32 or float64",
                "convert it with array.astype('float32')",
                where=name,
            )
        if len(shape) != 2:
            raise CorpusError(
                f"the array has the shape {shape}, not (rows, width)", "write a vector in each row", where=name
            )
        first = file.tell()
        needed = shape[0] * shape[1] * dtype.itemsize
        there = file.seek(0, 2) - first
        if min(shape) < 0 or there < needed:
            raise _damaged(f"{there:,} bytes of numbers, not the {needed:,} of the shape {shape}", name)
        yield NpyMatrix(shape[0], shape[1], name, file, dtype, first, by_columns)


def _header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the numbers are in column order, and their type; the file is then at the first number."""
    try:
        version = np.lib.format.read_magic(file)
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of files that Python 2 wrote
            if version == (1, 0):
                return np.lib.format.read_array_header_1_0(file)
            if version in ((2, 0), (3, 0)):  # they differ only in names of fields, which a matrix does not have
                return np.lib.format.read_array_header_2_0(file)
    except _FAULTS as fault:
        raise _damaged(first_line(fault), name) from fault
    raise _damaged(f"version {version[0]}.{version[1]} of the format is not known", name)


def _damaged(reason: str, name: str) -> CorpusError:
    return CorpusError(f"damaged .npy data: {reason}", _HINT, where=name)
