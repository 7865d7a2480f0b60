"""Searcher: one committed state of an index, asked with questions or with vectors.

question + instruction -> query vector (the index's own `Embedder`) -+
query vectors (q, dim), of any length but zero -> unit length -------+-> search -> shaping -> hits

A searcher is a snapshot: what is committed later does not change it, and nothing that it needs can be gone later but
the model, which is loaded when the first text comes. The model must be the one the index was made with, by the content
of its weights. It runs where `device` says, which for `auto` is a GPU where there is one; searching takes place there
only where `device` names it, `cuda`. If an index of precomputed vectors was shrunk, query vectors may have the old
width: they are cut as the stored vectors were.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from ragidx.corpora.errors import QueryError, lone_surrogate
from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store.generations import committed
from ragidx.indexer.store.rows import Row, places_of, true_places
from ragidx.indexer.store.store import Store
from ragidx.retriever.hit import Hit
from ragidx.retriever.models import HERE, ModelPlace, encoder_for, model_of, shared, stored_filter
from ragidx.retriever.options import ONE_A_DOCUMENT, RankKeywords, SearchKeywords, SearchOptions, search_options
from ragidx.retriever.ranking import Queries, Rank, needs_vectors, rank, unit_queries
from ragidx.retriever.shaping import shaped_hits

if TYPE_CHECKING:
    from ragidx.indexer.encoders.embedder import Embedder
    from ragidx.indexer.encoders.protocol import Encoder
    from ragidx.retriever.rerank import Reranker


class Searcher:
    """A committed state of an index. Safe to use from several threads.

    Args:
        store: the opened index; `Searcher.open` opens one.
        place: where its model is now, and where it and the search run.
    """

    def __init__(self, store: Store, place: ModelPlace = HERE) -> None:
        self.store, self.place = store, place
        self.spec = IndexSpec.from_json(dict(store.manifest.spec), where=str(store.path))
        self._rerankers: dict[tuple[str, str], Reranker] = {}

    @classmethod
    def open(cls, path: str | Path, place: ModelPlace = HERE, before: Searcher | None = None) -> Searcher:
        """The index in a folder. No model is loaded yet.

        Args:
            path: of the index.
            place: where its model is, and where it and the search run.
            before: a state of this index that is open, with this place. It is returned if it is still the committed
                one; else what both have stays open, its models too.

        Raises:
            IndexFormatError: there is no index, or it is damaged or newer.
            SpecError: there is no device of that name, or it is a GPU that is not on this machine.
        """
        if place.device != "auto":
            from ragidx.indexer.devices import check_device

            check_device(place.device)
        if before is not None and committed(Path(path)) == before.store.manifest:
            return before
        store = Store.open(path, None if before is None else before.store)
        store.move(place.device)
        found = cls(store, place)
        if before is not None:
            found._inherit(before)
        return found

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""
        return self.store.manifest.dim

    @property
    def schema(self) -> dict[str, str]:
        """What conditions can ask for: metadata fields and their types, and `doc_id` and `heading`."""
        from ragidx.retriever.where.masks import schema_of

        return schema_of(self.store)

    def __len__(self) -> int:
        """How many chunks there are."""
        return self.store.manifest.n_chunks

    # -- questions ------------------------------------------------------------------------------------------------

    def search(
        self,
        queries: Sequence[str],
        k: int = 10,
        instruction: str | None = None,
        where: str | None = None,
        **options: Unpack[SearchKeywords],
    ) -> list[list[Hit]]:
        """The k best chunks for each question, best first; fewer only if the index, or the options, leave no more.

        Args:
            queries: questions; they are text, and no query language: quotes, `+`, `-` and `field:value` mean nothing.
            k: 1 or more.
            instruction: the task sentence put before it for the model; None: the index's own; empty: none.
            where: a condition on metadata, such as `subject == "history" and year >= 1900`.
            options: `SearchKeywords`: mode (by default hybrid where the index has a lexical part), weight, fusion, dim,
                rerank_dim, min_score, min_z, per_document, fold, mmr, context, rerank.

        Raises:
            QueryError: a question is empty, an option is out of range, or the condition is wrong.
            ModelError: the index's model is not here, or is another.
            SpecError: the lexical part was made with another version of the stemmers.
        """
        return self._reranked_hits(queries, instruction, self.options(k, where, **options))

    def rank_documents(
        self,
        queries: Sequence[str],
        k: int = 10,
        instruction: str | None = None,
        where: str | None = None,
        **options: Unpack[RankKeywords],
    ) -> list[list[tuple[str, float]]]:
        """The k best documents for each question as (document id, score): a document's best chunk counts."""
        asked = dataclasses.replace(self.options(k, where, **options), shape=ONE_A_DOCUMENT)
        return ranked_documents(self._reranked_hits(queries, instruction, asked))

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

    @functools.cached_property
    def encoder(self) -> Encoder:
        """The index's own encoder, loaded when it is first asked for; shared by all indexes of the same model."""
        return encoder_for(self.store, self.spec, self.place)

    @functools.cached_property
    def embedder(self) -> Embedder:
        """What makes the index's vectors: its encoder and the filter that it keeps."""
        from ragidx.indexer.encoders.embedder import Embedder

        return Embedder(self.encoder, stored_filter(self.store, self.spec.filter))

    def reranker(self, model: str, method: str) -> Reranker:
        """A model that reads questions with passages, loaded once.

        Raises:
            ModelError: there is no such model, or it is no reranker.
        """
        from ragidx.retriever.rerank import load_reranker

        if (model, method) not in self._rerankers:
            key = (model, method, self.place.device, self.place.dtype)
            self._rerankers[model, method] = shared(
                key, lambda: load_reranker(model, method=method, device=self.place.device, dtype=self.place.dtype)
            )
        return self._rerankers[model, method]

    # -- vectors --------------------------------------------------------------------------------------------------

    def search_vectors(
        self, vectors: ArrayLike, k: int = 10, where: str | None = None, **options: Unpack[SearchKeywords]
    ) -> list[list[Hit]]:
        """The k best chunks for each query, best first; fewer only if the index, or the options, leave no more.

        Args:
            vectors: (q, dim) numbers; brought to length 1. Of an index of precomputed vectors that was shrunk, also
                (q, as many as were given): cut to the first `dim`.
            k: 1 or more.
            where: a condition on metadata, such as `subject == "history" and year >= 1900`.
            options: `SearchKeywords`: dim, rerank_dim, min_score, per_document, fold, mmr, context. A vector has no
                words, so the search is dense.

        Raises:
            QueryError: a vector is zero, not finite or of another width, an option is out of range, or the condition is
                wrong.
        """
        return self.hits(Queries(vectors=self._unit(vectors)), search_options(self.store, k, where, **options))

    def hits(self, queries: Queries, options: SearchOptions) -> list[list[Hit]]:
        """The hits for queries as the options need them, and options made for this index."""
        return shaped_hits(self.store, self._rank(queries, options), len(queries), options)

    def rank_documents_by(
        self, vectors: ArrayLike, k: int = 10, where: str | None = None, **options: Unpack[SearchKeywords]
    ) -> list[list[tuple[str, float]]]:
        """As `rank_documents`, by vectors (q, dim)."""
        asked = dataclasses.replace(search_options(self.store, k, where, **options), shape=ONE_A_DOCUMENT)
        return ranked_documents(self.hits(Queries(vectors=self._unit(vectors)), asked))

    # -- what the index holds -------------------------------------------------------------------------------------

    def rows(self, chunk_ids: Sequence[str] | None = None, *, doc_id: str | None = None) -> list[Row]:
        """What the index holds of some chunks, in the order asked for, or of a document, in that of its text.

        Args:
            chunk_ids: ids of chunks.
            doc_id: the id of a document, in place of them.

        Raises:
            QueryError: the index has no such chunk or document.
        """
        if (chunk_ids is None) == (doc_id is None):
            raise TypeError("rows takes chunk ids or a document's id, one of the two")
        if doc_id is not None:
            rows = self.store.rows([row for row, _ in self._named("doc_id", [doc_id])])
            if not rows:
                raise QueryError(f"the index has no document '{doc_id}'", "ids are those that queries show")
            return sorted(rows, key=lambda row: (row.start, row.end))
        if chunk_ids is None or isinstance(chunk_ids, str):
            raise TypeError("expected a list of chunk ids, got one string")
        found = {name: row for row, name in self._named("chunk_id", chunk_ids)}
        missing = [name for name in chunk_ids if name not in found]
        if missing:
            more = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
            raise QueryError(f"the index has no chunk '{missing[0]}'{more}", "ids are those that queries show")
        return self.store.rows([found[name] for name in chunk_ids])

    def _inherit(self, before: Searcher) -> None:
        """Take over the models of the state before that are the same."""
        self._rerankers = before._rerankers
        if "encoder" in vars(before) and model_of(before.store, before.spec) == model_of(self.store, self.spec):
            self.encoder = before.encoder

    def _reranked_hits(
        self, queries: Sequence[str], instruction: str | None, options: SearchOptions
    ) -> list[list[Hit]]:
        """The hits, read again by the reranker where one is asked for."""
        asked = self._queries(queries, instruction, options)
        if options.rerank is None:
            return self.hits(asked, options)
        from ragidx.retriever.rerank import check_scores

        reranker = self.reranker(options.rerank.model, options.rerank.method)
        found = []
        for query, hits in zip(
            queries, self.hits(asked, dataclasses.replace(options, k=options.rerank.top)), strict=True
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

    def _rank(self, queries: Queries, options: SearchOptions) -> Rank:
        """The search for some of the queries, by their numbers, and k, with all else that the options say."""
        allowed = None
        if options.where is not None:
            from ragidx.retriever.where.masks import matching_rows

            allowed = matching_rows(self.store, options.where)
        return lambda numbers, k: rank(self.store, queries.of(numbers), k, allowed, options)

    def _unit(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """(q, dim) of length 1."""
        precomputed = self.spec.precomputed
        input_dim = None if precomputed is None else precomputed.input_dim
        return unit_queries(vectors, self.dim, input_dim, index=self.store.path)

    def _named(self, column: str, names: Sequence[str]) -> Iterator[tuple[int, str]]:
        """The rows that are alive and have one of these names in a column, in the order of the index."""
        wanted = pa.array(list(dict.fromkeys(names)), pa.large_string())
        for rows, batch in self.store.batches([column]):
            values = batch.column(0)
            places = true_places(pc.is_in(values, value_set=wanted))
            yield from zip(rows[places].tolist(), values.take(places_of(places)).to_pylist(), strict=True)


def ranked_documents(answers: Iterable[Sequence[Hit]]) -> list[list[tuple[str, float]]]:
    """(document id, score) of hits that have one chunk of each document."""
    return [[(hit.doc_id, hit.score) for hit in hits] for hits in answers]
