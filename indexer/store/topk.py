"""The best rows of all segments: exact merging of the hits of each segment.

queries (q, dim) float32 -> scores (q, k) and, for each query, the numbers of its rows, best first. Rows with the same
score are ordered by chunk id, so how rows are spread over segments changes nothing. Stored vectors are rounded to
float16, so their length is not exactly 1. Scores above 1 are set to 1 before the rows are ordered: rows that show the
same score are in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from ragidx.indexer.ann.prefixes import Prefixes
from ragidx.indexer.arrays import Bools, Floats, Ints
from ragidx.indexer.store.live import LiveRows
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.widening import until_enough

Searched: TypeAlias = Segment | Prefixes | LiveRows
Ids: TypeAlias = Callable[[Ints], list[str]]
"""The chunk ids of some rows."""

RERANKED = 100  # at least so many rows are compared again
_BLOCK = 1 << 22  # scores held at once: 48 MiB with their rows


class SegmentRows(NamedTuple):
    """The rows of a segment in a search, numbered from `first` on, and which may be found, (rows,); None: all."""

    view: Searched
    first: int
    allowed: Bools | None


class TopRows(NamedTuple):
    """What a search found.

    Args:
        scores: (q, n) with n = k, or the rows of the index where it has fewer; -inf after a query's last row.
        rows: numbers of the rows for each query, best first: k, or as many as there are.
    """

    scores: Floats
    rows: list[list[int]]


def search_parts(parts: Sequence[SegmentRows], ids: Ids, queries: Floats, k: int) -> TopRows:
    """The k best allowed rows of all parts for each query (q, width)."""
    if k < 1:
        raise ValueError(f"k is {k}, not 1 or more")
    wide = min(k, sum(part.view.n_rows for part in parts))
    scores = np.full((len(queries), wide), -np.inf, np.float32)
    rows: list[list[int]] = []
    step = max(1, _BLOCK // max(1, wide * len(parts)))
    for start in range(0, len(queries) if wide else 0, step):
        block = queries[start : start + step]
        # In an exact search one row more than needed shows whether the last place is shared.
        answers = [search_part(part, block, wide + part.view.is_exact()) for part in parts]
        best, numbers = merged(answers)
        scores[start : start + len(block)] = best[:, :wide]
        rows += _lists(numbers[:, :wide])
        for query in sorted({*_shared(best, wide), *_cut(parts, numbers[:, wide - 1])}):
            mine = [(part_scores[query], part_rows[query]) for part_scores, part_rows in answers]
            ranked, rows[start + query] = _best(parts, ids, block[query : query + 1], wide, mine)
            scores[start + query] = -np.inf
            scores[start + query, : len(ranked)] = ranked
    return TopRows(scores, rows or [[] for _ in queries])


def search_vectors(
    search: Callable[[Floats, int], TopRows], have_vectors: Callable[[Ints], Bools], queries: Floats, k: int
) -> TopRows:
    """The k best rows that have a vector, by a search of all; that of the others is zero, and near nothing."""

    def ask(numbers: list[int], wide: int) -> list[tuple[Floats, Ints, int]]:
        top, answers = search(queries[numbers], wide), []
        for scores, rows in zip(top.scores, top.rows, strict=True):
            found = np.array(rows, np.int64)
            kept = have_vectors(found)
            answers.append((scores[: len(found)][kept], found[kept], len(found)))
        return answers

    def lacks(answer: tuple[Floats, Ints, int], wide: int) -> bool:
        return len(answer[1]) < k and answer[2] == wide

    answers = until_enough(ask(list(range(len(queries))), k), k, ask, lacks)
    most = min(k, max((len(rows) for _, rows, _ in answers), default=0))
    best = np.full((len(queries), most), -np.inf, np.float32)
    for row, (scores, _, _) in zip(best, answers, strict=True):
        row[: len(scores)] = scores[:most]
    return TopRows(best, [rows[:most].tolist() for _, rows, _ in answers])


def nearest(parts: Sequence[SegmentRows], queries: Floats, k: int) -> tuple[Floats, Ints]:
    """As `search_parts`, but rows of equal scores are in no useful order, and any of those at the edge: (q, n) both.

    Where there are fewer rows, -inf and -1.
    """
    scores, rows = merged([search_part(part, queries, k) for part in parts])
    return scores[:, :k], rows[:, :k]


def limited(scores: Floats) -> Floats:
    """Scores limited to [-1, 1]; -inf, which means no row, stays."""
    if scores.max(initial=0) <= 1 and scores.min(initial=0) >= -1:  # nearly always so, and ten times faster
        return scores
    bounded: Floats = np.where(np.isneginf(scores), scores, np.clip(scores, -1, 1))
    return bounded


def search_part(part: SegmentRows, queries: Floats, k: int) -> tuple[Floats, Ints]:
    """What a part has of `nearest`."""
    scores, rows = part.view.search(queries, min(k, part.view.n_rows), part.allowed)
    if part.first:
        rows[rows >= 0] += part.first
    return limited(scores), rows


def merged(found: Sequence[tuple[Floats, Ints]]) -> tuple[Floats, Ints]:
    """What the parts found as (q, n) scores and rows, best first."""
    if len(found) == 1:
        return found[0]
    scores = np.concatenate([part for part, _ in found], axis=1)
    rows = np.concatenate([part for _, part in found], axis=1)
    order, queries = np.argsort(-scores, axis=1, kind="stable"), np.arange(len(scores))[:, None]
    return scores[queries, order], rows[queries, order]  # `take_along_axis` takes longer


def _lists(rows: Ints) -> list[list[int]]:
    """Rows (q, k) up to the first -1."""
    lists: list[list[int]] = rows.tolist()
    if rows.min(initial=0) >= 0:
        return lists
    counts = np.count_nonzero(rows >= 0, axis=1).tolist()
    return [mine[:count] for mine, count in zip(lists, counts, strict=True)]


def _shared(scores: Floats, wide: int) -> list[int]:
    """Which queries have two rows of one score among the first `wide`, or at their edge."""
    falls = scores[:, 1:] < scores[:, :-1]
    if falls.all():
        return []
    same = ~falls & (scores[:, 1:] > -np.inf)
    return np.flatnonzero(same[:, :wide].any(axis=1)).tolist()


def _cut(parts: Sequence[SegmentRows], last: Ints) -> list[int]:
    """Which queries have a last row (q,) that an approximate search found alone of a group of equal vectors."""
    ends = [part.view.repeats.are_repeated(last - part.first) for part in parts if part.view.repeats is not None]
    return np.flatnonzero(np.any(ends, axis=0)).tolist() if ends else []


def _best(
    parts: Sequence[SegmentRows], ids: Ids, query: Floats, k: int, found: Sequence[tuple[Floats, Ints]]
) -> tuple[Floats, list[int]]:
    """The k best of what the parts found for one query, with every row that has the score of the last place."""
    every = np.sort(np.concatenate([scores for scores, _ in found]))
    last = every[-k] if len(every) >= k else np.float32(-np.inf)
    found = [_with_ties(part, query, last, *one) for part, one in zip(parts, found, strict=True)]
    scores, rows = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    chosen = (rows >= 0) & (scores >= last)
    scores, rows = scores[chosen], rows[chosen]
    order = by_chunk_id(ids, scores, rows)[:k]
    return scores[order], rows[order].tolist()


def _with_ties(part: SegmentRows, query: Floats, last: np.float32, scores: Floats, rows: Ints) -> tuple[Floats, Ints]:
    """The hits of a part, and all rows beyond them that have the score `last` of the last place.

    An approximate search knows those of equal vectors alone.
    """

    def ask(_: list[int], wide: int) -> list[tuple[Floats, Ints]]:
        (scores,), (rows,) = search_part(part, query, wide)
        return [(scores, rows)]

    def lacks(found: tuple[Floats, Ints], _: int) -> bool:
        scores, rows = found
        return len(rows) < part.view.n_rows and rows[-1] >= 0 and bool(scores[-1] == last)

    if part.view.repeats is not None:
        equal = part.view.repeats.equals(rows[scores == last] - part.first, part.allowed)
        more = np.setdiff1d(equal + part.first, rows)
        return np.concatenate([scores, np.full(len(more), last)]), np.concatenate([rows, more])
    if not part.view.is_exact():
        return scores, rows
    return until_enough([(scores, rows)], len(rows), ask, lacks)[0]


def by_chunk_id(ids: Ids, scores: Floats, rows: Ints) -> list[int]:
    """The positions of rows, best score first, equal ones by chunk id, which is read of those alone."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    if (ranked[1:] < ranked[:-1]).all():  # mostly
        found: list[int] = order.tolist()
        return found
    values, counts = np.unique(scores, return_counts=True)
    shared = np.flatnonzero(np.isin(scores, values[counts > 1]))
    names = dict(zip(shared.tolist(), ids(rows[shared]) if len(shared) else (), strict=True))
    keys = list(zip((-scores).tolist(), rows.tolist(), strict=True))
    return sorted(range(len(keys)), key=lambda place: (keys[place][0], names.get(place, ""), keys[place][1]))
