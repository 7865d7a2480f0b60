"""What random projections reach: how good a width is whatever its directions are.

raw vectors and queries -> ten random rotations, cut to the width -> exact search of all documents, by cosines alone and
fused with BM25 -> means of a measure. A filter that is no better than these chose nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ragidx.corpora.evalsets import Qrels, Run
from ragidx.indexer.ann.moments import spread_of
from ragidx.indexer.arrays import Doubles, Floats, Ints
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.store import Store
from ragidx.pipelines.experiments.evaluate.measures import of_rankings
from ragidx.pipelines.experiments.evaluate.options import ANSWERS
from ragidx.pipelines.experiments.evaluate.sources.series import Series
from ragidx.pipelines.experiments.evaluate.sources.source import VectorSource
from ragidx.retriever.fusion import LEAST_FOUND, Line, by_places
from ragidx.retriever.options import DENSE, RRF, SearchOptions

Means: TypeAlias = tuple[Doubles, Doubles] | None

PROJECTIONS = 10
_SCORES = 1 << 25  # of queries and chunks that are held at once


def random_projection(hidden: int, width: int, seed: int, means: Means = None) -> Series:
    """Random orthonormal directions, of what is left without the means of documents and questions."""
    drawn = Filter(_rotation(hidden, seed)[:, :width])
    return Series("random-projection", (width,), drawn if means is None else drawn.centred(*means))


@functools.lru_cache(maxsize=PROJECTIONS)
def _rotation(hidden: int, seed: int) -> Floats:
    """(hidden, hidden): the first columns of a random rotation are as random as any."""
    drawn = np.random.default_rng(seed).standard_normal((hidden, hidden))
    return np.linalg.qr(drawn)[0].astype(np.float32)


@dataclass(frozen=True)
class Chance:
    """Random projections in place of a filter.

    Attributes:
        source: the source whose vectors are projected.
        vectors: (q, dim) vectors of the queries, raw.
        texts: texts of the queries.
        qrels: judgements of each query, in this order.
        words: an index of the words of the source's chunks; None: they are not searched.
        measure: the measure that is averaged.
        depth: number of documents that are kept of each query.
        drop_self: the document with the query's id is no answer.
    """

    source: VectorSource
    vectors: Floats
    texts: Sequence[str]
    qrels: Qrels
    words: Store | None
    measure: str
    depth: int = ANSWERS
    drop_self: bool = False

    def means(
        self, width: int, searches: Sequence[SearchOptions], off: Means = None
    ) -> dict[SearchOptions, tuple[float, ...]]:
        """The means of ten projections for each search, of vectors that the means `off` are taken off."""
        runs: dict[tuple[SearchOptions, int], Run] = {
            (one, seed): {} for one in searches for seed in range(PROJECTIONS)
        }
        step = max(1, _SCORES // self.source.n_rows)
        for start in range(0, len(self.vectors), step):
            here = slice(start, start + step)
            words = None if all(one.mode == DENSE for one in searches) else self._by_words(here)
            for seed in range(PROJECTIONS):
                cosines = self._cosines(random_projection(self.source.dim, width, seed, off), width, here)
                for one in searches:
                    scores = cosines if words is None or one.mode == DENSE else _fused(cosines, words, one, self.depth)
                    runs[one, seed].update(self._answers(scores, here))
        values = {key: of_rankings(run, self.qrels, [self.measure])[self.measure] for key, run in runs.items()}
        means = {key: float(by_query.mean()) for key, by_query in values.items()}
        return {one: tuple(means[one, seed] for seed in range(PROJECTIONS)) for one in searches}

    def _cosines(self, drawn: Series, width: int, here: slice) -> Floats:
        """(q, n) of some queries with all chunks."""
        queries = drawn.narrow(self.vectors[here], width, of_queries=True)
        return np.concatenate([queries @ drawn.narrow(block, width).T for block in self.source.blocks()], axis=1)

    def _by_words(self, here: slice) -> Floats:
        """(q, n) BM25 of some queries; 0 where a chunk has no word of a query."""
        assert self.words is not None
        assert self.words.lexical is not None
        found = [self.words.lexical.scores(text) for text in self.texts[here]]
        return np.stack([np.zeros(self.source.n_rows, np.float32) if one is None else one for one in found])

    def _answers(self, scores: Floats, here: slice) -> Run:
        """The best documents of some queries, each with the score of its best chunk."""
        order, starts, names = self._documents
        best = np.maximum.reduceat(scores[:, order], starts, axis=1)
        count = min(self.depth + self.drop_self, best.shape[1])
        near = np.argpartition(-best, count - 1, axis=1)[:, :count]
        run = {}
        for row, query_id in enumerate(list(self.qrels)[here]):
            places = near[row].tolist()
            run[query_id] = dict(zip((names[place] for place in places), best[row, places].tolist(), strict=True))
            if self.drop_self:
                run[query_id].pop(query_id, None)
        return run

    @functools.cached_property
    def _documents(self) -> tuple[Ints, Ints, list[str]]:
        """The rows by document, where each begins, and its name."""
        names: Mapping[str, int] = {name: number for number, name in enumerate(dict.fromkeys(self.source.doc_ids()))}
        numbers = np.array([names[name] for name in self.source.doc_ids()])
        order = np.argsort(numbers, kind="stable")
        return order, np.searchsorted(numbers[order], np.arange(len(names))), list(names)


def _fused(cosines: Floats, bm25: Floats, search: SearchOptions, depth: int) -> Floats:
    """(q, n) scores of hybrid search, over all chunks."""
    fused = np.zeros_like(cosines)
    for scores, near, words in zip(fused, cosines, bm25, strict=True):
        if search.fusion == RRF:
            by_cosine, by_words = (np.argsort(-of, kind="stable")[: max(LEAST_FOUND, depth)] for of in (near, words))
            found = by_places(by_cosine.tolist(), by_words[words[by_words] > 0].tolist(), search.weight)
            scores[list(found)] = list(found.values())
        else:
            scores[:] = Line.of(search.weight, spread_of(near[None]), 0, spread_of(words[None]))(near, words)
    return fused
