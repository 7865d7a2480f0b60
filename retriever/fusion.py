"""Ranking the chunks of an index for a question: by cosines, by BM25, or by both.

    dense      cosine
    lexical    BM25; chunks without a word of the question are no hits
    hybrid z   w z(cosine) + (1 - w) z(BM25),  z(s) = (s - mean) / deviation over all live chunks of the index
    hybrid rrf w / (60 + place by cosine) + (1 - w) / (60 + place by BM25)

z is the default: on SciFact and Cranfield it is better than each part, and than RRF, which is worse than BM25 alone
where the vectors are weak (docs/query.md). Every candidate has its real score in both parts. If no word of the question
is in the index, or all cosines are equal, that part counts 0. A vector that is zero is none: a question without one is
answered by its words, and a chunk without one by those that it has. RRF: Cormack, Clarke and Buettcher 2009.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ragidx.indexer.ann.moments import ScoreSpread
from ragidx.indexer.ann.prefixes import shortened
from ragidx.indexer.arrays import Bools, Doubles, Floats, Ints
from ragidx.indexer.store import Store
from ragidx.indexer.store.scores import cosines
from ragidx.indexer.store.topk import RERANKED
from ragidx.indexer.widening import until_enough
from ragidx.retriever.options import RRF, SearchOptions

RRF_CONSTANT = 60
LEAST_FOUND = 100  # candidates of each list; more cost time and change nothing
MARGIN = 10  # candidates more than hits, by cosines that may be rounded
_SLACK = 1e-6  # between the cosines of a search and exact ones
_STEP = 256  # candidates by BM25 that are compared at once, at first


class Scored(NamedTuple):
    """A chunk with its scores; None where a part has none."""

    row: int
    score: float
    dense: float | None
    bm25: float | None


def rank_dense(
    store: Store, queries: Floats, k: int, allowed: Bools | None, options: SearchOptions
) -> list[list[Scored]]:
    """The k best by cosine for each query (q, dim); none for one that is zero."""
    best = store.search(queries, k, allowed, dim=options.dim, rerank_dim=options.rerank_dim)
    return [
        [Scored(row, score, score, None) for row, score in zip(rows, scores.tolist(), strict=False)]
        if query.any()
        else []
        for query, rows, scores in zip(queries, best.rows, best.scores, strict=True)
    ]


def with_cosines(store: Store, ranked: Sequence[Scored], query: Floats) -> list[Scored]:
    """The same chunks, each with its cosine with a query (dim,), if both have a vector."""
    rows = np.array([one.row for one in ranked], np.int64)
    dense = _shown(store, query, rows, cosines(store.vectors(rows), query))
    return [one._replace(dense=cosine) for one, cosine in zip(ranked, dense, strict=True)]


def rank_lexical(store: Store, questions: Sequence[str], k: int, allowed: Bools | None) -> Iterator[list[Scored]]:
    """The k best by BM25 for each question; fewer where fewer chunks have a word of it."""
    for question in questions:
        bm25 = _bm25(store, question)
        if bm25 is None:
            yield []
        else:
            best = _best_words(store, bm25, k, allowed)
            yield [
                Scored(row, score, None, score) for row, score in zip(best.tolist(), bm25[best].tolist(), strict=True)
            ]


def rank_hybrid(
    store: Store, queries: Floats, questions: Sequence[str], k: int, allowed: Bools | None, options: SearchOptions
) -> Iterator[list[Scored]]:
    """The k best by both for each query (q, dim) and its question."""
    if not store.n_rows:
        return iter([[] for _ in questions])
    return (_with_places if options.fusion == RRF else _by_z)(store, queries, questions, k, allowed, options)


def by_places(by_cosine: Iterable[int], by_words: Iterable[int], weight: float) -> dict[int, float]:
    """The score of each row of two lists, best rows first: w / (60 + place) in the one + (1 - w) / (60 + place)."""
    fused: dict[int, float] = defaultdict(float)
    for share, ranked in ((weight, by_cosine), (1 - weight, by_words)):
        for place, row in enumerate(ranked, start=1):
            fused[row] += share / (RRF_CONSTANT + place)
    return fused


def _with_places(
    store: Store, queries: Floats, questions: Sequence[str], k: int, allowed: Bools | None, options: SearchOptions
) -> Iterator[list[Scored]]:
    """By places in the two lists: the first hundred of each, or as many as hits are asked for."""
    wide = max(LEAST_FOUND, k)
    by_cosine = rank_dense(store, queries, wide, allowed, options)
    for query, question, dense in zip(queries, questions, by_cosine, strict=True):
        bm25 = _bm25(store, question)
        by_words = [] if bm25 is None else _best_words(store, bm25, wide, allowed).tolist()
        fused = by_places((one.row for one in dense), by_words, options.weight)
        rows, scores = np.array(list(fused), np.int64), np.array(list(fused.values()), np.float32)
        best = _best(store, rows, scores, k)
        shown = _shown(store, query, rows[best], _cosines(store, query, rows[best], options))
        yield _scored(rows[best], scores[best], shown, bm25)


def _by_z(
    store: Store, queries: Floats, questions: Sequence[str], k: int, allowed: Bools | None, options: SearchOptions
) -> Iterator[list[Scored]]:
    """By z-scores.

    The best by cosine are candidates, and all rows with a word of the question whose score could still be among the k
    best if their cosine were that of the last candidate. So the k best of all rows are found where the cosines are
    searched exactly, and as many real ones as the index finds where they are not.
    """
    wide = k if options.rerank_dim is None else max(RERANKED, 4 * k)
    narrow = queries if options.dim is None else shortened(queries, options.dim)
    count = max(LEAST_FOUND, wide + MARGIN)
    products, near, spread = store.nearest_and_spread(narrow, count, allowed, options.dim)
    for place, question in enumerate(questions):
        bm25 = _bm25(store, question)
        words = None if bm25 is None or store.lexical is None else store.lexical.spread(bm25)
        line = Line.of(options.weight, spread, place, words)
        if not queries[place].any():
            rows = np.zeros(0, np.int64) if bm25 is None else _best_words(store, bm25, k, allowed)
            scores = np.zeros(0, np.float32) if bm25 is None else line(0.0, bm25[rows]).astype(np.float32)
            yield _scored(rows, scores, [None] * len(rows), bm25)
            continue
        of_all = np.zeros(store.n_rows, np.float32) if bm25 is None else bm25
        pool = _Pool(store, narrow[place], of_all, line, allowed, options.dim, wide, float(spread.mean[place]))
        last = pool.add_near(products[place], near[place])
        pool.add_words(last)
        pool.add_equal(last, count)
        rows, scores, dense = pool.best(wide)
        if options.rerank_dim is not None:
            dense = pool.known(rows, _cosines(store, queries[place], rows, options))
            scores = line(dense, pool.bm25[rows]).astype(np.float32)
            best = _best(store, rows, scores, k)
            rows, scores, dense = rows[best], scores[best], dense[best]
        yield _scored(rows, scores, _shown(store, queries[place], rows, dense), bm25)


def _scored(rows: Ints, scores: Floats, dense: Sequence[float | None], bm25: Floats | None) -> list[Scored]:
    """Chunks with their scores (n,), and BM25 of all rows; None: no word of the question is in the index."""
    words = [None] * len(rows) if bm25 is None else bm25[rows].tolist()
    return list(map(Scored, rows.tolist(), scores.tolist(), dense, words))


def _shown(store: Store, query: Floats, rows: Ints, dense: Floats) -> list[float | None]:
    """The cosines of rows (n,) with a query; None where one of the two has no vector."""
    if not query.any():
        return [None] * len(rows)
    found: list[float | None] = dense.tolist()
    if store.n_zeros:
        for place in np.flatnonzero(~store.have_vectors(rows)).tolist():
            found[place] = None
    return found


def _bm25(store: Store, question: str) -> Floats | None:
    return None if store.lexical is None else store.lexical.scores(question)


def _cosines(store: Store, query: Floats, rows: Ints, options: SearchOptions) -> Floats:
    """As the search compares: the stored vectors, or their first dimensions as they are stored, or compared again."""
    again = options.rerank_dim
    vectors = store.vectors(rows, options.dim if again is None else None)
    width = again or options.dim
    if again is not None:
        vectors = shortened(vectors, again)
    return cosines(vectors, query if width is None else shortened(query[None], width)[0])


def _best_words(store: Store, bm25: Floats, k: int, allowed: Bools | None) -> Ints:
    """The k best rows by BM25, those with a word alone."""
    rows = np.flatnonzero(bm25 if allowed is None else np.where(allowed, bm25, 0))
    return rows[_best(store, rows, bm25[rows], k)]


def _best(store: Store, rows: Ints, scores: Floats, k: int) -> Ints:
    """The positions of the k best rows, equal ones by chunk id."""
    candidates = np.flatnonzero(scores >= _kth(scores, k))
    return candidates[store.by_chunk_id(scores[candidates], rows[candidates])[:k]]


def _kth(values: Floats | Doubles, k: int) -> float:
    """The k-th best value; -inf where there are fewer."""
    return float(np.partition(values, len(values) - k)[len(values) - k]) if len(values) >= k else -np.inf


@dataclass(frozen=True)
class Line:
    """A fused score: a * cosine + b * BM25 + c; it rises with both."""

    a: float
    b: float
    c: float

    @classmethod
    def of(cls, weight: float, dense: ScoreSpread, row: int, bm25: ScoreSpread | None) -> Line:
        """The sum of weighted z-scores; statistics are rounded, so that the order of additions leaves no trace."""
        mean, deviation = np.float32(dense.mean[row]), np.float32(dense.deviation[row])
        a, c = (weight / float(deviation), -weight * float(mean) / float(deviation)) if deviation else (0.0, 0.0)
        if bm25 is None or not (spread := np.float32(bm25.deviation[0])):
            return cls(a, 0.0, c)
        b = (1 - weight) / float(spread)
        return cls(a, b, c - b * float(np.float32(bm25.mean[0])))

    def least_bm25(self, dense: float, least: float) -> float:
        """A BM25 that a row with this cosine has at least, if its score is `least` or more; above 0."""
        lowest = float(np.nextafter(np.float32(0), np.float32(1)))
        if not self.b or not np.isfinite(least):
            return lowest
        return max(lowest, (least - self.c - self.a * dense) / self.b * (1 - 1e-6))

    def __call__(self, dense: Floats | float, bm25: Floats) -> Doubles:
        """The scores of rows with these cosines and BM25."""
        return np.asarray(self.a * np.asarray(dense, np.float64) + (self.b * bm25.astype(np.float64) + self.c))


@dataclass
class _Pool:
    """The candidates of one question, with what their scores are made of."""

    store: Store
    query: Floats  # (width,), as wide as rows are compared
    bm25: Floats  # (rows,), of all rows of the index
    line: Line  # the score
    allowed: Bools | None  # (rows,), which may be found; None: all
    dim: int | None  # the width; None: the whole vectors
    wide: int  # how many of the best are wanted
    mean: float  # of the cosines: what a chunk counts as that has none
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # the candidates, (n,)
    dense: Floats = field(default_factory=lambda: np.zeros(0, np.float32))  # their cosines, (n,)

    def __post_init__(self) -> None:
        self.held = np.zeros(len(self.bm25), np.bool_)  # (rows,), which are candidates

    def add_near(self, products: Floats, rows: Ints) -> float:
        """Take in the nearest rows; gives the cosine of the last, 1 where there is none."""
        count = int(np.count_nonzero(rows >= 0))
        self._add(rows[:count])
        return float(products[count - 1]) if count else 1.0

    def add_words(self, last: float) -> None:
        """Take in rows with a word of the question whose score may be among the best, the most likely first.

        No row beyond the candidates has a larger cosine than `last`.
        """
        last = min(1.0, (max(last, self.mean) if self.store.n_zeros else last) + _SLACK)
        rows = np.flatnonzero(self.bm25 >= self.line.least_bm25(last, self._least()))
        rows = rows[~self.held[rows] if self.allowed is None else self.allowed[rows] & ~self.held[rows]]
        bounds = self.line(last, self.bm25[rows])
        order = np.argsort(-bounds, kind="stable")
        rows, bounds = rows[order], bounds[order]
        start, step = 0, _STEP
        while start < len(rows) and bounds[start] >= self._least():
            self._add(rows[start : start + step])
            start, step = start + step, 2 * step

    def add_equal(self, last: float, count: int) -> None:
        """More candidates by cosine, as long as one without a word of the question could be as good as the last hit.

        That is so only where many rows have the same score: then their ids decide, and all of them are needed. `last`
        is the cosine of the last of the nearest, `count` how many of these were asked for.
        """
        none = np.zeros(1, np.float32)

        def ask(_: list[int], wide: int) -> list[float]:
            products, rows = self.store.nearest(self.query[None], wide, self.allowed, self.dim)
            return [self.add_near(products[0], rows[0])]

        def lacks(last: float, wide: int) -> bool:
            return wide < self.store.n_rows and self.line(min(1.0, last + _SLACK), none)[0] >= self._least()

        until_enough([last], count, ask, lacks)

    def best(self, k: int) -> tuple[Ints, Floats, Floats]:
        """The k best rows, their scores and cosines."""
        scores = self._scores().astype(np.float32)
        best = _best(self.store, self.rows, scores, k)
        return self.rows[best], scores[best], self.dense[best]

    def known(self, rows: Ints, dense: Floats) -> Floats:
        """The cosines of rows (n,), and the mean of all for those without a vector: its z-score is 0."""
        if not self.store.n_zeros:
            return dense
        return np.where(self.store.have_vectors(rows), dense, np.float32(self.mean))

    def _add(self, rows: Ints) -> None:
        new = rows[~self.held[rows]]
        self.held[new] = True
        if self.store.n_zeros:  # without a vector and without a word, nothing speaks for a row
            new = new[self.store.have_vectors(new) | (self.bm25[new] > 0)]
        dense = self.known(new, cosines(self.store.vectors(new, self.dim), self.query))
        self.rows, self.dense = np.concatenate([self.rows, new]), np.concatenate([self.dense, dense])

    def _scores(self) -> Doubles:
        return self.line(self.dense, self.bm25[self.rows])

    def _least(self) -> float:
        """The score of the last of the best so far."""
        return _kth(self._scores(), self.wide)
