"""Names of array types; shapes are in the docstrings of the functions. Numbers of Arrow arrays, rows by part; blocks.

`slices` cuts what is all there, by number; `bundles` gathers what comes one by one, by size.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.abc import MetaPathFinder
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

T = TypeVar("T")


class _Sliced(Protocol):
    """A sequence or an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


S = TypeVar("S", bound=_Sliced)


def slices(items: S, size: int) -> Iterator[S]:
    """All items in their order, `size` at a time.

    >>> list(slices("abcde", 2))
    ['ab', 'cd', 'e']
    """
    return (items[start : start + size] for start in range(0, len(items), size))


def bundles(items: Iterable[T], size_of: Callable[[T], int], enough: int, most: int = sys.maxsize) -> Iterator[list[T]]:
    """All items in their order, as many at a time as have `enough` size together, or as there may be at `most`.

    >>> list(bundles(["a", "bcd", "e", "f"], len, 4, 2))
    [['a', 'bcd'], ['e', 'f']]
    """
    held, size = list[T](), 0
    for item in items:
        held.append(item)
        size += size_of(item)
        if size >= enough or len(held) >= most:
            yield held
            held, size = [], 0
    if held:
        yield held


def saved(data: bytes, kind: DTypeLike) -> NDArray[Any]:
    """The numbers in the bytes of a file that `np.save` wrote, all behind each other; they are not copied.

    `np.load` parses the file's head as Python, which CPython 3.11 cannot do while another thread does, too.

    Raises:
        ValueError: it is no such file, or its numbers are not of this kind.
    """
    file = io.BytesIO(data)
    np.lib.format.read_magic(file)
    file.seek(int.from_bytes(file.read(2), "little"), io.SEEK_CUR)
    return np.frombuffer(data, kind, offset=file.tell())


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def arrow_without_pandas() -> None:
    """Make Arrow's first array, with which it imports pandas if it can: 0.2 s and 48 MB.

    Arrow gives no data frames in this process then, so only processes of our own call this. Others may import pandas.
    """
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas())
    pa.array(["a"])
    del sys.meta_path[0]


def numbers_of(column: Any, kind: str, length: int | None = None) -> NDArray[Any]:
    """The numbers of an Arrow array of fixed width without nulls, not copied; `to_numpy` would import pandas, too.

    Args:
        column: the Arrow array.
        kind: type of its numbers, for numpy.
        length: number of items to read; of a list array, whose numbers are its offsets, one more than its cells.
    """
    width, count = np.dtype(kind).itemsize, len(column) if length is None else length
    if not count or column.buffers()[1] is None:
        return np.zeros(count, kind)
    return np.frombuffer(column.buffers()[1], kind, count, width * column.offset)


def compute(name: str, *arguments: Any) -> Any:
    """What a function of Arrow gives, by its name: `pyarrow.compute` makes Python functions of all 280 when it is
    imported, which takes longer than a question.
    """
    try:
        from pyarrow._compute import call_function
    except ImportError:  # where another version has it
        from pyarrow.compute import call_function
    return call_function(name, list(arguments))


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
