"""Milvus: a collection behind an alias, on a server or in a folder of Milvus Lite.

    the alias NAME -> NAME_<8 hex digits>, the rows;    NAME_<8 hex digits>_about, its `AboutTable`, in parts

Vectors are float32, which holds every float16: Milvus Lite has nothing else, and with half precision a server would
round the question, too.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import grpc
import numpy as np
import pyarrow as pa
from pymilvus import MilvusClient, MilvusException
from pymilvus.client.connection_manager import ConnectionManager
from pymilvus.exceptions import ConnectionConfigException, ErrorCode

from ragidx.corpora.errors import EngineError, QueryError, SpecError
from ragidx.indexer.arrays import slices
from ragidx.pipelines.integrations.engines.conditions import nnf
from ragidx.pipelines.integrations.engines.layout import SCORE, AboutTable
from ragidx.pipelines.integrations.engines.milvus_rows import (
    WORDS,
    Expression,
    batch_of,
    one_of,
    rows_over,
    rows_to,
    schema_for,
    text_of,
)
from ragidx.pipelines.integrations.engines.table import BLOCK, INDEXED, Aliased, ReplacedError
from ragidx.retriever.rows import VECTOR

if TYPE_CHECKING:
    from ragidx.indexer.arrays import Bools, Floats
    from ragidx.retriever.where.conditions import Condition

_TOKEN = "MILVUS_TOKEN"  # the environment variable that has it
_MAX_ROWS = 16_384  # of an answer of Milvus
_MESSAGE = 2**24  # bytes of one call, where they can be chosen; a server takes 64 MiB
_CONNECT_S = 10.0
_UNREACHED = "Fail connecting to server"
_PART = 30_000  # characters of an `AboutTable` in one row; as JSON they may become twice as many bytes
_FAULTS = (MilvusException, grpc.RpcError, OSError, ValueError)
for _name in ("pymilvus", "milvus_lite"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # what they raise they log, too, with a traceback


class MilvusTable(Aliased):
    """A collection of Milvus."""

    has_words = True
    max_dim, max_rows = 32_768, _MAX_ROWS

    def _reach(self) -> None:
        """Connect, and look. The server of Milvus Lite is threads of this process: one that is dead is started anew."""
        place, shown = self.target.place, self.target.shown
        self._lite = "://" not in place
        if not self._lite and re.search("[@?]", place):
            hint = f"put it into the environment variable {_TOKEN}, as USER:PASSWORD or a token"
            raise SpecError("a password does not belong into the URL of Milvus", hint, where=shown)
        if self._lite and not place.endswith(".db"):
            hint = "let its name end in .db, or name a server: milvus:http://HOST:19530"
            raise SpecError("Milvus Lite opens no file of this name", hint, where=shown)
        if self._lite:
            import_module("milvus_lite")
        if self._lite and not Path(place).exists():
            return
        try:
            self._connect()
            self._open()
        except EngineError as fault:
            if not self._lite or _UNREACHED not in fault.message:
                raise
            self.close()
            import_module("milvus_lite.server_manager").server_manager_instance.release_server(place)
            self._connect()
            self._open()

    def _connect(self) -> None:
        token, place = "" if self._lite else os.environ.get(_TOKEN, ""), self.target.place
        with self._asking():
            try:
                self._client = MilvusClient(place, token=token, timeout=_CONNECT_S, dedicated=True)
            except ConnectionConfigException:
                if self._lite and Path(place).exists():
                    _check_opens(place)
                raise

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        """The client; what it raises becomes one line."""
        with self.target.faults(*_FAULTS):
            try:
                yield self._client
            except MilvusException as fault:
                if fault.code == ErrorCode.COLLECTION_NOT_FOUND and self.rows_in:
                    raise ReplacedError.of(self.target) from None
                raise OSError(fault.message) from None

    def refused(self, rows: Any) -> Mapping[str, Bools]:
        return rows_over(rows)

    def _aliases(self) -> dict[str, str]:
        name = self.target.name
        there = self._client.has_collection(name)
        return {name: self._client.describe_collection(name)["collection_name"]} if there else {}

    def _collections(self) -> list[str]:
        return self._client.list_collections()  # type: ignore[no-any-return]

    def _drop(self, collection: str) -> None:
        self._client.drop_collection(collection)

    def _move_alias(self, collection: str, *, is_new: bool) -> None:
        (self._client.create_alias if is_new else self._client.alter_alias)(collection, self.target.name)

    def _make(self, collection: str, rows: Iterable[Any], about: AboutTable) -> None:
        client = self._client
        client.create_collection(  # a collection must have a vector: of two numbers here
            f"{collection}_about", 2, "part", "string", max_length=128, consistency_level="Strong"
        )
        client.create_collection(collection, schema=schema_for(about), consistency_level="Strong")
        self._insert(client.insert, collection, rows)
        client.flush(collection)
        index = client.prepare_index_params()
        index.add_index(VECTOR, "AUTOINDEX" if about.n_rows >= INDEXED else "FLAT", metric_type="IP")
        index.add_index(WORDS, "SPARSE_INVERTED_INDEX", metric_type="BM25")
        client.create_index(collection, index, sync=not self._lite)  # Milvus Lite builds it in the next line
        client.load_collection(collection)

    def _write(self, collection: str, rows: Iterable[Any]) -> None:
        self._insert(self._client.upsert, collection, rows)

    def _delete(self, ids: Sequence[str]) -> None:
        self._client.delete(self.rows_in, filter=one_of("chunk_id", ids))

    def _insert(self, write: Callable[[str, list[Any]], Any], name: str, rows: Iterable[Any]) -> None:
        for batch in rows:
            at_once = max(1, min(BLOCK, _MESSAGE * len(batch) // (2 * batch.nbytes)))  # vectors become twice as large
            for start in range(0, len(batch), at_once):
                write(name, rows_to(batch.slice(start, at_once)))

    def _write_about(self, collection: str, about: AboutTable) -> None:
        text = about.to_bytes().decode("ascii")
        parts = list(slices(text, _PART))
        key = f"{about.generation:012} {about.created} {len(parts)}"
        rows = [{"part": f"{key}/{n:06}", "data": part, VECTOR: [1.0, 0.0]} for n, part in enumerate(parts)]
        for some in slices(rows, _MESSAGE // _PART):
            self._client.upsert(f"{collection}_about", some)
        self._client.delete(
            f"{collection}_about", filter=f"part < {text_of(f'{key}/')} or part > {text_of(f'{key}/~')}"
        )

    def _stored(self, collection: str) -> bytes | None:
        """The latest of which all parts are there."""
        if not self._client.has_collection(f"{collection}_about"):
            return None
        self._client.load_collection(f"{collection}_about")
        self._client.load_collection(collection)
        found: dict[str, list[str]] = {}
        for rows in self._pages(f"{collection}_about", "part", [], ["data"], _MESSAGE // _PART):
            for row in rows:
                found.setdefault(row["part"].partition("/")[0], []).append(row["data"])
        whole = [parts for key, parts in found.items() if len(parts) == int(key.rpartition(" ")[2])]
        return "".join(whole[-1] if whole else []).encode()

    def nearest(self, vector: Floats, k: int, where: Condition | None) -> Any:
        return self._found(np.asarray(vector, np.float32), VECTOR, k, where)[0]

    def by_words(self, text: str, k: int, where: Condition | None) -> Any:
        rows, scores = self._found(text, WORDS, k, where)
        return rows.append_column(SCORE, pa.array(np.abs(scores, dtype=np.float64)))  # Milvus Lite gives them negated

    def _found(self, asked: Any, column: str, k: int, where: Condition | None) -> tuple[Any, list[float]]:
        """The best k rows, as a table, and what Milvus gives for them."""
        if k > _MAX_ROWS:
            message = f"Milvus finds up to {_MAX_ROWS:,} rows, not {k:,}"
            raise QueryError(message, "ask for fewer", where=self.target.shown)
        schema, filtered = self.schema(), "" if where is None else self._filter(where)
        with self._asking() as client:
            [hits] = client.search(
                self.rows_in, [asked], filtered, limit=k, output_fields=schema.names, anns_field=column
            )
        rows = batch_of([hit["entity"] for hit in hits], schema)
        return pa.Table.from_batches([rows]), [hit["distance"] for hit in hits]

    def select(
        self,
        where: Condition | None = None,
        columns: Sequence[str] | None = None,
        ids: tuple[str, Sequence[str]] | None = None,
    ) -> Iterator[Any]:
        schema, dim = self.schema(columns), self.schema().field(VECTOR).type.list_size
        large = {VECTOR, "text"} & {*schema.names}
        at_once = 2 * _MESSAGE // (4 * dim + 8_192) if large else _MAX_ROWS  # 8 KiB: the texts of a row
        first = [] if where is None else [self._filter(where)]
        parts = [first]
        if ids is not None:
            column, values = ids
            parts = [[*first, one_of(column, block)] for block in slices(values, BLOCK)]
        for part in parts:
            for rows in self._pages(self.rows_in, "chunk_id", part, schema.names, at_once):
                yield batch_of(rows, schema)

    def _pages(self, of: str, key: str, where: Sequence[str], columns: Sequence[str], at_once: int) -> Iterator[Any]:
        """Rows in the order of their keys; the client's own iterator breaks where a key has quotes."""
        after: list[str] = []
        options = {"iterator": "True", "reduce_stop_for_best": "True", "limit": at_once}
        while True:
            with self._asking() as client:
                rows = client.query(of, " and ".join([*after, *where]), output_fields=[key, *columns], **options)
            if not rows:
                return
            yield rows
            after = [f"{key} > {text_of(rows[-1][key])}"]

    def count(self, where: Condition | None = None) -> int:
        filtered = "" if where is None else self._filter(where)
        with self._asking() as client:
            return int(client.query(self.rows_in, filtered, output_fields=["count(*)"])[0]["count(*)"])

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
        return Expression(self._about.columns(), self._about.fields, where).written(nnf(where))


table = MilvusTable


def _check_opens(place: str) -> None:
    """Open a file of Milvus Lite without the client, which does not say why it cannot."""
    from milvus_lite.db import MilvusLite
    from milvus_lite.exceptions import MilvusLiteError

    try:
        MilvusLite(place).close()
    except MilvusLiteError as fault:
        raise OSError(str(fault)) from None
