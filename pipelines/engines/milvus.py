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
from typing import TYPE_CHECKING, Any, ClassVar
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

_TOKEN = "MILVUS_TOKEN"  # the environment variable that has it
_MAX_TEXT, _MAX_ITEMS, _MAX_DIM, _MAX_ROWS = 65_535, 4_096, 32_768, 16_384  # of Milvus: bytes, items, numbers, rows
_BLOCK = 1_000  # rows of one call, and ids in one condition
_MESSAGE = 2**24  # bytes of one call, where they can be chosen; a server takes 64 MiB
_CONNECT_S = 10.0
_PART = 30_000  # characters of an `About` in one row; as JSON they may become twice as many bytes
_WORDS = "_words"  # no field has a column that begins with `_`
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
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # what they raise they log, too, with a traceback


class MilvusTable(Table):
    """A collection of Milvus."""

    has_words = True

    def __init__(self, target: Target) -> None:
        self.target, self._client, self._opened = target, None, ""
        self._about: About | None = None
        self._lite = "://" not in target.place
        if "@" in urlsplit(target.place).netloc:
            hint = f"put it into the environment variable {_TOKEN}, as USER:PASSWORD or a token"
            raise SpecError("a password does not belong into the URL of Milvus", hint, where=target.shown)
        if self._lite and not target.place.endswith(".db"):
            hint = "let its name end in .db, or name a server: milvus:http://HOST:19530"
            raise SpecError("Milvus Lite opens no file of this name", hint, where=target.shown)
        if not self._lite or Path(target.place).exists():
            self._connect()
            try:
                self._open()
            except BaseException:
                self.close()
                raise

    def _connect(self) -> None:
        token, place = "" if self._lite else os.environ.get(_TOKEN, ""), self.target.place
        with self._asked():
            try:
                self._client = MilvusClient(place, token=token, timeout=_CONNECT_S, dedicated=True)
            except ConnectionConfigException:
                if self._lite and Path(place).exists():
                    _check_opens(place)
                raise

    def _open(self) -> None:
        """Look at the state that is there now."""
        self._opened, self._about = "", None
        with self._asked() as client:
            if not client.has_collection(self.target.name):
                return
            opened = client.describe_collection(self.target.name)["collection_name"]
            if client.has_collection(f"{opened}_about"):
                client.load_collection(f"{opened}_about")
                client.load_collection(opened)
                self._about = About.from_bytes(self._kept(opened), self.target.shown)
            self._opened = opened

    @contextmanager
    def _asked(self) -> Iterator[Any]:
        """The client; what it raises becomes one line."""
        with self.target.faults(*_FAULTS):
            try:
                yield self._client
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
            message = f"Milvus holds vectors of up to {_MAX_DIM:,} numbers, and these have {about.dim:,}"
            raise SpecError(message, "build the index with a smaller `dim`", where=self.target.shown)

    def refused(self, rows: Any) -> Mapping[str, Bools]:
        texts, lists = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        for column in rows.columns:
            if pa.types.is_large_list(column.type):
                lists |= _over(pc.list_value_length(column), _MAX_ITEMS)
                items = _over(pc.binary_length(pc.list_flatten(column)), _MAX_TEXT)
                texts[pc.list_parent_indices(column).to_numpy()[items]] = True
            elif pa.types.is_large_string(column.type):
                texts |= _over(pc.binary_length(column), _MAX_TEXT)
        return {f"a text of more than {_MAX_TEXT:,} bytes": texts, f"a list of more than {_MAX_ITEMS:,} items": lists}

    def replace(self, rows: Iterable[Any], n_rows: int, about: About) -> None:
        if self._client is None:
            self._connect()
        name = self.target.name
        made = f"{name}_{secrets.token_hex(4)}"
        with self._asked() as client:
            client.create_collection(  # a collection must have a vector: of two numbers here
                f"{made}_about", 2, "part", "string", max_length=128, consistency_level="Strong"
            )
            client.create_collection(made, schema=_schema(about), consistency_level="Strong")
            self._write(client.insert, made, rows)
            client.flush(made)
            index = client.prepare_index_params()
            index.add_index(VECTOR, "AUTOINDEX" if n_rows >= INDEXED else "FLAT", metric_type="IP")
            index.add_index(_WORDS, "SPARSE_INVERTED_INDEX", metric_type="BM25")
            client.create_index(made, index, sync=not self._lite)  # Milvus Lite builds it in the next line
            client.load_collection(made)
            self._keep(made, about)
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
        with self._asked() as client:
            self._write(client.upsert, self._opened, rows)
            for block in _blocks(gone()):
                client.delete(self._opened, filter=_one_of("chunk_id", block))
            self._keep(self._opened, about)
        self._open()

    def _write(self, write: Callable[[str, list[Any]], Any], name: str, rows: Iterable[Any]) -> None:
        for batch in rows:
            at_once = max(1, min(_BLOCK, _MESSAGE * len(batch) // (2 * batch.nbytes)))  # vectors become twice as large
            for start in range(0, len(batch), at_once):
                write(name, _rows(batch.slice(start, at_once)))

    def _keep(self, name: str, about: About) -> None:
        """Write an `About`, and then delete the one before it."""
        text = about.to_bytes().decode("ascii")
        parts = [text[start : start + _PART] for start in range(0, len(text), _PART)]
        key = f"{about.generation:012} {about.created} {len(parts)}"
        rows = [{"part": f"{key}/{n:06}", "data": part, VECTOR: [1.0, 0.0]} for n, part in enumerate(parts)]
        for start in range(0, len(rows), _MESSAGE // _PART):
            self._client.upsert(f"{name}_about", rows[start : start + _MESSAGE // _PART])
        self._client.delete(f"{name}_about", filter=f"part < {_text(f'{key}/')} or part > {_text(f'{key}/~')}")

    def _kept(self, name: str) -> bytes:
        """The latest `About` of which all parts are there."""
        found: dict[str, list[str]] = {}
        for rows in self._pages(f"{name}_about", "part", [], ["data"], _MESSAGE // _PART):
            for row in rows:
                found.setdefault(row["part"].partition("/")[0], []).append(row["data"])
        whole = [parts for key, parts in found.items() if len(parts) == int(key.rpartition(" ")[2])]
        return "".join(whole[-1] if whole else []).encode()

    def nearest(self, vector: Floats, k: int, where: Condition | None) -> Any:
        return self._found(np.asarray(vector, np.float32), VECTOR, k, where)[0]

    def by_words(self, text: str, k: int, where: Condition | None) -> Any:
        rows, scores = self._found(text, _WORDS, k, where)
        return rows.append_column(SCORE, pa.array(np.abs(scores, dtype=np.float64)))  # Milvus Lite gives them negated

    def _found(self, asked: Any, column: str, k: int, where: Condition | None) -> tuple[Any, list[float]]:
        """The best k rows, as a table, and what Milvus gives for them."""
        if k > _MAX_ROWS:
            message = f"Milvus finds up to {_MAX_ROWS:,} rows, not {k:,}"
            raise QueryError(message, "ask for fewer", where=self.target.shown)
        schema, filtered = schema_of(self._about), "" if where is None else self._filter(where)  # type: ignore[arg-type]
        with self._asked() as client:
            [hits] = client.search(
                self._opened, [asked], filtered, limit=k, output_fields=schema.names, anns_field=column
            )
        rows = _batch([hit["entity"] for hit in hits], schema)
        return pa.Table.from_batches([rows]), [hit["distance"] for hit in hits]

    def select(
        self,
        where: Condition | None = None,
        columns: Sequence[str] | None = None,
        ids: tuple[str, Sequence[str]] | None = None,
    ) -> Iterator[Any]:
        assert self._about is not None
        whole = schema_of(self._about)
        schema = whole if columns is None else pa.schema([whole.field(name) for name in columns])
        large = {VECTOR, "text"} & {*schema.names}
        at_once = 2 * _MESSAGE // (4 * self._about.dim + 8_192) if large else _MAX_ROWS  # 8 KiB: the texts of a row
        first = [] if where is None else [self._filter(where)]
        parts = [first] if ids is None else [[*first, _one_of(ids[0], block)] for block in _blocks(ids[1])]
        for part in parts:
            for rows in self._pages(self._opened, "chunk_id", part, schema.names, at_once):
                yield _batch(rows, schema)

    def _pages(self, of: str, key: str, where: Sequence[str], columns: Sequence[str], at_once: int) -> Iterator[Any]:
        """Rows in the order of their keys; the client's own iterator breaks where a key has quotes."""
        after: list[str] = []
        options = {"iterator": "True", "reduce_stop_for_best": "True", "limit": at_once}
        while True:
            with self._asked() as client:
                rows = client.query(of, " and ".join([*after, *where]), output_fields=[key, *columns], **options)
            if not rows:
                return
            yield rows
            after = [f"{key} > {_text(rows[-1][key])}"]

    def count(self, where: Condition | None = None) -> int:
        filtered = "" if where is None else self._filter(where)
        with self._asked() as client:
            return int(client.query(self._opened, filtered, output_fields=["count(*)"])[0]["count(*)"])

    def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        client.close()
        if self._lite:  # its server runs in this process, for all clients of the file
            from milvus_lite.server_manager import server_manager_instance as servers

            address = urlsplit(servers.start_and_get_uri(self.target.place)).netloc
            others = ConnectionManager.get_instance().get_stats()["connections"]
            if not any(one["address"] == address and one["client_count"] for one in others):
                servers.release_server(self.target.place)

    def _filter(self, where: Condition) -> str:
        assert self._about is not None
        return _Expression(self._about.columns(), self._about.fields, where).written(nnf(where))


table = MilvusTable


class _Expression(Sql):
    """The expressions of Milvus, of conditions with `not` at the leaves: there it can mind the nulls."""

    engine, brackets = "Milvus", "[]"
    signs: ClassVar[Mapping[str, str]] = {}

    def __init__(self, columns: Mapping[str, str], fields: Mapping[str, str], whole: Condition) -> None:
        super().__init__(columns, fields)
        self._with_lists = any(fields[name] == "list" for name in whole.fields)

    def written(self, condition: Condition) -> str:
        if condition.op != "not":
            return super().written(condition)
        [part] = condition.parts
        known = self.always(self.columns[part.field])  # type: ignore[index]  # a leaf has one
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
        return str((value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))

    def has_item(self, column: str, item: str) -> str:
        return f"array_contains({column}, {item})"

    def text_test(self, test: str, column: str, value: str, field: str) -> str:
        if test == "matches":
            self.cannot("a regular expression", field)
        if "\\\\" in value:  # Milvus Lite reads it as two
            self.cannot("a text with a backslash", field)
        pattern = re.sub("[%_]", r"\\\\\g<0>", value[1:-1])
        if pattern != value[1:-1] and self._with_lists:  # Milvus Lite then knows no escapes
            self.cannot("a text with % or _ beside a list", field)
        return f'({column} like "{"" if test == "starts with" else "%"}{pattern}%")'


def _schema(about: About) -> Any:
    """The fields of a collection of rows."""
    schema = MilvusClient.create_schema()
    for field in schema_of(about):
        if field.name == VECTOR:
            schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=about.dim)
            continue
        more = {"is_primary": True} if field.name == "chunk_id" else {"nullable": field.nullable}
        more |= {"enable_analyzer": True} if field.name == "text" else {}
        sizes = {"max_length": _MAX_TEXT, "max_capacity": _MAX_ITEMS, "element_type": DataType.VARCHAR}
        schema.add_field(field.name, _TYPES[field.type], **sizes, **more)
    schema.add_field(_WORDS, DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(Function("words", FunctionType.BM25, ["text"], [_WORDS]))
    return schema


def _rows(batch: Any) -> list[dict[str, Any]]:
    """As the client takes them: times in microseconds, vectors in float32."""
    plain = {
        field.name: (column.cast(pa.int64()) if pa.types.is_timestamp(field.type) else column).to_pylist()
        for field, column in zip(batch.schema, batch.columns, strict=True)
        if field.name != VECTOR
    }
    columns = [*plain.values(), vectors_of(batch).astype(np.float32)]
    return [dict(zip([*plain, VECTOR], row, strict=True)) for row in zip(*columns, strict=True)]


def _batch(rows: Sequence[Mapping[str, Any]], schema: Any) -> Any:
    """The inverse."""
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if field.name == VECTOR:
            flat = np.asarray(values, np.float32).astype(np.float16).ravel()
            columns.append(pa.FixedSizeListArray.from_arrays(pa.array(flat), type=field.type))
        else:
            stored = pa.int64() if pa.types.is_timestamp(field.type) else field.type
            columns.append(pa.array(values, stored).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _check_opens(place: str) -> None:
    """Open a file of Milvus Lite without the client, which does not say why it cannot."""
    from milvus_lite.db import MilvusLite
    from milvus_lite.exceptions import MilvusLiteError

    try:
        MilvusLite(place).close()
    except MilvusLiteError as fault:
        raise OSError(str(fault)) from None


def _over(sizes: Any, limit: int) -> Any:
    return pc.fill_null(pc.greater(sizes, limit), False).to_numpy(zero_copy_only=False)


def _blocks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + _BLOCK] for start in range(0, len(ids), _BLOCK))


def _one_of(column: str, values: Sequence[str]) -> str:
    return f"({column} in [{', '.join(map(_text, values))}])"


_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


def _text(value: str) -> str:
    """As Milvus writes a text."""
    return f'"{value.translate(_ESCAPED)}"'
