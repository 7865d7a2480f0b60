"""The layout of FAISS's files, checked before FAISS reads them: every length is compared with the end of the file.

FAISS 1.15 trusts its files. It allocates before it reads. Its reader of mapped files takes a truncated item for a whole
one and reads past the end of the mapping, which ends the process. Lists may name other files, which it would open. So a
file is checked first, field by field to the last byte: it must have the layout that a `Recipe` gives for the number of
rows and their width. Only the lengths of lists are decoded. Codes, links and row numbers are not checked here.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ragidx.indexer.ann.index_types import BLOCK, Recipe
from ragidx.indexer.damage import damaged, reading

HEADER = struct.Struct("<4siqqqBi")  # fourcc, dim, rows, two unused, is_trained, metric
REPEAT_BYTES = 8  # of a repeat: its first row and itself, see `repeats`
INNER_PRODUCT = 0  # FAISS's METRIC_INNER_PRODUCT

_FOURCC = {  # of codes, in lists or not; RaBitQ has one for 1 bit and one for more
    "SQ": (b"IxSQ", b"IwSq"),
    "PQ": (b"", b"IwPQ"),
    "RaBitQ": (b"Ixrq", b"Iwrq"),
    "RaBitQ+": (b"Ixrr", b"Iwrr"),
    "PQx4fs": (b"IPfs", b"IwPf"),
    "RaBitQfs": (b"Irfn", b"Iwrn"),
}
_QUERY_BITS = 8  # of the tables that FAISS makes of a query for RaBitQfs
_SCALARS = {"SQ8": 0, "SQ4": 1, "SQfp16": 4, "SQ6": 6}  # FAISS's numbers of them


class FieldWalk:
    """A file of FAISS's, field by field.

    Args:
        path: place of the file, for messages.
        file: opened at its beginning.

    Raises:
        IndexFormatError: by each method, where the file holds something else or ends before.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self._file = file
        self._size = os.fstat(file.fileno()).st_size

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next fields."""
        data = self._file.read(layout.size)
        if len(data) < layout.size:
            raise damaged(self.path, f"it ends after {self._size:,} bytes")
        return layout.unpack(data)

    def header(self, known: bytes, dim: int, rows: int) -> None:
        """The fields at the start of every index."""
        found, found_dim, found_rows, _, _, trained, metric = self.fields(HEADER)
        if found != known:
            raise damaged(self.path, f"its FAISS type is {found!r}, not {known!r}")
        if (found_dim, found_rows) != (dim, rows):
            raise damaged(
                self.path, f"it holds {found_rows:,} rows of {found_dim:,} dimensions, not {rows:,} of {dim:,}"
            )
        if trained != 1 or metric != INNER_PRODUCT:
            raise damaged(self.path, "it is not an inner-product index that is ready to search")

    def expect(self, layout: str, *values: object) -> None:
        """Fields with fixed values."""
        at = self._file.tell()
        if self.fields(struct.Struct(f"<{layout}")) != values:
            raise damaged(self.path, f"what is at byte {at:,} is not what such an index has")

    def items(self, width: int, count: int | None = None) -> None:
        """Skip a list with a length prefix and items of `width` bytes; `count`: the required length."""
        (found,) = self.fields(struct.Struct("<Q"))
        if count is not None and found != count:
            raise damaged(self.path, f"a list in it has {found:,} items, not {count:,}")
        self.skip(width * found, f"the {found:,} items of a list in it")

    def numbers(self, most: int) -> Any:
        """A list of at most `most` 64-bit numbers, decoded."""
        (found,) = self.fields(struct.Struct("<Q"))
        if found > most or self._file.tell() + 8 * found > self._size:
            raise damaged(self.path, f"it ends before the {found:,} items of a list in it")
        return np.frombuffer(self._file.read(8 * found), "<u8")

    def end(self, bytes_before: int = 0) -> None:
        """Check that exactly `bytes_before` more bytes follow."""
        self.skip(bytes_before, "its rows")
        if self._file.tell() != self._size:
            raise damaged(self.path, f"{self._size - self._file.tell():,} bytes follow its end")

    def skip(self, count: int, what: str) -> None:
        """Skip so many bytes, of `what`."""
        if self._file.tell() + count > self._size:
            raise damaged(self.path, f"it ends before {what}")
        self._file.seek(count, os.SEEK_CUR)


@contextlib.contextmanager
def walking(path: Path) -> Iterator[FieldWalk]:
    """The file, opened for checking.

    Raises:
        IndexFormatError: it cannot be read.
    """
    with reading(path), path.open("rb") as file:
        yield FieldWalk(path, file)


def check_layout(path: Path, recipe: Recipe, dim: int, rows: int, repeats: int) -> None:
    """Check that an ann.faiss has the layout of a recipe, from the first byte to the last.

    Args:
        path: place of the file.
        recipe: recipe of the index.
        dim: width of the vectors.
        rows: number of rows of the segment.
        repeats: number of rows that the file lists as repeats at its end.

    Raises:
        IndexFormatError: it is not; the message says where it differs.
    """
    with walking(path) as walk:
        if recipe.links is not None:
            _graph(walk, dim, rows)
            walk.end(REPEAT_BYTES * repeats)
            return
        held = rows - repeats
        if not recipe.takes_selector:
            rows = held  # it lacks them, and its numbers are those of the rows that it has
        if recipe.rotate:
            walk.header(b"IxPT", dim, rows)
            walk.expect("i4sB", 1, b"rrot", 0)  # one rotation, without a bias
            walk.items(4, dim * dim)
            walk.items(4, 0)
            walk.expect("iiB", dim, dim, 1)
        if recipe.lists is None:
            _codes(walk, recipe, dim, rows)
        else:
            _lists(walk, recipe, recipe.lists, dim, rows, held)
        walk.end(REPEAT_BYTES * repeats)


def _graph(walk: FieldWalk, dim: int, rows: int) -> None:
    """Header, chances of levels, links up to each level, level and offset of each node, links; no vectors."""
    walk.header(b"IHNs", dim, rows)
    walk.items(8)
    walk.items(4)
    walk.items(4, rows)
    walk.items(8, rows + 1)
    walk.items(4)
    walk.fields(struct.Struct("<5i"))  # entry point, highest level, three settings of searches
    walk.expect("4s", b"null")


def _codes(walk: FieldWalk, recipe: Recipe, dim: int, rows: int) -> None:
    size = recipe.code_bytes(dim)
    walk.header(_FOURCC[_kind(recipe)][0], dim, rows)
    _coder(walk, recipe, dim)
    if recipe.in_registers:
        filled = -(-rows // BLOCK) * BLOCK
        if recipe.n_codes:
            walk.expect("iiiQQ", 0, BLOCK, 0, filled, _even_codes(recipe, dim))  # 0: FAISS's own choice of a search
        else:
            walk.items(4, dim)  # the centre
            walk.expect("BiQQQ", _QUERY_BITS, BLOCK, filled, _even_codes(recipe, dim), size)
        walk.items(1, filled * size)
        return
    walk.items(1, rows * size)
    if recipe.code.startswith("RaBitQ"):
        walk.items(4, dim)  # the centre
        walk.fields(struct.Struct("<B"))  # bits of a query


def _lists(walk: FieldWalk, recipe: Recipe, lists: int, dim: int, rows: int, held: int) -> None:
    size = recipe.code_bytes(dim)
    walk.header(_FOURCC[_kind(recipe)][1], dim, rows)
    walk.expect("Q", lists)
    walk.fields(struct.Struct("<Q"))  # the default number of lists that a search reads
    walk.header(b"IxFI", dim, lists)
    walk.items(4, dim * lists)
    walk.expect("BQ", 0, 0)  # no map from rows to lists
    if recipe.in_registers:
        _blocks(walk, recipe, lists, dim, held)
        return
    if recipe.code.startswith("PQ"):
        walk.fields(struct.Struct("<B"))  # whether codes are of differences to the list's centre
        walk.expect("Q", size)
        _coder(walk, recipe, dim)
    else:
        _coder(walk, recipe, dim)
        walk.expect("Q", size)
        walk.fields(struct.Struct("<B" if recipe.code.startswith("SQ") else "<BB"))
    walk.expect("4sQQ", b"ilar", lists, size)  # lists in this file, and in no other
    (kind,) = walk.fields(struct.Struct("<4s"))
    if kind == b"full":
        sizes = walk.numbers(lists)
    elif kind == b"sprs":  # number and size of those that are not empty
        numbers = walk.numbers(2 * lists)
        if len(numbers) % 2:
            raise damaged(walk.path, "a list in it has no size")
        sizes = numbers[1::2]
    else:
        raise damaged(walk.path, f"its lists are of the kind {kind!r}")
    if (sizes > held).any() or int(sizes.sum()) != held:
        raise damaged(walk.path, f"its lists do not hold {held:,} rows")
    walk.skip(held * (size + 8), "its rows")


def _blocks(walk: FieldWalk, recipe: Recipe, lists: int, dim: int, held: int) -> None:
    """Lists whose codes lie in blocks of rows: sizes of both, then for each list the numbers of its rows and blocks."""
    size, even = recipe.code_bytes(dim), _even_codes(recipe, dim)
    if recipe.n_codes:
        walk.expect("BQiQiQ", 0, size, BLOCK, even, 0, 0)  # codes of the vectors themselves
        _coder(walk, recipe, dim)
    else:
        _coder(walk, recipe, dim)
        walk.expect("BQiQQiBB", 1, size, BLOCK, 0, even, 0, _QUERY_BITS, 0)  # of differences to the list's centre
    walk.expect("4sQQQQ", b"ilbl", lists, 2**64 - 1, BLOCK, BLOCK * size)
    count = struct.Struct("<Q")
    for _ in range(lists):
        (found,) = walk.fields(count)
        if found > held:
            raise damaged(walk.path, f"a list in it has {found:,} rows of {held:,}")
        held -= found
        walk.skip(8 * found, "its rows")
        walk.items(1, -(-found // BLOCK) * BLOCK * size)
    if held:
        raise damaged(walk.path, f"its lists lack {held:,} rows")


def _coder(walk: FieldWalk, recipe: Recipe, dim: int) -> None:
    """The tables by which codes are read."""
    size = recipe.code_bytes(dim)
    if recipe.code.startswith("SQ"):
        walk.expect("i", _SCALARS[recipe.code])
        walk.fields(struct.Struct("<if"))  # how their range was found
        walk.expect("QQ", dim, size)
        walk.items(4, 0 if recipe.code == "SQfp16" else 2 * dim)
    elif recipe.n_codes:
        walk.expect("QQQ", dim, recipe.n_codes, recipe.entries.bit_length() - 1)
        walk.items(4, recipe.entries * dim)
    else:
        walk.expect("QQi", dim, size, INNER_PRODUCT)
        if _kind(recipe) != "RaBitQ":
            walk.expect("Q", int(recipe.code[6:].removesuffix("fs") or 1))


def _even_codes(recipe: Recipe, dim: int) -> int:
    """The codes of 4 bits of a row, filled up to whole bytes; RaBitQ's are of 4 numbers each."""
    codes = recipe.n_codes or -(-dim // 4)
    return codes + codes % 2


def _kind(recipe: Recipe) -> str:
    if recipe.in_registers:
        return "PQx4fs" if recipe.n_codes else "RaBitQfs"
    letters = recipe.code.removesuffix("fp16").rstrip("0123456789")
    return f"{letters}+" if recipe.code[6:] and letters == "RaBitQ" else letters
