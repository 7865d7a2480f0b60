"""The columns of a table, which are the same in every engine, and the rows of an index in them.

    chunk_id, doc_id, text, heading    text
    start, end, line, page, digest     64-bit integers; `digest` changes when anything of the row does
    vector                             float16, as the index has it
    the fields of the metadata         each in its own type

Engines forbid many names, each its own. So a field goes by its name where that is letters, digits and `_`, and else has
`_` in place of all other characters; `AboutTable.columns` says which column a field has.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ragidx.indexer.store.rows import KINDS
from ragidx.retriever.contents import batches, columns_of
from ragidx.retriever.rows import VECTOR
from ragidx.retriever.where.masks import fields_of

if TYPE_CHECKING:
    from ragidx.pipelines.integrations.engines.about import AboutTable
    from ragidx.retriever.rows import Rows

TEXTS = ("chunk_id", "doc_id", "text", "heading")
WHOLE = ("start", "end", "line", "page")
FIXED = (*TEXTS, *WHOLE)
DIGEST = "digest"
SCORE = "score"
"""The column of rows that were found by words: what the engine gives, higher is better."""

_WORDS = {
    *("and", "or", "not", "in", "like", "is", "null", "exists", "true", "false", "iso", "interval"),
    *("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"),
}
"""Words of the conditions of Milvus, which cannot name a column by them, and the system columns of PostgreSQL."""
_MAX_NAME = 48  # characters of a column's name; PostgreSQL has 63 bytes
_BATCH_ROWS = 4_096


def columns_for(fields: Mapping[str, str], built_in: Collection[str]) -> dict[str, str]:
    """The column of each field that a condition can name; no two differ by capitals alone.

    Args:
        fields: with their kinds.
        built_in: those that are fixed columns.
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
    """The Arrow schema of a table: the fixed columns, the fields, the digest, the vector."""
    fixed = [pa.field(name, pa.large_string(), nullable=False) for name in TEXTS]
    fixed += [pa.field(name, pa.int64()) for name in WHOLE]
    own = [pa.field(column, KINDS[about.fields[field]]) for field, column in about.own_columns().items()]
    vector = pa.field(VECTOR, pa.list_(pa.field("element", pa.float16()), about.dim))
    return pa.schema([*fixed, *own, pa.field(DIGEST, pa.int64(), nullable=False), vector])


def rows_of(store: Rows, about: AboutTable) -> Iterator[Any]:
    """All rows of an index that are alive, as record batches of `schema_of`."""
    schema, own = schema_of(about), about.own_columns()
    fields, named = fields_of(store), {of: name for name, of in columns_of(store).items()}
    held: list[Any] = []
    for batch in batches(store, [*FIXED, *(named[fields[field][0]] for field in own), VECTOR]):
        table = pa.Table.from_batches([batch]).rename_columns([*FIXED, *own.values(), VECTOR])
        held.append(table.add_column(table.num_columns - 1, DIGEST, [_digests(table)]).cast(schema))
        if sum(map(len, held)) >= _BATCH_ROWS:
            yield from pa.concat_tables(held).combine_chunks().to_batches(_BATCH_ROWS)
            held = []
    if held:
        yield from pa.concat_tables(held).combine_chunks().to_batches(_BATCH_ROWS)


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


def vectors_of(rows: Any) -> Any:
    """(n, dim) float16 of a batch or a table of rows."""
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
