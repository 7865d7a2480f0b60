"""The best rows of all segments: exact merging of the hits of each segment.

queries (q, dim) float32 -> scores (q, k) and, for each query, its (segment, row) pairs, best first. Rows with the same
score are ordered by chunk id, so how rows are spread over segments changes nothing. Stored vectors are rounded to
float16, so their length is not exactly 1. Scores above 1 are set to 1 before the rows are ordered: rows that show the
same score are in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.ann.prefixes import shortened
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.store.segment import Prefixes, Segment

Searched: TypeAlias = Segment | Prefixes
Place: TypeAlias = tuple[int, int]  # number of the segment, row

RERANKED = 100  # at least so many places are compared again
_BLOCK = 1 << 22  # scores held at once: 48 MiB with their rows


class TopRows(NamedTuple):
    """What a search found.

    Args:
        scores: (q, n) with n = k, or the rows of the index where it has fewer; -inf after a query's last place.
        places: for each query its places, best first: k, or as many as there are.
    """

    scores: Floats
    places: list[list[Place]]


def search_segments(
    segments: Sequence[Searched],
    allowed: Sequence[NDArray[np.bool_] | None],
    queries: Floats,
    k: int,
) -> TopRows:
    """The k best allowed rows of all segments for each query.

    Args:
        segments: any number, or narrowed ones, all of one width.
        allowed: for each segment the rows that may be found, (rows,); None: all.
        queries: (q, width).
        k: 1 or more.
    """
    if k < 1:
        raise ValueError(f"k is {k}, not 1 or more")
    wide = min(k, sum(segment.entry.rows for segment in segments))
    scores = np.full((len(queries), wide), -np.inf, np.float32)
    places: list[list[Place]] = []
    step = max(1, _BLOCK // max(1, wide * len(segments)))
    for start in range(0, len(queries) if wide else 0, step):
        block = queries[start : start + step]
        # In an exact search one row more than needed shows whether the last place is shared.
        found = [
            _search(segment, block, min(wide + segment.is_exact(), segment.entry.rows), mask)
            for segment, mask in zip(segments, allowed, strict=True)
        ]
        best, numbers, rows = _sorted(found)
        scores[start : start + len(block)] = best[:, :wide]
        places += _places(None if numbers is None else numbers[:, :wide], rows[:, :wide])
        for row in _shared(best, wide):
            one = [(part_scores[row], part_rows[row]) for part_scores, part_rows in found]
            ranked = _best(segments, allowed, block[row : row + 1], wide, one)
            scores[start + row] = -np.inf
            scores[start + row, : len(ranked)] = [score for score, _ in ranked]
            places[start + row] = [place for _, place in ranked]
    return TopRows(scores, places or [[] for _ in queries])


def _places(numbers: Ints | None, rows: Ints) -> list[list[Place]]:
    """Segments and rows (q, k) as pairs, up to the first empty row; `numbers` None: all of one segment."""
    pairs: list[list[Place]]
    if numbers is None:
        pairs = [[(0, row) for row in mine] for mine in rows.tolist()]
    else:
        both = zip(numbers.tolist(), rows.tolist(), strict=True)
        pairs = [list(zip(owners, mine, strict=True)) for owners, mine in both]
    if rows.min(initial=0) >= 0:
        return pairs
    counts = np.count_nonzero(rows >= 0, axis=1).tolist()
    return [found[:count] for found, count in zip(pairs, counts, strict=True)]


def _shared(scores: Floats, wide: int) -> list[int]:
    """Which queries have two rows of one score among the first `wide`, or at their edge."""
    falls = scores[:, 1:] < scores[:, :-1]
    if falls.all():
        return []
    same = ~falls & (scores[:, 1:] > -np.inf)
    return np.flatnonzero(same[:, :wide].any(axis=1)).tolist()


def _search(segment: Searched, queries: Floats, k: int, mask: NDArray[np.bool_] | None) -> tuple[Floats, Ints]:
    scores, rows = segment.search(queries, k, mask)
    return _cosines(scores), rows


def _cosines(scores: Floats) -> Floats:
    """Scores limited to [-1, 1]; -inf, which means no row, stays."""
    if scores.max(initial=0) <= 1 and scores.min(initial=0) >= -1:  # nearly always so, and ten times faster
        return scores
    bounded: Floats = np.where(np.isneginf(scores), scores, np.clip(scores, -1, 1))
    return bounded


def _sorted(found: Sequence[tuple[Floats, Ints]]) -> tuple[Floats, Ints | None, Ints]:
    """What the segments found as (q, n) scores, numbers of segments (None: there is one) and rows, best first."""
    if len(found) == 1:
        return found[0][0], None, found[0][1]
    scores = np.concatenate([part for part, _ in found], axis=1)
    rows = np.concatenate([part for _, part in found], axis=1)
    numbers = np.repeat(np.arange(len(found)), [part.shape[1] for part, _ in found])
    order = np.argsort(-scores, axis=1, kind="stable")
    chosen = np.arange(len(scores))[:, None]
    return scores[chosen, order], numbers[order], rows[chosen, order]


def rescore(segments: Sequence[Segment], found: TopRows, queries: Floats, k: int, width: int) -> TopRows:
    """The k best of what a search found, by the first `width` numbers of their vectors.

    Args:
        segments: those that were searched.
        found: at a smaller width, more than k places.
        queries: (q, dim), at least `width` wide.
        k: 1 or more.
        width: more than the search had.
    """
    asked = shortened(queries, width)
    wide = min(k, found.scores.shape[1])
    scores, places = np.full((len(queries), wide), -np.inf, np.float32), []
    for row, before in enumerate(found.places):
        ranked: list[tuple[np.float32, Place]] = []
        for number, segment in enumerate(segments):
            rows = [place[1] for place in before if place[0] == number]
            if rows:
                products = _cosines(shortened(segment.vectors(rows), width) @ asked[row])
                ranked.extend((score, (number, one)) for score, one in zip(products, rows, strict=True))
        best = by_chunk_id(segments, ranked)[:wide]
        scores[row, : len(best)] = [score for score, _ in best]
        places.append([place for _, place in best])
    return TopRows(scores, places)


def _best(
    segments: Sequence[Searched],
    allowed: Sequence[NDArray[np.bool_] | None],
    query: Floats,
    k: int,
    found: list[tuple[Floats, Ints]],
) -> list[tuple[np.float32, Place]]:
    """The k best of what the segments found for one query."""
    every = np.sort(np.concatenate([scores for scores, _ in found]))
    last = every[-k] if len(every) >= k else np.float32(-np.inf)
    ranked: list[tuple[np.float32, Place]] = []
    for number, part in enumerate(found):
        scores, rows = _with_ties(segments[number], allowed[number], query, last, part)
        chosen = (rows >= 0) & (scores >= last)
        ranked.extend((score, (number, int(row))) for score, row in zip(scores[chosen], rows[chosen], strict=True))
    return by_chunk_id(segments, ranked)[:k]


def _with_ties(
    segment: Searched,
    mask: NDArray[np.bool_] | None,
    query: Floats,
    last: np.float32,
    found: tuple[Floats, Ints],
) -> tuple[Floats, Ints]:
    """The hits of a segment, widened until no row beyond them has the score `last` of the last place."""
    scores, rows = found
    exact = segment.is_exact()
    while exact and len(rows) < segment.entry.rows and rows[-1] >= 0 and scores[-1] == last:
        wider = _search(segment, query, min(2 * len(rows), segment.entry.rows), mask)
        scores, rows = wider[0][0], wider[1][0]
    return scores, rows


def by_chunk_id(segments: Sequence[Searched], ranked: list[tuple[np.float32, Place]]) -> list[tuple[np.float32, Place]]:
    """Sorted by score; chunk ids are read only of rows that share theirs with another."""
    values, counts = np.unique(np.array([score for score, _ in ranked], np.float32), return_counts=True)
    shared = set(values[counts > 1].tolist())
    ids: dict[Place, str] = {}
    for number, segment in enumerate(segments):
        rows = [place[1] for score, place in ranked if place[0] == number and float(score) in shared]
        ids |= zip(((number, row) for row in rows), segment.chunk_ids(rows), strict=True) if rows else ()
    return sorted(ranked, key=lambda item: (-item[0], ids.get(item[1], ""), item[1]))
