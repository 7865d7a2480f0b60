"""The index below a document store: Haystack's documents written, found and deleted. For `ragidx.frameworks.haystack`.

    filters -> a condition -> documents

A write is one commit, or none. A call shows the newest committed state, and all that it reads is of one state.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from numpy.typing import ArrayLike, NDArray

import ragidx
from ragidx.pipelines.integrations.frameworks.conditions import opened, vectors_of, width_of, with_vector
from ragidx.pipelines.integrations.frameworks.haystack_filters import (
    Column,
    Columns,
    at_one_state,
    check,
    condition,
    matches,
)
from ragidx.pipelines.integrations.frameworks.haystack_rows import (
    BARE,
    META,
    SCORE,
    HaystackRow,
    is_plain,
    packed,
    refused,
    repacked,
    unpacked,
    untagged,
    value_key,
)

Filters = dict[str, Any] | None

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def in_thread(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """The async twin of a method."""

    async def twin(self: S, /, *args: P.args, **keywords: P.kwargs) -> R:
        return await asyncio.to_thread(method, self, *args, **keywords)

    functools.update_wrapper(twin, method)
    return twin


class DocumentRows:
    """The documents of an index of precomputed vectors.

    Args:
        path: the index folder; one that is not there is made at the first write. None: it is in memory.
        dim: dimensions of an embedding; None: as many as the first one has.
        options: options of `ragidx.Index.create`.

    Raises:
        SpecError: the index in the folder holds encoded texts, or embeddings of another width.
        IndexFormatError: what is in the folder is no index, or is damaged.
    """

    def __init__(self, path: str | Path | None, dim: int | None, options: Mapping[str, Any]) -> None:
        self.path, self.dim, self.options = None if path is None else Path(path), dim, dict(options)
        self._opening = Lock()
        self._index: ragidx.Index | None = None
        self.shown()

    def shown(self) -> ragidx.Index | None:
        """The index at its newest state; None before the first write."""
        with self._opening:
            if self._index is not None:
                self._index.refresh()
            elif self.path is not None and (found := opened(self.path)) is not None:
                self._index = self._checked(found)
            return self._index

    def read(self, filters: Filters = None, *, vectors: bool = False) -> list[Document]:
        """The documents that filters find, in the order of the index; with embeddings where `vectors`."""
        index = self.shown()
        if filters:
            check(filters)
        return [] if index is None else at_one_state(index, lambda: _read(index, filters, vectors=vectors))

    def values(self, fields: Sequence[str], filters: Filters = None) -> dict[str, list[Any]]:
        """The different values of fields, by their names without `meta.`, in the documents that filters find."""
        names, index = [field.removeprefix("meta.") for field in fields], self.shown()
        if filters:
            check(filters)
        if index is None:
            return {name: [] for name in names}
        return at_one_state(index, lambda: {name: _values(index, name, filters) for name in names})

    def types(self) -> dict[str, str]:
        """What Haystack calls the types of the fields: boolean, int, float or keyword."""
        kinds = {} if (index := self.shown()) is None else index.schema
        types = {"bool": "boolean", "int": "int", "float": "float"}
        odd = {name.removeprefix(META): "keyword" for name in kinds if name.startswith(META)}
        return odd | {name: types.get(kind, "keyword") for name, kind in kinds.items() if is_plain(name)}

    def nearest(self, vector: ArrayLike, filters: Filters, k: int, *, vectors: bool) -> list[Document]:
        """The k documents with embeddings nearest to one, best first, with cosines as scores."""
        index, asked = self.shown(), np.asarray(vector, np.float32)
        if filters:
            check(filters)
        if index is None or k == 0:
            return []
        if asked.shape != (width_of(index),) or not 0 < float(np.linalg.norm(asked)) < math.inf:
            raise ragidx.QueryError(
                f"the embedding of the question is not {width_of(index)} finite numbers, some of them not 0",
                "embed it as the documents were embedded",
                where="`query_embedding`",
            )
        return at_one_state(index, lambda: _nearest(index, asked, filters, k, vectors))

    def write(self, documents: Sequence[Document], policy: DuplicatePolicy) -> int:
        """Write documents in one commit, all or none; how many were."""
        if not documents:
            return 0
        index, chosen, n_written = self._made_for(documents), dict[str, Document](), 0
        with index.batch() as batch:  # nobody else writes from here on
            index.refresh()
            held = {document.id for document in index.get([document.id for document in documents], missing="skip")}
            for document in documents:
                if policy != DuplicatePolicy.OVERWRITE and (document.id in held or document.id in chosen):
                    if policy != DuplicatePolicy.SKIP:
                        raise DuplicateDocumentError(f"ID '{document.id}' already exists; nothing was written.")
                    continue
                chosen.pop(document.id, None)
                chosen[document.id] = document
                n_written += 1
            kinds = dict(index.schema)
            _add(batch, [packed(document, kinds, width_of(index)) for document in chosen.values()])
        return n_written

    def update(self, filters: dict[str, Any], meta: Mapping[str, Any]) -> int:
        """Put values into the meta of the documents that filters find; how many there were."""
        check(filters)
        if (index := self.shown()) is None:
            return 0
        with index.batch() as batch:
            index.refresh()
            found = {document.id: document for document in _read(index, filters)}
            kinds, vectors = dict(index.schema), vectors_of(index, ragidx.field("doc_id").is_in(found))
            _add(
                batch,
                [
                    repacked(
                        dataclasses.replace(found[held.id], meta=found[held.id].meta | dict(meta)),
                        held,
                        vectors[held.id],
                        kinds,
                    )
                    for held in index.get(list(found))
                ],
            )
        return len(found)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents by their ids; those that are not there are skipped."""
        if ids and (index := self.shown()) is not None:
            index.delete(ids, missing="skip")

    def delete_found(self, filters: Filters) -> int:
        """Delete the documents that filters find, without filters all; how many there were."""
        if filters is not None:
            check(filters)
        if (index := self.shown()) is None:
            return 0
        with index.batch() as batch:
            index.refresh()
            found = [document.id for document in _read(index, filters)]
            batch.delete(found)
        return len(found)

    def _made_for(self, documents: Sequence[Document]) -> ragidx.Index:
        """The index that takes the documents; made, where it is not there."""
        for document in documents:
            if not isinstance(document.id, str):
                raise refused(f"{document.id!r:.80}", f"has an id of type {type(document.id).__name__}", "give text")
        if (index := self.shown()) is not None:
            return index
        widths = (len(document.embedding) for document in documents if document.embedding is not None)
        dim = self.dim or next(widths, None)
        if dim is None:
            raise ragidx.SpecError(
                "no document has an embedding, so their width is not known",
                "make the store with `embedding_dim=`",
                where=str(self.path or ""),
            )
        kinds: dict[str, str] = {}
        for document in documents:  # what is refused makes no index
            packed(document, kinds, dim)
        with self._opening:
            create: Any = {**self.options, "dim": dim}
            self._index = self._checked(ragidx.Index(self.path, create=create))
        return self._index

    def _checked(self, index: ragidx.Index) -> ragidx.Index:
        """An index that holds a row for each document."""
        where, info = str(index.path), index.info()
        if index.spec.precomputed is None:
            raise ragidx.SpecError(
                "the index holds encoded texts", "ask it by `RagidxRetriever`, or take another folder", where=where
            )
        if info.n_chunks != info.n_documents:
            raise ragidx.SpecError(
                "some documents of the index have several vectors, and one of Haystack has one",
                "take another folder",
                where=where,
            )
        if self.dim not in (None, width_of(index)):
            raise ragidx.SpecError(
                f"embedding_dim is {self.dim}, and the index holds embeddings of {width_of(index)} dimensions",
                "remove it, or take another folder",
                where=where,
            )
        return index


def _read(index: ragidx.Index, filters: Filters, *, vectors: bool = False) -> list[Document]:
    where = _where(index, filters)
    codes = vectors_of(index, where) if vectors else {}
    return [unpacked(one.id, one.text, one.metadata, codes.get(one.id)) for one in index.documents(where=where)]


def _values(index: ragidx.Index, name: str, filters: Filters) -> list[Any]:
    """The different values of a field of meta in the documents that filters find."""
    kind = index.schema.get(name) if is_plain(name) else None
    if META + name in index.schema or kind == "list":  # which a document alone has as they were
        metas = [document.meta for document in _read(index, filters)]
        return list({value_key(meta[name]): meta[name] for meta in metas if meta.get(name) is not None}.values())
    found = [] if kind is None else index.values(name, where=_where(index, filters), limit=index.info().n_chunks)
    return [value for value, _ in found]


def _nearest(
    index: ragidx.Index, vector: NDArray[np.float32], filters: Filters, k: int, vectors: bool
) -> list[Document]:
    where = with_vector(_where(index, filters), BARE, index)
    hits = index.search(vector=vector, k=k, where=where, fold=False)
    codes = vectors_of(index, ragidx.field("doc_id").is_in(hit.doc_id for hit in hits)) if vectors else {}
    return [unpacked(hit.doc_id, hit.text, hit.metadata, codes.get(hit.doc_id), hit.score) for hit in hits]


def _where(index: ragidx.Index, filters: Filters) -> ragidx.Condition | None:
    return condition(filters, _columns_of(index)) if filters else None


def _columns_of(index: ragidx.Index) -> Columns:
    """Where the values of a comparison are in the index: fields of meta in one column, and as JSON in another."""
    schema = index.schema

    def columns(filters: dict[str, Any]) -> list[Column] | ragidx.Condition:
        name = filters["field"]
        first, *rest = name.split(".")
        if name in ("embedding", "content", "meta"):
            return _by_documents(index, filters)
        if name in ("blob", "sparse_embedding") or (rest and first != "meta"):
            return []
        if name in ("id", "score"):
            return [Column("doc_id", "string")] if name == "id" else [Column(SCORE, "float")] if SCORE in schema else []
        key, *steps = rest or [name]
        found = [Column(key, schema[key])] if not steps and is_plain(key) and key in schema else []
        packed = [Column(META + key, "string", read=functools.partial(_step, steps))] if META + key in schema else []
        return found + packed

    return columns


def _step(steps: Sequence[str], written: str) -> Any:
    """What a filter reaches in a value that is written as JSON."""
    value = untagged(json.loads(written))
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _by_documents(index: ragidx.Index, filters: dict[str, Any]) -> ragidx.Condition:
    """A comparison of what no field holds, which Haystack's own function answers for each document.

    Raises:
        FilterError: it compares embeddings with numbers: they are not here as they were written.
    """
    if filters["field"] == "embedding" and filters["value"] not in (None, [None]):
        raise FilterError("embeddings are kept in half precision, so 'embedding' is compared with None alone")
    some = np.ones(1, np.float16)  # whether there is an embedding is asked alone
    every = (unpacked(one.id, one.text, one.metadata, some) for one in index.documents())
    return ragidx.field("doc_id").is_in(document.id for document in every if matches(filters, document))


def _add(batch: Any, rows: Sequence[HaystackRow]) -> None:
    if rows:
        names, vectors, texts, metadata = zip(*rows, strict=True)
        batch.add_vectors(names, np.stack(vectors), texts=texts, metadata=metadata)
