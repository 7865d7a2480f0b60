"""Retriever: an index answers questions.

question + instruction -> query vector (the index's own spec) -> filter -> unit length -> search -> hits. The encoder
is loaded when the first question comes, and must be the one the index was made with, by the content of its weights.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import ModelError, QueryError, lone_surrogate
from ragidx.indexer.specs import EncoderSpec, IndexSpec
from ragidx.indexer.store import Store
from ragidx.retriever.hit import Hit
from ragidx.retriever.matching import matching_rows, schema_of

if TYPE_CHECKING:
    from ragidx.indexer.encoder import Encoder
    from ragidx.indexer.filters import Filter
    from ragidx.indexer.models import ModelFiles

FILTER_FILE = "filter.safetensors"


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
    ) -> None:
        self.store = store
        self.spec = IndexSpec.from_json(dict(store.manifest.spec), where=str(store.path))
        self._model, self._adapters, self._pooler = model, adapters, pooler
        self._device, self._dtype = device, dtype
        self._loading = threading.Lock()
        self._loaded: Encoder | None = None

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
    ) -> Retriever:
        """The index in a folder. No model is loaded yet.

        Args:
            path: the index folder.
            model: where the index's model is now, if it has moved; it must have the same weights.
            adapters: likewise, of its LoRA adapters; all of them, in their order.
            pooler: likewise, of the weights of its trainable pooling.
            device: of the encoder, as in `load_encoder`.
            dtype: of the encoder, as in `load_encoder`.

        Raises:
            IndexFormatError: there is no index, or it is damaged or newer.
        """
        return cls(Store.open(path), model=model, adapters=adapters, pooler=pooler, device=device, dtype=dtype)

    def search(self, query: str, k: int = 10, instruction: str | None = None, where: str | None = None) -> list[Hit]:
        """The k best chunks for a question, best first; fewer only if the index, or `where`, has no more.

        Args:
            query: the question.
            k: 1 or more.
            instruction: the task sentence put before it; None: the index's own; empty: none.
            where: a condition on metadata, such as `subject == "history" and year >= 1900`.

        Raises:
            QueryError: the question is empty, k is below 1, or the condition is wrong.
            ModelError: the index's model is not here, or is another.
        """
        return self.search_batch([query], k, instruction, where)[0]

    def search_batch(
        self, queries: Sequence[str], k: int = 10, instruction: str | None = None, where: str | None = None
    ) -> list[list[Hit]]:
        """As `search`, for many questions at once: they are encoded and searched in batches."""
        _check(queries, k)
        allowed = None if where is None else matching_rows(self.store, where)
        scores, places = self.store.search(self.encode(queries, instruction), k, allowed)
        rows = self.store.rows([place for of_query in places for place in of_query])
        answers, at = [], 0
        for number, of_query in enumerate(places):
            found = rows[at : at + len(of_query)]
            at += len(of_query)
            answers.append(
                [
                    Hit(
                        rank=rank,
                        score=float(scores[number, rank - 1]),
                        text=row.text,
                        doc_id=row.doc_id,
                        chunk_id=row.chunk_id,
                        start=row.start,
                        end=row.end,
                        heading=row.heading,
                        metadata=row.metadata,
                    )
                    for rank, row in enumerate(found, start=1)
                ]
            )
        return answers

    def search_documents(
        self, queries: Sequence[str], k: int = 10, instruction: str | None = None, where: str | None = None
    ) -> list[list[tuple[str, float]]]:
        """The k best documents for each question as (document id, score): a document's best chunk counts."""
        _check(queries, k)
        allowed = None if where is None else matching_rows(self.store, where)
        vectors = self.encode(queries, instruction)
        answers: list[list[tuple[str, float]]] = [[] for _ in queries]
        waiting, width = list(range(len(queries))), k
        while waiting:
            scores, places = self.store.search(vectors[waiting], width, allowed)
            short = []
            for number, query in enumerate(waiting):
                ids = self._document_ids(places[number])
                best: dict[str, float] = {}
                for doc_id, score in zip(ids, scores[number], strict=False):
                    best.setdefault(doc_id, float(score))
                answers[query] = list(best.items())[:k]
                if len(best) < k and len(ids) == width:
                    short.append(query)
            waiting, width = short, width * 4
        return answers

    def encode(self, queries: Sequence[str], instruction: str | None = None) -> NDArray[np.float32]:
        """(q, dim) float32 of unit length: questions as the index wants them.

        Raises:
            QueryError: the model makes nothing of a question.
        """
        raw = self.encoder.encode_query(list(queries), instruction)
        vectors = raw if self._filter is None else self._filter(raw)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not norms.all():
            empty = queries[int(np.flatnonzero(norms[:, 0] == 0)[0])]
            raise QueryError(f"the model makes nothing of the query {empty!r}", "use words that it knows")
        unit: NDArray[np.float32] = vectors / norms
        return unit

    @property
    def schema(self) -> dict[str, str]:
        """What conditions can ask for: metadata fields and their types, and `doc_id` and `heading`."""
        return schema_of(self.store)

    @property
    def encoder(self) -> Encoder:
        """The index's own encoder, loaded when it is first asked for."""
        with self._loading:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> Encoder:
        from ragidx.indexer.encoder import encoder_of
        from ragidx.indexer.models import locate, weights_fingerprint

        spec = self.spec.encoder
        files = locate(
            self._model or spec.model,
            revision=spec.revision,
            adapters=spec.adapters if self._adapters is None else self._adapters,
            pooler=self._pooler or spec.pooler,
        )
        if weights_fingerprint(files) != self.spec.weights:
            raise ModelError(
                f"'{files.name}'{_extras(files)} is not the model this index was made with: its files have changed",
                f"name the right folder with --model{_options(spec)}, or build the index again with --rebuild",
                where=str(self.store.path),
            )
        encoder = encoder_of(files, spec, device=self._device, dtype=self._dtype)
        if encoder.template_content() != self.spec.template:
            raise ModelError(
                f"the template '{spec.template}' of this version is not the one this index was made with",
                f"query it with ragidx {self.store.manifest.ragidx}, or build it again with --rebuild",
                where=str(self.store.path),
            )
        return encoder

    @functools.cached_property
    def _filter(self) -> Filter | None:
        from ragidx.indexer.filters import Filter

        if self.spec.filter.name == "none":
            return None
        return Filter.from_bytes(self.store.blob(FILTER_FILE))

    def _document_ids(self, places: Sequence[tuple[int, int]]) -> list[str]:
        ids: dict[tuple[int, int], str] = {}
        for number, segment in enumerate(self.store.segments):
            wanted = sorted({row for where, row in places if where == number})
            if wanted:
                names = [row.doc_id for row in segment.rows(wanted)]
                ids |= {(number, row): name for row, name in zip(wanted, names, strict=True)}
        return [ids[place] for place in places]


def _extras(files: ModelFiles) -> str:
    """What belongs to the model beside its own folder, for messages."""
    named = [f"{len(files.adapters)} adapter{'s' * (len(files.adapters) > 1)}"] if files.adapters else []
    named += ["its pooler"] if files.pooler is not None else []
    return f" with {' and '.join(named)}" if named else ""


def _options(spec: EncoderSpec) -> str:
    """The options that say where those are."""
    adapters = " and its adapters, all of them in their order, with --adapter" if spec.adapters else ""
    return adapters + (" and its pooler with --pooler" if spec.pooler else "")


def _check(queries: Sequence[str], k: int) -> None:
    if isinstance(queries, str):
        raise TypeError("expected a list of queries, got one string")
    if k < 1:
        raise QueryError(f"k={k} asks for no hit", "give 1 or more", where="-k")
    for number, query in enumerate(queries, start=1):
        where = f"query {number}" if len(queries) > 1 else ""
        if not query.strip():
            raise QueryError("the query is empty", "write a question", where=where)
        at = lone_surrogate(query)
        if at is not None:
            raise QueryError(f"the query is no Unicode text at character {at}", "write it in UTF-8", where=where)
