"""PostgreSQL with pgvector: a table of a database. `AboutTable` is in the table `ragidx_tables` beside it.

A replacement is one transaction, and so is an update: a reader sees the old rows or the new ones, and a crash leaves
the old ones. A replacement fills a new table; that takes the place of the old one when nobody reads the old one.

Each call has a connection and a transaction of its own, so that threads do not meet, or that of its thread's
`snapshot`; a connection is kept for later calls.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import conninfo, errors, sql

from ragidx.corpora.errors import EngineError, SpecError
from ragidx.pipelines.integrations.engines import postgres_sql as statements
from ragidx.pipelines.integrations.engines.layout import SCORE, AboutTable, vectors_of
from ragidx.pipelines.integrations.engines.postgres_sql import ABOUTS, Statements, batch_of, packed
from ragidx.pipelines.integrations.engines.table import INDEXED, Table
from ragidx.pipelines.integrations.engines.target import Target
from ragidx.retriever.rows import VECTOR

if TYPE_CHECKING:
    from ragidx.indexer.arrays import Bools, Floats
    from ragidx.retriever.where.conditions import Condition

_Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_BATCH_ROWS = 4_096
_MAX_INDEXED_DIM = 4_000  # of an HNSW index of halfvec
_MAX_ID = 2_600  # bytes of a primary key: a third of a page
_FOREIGN = {
    **dict.fromkeys(("vector", "halfvec"), ("real[]", pa.list_(pa.float32()))),
    **dict.fromkeys(("smallint", "integer", "bigint"), ("bigint", pa.int64())),
    **dict.fromkeys(("real", "double precision", "numeric"), ("double precision", pa.float64())),
    "boolean": ("boolean", pa.bool_()),
    "timestamp without time zone": ("timestamp", pa.timestamp("us")),
    "text[]": ("text[]", pa.list_(pa.string())),
}
"""What the columns of others are read as, by their types; all else is text."""


def hosts(target: Target) -> list[str]:
    """The servers that a URL, or what it leaves to the environment, names; a socket of this machine is none."""
    _check_place(target)
    named = conninfo.conninfo_to_dict(target.place)
    if service := named.get("service"):  # libpq alone reads what it is
        return [f"the service {service}"]
    said = {option.keyword.decode(): (option.val or b"").decode() for option in psycopg.pq.Conninfo.get_defaults()}
    said |= {name: str(value) for name, value in named.items()}
    found = (said.get("hostaddr") or said.get("host") or "").split(",")
    return [host for host in found if host and not host.startswith(("/", "@"))]


class PostgresTable(Table):
    """A table of PostgreSQL."""

    has_words = True
    words_by = "ts_rank"
    max_dim = 16_000  # of a column of halfvec
    _stored: bytes | None = None

    def __init__(self, target: Target) -> None:
        self._idle = deque[_Connection]()
        self._of_thread = threading.local()
        _check_place(target)
        super().__init__(target)

    @contextmanager
    def _connected(self) -> Iterator[_Connection]:
        """A connection for one call, in a transaction."""
        if (held := getattr(self._of_thread, "snapshot", None)) is not None:
            yield held
            return
        with self.target.faults(psycopg.Error):
            try:
                connection = self._idle.pop()
            except IndexError:
                # Statements are not prepared: those of an old table fail on a new one, and some poolers lose them.
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
                self._check_current(connection)  # this explains why a vector or a column does not fit
                raise
            finally:
                if not connection.closed:
                    self._idle.append(connection)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self._connected() as connection:
            connection.execute(self._statements.write(statements.SNAPSHOT))
            self._of_thread.snapshot = connection
            try:
                yield
            finally:
                self._of_thread.snapshot = None

    def _open(self) -> None:
        """Look at the state that is there now."""
        with self._connected() as connection:
            looked = self._shape(connection)
            while True:  # the table may be replaced between its columns and its `AboutTable`
                before = looked
                self._stored = self._read_stored(connection) if before[0] else None
                if (looked := self._shape(connection)) == before:
                    break
        self._columns, self._has_index = before
        self.rows_in = self.target.name if self._columns else ""
        self._about = self.read_about(self._stored)

    def _shape(self, connection: _Connection) -> tuple[dict[str, str], bool]:
        """The types of the columns, and whether there is an index of vectors."""
        table = {"table": sql.Identifier(self.target.name).as_string()}
        [(columns, has_index)] = connection.execute(statements.LOOK, table).fetchall()
        return columns or {}, has_index

    def _read_stored(self, connection: _Connection) -> bytes | None:
        """The `AboutTable` that is in the database."""
        if connection.execute("SELECT to_regclass(%s)", [ABOUTS]).fetchall() == [(None,)]:
            return None
        asked = sql.SQL("SELECT about FROM {} WHERE name = %s").format(sql.Identifier(ABOUTS))
        found = connection.execute(asked, [self.target.name]).fetchone()
        return None if found is None else bytes(found[0])

    def _check_current(self, connection: _Connection) -> None:
        """Whether the table has the vectors and columns that it had when it was opened.

        Raises:
            EngineError: another export replaced them.
        """
        stored = self._read_stored(connection)
        if self._about is None or stored is None or stored == self._stored:
            return
        now = AboutTable.from_bytes(stored, self.target.shown)
        if now.fingerprint != self._about.fingerprint:
            raise EngineError("its vectors were replaced by another model's", "open it again", where=self.target.shown)
        if now.fields != self._about.fields:
            raise EngineError("its columns were replaced by others", "open it again", where=self.target.shown)

    def about(self) -> AboutTable | None:
        about = super().about()
        if about is not None and not self._statements.types.items() <= self._columns.items():
            raise self.not_ours("its columns are not those that ragidx wrote")
        return about

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

    def check(self, about: AboutTable) -> None:
        super().check(about)
        if self.target.name == ABOUTS:
            message = f"no table can have the name {ABOUTS!r}: that says which tables ragidx wrote"
            raise SpecError(message, "name another table: TARGET#NAME", where=self.target.shown)

    def replace(self, rows: Iterable[Any], about: AboutTable) -> None:
        written = Statements(self.target.name, about)
        with self._connected() as connection:
            self._make_extension(connection)
            connection.execute(written.write(statements.CREATE))
            _copy(connection, rows, written)
            connection.execute(written.write(statements.FINISH))
            if _is_indexed(about):
                connection.execute(written.write(statements.INDEX))
            connection.execute(written.write(statements.SWAP))
            connection.execute(written.write(statements.STORE), [written.shape, about.to_bytes()])
        self._open()

    def _make_extension(self, connection: _Connection) -> None:
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except (errors.InsufficientPrivilege, errors.FeatureNotSupported, errors.UndefinedFile) as fault:
            message = f"the database has no pgvector: {str(fault).splitlines()[0]}"
            hint = "install pgvector 0.8 or later, and let an administrator run CREATE EXTENSION vector there"
            raise EngineError(message, hint, where=self.target.shown) from None

    def update(self, rows: Iterable[Any], gone: Callable[[], Sequence[str]], about: AboutTable) -> None:
        written = Statements(self.target.name, about)
        with self._connected() as connection:
            connection.execute(written.write(statements.BEGIN_UPDATE))
            if self._read_stored(connection) != self._stored:
                raise EngineError("another export changed it meanwhile", "export again", where=self.target.shown)
            connection.execute(written.write(statements.CREATE_TEMPORARY))
            _copy(connection, rows, written)
            connection.execute(written.write(statements.MERGE))
            connection.execute(written.write(statements.DELETE), [list(gone())])
            if _is_indexed(about) and not self._has_index:
                connection.execute(written.write(statements.INDEX_GROWN))
            connection.execute(written.write(statements.STORE), [written.shape, about.to_bytes()])
        self._open()

    def nearest(self, vector: Floats, k: int, where: Condition | None) -> Any:
        asked = {"vector": str(vector.tolist()), "k": k}
        if self._has_index:
            found = self._found(statements.BY_INDEX, asked, where)
            if len(found) == k:  # the index gives up where few rows fulfil a condition
                return found
        return self._found(statements.EXACT, asked, where)

    def by_words(self, text: str, k: int, where: Condition | None) -> Any:
        asked = {"text": text.replace("\0", " "), "k": k}
        return self._found(statements.BY_WORDS, asked, where, pa.field(SCORE, pa.float32()))

    def select(
        self,
        where: Condition | None = None,
        columns: Sequence[str] | None = None,
        ids: tuple[str, Sequence[str]] | None = None,
    ) -> Iterator[Any]:
        schema = self.schema(columns)
        by, values = ids or (None, ())
        statement = self._statements.read(statements.SELECT, where, columns, by)
        with self._connected() as connection, connection.cursor("rows", binary=True) as cursor:
            cursor.execute(statement, {"ids": [value for value in values if "\0" not in value]})  # no text here has one
            rows = cursor.fetchmany(_BATCH_ROWS)
            self._check_rows(connection, rows)
            while rows:
                yield batch_of(rows, schema)
                rows = cursor.fetchmany(_BATCH_ROWS)

    def foreign(self) -> Iterator[Any]:
        kinds = {name: _FOREIGN.get(of.partition("(")[0], ("text", pa.string())) for name, of in self._columns.items()}
        if not kinds:
            return
        listed = sql.SQL(", ").join(
            sql.SQL("{}::{}").format(sql.Identifier(name), sql.SQL(cast)) for name, (cast, _) in kinds.items()
        )
        schema = pa.schema([pa.field(name, kind) for name, (_, kind) in kinds.items()])
        with self._connected() as connection, connection.cursor("rows", binary=True) as cursor:
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(listed, sql.Identifier(self.target.name)))
            while rows := cursor.fetchmany(_BATCH_ROWS):
                columns = [
                    pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def count(self, where: Condition | None = None) -> int:
        statement = self._statements.read(statements.COUNT, where)
        with self._connected() as connection:
            return int(connection.execute(statement, {}).fetchall()[0][0])

    @property
    def _statements(self) -> Statements:
        assert self._about is not None
        return Statements(self.target.name, self._about, has_words="_words" in self._columns)

    def _found(self, template: str, asked: Mapping[str, Any], where: Condition | None, *more: Any) -> Any:
        """The answer to one statement, as a table of all columns and `more`."""
        known = self._statements
        statement = known.read(template, where)
        with self._connected() as connection:
            if self._has_index:
                ef_search = min(max(asked["k"], 100), 1_000)
                connection.execute(statements.SEARCH_OPTIONS, [str(ef_search)])
            rows = connection.cursor(binary=True).execute(statement, asked).fetchall()
            self._check_rows(connection, rows)
        return pa.Table.from_batches([batch_of(rows, pa.schema([*self.schema(), *more]))])

    def _check_rows(self, connection: _Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Whether rows have the shape that was asked for; their table cannot be replaced before this ends."""
        if not rows or self._about is None or rows[0][0] != self._statements.shape:
            self._check_current(connection)

    def close(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


table = PostgresTable


def _check_place(target: Target) -> None:
    """Whether the client can take the place apart.

    Raises:
        EngineError: it cannot; what it says of it is shown up to the first value, which may be a password.
    """
    said = ""
    try:
        conninfo.conninfo_to_dict(target.place)
    except psycopg.ProgrammingError as fault:
        said = re.split('[:"]', str(fault))[0].strip()
    except UnicodeDecodeError:
        said = "a part of it is not UTF-8"
    if said:
        hint = "write postgresql://USER:PASSWORD@HOST/DATABASE, in a password @ as %40, / as %2F and % as %25"
        raise EngineError(said, hint, where=target.shown)


def _is_indexed(about: AboutTable) -> bool:
    """Whether such a table has an approximate index."""
    return about.n_rows >= INDEXED and about.dim <= _MAX_INDEXED_DIM


def _copy(connection: _Connection, rows: Iterable[Any], written: Statements) -> None:
    """Write rows to the new table."""
    types = ["bytea" if name == VECTOR else kind for name, kind in written.types.items()]
    with connection.cursor() as cursor, cursor.copy(written.write(statements.COPY)) as copy:
        copy.set_types(types)
        for batch in rows:
            columns = [column.to_pylist() for column in batch.columns[:-1]]
            for row in zip(*columns, packed(vectors_of(batch)), strict=True):
                copy.write_row(row)
