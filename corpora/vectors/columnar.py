"""Parquet, Arrow and Feather files of vectors, batch by batch.

    file -> record batches -> VectorBatch

The numbers of a column are taken as one array: none of them becomes a Python object. Each batch is validated before a
value is read: its offsets may be wrong. `fields` finds which column is what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import types

from ragidx.corpora.errors import first_line
from ragidx.corpora.limits import UnreadableError, check_growth
from ragidx.corpora.readers.fields import from_value
from ragidx.corpora.readers.records.columnar import PARQUET, column_values, open_arrow
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Scalar
from ragidx.corpora.vectors.batch import VectorBatch, batch_rows, check_width, row_ids
from ragidx.corpora.vectors.fields import VectorColumns, is_text

Faults: TypeAlias = dict[int, str]  # row of a batch -> why it is skipped

_PEEK_ROWS = 64


def read_columns(file: SourceFile, vector_field: str | None, dim: int | None, *, named: bool) -> Iterator[VectorBatch]:
    """The rows of a file.

    Args:
        file: parquet, or an Arrow IPC file or stream.
        vector_field: the column of vectors; None: the first of VECTOR_FIELDS, else the only one there is.
        dim: the width that the vectors must have; None: the width of most of the first rows.
        named: whether ids that are row numbers have the file's name in front.

    Raises:
        UnreadableError: the file is damaged.
        CorpusError: a column is missing or of another type, or its vectors have another width.
    """
    is_parquet = file.ending == ".parquet"
    reader = _parquet if is_parquet else _arrow
    try:
        with file.path() as path:
            n_bytes = 0
            for batch in reader(path, vector_field, _Rows(file, dim, named)):
                n_bytes += batch.vectors.nbytes + sum(map(len, batch.texts))
                check_growth(n_bytes, path.stat().st_size, file.limits)
                yield batch
    except (pa.ArrowException, OSError, UnicodeDecodeError) as fault:
        if isinstance(fault, OSError) and fault.errno is not None:
            raise
        kind = "Parquet" if is_parquet else "Arrow"
        raise UnreadableError(f"damaged {kind} data: {first_line(fault)}") from fault


def _parquet(path: Path, vector_field: str | None, rows: _Rows) -> Iterator[VectorBatch]:
    with pq.ParquetFile(path, page_checksum_verification=True, **PARQUET) as parquet:
        columns = VectorColumns.choose(rows.file, parquet.metadata.schema.to_arrow_schema(), vector_field)
        width = _parquet_width(parquet, columns.vector)
        size = _PEEK_ROWS if width is None else batch_rows(width)
        total = parquet.metadata.num_rows
        for batch in parquet.iter_batches(batch_size=size, columns=columns.names, use_threads=False):
            yield from rows.batches(columns, batch, min(1.0, (rows.n_read + batch.num_rows) / max(1, total)))
        rows.end()


def _parquet_width(parquet: Any, name: str) -> int | None:
    """The width of most of the first vectors, before many are read at once; None if there are no vectors."""
    first = next(parquet.iter_batches(batch_size=_PEEK_ROWS, columns=[name], use_threads=False), None)
    if first is None:
        return None
    first.validate(full=True)
    return _usual_width(_storage(first.column(0)))


def _arrow(path: Path, vector_field: str | None, rows: _Rows) -> Iterator[VectorBatch]:
    with open_arrow(path) as (schema, batches):
        columns = VectorColumns.choose(rows.file, schema, vector_field)
        for batch, share in batches:
            yield from rows.batches(columns, batch.select(columns.names), share)
            del batch  # before the next is read: one at a time is held
        rows.end()


class _Rows:
    """Record batches of one file into VectorBatches; broken rows are skipped."""

    def __init__(self, file: SourceFile, dim: int | None, named: bool) -> None:
        self.n_read = 0
        self.file = file
        self._dim, self._named = dim, named
        self._is_checked = False

    def batches(self, columns: VectorColumns, batch: Any, share: float) -> Iterator[VectorBatch]:
        """The rows of one record batch, in pieces of bounded size."""
        batch.validate(full=True)
        self._check_width(columns.vector, _storage(batch.column(columns.vector)))
        step = batch_rows(self._dim) if self._dim else _PEEK_ROWS
        for start in range(0, batch.num_rows, step):
            piece = batch.slice(start, step)
            first, self.n_read = self.n_read, self.n_read + piece.num_rows
            found = self._piece(columns, piece, first, share)
            if found is not None:
                yield found

    def end(self) -> None:
        """After the last batch."""
        if not self.n_read:
            self.file.skip("holds no row")

    def _check_width(self, name: str, vectors: Any) -> None:
        """A column of another width throughout is an error; single vectors of another width are broken rows."""
        usual = _usual_width(vectors)
        if self._is_checked or usual is None:
            return
        if self._dim is None or not pc.any(pc.equal(pc.list_value_length(vectors), self._dim)).as_py():
            check_width(usual, self._dim, f"the column '{name}'", self.file.source.name)
        self._dim = usual if self._dim is None else self._dim
        self._is_checked = True

    def _piece(self, columns: VectorColumns, piece: Any, first: int, share: float) -> VectorBatch | None:
        faults: Faults = {}
        rows = np.arange(first, first + piece.num_rows)
        matrix = _matrix(_storage(piece.column(columns.vector)), self._dim or 1, faults)
        ids = row_ids(self.file, rows, named=self._named) if columns.id is None else _ids(piece.column(columns.id))
        faults |= {row: "the id is missing" for row, name in enumerate(ids) if not name and row not in faults}
        for row in sorted(faults):
            self.file.skip(faults[row], f"#{first + row}")
        texts = [""] * len(rows) if columns.text is None else _strings(piece.column(columns.text)).to_pylist()
        documents = None if columns.document is None else _ids(piece.column(columns.document))
        metadata = self._metadata(columns.metadata, piece, first)
        good = [row for row in range(len(rows)) if row not in faults]
        if not good:
            return None
        return VectorBatch(
            file=self.file.source.name,
            rows=rows[good],
            ids=[ids[row] for row in good],
            vectors=matrix[good] if faults else matrix,
            texts=[texts[row] for row in good],
            doc_ids=documents and [documents[row] or ids[row] for row in good],
            metadata=[metadata[row] for row in good],
            share=share,
        )

    def _metadata(self, names: Sequence[str], piece: Any, first: int) -> list[dict[str, Scalar]]:
        if not names:
            return [{}] * piece.num_rows
        columns = [self._scalars(name, piece.column(name), first) for name in names]
        return [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in zip(*columns, strict=True)
        ]

    def _scalars(self, name: str, column: Any, first: int) -> list[Any]:
        """One value a row; what cannot be kept is skipped. Simple types need no conversion."""
        values = column_values(self.file, name, column, first - 1)  # its reports count from 1
        kind = column.type
        if types.is_boolean(kind) or types.is_signed_integer(kind) or is_text(kind):
            return values
        for row, value in enumerate(values):
            try:
                values[row] = from_value(value)
            except ValueError as fault:
                self.file.skip(f"the field '{name}': {fault}", f"#{first + row}")
                values[row] = None
        return values


def _storage(column: Any) -> Any:
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def _usual_width(vectors: Any) -> int | None:
    """The most frequent width, the smallest of several; None if there is no vector."""
    found = pc.mode(pc.list_value_length(vectors))
    return found[0]["mode"].as_py() if len(found) else None


def _matrix(vectors: Any, dim: int, faults: Faults) -> NDArray[Any]:
    """(rows, dim) of a column of lists, in new memory; broken rows are zero and noted in `faults`."""
    widths = pc.list_value_length(vectors).to_pylist()
    for row, width in enumerate(widths):
        if width is None:
            faults[row] = "the vector is missing"
        elif width != dim:
            faults[row] = f"the vector has another width: {width:,} numbers, not {dim:,}"
    whole = np.array([row for row in range(len(widths)) if row not in faults], np.int64)
    flat = (vectors.take(pa.array(whole)) if faults else vectors).flatten()
    numbers = flat.to_numpy(zero_copy_only=False)
    matrix = np.zeros((len(widths), dim), numbers.dtype)
    matrix[whole] = numbers.reshape(len(whole), dim)
    if flat.null_count:
        holes = flat.is_null().to_numpy(zero_copy_only=False).reshape(len(whole), dim).any(axis=1)
        faults |= dict.fromkeys(whole[holes].tolist(), "a number of the vector is missing")
    return matrix


def _strings(column: Any) -> Any:
    """A column as an Arrow array of texts, "" if missing."""
    column = _storage(column)
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_string()).fill_null("")


def _ids(column: Any) -> list[str]:
    """Ids in Unicode form NFC, as those of documents are; "" if missing."""
    ids: list[str] = pc.utf8_normalize(_strings(column), form="NFC").to_pylist()
    return ids
