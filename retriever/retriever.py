"""Retriever: an index answers questions.

question + instruction -> query vector (the index's own `Embedder`) -> `IndexReader` -> hits. The encoder is loaded when
the first question comes, and must be the one the index was made with, by the content of its weights. It runs where
`device` says, which for `auto` is a GPU where there is one; searching takes place there only where `device` names it,
`cuda`. Searching with vectors is `IndexReader`'s.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import ModelError, QueryError, lone_surrogate
from ragidx.indexer.devices import check_device
from ragidx.indexer.specs import EncoderSpec, FilterSpec
from ragidx.indexer.store.store import Store
from ragidx.retriever.hit import Hit
from ragidx.retriever.options import ONE_A_DOCUMENT, RunKeywords, SearchKeywords, SearchOptions, search_options
from ragidx.retriever.ranking import Queries, needs_vectors
from ragidx.retriever.reader import IndexReader, ranked_documents
from ragidx.retriever.rerank import AUTO, Reranker, check_scores, load_reranker

if TYPE_CHECKING:
    from ragidx.indexer.encoders.embedder import Embedder
    from ragidx.indexer.encoders.load import Kept
    from ragidx.indexer.encoders.protocol import Encoder
    from ragidx.indexer.filters.filter import Filter
    from ragidx.indexer.models.locate import ModelFiles

FILTER_FILE = "filter.safetensors"


def stored_filter(store: Store, spec: FilterSpec) -> Filter | None:
    """The filter that an index keeps; None for `none`."""
    from ragidx.indexer.filters.filter import Filter

    return None if spec.name == "none" else Filter.from_bytes(store.blob(FILTER_FILE))


def kept_endpoint(store: Store) -> Kept:
    """What an index of an endpoint's model keeps of it."""
    from ragidx.indexer.encoders.endpoint import CANARY_FILE
    from ragidx.indexer.encoders.load import Kept
    from ragidx.indexer.models.address import KEPT_AS

    return Kept(store.manifest.notes.get(KEPT_AS), store.blob(CANARY_FILE), str(store.path))


class Retriever:
    """A committed state of an index, open for questions. Safe to use from several threads."""

    def __init__(
        self,
        store: Store,
        *,
        model: str | None = None,
        adapters: Sequence[str] | None = None,
        pooler: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        endpoint: str | None = None,
    ) -> None:
        self.reader = IndexReader(store, device=device)
        self.store, self.spec = store, self.reader.spec
        self._model, self._adapters, self._pooler = model, adapters, pooler
        self._device, self._dtype, self._endpoint = device, dtype, endpoint
        self._loading = threading.Lock()
        self._loaded: Encoder | None = None
        self._rerankers: dict[tuple[str, str], Reranker] = {}

    @classmethod
    def open(
        cls,
        path: str | Path = "ragidx-index",
        *,
        model: str | None = None,
        adapters: Sequence[str] | None = None,
        pooler: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        endpoint: str | None = None,
    ) -> Retriever:
        """The index in a folder. No model is loaded yet.

        Args:
            path: the index folder.
            model: where the index's model is now, if it has moved; it must have the same weights.
            adapters: likewise, of its LoRA adapters; all of them, in their order.
            pooler: likewise, of the weights of its trainable pooling.
            device: of the encoder, as in `load_encoder`; `cuda` searches the index there, too.
            dtype: of the encoder, as in `load_encoder`.
            endpoint: where the server of the index's model is now; None: where it was, if that is this machine.

        Raises:
            IndexFormatError: there is no index, or it is damaged or newer.
            SpecError: there is no device of that name, or it is a GPU that is not on this machine.
        """
        check_device(device)
        store = Store.open(path)
        store.move(device)
        return cls(store, model=model, adapters=adapters, pooler=pooler, device=device, dtype=dtype, endpoint=endpoint)

    def search(
        self,
        query: str,
        k: int = 10,
        instruction: str | None = None,
        where: str | None = None,
        **options: Unpack[SearchKeywords],
    ) -> list[Hit]:
        """The k best chunks for a question, best first; fewer only if the index, or the options, leave no more.

        Args:
            query: the question; it is text, and no query language: quotes, `+`, `-` and `field:value` mean nothing.
            k: 1 or more.
            instruction: the task sentence put before it for the model; None: the index's own; empty: none.
            where: a condition on metadata, such as `subject == "history" and year >= 1900`.
            options: `SearchKeywords`: mode (by default hybrid where the index has a lexical part), weight, fusion, dim,
                rerank_dim, min_score, min_z, per_document, fold, mmr, context, rerank, rerank_top, rerank_method.

        Raises:
            QueryError: the question is empty, an option is out of range, or the condition is wrong.
            ModelError: the index's model is not here, or is another.
            SpecError: the lexical part was made with another version of the stemmers.
        """
        return self.search_batch([query], k, instruction, where, **options)[0]

    def search_batch(
        self,
        queries: Sequence[str],
        k: int = 10,
        instruction: str | None = None,
        where: str | None = None,
        **options: Unpack[SearchKeywords],
    ) -> list[list[Hit]]:
        """As `search`, for many questions at once: they are encoded and searched in batches."""
        asked = self.options(k, where, **options)
        return self._hits(queries, instruction, asked)

    def search_documents(
        self,
        queries: Sequence[str],
        k: int = 10,
        instruction: str | None = None,
        where: str | None = None,
        **options: Unpack[RunKeywords],
    ) -> list[list[tuple[str, float]]]:
        """The k best documents for each question as (document id, score): a document's best chunk counts."""
        asked = dataclasses.replace(self.options(k, where, **options), shape=ONE_A_DOCUMENT)
        return ranked_documents(self._hits(queries, instruction, asked))

    def _hits(self, queries: Sequence[str], instruction: str | None, options: SearchOptions) -> list[list[Hit]]:
        """The hits, read again by the reranker where one is asked for."""
        asked = self._queries(queries, instruction, options)
        if options.rerank is None:
            return self.reader.hits(asked, options)
        reranker = self.reranker(options.rerank.model, options.rerank.method)
        found = []
        for query, hits in zip(
            queries, self.reader.hits(asked, dataclasses.replace(options, k=options.rerank.top)), strict=True
        ):
            scores = reranker.score(query, [hit.text for hit in hits]) if hits else np.zeros(0, np.float32)
            check_scores(scores, options.rerank.model)
            order = np.argsort(-scores, kind="stable")[: options.k].tolist()
            found.append(
                [
                    dataclasses.replace(hits[number], rank=rank, score=float(scores[number]))
                    for rank, number in enumerate(order, start=1)
                ]
            )
        return found

    def reranker(self, model: str, method: str = AUTO) -> Reranker:
        """A model that reads questions with passages, loaded once.

        Raises:
            ModelError: there is no such model, or it is no reranker.
        """
        key = (model, method)
        with self._loading:
            if key not in self._rerankers:
                self._rerankers[key] = load_reranker(model, method=method, device=self._device, dtype=self._dtype)
            return self._rerankers[key]

    def options(self, k: int = 10, where: str | None = None, **options: Unpack[SearchKeywords]) -> SearchOptions:
        """The options of a search in this index, with its defaults: which mode a question is answered in, for example.

        Raises:
            QueryError: as `search`.
        """
        encodes = self.spec.encoder is not None
        return search_options(self.store, k, where, in_words=True, encodes=encodes, **options)

    def encode(self, queries: Sequence[str], instruction: str | None = None) -> NDArray[np.float32]:
        """(q, dim) float32 of unit length: questions as the index wants them.

        Raises:
            QueryError: the model makes nothing of a question.
            ModelError: the index's model is not here, or is another, or its vector is not finite.
        """
        vectors = self.embedder.embed_query(queries, instruction)
        zero = np.flatnonzero(~vectors.any(axis=1))
        if zero.size:
            raise QueryError(f"the model makes nothing of the query {queries[zero[0]]!r}", "use words that it knows")
        return vectors

    @property
    def schema(self) -> dict[str, str]:
        """What conditions can ask for: metadata fields and their types, and `doc_id` and `heading`."""
        return self.reader.schema

    @property
    def encoder(self) -> Encoder:
        """The index's own encoder, loaded when it is first asked for."""
        with self._loading:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    @functools.cached_property
    def embedder(self) -> Embedder:
        """What makes the index's vectors: its encoder and the filter that it keeps."""
        from ragidx.indexer.encoders.embedder import Embedder

        return Embedder(self.encoder, stored_filter(self.store, self.spec.filter))

    def _load(self) -> Encoder:
        spec = self.spec.encoder
        if spec is None:
            made_by = self.spec.precomputed.made_by if self.spec.precomputed else ""
            by = f" by '{made_by}'" if made_by else ""
            raise ModelError(
                f"the index holds precomputed vectors{by}: no question in words can be encoded for it",
                "ask it with a vector: ragidx query --vector, or ragidx.IndexReader; or name the model that made them "
                "when it is built: ragidx build --vectors FILE --model M --rebuild",
                where=str(self.store.path),
            )
        from ragidx.indexer.encoders.load import encoder_of
        from ragidx.indexer.models.fingerprint import weights_fingerprint
        from ragidx.indexer.models.locate import find

        files = find(
            self._model or spec.model,
            revision=spec.revision,
            adapters=spec.adapters if self._adapters is None else self._adapters,
            pooler=self._pooler or spec.pooler,
        )
        if weights_fingerprint(files, self.spec.weights) != self.spec.weights:
            if files.served:
                raise ModelError(
                    f"'{files.name}' is not the model this index was made with, which is '{spec.model}'",
                    "remove `model`, or build the index again with `rebuild=True`",
                    where=str(self.store.path),
                )
            raise ModelError(
                f"'{files.name}'{_extras(files)} is not the model this index was made with: its files have changed",
                f"name the right folder with `model`{_options(spec)}, or build the index again with `rebuild=True`",
                where=str(self.store.path),
            )
        kept = kept_endpoint(self.store) if files.served else None
        device = "auto" if files.served else self._device  # which is then that of the search
        encoder = encoder_of(files, spec, device=device, dtype=self._dtype, endpoint=self._endpoint, kept=kept)
        if encoder.template_content() != self.spec.template:
            raise ModelError(
                f"the template '{spec.template}' of this version is not the one this index was made with",
                f"query it with ragidx {self.store.manifest.ragidx}, or build it again with `rebuild=True`",
                where=str(self.store.path),
            )
        return encoder

    def _queries(self, queries: Sequence[str], instruction: str | None, options: SearchOptions) -> Queries:
        """What the search needs of questions; what is wrong with one is reported before a model is loaded for it."""
        if isinstance(queries, str):
            raise TypeError("expected a list of queries, got one string")
        for number, query in enumerate(queries, start=1):
            place = f"query {number}" if len(queries) > 1 else ""
            if not isinstance(query, str):
                raise TypeError(f"a query is a str, got {query!r}")
            if not query.strip():
                raise QueryError("the query is empty", "write a question", where=place)
            at = lone_surrogate(query)
            if at is not None:
                raise QueryError(f"the query is not Unicode text at character {at}", "write it in UTF-8", where=place)
        return Queries(self.encode(queries, instruction) if needs_vectors(options) else None, queries)


def _extras(files: ModelFiles) -> str:
    """What belongs to the model beside its own folder, for messages."""
    named = [f"{len(files.adapters)} adapter{'s' * (len(files.adapters) > 1)}"] if files.adapters else []
    named += ["its pooler"] if files.pooler is not None else []
    return f" with {' and '.join(named)}" if named else ""


def _options(spec: EncoderSpec) -> str:
    """The options that say where those are."""
    adapters = " and its adapters, all of them in their order, with `adapters`" if spec.adapters else ""
    return adapters + (" and its pooler with `pooler`" if spec.pooler else "")
