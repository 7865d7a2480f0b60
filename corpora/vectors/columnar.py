"""Parquet, Arrow and Feather files of vectors, batch by batch.

    file -> record batches -> VectorBatch

The numbers of a column are taken as one array: none of them becomes a Python object. Each batch is validated before a
value is read: its offsets may be wrong. `fields` finds which column is what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.limits import check_growth
from ragidx.corpora.readers.fields import from_value
from ragidx.corpora.readers.records.columnar import column_values, open_table
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Scalar
from ragidx.corpora.vectors.batch import MAX_BYTES, MAX_ROWS, VectorRows, batch_rows, check_width, row_ids
from ragidx.corpora.vectors.fields import VectorColumns, is_text

Faults: TypeAlias = dict[int, str]  # row of a batch -> why it is skipped


def read_columns(file: SourceFile, vector_field: str | None, dim: int | None, *, named: bool) -> Iterator[VectorRows]:
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
    with open_table(file, MAX_ROWS, MAX_BYTES) as (schema, read, n_bytes):
        columns, rows = VectorColumns.choose(file, schema, vector_field), _Rows(file, dim, named)
        n_given = 0
        for batch, share in read(columns.names):
            for given in rows.batches(columns, batch, share):
                n_given += given.vectors.nbytes + sum(map(len, given.texts))
                check_growth(n_given, n_bytes, file.limits)
                yield given
            del batch  # before the next is read: one at a time is held
        if not rows.n_read:
            file.skip("holds no row")


def read_tables(tables: Iterable[Any], file: SourceFile, vector_field: str | None) -> Iterator[VectorRows]:
    """The rows of Arrow tables or record batches, as those of a file; `file` is their name and says how they are read.

    Raises:
        CorpusError: a column is missing or of another type, that of ids, too; or the vectors have another width.
    """
    rows, schema = _Rows(file, None, named=False), None
    for table in tables:
        if not table.num_rows:
            continue
        if table.schema != schema:
            columns, schema = VectorColumns.choose(file, table.schema, vector_field), table.schema
            if columns.id is None:
                names = ", ".join(f"'{name}'" for name in schema.names)
                hint = "rows of many tasks have no order to number them by: name one with `id_field`"
                raise CorpusError(f"there is no column of ids (found: {names})", hint, where=file.source.name)
        batches = table.select(columns.names).to_batches() if isinstance(table, pa.Table) else [table]
        for batch in batches:
            yield from rows.batches(columns, batch, 1.0)


class _Rows:
    """Record batches of one file into VectorBatches; broken rows are skipped."""

    def __init__(self, file: SourceFile, dim: int | None, named: bool) -> None:
        self.n_read = 0
        self._file, self._dim, self._named = file, dim, named
        self._is_checked = False

    def batches(self, columns: VectorColumns, batch: Any, share: float) -> Iterator[VectorRows]:
        """The rows of one record batch, in pieces of bounded size."""
        batch.validate(full=True)
        self._check_width(columns.vector, _storage(batch.column(columns.vector)))
        step = batch_rows(self._dim or 1)
        for start in range(0, batch.num_rows, step):
            piece = batch.slice(start, step)
            first, self.n_read = self.n_read, self.n_read + piece.num_rows
            found = self._piece(columns, piece, first, share)
            if found is not None:
                yield found

    def _check_width(self, name: str, vectors: Any) -> None:
        """A column of another width throughout is an error; single vectors of another width are broken rows."""
        usual = _usual_width(vectors)
        if self._is_checked or usual is None:
            return
        if self._dim is None or not pc.any(pc.equal(pc.list_value_length(vectors), self._dim)).as_py():
            check_width(usual, self._dim, f"the column '{name}'", self._file.source.name)
        self._dim = usual if self._dim is None else self._dim
        self._is_checked = True

    def _piece(self, columns: VectorColumns, piece: Any, first: int, share: float) -> VectorRows | None:
        faults: Faults = {}
        rows = np.arange(first, first + piece.num_rows)
        matrix = _matrix(_storage(piece.column(columns.vector)), self._dim or 1, faults)
        ids = row_ids(self._file, rows, named=self._named) if columns.id is None else _ids(piece.column(columns.id))
        faults |= {row: "the id is missing" for row, name in enumerate(ids) if not name and row not in faults}
        for row in sorted(faults):
            self._file.skip(faults[row], f"#{first + row}")
        texts = [""] * len(rows) if columns.text is None else _strings(piece.column(columns.text)).to_pylist()
        documents = None if columns.document is None else _ids(piece.column(columns.document))
        metadata = self._metadata(columns.metadata, piece, first)
        good = [row for row in range(len(rows)) if row not in faults]
        if not good:
            return None
        return VectorRows(
            file=self._file.source.name,
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
        values = column_values(self._file, name, column, first - 1)  # its reports count from 1
        kind = column.type
        if types.is_boolean(kind) or types.is_signed_integer(kind) or is_text(kind):
            return values
        for row, value in enumerate(values):
            try:
                values[row] = from_value(value)
            except ValueError as fault:
                self._file.skip(f"the field '{name}': {fault}", f"#{first + row}")
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
            faults[row] = f"the vector has another width: {width:,} dimensions, not {dim:,}"
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
