"""Parquet, Arrow and Feather: one record a row, batch by batch.

    file -> record batches -> Documents; dates as ISO text, decimals as float, lists but those of strings as JSON text

Columns of bytes and other types that metadata cannot hold are skipped and reported once. Each batch of an Arrow file
is validated before a value is read: its offsets may be wrong. Which field is the text is not known here.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from ragidx.corpora.errors import first_line
from ragidx.corpora.limits import MIB, UnreadableError, check_growth
from ragidx.corpora.readers.records.documents import Record, check_chosen, record_documents
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document

Read: TypeAlias = Callable[[list[str]], Iterator[tuple[Any, float]]]
"""Columns -> record batches of them, each with the share of the file that is read after it, 0 to 1."""

_FILE_MARK, _FEATHER_1_MARK = b"ARROW1", b"FEA1"
_PIECE_ROWS, _PIECE_BYTES = 256, 16 * MIB  # that are Python values at once


def read_columns(file: SourceFile) -> Iterator[Document]:
    """One Document a row, in the order of the file."""
    with open_table(file, _PIECE_ROWS, _PIECE_BYTES) as (schema, read, n_bytes):
        names = kept_columns(file, schema)
        check_chosen(names, file.fields.text)
        n_chars = 0
        for document in record_documents(file, _records(file, read(names), names)):
            n_chars += len(document.text)
            check_growth(n_chars, n_bytes, file.limits)
            yield document


@contextmanager
def open_table(file: SourceFile, most_rows: int, most_bytes: int) -> Iterator[tuple[Any, Read, int]]:
    """The schema of a file, what reads its columns, and its size in bytes. No batch is validated.

    Args:
        file: Parquet, or an Arrow IPC file or stream; Feather is the same.
        most_rows: most rows of a batch of Parquet; a batch of Arrow has the size that it was written with.
        most_bytes: most bytes of a batch of Parquet, about.

    Raises:
        UnreadableError: the file is damaged.
        OSError: the system cannot read it.
    """
    is_parquet = file.ending == ".parquet"
    try:
        with file.path() as path:
            opened = open_parquet(path, most_rows, most_bytes) if is_parquet else open_arrow(path)
            with opened as (schema, read):
                yield schema, read, path.stat().st_size
    except (pa.ArrowException, OSError, UnicodeDecodeError) as fault:
        if isinstance(fault, OSError) and fault.errno is not None:
            raise
        kind = "Parquet" if is_parquet else "Arrow"
        raise UnreadableError(f"damaged {kind} data: {first_line(fault)}") from fault


@contextmanager
def open_parquet(path: Path, most_rows: int, most_bytes: int) -> Iterator[tuple[Any, Read]]:
    """As `open_table`, of a Parquet file; what the libraries raise is not changed."""
    with pq.ParquetFile(path, buffer_size=MIB, pre_buffer=False, page_checksum_verification=True) as parquet:
        n_rows, groups = parquet.metadata.num_rows, map(parquet.metadata.row_group, range(parquet.num_row_groups))
        size = _piece_rows(n_rows, sum(group.total_byte_size for group in groups), most_rows, most_bytes)

        def read(names: list[str]) -> Iterator[tuple[Any, float]]:
            n_read = 0
            for batch in parquet.iter_batches(batch_size=size, columns=names, use_threads=False):
                n_read += batch.num_rows
                yield batch, min(1.0, n_read / max(1, n_rows))

        yield parquet.metadata.schema.to_arrow_schema(), read


@contextmanager
def open_arrow(path: Path) -> Iterator[tuple[Any, Read]]:
    """As `open_table`, of an Arrow IPC file or stream; what the libraries raise is not changed."""
    with pa.OSFile(str(path)) as file:
        size, mark = file.size(), file.read(len(_FILE_MARK))
        file.seek(0)
        if mark.startswith(_FEATHER_1_MARK):
            raise UnreadableError("Feather version 1: write it again as version 2")
        if mark == _FILE_MARK:
            reader = pa.ipc.open_file(file)
            batches = map(reader.get_batch, range(reader.num_record_batches))
            shares = (number / reader.num_record_batches for number in itertools.count(1))
        else:
            reader = batches = pa.ipc.open_stream(file)
            shares = (file.tell() / size for _ in itertools.count())

        def read(names: list[str]) -> Iterator[tuple[Any, float]]:
            for batch in batches:
                yield batch.select(names), next(shares)
                del batch  # before the next is read: one at a time is held

        yield reader.schema, read


def _piece_rows(n_rows: int, n_bytes: int, most_rows: int, most_bytes: int) -> int:
    """How many of the rows, which have so many bytes in all, are taken at once."""
    return max(1, min(most_rows, most_bytes * n_rows // max(1, n_bytes)))


def _records(file: SourceFile, batches: Iterator[tuple[Any, float]], names: list[str]) -> Iterator[Record]:
    number = 0
    for batch, _ in batches:
        batch.validate(full=True)
        step = _piece_rows(batch.num_rows, batch.nbytes, _PIECE_ROWS, _PIECE_BYTES)
        for start in range(0, batch.num_rows, step):
            piece = batch.slice(start, step)
            columns = [column_values(file, name, piece.column(place), number) for place, name in enumerate(names)]
            for row in zip(*columns, strict=True):
                number += 1
                yield Record(number, dict(zip(names, row, strict=True)))


def kept_columns(file: SourceFile, schema: Any) -> list[str]:
    """The columns that can be text, id or metadata; the others are skipped."""
    names: list[str] = []
    kinds = dict(zip(schema.names, schema.types, strict=True))
    for name, count in Counter(schema.names).items():
        kind = kinds[name]
        if count > 1:
            file.skip(f"column '{name}': {count} have this name")
        elif not _is_kept(kind):
            file.skip(f"column '{name}': type {kind}")
        else:
            names.append(name)
    return names


def _is_kept(kind: Any) -> bool:
    if types.is_dictionary(kind):
        return _is_kept(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _is_kept(kind.storage_type)
    if types.is_nested(kind) and not (types.is_union(kind) or types.is_run_end_encoded(kind)):
        return all(_is_kept(kind.field(number).type) for number in range(kind.num_fields))
    tests = (
        *(types.is_null, types.is_boolean, types.is_integer, types.is_floating, types.is_decimal),
        *(types.is_string, types.is_large_string, types.is_string_view),
        *(types.is_date, types.is_time, types.is_timestamp),
    )
    return any(test(kind) for test in tests)


def column_values(file: SourceFile, name: str, column: Any, before: int) -> list[object]:
    """A column as Python values; `before`: rows of the file above it. Values out of Python's range are skipped."""
    try:
        return _python_values(column)
    except (ValueError, OverflowError):
        values: list[object] = []
        for row in range(len(column)):
            try:
                values += _python_values(column.slice(row, 1))
            except (ValueError, OverflowError):
                file.skip(f"the field '{name}': out of range", f"#{before + row + 1}")
                values.append(None)
        return values


def _python_values(column: Any) -> list[object]:
    """Missing numbers are often written as NaN: they become None."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if types.is_timestamp(column.type):
        # Nanoseconds have no Python type, and a zone may not be known on this machine: microseconds, in UTC.
        zone = None if column.type.tz is None else datetime.UTC
        column = column.cast(pa.int64()).cast(pa.timestamp(column.type.unit)).cast(pa.timestamp("us"), safe=False)
        return [None if value is None else value.replace(tzinfo=zone) for value in column.to_pylist()]
    if types.is_time64(column.type):
        column = column.cast(pa.time64("us"), safe=False)
    values: list[object] = column.to_pylist()
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]
