"""What reranking costs a question, measured on passages of the index."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from ragidx.corpora.errors import QueryError
from ragidx.retriever.retriever import Retriever

_MEASURED = 4  # passages, after two that warm up


@dataclass(frozen=True)
class RerankCost:
    """The time of a reranker.

    Attributes:
        model: as it was named.
        device: that it runs on.
        n_passages: that it reads for a question.
        n_measured: passages whose time was measured.
        seconds_a_passage: of those, the mean.
        seconds: for a question.
        load_seconds: once.
    """

    model: str
    device: str
    n_passages: int
    n_measured: int
    seconds_a_passage: float
    seconds: float
    load_seconds: float


def rerank_cost(retriever: Retriever, query: str, model: str, method: str, top: int) -> RerankCost:
    """Load a reranker, and measure it on passages from all over the index.

    Raises:
        ModelError: it is no reranker.
        QueryError: the index holds no passage.
    """
    store = retriever.store
    if not store.segments:
        raise QueryError("the index holds no passage to measure with", "build it first", where=str(store.path))
    started = time.perf_counter()
    reranker = retriever.reranker(model, method)
    loaded = time.perf_counter()
    segment = max(store.segments, key=lambda one: one.entry.rows)
    rows = np.linspace(0, segment.entry.rows - 1, _MEASURED).astype(np.int64)
    passages = segment.strings("text", rows.tolist())
    reranker.score(query or "a question", passages[:2])
    began = time.perf_counter()
    reranker.score(query or "a question", passages)
    each = (time.perf_counter() - began) / len(passages)
    count = min(top, store.manifest.n_chunks)
    return RerankCost(model, reranker.device, count, len(passages), each, each * count, loaded - started)
