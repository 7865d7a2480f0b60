"""What a table holds: the rows of an index in columns, alike in every engine, and `AboutTable` beside them.

    chunk_id, doc_id, text, heading    text
    start, end, line, page, digest     64-bit integers; `digest` changes when anything of the row does
    vector                             float16, as the index has it
    the fields of the metadata         each in its own type, for conditions
    _metadata                          text: the metadata as JSON, where the fields do not say all of them; else null

Engines forbid many names, each its own. So a field goes by its name where that is letters, digits and `_`, and else has
`_` in place of all other characters; `AboutTable.columns` says which column a field has. By `AboutTable` alone
questions can be encoded: it has the spec, and the files that belong to it, a filter for example.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ragidx.corpora.errors import IndexFormatError
from ragidx.corpora.whole_documents import metadata_to_text
from ragidx.indexer.models.address import KEPT_AS
from ragidx.indexer.specs import holds_precomputed
from ragidx.indexer.store.files import DELETED_FILE, is_file_name
from ragidx.indexer.store.rows import KINDS, Row, Schema, kind_of
from ragidx.retriever.rows import VECTOR, FolderRows, Rows
from ragidx.retriever.where import masks
from ragidx.retriever.where.masks import fields_of

KEY = "ragidx"
"""Under which a target has it."""

_FORMAT = 1
TEXTS = ("chunk_id", "doc_id", "text", "heading")
WHOLE = ("start", "end", "line", "page")
FIXED = (*TEXTS, *WHOLE)
METADATA = "_metadata"
"""The column of whole metadata, in the JSON of `corpora.whole_documents`; no field has a column that begins with _."""
DIGEST = "digest"
SOURCE = "file.source"
"""A field that every chunk of a file has, beside its metadata."""
NO_FIELDS = (*FIXED, METADATA, DIGEST, VECTOR, SOURCE)
"""What is in rows beside the fields of the metadata; a field of such a name is `metadata.NAME` where rows are read."""
SCORE = "score"
"""The column of rows that were found by words: what the engine gives, higher is better."""

_WORDS = {
    *("and", "or", "not", "in", "like", "is", "null", "exists", "true", "false", "iso", "interval"),
    *("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"),
}
"""Words of the conditions of Milvus, which cannot name a column by them, and the system columns of PostgreSQL."""
_MAX_NAME = 48  # characters of a column's name; PostgreSQL has 63 bytes
_BATCH_ROWS = 4_096


@dataclass(frozen=True)
class AboutTable:
    """What is known of the rows of a target.

    Attributes:
        spec: how the vectors were made, as the manifest has it.
        fingerprint: the fingerprint of the spec: vectors of different fingerprints are never mixed.
        generation, created: the state of the index: its number, and when it was made.
        dim: dimensions of a vector.
        fields: the kinds of the fields that a condition can name, by name.
        files: the bytes of the files that belong to the spec, by name.
        n_rows, n_documents: how many rows and documents the index has.
        stemmer: the stemmer of the words of the index; empty where it has none.
        notes: what else belongs to the model: where its server is.
        has_metadata: whether the table has the column `METADATA`, which the first exports did not write.
    """

    spec: Mapping[str, Any]
    fingerprint: str
    generation: int
    created: str
    dim: int
    fields: Mapping[str, str]
    files: Mapping[str, bytes]
    n_rows: int = 0
    n_documents: int = 0
    stemmer: str = ""
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    has_metadata: bool = False

    @classmethod
    def of(cls, store: Rows) -> Self:
        """What is known of the rows of an index, in its state."""
        manifest = store.manifest
        return cls(
            spec=dict(manifest.spec),
            fingerprint=manifest.fingerprint,
            generation=manifest.generation,
            created=manifest.created,
            dim=manifest.dim,
            fields=masks.schema_of(store),
            files={name: store.blob(name) for name in manifest.files if name != DELETED_FILE},
            n_rows=manifest.n_chunks,
            n_documents=manifest.n_documents,
            stemmer="" if manifest.lexical is None else manifest.lexical.stemmer,
            notes={name: manifest.notes[name] for name in (KEPT_AS,) if name in manifest.notes},
            has_metadata=True,
        )

    def columns(self) -> dict[str, str]:
        """The column of each field that a condition can name."""
        return columns_for(self.fields, ("doc_id",) if holds_precomputed(self.spec) else ("doc_id", "heading"))

    def own_columns(self) -> dict[str, str]:
        """The columns of the metadata, by the names of the fields."""
        return {name: column for name, column in self.columns().items() if column not in FIXED}

    def metadata_columns(self) -> dict[str, str]:
        """These columns by the names in the metadata: conditions have to tell a field from what every chunk has."""
        clashing = {"metadata.doc_id": "doc_id", "metadata.heading": "heading"}
        own = self.own_columns().items()
        return {clashing.get(field, field): column for field, column in own if field != SOURCE}

    def to_bytes(self) -> bytes:
        """All of it as JSON."""
        files = {name: base64.b64encode(data).decode() for name, data in self.files.items()}
        return json.dumps({"format": _FORMAT, **asdict(self), "files": files}).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """The inverse of `to_bytes`.

        Raises:
            IndexFormatError: it is damaged, or of a later version.
        """
        try:
            said = json.loads(data)
            if said.pop("format") != _FORMAT:
                raise ValueError("it is of another version of ragidx")
            files = {name: base64.b64decode(text) for name, text in said.pop("files").items()}
            if not all(map(is_file_name, files)) or not isinstance(said["dim"], int):
                raise ValueError("it is damaged")
            return cls(**said, files=files)
        except (ValueError, TypeError, KeyError, AttributeError) as fault:
            hint = "export again, with `replace=True`"
            raise IndexFormatError(f"what it says of its vectors cannot be read: {fault}", hint, where=where) from fault

    def has_shape_of(self, other: Self) -> bool:
        """Whether both have vectors of one model, and the same columns."""
        names = ("fingerprint", "dim", "fields", "has_metadata")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def is_of(self, other: Self) -> bool:
        """Whether both are of one state."""
        return (self.fingerprint, self.generation, self.created) == (other.fingerprint, other.generation, other.created)


def columns_for(fields: Mapping[str, str], built_in: Collection[str]) -> dict[str, str]:
    """The column of each field that a condition can name; no two differ by capitals alone.

    Args:
        fields: the kinds of the fields, by name.
        built_in: names of the fields that are fixed columns.
    """
    taken = {*FIXED, DIGEST, VECTOR, SCORE, *_WORDS}
    found = {name: name for name in fields if name in built_in}
    for field in fields:
        if field in found:
            continue
        plain = re.sub(r"[^A-Za-z0-9_]", "_", field)[:_MAX_NAME]
        plain = plain if re.match(r"[A-Za-z]", plain) else f"f{plain}"[:_MAX_NAME]
        name, number = plain, 1
        while name.casefold() in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name.casefold())
        found[field] = name
    return found


def schema_of(about: AboutTable) -> Any:
    """The Arrow schema of a table: the fixed columns, the fields, the whole metadata, the digest, the vector."""
    fixed = [pa.field(name, pa.large_string(), nullable=False) for name in TEXTS]
    fixed += [pa.field(name, pa.int64()) for name in WHOLE]
    own = [pa.field(column, KINDS[about.fields[field]]) for field, column in about.own_columns().items()]
    own += [pa.field(METADATA, pa.large_string())] if about.has_metadata else []
    vector = pa.field(VECTOR, pa.list_(pa.field("element", pa.float16()), about.dim))
    return pa.schema([*fixed, *own, pa.field(DIGEST, pa.int64(), nullable=False), vector])


def rows_of(store: FolderRows, about: AboutTable) -> Iterator[Any]:
    """All rows of an index that are alive, as record batches of `schema_of`."""
    schema, own = schema_of(about), about.own_columns()
    names = {name: name for name in FIXED} | {
        of: own[field] for field, (of, _) in fields_of(store).items() if field in own
    }
    held: list[Any] = []
    for table in with_metadata(store, names):
        held.append(table.add_column(table.num_columns - 1, DIGEST, [_digests(table)]).cast(schema))
        if sum(map(len, held)) >= _BATCH_ROWS:
            yield from pa.concat_tables(held).combine_chunks().to_batches(_BATCH_ROWS)
            held = []
    if held:
        yield from pa.concat_tables(held).combine_chunks().to_batches(_BATCH_ROWS)


def with_metadata(store: FolderRows, names: Mapping[str, str]) -> Iterator[Any]:
    """All rows of an index that are alive, as tables: columns, `METADATA`, and the vectors.

    Args:
        store: the state of the index.
        names: the names of columns in the tables, by their names in the index.
    """
    first, mixed = 0, store.mixed
    for batch in store.record_batches([*names, "metadata", VECTOR], None):
        table = pa.Table.from_batches([batch]).rename_columns([*names.values(), METADATA, VECTOR])
        if mixed:
            rows = store.rows(range(first, first + len(batch)))
            whole = [_whole_of(row, mixed, store.manifest.schema) for row in rows]
            table = table.set_column(table.num_columns - 2, METADATA, [pa.array(whole, pa.large_string())])
        first += len(batch)
        yield table


def _whole_of(row: Row, mixed: Collection[str], schema: Schema) -> str | None:
    """The metadata of a row as JSON; None: its columns say them, in the types of the schema."""
    is_said = row.fields is None and all(kind_of(row.metadata.get(name)) in (None, schema.get(name)) for name in mixed)
    return None if is_said else metadata_to_text(row.metadata)


def field_of(name: str) -> str:
    """The name in the metadata of a column that has the name of its field."""
    return name.removeprefix("metadata.") if name.removeprefix("metadata.") in NO_FIELDS else name


def beside(fields: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A row of others: its fields, and what it is; a field of the name of one of these is `metadata.NAME`."""
    return {f"metadata.{name}" if name in own else name: value for name, value in fields.items()} | dict(own)


def batches_of(rows: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """Rows of others, with whatever values, as record batches; `vector` is an array of numbers."""
    columns = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        if name == VECTOR:
            columns[name] = pa.array(values, pa.list_(pa.float32()))
        elif kinds == {int, float}:  # Arrow would refuse a whole number past 2**53
            columns[name] = pa.array([value if value is None else float(value) for value in values])
        elif len(kinds) <= 1 and kinds <= {int, float, bool, str}:
            columns[name] = pa.array(values)
        elif kinds == {list} and all(isinstance(item, str) for value in values for item in value or ()):
            columns[name] = pa.array(values, pa.list_(pa.string()))
        else:
            written = (value if value is None or isinstance(value, str) else json.dumps(value) for value in values)
            columns[name] = pa.array(written, pa.string())
    yield from pa.table(columns).to_batches(_BATCH_ROWS) if rows else ()


def as_batch(schema: Any, values: Callable[[Any], Any]) -> Any:
    """A record batch of the values of each field; those of the vectors are (n, dim), or one after the other."""
    columns = []
    for field in schema:
        found = values(field)
        if field.name == VECTOR:
            numbers = pa.array(np.asarray(found).astype("<f2").reshape(-1))
            columns.append(pa.FixedSizeListArray.from_arrays(numbers, type=field.type))
        else:
            columns.append(pa.array(found, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def vectors_of(rows: Any) -> Any:
    """The vectors (n, dim) float16 of a batch or a table of rows."""
    column = rows.column(VECTOR)
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)


def _digests(table: Any) -> Any:
    """Of each row: 64 bits of the hash of all that it holds."""
    vectors = vectors_of(table)
    rows = table.drop_columns([VECTOR]).to_pylist()
    hashed = [
        hashlib.blake2b(repr(list(row.values())).encode("utf-8", "surrogatepass") + vector.tobytes(), digest_size=8)
        for row, vector in zip(rows, vectors, strict=True)
    ]
    return pa.array(np.frombuffer(b"".join(one.digest() for one in hashed), "<i8"))
