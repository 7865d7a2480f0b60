"""One width under one index type: made as a real index, searched, timed; and the exact answers to compare with.

vectors (n, dim) float32 of unit length -> an index in a temporary folder -> its `Store` -> the documents of each query,
by their best chunk. Times are of the search alone, after a warm-up: one query at a time with one thread, a batch with
all. Quality is not known here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ragidx.corpora.evalsets import Run
from ragidx.indexer import atomic
from ragidx.indexer.ann.faiss_files import faiss
from ragidx.indexer.ann.index_types import FLAT, Effort, IndexOptions
from ragidx.indexer.arrays import Doubles, Floats, Ints, slices
from ragidx.indexer.atomic import temporary_room
from ragidx.indexer.store.files import ANN, VECTORS
from ragidx.indexer.store.rows import Row
from ragidx.indexer.widening import until_enough
from ragidx.indexer.writing import StoreWriter
from ragidx.pipelines.experiments.evaluate.measures import ANN_RECALL, OVERLAP
from ragidx.pipelines.experiments.evaluate.significance import K
from ragidx.pipelines.experiments.evaluate.sources.series import full_width
from ragidx.pipelines.experiments.evaluate.sources.source import VectorSource
from ragidx.retriever.fusion import Scored
from ragidx.retriever.options import DENSE, LEXICAL, SearchOptions
from ragidx.retriever.rows import FolderRows, Queries

BATCH = 64

_ROWS = 4096  # written at a time
_QUERIES = 1024  # compared at a time
_SINGLE_CALLS = 500
_BATCH_CALLS = 50
_MOST_S = 3.0  # of timing, after the least number of calls
_LEAST_CALLS = 20
_TIE = 1e-6  # as in tuning: a row whose score equals that of the tenth counts as one of the ten

Search: TypeAlias = Callable[[Sequence[int], int], Iterable[Sequence[Scored]]]
"""Some of the queries, by their numbers, and k -> the k best chunks for each."""

Rank: TypeAlias = Callable[[Sequence[int], int], object]
"""A search that is timed: some of the queries, by their numbers, and k."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long a search takes, by percentiles of the calls that were timed."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The time and disk space that a search takes, beside its bytes a chunk.

    Attributes:
        factory: the factory string of the index that was made; flat where all vectors are compared; None: words alone.
        effort: how hard the index is searched, as it was tuned; None: words alone.
        disk_bytes: size in bytes of the files of vectors, of the index, and of the words that are searched.
        build_seconds: seconds that writing these files took, tuning included; encoding is not.
        single: times of one query at a time, by one thread; encoding is not included.
        batch: times of `BATCH` queries at a time, by all threads; None: with words.
        queries_per_s: queries a second in such batches; None: with words.
        threads: number of threads that search a batch.
    """

    factory: str | None
    effort: Effort | None
    disk_bytes: int
    build_seconds: float
    single: Times
    batch: Times | None = None
    queries_per_s: float | None = None
    threads: int = 1


@dataclass(frozen=True)
class WordIndex:
    """The words of chunks: an index without useful vectors.

    Attributes:
        store: the index, opened.
        bytes: size of the index's postings in bytes.
        seconds: seconds that writing the index took.
    """

    store: FolderRows
    bytes: int
    seconds: float


class FullWidth:
    """Exact search over all vectors in float32, which narrower and approximate ones are compared with.

    Args:
        source: the source of the vectors.
        vectors: (q, dim) vectors of the queries, in the source's space.
    """

    def __init__(self, source: VectorSource, vectors: Floats) -> None:
        self._source, self._series = source, full_width(source)
        self._queries = self._series.narrow(vectors, source.dim)
        self._nearest, _ = exact_search(self._blocks(), self._queries, min(K, source.n_rows))

    def _blocks(self) -> Iterator[Floats]:
        return (self._series.narrow(block, self._source.dim) for block in self._source.blocks())

    def rank(self, numbers: Sequence[int], k: int) -> list[list[Scored]]:
        """The k best rows for some of the queries."""
        scores, rows = exact_search(self._blocks(), self._queries[list(numbers)], k)
        return [
            [Scored(row, score, score, None) for row, score in zip(*of_query, strict=True)]
            for of_query in zip(rows.tolist(), scores.tolist(), strict=True)
        ]

    def agreement(self, store: FolderRows, queries: Floats, blocks: Iterable[Floats]) -> dict[str, Doubles]:
        """(q,) shares of the nearest that an index finds: of all numbers, and of those that it stores.

        Args:
            store: the index that is compared with exact search.
            queries: (q, dim) vectors of the queries, at the index's width.
            blocks: vectors of the index, before they were rounded.
        """
        k = self._nearest.shape[1]
        scores, rows = store.nearest(queries, k)
        stored = (block.astype("<f2").astype(np.float32) for block in blocks)
        exact = np.minimum(exact_search(stored, queries, k)[0], 1)  # as a search limits its cosines
        at_full_width = scores_of(self._blocks(), self._queries, rows)
        return {OVERLAP: share_found(at_full_width, self._nearest), ANN_RECALL: share_found(scores, exact)}


def index_of(
    folder: Path, blocks: Iterable[Floats], dim: int, options: IndexOptions, texts: Iterable[str] | None = None
) -> tuple[FolderRows, float]:
    """An index of vectors (n, dim) of unit length, its rows in their order, and the seconds that making it took.

    Args:
        folder: the folder that is made.
        blocks: the vectors, in blocks of rows.
        dim: width of the vectors.
        options: options of the index.
        texts: a text for each vector; None: no texts.

    Raises:
        SpecError: the type cannot hold this width, or does not reach the recall.
        RagidxError: the temporary folder has no room.
    """
    started, number = time.perf_counter(), 0
    text = None if texts is None else iter(texts)
    with (
        temporary_room(folder),
        StoreWriter(folder, spec={}, fingerprint="0" * 64, dim=dim, index=options, journal=False) as writer,
    ):
        for block in blocks:
            for vectors in slices(block, _ROWS):
                names = [f"{row:012d}" for row in range(number, number + len(vectors))]
                here = [
                    Row(name, name, 0, 0, "" if text is None else next(text), "", bytes(16), bytes(16))
                    for name in names
                ]
                writer.add_rows(here, vectors)
                number += len(vectors)
        writer.commit({}, number)
    return FolderRows.open(folder), time.perf_counter() - started


def words_of(folder: Path, source: VectorSource) -> WordIndex:
    """The words of a source's chunks, indexed.

    Args:
        folder: a temporary folder, which is made, and removed.
        source: the source of the texts.
    """
    blocks = (np.ones((len(block), 1), np.float32) for block in source.blocks())
    store, seconds = index_of(folder, blocks, 1, IndexOptions(FLAT, lexical=source.stemmer), source.texts())
    atomic.remove(folder)  # its mapping stays
    parts = store.manifest.segments
    n_bytes = sum(part.files[part.lexical].bytes for part in parts if part.lexical is not None)
    return WordIndex(store, n_bytes, seconds)


def vector_bytes(store: FolderRows) -> int:
    """Size in bytes of the files of vectors and of the index over them."""
    parts = store.manifest.segments
    return sum(part.files[name].bytes for part in parts for name in (VECTORS, ANN) if name in part.files)


def factory_of(store: FolderRows) -> str:
    """The factory string that an index type became; flat where all vectors are compared."""
    index = store.manifest.segments[0].ann
    return FLAT if index is None else str(index.recipe)


def search_of(store: FolderRows, queries: Queries, options: SearchOptions) -> Search:
    """Search for some queries as an index does it."""
    return lambda numbers, k: store.ranked(queries.of(numbers), k, None, options)


def documents(search: Search, query_ids: Sequence[str], doc_ids: Sequence[str], depth: int) -> Run:
    """The best documents for each query, with the score of their best chunk.

    Args:
        search: the search for the queries, by their numbers.
        query_ids: ids of the queries.
        doc_ids: the document of each chunk, for all chunks.
        depth: number of documents that are wanted for each query.
    """
    most = min(depth, len(set(doc_ids)))

    def ask(numbers: Sequence[int], wide: int) -> list[tuple[dict[str, float], int]]:
        """Documents with their scores, and the number of chunks that they are from."""
        answers = []
        for chunks in search(numbers, wide):
            best: dict[str, float] = {}
            for chunk in chunks:
                best.setdefault(doc_ids[chunk.row], chunk.score)
            answers.append((best, len(chunks)))
        return answers

    wide = min(depth, len(doc_ids))
    answers = until_enough(
        ask(range(len(query_ids)), wide),
        wide,
        ask,
        lambda answer, wide: len(answer[0]) < most and answer[1] == wide,
    )
    return {name: dict(list(best.items())[:depth]) for name, (best, _) in zip(query_ids, answers, strict=True)}


def exact_search(blocks: Iterable[Floats], queries: Floats, k: int) -> tuple[Floats, Ints]:
    """Scores and rows (q, k) of the k nearest of all vectors, equal ones by row; all have unit length."""
    best, rows, start = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64), 0
    for block in blocks:
        found = []
        for first in range(0, len(queries), _QUERIES):
            here = slice(first, first + _QUERIES)
            scores = np.concatenate([best[here], queries[here] @ block.T], axis=1)
            numbers = np.broadcast_to(np.arange(start, start + len(block)), (len(scores), len(block)))
            numbers = np.concatenate([rows[here], numbers], axis=1)
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            found.append((np.take_along_axis(scores, order, axis=1), np.take_along_axis(numbers, order, axis=1)))
        best, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
        start += len(block)
    return best, rows


def scores_of(blocks: Iterable[Floats], queries: Floats, rows: Ints) -> Floats:
    """(q, k) scores of given rows (q, k); -inf where there is none (-1); all have unit length."""
    found, start = np.full(rows.shape, -np.inf, np.float32), 0
    for block in blocks:
        of_query, place = np.nonzero((rows >= start) & (rows < start + len(block)))
        vectors = block[rows[of_query, place] - start]
        found[of_query, place] = np.einsum("ij,ij->i", vectors, queries[of_query])
        start += len(block)
    return found


def share_found(found: Floats, exact: Floats) -> Doubles:
    """(q,) shares of the exact k that were found, by scores (q, k) under one measure; ties count.

    >>> share_found(np.array([[0.9, 0.5]]), np.array([[0.9, 0.8]]))
    array([0.5])
    """
    return (found >= exact[:, -1:] - _TIE).mean(axis=1)  # type: ignore[no-any-return]


def costs_of(
    store: FolderRows, queries: Queries, options: SearchOptions, seconds: float, words: WordIndex | None
) -> Costs:
    """The time and disk space that a search takes.

    Args:
        store: the index that is searched.
        queries: the queries that are searched for.
        options: options of the search.
        seconds: seconds that making the index took.
        words: the words that are searched, too, or alone; None: none are.
    """
    vectors, size = queries.vectors if options.mode == DENSE else None, len(queries)
    ranked: Rank = (
        search_of(store, queries, options) if vectors is None else lambda numbers, k: store.nearest(vectors[numbers], k)
    )
    single, batch = _single(ranked, size), None
    if vectors is not None:
        batches = [[number % size for number in range(start, start + BATCH)] for start in range(0, size, BATCH)]
        batch = _times(ranked, batches, _BATCH_CALLS)
    index, is_dense = store.manifest.segments[0].ann, options.mode != LEXICAL
    return Costs(
        factory=factory_of(store) if is_dense else None,
        effort=(Effort() if index is None else index.effort) if is_dense else None,
        disk_bytes=is_dense * vector_bytes(store) + (0 if words is None else words.bytes),
        build_seconds=is_dense * seconds + (0 if words is None else words.seconds),
        single=single,
        batch=batch,
        queries_per_s=None if batch is None else 1000 * BATCH / batch.p50_ms,
        threads=faiss().omp_get_max_threads(),
    )


def _single(search: Rank, n_queries: int) -> Times:
    """One query at a time, by one thread."""
    module = faiss()
    before = module.omp_get_max_threads()
    module.omp_set_num_threads(1)
    try:
        return _times(search, [[number] for number in range(n_queries)], _SINGLE_CALLS)
    finally:
        module.omp_set_num_threads(before)


def _times(search: Rank, parts: Sequence[Sequence[int]], calls: int) -> Times:
    """The parts in turns, again and again, until there are enough calls or it has taken long enough."""
    for part in parts[:_LEAST_CALLS]:
        search(part, K)
    taken: list[float] = []
    began = time.perf_counter()
    while len(taken) < calls and (len(taken) < _LEAST_CALLS or time.perf_counter() - began < _MOST_S):
        part = parts[len(taken) % len(parts)]
        started = time.perf_counter()
        search(part, K)
        taken.append(1000 * (time.perf_counter() - started))
    p50, p95, p99 = np.percentile(taken, (50, 95, 99)).tolist()
    return Times(p50, p95, p99, len(taken))
