"""PostgreSQL with pgvector: a table of a database. `About` is in the table `ragidx_tables` beside it.

A replacement is one transaction, and so is an update: a reader sees the old rows or the new ones, and a crash leaves
the old ones. A replacement fills a new table, which takes the place of the old one when nobody reads that any more.

Each call has a connection and a transaction of its own, so that threads do not meet; connections are kept for later
calls, as many as were in use at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import errors, sql

from ragidx.corpora.errors import QueryError, RagidxError, SpecError
from ragidx.pipelines.engines.about import About
from ragidx.pipelines.engines.columns import DIGEST, schema_of, vectors_of
from ragidx.pipelines.engines.filters import Sql
from ragidx.pipelines.engines.table import INDEXED, SCORE, Table, Target
from ragidx.retriever.contents import VECTOR

if TYPE_CHECKING:
    from ragidx.indexer.arrays import Bools, Floats
    from ragidx.retriever.where.conditions import Condition

_Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
_Parts: TypeAlias = dict[str, sql.Composable]

_ABOUTS = "ragidx_tables"
_TYPES = {
    pa.large_string(): "text",
    pa.int64(): "bigint",
    pa.float64(): "double precision",
    pa.bool_(): "boolean",
    pa.timestamp("us"): "timestamp without time zone",
    pa.large_list(pa.large_string()): "text[]",
}
"""As PostgreSQL itself names them."""
_BATCH_ROWS = 4_096
_MAX_DIM = 16_000  # of a column of halfvec
_MAX_INDEXED_DIM = 4_000  # of an HNSW index of halfvec
_MAX_ID = 2_600  # bytes of a primary key: a third of a page
_MAX_WORDS = 100_000  # characters of a text that are searched by words: what is made of them has to be below 1 MiB
_BESIDE = 10  # rows beyond k that are compared again: the index compares with a question that is rounded to float16
_LANGUAGES = {
    *("arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german", "greek"),
    *("hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese"),
    *("romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish"),
}
"""The text search configurations of PostgreSQL 14."""


_BY_COSINE = "ORDER BY vector::vector <#> %(vector)s::vector, chunk_id LIMIT %(k)s"
_EXACT = f"SELECT {{read}} FROM {{table}} WHERE {{where}} {_BY_COSINE}"
_BY_INDEX = (
    "SELECT {read} FROM (SELECT * FROM {table} WHERE {where} ORDER BY vector <#> %(vector)s::halfvec LIMIT %(more)s)"
    f" AS _near {_BY_COSINE}"
)
# Each row has the words of the question that it has. `ts_rank` adds up a weight of each, which hardly grows with how
# often a row has it; `ts_rank_cd` would count each occurrence, so a row that repeats one word would come first.
_BY_WORDS = (
    "SELECT {read}, ts_rank({words}, _words) AS _score FROM {table}, (SELECT replace("
    "plainto_tsquery({language}, %(text)s)::text, ' & ', ' | ')::tsquery AS _words) AS _asked"
    " WHERE {words} @@ _words AND {where} ORDER BY _score DESC, chunk_id LIMIT %(k)s"
)


class PostgresTable(Table):
    """A table of PostgreSQL."""

    has_words = True

    def __init__(self, target: Target) -> None:
        self.target = target
        self._idle = deque[_Connection]()
        self._about: About | None = None
        self._stored: bytes | None = None
        self._columns: dict[str, str] = {}
        self._has_index = False
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _connected(self) -> Iterator[_Connection]:
        """A connection for one call, in a transaction."""
        with self.target.faults(psycopg.Error):
            try:
                connection = self._idle.pop()
            except IndexError:
                # Statements are not prepared: they outlive tables, and poolers do not know them.
                connection = psycopg.connect(
                    self.target.place,
                    autocommit=True,
                    prepare_threshold=None,
                    connect_timeout=10,
                    client_encoding="utf8",
                )
            try:
                with connection.transaction():
                    yield connection
            except psycopg.OperationalError:
                self.close()  # the server went away, so the idle ones are dead, too
                raise
            except (psycopg.DataError, psycopg.ProgrammingError):
                self._check_current(connection)  # it explains why vectors or columns do not fit
                raise
            finally:
                if not connection.closed:
                    self._idle.append(connection)

    def _look(self) -> None:
        """Look at the state that is there now."""
        name = sql.Identifier(self.target.name).as_string()
        with self._connected() as connection:
            columns = connection.execute(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
                " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
                [name],
            )
            self._columns = dict(columns.fetchall())
            self._stored = self._read_stored(connection) if self._columns else None
            [(self._has_index,)] = connection.execute(
                "SELECT EXISTS (SELECT FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
                " JOIN pg_am ON pg_am.oid = relam WHERE indrelid = to_regclass(%s) AND amname = 'hnsw' AND indisvalid)",
                [name],
            ).fetchall()
        self._about = None if self._stored is None else About.from_bytes(self._stored, self.target.shown)

    def _read_stored(self, connection: _Connection) -> bytes | None:
        """The `About` that is in the database."""
        if connection.execute("SELECT to_regclass(%s)", [_ABOUTS]).fetchall() == [(None,)]:
            return None
        found = connection.execute(
            sql.SQL("SELECT about FROM {} WHERE name = %s").format(sql.Identifier(_ABOUTS)), [self.target.name]
        ).fetchone()
        return None if found is None else bytes(found[0])

    def _check_current(self, connection: _Connection) -> None:
        """Whether the table still has the vectors and columns that it had when it was opened.

        Raises:
            RagidxError: it was replaced.
        """
        stored = self._read_stored(connection)
        if self._about is None or stored is None or stored == self._stored:
            return
        now = About.from_bytes(stored, self.target.shown)
        if now.fingerprint != self._about.fingerprint:
            self._was_replaced()
        if now.fields != self._about.fields:
            raise RagidxError("another export changed its columns", "open it again", where=self.target.shown)

    def _was_replaced(self) -> NoReturn:
        raise RagidxError("its vectors were replaced by another model's", "open it again", where=self.target.shown)

    def about(self) -> About | None:
        if self._columns:
            hint = "name another table: TARGET#NAME, or give `replace=True`"
            if self._about is None:
                raise SpecError("it is a table that ragidx did not write", hint, where=self.target.shown)
            if not _columns_of(self._about).items() <= self._columns.items():
                raise SpecError("its columns are not those that ragidx wrote", hint, where=self.target.shown)
        return self._about

    def refused(self, rows: Any) -> Mapping[str, Bools]:
        with_nul = np.zeros(len(rows), np.bool_)
        for column in rows.columns:
            if pa.types.is_large_string(column.type):
                with_nul[pc.indices_nonzero(pc.match_substring(column, "\0"))] = True
            elif pa.types.is_large_list(column.type):
                items = pc.indices_nonzero(pc.match_substring(pc.list_flatten(column), "\0"))
                with_nul[pc.list_parent_indices(column).take(items)] = True
        too_long = pc.greater(pc.binary_length(rows.column("chunk_id")), _MAX_ID).to_numpy(zero_copy_only=False)
        return {"a text with NUL characters": with_nul, f"an id of more than {_MAX_ID:,} bytes": too_long}

    def check(self, about: About) -> None:
        if about.dim > _MAX_DIM:
            message = f"the vectors have {about.dim:,} dimensions, and pgvector holds at most {_MAX_DIM:,}"
            raise SpecError(message, "build an index of fewer dimensions: `dim`", where=self.target.shown)
        if self.target.name == _ABOUTS:
            message = f"no table can have the name {_ABOUTS!r}: it says which tables ragidx wrote"
            raise SpecError(message, "name another table: TARGET#NAME", where=self.target.shown)

    def replace(self, rows: Iterable[Any], n_rows: int, about: About) -> None:
        parts = _parts(self.target.name, about)
        with self._connected() as connection:
            self._make_extension(connection)
            connection.execute(sql.SQL("CREATE TABLE {new} ({columns})").format(**parts))
            self._copy(connection, rows, parts, about)
            made = "ALTER TABLE {new} ADD PRIMARY KEY (chunk_id); CREATE INDEX ON {new} USING gin ({words})"
            connection.execute(sql.SQL(made).format(**parts))
            if n_rows >= INDEXED:
                self._index(connection, parts["new"], about)
            put = "ANALYZE {new}; DROP TABLE IF EXISTS {table}; ALTER TABLE {new} RENAME TO {table}"
            connection.execute(sql.SQL(put).format(**parts))
            told = "CREATE TABLE IF NOT EXISTS {tables} (name text PRIMARY KEY, fingerprint text, about bytea)"
            connection.execute(sql.SQL(told).format(**parts))
            self._store(connection, parts, about)
        self._look()

    def digests(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for batch in self.select(columns=["chunk_id", DIGEST]):
            found.update(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
        return found

    def update(self, rows: Iterable[Any], gone: Callable[[], Sequence[str]], about: About) -> None:
        parts = _parts(self.target.name, about)
        with self._connected() as connection:
            # Writers come one after the other, while readers go on.
            connection.execute(sql.SQL("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE").format(**parts))
            if self._read_stored(connection) != self._stored:
                raise RagidxError("another export changed it meanwhile", "export again", where=self.target.shown)
            connection.execute(sql.SQL("CREATE TEMPORARY TABLE {new} ({columns}) ON COMMIT DROP").format(**parts))
            self._copy(connection, rows, parts, about)
            put = (
                "INSERT INTO {table} ({names}) SELECT {names} FROM {new}"
                " ON CONFLICT (chunk_id) DO UPDATE SET ({names}) = ROW ({excluded})"
            )
            connection.execute(sql.SQL(put).format(**parts))
            delete = "DELETE FROM {table} WHERE chunk_id = ANY(%s)"
            connection.execute(sql.SQL(delete).format(**parts), [list(gone())])
            [(n_rows,)] = connection.execute(sql.SQL("SELECT count(*) FROM {table}").format(**parts)).fetchall()
            if n_rows >= INDEXED and not self._has_index:
                self._index(connection, parts["table"], about)
            self._store(connection, parts, about)
        self._look()

    def _make_extension(self, connection: _Connection) -> None:
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except (errors.InsufficientPrivilege, errors.FeatureNotSupported, errors.UndefinedFile) as fault:
            message = f"the database has no pgvector: {str(fault).splitlines()[0]}"
            hint = "install pgvector 0.8 or later, and let an administrator run CREATE EXTENSION vector there"
            raise RagidxError(message, hint, where=self.target.shown) from None

    def _index(self, connection: _Connection, table: sql.Composable, about: About) -> None:
        if about.dim <= _MAX_INDEXED_DIM:
            connection.execute(sql.SQL("CREATE INDEX ON {} USING hnsw (vector halfvec_ip_ops)").format(table))

    def _copy(self, connection: _Connection, rows: Iterable[Any], parts: _Parts, about: About) -> None:
        """Write rows to the new table."""
        statement = sql.SQL("COPY {new} ({names}) FROM STDIN (FORMAT BINARY)").format(**parts)
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(["bytea" if name == VECTOR else kind for name, kind in _columns_of(about).items()])
            for batch in rows:
                columns = [column.to_pylist() for column in batch.columns[:-1]]
                for row in zip(*columns, _packed(vectors_of(batch)), strict=True):
                    copy.write_row(row)

    def _store(self, connection: _Connection, parts: _Parts, about: About) -> None:
        put = (
            "INSERT INTO {tables} VALUES ({name}, %s, %s) ON CONFLICT (name) DO UPDATE"
            " SET fingerprint = excluded.fingerprint, about = excluded.about"
        )
        connection.execute(sql.SQL(put).format(**parts), [about.fingerprint, about.to_bytes()])

    def nearest(self, vector: Floats, k: int, where: Condition | None) -> Any:
        values = {"vector": str(vector.tolist()), "k": k, "more": k + _BESIDE}
        if self._has_index:
            found = self._found(_BY_INDEX, values, where, self._schema())
            if len(found) == k:  # the index gives up when few rows fulfil a condition
                return found
        return self._found(_EXACT, values, where, self._schema())

    def by_words(self, text: str, k: int, where: Condition | None) -> Any:
        schema = self._schema().append(pa.field(SCORE, pa.float32()))
        return self._found(_BY_WORDS, {"text": text.replace("\0", " "), "k": k}, where, schema)

    def _schema(self) -> Any:
        assert self._about is not None
        return schema_of(self._about)

    def _found(self, template: str, values: dict[str, Any], where: Condition | None, schema: Any) -> Any:
        """The answer to one statement, as a table."""
        statement = self._written(template, where)
        with self._connected() as connection:
            if self._has_index:
                options = "SELECT set_config('hnsw.iterative_scan', 'strict_order', true), set_config({}, %s, true)"
                ef_search = str(min(max(values["k"], 100), 1_000))
                connection.execute(sql.SQL(options).format(sql.Literal("hnsw.ef_search")), [ef_search])
            rows = connection.cursor(binary=True).execute(statement, values).fetchall()
            self._check_rows(connection, rows)
        return pa.Table.from_batches([_batch_of(rows, schema)])

    def select(
        self,
        where: Condition | None = None,
        columns: Sequence[str] | None = None,
        ids: tuple[str, Sequence[str]] | None = None,
    ) -> Iterator[Any]:
        schema = self._schema()
        schema = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        template, values = "SELECT {read} FROM {table} WHERE {where}", {}
        by = sql.Identifier("chunk_id" if ids is None else ids[0])
        if ids is not None:
            template += " AND {by} = ANY(%(ids)s)"
            values["ids"] = [one for one in ids[1] if "\0" not in one]  # no text here has one
        statement = self._written(template, where, columns, by=by)
        with self._connected() as connection, connection.cursor("rows", binary=True) as cursor:
            cursor.execute(statement, values)
            while rows := cursor.fetchmany(_BATCH_ROWS):
                self._check_rows(connection, rows)
                yield _batch_of(rows, schema)

    def count(self, where: Condition | None = None) -> int:
        with self._connected() as connection:
            counted = self._written("SELECT count(*) FROM {table} WHERE {where}", where)
            return int(connection.execute(counted, {}).fetchall()[0][0])

    def _written(
        self, template: str, where: Condition | None, columns: Sequence[str] | None = None, **more: sql.Composable
    ) -> sql.Composed:
        """A statement that reads: the fingerprint of the table, and columns."""
        assert self._about is not None
        parts = _parts(self.target.name, self._about) | more
        condition = "TRUE" if where is None else _PostgresSql(self._about.columns(), self._about.fields).written(where)
        parts["where"] = sql.SQL(condition.replace("%", "%%"))
        names = parts["names"] if columns is None else _names(columns)
        read = sql.SQL("(SELECT fingerprint FROM {tables} WHERE name = {name}), ").format(**parts) + names
        return sql.SQL(template).format(**parts, read=read)

    def _check_rows(self, connection: _Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Whether rows are of the model that the table was opened with."""
        assert self._about is not None
        if not rows:
            self._check_current(connection)
        elif rows[0][0] != self._about.fingerprint:
            self._was_replaced()

    def close(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


table = PostgresTable


class _PostgresSql(Sql):
    """The SQL of PostgreSQL."""

    engine = "PostgreSQL"

    def name(self, column: str) -> str:
        return sql.Identifier(column).as_string()

    def text(self, value: str) -> str:
        if "\0" in value:
            hint = "write the condition in another way, or ask the index"
            raise QueryError("PostgreSQL has no text with NUL characters", hint, where="condition")
        return sql.Literal(value).as_string()

    def time(self, value: datetime) -> str:
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(' ')}'"

    def has_item(self, column: str, item: str) -> str:
        return f"({item} = ANY({column}))"

    def text_test(self, test: str, column: str, value: str, field: str) -> str:
        if test == "matches":  # its regular expressions are not those of RE2
            self.cannot(test, field)
        return f"starts_with({column}, {value})" if test == "starts with" else f"(strpos({column}, {value}) > 0)"


def _columns_of(about: About) -> dict[str, str]:
    """The columns with their types."""
    return {
        field.name: f"halfvec({about.dim})" if field.name == VECTOR else _TYPES[field.type]
        for field in schema_of(about)
    }


def _names(columns: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _parts(name: str, about: About) -> _Parts:
    """What statements about a table are put together of."""
    columns = _columns_of(about)
    collated = {column: f'{kind} COLLATE "C"' if kind == "text" else kind for column, kind in columns.items()}
    language = sql.Literal(about.stemmer if about.stemmer in _LANGUAGES else "simple")
    return {
        "name": sql.Literal(name),
        "table": sql.Identifier(name),
        "new": sql.Identifier(f"{name} new"),  # no target can have that name
        "tables": sql.Identifier(_ABOUTS),
        "names": _names(columns),
        "excluded": sql.SQL(", ").join(sql.Identifier("excluded", column) for column in columns),
        "columns": sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind)) for column, kind in collated.items()
        ),
        "language": language,
        "words": sql.SQL("to_tsvector({}, left(text, {}))").format(language, sql.Literal(_MAX_WORDS)),
    }


def _packed(vectors: Any) -> list[bytes]:
    """Vectors (n, dim) as COPY reads a halfvec: dim, 0, and the numbers, all big-endian."""
    head = np.array([vectors.shape[1], 0], ">i2").tobytes()
    return [head + vector.tobytes() for vector in vectors.astype(">f2")]


def _batch_of(rows: Sequence[tuple[Any, ...]], schema: Any) -> Any:
    """Rows after their first value as a record batch."""
    arrays = []
    for field, values in zip(schema, list(zip(*rows, strict=True))[1:] or [()] * len(schema), strict=True):
        if field.name == VECTOR:
            numbers = np.frombuffer(b"".join(value[4:] for value in values), ">f2").astype("<f2")
            arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(numbers), type=field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
