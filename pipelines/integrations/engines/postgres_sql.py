"""The statements about a table of PostgreSQL, conditions in its SQL, and rows on their way there and back.

Names are `psycopg.sql.Identifier`s. Values are parameters, but those of conditions, which are literals.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from psycopg import sql

from ragidx.corpora.errors import QueryError
from ragidx.pipelines.integrations.engines.conditions import Sql
from ragidx.pipelines.integrations.engines.layout import as_batch, schema_of
from ragidx.retriever.rows import VECTOR

if TYPE_CHECKING:
    from ragidx.indexer.arrays import Floats
    from ragidx.pipelines.integrations.engines.layout import AboutTable
    from ragidx.retriever.where.conditions import Condition

ABOUTS = "ragidx_tables"
"""The table that has the `AboutTable` of each other."""

_TYPES = {
    pa.large_string(): "text",
    pa.int64(): "bigint",
    pa.float64(): "double precision",
    pa.bool_(): "boolean",
    pa.timestamp("us"): "timestamp without time zone",
    pa.large_list(pa.large_string()): "text[]",
}
_MAX_WORDS = 100_000  # characters of a text that are searched by words: what is made of them has to be below 1 MiB
_LANGUAGES = {
    *("arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german", "greek"),
    *("hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese"),
    *("romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish"),
}
"""The text search configurations of PostgreSQL 14."""

LOOK = """
SELECT (SELECT json_object_agg(attname, format_type(atttypid, atttypmod)) FROM pg_attribute
        WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped),
       EXISTS (SELECT FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
               WHERE indrelid = to_regclass(%(table)s) AND amname = 'hnsw' AND indisvalid)
"""
CREATE = "CREATE TABLE {new} ({columns}, _words tsvector GENERATED ALWAYS AS ({made_words}) STORED)"
COPY = "COPY {new} ({names}) FROM STDIN (FORMAT BINARY)"
# The index of `doc_id` is a hash, as a btree takes no long ones.
FINISH = """
ALTER TABLE {new} ADD PRIMARY KEY (chunk_id); CREATE INDEX ON {new} USING hash (doc_id);
CREATE INDEX ON {new} USING gin (_words); ANALYZE {new}
"""
INDEX = "CREATE INDEX ON {new} USING hnsw (vector halfvec_ip_ops)"
INDEX_GROWN = INDEX.replace("{new}", "{table}")
SWAP = """
DROP TABLE IF EXISTS {table}; ALTER TABLE {new} RENAME TO {table};
CREATE TABLE IF NOT EXISTS {tables} (name text PRIMARY KEY, fingerprint text, about bytea)
"""
STORE = """
INSERT INTO {tables} VALUES ({name}, %s, %s) ON CONFLICT (name) DO UPDATE
SET fingerprint = excluded.fingerprint, about = excluded.about
"""
BEGIN_UPDATE = "LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"  # no other writer; readers go on
# The lock is before the snapshot, so that the table is not replaced between the two by one whose rows are newer.
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; LOCK TABLE {table} IN ACCESS SHARE MODE"
CREATE_TEMPORARY = "CREATE TEMPORARY TABLE {new} ({columns}) ON COMMIT DROP"
MERGE = """
INSERT INTO {table} ({names}) SELECT {names} FROM {new} ON CONFLICT (chunk_id) DO UPDATE SET ({names}) = ROW ({added})
"""
DELETE = "DELETE FROM {table} WHERE chunk_id = ANY(%s)"
COUNT = "SELECT count(*) FROM {table} WHERE {where}"
SELECT = "SELECT {read} FROM {table} WHERE {where}"
EXACT = SELECT + " ORDER BY vector::vector <#> %(vector)s::vector, chunk_id LIMIT %(k)s"
# The index compares with a question that is rounded to float16, so a few more rows are compared again.
BY_INDEX = """
SELECT {read}
FROM (SELECT * FROM {table} WHERE {where} ORDER BY vector <#> %(vector)s::halfvec LIMIT %(k)s + 10) AS _near
ORDER BY vector::vector <#> %(vector)s::vector, chunk_id LIMIT %(k)s
"""
# The order may be relaxed, as rows are put in order again; the strict one leaves out rows that are found late.
SEARCH_OPTIONS = """
SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', %s, true)
"""
# Rows have one word of the question at least. `ts_rank` adds up a weight of each, which hardly grows with how often a
# row has it, where `ts_rank_cd` counts all occurrences; 1: divided by 1 + the logarithm of the length. On the bundled
# questions this is the best of them.
BY_WORDS = """
SELECT {read}, ts_rank({words}, _asked._question, 1) AS _score FROM {table},
       (SELECT replace(plainto_tsquery({language}, %(text)s)::text, ' & ', ' | ')::tsquery AS _question) AS _asked
WHERE {words} @@ _asked._question AND {where} ORDER BY _score DESC, chunk_id LIMIT %(k)s
"""


class Statements:
    """Statements about a table.

    Args:
        name: the name of the table.
        about: what the table holds.
        has_words: whether the table has the column of words, which is ten times as fast as to make them for each row
            that is ranked; the first tables did not have it.

    Attributes:
        shape: the model of the vectors and the kinds of the fields, as text; stored as `fingerprint`.
    """

    def __init__(self, name: str, about: AboutTable, *, has_words: bool = True) -> None:
        self.about = about
        self.shape = f"{about.fingerprint} {json.dumps(about.fields, sort_keys=True)}"
        self.types = {
            field.name: f"halfvec({about.dim})" if field.name == VECTOR else _TYPES[field.type]
            for field in schema_of(about)
        }
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(f'{kind} COLLATE "C"' if kind == "text" else kind))
            for column, kind in self.types.items()
        ]
        language = sql.Literal(about.stemmer if about.stemmer in _LANGUAGES else "simple")
        words = sql.SQL("to_tsvector({}, left(text, {}))").format(language, sql.Literal(_MAX_WORDS))
        self._parts = {
            "name": sql.Literal(name),
            "table": sql.Identifier(name),
            "new": sql.Identifier(f"{name} new"),  # no target can have that name
            "tables": sql.Identifier(ABOUTS),
            "names": _names(self.types),
            "added": sql.SQL(", ").join(sql.Identifier("excluded", column) for column in self.types),
            "columns": sql.SQL(", ").join(columns),
            "language": language,
            "made_words": words,
            "words": sql.SQL("_words") if has_words else words,
        }

    def write(self, template: str, **more: sql.Composable) -> sql.Composed:
        """A statement that changes the table."""
        return sql.SQL(template).format(**self._parts, **more)

    def read(
        self, template: str, where: Condition | None, columns: Sequence[str] | None = None, by: str | None = None
    ) -> sql.Composed:
        """A statement that reads the shape of the table as it is stored, and columns.

        Args:
            template: the template of the statement.
            where: the condition of the rows that are read; None: all rows.
            columns: the columns that are read; None: all.
            by: the column whose value has to be in the parameter `ids`; None: no column.
        """
        condition = "TRUE" if where is None else PostgresDialect(self.about.columns(), self.about.fields).written(where)
        allowed: sql.Composable = sql.SQL(condition.replace("%", "%%"))
        if by is not None:
            allowed = sql.SQL("{} AND {} = ANY(%(ids)s)").format(allowed, sql.Identifier(by))
        read = self.write(
            "(SELECT fingerprint FROM {tables} WHERE name = {name}), {asked}", asked=_names(columns or self.types)
        )
        return self.write(template, where=allowed, read=read)


class PostgresDialect(Sql):
    """The SQL of PostgreSQL."""

    engine = "PostgreSQL"

    def name(self, column: str) -> str:
        return sql.Identifier(column).as_string()

    def text(self, value: str) -> str:
        if "\0" in value:
            hint = "write the condition in another way, or ask the index"
            raise QueryError("PostgreSQL has no texts with NUL characters", hint, where="condition")
        return sql.Literal(value).as_string()

    def time(self, value: datetime) -> str:
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(' ')}'"

    def has_item(self, column: str, item: str) -> str:
        return f"({item} = ANY({column}))"

    def text_test(self, test: str, column: str, value: str, field: str) -> str:
        return f"starts_with({column}, {value})" if test == "starts with" else f"(strpos({column}, {value}) > 0)"


def packed(vectors: Floats) -> list[bytes]:
    """Vectors (n, dim) as COPY reads a halfvec: dim, 0, and the numbers, all big-endian."""
    head = np.array([vectors.shape[1], 0], ">i2").tobytes()
    return [head + vector.tobytes() for vector in vectors.astype(">f2")]


def batch_of(rows: Sequence[tuple[Any, ...]], schema: Any) -> Any:
    """A record batch of rows as they were read; their first value is the shape of the table."""
    columns: dict[str, Any] = dict(zip(schema.names, [*zip(*rows, strict=True)][1:] or [()] * len(schema), strict=True))
    if VECTOR in columns:
        columns[VECTOR] = np.frombuffer(b"".join(value[4:] for value in columns[VECTOR]), ">f2")
    return as_batch(schema, lambda field: columns[field.name])


def _names(columns: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
