"""LangChain: an index as a retriever, and its encoder as embeddings. Extra `langchain`.

Only translates: a `Hit` becomes a `Document` whose id is the chunk's id and whose metadata are the document's own,
with `source` (the document's id), `start`, `end`, `score`, and where they have a value `heading`, `dense`, `bm25`,
`line`, `page`, `context` and `also` beside them where the names are free. Async calls run in a thread: searching and
encoding release the interpreter's lock.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Unpack

from ragidx.corpora.errors import missing_extra
from ragidx.indexer.devices import RunOptions
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.encoders.methods import EncoderOptions, FilterOptions, filter_spec
from ragidx.indexer.encoders.protocol import Encoder
from ragidx.pipelines.index import Index
from ragidx.retriever.hit import Hit
from ragidx.retriever.options import Rerank, SearchKeywords

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables.config import run_in_executor
    from pydantic import ConfigDict, Field, PrivateAttr
except ImportError as fault:
    raise missing_extra("the LangChain adapter needs", ["langchain-core"], "langchain") from fault


class CallKeywords(SearchKeywords, total=False):
    """What can be given to `invoke`, for one call."""

    k: int | None
    where: str | None
    instruction: str | None


class RagidxRetriever(BaseRetriever):
    """An index as a LangChain retriever.

        retriever = RagidxRetriever(index="index/", k=4)
        retriever.invoke("who signed the lease?", where="year >= 2020")

    `k`, `where`, `instruction` and the options of `Index.search` can be given to `invoke` too, for one call.
    """

    model_config = ConfigDict(extra="forbid")  # a misspelt option is an error, not silence

    index: str | Path
    k: int = Field(default=10, ge=1)
    where: str | None = None
    instruction: str | None = None
    mode: Literal["dense", "lexical", "hybrid"] | None = None
    weight: float | None = None
    fusion: Literal["z", "rrf"] | None = None
    dim: int | None = None
    rerank_dim: int | None = None
    min_score: float | None = None
    min_z: float | None = None
    per_document: int | None = None
    fold: bool = True
    mmr: float | None = None
    context: int = 0
    rerank: Rerank | None = None
    model: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    endpoint: str | None = None

    _index: Index = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Open the index: a wrong folder is an error when the retriever is made."""
        super().model_post_init(context)
        self._index = Index(self.index, model=self.model, device=self.device, dtype=self.dtype, endpoint=self.endpoint)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        where: str | None = None,
        instruction: str | None = None,
        **options: Unpack[SearchKeywords],
    ) -> list[Document]:
        own: SearchKeywords = {name: getattr(self, name) for name in SearchKeywords.__annotations__}  # type: ignore[assignment]
        hits = self._index.search(
            query,
            k=self.k if k is None else k,
            instruction=self.instruction if instruction is None else instruction,
            where=self.where if where is None else where,
            **(own | options),
        )
        return [_document(hit) for hit in hits]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Unpack[CallKeywords]
    ) -> list[Document]:
        # The base class's own does not pass options to the call above.
        return await run_in_executor(
            None, self._get_relevant_documents, query, run_manager=run_manager.get_sync(), **options
        )


class LoadKeywords(EncoderOptions, RunOptions, total=False):
    """The arguments of `load_encoder` but the model."""


class RagidxEmbeddings(Embeddings):
    """An encoder, and its filter, as LangChain embeddings: vectors of unit length, as an index would hold them.

    Args:
        model: mini, a folder, a hub id, or `openai:NAME`.
        tau, dim, filter_offset, filter: which part of the spectrum EmbedFilter keeps; `filter="none"` keeps the raw
            coordinates. If none is given: the model's preset.
        options: further arguments of `ragidx.load_encoder`.
    """

    def __init__(
        self,
        model: str = "mini",
        *,
        tau: float | None = None,
        dim: int | None = None,
        filter_offset: int | None = None,
        filter: str | None = None,
        **options: Unpack[LoadKeywords],
    ) -> None:
        from ragidx.indexer.encoders.embedder import Embedder
        from ragidx.indexer.filters.filter import make_filter

        self.encoder: Encoder = load_encoder(model, **options)
        asked = FilterOptions(filter=filter, tau=tau, dim=dim, filter_offset=filter_offset)
        spec = filter_spec(self.encoder.files, self.encoder.spec, **asked)
        self._embedder = Embedder(self.encoder, make_filter(spec, self.encoder))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of documents."""
        vectors: list[list[float]] = self._embedder.embed_document(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query, with the encoder's instruction."""
        vectors: list[list[float]] = self._embedder.embed_query([text]).tolist()
        return vectors[0]


def _document(hit: Hit) -> Document:
    found = hit.to_json()
    ours = {"source": hit.doc_id, "start": hit.start, "end": hit.end, "score": hit.score}
    ours |= {
        name: found[name]
        for name in ("heading", "dense", "bm25", "line", "page", "context", "also")
        if found[name] not in (None, "", [])
    }
    return Document(page_content=hit.text, id=hit.chunk_id, metadata=ours | found["metadata"])
