"""Rows and their Arrow columns: the content of `chunks.arrow`, and the types of metadata.

    chunk_id, doc_id, text, heading    large_string
    start, end                         int64, characters of the document, end excluded
    text_hash, doc_hash                fixed_size_binary(16): of what was encoded; of the document as it was read
    owner                              int32, the number of the document's source in the list of sources; 0: a program,
                                       or precomputed vectors
    line, page                         int32, of the first character in its file, from 1; null where there is none
    turns                              list of (offset, page, line): where in `text` these change; null where its
                                       newlines say so, and the page stays
    whole                              large_string: of a program's document, the document as JSON in its first row and
                                       empty in the others; null where the document comes from a source
    gaps                               large_string: in the first row of a document from a source, what of its text is
                                       in no chunk (`ragidx.corpora.whole_documents`); null where line ends are all, and
                                       elsewhere
    metadata                           large_string: the metadata as JSON (`ragidx.corpora.whole_documents`), where the
                                       columns meta.* do not say all of them exactly; null elsewhere
    meta.<field>                       bool, int64, double, large_string, large_list<large_string>, timestamp[us] (UTC);
                                       null where a document lacks the field; one column for each kind of its values

A field whose values differ in type is read in the type that holds all: int as double, anything else as string (true,
12, 1.5, as Arrow prints; a list as JSON, a time in ISO form).
An integer past 64 bits is a string. So conditions read them; single rows have the values as they were given.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragidx.corpora.errors import CorpusError, an, lone_surrogate
from ragidx.corpora.records import Chunk, Place, Scalar, as_text, plain
from ragidx.corpora.whole_documents import metadata_from_text, metadata_to_text
from ragidx.indexer.arrays import compute, numbers_of

Schema: TypeAlias = Mapping[str, str]
"""Metadata field -> one of KINDS."""

FieldKind: TypeAlias = tuple[str, str]
"""A metadata field, and the kind of some of its values: one column of `chunks.arrow`."""

META = "meta."
_WHOLE = "metadata"
NORM_TOLERANCE = 1e-3
_PYTHON_KINDS = {bool: "bool", int: "int", float: "float", str: "string", datetime.datetime: "timestamp", list: "list"}

_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999  # microseconds, of the years 1 and 9999

KINDS = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "string": pa.large_string(),
    "list": pa.large_list(pa.large_string()),
    "timestamp": pa.timestamp("us"),  # in UTC; a type with a zone needs the machine's table of zones to be read
}

FIXED = pa.schema(
    [
        pa.field("chunk_id", pa.large_string(), nullable=False),
        pa.field("doc_id", pa.large_string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("heading", pa.large_string(), nullable=False),
        pa.field("text_hash", pa.binary(16), nullable=False),
        pa.field("doc_hash", pa.binary(16), nullable=False),
        pa.field("owner", pa.int32(), nullable=False),
    ]
)


TURNS = pa.list_(pa.list_(pa.int32(), 3))
NULLABLE = pa.schema(
    [
        *(pa.field("line", pa.int32()), pa.field("page", pa.int32()), pa.field("turns", TURNS)),
        pa.field("whole", pa.large_string()),
        pa.field("gaps", pa.large_string()),
        pa.field("metadata", pa.large_string()),
    ]
)
COLUMNS = pa.schema([*FIXED, *NULLABLE])
_FILLED = frozenset(FIXED.names)


@dataclass(frozen=True, slots=True)
class Row:
    """One chunk as the index keeps it.

    Args:
        metadata: values by name as they were given; a None is kept where `fields` are given.
        fields: what conditions see of the metadata (`fields_of`), where that is something else.
    """

    chunk_id: str
    doc_id: str
    start: int
    end: int
    text: str
    heading: str
    text_hash: bytes
    doc_hash: bytes
    metadata: Mapping[str, Any] = field(default_factory=dict)
    line: int | None = None
    page: int | None = None
    turns: tuple[Place, ...] | None = None
    whole: str | None = None
    gaps: str | None = None
    owner: int = 0
    fields: Mapping[str, Scalar] | None = None

    @property
    def seen(self) -> Mapping[str, Scalar]:
        """What conditions see of the metadata."""
        return self.metadata if self.fields is None else self.fields

    @property
    def chunk(self) -> Chunk:
        """What is encoded of it."""
        return chunk_of(self.doc_id, self.start, self.end, self.text, self.heading, self.text_hash)


def chunk_of(doc_id: str, start: int, end: int, text: str, heading: str, text_hash: bytes) -> Chunk:
    """The chunk of a row: the hash is of what was encoded, so it says whether that was the text alone."""
    from ragidx.indexer.digests import digest  # opening an index and searching it need none

    return Chunk(doc_id, start, end, text, heading, bare=text_hash == digest(text))


def kind_of(value: Scalar) -> str | None:
    """The kind of one metadata value; None for a null.

    Raises:
        TypeError: the value is neither a scalar nor a list of strings, or not a finite number, which JSON has not.
    """
    if value is None:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"{value} is not a finite number")
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return "string"
    kind = _PYTHON_KINDS.get(type(value)) or next((k for t, k in _PYTHON_KINDS.items() if isinstance(value, t)), None)
    if kind is not None and (kind != "list" or all(isinstance(item, str) for item in value)):  # type: ignore[union-attr]  # a list
        return kind
    raise TypeError(f"metadata value {value!r} is {an(type(value).__name__)}, not text, a number or a list of texts")


def true_places(mask: Any) -> NDArray[np.uint64]:
    """Where an Arrow array of booleans is true."""
    return numbers_of(compute("indices_nonzero", mask), "<u8")


def places_of(numbers: NDArray[np.integer]) -> Any:
    """Row numbers as Arrow's `take` wants them; `pyarrow.array` would import pandas, where that is installed."""
    return pa.Int64Array.from_buffers(
        pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers, np.int64))]
    )


def widen(one: str, other: str) -> str:
    """The narrowest kind that holds the values of both.

    >>> widen("int", "float"), widen("list", "string"), widen("int", "int")
    ('float', 'string', 'int')
    """
    if one == other:
        return one
    return "float" if {one, other} == {"int", "float"} else "string"


def union(*schemas: Schema) -> dict[str, str]:
    """All fields of the schemas, each in the narrowest kind that holds it everywhere."""
    kinds: dict[str, str] = {}
    for schema in schemas:
        for name, kind in schema.items():
            kinds[name] = widen(kinds[name], kind) if name in kinds else kind
    return kinds


def fits(column: Any) -> bool:
    """Whether a column of `chunks.arrow` is one of those that a segment may have."""
    if column.name in COLUMNS.names:
        return bool(column.type == COLUMNS.field(column.name).type)
    return field_kind(column) is not None


def field_kind(column: Any) -> FieldKind | None:
    """What a column of metadata holds; None: it is none."""
    kind = kind_of_type(column.type)
    return None if kind is None or not column.name.startswith(META) else (column.name.removeprefix(META), kind)


def schema_of(kinds: Iterable[FieldKind]) -> dict[str, str]:
    """The fields, each in the narrowest kind that holds all of its values."""
    return union(*({name: kind} for name, kind in kinds))


def kinds_of(rows: Iterable[Row]) -> set[FieldKind]:
    """The kinds of the values of some rows."""
    values = itertools.chain.from_iterable(row.seen.items() for row in rows)
    return {(name, kind) for name, value in values if (kind := kind_of(value)) is not None}


def kind_of_type(arrow_type: Any) -> str | None:
    """The kind whose Arrow type this is; None if there is none."""
    return next((kind for kind, known in KINDS.items() if known == arrow_type), None)


def is_readable(array: Any) -> bool:
    """Whether Python has room for all values of a metadata column: its years are 1 to 9999."""
    if array.type != KINDS["timestamp"]:
        return True
    numbers = numbers_of(array, "<i8")
    if numbers.min(initial=_FIRST_TIME) >= _FIRST_TIME and numbers.max(initial=_LAST_TIME) <= _LAST_TIME:
        return True
    ends = compute("min_max", array.view(pa.int64())).as_py()  # what is under a null may be anything
    return ends["min"] is None or (ends["min"] >= _FIRST_TIME and ends["max"] <= _LAST_TIME)


def finite(array: Any) -> Any:
    """A metadata column; null where it has a number that is not finite, which earlier versions took from programs."""
    if array.type != KINDS["float"] or np.isfinite(numbers_of(array, "<f8")).all():
        return array
    return compute("if_else", compute("is_finite", array), array, pa.scalar(None, array.type))


def by_name_and_kind(batch: Any) -> dict[str, dict[str, Any]]:
    """The columns of a record batch: of metadata by their kinds, the others alone.

    Raises:
        ValueError: they are none of a segment.
    """
    columns: dict[str, dict[str, Any]] = {}
    for column, values in zip(batch.schema, batch.columns, strict=True):
        if column.name in _FILLED and values.null_count:
            raise ValueError("it has empty cells in a column that has none")
        if not is_readable(values):
            raise ValueError(f"the column {column.name!r} holds a time that is out of range")
        kind = (field_kind(column) or ("", ""))[1]
        columns.setdefault(column.name, {})[kind] = finite(values)
    return columns


def read_as(columns: Mapping[str, Any], wanted: Any, rows: int) -> Any:
    """A column of one type, of those that are stored under its name, by their kinds; null where none says more."""
    kind = kind_of_type(wanted) or ""
    parts = list(columns.values())
    if any(own for own in columns):  # of metadata
        parts = [convert(one, kind) for own, one in columns.items() if widen(own, kind) == kind]
    return compute("coalesce", *parts) if len(parts) > 1 else parts[0] if parts else pa.nulls(rows, wanted)


def convert(array: Any, kind: str) -> Any:
    """An Arrow array or chunked array of a narrower kind as one of `kind`."""
    if array.type == KINDS[kind]:
        return array
    known = kind_of_type(array.type)
    if known == "list":
        return pa.array([None if value is None else as_text(value) for value in array.to_pylist()], KINDS[kind])
    if known == "timestamp":
        return pa.array(
            [None if value is None else _in_utc(value).isoformat() for value in array.to_pylist()], KINDS[kind]
        )
    return array.cast(KINDS[kind], safe=False)


def arrays_of(rows: Sequence[Row]) -> tuple[list[Any], dict[FieldKind, Any]]:
    """The columns of COLUMNS for some rows, and one for each kind of the values that a field has in them.

    Raises:
        CorpusError: a string cannot be written as UTF-8.
    """
    names = dict.fromkeys(itertools.chain.from_iterable(row.seen for row in rows))
    cells = {name: [getattr(row, name) for row in rows] for name in COLUMNS.names} | {_WHOLE: _written(rows)}
    try:
        fixed = [pa.array(cells[column.name], column.type) for column in COLUMNS]
        arrays = {name: _metadata_arrays([row.seen.get(name) for row in rows]) for name in names}
    except UnicodeEncodeError as fault:
        raise _not_unicode(rows) from fault
    return fixed, {(name, kind): array for name, found in arrays.items() for kind, array in found.items()}


class RowBatch:
    """A record batch with all columns, of which single rows are read: those of COLUMNS, then those of metadata."""

    def __init__(self, batch: Any, fields: Sequence[FieldKind]) -> None:
        self._columns = [None if column.null_count == len(column) else column for column in batch.columns]
        self._fields, self.nbytes = fields, batch.nbytes

    def row(self, place: int) -> StoredRow:
        """One of its rows."""
        cells = [None if column is None else column[place].as_py() for column in self._columns]
        return StoredRow(cells, self._fields)


class StoredRow:
    """A row as Python has it: rows that are made of it share nothing that can change.

    Args:
        cells: what Arrow gives for each column: those of COLUMNS, then of the columns of metadata.
        fields: the columns of metadata, in the order of their cells.
    """

    def __init__(self, cells: Sequence[Any], fields: Sequence[FieldKind]) -> None:
        *self._first, owner, line, page, turns, whole, gaps, self._written = cells[: len(COLUMNS)]
        self._rest = line, page, turns_of(turns), whole, gaps, owner
        values = zip(fields, cells[len(COLUMNS) :], strict=True)
        self._seen = {name: _value(value) for (name, _), value in values if value is not None}
        self._lists = {name: value for name, value in self._seen.items() if isinstance(value, list)}
        self.nbytes = 1000 + sum(map(sys.getsizeof, cells))

    def row(self) -> Row:
        """The row.

        Raises:
            ValueError: what says its metadata is no JSON object.
        """
        seen = self._seen.copy()
        for name, value in self._lists.items():
            seen[name] = value.copy()
        metadata, told = (seen, None) if self._written is None else (metadata_from_text(self._written), seen)
        values: list[Any] = [*self._first, metadata, *self._rest, told]
        return Row(*values)


def turns_of(stored: Sequence[Sequence[Any]] | None) -> tuple[Place, ...] | None:
    """The places of what Arrow gives."""
    return None if stored is None else tuple(Place(*turn) for turn in stored)


def _written(rows: Iterable[Row]) -> list[str | None]:
    """The metadata of rows as JSON, where columns do not say all of them. Chunks of a document share theirs."""
    found, last, text = list[str | None](), None, ""
    for row in rows:
        if row.fields is not None and row.metadata is not last:
            last, text = row.metadata, metadata_to_text(row.metadata)
        found.append(None if row.fields is None else text)
    return found


def _value(stored: Any) -> Scalar:
    """The metadata value of what Arrow gives."""
    if isinstance(stored, list):
        return [item for item in stored if item is not None]  # no writer of ours leaves holes
    return _in_utc(stored) if isinstance(stored, datetime.datetime) else stored


def _in_utc(value: datetime.datetime) -> datetime.datetime:
    return value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)


_PLAIN = {
    frozenset(types): kind
    for kind, kept in (("string", str), ("int", int), ("float", float), ("bool", bool))
    for types in ((kept,), (kept, type(None)))
}


def _metadata_arrays(values: Sequence[Scalar]) -> dict[str, Any]:
    """By kind, the values of it; null at the others."""
    if (plain_kind := _PLAIN.get(frozenset(map(type, values)))) is not None:  # most columns, at a tenth of the time
        with contextlib.suppress(OverflowError):  # an integer past 64 bits
            return {plain_kind: pa.array(values, KINDS[plain_kind])}
    kinds = [kind_of(value) for value in values]
    found = {}
    for kind in sorted({kind for kind in kinds if kind is not None}):
        own = [value if one == kind else None for value, one in zip(values, kinds, strict=True)]
        if kind == "string":  # with integers past 64 bits
            own = [None if value is None else str(value) for value in own]
        found[kind] = pa.array(own, KINDS[kind])
    return found


def _not_unicode(rows: Iterable[Row]) -> CorpusError:
    for row in rows:
        strings = [
            row.chunk_id,
            row.doc_id,
            row.text,
            row.heading,
            *map(str, plain(row.seen).values()),
            *row.seen,
        ]
        if lone_surrogate("".join(strings)) is not None:
            break
    return CorpusError(
        "holds half of a surrogate pair, which no UTF-8 file can",
        "repair the text, or skip the document with `exclude`",
        where=ascii(row.chunk_id)[1:-1],
    )
