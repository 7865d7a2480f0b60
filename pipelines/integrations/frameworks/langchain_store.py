"""LangChain: an index as a vector store. Extra `langchain`; users import it from `ragidx.frameworks.langchain`.

    texts or Documents -> one commit -> index            question -> hits -> the Documents that were added, exactly

Without an embedding of the caller, the index encodes texts itself; with one, it holds precomputed vectors. Hits of
files, in an index that was built from a folder, are as those of `RagidxRetriever`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore

import ragidx
from ragidx.pipelines.integrations.frameworks.langchain_index import (
    Answer,
    Filter,
    Opened,
    StoreBatch,
    parts,
    relevance,
    relevant,
    slices,
)
from ragidx.pipelines.integrations.frameworks.langchain_rows import documents_of


class RagidxVectorStore(VectorStore):
    """An index as a LangChain vector store.

        store = RagidxVectorStore("index/")  # RagidxVectorStore(): in memory
        store.add_documents([Document(page_content="The mill stands by the river.", metadata={"year": 1790})])
        store.similarity_search("where is the mill?", k=4, filter={"year": {"$lt": 1800}})

    Searches compare vectors, and return equal texts as often as they were added: `mode` is dense and `fold` is False
    where a call does not name them. Calls take the other options of `Index.search` too.

    Args:
        index: an open index, or its folder; None: it is in memory, and gone with the store. Where there is none, the
            first `add` makes it: of documents that `mini` encodes, or of vectors as wide as those of the embedding.
            Until then searches find nothing.
        embedding: the embedding that makes the vectors of texts and questions; None: the index's own model does.
        refresh: "auto" shows the newest committed state at each call; None: others' changes are seen after
            `Index.refresh` or a change by this store.
        timeout: seconds that a change waits for another writer.

    Raises:
        SpecError: the index holds encoded texts, and there is an embedding; or `refresh` is unknown.
        IndexFormatError: the folder holds something else, or the index is damaged.
    """

    def __init__(
        self,
        index: ragidx.Index | str | Path | None = None,
        embedding: Embeddings | None = None,
        *,
        refresh: Literal["auto"] | None = "auto",
        timeout: float = 60.0,
    ) -> None:
        self._opened = Opened(index, embedding, refresh, timeout)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        index: ragidx.Index | str | Path | None = None,
        ids: list[str] | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> Self:
        """A store with these texts; what its index holds already stays.

        Args:
            texts: the texts, each of which becomes a document.
            embedding: the embedding of the store; None: the index's own model encodes.
            metadatas: the metadata of each text, as `add_texts` takes it.
            index: the index of the store: open, or its folder; None: it is in memory.
            ids: the id of each text, as `add_texts` takes it.
            batch_size: texts that the embedding gets at once; None: all.
            options: other options of the store: `refresh`, `timeout`.
        """
        store = cls(index, embedding, **options)
        store.add_texts(texts, metadatas, ids=ids, batch_size=batch_size)
        return store

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        index: ragidx.Index | str | Path | None = None,
        ids: list[str] | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> Self:
        """As `from_texts`."""
        store = await run_in_executor(None, lambda: cls(index, embedding, **options))
        await store.aadd_texts(texts, metadatas, ids=ids, batch_size=batch_size)
        return store

    @property
    def embeddings(self) -> Embeddings | None:
        """The caller's embedding; None where the index encodes."""
        return self._opened.embedding

    @property
    def index(self) -> ragidx.Index | None:
        """The open index; None: nothing was added yet."""
        return self._opened.found()

    # -- changes --------------------------------------------------------------------------------------------------

    def batch(self) -> StoreBatch:
        """Many changes in one commit; none if an exception leaves the block.

            with store.batch() as batch:
                batch.add_texts(["one"], ids=["1"])
                batch.delete(["2"])

        The index is locked for other writers from the first change to the end of the block.
        """
        return StoreBatch(self._opened)

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> list[str]:
        """Add texts, or replace those of the same ids, in one commit.

        Args:
            texts: each becomes a document.
            metadatas: one for each text: what JSON can hold, nested too, and times.
            ids: one for each text; a uuid is made for None.
            batch_size: texts that the embedding gets at once; None: all.
            options: none; LangChain's signature has them.

        Returns:
            The ids.

        Raises:
            ValueError: there are not as many ids or metadatas as texts.
            CorpusError: an index cannot hold something, and the message names it; nothing is added then.
            BusyError: another writer held the index for too long.
        """
        _check_none(options)
        with self.batch() as batch:
            return batch.add_texts(texts, metadatas, ids=ids, batch_size=batch_size)

    def add_documents(
        self,
        documents: list[Document],
        *,
        ids: list[str] | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> list[str]:
        """As `add_texts`; ids that are not named are the documents' own."""
        texts, metadatas, names = parts(documents, ids)
        return self.add_texts(texts, metadatas, ids=names, batch_size=batch_size, **options)

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> list[str]:
        """As `add_texts`."""
        _check_none(options)
        documents = documents_of(texts, metadatas, ids)
        at_once = slices([document.text for document in documents], batch_size)
        vectors = None
        if self.embeddings is not None:
            vectors = [vector for some in at_once for vector in await self.embeddings.aembed_documents(some)]
        return await run_in_executor(None, self._put, documents, vectors)

    async def aadd_documents(
        self,
        documents: list[Document],
        *,
        ids: list[str] | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> list[str]:
        """As `add_documents`."""
        texts, metadatas, names = parts(documents, ids)
        return await self.aadd_texts(texts, metadatas, ids=names, batch_size=batch_size, **options)

    def delete(self, ids: list[str] | None = None, *, filter: Filter = None, **options: Any) -> bool:
        """Delete documents in one commit; an id that is not there is no error.

        Args:
            ids: ids of the documents to delete; an empty list deletes nothing.
            filter: the filter of the documents to delete, as in a search; with ids, only those of them that pass it.
            options: none; LangChain's signature has them.

        Raises:
            QueryError: there are neither ids nor a filter: nothing deletes all documents.
            BusyError: another writer held the index for too long.
        """
        _check_none(options)
        with self.batch() as batch:
            batch.delete(ids, filter=filter)
        return True

    # -- what it holds --------------------------------------------------------------------------------------------

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Documents by their ids, or chunks of files by theirs, in this order; what is missing is not in the list."""
        return self._opened.by_ids(ids)

    # -- questions ------------------------------------------------------------------------------------------------

    def similarity_search(self, query: str, k: int = 4, *, filter: Filter = None, **options: Any) -> list[Document]:
        """The k documents that are most like a question, best first.

        Args:
            query: the text of the question.
            k: the most documents that are returned; 1 or more.
            filter: fields and their values, with the operators $eq $ne $gt $gte $lt $lte $in $nin $exists, $and $or
                $not; or a condition of ragidx.
            options: options of `Index.search`: `mode="hybrid"`, `min_score`, `instruction` and so on.

        Raises:
            QueryError: the question, the filter or an option is wrong.
            ModelError: the index's model is not here, or is another.
        """
        return [document for document, _ in self._opened.answers(query, self._asked(query), k, filter, options)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, *, filter: Filter = None, **options: Any
    ) -> list[tuple[Document, float]]:
        """As `similarity_search`, with what the hits are ordered by: the cosine, unless `mode` says otherwise."""
        return [
            (document, hit.score)
            for document, hit in self._opened.answers(query, self._asked(query), k, filter, options)
        ]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, *, filter: Filter = None, **options: Any
    ) -> list[Document]:
        """As `similarity_search`, for a vector."""
        return [document for document, _ in self._opened.answers(None, embedding, k, filter, options)]

    def similarity_search_with_score_by_vector(
        self, embedding: list[float], k: int = 4, *, filter: Filter = None, **options: Any
    ) -> list[tuple[Document, float]]:
        """As `similarity_search_with_score`, for a vector."""
        return [(document, hit.score) for document, hit in self._opened.answers(None, embedding, k, filter, options)]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: Filter = None,
        **options: Any,
    ) -> list[Document]:
        """Documents that are like a question and unlike each other.

        Args:
            query: the text of the question.
            k: the most documents that are returned; 1 or more.
            fetch_k: the number of best documents that are chosen from.
            lambda_mult: 1 is by likeness to the question alone, 0 by unlikeness to the documents before.
            filter: the filter of documents, as `similarity_search` takes it.
            options: options of `Index.search`, as `similarity_search` takes them.
        """
        answers = self._opened.answers(query, self._asked(query), fetch_k, filter, options)
        return self._opened.diverse(answers, k, lambda_mult)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: Filter = None,
        **options: Any,
    ) -> list[Document]:
        """As `max_marginal_relevance_search`, for a vector."""
        return self._opened.diverse(self._opened.answers(None, embedding, fetch_k, filter, options), k, lambda_mult)

    async def asimilarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """As `similarity_search`."""
        return [document for document, _ in await self._aanswers(query, k, **options)]

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """As `similarity_search_with_score`."""
        return [(document, hit.score) for document, hit in await self._aanswers(query, k, **options)]

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """As `max_marginal_relevance_search`."""
        return await run_in_executor(
            None, self._opened.diverse, await self._aanswers(query, fetch_k, **options), k, lambda_mult
        )

    # -- inside ---------------------------------------------------------------------------------------------------

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return relevance

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, *, filter: Filter = None, **options: Any
    ) -> list[tuple[Document, float]]:
        return relevant(self._opened.answers(query, self._asked(query), k, filter, options))

    async def _asimilarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        return relevant(await self._aanswers(query, k, **options))

    def _asked(self, query: str) -> list[float] | None:
        """The vector of a question; None: the index encodes it."""
        return None if self.embeddings is None else self.embeddings.embed_query(query)

    async def _aanswers(self, query: str, k: int, *, filter: Filter = None, **options: Any) -> list[Answer]:
        vector = None if self.embeddings is None else await self.embeddings.aembed_query(query)
        return await run_in_executor(None, self._opened.answers, query, vector, k, filter, options)

    def _put(self, documents: Sequence[ragidx.Document], vectors: list[list[float]] | None) -> list[str]:
        with self.batch() as batch:
            return batch.put(documents, vectors)


def _check_none(options: Mapping[str, Any]) -> None:
    for name in options:
        raise TypeError(f"a store has no option '{name}'")
