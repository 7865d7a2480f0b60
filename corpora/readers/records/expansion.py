"""How far a Parquet or Arrow file expands: batches in pieces of bounded bytes, and a sum that ends a bomb.

    record batch -> pieces of at most 16 MiB as Python values

A dictionary holds a long string once for a million rows, so rows say nothing about memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from ragidx.corpora.limits import MIB, RATIO_FROM_BYTES, Limits, UnreadableError
from ragidx.corpora.readers.records.parquet_pages import Column, declared_columns

PIECE_ROWS = 256
_PIECE_BYTES = 16 * MIB
_BATCH_BYTES = 64 * MIB  # of the longest values that a batch of Parquet can have
_ROW_BYTES = 64  # what a row takes that holds nothing


def check_growth(count: int, packed: int, limits: Limits) -> None:
    """Refuse bytes that are too many for the size of their file.

    Raises:
        UnreadableError: they are.
    """
    if count > RATIO_FROM_BYTES and count > limits.unpacked_ratio * packed:
        raise UnreadableError(f"expands to more than {limits.unpacked_ratio} times its size")


def bounded(batches: Iterator[Any], packed: int, limits: Limits) -> Iterator[Any]:
    """The batches of a file of `packed` bytes, validated, in pieces of bounded rows and bytes.

    Raises:
        UnreadableError: together they expand too far, or one row does.
        pyarrow.ArrowInvalid: a batch is damaged.
    """
    total = 0
    for batch in batches:
        batch.validate(full=True)
        for start in range(0, batch.num_rows, PIECE_ROWS):
            for piece, size in halved(batch.slice(start, PIECE_ROWS)):
                total += size + _ROW_BYTES * piece.num_rows
                check_growth(total, packed, limits)
                yield piece


@contextmanager
def open_parquet(path: Path, limits: Limits, **options: Any) -> Iterator[tuple[Any, int]]:
    """A pyarrow.ParquetFile, and how many rows its strings allow to read at once.

    Strings in lists are read as dictionaries: one row may have any number of them.

    Raises:
        UnreadableError: its pages have too many bytes for its size, or their headers are damaged.
        pyarrow.ArrowException, OSError: it is damaged.
    """
    metadata = pq.read_metadata(path)
    leaves = [metadata.schema.column(number) for number in range(len(metadata.schema))]
    with path.open("rb") as file:
        try:
            columns = declared_columns(file)
        except ValueError as fault:
            raise UnreadableError(f"damaged Parquet data: {fault}") from fault
    if len(columns) != len(leaves) and metadata.num_row_groups:
        raise UnreadableError("damaged Parquet data: its row groups have other columns than its schema")
    columns = columns or [Column(0, 0, 0)] * len(leaves)
    lists = [leaf.max_repetition_level > 0 for leaf in leaves]
    numbers = sum(column.values for column, is_list in zip(columns, lists, strict=True) if is_list)
    check_growth(max(sum(column.unpacked for column in columns), 8 * numbers), path.stat().st_size, limits)
    is_shared = [leaf.physical_type == "BYTE_ARRAY" and not leaf.max_repetition_level for leaf in leaves]
    longest = sum(column.longest for column, counts in zip(columns, is_shared, strict=True) if counts)
    strings = [leaf.path for leaf, is_list in zip(leaves, lists, strict=True) if is_list and _is_string(leaf)]
    options = {"buffer_size": MIB, "pre_buffer": False, **options}
    with pq.ParquetFile(path, metadata=metadata, read_dictionary=strings, **options) as parquet:
        yield parquet, max(1, _BATCH_BYTES // max(1, longest))


def _is_string(leaf: Any) -> bool:
    return leaf.logical_type.type in ("STRING", "ENUM", "JSON")


def halved(batch: Any) -> Iterator[tuple[Any, int]]:
    """Pieces that are small enough, each with its size; a single row is one however large it is."""
    size = sum(map(expanded_bytes, batch.columns))
    if size <= _PIECE_BYTES or batch.num_rows <= 1:
        yield batch, size
        return
    half = batch.num_rows // 2
    yield from halved(batch.slice(0, half))
    yield from halved(batch.slice(half))


def expanded_bytes(array: Any) -> int:
    """The bytes of an array whose dictionaries are written out."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return expanded_bytes(array.storage)
    if types.is_string_view(kind):  # Arrow counts their bytes in no other form
        array = array.dictionary_encode().cast(pa.dictionary(pa.int32(), pa.large_string()))
    if types.is_dictionary(array.type):
        return _dictionary_bytes(array)
    parts = _parts(array)
    return int(array.nbytes) if parts is None else 4 * len(array) + sum(map(expanded_bytes, parts))


def _dictionary_bytes(array: Any) -> int:
    """Every value of a row counts, however often it is there."""
    kind = array.type.value_type
    if not (types.is_string(kind) or types.is_large_string(kind)):
        return expanded_bytes(array.dictionary) * max(1, len(array))
    lengths = pc.binary_length(array.dictionary).cast(pa.int64())
    return 4 * len(array) + (pc.sum(lengths.take(array.indices)).as_py() or 0)


def _parts(array: Any) -> list[Any] | None:
    """The arrays that a nested one is made of; None for any other."""
    kind = array.type
    if types.is_map(kind):
        first, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return [part.slice(first, end - first) for part in (array.keys, array.items)]
    if types.is_struct(kind):
        return list(array.flatten())
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return [array.flatten()] if is_list else None
