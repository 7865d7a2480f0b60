"""Tuning: the index of a segment and its search effort, chosen by measurement on the segment's own vectors.

Sample queries are made from stored rows: the part of a row that differs from the mean is rotated until its cosine with
the original is 0.55. Real queries are about that far from the documents. Unchanged rows would find their neighbours
with far less effort. For lists the rotation is towards directions in which the rows vary, since these lead to other
lists; else towards any direction, but where vectors are equal, every other one is as for lists: graphs that link equal
vectors fail at such questions. A target of 0.95 gave, for 1,000 real questions to 115,000 rows of MiniLM (cosine of the
nearest row: 0.57): graph 0.976, lists 0.955, 1-bit lists 0.954. ann_recall@10 is the share of the exact ten that a
search finds; a row with the score of the tenth counts as one of them. The least effort that reaches the target is
taken, of several the fastest, and the measured recall is stored in the manifest.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann import making
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.faiss_files import Halves, codes_of, map_vectors
from ragidx.indexer.ann.index_types import (
    AUTO,
    FLAT,
    MIN_ROWS,
    TUNED_K,
    Effort,
    IndexOptions,
    Recipe,
    TunedIndex,
    candidates,
    footprint_of,
    with_lists,
)
from ragidx.indexer.ann.repeats import Repeats, find_repeats
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.normalize import l2_normalize

OnStage: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being made, how many rows there are, and how many are done."""

SAMPLE = 256  # sample queries
TURNED = 0.55  # cosine of a sample query with its row, both less the mean
_SAMPLE_PRODUCTS = 64 << 30  # limit of multiplications for the exact answers
_POOL = 4096  # rows for the mean and the directions
_TINY = 1e-6
_TIMED = 32  # queries, where each takes longer
_SEED = 0
TIE = 1e-6
_BEAMS = (10, 12, 14, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)
_FACTOR_OF_ALL, _FACTOR_IN_LISTS = 8, 4  # the least for codes in registers
_FACTORS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Truth:
    """Exact answers: sample queries (q, dim), and the score of the tenth best row for each (q,)."""

    queries: Floats
    tenth: Floats


def choose(
    vectors: Path, dim: int, rows: int, options: IndexOptions, max_memory: int | None, on_stage: OnStage
) -> tuple[Any, Repeats | None, TunedIndex] | None:
    """Make the index of a segment, without its repeats; None: exact search.

    Args:
        vectors: the segment's vectors.faiss.
        dim: width of the vectors.
        rows: number of rows of the segment.
        options: the user's options of the index.
        max_memory: the part of `options.max_memory` that this segment may take.
        on_stage: called with the progress.

    Raises:
        SpecError: no index that fits into the memory reaches the recall; the message says what would.
    """
    possible = fitting(options, rows, dim, max_memory)
    if possible[0] is None:
        return None
    best: TunedIndex | None = None
    repeats = find_repeats(vectors, dim, rows)
    for candidate in filter(None, possible):
        recipe = candidate if repeats is None else with_lists(candidate, rows - len(repeats))
        truth = exact_answers(vectors, dim, rows, in_lists=recipe.lists is not None, repeats=repeats)
        release_memory()
        index = making.make(recipe, vectors, dim, rows, functools.partial(on_stage, str(recipe), rows), repeats)
        measured = tune(index, recipe, truth, map_vectors(vectors, dim, rows), options.target_recall, repeats)
        if measured.recall >= options.target_recall:
            return index, repeats, measured
        best = measured if best is None or measured.recall > best.recall else best
    assert best is not None
    raise too_rough(best, rows, dim, options)


def fitting(options: IndexOptions, rows: int, dim: int, max_memory: int | None) -> list[Recipe | None]:
    """The recipes that fit into the memory, of what `choose` takes, the first choice first; None: exact search.

    Raises:
        SpecError: nothing fits; the message says what would.
    """
    every = candidates(options.index_type, rows, dim)
    if options.codes_only and options.index_type == AUTO:
        every = [one for one in every if one is not None and one.in_registers] or every
    elif options.index_type == AUTO and options.target_recall == 1:
        every = [None]
    found = [one for one in every if max_memory is None or footprint_of(one, rows, dim).memory_bytes <= max_memory]
    if not found and rows >= MIN_ROWS:
        raise _too_large(every, rows, dim, options)
    return found or [None]  # exact search of a small segment is always allowed


def exact_answers(
    vectors: Path, dim: int, rows: int, *, in_lists: bool = False, repeats: Repeats | None = None
) -> Truth:
    """Sample queries and the score of their tenth best row, in one pass over the file.

    Args:
        vectors: place of a vectors.faiss.
        dim: width of its vectors.
        rows: number of rows in the file.
        in_lists: whether the index has lists.
        repeats: rows that no query is made of, since an earlier one has their vector; None: there are none.
    """
    codes = codes_of(vectors, dim, rows)
    kept = np.arange(rows) if repeats is None else np.flatnonzero(repeats.kept)
    count = max(1, min(len(kept), SAMPLE, _SAMPLE_PRODUCTS // (rows * dim)))
    queries = _questions(codes, kept, count, in_lists=in_lists)
    if repeats is not None and not in_lists:
        queries[::2] = _questions(codes, kept, count, in_lists=True)[::2]
    k = min(TUNED_K, rows)
    best = np.full((count, k), -np.inf, np.float32)
    for block in making.read_blocks(vectors, dim, rows):
        best = -np.partition(-np.concatenate([best, queries @ block.T], axis=1), k - 1, axis=1)[:, :k]
    return Truth(queries, best.min(axis=1))


def _questions(codes: Halves, kept: Ints, count: int, *, in_lists: bool) -> Floats:
    """Sample queries, (count, dim): rotated rows, of those `kept`; see the module."""
    rng = np.random.default_rng(_SEED)
    sources, pool = (
        codes[np.sort(rng.choice(kept, min(len(kept), number), replace=False))].astype(np.float32)
        for number in (count, _POOL)
    )
    centre = pool.mean(axis=0)
    sources, pool = sources - centre, pool - centre
    if in_lists:
        across = rng.standard_normal((len(sources), len(pool)), np.float32) @ pool
    else:
        across = rng.standard_normal(sources.shape, np.float32) * pool.any(axis=0)  # not in padding columns
    lengths = np.linalg.norm(sources, axis=1, keepdims=True)
    across -= (across * sources).sum(axis=1, keepdims=True) / np.maximum(lengths, _TINY) ** 2 * sources
    across *= lengths / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), _TINY)
    return l2_normalize(centre + TURNED * sources + np.sqrt(1 - TURNED**2) * across).vectors


def tune(
    index: Any,
    recipe: Recipe,
    truth: Truth,
    vectors: Any,
    target: float,
    repeats: Repeats | None = None,
    decoded: Any = None,
) -> TunedIndex:
    """The least effort that reaches the target recall, the fastest of several; the best if none does.

    `decoded` is what searches compare in place of `vectors`, which are the same: it decides what is fast.
    """

    @functools.cache
    def recall(effort: Effort) -> float:
        return _recall(index, recipe, effort, truth, vectors, repeats)

    ladders, reached = list(_ladders(recipe)), list[Effort]()
    for ladder in ladders:
        first = bisect.bisect_left(ladder, True, key=lambda effort: recall(effort) >= target)
        reached += ladder[first : first + 1]
    if reached:
        timed = truth if decoded is None else Truth(truth.queries[:_TIMED], truth.tenth[:_TIMED])
        searched = vectors if decoded is None else decoded
        best = min(reached, key=lambda effort: _seconds(index, recipe, effort, timed, searched, repeats))
    else:
        best = max((ladder[-1] for ladder in ladders), key=recall)
    return TunedIndex(recipe, best, recall(best), len(truth.queries), 0 if repeats is None else len(repeats))


def _ladders(recipe: Recipe) -> Iterator[list[Effort]]:
    """Sequences of rising effort: recall rises along each."""
    if recipe.links is not None:
        yield [Effort(beam=beam) for beam in _BEAMS]
        return
    factors = [1] if recipe.code == "SQfp16" else list(_FACTORS)
    if recipe.in_registers:  # so fast that a recall above the target costs next to nothing
        factors = sorted({max(one, _FACTOR_IN_LISTS if recipe.lists else _FACTOR_OF_ALL) for one in factors})
    if recipe.lists is None:
        yield [Effort(factor=factor) for factor in factors]
        return
    steps = {min(recipe.lists, round(2 ** (half / 2))) for half in range(2 * recipe.lists.bit_length() + 1)}
    for factor in factors:
        yield [Effort(lists=lists, factor=factor) for lists in sorted(steps)]


def _recall(
    index: Any, recipe: Recipe, effort: Effort, truth: Truth, vectors: Any, repeats: Repeats | None = None
) -> float:
    scores, _ = ann.search(index, recipe, effort, vectors, truth.queries, TUNED_K, None, repeats)
    k = min(TUNED_K, vectors.ntotal)
    return float((scores[:, :k] >= truth.tenth[:, None] - TIE).mean())


def _seconds(index: Any, recipe: Recipe, effort: Effort, truth: Truth, vectors: Any, repeats: Repeats | None) -> float:
    """Seconds of one search with all sample queries: the least of three."""
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        ann.search(index, recipe, effort, vectors, truth.queries, TUNED_K, None, repeats)
        taken.append(time.perf_counter() - started)
    return min(taken)


def _too_large(every: list[Recipe | None], rows: int, dim: int, options: IndexOptions) -> SpecError:
    least = min(every, key=lambda one: footprint_of(one, rows, dim).memory_bytes)
    needed = footprint_of(least, rows, dim).memory_bytes
    others = ["allow that much", "take fewer dimensions (`dim`; give narrower vectors)"]
    if options.index_type != AUTO:
        others.append("leave the type to `index_type=auto`")
    elif options.target_recall == 1:
        others.append("lower `target_recall`: at 1 every vector is compared, 0.99 lets codes be made")
    return SpecError(
        f"{rows:,} vectors of {dim:,} dimensions take {_megabytes(needed)} as {least or FLAT}, "
        f"more than `max_memory` leaves",
        ", ".join(others[:-1]) + (", or " if len(others) > 2 else " or ") + others[-1],
        where="`max_memory`",
    )


def too_rough(best: TunedIndex, rows: int, dim: int, options: IndexOptions) -> SpecError:
    """The error about an index that does not reach the recall, with what would."""
    flat = _megabytes(footprint_of(None, rows, dim).memory_bytes)
    graph = _megabytes(footprint_of(Recipe(links=16), rows, dim).memory_bytes)
    other = "allow more `max_memory`" if options.index_type == AUTO else "take another `index_type`"
    return SpecError(
        f"the index {best.recipe} reaches a recall of {best.recall:.3f}, not the {options.target_recall:g} asked for",
        f"lower `target_recall`, or {other}: exact search takes {flat}, a graph {graph}",
        where="`target_recall`",
    )


def _megabytes(count: int) -> str:
    return f"{-(-count // 1_000_000):,} MB"


def release_memory() -> None:
    """Return unused memory of the allocators to the system; without glibc, only Arrow's."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc; it takes milliseconds
    if trim is not None:
        trim(0)
