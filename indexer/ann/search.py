"""Searching the index of a segment. Scores are inner products of unit vectors, so cosines.

All rows found are compared with the float16 vectors, so their scores are those of an exact search, and hits of several
segments can be merged by score. Making is in `making`, the file format in `faiss_files`, the choice of recipe and
search effort in `tuning`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ragidx.corpora.errors import QueryError
from ragidx.indexer.ann.decoded import DecodedVectors
from ragidx.indexer.ann.faiss_files import faiss, selector
from ragidx.indexer.ann.index_types import TUNED_K, Effort, Recipe, padded
from ragidx.indexer.ann.repeats import Repeats
from ragidx.indexer.arrays import Bools, Floats, Ints
from ragidx.indexer.normalize import check_query_width

Exact: TypeAlias = Callable[[Floats, int], tuple[Floats, Ints]]  # as `search_exact`, of the rows that are allowed


# What a search costs, in rows that exact search would read; measured with 50,000 real vectors of 384 dimensions, one
# query and one thread, where exact search takes 31 ns a row (7 ns at 128 dimensions, where all else gains less).
RANDOM_ROW = 5  # a row from anywhere: 5 in a graph (160 ns a distance), 4 to 10 where rows are compared again
MEASURED_DIM = 384  # a narrower row from anywhere takes as long: 40 of 48 dimensions are read in their order meanwhile
BEAM_ROWS = 0.5  # distances for each node in view and link: 8.5 for 16 links at a beam of 1,000, 13 at 200
BEAM_SQUARED = 1 / 125  # FAISS looks through all that is in view for the next: 1.6 ms at a beam of 1,000, 13 at 5,000
REGISTER_ROW = 0.1  # of codes in registers: PQ96x4fs 0.03, PQ192x4fs 0.07, RaBitQfs 0.14
CHOSEN_ROW, PASSED_ROW = 2.3, 0.03  # of an exact search of some rows, these and all of which it is asked whether
DECODED_ROW = 25  # of a segment of codes alone, one that is compared by its vector: 3 us
CODE_ROW = 0.5  # of a list or of all codes: RaBitQ 0.3, PQ32 0.5, SQ8 0.7 to 0.9, a list of float16 1.06

_SMALL_BYTES = 1 << 20  # of vectors: a query is done in 50 us, and to wait for a thread costs 10 ms on a busy machine

_BLOCK_FOUND = 1 << 22  # rows and scores held at once, before those not allowed are removed
_DEVIATIONS = 3  # more than k are expected to pass: by chance alone hardly one query in a hundred then finds too few
_RARER = 4  # where one does, the allowed rows near it are taken to be so many times rarer


def search_exact(vectors: Any, queries: Floats, k: int, allowed: Bools | None) -> tuple[Floats, Ints]:
    """The k best allowed rows for each query, best first, equal scores by row.

    Args:
        vectors: the mapped vectors, from `map_vectors`.
        queries: (q, dim), of `checked_queries`.
        k: 1 or more.
        allowed: (rows,), the rows that may be found; None: all.

    Returns:
        Scores (q, k) and rows (q, k); -inf and -1 where there are no more rows.
    """
    width = _width(vectors, k, allowed)
    if not width or not len(queries):
        return best_first(np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64), k)
    if isinstance(vectors, DecodedVectors):
        with _threads(vectors, queries):
            return best_first(*vectors.search(queries, width, allowed), k)
    params = None if allowed is None else faiss().SearchParameters(sel=selector(allowed))
    with _threads(vectors, queries):
        scores, rows = vectors.search(queries, width, params=params)
    return best_first(scores, rows, k)


def search(
    index: Any,
    recipe: Recipe,
    effort: Effort,
    vectors: Any,
    queries: Floats,
    k: int,
    allowed: Bools | None,
    repeats: Repeats | None = None,
    exact: Exact | None = None,
) -> tuple[Floats, Ints]:
    """As `search_exact`, by an index of `map_ann` or `make`: the choice of rows is approximate, scores are exact.

    Ten hits take the tuned effort, more hits take more. If only some rows are allowed, the search finds so many of all
    rows that k allowed ones are expected among them, and keeps those. A query that still finds fewer than k is repeated
    with more effort. All allowed rows are compared exactly as soon as the attempts would cost as much (`cost_of`). So a
    condition that few rows pass loses no recall, and no search costs more than about two exact ones. The search is also
    exact if the index finds fewer rows than there are.

    With `repeats` the index has the first row of each group of equal vectors. It is found where any of its group is
    allowed, and the allowed ones are given in its place. `exact` gives the k best of queries as `search_exact` does, in
    less time.
    """
    exact = exact or (lambda asked, wide: search_exact(vectors, asked, wide, allowed))
    count = vectors.ntotal if allowed is None else int(np.count_nonzero(allowed))
    if not len(queries) or not count:
        return search_exact(vectors, queries, k, allowed)
    if count == vectors.ntotal:
        allowed = None
    held, passing, passes = vectors.ntotal, allowed, count  # rows in the index, and which of them may be found
    if repeats is not None:
        held -= len(repeats)
        passing = None if allowed is None else repeats.leading(allowed)
        passes = held if passing is None else int(np.count_nonzero(passing))
        passing = None if passes == held else passing
    width = min(k, passes)
    attempts = _attempts(recipe, effort, width, passes, held)
    depth, tried = next(attempts)
    as_tuned = passing is None and width <= TUNED_K
    again = DECODED_ROW if isinstance(vectors, DecodedVectors) else None
    spent = 0.0 if as_tuned else cost_of(recipe, tried, held, vectors.d, depth, again)
    enough = exact_cost(count, vectors.ntotal) if again is None else float(again * count)
    if spent >= enough:
        return exact(queries, k)
    rest = width, passing, repeats
    scores, rows = _approximate(index, recipe, tried, vectors, queries, depth, *rest)
    left = np.flatnonzero(rows[:, -1] < 0)
    for depth, tried in attempts:
        spent += cost_of(recipe, tried, held, vectors.d, depth, again)
        if not len(left) or spent >= enough:
            break
        scores[left], rows[left] = _approximate(index, recipe, tried, vectors, queries[left], depth, *rest)
        left = left[rows[left, -1] < 0]
    if repeats is not None:
        width = min(k, count)
        leaders, led = repeats.leaders(vectors)
        shown, places = search_exact(led, queries, width, None if passing is None else passing[leaders])
        near = shown, np.where(places < 0, -1, leaders[places])
        scores, rows = repeats.expanded((scores, rows), near, width, allowed)
    if len(left):
        scores[left], rows[left] = exact(queries[left], width)
    return best_first(scores, rows, k)


def cost_of(recipe: Recipe, effort: Effort, rows: int, dim: int, k: int, again: float | None = None) -> float:
    """The cost of a query in an index, in rows that exact search reads in the same time.

    Args:
        recipe: recipe of the index.
        effort: effort of this search.
        rows: number of rows in the index.
        dim: width of the vectors.
        k: rows to find: the hits, and those found but not allowed.
        again: cost of a row that is compared again; None: that of one that is read from anywhere.

    >>> cost_of(Recipe(links=16), Effort(beam=64), 100_000, 384, 10)  # ten hits
    2592.768
    >>> cost_of(Recipe(links=16), Effort(beam=6400), 100_000, 384, 1000)  # a thousand: more than there are
    583680.0
    """
    if recipe.links is not None:
        beam = min(rows, max(k, effort.beam))
        return RANDOM_ROW * BEAM_ROWS * recipe.links * beam + BEAM_SQUARED * beam**2
    share = 1.0 if recipe.lists is None else min(recipe.lists, max(1, effort.lists)) / recipe.lists
    scanned = share * rows * (1.0 if recipe.code == "SQfp16" else REGISTER_ROW if recipe.in_registers else CODE_ROW)
    again = RANDOM_ROW * max(1.0, MEASURED_DIM / dim) if again is None else again
    return scanned + again * min(rows, k * effort.factor)


def exact_cost(count: int, rows: int) -> float:
    """The cost of an exact search of some rows that lie anywhere among all of these, in the same measure.

    >>> exact_cost(1000, 100_000), exact_cost(50_000, 100_000)
    (5300.0, 100000.0)
    """
    return min(float(rows), CHOSEN_ROW * count + PASSED_ROW * rows)


def checked_queries(queries: Floats, dim: int) -> Floats:
    """Queries (q, dim) as FAISS takes them.

    Raises:
        QueryError: they have another width, or a number that is not finite.
    """
    if queries.ndim != 2:
        raise ValueError(f"queries have the shape {queries.shape}, not (q, {dim})")
    check_query_width(queries.shape[1], dim)
    if not np.isfinite(queries).all():
        raise QueryError("the query vector holds a number that is not finite", "encode the query in float32")
    return np.ascontiguousarray(queries, np.float32)


def filled(queries: Floats, dim: int) -> Floats:
    """Queries (q, dim), checked, with zeros up to the stored width."""
    checked, width = checked_queries(queries, dim), padded(dim)
    return checked if width == dim else np.pad(checked, ((0, 0), (0, width - dim)))


def _attempts(recipe: Recipe, effort: Effort, k: int, count: int, rows: int) -> Iterator[tuple[int, Effort]]:
    """The attempts to find k of the `count` allowed rows: the depth, how many rows to find, and with which effort.

    A graph has one attempt: it finds the last of its candidates less surely than the first.
    """
    share = count / rows
    if recipe.links is not None:
        tried = effort.at(k, share)
        yield (k if count == rows else min(rows, max(k, tried.beam))), tried
        return
    k = max(k, TUNED_K)  # of one hit, `factor` codes would be compared again, and not the ten times as many of tuning
    if count == rows:
        yield min(rows, k), effort.at(k, 1.0)
        return
    depth = 0
    while depth < rows:
        passing = k + _DEVIATIONS * math.sqrt(k * (1 - share))
        depth = min(rows, math.ceil(passing / share))
        yield depth, effort.at(passing, share)
        share /= _RARER


def _approximate(
    index: Any,
    recipe: Recipe,
    effort: Effort,
    vectors: Any,
    queries: Floats,
    depth: int,
    k: int,
    allowed: Bools | None,
    repeats: Repeats | None,
) -> tuple[Floats, Ints]:
    """The k best allowed of the `depth` best rows for each query, -inf and -1 where fewer of them are.

    Rows that are not allowed are removed afterwards. If FAISS did it, it would read the same number of lists and miss
    better rows in others, and a graph search would fill up with rows on the way to a deleted neighbourhood.
    """
    held = vectors.ntotal - (0 if repeats is None else len(repeats))
    factor = max(1.0, min(effort.factor, held / depth))
    seek = _seeking(index, recipe, effort, vectors, depth, factor, repeats)
    if allowed is None:
        with _threads(vectors, queries):
            scores, rows = seek(queries)
        return scores[:, :k], rows[:, :k]
    scores, rows = np.full((len(queries), k), -np.inf, np.float32), np.full((len(queries), k), -1, np.int64)
    step = max(1, int(_BLOCK_FOUND / (depth * factor)))
    for start in range(0, len(queries), step):
        block = queries[start : start + step]
        with _threads(vectors, block):
            seen, numbers = seek(block)
        passes = (numbers >= 0) & allowed[numbers]
        order = np.argsort(~passes, axis=1, kind="stable")[:, :k]
        passing = np.take_along_axis(passes, order, axis=1)
        scores[start : start + step] = np.where(passing, np.take_along_axis(seen, order, axis=1), -np.inf)
        rows[start : start + step] = np.where(passing, np.take_along_axis(numbers, order, axis=1), -1)
    return scores, rows


def _seeking(
    index: Any, recipe: Recipe, effort: Effort, vectors: Any, depth: int, factor: float, repeats: Repeats | None
) -> Callable[[Floats], tuple[Floats, Ints]]:
    """What finds the `depth` best rows of queries (q, d), compared by their vectors."""
    held = vectors.ntotal - (0 if repeats is None else len(repeats))
    if recipe.links is not None:
        return functools.partial(index.search, k=depth, params=_beam_of(min(held, max(depth, effort.beam))))
    numbered = index if repeats is None or recipe.takes_selector else repeats.numbered(index)
    if isinstance(vectors, DecodedVectors):
        wide, params = min(held, math.ceil(depth * factor)), _inside(recipe, effort, repeats)
        return lambda asked: vectors.compared(asked, numbered.search(asked, wide, params=params)[1], depth)
    refined = faiss().IndexRefine(numbered, vectors)
    return functools.partial(refined.search, k=depth, params=_params_of(recipe, effort, factor, repeats))


@contextlib.contextmanager
def on_one_thread() -> Iterator[None]:
    """Search on the calling thread alone, whose setting this is: searches in several threads do not affect each other.

    FAISS distributes whole queries, and its threads turn in a loop while they wait for each other.
    """
    module = faiss()
    before = module.omp_get_max_threads()
    if before == 1:
        yield
        return
    module.omp_set_num_threads(1)
    try:
        yield
    finally:
        module.omp_set_num_threads(before)


def _threads(vectors: Any, queries: Floats) -> contextlib.AbstractContextManager[None]:
    """One thread where more do not help: for a single query, or few vectors."""
    is_much = len(queries) > 1 and vectors.ntotal * vectors.code_size > _SMALL_BYTES
    return contextlib.nullcontext() if is_much else on_one_thread()


def _params_of(recipe: Recipe, effort: Effort, factor: float, repeats: Repeats | None = None) -> Any:
    """FAISS's parameters of a search by codes: how many are compared again, and how many lists are read."""
    inside = _inside(recipe, effort, repeats)
    base = {} if inside is None else {"base_index_params": inside}
    return faiss().IndexRefineSearchParameters(k_factor=factor, **base)


def _inside(recipe: Recipe, effort: Effort, repeats: Repeats | None) -> Any:
    """Those of the codes alone; None: all are read."""
    module = faiss()
    if not recipe.takes_selector:
        return None
    inside = module.SearchParameters() if repeats is None else module.SearchParameters(sel=repeats.selector)
    if recipe.lists is not None:
        inside = module.SearchParametersIVF(nprobe=min(recipe.lists, max(1, effort.lists)))
    if recipe.rotate:
        inside = module.SearchParametersPreTransform(index_params=inside)
    return inside


@functools.lru_cache
def _beam_of(nodes: int) -> Any:
    return faiss().SearchParametersHNSW(efSearch=nodes)  # cached: making it takes a fortieth of a query


def _width(vectors: Any, k: int, allowed: Bools | None) -> int:
    return min(k, vectors.ntotal if allowed is None else int(np.count_nonzero(allowed)))


def best_first(scores: Floats, rows: Ints, k: int) -> tuple[Floats, Ints]:
    """The k best of what was found, best first and equal scores by row; -inf and -1 where there are fewer."""
    if rows.min(initial=0) < 0:
        scores = np.where(rows < 0, np.float32(-np.inf), scores)
    if not (scores[:, 1:] < scores[:, :-1]).all():  # FAISS sorts by score alone
        order = np.lexsort((rows, -scores), axis=1)
        scores, rows = np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)
    if scores.shape[1] < k:
        missing = ((0, 0), (0, k - scores.shape[1]))
        scores = np.pad(scores, missing, constant_values=-np.inf)
        rows = np.pad(rows, missing, constant_values=-1)
    return scores[:, :k], rows[:, :k]
