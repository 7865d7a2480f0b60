"""LangChain: an index as a retriever and as a vector store, and its encoder as embeddings. Extra `langchain`.

Only translates. Of the retriever, a `Hit` becomes a `Document` whose id is the chunk's id and whose metadata are the
document's own, with `source` (the document's id), `start`, `end`, `score`, and where they have a value `heading`,
`dense`, `bm25`, `line`, `page`, `context` and `also` beside them where the names are free. Async calls run in a thread:
searching and encoding release the interpreter's lock. The store is in `langchain_store`.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Literal

import ragidx

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables.config import run_in_executor
    from pydantic import ConfigDict, SkipValidation
except ImportError as fault:
    raise ragidx.RagidxError(
        "the LangChain adapter needs langchain-core, which is not installed",
        "pip install '.[langchain]' in a checkout of ragidx",
    ) from fault

from ragidx.pipelines.integrations.frameworks.langchain_rows import hit_document
from ragidx.pipelines.integrations.frameworks.langchain_store import RagidxVectorStore

__all__ = ["RagidxEmbeddings", "RagidxRetriever", "RagidxVectorStore"]


class RagidxRetriever(BaseRetriever):
    """An index as a LangChain retriever.

        retriever = RagidxRetriever(index="index/", k=4)
        retriever.invoke("who signed the lease?", where="year >= 2020")

    Args:
        index: an open index, or its folder.
        refresh: "auto" shows the newest committed state at each call; None: the index shows one state, until its
            `refresh` or a change of its own.
        options: options of `Index.search`; `invoke` takes them too, for one call.

    Raises:
        TypeError: a search has no such option.
        IndexFormatError: there is no index in the folder.
    """

    model_config = ConfigDict(extra="allow")

    index: SkipValidation[ragidx.Index | ragidx.RemoteIndex | str | Path]
    refresh: Literal["auto"] | None = "auto"

    def model_post_init(self, context: Any, /) -> None:
        """Open the index: a wrong folder or a misspelt option is an error when the retriever is made."""
        super().model_post_init(context)
        if not isinstance(self.index, ragidx.Index | ragidx.RemoteIndex):
            self.index = ragidx.Index(self.index)
        inspect.signature(self.index.search).bind("", **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        return self.__pydantic_extra__ or {}

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        assert isinstance(self.index, ragidx.Index | ragidx.RemoteIndex)
        if self.refresh == "auto":
            self.index.refresh()
        return [hit_document(hit) for hit in self.index.search(query, **(self._options | options))]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        # The base class's own does not pass options to the call above.
        return await run_in_executor(
            None, self._get_relevant_documents, query, run_manager=run_manager.get_sync(), **options
        )


class RagidxEmbeddings(Embeddings):
    """A model and its filter as LangChain embeddings: vectors of unit length, as an index would hold them.

    Args:
        model, options: the model, and its options, as `ragidx.load_embedder` takes them.
    """

    def __init__(self, model: str = "mini", **options: Any) -> None:
        self._embedder = ragidx.load_embedder(model, **options)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of documents."""
        vectors: list[list[float]] = self._embedder.embed_document(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query, with the encoder's instruction."""
        vectors: list[list[float]] = self._embedder.embed_query([text]).tolist()
        return vectors[0]
