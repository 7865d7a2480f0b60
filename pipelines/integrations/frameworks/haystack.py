"""Haystack: an index as a retriever, and a document store of embeddings with its own. Extra `haystack`.

`RagidxRetriever` asks any index with text: a `Hit` becomes a `Document` whose id is the chunk's id and whose meta are
the document's own, with `source` (the document's id), and where they have a value `line`, `page`, `heading`, `context`
and `also`, where the index has no fields of these names. `RagidxDocumentStore` keeps Haystack's documents as rows of
precomputed vectors, and `RagidxEmbeddingRetriever` asks it. Async calls run in a thread: searching releases the
interpreter's lock. Filters find what they find in Haystack's own store.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from pathlib import Path
from typing import Any, Literal

import ragidx

try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.document_stores.types import DuplicatePolicy, FilterPolicy, apply_filter_policy
except ImportError as fault:
    raise ragidx.RagidxError(
        "the Haystack adapter needs haystack-ai, which is not installed",
        "pip install '.[haystack]' in a checkout of ragidx",
    ) from fault

from ragidx.pipelines.integrations.frameworks import haystack_filters as filtering
from ragidx.pipelines.integrations.frameworks.conditions import check_refresh, told
from ragidx.pipelines.integrations.frameworks.haystack_index import DocumentRows, Filters, in_thread

_OF_RUN = ("query", "k", "vector")
Found = dict[str, list[Document]]


@component
class RagidxRetriever:
    """An index as a Haystack retriever: asked with text, which it encodes itself.

        retriever = RagidxRetriever("index/", top_k=4, per_document=1)
        retriever.run("who signed the lease?", filters={"field": "meta.year", "operator": ">=", "value": 2020})

    Args:
        index: an open index, or its folder.
        filters: the filters of every call, in Haystack's form.
        top_k: the most documents of a call; 1 or more.
        filter_policy: whether the filters of a call replace these, or are merged with them.
        refresh: "auto" shows the newest committed state at each call; None: the one shown now, until its `refresh`.
        opened: options of `ragidx.Index`, such as `device`, where `index` is a folder.
        options: options of `Index.search`, such as `where`, `mode`, `per_document`, `context` or `rerank`.

    Raises:
        TypeError: a search has no such option.
        ValueError, SpecError: `top_k` or `refresh` is none of what it may be.
        IndexFormatError: there is no index in the folder.
    """

    def __init__(
        self,
        index: ragidx.Index | ragidx.RemoteIndex | str | Path = "ragidx-index",
        *,
        filters: Filters = None,
        top_k: int = 10,
        filter_policy: FilterPolicy = FilterPolicy.REPLACE,
        refresh: Literal["auto"] | None = "auto",
        opened: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if opened and isinstance(index, ragidx.Index | ragidx.RemoteIndex):
            raise TypeError("opened= are options of opening a folder, and this index is open")
        check_refresh(refresh)
        for name in _OF_RUN:
            if name in options:
                raise TypeError(f"{name}= is no option here: `run` takes the query, and top_k")
        self.index = (
            index if isinstance(index, ragidx.Index | ragidx.RemoteIndex) else ragidx.Index(index, **(opened or {}))
        )
        inspect.signature(self.index.search).bind("", **options)
        self.filters, self.top_k, self.filter_policy = filters, _top_k(top_k), filter_policy
        self.refresh, self.options = refresh, options

    def to_dict(self) -> dict[str, Any]:
        """The retriever as a pipeline is written: with the folder of the index, and how it was opened."""
        if isinstance(self.index, ragidx.RemoteIndex):
            raise TypeError("a pipeline with a RemoteIndex cannot be written: what connects it may be secret")
        opened = self.index.__reduce__()[0].keywords
        usual = inspect.signature(ragidx.Index).parameters
        where = self.options.get("where")
        options = self.options | ({} if where is None else {"where": str(where)})
        if isinstance(options.get("rerank"), ragidx.Rerank):
            options["rerank"] = dataclasses.asdict(options["rerank"])
        return default_to_dict(
            self,
            index=str(self.index.path),
            filters=self.filters,
            top_k=self.top_k,
            filter_policy=self.filter_policy.value,
            refresh=self.refresh,
            opened={name: value for name, value in opened.items() if value != usual[name].default} or None,
            **options,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RagidxRetriever:
        """The retriever that `to_dict` wrote; its index must be there."""
        written = _with_policy(data)
        if isinstance(rerank := written["init_parameters"].get("rerank"), dict):
            written["init_parameters"]["rerank"] = ragidx.Rerank(**rerank)
        return default_from_dict(cls, written)

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: Filters = None, top_k: int | None = None) -> Found:
        """The best chunks for a question, best first.

        Args:
            query: the text of the question.
            filters: the filters of this call, in Haystack's form; None: those of every call alone.
            top_k: the most documents of this call; None: as many as the retriever has.

        Returns:
            `documents`, each with its score.

        Raises:
            FilterError: the filters are malformed, ask for a field that the index has not, or for what no condition
                says; the message names it.
            QueryError: the question is empty, or an option is out of range.
        """
        k = self.top_k if top_k is None else _top_k(top_k)
        asked = apply_filter_policy(self.filter_policy, self.filters, filters)
        if self.refresh == "auto":
            self.index.refresh()
        hits, schema = filtering.at_one_state(self.index, lambda: (self._search(query, asked, k), self.index.schema))
        return {"documents": [_document(hit, schema) for hit in hits]}

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, filters: Filters = None, top_k: int | None = None) -> Found:
        """As `run`, in a thread."""
        return await asyncio.to_thread(self.run, query, filters, top_k)

    def _search(self, query: str, filters: Filters, k: int) -> list[ragidx.Hit]:
        options = dict(self.options)
        if filters:
            asked = filtering.condition(filters, filtering.columns_of_texts(self.index.schema))
            options["where"] = asked if options.get("where") is None else ragidx.condition(options["where"]) & asked
        return self.index.search(query, k, **options)


class RagidxDocumentStore:
    """A document store of documents with embeddings, over an index of precomputed vectors.

        store = RagidxDocumentStore("store/", embedding_dim=384)  # RagidxDocumentStore(): in memory
        store.write_documents(documents)

    The index is made at the first write. A write is one commit, or none, and every call shows the newest committed
    state, whoever wrote it. Embeddings are kept in half precision; scores are cosines. Each method has an async twin,
    `count_documents_async` and so on.

    Args:
        path: the index folder; None: the index is in memory, and gone with the store.
        embedding_dim: dimensions of an embedding; None: as many as the first one written has.
        index_options: options of `ragidx.Index.create`, such as `{"index_type": "hnsw"}`.

    Raises:
        SpecError: the index in the folder holds encoded texts, or embeddings of another width.
        IndexFormatError: what is in the folder is no index, or is damaged.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        embedding_dim: int | None = None,
        index_options: dict[str, Any] | None = None,
    ) -> None:
        self._rows = DocumentRows(path, embedding_dim, index_options or {})

    @property
    def index(self) -> ragidx.Index | None:
        """The index, at its newest state; None before the first write."""
        return self._rows.shown()

    def to_dict(self) -> dict[str, Any]:
        """The store as a pipeline is written: its folder and options, not its documents."""
        rows, path = self._rows, self._rows.path and str(self._rows.path)
        return default_to_dict(self, path=path, embedding_dim=rows.dim, index_options=rows.options or None)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RagidxDocumentStore:
        """The store that `to_dict` wrote."""
        return default_from_dict(cls, data)

    # -- the protocol ---------------------------------------------------------------------------------------------

    def count_documents(self) -> int:
        """How many documents there are."""
        return 0 if (index := self.index) is None else index.count()

    def filter_documents(self, filters: Filters = None) -> list[Document]:
        """The documents that filters find, with their embeddings, in the order of the index; without filters all.

        Raises:
            FilterError: the filters are malformed, or compare what cannot be compared.
        """
        return self._rows.read(filters, vectors=True)

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Write documents, all or none.

        Args:
            documents: the documents, each with an embedding or without one: such a document is passed over by searches.
            policy: what becomes of documents whose ids are there already, or twice in the list; NONE is FAIL.

        Returns:
            How many were written.

        Raises:
            ValueError: it is no list of documents.
            DuplicateDocumentError: an id is there already, and the policy is FAIL.
            CorpusError: a document holds what an index cannot: a blob, a sparse embedding, meta of an unknown type, an
                embedding of another width or of zeros. It names the document.
            SpecError: no width of embeddings is known yet.
        """
        if not isinstance(documents, list) or not all(isinstance(document, Document) for document in documents):
            raise ValueError("Please provide a list of Documents.")
        return self._rows.write(documents, policy)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by their ids; those that are not there are skipped."""
        self._rows.delete(document_ids)

    # -- beyond it ------------------------------------------------------------------------------------------------

    def delete_all_documents(self) -> None:
        """Delete all documents. The index stays, with its width."""
        self._rows.delete_found(None)

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that filters find; how many there were. Empty filters are an error."""
        return self._rows.delete_found(dict(filters))

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Put values into the meta of the documents that filters find; how many there were."""
        return self._rows.update(filters, meta)

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """How many documents filters find."""
        return len(self._rows.read(filters))

    def count_unique_metadata_by_filter(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """How many different values fields have in the documents that filters find, by their names without `meta.`."""
        return {name: len(found) for name, found in self._rows.values(metadata_fields, filters).items()}

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """The fields of meta, each with its `type`: boolean, int, float or keyword."""
        return {name: {"type": kind} for name, kind in self._rows.types().items()}

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """The least and the greatest value of a field, `min` and `max`; None where there is none, or of two types."""
        [found] = self._rows.values([metadata_field]).values()
        values = [value for value in found if isinstance(value, int | float | str)]
        if not values or len({isinstance(value, str) for value in values}) > 1:
            return {"min": None, "max": None}
        return {"min": min(values), "max": max(values)}

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters = None,
    ) -> tuple[list[Any], int]:
        """The different values of a field, a page of them by the order of their text, and how many there are.

        Args:
            metadata_field: the name of the field, with `meta.` or without.
            search_term: part of the text of a value, in any case.
            from_: how many values are before the page.
            size: the most values of the page.
            filters: the filters of the documents that are looked at; None: all documents.
        """
        [found] = self._rows.values([metadata_field], filters).values()
        kept = [value for value in found if (search_term or "").lower() in str(value).lower()]
        kept.sort(key=lambda value: (str(value), type(value).__name__))
        return kept[from_ : from_ + size], len(kept)

    def embedding_retrieval(
        self,
        query_embedding: list[float],
        filters: Filters = None,
        top_k: int = 10,
        return_embedding: bool = False,
    ) -> list[Document]:
        """The documents nearest to an embedding, best first, with cosines as scores.

        Raises:
            FilterError: the filters are malformed, or compare what cannot be compared.
            QueryError: the embedding has another width than the store's, or is zero.
        """
        return self._rows.nearest(query_embedding, filters, _top_k(top_k), vectors=return_embedding)

    count_documents_async = in_thread(count_documents)
    filter_documents_async = in_thread(filter_documents)
    write_documents_async = in_thread(write_documents)
    delete_documents_async = in_thread(delete_documents)
    delete_all_documents_async = in_thread(delete_all_documents)
    delete_by_filter_async = in_thread(delete_by_filter)
    update_by_filter_async = in_thread(update_by_filter)
    count_documents_by_filter_async = in_thread(count_documents_by_filter)
    count_unique_metadata_by_filter_async = in_thread(count_unique_metadata_by_filter)
    get_metadata_fields_info_async = in_thread(get_metadata_fields_info)
    get_metadata_field_min_max_async = in_thread(get_metadata_field_min_max)
    get_metadata_field_unique_values_async = in_thread(get_metadata_field_unique_values)
    embedding_retrieval_async = in_thread(embedding_retrieval)


@component
class RagidxEmbeddingRetriever:
    """A `RagidxDocumentStore` as a retriever: asked with the embedding of a question.

    Args:
        document_store: the store that is asked.
        filters: the filters of every call, in Haystack's form.
        top_k: the most documents of a call; 1 or more.
        filter_policy: whether the filters of a call replace these, or are merged with them.
        return_embedding: whether documents come with their embeddings.

    Raises:
        TypeError: the store is another one.
    """

    def __init__(
        self,
        document_store: RagidxDocumentStore,
        *,
        filters: Filters = None,
        top_k: int = 10,
        filter_policy: FilterPolicy = FilterPolicy.REPLACE,
        return_embedding: bool = False,
    ) -> None:
        if not isinstance(document_store, RagidxDocumentStore):
            raise TypeError(f"document_store is a {type(document_store).__name__}, not a RagidxDocumentStore")
        self.document_store, self.filters, self.top_k = document_store, filters, _top_k(top_k)
        self.filter_policy, self.return_embedding = filter_policy, return_embedding

    def to_dict(self) -> dict[str, Any]:
        """The retriever as a pipeline is written."""
        return default_to_dict(
            self,
            document_store=self.document_store,
            filters=self.filters,
            top_k=self.top_k,
            filter_policy=self.filter_policy.value,
            return_embedding=self.return_embedding,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RagidxEmbeddingRetriever:
        """The retriever that `to_dict` wrote."""
        return default_from_dict(cls, _with_policy(data))

    @component.output_types(documents=list[Document])
    def run(self, query_embedding: list[float], filters: Filters = None, top_k: int | None = None) -> Found:
        """The nearest documents, best first, as `documents`; it raises what `RagidxDocumentStore` does."""
        asked = apply_filter_policy(self.filter_policy, self.filters, filters)
        k = self.top_k if top_k is None else top_k
        return {"documents": self.document_store.embedding_retrieval(query_embedding, asked, k, self.return_embedding)}

    @component.output_types(documents=list[Document])
    async def run_async(self, query_embedding: list[float], filters: Filters = None, top_k: int | None = None) -> Found:
        """As `run`, in a thread."""
        return await asyncio.to_thread(self.run, query_embedding, filters, top_k)


def _document(hit: ragidx.Hit, schema: dict[str, str]) -> Document:
    ours, own = told(hit)
    free = {name: value for name, value in ours.items() if filtering.own_field(name, schema) is None}
    return Document(id=hit.chunk_id, content=hit.text, meta=free | own, score=hit.score)


def _with_policy(data: dict[str, Any]) -> dict[str, Any]:
    """Serialised data with the policy of filters as the value that it names."""
    parameters = dict(data.get("init_parameters", {}))
    if isinstance(policy := parameters.get("filter_policy"), str):
        parameters["filter_policy"] = FilterPolicy.from_str(policy)
    return data | {"init_parameters": parameters}


def _top_k(value: int) -> int:
    """A number of documents.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"top_k is {value!r}, and must be a whole number, 1 or more")
    return value
