"""Ranking the chunks of an index for a question: by cosines, by BM25, or by both.

    dense      cosine
    lexical    BM25; chunks without a word of the question are no hits
    hybrid z   w z(cosine) + (1 - w) z(BM25),  z(s) = (s - mean) / deviation over all live chunks of the index
    hybrid rrf w / (60 + place by cosine) + (1 - w) / (60 + place by BM25)

z is the default: on SciFact and Cranfield it is better than each part, and than RRF, which is worse than BM25 alone
where the vectors are weak (docs/query.md). Every candidate has its real score in both parts. If no word of the question
is in the index, or all cosines are equal, that part counts 0. RRF: Cormack, Clarke and Buettcher 2009.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ragidx.indexer.ann.moments import Spread
from ragidx.indexer.ann.prefixes import shortened
from ragidx.indexer.arrays import Bools, Doubles, Floats, Ints
from ragidx.indexer.store.scores import cosines
from ragidx.indexer.store.store import Store
from ragidx.indexer.store.topk import RERANKED
from ragidx.indexer.widening import until_enough

DENSE, LEXICAL, HYBRID = "dense", "lexical", "hybrid"
MODES = (DENSE, LEXICAL, HYBRID)
Z, RRF = "z", "rrf"
FUSIONS = (Z, RRF)
WEIGHT = 0.5

RRF_CONSTANT = 60
_LEAST_FOUND = 100  # candidates by cosine; more cost time and change nothing
_MARGIN = 10  # candidates more than hits
_SLACK = 1e-6  # between the cosines of a search and exact ones
_STEP = 256  # candidates by BM25 that are compared at once, at first


class Scored(NamedTuple):
    """A chunk with its scores; None where a part has none."""

    row: int
    score: float
    dense: float | None
    bm25: float | None


@dataclass(frozen=True, slots=True)
class Fusion:
    """How two scores become one.

    Attributes:
        kind: of `FUSIONS`.
        weight: of the cosine, 0 to 1.
    """

    kind: str = Z
    weight: float = WEIGHT


@dataclass(frozen=True, slots=True)
class Widths:
    """How much of a vector is compared: the first numbers, and with how many the best are compared again."""

    dim: int | None = None
    rerank_dim: int | None = None


def rank_dense(store: Store, queries: Floats, k: int, allowed: Bools | None, widths: Widths) -> list[list[Scored]]:
    """The k best by cosine for each query (q, dim)."""
    found = store.search(queries, k, allowed, dim=widths.dim, rerank_dim=widths.rerank_dim)
    return [
        [Scored(row, score, score, None) for row, score in zip(rows, scores.tolist(), strict=False)]
        for rows, scores in zip(found.rows, found.scores, strict=True)
    ]


def with_cosines(store: Store, ranked: Sequence[Scored], query: Floats) -> list[Scored]:
    """The same chunks, each with its cosine with a query (dim,)."""
    found = cosines(store.vectors(np.array([one.row for one in ranked], np.int64)), query)
    return [one._replace(dense=cosine) for one, cosine in zip(ranked, found.tolist(), strict=True)]


def rank_lexical(store: Store, questions: Sequence[str], k: int, allowed: Bools | None) -> Iterator[list[Scored]]:
    """The k best by BM25 for each question; fewer where fewer chunks have a word of it."""
    for question in questions:
        scores = _bm25(store, question)
        ranked = [] if scores is None else _best_words(store, scores, k, allowed)
        yield [Scored(row, score, None, score) for row, score in ranked]


def rank_hybrid(
    store: Store,
    queries: Floats,
    questions: Sequence[str],
    k: int,
    allowed: Bools | None,
    fusion: Fusion,
    widths: Widths,
) -> Iterator[list[Scored]]:
    """The k best by both for each query (q, dim) and its question."""
    if not store.n_rows:
        yield from ([] for _ in questions)
        return
    ranking: type[_ByRank] | type[_ByZ] = _ByRank if fusion.kind == RRF else _ByZ
    yield from ranking(store, k, allowed, fusion.weight, widths)(queries, questions)


def _bm25(store: Store, question: str) -> Floats | None:
    return None if store.lexical is None else store.lexical.scores(question)


def _best_words(store: Store, scores: Floats, k: int, allowed: Bools | None) -> list[tuple[int, float]]:
    """The k best rows by BM25, those with a word alone."""
    rows = np.flatnonzero(scores if allowed is None else np.where(allowed, scores, 0))
    rows = rows[_best_of(scores[rows], k)]
    best = rows[store.by_chunk_id(scores[rows], rows)[:k]]
    return list(zip(best.tolist(), scores[best].tolist(), strict=True))


def _best_of(values: Floats, k: int) -> Ints:
    """The positions of the k best values, and of all that equal the last of them."""
    return np.flatnonzero(values >= _kth(values, k))


def _kth(values: Floats | Doubles, k: int) -> float:
    """The k-th best value; -inf where there are fewer."""
    return float(np.partition(values, len(values) - k)[len(values) - k]) if len(values) >= k else -np.inf


class _Pool:
    """Candidates of one question: row, cosine and BM25 of each, (n,)."""

    def __init__(self) -> None:
        self.rows, self.dense, self.bm25 = np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.float32)

    def add(self, rows: Ints, dense: Floats, bm25: Floats) -> None:
        self.rows, self.dense = np.concatenate([self.rows, rows]), np.concatenate([self.dense, dense])
        self.bm25 = np.concatenate([self.bm25, bm25])

    def without(self, rows: Ints) -> Ints:
        """Those of some rows that are no candidates yet."""
        return rows[~np.isin(rows, self.rows)]


@dataclass(frozen=True)
class _Line:
    """A fused score: a * cosine + b * BM25 + c; it rises with both."""

    a: float
    b: float
    c: float

    @classmethod
    def of(cls, weight: float, dense: Spread, row: int, bm25: Spread | None) -> _Line:
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
        return np.asarray(self.a * np.asarray(dense, np.float64) + (self.b * bm25.astype(np.float64) + self.c))


class _ByZ:
    """Hybrid search by z-scores.

    The best by cosine are candidates, and all rows with a word of the question whose score could still be among the k
    best if their cosine were that of the last candidate. So the k best of all rows are found where the cosines are
    searched exactly, and as many real ones as the index finds where they are not.
    """

    def __init__(self, store: Store, k: int, allowed: Bools | None, weight: float, widths: Widths) -> None:
        self._store, self._k, self._allowed, self._weight, self._widths = store, k, allowed, weight, widths
        self._wide = k if widths.rerank_dim is None else max(RERANKED, 4 * k)

    def __call__(self, queries: Floats, questions: Sequence[str]) -> Iterator[list[Scored]]:
        dim, lexical = self._widths.dim, self._store.lexical
        asked = queries if dim is None else shortened(queries, dim)
        count = max(_LEAST_FOUND, self._wide + _MARGIN)
        found = self._store.nearest(asked, count, self._allowed, dim)
        spread = self._store.spread(asked, dim)
        for place, question in enumerate(questions):
            scores = _bm25(self._store, question)
            words = None if scores is None or lexical is None else lexical.spread(scores)
            line, pool = _Line.of(self._weight, spread, place, words), _Pool()
            last = self._add_found(pool, asked[place], found[0][place], found[1][place], scores)
            if scores is not None:
                self._add_words(pool, asked[place], scores, line, last)
            self._add_equal(pool, asked[place], scores, line, last, count)
            yield self._best(pool, line, queries[place], knows_words=words is not None)

    def _add_found(self, pool: _Pool, query: Floats, products: Floats, found: Ints, scores: Floats | None) -> float:
        """Candidates by cosine; gives the cosine of the last, 1 where there is none."""
        count = int(np.count_nonzero(found >= 0))
        rows = pool.without(found[:count])
        words = np.zeros(len(rows), np.float32) if scores is None else scores[rows]
        pool.add(rows, self._cosines(query, rows), words)
        return float(products[count - 1]) if count else 1.0

    def _add_equal(
        self, pool: _Pool, query: Floats, scores: Floats | None, line: _Line, last: float, count: int
    ) -> None:
        """More candidates by cosine, as long as one without a word of the question could be as good as the last hit.

        That is so only where many rows have the same score: then their ids decide, and all of them are needed.
        """
        none = np.zeros(1, np.float32)

        def ask(_: list[int], wide: int) -> list[float]:
            products, found = self._store.nearest(query[None], wide, self._allowed, self._widths.dim)
            return [self._add_found(pool, query, products[0], found[0], scores)]

        def lacks(last: float, wide: int) -> bool:
            return wide < self._store.n_rows and line(min(1.0, last + _SLACK), none)[0] >= self._least(pool, line)

        until_enough([last], count, ask, lacks)

    def _add_words(self, pool: _Pool, query: Floats, bm25: Floats, line: _Line, last: float) -> None:
        """Rows with a word of the question whose score may be among the best, the most likely first."""
        least, last = self._least(pool, line), min(1.0, last + _SLACK)
        rows = np.flatnonzero(bm25 >= line.least_bm25(last, least))
        if self._allowed is not None:
            rows = rows[self._allowed[rows]]
        rows = pool.without(rows)
        bounds = line(last, bm25[rows])
        kept = np.flatnonzero(bounds >= least)
        kept = kept[np.argsort(-bounds[kept], kind="stable")]
        start, step = 0, _STEP
        while start < len(kept) and bounds[kept[start]] >= self._least(pool, line):
            chosen = rows[kept[start : start + step]]
            pool.add(chosen, self._cosines(query, chosen), bm25[chosen])
            start, step = start + step, 2 * step

    def _cosines(self, query: Floats, rows: Ints) -> Floats:
        """Of a query as wide as the rows are compared."""
        return cosines(self._store.vectors(rows, self._widths.dim), query)

    def _least(self, pool: _Pool, line: _Line) -> float:
        """The score of the last of the best so far."""
        return _kth(line(pool.dense, pool.bm25), self._wide)

    def _best(self, pool: _Pool, line: _Line, query: Floats, *, knows_words: bool) -> list[Scored]:
        rows, dense, bm25 = pool.rows, pool.dense, pool.bm25
        ranked = self._ranked(rows, line(dense, bm25), self._wide)
        again = self._widths.rerank_dim
        if again is not None:
            rows, bm25 = rows[ranked], bm25[ranked]
            dense = cosines(shortened(self._store.vectors(rows), again), shortened(query[None], again)[0])
            ranked = self._ranked(rows, line(dense, bm25), self._k)
        best = zip(
            *(part[ranked].tolist() for part in (rows, line(dense, bm25).astype(np.float32), dense, bm25)), strict=True
        )
        return [Scored(row, score, cosine, words if knows_words else None) for row, score, cosine, words in best]

    def _ranked(self, rows: Ints, fused: Doubles, k: int) -> Ints:
        """The positions of the k best, equal ones by chunk id."""
        values = fused.astype(np.float32)
        kept = _best_of(values, k)
        return kept[self._store.by_chunk_id(values[kept], rows[kept])[:k]]


class _ByRank:
    """Hybrid search by places in the two lists: the first hundred of each, or as many as hits are asked for."""

    def __init__(self, store: Store, k: int, allowed: Bools | None, weight: float, widths: Widths) -> None:
        self._store, self._k, self._allowed, self._weight, self._widths = store, k, allowed, weight, widths

    def __call__(self, queries: Floats, questions: Sequence[str]) -> Iterator[list[Scored]]:
        wide = max(_LEAST_FOUND, self._k)
        by_cosine = rank_dense(self._store, queries, wide, self._allowed, self._widths)
        for query, question, dense in zip(queries, questions, by_cosine, strict=True):
            scores = _bm25(self._store, question)
            words = [] if scores is None else _best_words(self._store, scores, wide, self._allowed)
            fused = dict.fromkeys([one.row for one in dense] + [row for row, _ in words], 0.0)
            for place, one in enumerate(dense, start=1):
                fused[one.row] += self._weight / (RRF_CONSTANT + place)
            for place, (row, _) in enumerate(words, start=1):
                fused[row] += (1 - self._weight) / (RRF_CONSTANT + place)
            rows, values = np.array(list(fused), np.int64), np.array(list(fused.values()), np.float32)
            known = {one.row: one.score for one in dense}
            yield [
                Scored(
                    row := int(rows[place]),
                    float(values[place]),
                    known[row] if row in known else self._cosine(query, row),
                    None if scores is None else float(scores[row]),
                )
                for place in self._store.by_chunk_id(values, rows)[: self._k]
            ]

    def _cosine(self, query: Floats, row: int) -> float:
        """As the search compares: the stored vector, or its first numbers as they are stored, or compared again."""
        dim, again = self._widths.dim, self._widths.rerank_dim
        vectors = self._store.vectors(np.array([row]), dim if again is None else None)
        if again is not None:
            vectors = shortened(vectors, again)
        width = again or dim
        return float(cosines(vectors, query if width is None else shortened(query[None], width)[0])[0])
