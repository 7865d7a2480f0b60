"""Milvus: a collection behind an alias, on a server or in a folder of Milvus Lite.

    the alias NAME -> NAME_<8 hex digits>, the rows;    NAME_<8 hex digits>_about, its `About`, in parts

A replacement fills a new collection and then moves the alias: whoever opened the table before must open it again. An
update is not atomic: a reader sees its rows change one by one, `About` last. Vectors are float32, which holds every
float16: Milvus Lite has nothing else, and with half precision a server would round the question, too.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymilvus import DataType, Function, FunctionType, MilvusClient, MilvusException
from pymilvus.client.connection_manager import ConnectionManager
from pymilvus.exceptions import ConnectionConfigException, ErrorCode

from ragidx.corpora.errors import QueryError, RagidxError, SpecError
from ragidx.pipelines.engines.about import About
from ragidx.pipelines.engines.columns import DIGEST, schema_of, vectors_of
from ragidx.pipelines.engines.filters import Sql, nnf
from ragidx.pipelines.engines.table import INDEXED, SCORE, Table, Target
from ragidx.retriever.contents import VECTOR

if TYPE_CHECKING:
    from ragidx.indexer.arrays import Bools, Floats
    from ragidx.retriever.where.conditions import Condition

TOKEN = "MILVUS_TOKEN"  # noqa: S105  # the name of an environment variable
"""The environment variable with the token of a server."""

_MAX_TEXT, _MAX_ITEMS, _MAX_DIM, _MAX_K = 65_535, 4_096, 32_768, 16_384  # of Milvus: bytes, items, numbers, rows
_BLOCK = 1_000  # rows of one call, and ids in one condition
_MESSAGE = 2**24  # bytes of one call; a server takes up to 64 MiB
_CONNECT_S = 10.0
_WORDS, _PART = "_words", "part"  # no field has a column that begins with `_`
_FAULTS = (MilvusException, grpc.RpcError, OSError, ValueError)
_TYPES = {
    pa.bool_(): DataType.BOOL,
    pa.int64(): DataType.INT64,
    pa.float64(): DataType.DOUBLE,
    pa.large_string(): DataType.VARCHAR,
    pa.timestamp("us"): DataType.INT64,
    pa.large_list(pa.large_string()): DataType.ARRAY,
}

for _name in ("pymilvus", "milvus_lite"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # they log with a traceback what they raise, too


class MilvusTable(Table):
    """A collection of Milvus."""

    has_words = True

    def __init__(self, target: Target) -> None:
        self.target = target
        self._client: Any = None
        self._opened, self._about = "", None
        place, self._lite = target.place, "://" not in target.place
        if "@" in urlsplit(place).netloc:
            hint = f"put the token into the environment variable {TOKEN}"
            raise SpecError("the URL of a Milvus server cannot have a password", hint, where=target.shown)
        if self._lite and not place.endswith(".db"):
            hint = "end its name in .db, or name a server: milvus:http://HOST:19530"
            raise SpecError("Milvus Lite opens no file of this name", hint, where=target.shown)
        if not self._lite or Path(place).exists():
            self._connect()
            self._open()

    def _connect(self) -> None:
        with self._asked():
            try:
                token = "" if self._lite else os.environ.get(TOKEN, "")
                self._client = MilvusClient(self.target.place, token=token, timeout=_CONNECT_S, dedicated=True)
            except ConnectionConfigException:
                if self._lite and Path(self.target.place).exists():
                    _why_not(self.target.place)
                raise

    def _open(self) -> None:
        """Look at the state that is there now."""
        client, self._opened, self._about = self._client, "", None
        with self._asked():
            if not client.has_collection(self.target.name):
                return
            opened = client.describe_collection(self.target.name)["collection_name"]
            if client.has_collection(f"{opened}_about"):
                for name in (opened, f"{opened}_about"):
                    client.load_collection(name)
                self._about = About.from_bytes(self._kept(f"{opened}_about"), self.target.shown)
            self._opened = opened

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Turn what Milvus raises into one line."""
        with self.target.faults(*_FAULTS):
            try:
                yield
            except MilvusException as fault:
                if fault.code == ErrorCode.COLLECTION_NOT_FOUND and self._opened:
                    raise RagidxError("its rows were replaced", "open it again", where=self.target.shown) from None
                raise OSError(fault.message) from None

    def about(self) -> About | None:
        if self._opened and self._about is None:
            hint = "name another table: TARGET#NAME, or give `replace=True`"
            raise SpecError("it is a collection that ragidx did not write", hint, where=self.target.shown)
        return self._about

    def check(self, about: About) -> None:
        if about.dim > _MAX_DIM:
            hint = f"build the index with `dim` up to {_MAX_DIM:,}"
            raise SpecError(
                f"Milvus holds vectors of up to {_MAX_DIM:,} numbers, these have {about.dim:,}",
                hint,
                where=self.target.shown,
            )

    def refused(self, rows: Any) -> Mapping[str, Bools]:
        texts, lists = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        for column in rows.columns:
            if pa.types.is_large_list(column.type):
                lists |= _over(pc.list_value_length(column), _MAX_ITEMS)
                items = _over(pc.binary_length(pc.list_flatten(column)), _MAX_TEXT)
                texts[pc.list_parent_indices(column).to_numpy()[items]] = True
            elif pa.types.is_large_string(column.type):
                texts |= _over(pc.binary_length(column), _MAX_TEXT)
        return {
            f"a text of more than {_MAX_TEXT:,} bytes": texts,
            f"a list of more than {_MAX_ITEMS:,} items": lists,
        }

    def replace(self, rows: Iterable[Any], n_rows: int, about: About) -> None:
        if self._client is None:
            self._connect()
        client, name = self._client, self.target.name
        made = f"{name}_{secrets.token_hex(4)}"
        with self._asked():
            self._create_about(f"{made}_about")
            self._create(made, n_rows, about)
            for batch in rows:
                self._write(client.insert, made, batch)
            client.flush(made)
            self._keep(f"{made}_about", about)
            if client.has_collection(name) and client.describe_collection(name)["collection_name"] != name:
                client.alter_alias(made, name)
            else:
                client.drop_collection(name)
                client.create_alias(made, name)
            leftover = re.compile(rf"({re.escape(name)}_[0-9a-f]{{8}})_about")
            for match in filter(None, map(leftover.fullmatch, client.list_collections())):
                if match[1] != made:
                    client.drop_collection(match[1])
                    client.drop_collection(match[0])
        self._open()

    def digests(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for batch in self.select(columns=["chunk_id", DIGEST]):
            found.update(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
        return found

    def update(self, rows: Iterable[Any], gone: Callable[[], Sequence[str]], about: About) -> None:
        with self._asked():
            for batch in rows:
                self._write(self._client.upsert, self._opened, batch)
            for block in _blocks(gone()):
                self._client.delete(self._opened, filter=_one_of("chunk_id", block))
            self._keep(f"{self._opened}_about", about)
        self._open()

    def nearest(self, vector: Floats, k: int, where: Condition | None) -> Any:
        return self._found(np.asarray(vector, np.float32), VECTOR, k, where)[0]

    def by_words(self, text: str, k: int, where: Condition | None) -> Any:
        rows, scores = self._found(text, _WORDS, k, where)
        return rows.append_column(SCORE, pa.array(np.abs(scores, dtype=np.float64)))  # Milvus Lite gives them negated

    def select(
        self,
        where: Condition | None = None,
        columns: Sequence[str] | None = None,
        ids: tuple[str, Sequence[str]] | None = None,
    ) -> Iterator[Any]:
        schema = self._schema(columns)
        small = VECTOR not in schema.names and "text" not in schema.names
        at_once = _MAX_K if small else 2 * _MESSAGE // (4 * schema_of(self._about).field(VECTOR).type.list_size + 8_192)
        first = [] if where is None else [self._filter(where)]
        parts = [first] if ids is None else [[*first, _one_of(ids[0], block)] for block in _blocks(ids[1])]
        for part in parts:
            for rows in self._pages(self._opened, "chunk_id", part, schema.names, at_once):
                yield _batch(rows, schema)

    def count(self, where: Condition | None = None) -> int:
        with self._asked():
            filtered = "" if where is None else self._filter(where)
            return int(self._client.query(self._opened, filter=filtered, output_fields=["count(*)"])[0]["count(*)"])

    def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        client.close()
        if self._lite:  # its server is of this process, and for all clients of the file
            from milvus_lite.server_manager import server_manager_instance as servers

            address = urlsplit(servers.start_and_get_uri(self.target.place)).netloc
            others = ConnectionManager.get_instance().get_stats()["connections"]
            if not any(one["address"] == address and one["client_count"] for one in others):
                servers.release_server(self.target.place)

    def _schema(self, columns: Sequence[str] | None) -> Any:
        schema = schema_of(self._about)
        return schema if columns is None else pa.schema([schema.field(name) for name in columns])

    def _filter(self, where: Condition) -> str:
        assert self._about is not None
        return _Expression(self._about.columns(), self._about.fields, where).written(nnf(where))

    def _found(self, asked: Any, column: str, k: int, where: Condition | None) -> tuple[Any, list[float]]:
        """The best k rows, as a table, and what Milvus gives for them."""
        if k > _MAX_K:
            raise QueryError(f"Milvus finds up to {_MAX_K:,} rows, not {k:,}", "ask for fewer", where=self.target.shown)
        schema, filtered = self._schema(None), "" if where is None else self._filter(where)
        with self._asked():
            [hits] = self._client.search(
                self._opened, [asked], filtered, limit=k, output_fields=schema.names, anns_field=column
            )
        rows = _batch([hit["entity"] for hit in hits], schema)
        return pa.Table.from_batches([rows]), [hit["distance"] for hit in hits]

    def _pages(self, of: str, key: str, where: Sequence[str], columns: Sequence[str], at_once: int) -> Iterator[Any]:
        """Rows by their keys; the client's own iterator breaks at keys with quotes."""
        after: list[str] = []
        while True:
            with self._asked():
                asked = " and ".join([*after, *where])
                options = {"iterator": "True", "reduce_stop_for_best": "True"}  # rows in the order of their keys
                rows = self._client.query(of, asked, output_fields=list(columns), limit=at_once, **options)
            if not rows:
                return
            yield rows
            after = [f"{key} > {_text(rows[-1][key])}"]

    def _create(self, name: str, n_rows: int, about: About) -> None:
        schema, index = MilvusClient.create_schema(), MilvusClient.prepare_index_params()
        for field in schema_of(about):
            if field.name == VECTOR:
                schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=about.dim)
                continue
            more = {"is_primary": True} if field.name == "chunk_id" else {"nullable": field.nullable}
            more |= {"enable_analyzer": True} if field.name == "text" else {}
            size = {"max_length": _MAX_TEXT, "max_capacity": _MAX_ITEMS, "element_type": DataType.VARCHAR}
            schema.add_field(field.name, _TYPES[field.type], **size, **more)
        schema.add_field(_WORDS, DataType.SPARSE_FLOAT_VECTOR)
        schema.add_function(Function("words", FunctionType.BM25, ["text"], [_WORDS]))
        index.add_index(VECTOR, "AUTOINDEX" if n_rows >= INDEXED else "FLAT", metric_type="IP")
        index.add_index(_WORDS, "SPARSE_INVERTED_INDEX", metric_type="BM25")
        self._client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")

    def _write(self, write: Callable[[str, list[Any]], Any], name: str, batch: Any) -> None:
        at_once = max(1, min(_BLOCK, _MESSAGE * len(batch) // (2 * batch.nbytes)))  # vectors become twice as large
        for start in range(0, len(batch), at_once):
            write(name, _rows(batch.slice(start, at_once)))

    def _create_about(self, name: str) -> None:
        schema, index = MilvusClient.create_schema(), MilvusClient.prepare_index_params()
        schema.add_field(_PART, DataType.VARCHAR, is_primary=True, max_length=64)
        schema.add_field("data", DataType.VARCHAR, max_length=_MAX_TEXT)
        schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=2)  # a collection must have one
        index.add_index(VECTOR, "FLAT", metric_type="IP")
        self._client.create_collection(name, schema=schema, index_params=index, consistency_level="Strong")

    def _kept(self, name: str) -> bytes:
        """The last `About` of which all parts are there; a part is `number/place/how many`."""
        found: dict[str, list[tuple[str, str]]] = {}
        for rows in self._pages(name, _PART, [], [_PART, "data"], _MESSAGE // _MAX_TEXT):
            for row in rows:
                found.setdefault(row[_PART].partition("/")[0], []).append((row[_PART], row["data"]))
        whole = [parts for _, parts in sorted(found.items()) if len(parts) == int(parts[0][0].rpartition("/")[2])]
        return "".join(data for _, data in sorted(whole[-1])).encode() if whole else b""

    def _keep(self, name: str, about: About) -> None:
        """Write an `About`, then delete those before it."""
        text = about.to_bytes().decode("ascii")
        last = [row[_PART] for rows in self._pages(name, _PART, [], [_PART], _MAX_K) for row in rows][-1:]
        number = f"{int(last[0].partition('/')[0]) + 1 if last else 0:08}"
        parts = [text[start : start + _MAX_TEXT] for start in range(0, len(text), _MAX_TEXT)]
        rows = [
            {_PART: f"{number}/{place:08}/{len(parts)}", "data": part, VECTOR: [0.0, 0.0]}
            for place, part in enumerate(parts)
        ]
        for start in range(0, len(rows), _MESSAGE // _MAX_TEXT):
            self._client.insert(name, rows[start : start + _MESSAGE // _MAX_TEXT])
        self._client.delete(name, filter=f'{_PART} < "{number}"')


table = MilvusTable


class _Expression(Sql):
    """The boolean expressions of Milvus, over a condition with `not` at the leaves."""

    engine, signs, brackets = "Milvus", {}, "[]"

    def __init__(self, columns: Mapping[str, str], fields: Mapping[str, str], whole: Condition) -> None:
        super().__init__(columns, fields)
        self._with_lists = any(fields[name] == "list" for name in whole.fields)

    def written(self, condition: Condition) -> str:
        if condition.op != "not":
            return super().written(condition)
        [part] = condition.parts
        assert part.field is not None
        known = f"({self.columns[part.field]} is not null)"
        return known if part.op == "is null" else f"({known} and not {super().written(part)})"

    def never(self, column: str) -> str:
        return f"({column} < 0 and {column} > 0)"

    def always(self, column: str) -> str:
        return f"({column} is not null)"

    def name(self, column: str) -> str:
        return column

    def text(self, value: str) -> str:
        return _text(value)

    def time(self, value: datetime) -> str:
        return str((value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))

    def has_item(self, column: str, item: str) -> str:
        return f"array_contains({column}, {item})"

    def text_test(self, test: str, column: str, value: str, field: str) -> str:
        if test == "matches":
            self.cannot("a regular expression", field)
        pattern = re.sub(r"([%_\\])", r"\\\1", value)
        if pattern != value and self._with_lists:  # Milvus Lite then reads the pattern without its escapes
            self.cannot("a text with %, _ or \\ beside a list", field)
        return f"({column} like {_text(f'{pattern}%' if test == 'starts with' else f'%{pattern}%')})"


def _rows(batch: Any) -> list[dict[str, Any]]:
    """As the client takes them."""
    vectors = vectors_of(batch).astype(np.float32)
    whole = [pa.int64() if pa.types.is_timestamp(field.type) else field.type for field in batch.schema]
    named = zip(batch.schema.names, batch.columns, whole, strict=True)
    plain = pa.table({name: column.cast(kind) for name, column, kind in named if name != VECTOR}).to_pylist()
    return [row | {VECTOR: vector} for row, vector in zip(plain, vectors, strict=True)]


def _batch(rows: Sequence[Mapping[str, Any]], schema: Any) -> Any:
    """The inverse."""
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if field.name == VECTOR:
            flat = np.asarray(values, np.float32).astype(np.float16).ravel()
            columns.append(pa.FixedSizeListArray.from_arrays(pa.array(flat), type=field.type))
        elif pa.types.is_timestamp(field.type):
            columns.append(pa.array(values, pa.int64()).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _over(sizes: Any, limit: int) -> Bools:
    return pc.fill_null(pc.greater(sizes, limit), False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _blocks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + _BLOCK] for start in range(0, len(ids), _BLOCK))


def _one_of(column: str, values: Sequence[str]) -> str:
    return f"({column} in [{', '.join(map(_text, values))}])"


def _why_not(place: str) -> None:
    """Open a file of Milvus Lite without its client, which does not say why it cannot."""
    from milvus_lite.db import MilvusLite
    from milvus_lite.exceptions import MilvusLiteError

    try:
        MilvusLite(place).close()
    except MilvusLiteError as fault:
        raise OSError(str(fault)) from None


_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


def _text(value: str) -> str:
    """As Milvus writes a text."""
    return '"' + value.translate(_ESCAPED) + '"'
