"""Qdrant: rows are points of the collection `NAME_<8 hex>`, which has the alias NAME; `AboutTable` is in one beside it.

    qdrant:http://HOST:6333    a server; its key is in the environment variable QDRANT_API_KEY
    qdrant:DIR                 the client's local mode: a folder that is read into memory, open once at a time
    qdrant::memory:            the same without a folder, until the process ends

A point has the id uuid5(NAMESPACE_URL, chunk_id), its columns as payload, and its vector under the default name. A null
is a missing key, but of a list it is null: an empty list is none. A time is text in RFC 3339. Vectors are float16 and
compared by `Distance.DOT`, which stores them as they are: `Distance.COSINE` scales them, which may change last bits.
"""

from __future__ import annotations

import functools
import os
import re
import sqlite3
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException

from ragidx.corpora.errors import BusyError, SpecError
from ragidx.indexer.arrays import slices
from ragidx.pipelines.integrations.engines.conditions import nnf
from ragidx.pipelines.integrations.engines.layout import AboutTable, as_batch, batches_of, beside, vectors_of
from ragidx.pipelines.integrations.engines.qdrant_conditions import Filters, is_one_of
from ragidx.pipelines.integrations.engines.table import BLOCK, INDEXED, Aliased, ReplacedError
from ragidx.pipelines.integrations.engines.target import Target
from ragidx.retriever.rows import VECTOR

if TYPE_CHECKING:
    from ragidx.indexer.arrays import Floats
    from ragidx.retriever.where.conditions import Condition

_MEMORY = ":memory:"
_KEY = "QDRANT_API_KEY"
_PAGE_NUMBERS = 1 << 18  # in the vectors of one answer; some 20 bytes each as JSON
_REQUEST_BYTES = 1 << 20  # of Arrow; as JSON they are up to ten times as many, and a server takes 32 MB
_PART = 1 << 20  # characters of `AboutTable` in one point
_CONNECT_S, _ANSWER_S = 10, 60
_FAULTS = (ApiException, QdrantException, OSError, ValueError, RuntimeError, sqlite3.Error)
_INDEXES = {"string": "keyword", "list": "keyword", "int": "integer", "timestamp": "datetime"}


class QdrantTable(Aliased):
    """A collection of Qdrant, behind its alias."""

    max_dim = 65_536

    def _reach(self) -> None:
        self._is_local = "://" not in self.target.place
        if self._is_local and re.fullmatch(r"[\w.-]+:\d+", self.target.place):
            hint = f"write the URL of the server: qdrant:http://{self.target.place}"
            raise SpecError("it is a host and a port, not a folder", hint, where=self.target.shown)
        if self._is_local and self.target.place != _MEMORY and not Path(self.target.place).exists():
            return  # a client would make the folder
        self._connect()
        self._open()

    def _connect(self) -> None:
        with self.target.faults(*_FAULTS):
            self._client = _local(self.target) if self._is_local else _server(self.target)

    def _make(self, collection: str, rows: Iterable[Any], about: AboutTable) -> None:
        self._client.create_collection(_beside(collection), vectors_config=_vectors(1))
        self._client.create_collection(collection, vectors_config=_vectors(about.dim))
        if not self._is_local:  # which has no indexes
            for field, column in about.columns().items():
                kind = _INDEXES.get(about.fields[field], about.fields[field])
                self._client.create_payload_index(collection, column, models.PayloadSchemaType(kind))
        self._write(collection, rows)

    def _move_alias(self, collection: str, *, is_new: bool) -> None:
        name = self.target.name
        gone = [] if is_new else [models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name))]
        alias = models.CreateAlias(collection_name=collection, alias_name=name)
        self._client.update_collection_aliases([*gone, models.CreateAliasOperation(create_alias=alias)])

    def _delete(self, ids: Sequence[str]) -> None:
        self._client.delete(self.rows_in, models.PointIdsList(points=_point_ids(ids)))

    def nearest(self, vector: Floats, k: int, where: Condition | None) -> Any:
        is_small = self._about is not None and self._about.n_rows < INDEXED
        exact = models.SearchParams(exact=True) if is_small and not self._is_local else None
        condition = self._filter(where)
        with self._asking():
            found = self._client.query_points(
                self.rows_in,
                vector.tolist(),
                query_filter=condition,
                search_params=exact,
                limit=k,
                with_vectors=True,
            )
        return pa.Table.from_batches([_batch(found.points, self.schema())])

    def select(
        self,
        where: Condition | None = None,
        columns: Sequence[str] | None = None,
        ids: tuple[str, Sequence[str]] | None = None,
    ) -> Iterator[Any]:
        schema, condition = self.schema(columns), self._filter(where)
        if ids is not None:
            column, values = ids
            is_id = column == "chunk_id"
            among = models.HasIdCondition(has_id=_point_ids(values)) if is_id else is_one_of(column, values)
            condition = models.Filter(must=[among] if condition is None else [condition, among])
        payload, has_vector = [name for name in schema.names if name != VECTOR], VECTOR in schema.names
        limit = max(1, min(BLOCK, _PAGE_NUMBERS // schema.field(VECTOR).type.list_size)) if has_vector else BLOCK
        offset: Any = None
        while True:
            with self._asking():
                points, offset = self._client.scroll(
                    self.rows_in,
                    condition,
                    limit=limit,
                    offset=offset,
                    with_payload=payload,
                    with_vectors=has_vector,
                )
            if points:
                yield _batch(points, schema)
            if offset is None:
                return

    def foreign(self) -> Iterator[Any]:
        rows, offset = list[dict[str, Any]](), None
        with self._asking():
            while self._client.collection_exists(self.target.name):
                points, offset = self._client.scroll(
                    self.target.name, limit=BLOCK, offset=offset, with_payload=True, with_vectors=True
                )
                rows += [
                    beside(one.payload or {}, {"id": str(one.id), VECTOR: self._dense(one.vector)}) for one in points
                ]
                if offset is None:
                    break
        yield from batches_of(rows)

    def _dense(self, vector: Any) -> Floats:
        """The vector of a point of others; of several that have names, the first."""
        found = next(iter(vector.values()), None) if isinstance(vector, dict) else vector
        if not isinstance(found, list) or np.ndim(found) != 1:
            hint = "name another table: TARGET#NAME"
            raise SpecError("it has points without one dense vector", hint, where=self.target.shown)
        return np.array(found, np.float32)

    def count(self, where: Condition | None = None) -> int:
        condition = self._filter(where)
        with self._asking():
            return int(self._client.count(self.rows_in, condition, exact=True).count)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is None or self.target.place == _MEMORY:
            return
        if self._is_local:
            _leave(self.target.place)
        else:
            client.close()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Faults of the engine, and of a collection that another one took the place of."""
        with self.target.faults(*_FAULTS):
            try:
                yield
            except _FAULTS as fault:
                if self.rows_in and "not found" in str(fault).lower() and self.rows_in in str(fault):
                    raise ReplacedError.of(self.target) from None
                raise

    def _aliases(self) -> dict[str, str]:
        name = self.target.name
        itself = {name: name} if self._client.collection_exists(name) else {}
        return itself | {one.alias_name: one.collection_name for one in self._client.get_aliases().aliases}

    def _collections(self) -> list[str]:
        return [one.name for one in self._client.get_collections().collections]

    def _drop(self, collection: str) -> None:
        self._client.delete_collection(collection)

    def _write(self, collection: str, rows: Iterable[Any]) -> None:
        if self._is_local:
            _commit_soon(self._client, collection)
        for batch in rows:
            self._client.upload_collection(
                collection,
                vectors_of(batch).astype(np.float32),
                _payloads(batch),
                _point_ids(batch.column("chunk_id").to_pylist()),
                batch_size=max(1, len(batch) * _REQUEST_BYTES // batch.nbytes),
                max_retries=0,  # the client would warn
                wait=True,
            )

    def _write_about(self, collection: str, about: AboutTable) -> None:
        """Write its parts, then the point 0, which names them: until then it is the one of before."""
        beside, text = _beside(collection), about.to_bytes().decode()
        parts = {str(uuid.uuid4()): part for part in slices(text, _PART)}
        for part, characters in parts.items():
            self._client.upsert(beside, [models.PointStruct(id=part, vector=[1.0], payload={"text": characters})])
        self._client.upsert(beside, [models.PointStruct(id=0, vector=[1.0], payload={"parts": list(parts)})])
        unused = models.Filter(must_not=[models.HasIdCondition(has_id=[0, *parts])])
        self._client.delete(beside, models.FilterSelector(filter=unused))

    def _stored(self, collection: str) -> bytes | None:
        beside = _beside(collection)
        if not self._client.collection_exists(beside):
            return None
        found: dict[Any, Any] = {one.id: one.payload for one in self._client.scroll(beside, limit=BLOCK)[0]}
        return "".join(found[part]["text"] for part in found[0]["parts"]).encode() if 0 in found else b""

    def _filter(self, where: Condition | None) -> Any:
        assert self._about is not None
        if where is None:
            return None
        with self._asking():
            return models.Filter(must=[Filters(self._about, self._client).written(nnf(where))])


table = QdrantTable


def _server(target: Target) -> QdrantClient:
    parts = urlsplit(target.place)
    if "@" in target.place or parts.query:
        hint = f"write http://HOST:PORT alone, and set the environment variable {_KEY}"
        raise SpecError("a URL of Qdrant holds no key and no password", hint, where=target.shown)
    key = os.environ.get(_KEY, "")
    if not (key.isascii() and key.isprintable()):
        raise SpecError("the key has characters that no key has", "set it again", where=_KEY)
    headers = {"api-key": key} if key else None  # as `api_key` the client would warn over HTTP
    hooks = {"request": [_connect_soon]}
    url = target.place
    return QdrantClient(url=url, headers=headers, timeout=_ANSWER_S, check_compatibility=False, event_hooks=hooks)


def _connect_soon(request: Any) -> None:
    request.extensions["timeout"]["connect"] = _CONNECT_S


def _local(target: Target) -> QdrantClient:
    if target.place == _MEMORY:
        return _in_memory()
    folder = str(Path(target.place).resolve())
    with _sharing:
        if folder not in _shared:
            try:
                _shared[folder] = QdrantClient(path=target.place)
            except RuntimeError as fault:
                if "already accessed" not in str(fault):
                    raise
                hint = "close it there, or run a server, which many can ask"
                raise BusyError("the folder is open in another process", hint, where=target.shown) from None
        _n_users[folder] += 1
        return _shared[folder]


def _leave(place: str) -> None:
    """Close the client of a folder if no other table of this process uses it."""
    folder = str(Path(place).resolve())
    with _sharing:
        _n_users[folder] -= 1
        if not _n_users[folder]:
            _shared.pop(folder).close()


_sharing = threading.Lock()
_shared: dict[str, QdrantClient] = {}
_n_users = Counter[str]()


@functools.cache
def _in_memory() -> QdrantClient:
    return QdrantClient(_MEMORY)


def _commit_soon(client: Any, collection: str) -> None:
    """Let local mode not wait for the disk, as it commits each point by itself, 200 in a second.

    What is written then survives the end of the process, but not of the machine.
    """
    with suppress(AttributeError):  # there is none in memory
        client._client.collections[collection].storage.storage.execute("PRAGMA synchronous = OFF")


def _beside(collection: str) -> str:
    return f"{collection}_about"


def _vectors(dim: int) -> models.VectorParams:
    return models.VectorParams(size=dim, distance=models.Distance.DOT, datatype=models.Datatype.FLOAT16)


def _point_ids(chunk_ids: Iterable[str]) -> list[Any]:
    return [str(uuid.uuid5(uuid.NAMESPACE_URL, one)) for one in chunk_ids]


def _payloads(rows: Any) -> Iterator[dict[str, Any]]:
    lists = {field.name for field in rows.schema if pa.types.is_large_list(field.type)}
    for row in rows.drop_columns([VECTOR]).to_pylist():
        yield {
            name: f"{value.isoformat()}Z" if isinstance(value, datetime) else value
            for name, value in row.items()
            if value is not None or name in lists
        }


def _batch(points: Sequence[Any], schema: Any) -> Any:
    """Points as rows."""

    def values(field: Any) -> list[Any]:
        if field.name == VECTOR:
            return [point.vector for point in points]
        found = [(point.payload or {}).get(field.name) for point in points]
        if pa.types.is_timestamp(field.type):
            found = [text and datetime.fromisoformat(text).replace(tzinfo=None) for text in found]
        return found

    return as_batch(schema, values)
