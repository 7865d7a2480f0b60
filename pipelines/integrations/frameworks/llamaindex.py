"""LlamaIndex: an index as a vector store, any index as a retriever, and its encoder as embeddings. Extra `llamaindex`.

    VectorStoreIndex(nodes, storage_context=..., embed_model=RagidxEmbedding())     RagidxVectorStore(index="store/")
    RetrieverQueryEngine.from_args(RagidxRetriever("index/", k=4), llm=...)         an index that ragidx built

Only translates. A node of the store is a row of an index of precomputed vectors: its text, its metadata as fields for
conditions, and the whole of it without the text as JSON, of which the node is made again. Filters are translated by
`llamaindex_filters`. Async calls run in a thread: searching and encoding release the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np

import ragidx

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr, field_serializer
    from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from pydantic import SkipValidation
except ImportError as fault:
    raise ragidx.RagidxError(
        "the LlamaIndex adapter needs llama-index-core, which is not installed",
        "pip install '.[llamaindex]' in a checkout of ragidx",
    ) from fault

from ragidx.pipelines.integrations.frameworks.conditions import check_refresh, check_widths, opened, placed
from ragidx.pipelines.integrations.frameworks.llamaindex_filters import CONTENT, NODE_ID, REF_DOC_ID, select
from ragidx.pipelines.integrations.frameworks.llamaindex_rows import (
    best,
    check_query,
    checked,
    diverse,
    fields_of,
    hit_node,
    node_of,
    rows,
    wanted,
)

_OF_RETRIEVERS = ("callback_manager", "object_map", "objects", "verbose")
_MMR_HITS = 200  # among so many of the best, at least, nodes are chosen for their variety


class RagidxVectorStore(BasePydanticVectorStore):
    """An index of precomputed vectors as a LlamaIndex vector store, on the disk after each call.

        store = RagidxVectorStore(index="store/")
        index = VectorStoreIndex.from_vector_store(store, embed_model=RagidxEmbedding())

    Each call sees the newest committed state, other processes' changes too.

    Args:
        index: an open index, or its folder; there need be none yet: the first `add` makes it. None: it is in memory,
            and gone with the store.
        options: options of `Index.create`, for an index that is not there yet, such as `lexical=False`.

    Raises:
        SpecError: the index was built of texts, or no store wrote it.
        IndexFormatError: the folder holds something else, or the index is damaged.
        TypeError: `Index.create` has no such option.
    """

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

    stores_text: bool = True
    is_embedding_query: bool = True
    index: SkipValidation[ragidx.Index | str | Path | None] = None

    _index: ragidx.Index | None = PrivateAttr(default=None)
    _creating: Any = PrivateAttr(default_factory=Lock)

    def model_post_init(self, context: Any, /) -> None:
        """Open the index, if there is one: a wrong folder or option is an error when the store is made."""
        super().model_post_init(context)
        inspect.signature(ragidx.Index.create).bind("", dim=1, **self._options)
        if isinstance(self.index, ragidx.Index | ragidx.RemoteIndex):
            self._index = checked(self.index)
        self._shown()

    def __getstate__(self) -> dict[str, Any]:
        if self._index is not None:
            self._index.__reduce__()  # refuses one in memory, which LlamaIndex would leave out without an error
        return super().__getstate__()

    @classmethod
    def class_name(cls) -> str:
        """The name that LlamaIndex writes down."""
        return "RagidxVectorStore"

    @field_serializer("index")
    def _path(self, index: ragidx.Index | str | Path | None) -> str | None:
        return None if index is None else str(index.path if isinstance(index, ragidx.Index) else index)

    @property
    def client(self) -> ragidx.Index | None:
        """The index; None: nothing was added yet."""
        return self._index

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes with their embeddings, or replace those of the same ids, in one commit.

        Returns:
            The ids of the nodes.

        Raises:
            ValueError: a node has no embedding.
            SpecError: an embedding is of another width than those of the index.
            CorpusError: an embedding is not finite, or JSON cannot hold the metadata; it names the node, and nothing
                is added.
        """
        _check_no(kwargs, "add")
        by_id = {node.node_id: node for node in nodes}
        if not by_id:
            return []
        vectors = [node.get_embedding() for node in by_id.values()]
        with self._creating:
            index = self._shown() or self._created(len(vectors[0]))
        check_widths(index, [(f"node {name!r}", vector) for name, vector in zip(by_id, vectors, strict=True)])
        rows_of, are_bare = zip(*map(placed, vectors), strict=True)
        metadata = [fields_of(node, is_bare=bare) for node, bare in zip(by_id.values(), are_bare, strict=True)]
        with index.batch() as batch:
            for name, fields in zip(by_id, metadata, strict=True):
                batch.types.note({field: value for field, value in fields.items() if value != []}, f"node {name!r}")
            batch.add_vectors(
                list(by_id),
                np.stack(rows_of),
                texts=[node.get_content(metadata_mode=MetadataMode.NONE) for node in by_id.values()],
                metadata=metadata,
                doc_ids=[node.ref_doc_id or node.node_id for node in by_id.values()],
            )
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str | None, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document; None is no document, and deletes nothing."""
        _check_no(delete_kwargs, "delete")
        if ref_doc_id is None or (index := self._filled()) is None:
            return
        # nodes without a document have "None" in the first field, and their own id in the second
        index.delete(where=(ragidx.field(REF_DOC_ID) == ref_doc_id) & (ragidx.field("doc_id") == ref_doc_id))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete nodes by id, by filters, or those of the ids that pass the filters; unknown ids are skipped.

        Raises:
            ValueError: there are neither ids nor filters; `clear` deletes all nodes.
            QueryError: a filter compares what cannot be compared.
        """
        _check_no(delete_kwargs, "delete_nodes")
        if node_ids is None and (filters is None or not filters.filters):
            raise ValueError(
                "delete_nodes() without node_ids and filters would delete all nodes: call clear() for that"
            )
        if (index := self._filled()) is None:
            return
        index.delete(where=select(index.schema, filters, node_ids))

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Nodes by id, in the order asked for, without those that are not there; or all nodes; that pass the filters.

        They have no embeddings.

        Raises:
            QueryError: a filter compares what cannot be compared.
        """
        if (index := self._filled()) is None:
            return []
        found = {row["chunk_id"]: row for row in rows(index, select(index.schema, filters, node_ids))}
        names = found if node_ids is None else [name for name in dict.fromkeys(node_ids) if name in found]
        return [node_of(found[name]["text"], found[name]) for name in names]

    def clear(self) -> None:
        """Delete all nodes. The index stays, and the width of its vectors."""
        if (index := self._filled()) is not None:
            index.delete(where=~ragidx.field(NODE_ID).is_null())

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The best nodes; similarities are what they are ranked by: cosines, in the modes DEFAULT and MMR.

        Args:
            query: the question, in the mode DEFAULT or MMR; TEXT_SEARCH or SPARSE, which rank by BM25 of `query_str`;
                or HYBRID, by both with the weight `alpha` of the vectors. No node is of an empty list of `doc_ids`; an
                empty one of `node_ids` is no limit: `VectorStoreIndex` gives one.
            kwargs: options of the mode MMR: `mmr_threshold`, as in the query, and `mmr_prefetch_k`, the number of most
                similar nodes that it chooses from: without it 200, or 4 times as many as are wanted.

        Raises:
            ValueError: the mode is another one, or the query has an option that is for other modes.
            QueryError: a filter compares what cannot be compared, the embedding is zero or of another width, or the
                index has no words and is asked for some.
        """
        check_query(query, kwargs)
        if (index := self._filled()) is None:
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        k, chosen = wanted(query), select(index.schema, query.filters, query.node_ids or None, query.doc_ids)
        if query.mode != VectorStoreQueryMode.MMR:
            hits = best(index, query, k, chosen)
            scores = [hit.score for hit in hits]
        else:
            candidates = best(index, query, max(k, kwargs.get("mmr_prefetch_k") or max(4 * k, _MMR_HITS)), chosen)
            threshold = kwargs.get("mmr_threshold", query.mmr_threshold)
            hits, scores = diverse(index, query, candidates, threshold)
        nodes = [node_of(hit.text, hit.metadata) for hit in hits]
        return VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=[hit.chunk_id for hit in hits])

    def persist(self, persist_path: str = "", fs: Any = None) -> None:
        """Do nothing: each change is on the disk, in the index's own folder, when its call returns."""

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """As `add`, in a thread."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    async def adelete(self, ref_doc_id: str | None, **delete_kwargs: Any) -> None:
        """As `delete`, in a thread."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """As `delete_nodes`, in a thread."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """As `get_nodes`, in a thread."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    async def aclear(self) -> None:
        """As `clear`, in a thread."""
        await asyncio.to_thread(self.clear)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """As `query`, in a thread."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    @property
    def _options(self) -> dict[str, Any]:
        return self.__pydantic_extra__ or {}

    def _shown(self) -> ragidx.Index | None:
        """The index in its newest state; None: there is none yet."""
        if self._index is not None:
            self._index.refresh()
        elif self.index is not None:
            found = opened(Path(str(self.index)))
            self._index = found and checked(found)
        return self._index

    def _created(self, dim: int) -> ragidx.Index:
        create: Any = {**self._options, "dim": dim}
        self._index = checked(ragidx.Index(None if self.index is None else str(self.index), create=create))
        return self._index

    def _filled(self) -> ragidx.Index | None:
        """The index in its newest state; None: nothing was added yet, so it has no fields that could be asked for."""
        index = self._shown()
        return index if index is not None and CONTENT in index.schema else None


class RagidxRetriever(BaseRetriever):
    """Any index that ragidx built as a LlamaIndex retriever; its own model encodes questions.

        retriever = RagidxRetriever("index/", k=4, where="year >= 2020")
        retriever.retrieve("who signed the lease?")

    A hit becomes a `TextNode`: its id is the chunk's id, its metadata are the document's own, with `source` (the
    document's id), and where they have a value `line`, `page` and `heading`, beside them where the names are free.

    Args:
        index: an open index, or its folder.
        refresh: "auto" shows the newest committed state at each call; None: the index shows one state, until its
            `refresh` or a change of its own.
        options: options of `Index.search`, or of LlamaIndex's `BaseRetriever`: `callback_manager`, `objects`,
            `object_map`, `verbose`.

    Raises:
        TypeError: a search has no such option.
        SpecError: `refresh` is unknown.
        IndexFormatError: there is no index in the folder.
    """

    def __init__(
        self,
        index: ragidx.Index | ragidx.RemoteIndex | str | Path = "ragidx-index",
        *,
        refresh: Literal["auto"] | None = "auto",
        **options: Any,
    ) -> None:
        check_refresh(refresh)
        self.index = index if isinstance(index, ragidx.Index | ragidx.RemoteIndex) else ragidx.Index(index)
        base = {name: options.pop(name) for name in _OF_RETRIEVERS if name in options}
        inspect.signature(self.index.search).bind("", **options)
        self._refresh, self._options = refresh, options
        super().__init__(**base)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if query_bundle.custom_embedding_strs is not None and query_bundle.embedding is None:
            raise ValueError(
                "custom_embedding_strs are texts to embed in place of the question, and an index embeds the question "
                "itself: ask with one of them as the query, or give the query an embedding"
            )
        if self._refresh == "auto":
            self.index.refresh()
        if query_bundle.embedding is not None:
            hits = self.index.search(vector=query_bundle.embedding, **self._options)
        else:
            hits = self.index.search(query_bundle.query_str, **self._options)
        return [NodeWithScore(node=hit_node(hit), score=hit.score) for hit in hits]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class RagidxEmbedding(BaseEmbedding):
    """A model and its filter as LlamaIndex embeddings: vectors of unit length, as an index would hold them.

    Args:
        model_name: the model, as `ragidx.load_embedder` takes it.
        options: options of `ragidx.load_embedder`: method, filter, device and so on; or of LlamaIndex's
            `BaseEmbedding`: `embed_batch_size`, `callback_manager`, `embeddings_cache` and so on.

    Raises:
        RagidxError: as `ragidx.load_embedder`; there is no such option.
    """

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

    embed_batch_size: int = 256

    _embedder: Any = PrivateAttr()

    def __init__(self, model_name: str = "mini", **options: Any) -> None:
        if isinstance(asked := options.get("filter"), ragidx.FilterSpec):  # so that `to_dict` can write it
            options["filter"] = {name: getattr(asked, name) for name in sorted(asked.given)}
        super().__init__(model_name=model_name, **options)
        loaded = dict(self.__pydantic_extra__ or {})
        if isinstance(written := loaded.get("filter"), Mapping):
            loaded["filter"] = ragidx.FilterSpec(**written)
        self._embedder = ragidx.load_embedder(model_name, **loaded)

    @classmethod
    def class_name(cls) -> str:
        """The name that LlamaIndex writes down."""
        return "RagidxEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        vectors: list[list[float]] = self._embedder.embed_query([query]).tolist()
        return vectors[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._embedder.embed_document(texts).tolist()
        return vectors

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


def _check_no(options: Mapping[str, Any], member: str) -> None:
    """Refuse options, which LlamaIndex hands through to any store."""
    for name in options:
        raise TypeError(f"RagidxVectorStore.{member}() has no option {name!r}")
