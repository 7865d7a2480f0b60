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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragidx.corpora.errors import QueryError, lone_surrogate
from ragidx.indexer.specs import MODEL, TABLE, IndexSpec
from ragidx.indexer.store.generations import committed
from ragidx.retriever.hit import NO_KNOWN_WORD, NO_VECTOR, NOTHING_KNOWN, WORDS_ALONE, Hit, Hits
from ragidx.retriever.models import (
    FILTER_FILE,
    HERE,
    ModelPlace,
    encoder_for,
    encodes_questions,
    files_for,
    model_key,
    shared,
    stored_filter,
    stored_table,
)
from ragidx.retriever.options import HYBRID, SearchOptions, search_options
from ragidx.retriever.rows import FolderRows, Queries, Rows, needs_vectors, unit_queries
from ragidx.retriever.shaping import shaped_hits

if TYPE_CHECKING:
    from ragidx.indexer.encoders import Embedder, Encoder
    from ragidx.indexer.models.locate import ModelFiles
    from ragidx.indexer.token_table import TokenTable
    from ragidx.retriever.rerank import Reranker


class Searcher:
    """A committed state of an index. Safe to use from several threads.

    Args:
        store: the opened index; `Searcher.open` opens one.
        place: where its model is now, and where it and the search run.
    """

    def __init__(self, store: Rows, place: ModelPlace = HERE) -> None:
        self.store, self.place = store, place
        self.spec = IndexSpec.from_json(dict(store.manifest.spec), where=str(store.path))
        self.questions = encodes_questions(place.questions, self.spec, store)
        self._rerankers: dict[tuple[str, str], Reranker] = {}

    @classmethod
    def open(cls, path: str | Path, place: ModelPlace = HERE, before: Searcher | None = None) -> Searcher:
        """The index in a folder. No model is loaded yet.

        Args:
            path: folder of the index.
            place: where its model is, and where it and the search run.
            before: a state of this index that is open, with this place. It is returned if it is still the committed
                one; else what both have stays open, its models too.

        Raises:
            IndexFormatError: there is no index, or it is damaged or newer.
            SpecError: there is no device of that name, or it is a GPU that is not on this machine; or a table is to
                encode questions, and the index has none.
        """
        if place.device != "auto":
            from ragidx.indexer.devices import check_device

            check_device(place.device)
        if before is not None and committed(Path(path)) == before.store.manifest:
            return before
        store = FolderRows.open(path, None if before is None else before.folder)
        store.move(place.device)
        opened = cls(store, place)
        if before is not None:
            opened._inherit(before)
        return opened

    def by_model(self) -> Searcher:
        """The same state, whose questions the model encodes."""
        if self.questions == MODEL:
            return self
        other = Searcher(self.store, dataclasses.replace(self.place, questions=MODEL))
        other._inherit(self)
        return other

    @property
    def folder(self) -> FolderRows:
        """The state, of an index folder."""
        assert isinstance(self.store, FolderRows)
        return self.store

    @property
    def stemmer(self) -> str | None:
        """The language of the stemmer of its words, or `none`; None: the index has no words."""
        return None if self.store.manifest.lexical is None else self.store.manifest.lexical.stemmer

    @property
    def schema(self) -> dict[str, str]:
        """What conditions can ask for: metadata fields and their types, and `doc_id` and `heading`."""
        from ragidx.retriever.where.masks import schema_of

        return schema_of(self.store)

    def search(
        self,
        queries: Sequence[str] | None = None,
        *,
        vectors: ArrayLike | None = None,
        instruction: str | None = None,
        **options: Any,
    ) -> list[Hits]:
        """The hits of each query; the options are those of `Index.search`, and `Index` says what they mean.

        Vectors are (q, dim) floats; of an index of precomputed vectors that was shrunk, also (q, as many as they had
        before): cut to the first `dim`. Questions that come with vectors are not encoded: these are theirs.

        Raises:
            TypeError: there are neither questions nor vectors, or an instruction for vectors.
            ValueError: there are not as many vectors as questions.
            QueryError: a question is empty, a vector is zero, not finite or of another width, an option is out of
                range, or the condition is wrong.
            ModelError: the index's model is not here, or is another.
            SpecError: the lexical part was made with another version of the stemmers.
        """
        if queries is None and vectors is None:
            raise TypeError("give a question, or a vector")
        if vectors is not None and instruction is not None:
            raise TypeError("an instruction is for a question that is encoded, and there is a vector")
        checked = self.options(in_words=queries is not None, has_vectors=vectors is not None, **options)
        if queries is not None:
            check_questions(queries)
        if vectors is not None:
            precomputed = self.spec.precomputed
            input_dim = None if precomputed is None else precomputed.input_dim
            unit = unit_queries(vectors, self.store.manifest.dim, input_dim, index=self.store.path)
            if queries is not None and len(queries) != len(unit):
                raise ValueError(f"{len(unit)} vectors for {len(queries)} questions")
            return self.hits(Queries(unit, queries), checked)
        assert queries is not None
        if len(queries) == 0:
            return []
        encoded = self.encode(queries, instruction) if needs_vectors(checked) else None
        return self.hits(Queries(encoded, queries), checked)

    def hits(self, queries: Queries, options: SearchOptions) -> list[Hits]:
        """The hits of queries that are encoded, read again by the reranker where one is asked for."""
        answers = shaped_hits(self.store, queries, before_reranking(options))
        if options.rerank is not None:
            answers = self.reranked(queries.texts or (), answers, options)
        return self.noted(answers, options, queries.texts, queries.are_unknown)

    def reranked(
        self, queries: Sequence[str], answers: Sequence[Sequence[Hit]], options: SearchOptions
    ) -> list[list[Hit]]:
        """The k best hits of each query by the reranker that the options name."""
        from ragidx.retriever.rerank import check_scores

        assert options.rerank is not None
        model = options.rerank.model
        reranker = self.reranker(model, options.rerank.method)
        reranked = []
        for query, hits in zip(queries, answers, strict=True):
            scores = reranker.score(query, [hit.text for hit in hits]) if hits else np.zeros(0, np.float32)
            check_scores(scores, model)
            order = np.argsort(-scores, kind="stable")[: options.k].tolist()
            reranked.append(
                [
                    dataclasses.replace(hits[number], rank=rank, score=float(scores[number]))
                    for rank, number in enumerate(order, start=1)
                ]
            )
        return reranked

    def noted(
        self,
        answers: Sequence[Sequence[Hit]],
        options: SearchOptions,
        texts: Sequence[str] | None = None,
        unknown: Sequence[bool] = (),
    ) -> list[Hits]:
        """The hits of each query, with what there is to say of them.

        Where no hit has a word of its query, the `texts` of the queries tell whether the index has one; `unknown` are
        those that have no vector.
        """

        def has_no_word(place: int, hits: Sequence[Hit]) -> bool:
            if any(hit.bm25 is not None for hit in hits):
                return False
            if texts is None or not self.store.manifest.n_chunks:
                return bool(hits)
            return not self.store.knows_a_word(texts[place])

        def notes_on(place: int, hits: Sequence[Hit]) -> list[str]:
            is_unknown = bool(unknown) and unknown[place] and self.store.manifest.n_chunks > 0
            if options.mode != HYBRID:
                return [NO_VECTOR] if is_unknown else []
            if has_no_word(place, hits):
                return [NOTHING_KNOWN if is_unknown else NO_KNOWN_WORD]
            return [WORDS_ALONE] if is_unknown else []

        return [Hits(hits, notes=notes_on(place, hits)) for place, hits in enumerate(answers)]

    def rank_documents(self, queries: Sequence[str] | None = None, **options: Any) -> list[list[tuple[str, float]]]:
        """The k best documents for each query as (document id, score): a document counts by its best chunk.

        Equal texts of two documents are both there.
        """
        answers = self.search(queries, per_document=1, fold=False, **options)
        return [[(hit.doc_id, hit.score) for hit in hits] for hits in answers]

    def options(self, *, in_words: bool = True, has_vectors: bool = False, **options: Any) -> SearchOptions:
        """The options of a search in this index, with its defaults: which mode a question is answered in, for example.

        Args:
            in_words: whether there are questions.
            has_vectors: whether there are vectors, of the questions or alone.
            options: as of `search`.

        Raises:
            QueryError: as `search`.
        """
        encodes = has_vectors or self.spec.encoder is not None
        own = self.spec.weight
        return search_options(self.store, in_words=in_words, encodes=encodes, own_weight=own, **options)

    def encode(self, queries: Sequence[str], instruction: str | None = None) -> NDArray[np.float32]:
        """(q, dim) float32 of unit length: questions as the index wants them; zero where the model does not know one.

        Where a table encodes questions, the model encodes those of which the table knows no token, and all that have an
        instruction.

        Raises:
            QueryError: a question has nothing that a model could read.
            ModelError: the index's model is not here, or is another, or its vector is not finite.
        """
        has_table = self._has_table(instruction)
        vectors = self.table.vectors(queries) if has_table else self.embedder.embed_query(queries, instruction)
        if has_table and len(unknown := np.flatnonzero(~vectors.any(axis=1))):
            vectors[unknown] = self.embedder.embed_query([queries[number] for number in unknown.tolist()])
        for number in np.flatnonzero(~vectors.any(axis=1)).tolist():
            if self.encoder.usage is not None or not self.encoder.tokenizer.is_unknown(queries[number]):
                raise QueryError(
                    f"the model gives no vector for the query {queries[number]!r}", "use words that it knows"
                )
        return vectors

    def encodes_at_once(self, instruction: str | None = None) -> bool:
        """Whether questions are encoded without a network, by what is loaded: several at a time would gain nothing."""
        encoder: Encoder | None = vars(self).get("encoder")
        return encoder is not None and (self._has_table(instruction) or encoder.takes_ids)

    def load(self, instruction: str | None = None) -> None:
        """Load what `encode` needs now.

        Raises:
            ModelError: the index's model is not here, or is another.
        """
        _ = self.table if self._has_table(instruction) else self.embedder

    def _has_table(self, instruction: str | None) -> bool:
        return self.questions == TABLE and instruction is None

    @functools.cached_property
    def model_files(self) -> ModelFiles:
        """The files of the index's own model, as this index names them."""
        return files_for(self.store, self.spec, self.place)

    @functools.cached_property
    def encoder(self) -> Encoder:
        """The index's own encoder, loaded when it is first asked for; shared by all indexes of the same model."""
        return encoder_for(self.store, self.spec, self.place, self.model_files)

    @functools.cached_property
    def embedder(self) -> Embedder:
        """What makes the index's vectors: its encoder and the filter that it keeps."""
        from ragidx.indexer.encoders import Embedder

        return Embedder(self.encoder, stored_filter(self.store, self.spec.filter))

    @functools.cached_property
    def table(self) -> TokenTable:
        """The index's table of questions, loaded when it is first asked for."""
        return stored_table(self.store)

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

    def _inherit(self, before: Searcher) -> None:
        """Take over the models of the state before that are the same."""
        self._rerankers = before._rerankers
        if "encoder" not in vars(before):
            return
        if model_key(before.store, before.spec, self.place) == model_key(self.store, self.spec, self.place):
            self.model_files, self.encoder = before.model_files, before.encoder
            same = before.store.manifest.files.get(FILTER_FILE) == self.store.manifest.files.get(FILTER_FILE)
            if same and self.spec.filter == before.spec.filter and "embedder" in vars(before):
                self.embedder = before.embedder


def before_reranking(options: SearchOptions) -> SearchOptions:
    """The options of what a reranker reads; without one, as they are."""
    return options if options.rerank is None else dataclasses.replace(options, rerank=None, k=options.rerank.top)


def check_questions(queries: Sequence[str]) -> None:
    """What is wrong with a question is reported before a model is loaded for it.

    Raises:
        QueryError: one is empty, or no Unicode text.
    """
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
