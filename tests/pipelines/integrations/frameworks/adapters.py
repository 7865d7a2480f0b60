"""The stores and retrievers of all frameworks under the same verbs: what they do alike is tested once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # before the import, which reads it
pytest.importorskip("langchain_core", reason="the extra `langchain` is not installed")
pytest.importorskip("llama_index.core", reason="the extra `llamaindex` is not installed")
pytest.importorskip("haystack", reason="the extra `haystack` is not installed")

from haystack import Document
from haystack.document_stores.types import DuplicatePolicy
from langchain_core.embeddings import Embeddings
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQuery

import ragidx
from ragidx.frameworks import haystack, langchain, llamaindex

Rows = Mapping[str, tuple[str | None, dict[str, Any]]]  # text and metadata by id


class Letters(Embeddings):
    """How often a text has each of eight letters, or the first of them; of a text without any, zeros."""

    def __init__(self, dim: int = 8) -> None:
        self.letters = "abcdefgh"[:dim]

    def embed_query(self, text: str) -> list[float]:
        return [float(text.lower().count(letter)) for letter in self.letters]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


class LangChainStore:
    """In a folder or over an open index; `dim` is how wide the vectors are that it is given."""

    embeds = True

    def __init__(self, index: ragidx.Index | Path, dim: int = 8) -> None:
        self.store = langchain.RagidxVectorStore(index, Letters(dim) if self.embeds else None, refresh="auto")

    def add(self, rows: Rows) -> None:
        texts, metadata = zip(*rows.values(), strict=True) if rows else ((), ())
        assert self.store.add_texts(texts, list(metadata), ids=list(rows)) == list(rows)

    def get(self, ids: Iterable[str]) -> Rows:
        return {one.id or "": (one.page_content, one.metadata) for one in self.store.get_by_ids(list(ids))}

    def find(self, text: str, **equal: Any) -> list[str]:
        return [one.id or "" for one in self.store.similarity_search(text, k=9, filter=equal)]

    def delete(self, ids: list[str]) -> None:
        self.store.delete(ids)

    def delete_where(self, **equal: Any) -> None:
        self.store.delete(filter=equal)

    @property
    def index(self) -> ragidx.Index | None:
        return self.store.index


class LangChainTexts(LangChainStore):
    """The index makes the vectors."""

    embeds = False


class LlamaIndexStore:
    def __init__(self, index: ragidx.Index | Path, dim: int = 8) -> None:
        self.store, self.embed = llamaindex.RagidxVectorStore(index=index), Letters(dim).embed_query

    def _filters(self, equal: Mapping[str, Any]) -> MetadataFilters:
        return MetadataFilters(filters=[MetadataFilter(key=key, value=value) for key, value in equal.items()])

    def add(self, rows: Rows) -> None:
        nodes = [
            TextNode(id_=name, text=text, metadata=fields, embedding=self.embed(text))
            for name, (text, fields) in rows.items()
        ]
        assert self.store.add(nodes) == list(rows)

    def get(self, ids: Iterable[str]) -> Rows:
        return {one.node_id: (one.get_content(), one.metadata) for one in self.store.get_nodes(list(ids))}

    def find(self, text: str, **equal: Any) -> list[str]:
        asked = {"query_embedding": self.embed(text), "similarity_top_k": 9, "filters": self._filters(equal)}
        return list(self.store.query(VectorStoreQuery(**asked)).ids or ())

    def delete(self, ids: list[str]) -> None:
        self.store.delete_nodes(ids)

    def delete_where(self, **equal: Any) -> None:
        self.store.delete_nodes(filters=self._filters(equal))

    @property
    def index(self) -> ragidx.Index | None:
        return self.store.client


class HaystackStore:
    def __init__(self, index: ragidx.Index | Path, dim: int = 8) -> None:
        path = index.path if isinstance(index, ragidx.Index) else index
        self.store, self.embed = haystack.RagidxDocumentStore(path), Letters(dim).embed_query

    def _filters(self, equal: Mapping[str, Any]) -> dict[str, Any]:
        parts = [{"field": f"meta.{name}", "operator": "==", "value": value} for name, value in equal.items()]
        return {"operator": "AND", "conditions": parts} if parts else {}

    def add(self, rows: Rows) -> None:
        documents = [
            Document(id=name, content=text, meta=fields, embedding=self.embed(text))
            for name, (text, fields) in rows.items()
        ]
        assert self.store.write_documents(documents, DuplicatePolicy.OVERWRITE) == len(rows)

    def get(self, ids: Iterable[str]) -> Rows:
        asked = {"field": "id", "operator": "in", "value": list(ids)}
        return {one.id: (one.content, one.meta) for one in self.store.filter_documents(asked)}

    def find(self, text: str, **equal: Any) -> list[str]:
        return [one.id for one in self.store.embedding_retrieval(self.embed(text), self._filters(equal) or None, 9)]

    def delete(self, ids: list[str]) -> None:
        self.store.delete_documents(ids)

    def delete_where(self, **equal: Any) -> None:
        self.store.delete_by_filter(self._filters(equal))

    @property
    def index(self) -> ragidx.Index | None:
        return self.store.index


Store = LangChainStore | LlamaIndexStore | HaystackStore
STORES: dict[str, type[Store]] = {
    "langchain": LangChainStore,
    "langchain, texts": LangChainTexts,
    "llamaindex": LlamaIndexStore,
    "haystack": HaystackStore,
}


class Found(NamedTuple):
    """What a retriever gives."""

    id: str
    text: str
    score: float
    metadata: dict[str, Any]


class Retriever(NamedTuple):
    """`make(index, k, **options)`, its two members, and what they give."""

    make: Callable[..., Any]
    members: tuple[str, str]
    found: Callable[[Any], list[Found]]

    def ask(self, question: str, index: Any, k: int = 9, **options: Any) -> list[Found]:
        return self.found(getattr(self.make(index, k, **options), self.members[0])(question))

    async def aask(self, question: str, index: Any, k: int = 9, **options: Any) -> list[Found]:
        return self.found(await getattr(self.make(index, k, **options), self.members[1])(question))


RETRIEVERS = {
    "langchain": Retriever(
        lambda index, k, **options: langchain.RagidxRetriever(index=index, k=k, **options),
        ("invoke", "ainvoke"),
        lambda given: [Found(one.id, one.page_content, one.metadata["score"], one.metadata) for one in given],
    ),
    "llamaindex": Retriever(
        lambda index, k, **options: llamaindex.RagidxRetriever(index, k=k, **options),
        ("retrieve", "aretrieve"),
        lambda given: [Found(one.node_id, one.get_content(), one.score, one.metadata) for one in given],
    ),
    "haystack": Retriever(
        lambda index, k, **options: haystack.RagidxRetriever(index, top_k=k, **options),
        ("run", "run_async"),
        lambda given: [Found(one.id, one.content, one.score, one.meta) for one in given["documents"]],
    ),
}
