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
from ragidx.indexer.arrays import Doubles, Floats, Ints
from ragidx.indexer.store.deletions import Masks
from ragidx.indexer.store.scores import cosines, spread_of_cosines
from ragidx.indexer.store.store import Place, Store
from ragidx.indexer.store.topk import RERANKED, Searched, by_chunk_id

DENSE, LEXICAL, HYBRID = "dense", "lexical", "hybrid"
MODES = (DENSE, LEXICAL, HYBRID)
Z, RRF = "z", "rrf"
FUSIONS = (Z, RRF)
WEIGHT = 0.5

RRF_CONSTANT = 60
_LEAST_FOUND = 100  # candidates by cosine in each segment; more cost time and change nothing
_MARGIN = 10  # candidates more than hits
_SLACK = 1e-6  # between the cosines of a search and exact ones
_STEP = 256  # candidates by BM25 that are compared at once, at first


class Scored(NamedTuple):
    """A chunk with its scores; None where a part has none."""

    place: Place
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


def rank_dense(store: Store, queries: Floats, k: int, masks: Masks, widths: Widths) -> list[list[Scored]]:
    """The k best by cosine for each query (q, dim)."""
    found = store.search_live(queries, k, masks, dim=widths.dim, rerank_dim=widths.rerank_dim)
    return [
        [Scored(place, score, score, None) for place, score in zip(places, scores.tolist(), strict=False)]
        for places, scores in zip(found.places, found.scores, strict=True)
    ]


def with_cosines(store: Store, ranked: Sequence[Scored], query: Floats) -> list[Scored]:
    """The same chunks, each with its cosine with a query (dim,)."""
    return [
        one._replace(dense=float(cosines(store.segments[one.place[0]], query, np.array([one.place[1]]))[0]))
        for one in ranked
    ]


def rank_lexical(store: Store, questions: Sequence[str], k: int, masks: Masks) -> Iterator[list[Scored]]:
    """The k best by BM25 for each question; fewer where fewer chunks have a word of it."""
    for question in questions:
        scores = _bm25(store, question)
        yield (
            []
            if scores is None
            else [Scored(place, score, None, score) for place, score in _best_words(store, scores, k, masks)]
        )


def rank_hybrid(
    store: Store, queries: Floats, questions: Sequence[str], k: int, masks: Masks, fusion: Fusion, widths: Widths
) -> Iterator[list[Scored]]:
    """The k best by both for each query (q, dim) and its question."""
    if not store.segments:
        yield from ([] for _ in questions)
        return
    ranking: type[_ByRank] | type[_ByZ] = _ByRank if fusion.kind == RRF else _ByZ
    yield from ranking(store, k, masks, fusion.weight, widths)(queries, questions)


def _bm25(store: Store, question: str) -> list[Floats] | None:
    return None if store.lexical is None else store.lexical.scores(question)


def _best_words(store: Store, scores: Sequence[Floats], k: int, masks: Masks) -> list[tuple[Place, float]]:
    """The k best rows by BM25, those with a word alone."""
    ranked: list[tuple[np.float32, Place]] = []
    rows = [
        np.flatnonzero(part if mask is None else np.where(mask, part, 0))
        for part, mask in zip(scores, masks, strict=True)
    ]
    values = np.concatenate([part[chosen] for part, chosen in zip(scores, rows, strict=True)])
    if len(values) > k:
        last = np.partition(values, len(values) - k)[len(values) - k]
        rows = [chosen[part[chosen] >= last] for part, chosen in zip(scores, rows, strict=True)]
    for number, (part, chosen) in enumerate(zip(scores, rows, strict=True)):
        ranked += [(part[row], (number, row)) for row in chosen.tolist()]
    return [(place, float(score)) for score, place in by_chunk_id(store.segments, ranked)[:k]]


@dataclass
class _Pool:
    """Candidates of one question: segment, row, cosine and BM25 of each, (n,)."""

    numbers: list[Ints]
    rows: list[Ints]
    dense: list[Floats]
    bm25: list[Floats]

    def add(self, number: int, rows: Ints, dense: Floats, bm25: Floats) -> None:
        self.numbers.append(np.full(len(rows), number))
        self.rows.append(rows)
        self.dense.append(dense)
        self.bm25.append(bm25)

    def of(self, number: int) -> Ints:
        """The rows of a segment."""
        parts = zip(self.rows, self.numbers, strict=True)
        mine = [rows for rows, numbers in parts if len(rows) and numbers[0] == number]
        return np.concatenate(mine) if mine else np.zeros(0, np.int64)

    def joined(self) -> tuple[Ints, Ints, Floats, Floats]:
        return (
            np.concatenate(self.numbers),
            np.concatenate(self.rows),
            np.concatenate(self.dense),
            np.concatenate(self.bm25),
        )


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

    The best of each segment by cosine are candidates, and all rows with a word of the question whose score could still
    be among the k best if their cosine were that of the last candidate. So the k best of all rows are found where the
    cosines are searched exactly, and as many real ones as the index finds where they are not.
    """

    def __init__(self, store: Store, k: int, masks: Masks, weight: float, widths: Widths) -> None:
        self._store, self._k, self._masks, self._weight, self._widths = store, k, masks, weight, widths
        self._wide = k if widths.rerank_dim is None else max(RERANKED, 4 * k)
        dim = store.manifest.dim if widths.dim is None else widths.dim
        self._views: list[Searched] = [segment.narrowed(dim) for segment in store.segments]
        self._dim = dim

    def __call__(self, queries: Floats, questions: Sequence[str]) -> Iterator[list[Scored]]:
        asked = queries if self._dim == queries.shape[1] else shortened(queries, self._dim)
        count = max(_LEAST_FOUND, self._wide + _MARGIN)
        found = [self._search(number, asked, count) for number in range(len(self._views))]
        spread = spread_of_cosines(self._views, self._store.dead, asked)
        for row, question in enumerate(questions):
            scores = _bm25(self._store, question)
            words = None if scores is None or self._store.lexical is None else self._store.lexical.spread(scores)
            line = _Line.of(self._weight, spread, row, words)
            pool = _Pool([], [], [], [])
            lasts = [
                self._add_found(pool, number, asked[row], part[0][row], part[1][row], scores)
                for number, part in enumerate(found)
            ]
            for number, part in enumerate(scores or ()):
                self._add_words(pool, number, asked[row], part, line, lasts[number])
            for number, view in enumerate(self._views):
                if view.is_exact():
                    self._add_equal(pool, number, asked[row], scores, line, lasts[number], count)
            yield self._best(pool, line, queries[row], knows_words=words is not None)

    def _search(self, number: int, queries: Floats, count: int) -> tuple[Floats, Ints]:
        view = self._views[number]
        return view.search(queries, min(count, view.entry.rows), self._masks[number])

    def _add_found(
        self, pool: _Pool, number: int, query: Floats, products: Floats, found: Ints, scores: Sequence[Floats] | None
    ) -> float:
        """Candidates of a segment by cosine; gives the cosine of the last, 1 where there is none."""
        rows = found[found >= 0]
        last = float(products[len(rows) - 1]) if len(rows) else 1.0
        rows = rows[~np.isin(rows, pool.of(number))]
        words = np.zeros(len(rows), np.float32) if scores is None else scores[number][rows]
        pool.add(number, rows, cosines(self._views[number], query, rows), words)
        return last

    def _add_equal(
        self,
        pool: _Pool,
        number: int,
        query: Floats,
        scores: Sequence[Floats] | None,
        line: _Line,
        last: float,
        count: int,
    ) -> None:
        """More candidates by cosine, as long as one without a word of the question could be as good as the last hit.

        That is so only where many rows have the same score: then their ids decide, and all of them are needed.
        """
        rows, none = self._views[number].entry.rows, np.zeros(1, np.float32)
        while count < rows and line(min(1.0, last + _SLACK), none)[0] >= self._least(pool, line):
            count *= 4
            products, found = self._search(number, query[None], count)
            before = len(pool.of(number))
            last = self._add_found(pool, number, query, products[0], found[0], scores)
            if len(pool.of(number)) == before:  # there are no more that may be found
                return

    def _add_words(self, pool: _Pool, number: int, query: Floats, bm25: Floats, line: _Line, last: float) -> None:
        """Rows of a segment with a word of the question whose score may be among the best, the most likely first."""
        mask, least, last = self._masks[number], self._least(pool, line), min(1.0, last + _SLACK)
        rows = np.flatnonzero(bm25 >= line.least_bm25(last, least))
        if mask is not None:
            rows = rows[mask[rows]]
        rows = rows[~np.isin(rows, pool.of(number))]
        bounds = line(last, bm25[rows])
        kept = np.flatnonzero(bounds >= least)
        kept = kept[np.argsort(-bounds[kept], kind="stable")]
        start, step = 0, _STEP
        while start < len(kept):
            chosen = kept[start : start + step]
            if bounds[chosen[0]] < self._least(pool, line):
                return
            pool.add(number, rows[chosen], cosines(self._views[number], query, rows[chosen]), bm25[rows[chosen]])
            start, step = start + step, 2 * step

    def _least(self, pool: _Pool, line: _Line) -> float:
        """The score of the last of the best so far."""
        _, _, dense, bm25 = pool.joined()
        if len(dense) < self._wide:
            return -np.inf
        return float(np.partition(line(dense, bm25), len(dense) - self._wide)[len(dense) - self._wide])

    def _best(self, pool: _Pool, line: _Line, query: Floats, *, knows_words: bool) -> list[Scored]:
        numbers, rows, dense, bm25 = pool.joined()
        ranked = self._ranked(numbers, rows, line(dense, bm25), self._wide)
        again = self._widths.rerank_dim
        if again is not None:
            numbers, rows, dense, bm25 = numbers[ranked], rows[ranked], dense[ranked], bm25[ranked]
            dense = self._compared_again(numbers, rows, query, again)
            ranked = self._ranked(numbers, rows, line(dense, bm25), self._k)
        fused = line(dense, bm25).astype(np.float32)
        return [
            Scored(
                (int(numbers[one]), int(rows[one])),
                float(fused[one]),
                float(dense[one]),
                float(bm25[one]) if knows_words else None,
            )
            for one in ranked
        ]

    def _ranked(self, numbers: Ints, rows: Ints, fused: Doubles, k: int) -> list[int]:
        """The positions of the k best, equal ones by chunk id."""
        values = fused.astype(np.float32)
        least = np.partition(values, len(values) - k)[len(values) - k] if len(values) > k else -np.inf
        kept = np.flatnonzero(values >= least).tolist()
        position = {(int(numbers[one]), int(rows[one])): one for one in kept}
        best = by_chunk_id(self._store.segments, [(values[one], place) for place, one in position.items()])[:k]
        return [position[place] for _, place in best]

    def _compared_again(self, numbers: Ints, rows: Ints, query: Floats, width: int) -> Floats:
        asked, found = shortened(query[None], width)[0], np.zeros(len(rows), np.float32)
        for number, segment in enumerate(self._store.segments):
            mine = np.flatnonzero(numbers == number)
            if len(mine):
                vectors = shortened(segment.vectors(rows[mine]), width).astype(np.float64)
                found[mine] = np.clip((vectors * asked.astype(np.float64)).sum(axis=1), -1, 1)
        return found


class _ByRank:
    """Hybrid search by places in the two lists: the first hundred of each, or as many as hits are asked for."""

    def __init__(self, store: Store, k: int, masks: Masks, weight: float, widths: Widths) -> None:
        self._store, self._k, self._masks, self._weight, self._widths = store, k, masks, weight, widths

    def __call__(self, queries: Floats, questions: Sequence[str]) -> Iterator[list[Scored]]:
        wide = max(_LEAST_FOUND, self._k)
        by_cosine = rank_dense(self._store, queries, wide, self._masks, self._widths)
        for row, (question, dense) in enumerate(zip(questions, by_cosine, strict=True)):
            scores = _bm25(self._store, question)
            words = [] if scores is None else _best_words(self._store, scores, wide, self._masks)
            fused = dict.fromkeys([one.place for one in dense] + [place for place, _ in words], 0.0)
            for place, one in enumerate(dense, start=1):
                fused[one.place] += self._weight / (RRF_CONSTANT + place)
            for place, (where, _) in enumerate(words, start=1):
                fused[where] += (1 - self._weight) / (RRF_CONSTANT + place)
            best = by_chunk_id(self._store.segments, [(np.float32(score), where) for where, score in fused.items()])
            known = {one.place: one.score for one in dense}
            yield [
                Scored(
                    where,
                    float(score),
                    known[where] if where in known else self._cosine(queries[row], where),
                    None if scores is None else float(scores[where[0]][where[1]]),
                )
                for score, where in best[: self._k]
            ]

    def _cosine(self, query: Floats, place: Place) -> float:
        """As the search compares: the stored vector, or its first numbers as they are stored, or compared again."""
        number, row = place
        segment, rows = self._store.segments[number], np.array([row])
        dim, again = self._widths.dim, self._widths.rerank_dim
        if again is not None:
            vector = shortened(segment.vectors(rows), again)[0].astype(np.float64)
            return float(np.clip(vector @ shortened(query[None], again)[0].astype(np.float64), -1, 1))
        if dim is None:
            return float(cosines(segment, query, rows)[0])
        return float(cosines(segment.narrowed(dim), shortened(query[None], dim)[0], rows)[0])
