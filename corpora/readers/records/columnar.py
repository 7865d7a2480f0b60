"""Parquet, Arrow and Feather: one record a row, batch by batch.

    file -> record batches -> Documents; dates as ISO text, decimals as float, lists but those of strings as JSON text

Columns of bytes and other types that metadata cannot hold are skipped and reported once. Each batch of an Arrow file
is validated before a value is read: its offsets may be wrong. Which field is the text is not known here.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from ragidx.corpora.errors import first_line
from ragidx.corpora.limits import MIB, UnreadableError, check_growth
from ragidx.corpora.readers.fields import from_value
from ragidx.corpora.readers.records.documents import Record, check_chosen, record_documents
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document

PARQUET = {"buffer_size": MIB, "pre_buffer": False}
"""How a file of Parquet is opened: it is read in small parts."""

_FILE_MARK, _FEATHER_1_MARK = b"ARROW1", b"FEA1"
_PIECE_ROWS, _PIECE_BYTES = 256, 16 * MIB  # that are Python values at once


def read_parquet(file: SourceFile) -> Iterator[Document]:
    """One Document a row, row group by row group."""
    with file.path() as path:
        try:
            with pq.ParquetFile(path, **PARQUET) as parquet:
                names = kept_columns(file, parquet.metadata.schema.to_arrow_schema())
                groups = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
                step = _piece_rows(parquet.metadata.num_rows, sum(group.total_byte_size for group in groups))
                batches = parquet.iter_batches(batch_size=step, columns=names, use_threads=False)
                yield from _documents(file, names, batches, path.stat().st_size)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as fault:
            raise UnreadableError(f"damaged Parquet data: {first_line(fault)}") from fault


def read_arrow(file: SourceFile) -> Iterator[Document]:
    """One Document a row of an Arrow IPC file or stream; Feather is the same."""
    with file.path() as path:
        try:
            with open_arrow(path) as (schema, batches):
                names = kept_columns(file, schema)
                yield from _documents(file, names, (batch.select(names) for batch, _ in batches), path.stat().st_size)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as fault:
            raise UnreadableError(f"damaged Arrow data: {first_line(fault)}") from fault


def _documents(file: SourceFile, names: list[str], batches: Iterator[Any], n_bytes: int) -> Iterator[Document]:
    check_chosen(names, file.fields.text)
    n_chars = 0
    for document in record_documents(file, _records(file, batches, names), from_value):
        n_chars += len(document.text)
        check_growth(n_chars, n_bytes, file.limits)
        yield document


def _piece_rows(n_rows: int, n_bytes: int) -> int:
    return max(1, min(_PIECE_ROWS, _PIECE_BYTES * n_rows // max(1, n_bytes)))


def _records(file: SourceFile, batches: Iterator[Any], names: list[str]) -> Iterator[Record]:
    number = 0
    for batch in batches:
        batch.validate(full=True)
        step = _piece_rows(batch.num_rows, batch.nbytes)
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
    if types.is_map(kind):
        return _is_kept(kind.key_type) and _is_kept(kind.item_type)
    if types.is_struct(kind):
        return all(_is_kept(kind.field(i).type) for i in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _is_kept(kind.value_type)
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


@contextmanager
def open_arrow(path: Path) -> Iterator[tuple[Any, Iterator[tuple[Any, float]]]]:
    """The schema of an Arrow IPC file or stream, and its record batches with the share of the file behind each, 0 to 1.

    Raises:
        UnreadableError: it is a Feather file of version 1.
        pyarrow.ArrowException, OSError: it is damaged, or ends before a record batch does.
    """
    with pa.OSFile(str(path)) as file:
        size, mark = file.size(), file.read(len(_FILE_MARK))
        file.seek(0)
        if mark.startswith(_FEATHER_1_MARK):
            raise UnreadableError("Feather version 1: write it again as version 2")
        if mark == _FILE_MARK:
            reader = pa.ipc.open_file(file)
            count = reader.num_record_batches
            yield reader.schema, ((reader.get_batch(i), (i + 1) / count) for i in range(count))
        else:
            reader = pa.ipc.open_stream(file)
            yield reader.schema, _streamed(reader, file, size)


def _streamed(reader: Any, file: Any, size: int) -> Iterator[tuple[Any, float]]:
    for batch in reader:
        yield batch, file.tell() / size
        del batch  # before the next is read: one at a time is held
