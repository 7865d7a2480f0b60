"""Making an index of a segment's vectors, and searching it. Scores are inner products of unit vectors, so cosines.

vectors (n, dim) float16 in a file -> `make` -> an index in memory, to be written -> mapped again -> `search`. Making
reads the file in blocks and trains on a bounded sample. Whatever is found is compared with the float16 vectors, so the
scores are those of an exact search, and results of several segments can be merged by score.
What a file must look like is `faiss_files`', which recipe is taken and how hard it is searched is `tuning`'s.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import QueryError
from ragidx.indexer.faiss_files import HEADER_BYTES, empty, faiss, inner
from ragidx.indexer.index_types import TUNED_K, Effort, Recipe, train_rows

Floats: TypeAlias = NDArray[np.float32]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
OnRows: TypeAlias = Callable[[int], None]
"""Called with the number of rows that are done."""

BUILD_BEAM = 200  # of a graph (efConstruction): half takes half as long, and a search then looks at a tenth more

# What a search costs, in rows that exact search would read; measured with 50,000 real vectors of 384 numbers, one
# query and one thread, where exact search takes 31 ns a row (7 ns at 128 numbers, where all else gains less).
RANDOM_ROW = 5  # a row from anywhere: 5 in a graph (160 ns a distance), 4 to 10 where rows are compared again
BEAM_ROWS = 0.5  # distances for each node in view and link: 8.5 for 16 links at a beam of 1,000, 13 at 200
BEAM_SQUARED = 1 / 125  # FAISS looks through all that is in view for the next: 1.6 ms at a beam of 1,000, 13 at 5,000
CODE_ROW = 0.5  # of a list or of all codes: RaBitQ 0.3, PQ32 0.5, SQ8 0.7 to 0.9, a list of float16 1.06

_BLOCK_BYTES = 8 << 20  # of float32 rows
_BLOCK_FOUND = 1 << 22  # of a graph, rows and scores that are held before those are left out that are not allowed


def read_blocks(path: Path, dim: int, rows: int) -> Iterator[Floats]:
    """The rows of a vectors.faiss, (n, dim) float32 a block, read and not mapped: they leave no pages behind."""
    step = max(1, _BLOCK_BYTES // (4 * dim))
    with path.open("rb") as file:
        file.seek(HEADER_BYTES)
        for start in range(0, rows, step):
            count = min(step, rows - start)
            yield np.frombuffer(file.read(2 * dim * count), "<f2").reshape(count, dim).astype(np.float32)


def make(recipe: Recipe, path: Path, dim: int, rows: int, on_rows: OnRows = lambda _: None) -> Any:
    """An index of all rows of a vectors.faiss, in memory.

    Args:
        recipe: what to make.
        path: of the vectors.
        dim: their width.
        rows: how many there are.
        on_rows: told how many rows are in, block by block.
    """
    index = _new_graph(recipe.links, dim, rows) if recipe.links is not None else _trained(recipe, path, dim, rows)
    done = 0
    for block in read_blocks(path, dim, rows):
        index.add(block)
        done += len(block)
        on_rows(done)
    return index


def search_exact(vectors: Any, queries: Floats, k: int, allowed: Bools | None) -> tuple[Floats, Ints]:
    """The k best rows for each query of all that are allowed, best first, equal scores by row.

    Args:
        vectors: what `map_vectors` gave.
        queries: (q, dim).
        k: 1 or more.
        allowed: (rows,), the rows that may be found; None: all.

    Returns:
        Scores (q, k) and rows (q, k); -inf and -1 where there are no more rows.

    Raises:
        QueryError: the queries have another dimension than the vectors, or are not finite.
    """
    queries, width = checked_queries(queries, vectors.d), _width(vectors, k, allowed)
    if not width or not len(queries):
        return _padded(np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64), k)
    module = faiss()
    chosen = {} if allowed is None else {"sel": _selector(allowed)}
    scores, rows = vectors.search(queries, width, params=module.SearchParameters(**chosen))
    return _padded(scores, rows, k)


def search(
    index: Any, recipe: Recipe, effort: Effort, vectors: Any, queries: Floats, k: int, allowed: Bools | None
) -> tuple[Floats, Ints]:
    """As `search_exact`, by an index: which rows are found is approximate, their scores are not.

    The ten best of all rows are found as the index was tuned for. With more hits, or where only some rows are allowed,
    a search takes more effort, and all allowed rows are compared wherever that costs less (`cost_of`): so many hits are
    faster, and what few rows pass loses no recall. Exact, too, where the index finds fewer rows than there are.

    Args:
        index: what `map_ann` or `make` gave.
        recipe: by which it was made.
        effort: as it was tuned.
        vectors: as there.
        queries: as there.
        k: as there.
        allowed: as there.
    """
    queries, width = checked_queries(queries, vectors.d), _width(vectors, k, allowed)
    count = vectors.ntotal if allowed is None else int(np.count_nonzero(allowed))
    if not len(queries) or not count:
        return search_exact(vectors, queries, k, allowed)
    if count == vectors.ntotal:
        allowed = None
    tried = effort.at(width, count / vectors.ntotal)
    as_tuned = allowed is None and width <= TUNED_K
    if not as_tuned and cost_of(recipe, tried, vectors.ntotal, width) >= count:
        return search_exact(vectors, queries, k, allowed)
    scores, rows = _approximate(index, recipe, tried, vectors, queries, width, allowed)
    if rows.min(initial=0) < 0:
        short = np.flatnonzero((rows < 0).any(axis=1))
        scores[short], rows[short] = search_exact(vectors, queries[short], width, allowed)
    return _padded(scores, rows, k)


def cost_of(recipe: Recipe, effort: Effort, rows: int, k: int) -> float:
    """What a query costs by an index, in rows that exact search would read in the same time.

    Args:
        recipe: of the index.
        effort: of this search, for its number of hits and its share of rows that are allowed.
        rows: in the index.
        k: hits that are asked for.

    >>> cost_of(Recipe(links=16), Effort(beam=64), 100_000, 10)  # ten hits
    2592.768
    >>> cost_of(Recipe(links=16), Effort(beam=6400), 100_000, 1000)  # a thousand: more than there are
    583680.0
    """
    if recipe.links is not None:
        beam = min(rows, max(k, effort.beam))
        return RANDOM_ROW * BEAM_ROWS * recipe.links * beam + BEAM_SQUARED * beam**2
    share = 1.0 if recipe.lists is None else min(recipe.lists, max(1, effort.lists)) / recipe.lists
    scanned = share * rows * (1.0 if recipe.code == "SQfp16" else CODE_ROW)
    return scanned + RANDOM_ROW * min(rows, k * effort.factor)


def checked_queries(queries: Floats, dim: int) -> Floats:
    """Queries (q, dim) as FAISS takes them.

    Raises:
        QueryError: they have another width, or a number that is not finite.
    """
    if queries.ndim != 2:
        raise ValueError(f"queries have the shape {queries.shape}, not (q, {dim})")
    if queries.shape[1] != dim:
        raise QueryError(
            f"the query vector has {queries.shape[1]:,} dimensions, the index has {dim:,}",
            "encode the query as the index was encoded: same model, method and filter",
        )
    if not np.isfinite(queries).all():
        raise QueryError("the query vector holds a number that is not finite", "encode the query in float32")
    return np.ascontiguousarray(queries, np.float32)


def _new_graph(links: int, dim: int, rows: int) -> Any:
    module = faiss()
    graph = module.IndexHNSWSQ(dim, module.ScalarQuantizer.QT_fp16, links, module.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = BUILD_BEAM
    # Room for all rows at once: a growing vector is copied, and for that moment takes three times its place.
    codes = module.downcast_index(graph.storage).codes
    for vector, size in ((codes, 2 * dim * rows), (graph.hnsw.neighbors, 2 * links * rows + 2 * rows)):
        vector.resize(size)
        vector.resize(0)
    return graph


def _trained(recipe: Recipe, path: Path, dim: int, rows: int) -> Any:
    """An index of codes, trained on rows that are spread evenly over the file."""
    index = empty(recipe, dim)
    core = inner(index)
    if recipe.lists is not None:
        core.cp.min_points_per_centroid = 1  # the sample is bounded on purpose: no warning on the user's terminal
    if recipe.code.startswith("PQ"):
        core.pq.cp.min_points_per_centroid, core.pq.cp.max_points_per_centroid = 1, 64
        core.pq.cp.niter = 10  # of a table for each few numbers: more takes minutes and finds as much
        core.do_polysemous_training = False  # it orders the codes for a search by bits, which is not used here
    wanted = np.linspace(0, rows - 1, train_rows(recipe, rows, dim)).astype(np.int64)
    codes = np.memmap(path, "<f2", mode="r", offset=HEADER_BYTES, shape=(rows, dim))
    index.train(codes[wanted].astype(np.float32))
    return index


def _approximate(
    index: Any, recipe: Recipe, effort: Effort, vectors: Any, queries: Floats, k: int, allowed: Bools | None
) -> tuple[Floats, Ints]:
    if recipe.links is not None:
        return _by_graph(index, min(vectors.ntotal, max(k, effort.beam)), queries, k, allowed)
    module = faiss()
    chosen = {} if allowed is None else {"sel": _selector(allowed)}
    if recipe.lists is None:
        inside = module.SearchParameters(**chosen)
    else:
        inside = module.SearchParametersIVF(**chosen, nprobe=min(recipe.lists, max(1, effort.lists)))
    if recipe.rotate:
        inside = module.SearchParametersPreTransform(index_params=inside)
    again = module.IndexRefine(index, vectors)
    factor = max(1, min(effort.factor, vectors.ntotal // k))
    found: tuple[Floats, Ints] = again.search(
        queries, k, params=module.IndexRefineSearchParameters(k_factor=factor, base_index_params=inside)
    )
    return found


def _by_graph(index: Any, beam: int, queries: Floats, k: int, allowed: Bools | None) -> tuple[Floats, Ints]:
    """The k best of the rows that end in view, of those that are allowed; -1 where there are fewer.

    FAISS, told which rows it may give, fills up with whatever it passed on the way there: a question whose neighbours
    were all deleted would get rows from anywhere. Here it comes out short, and is answered exactly.
    """
    params = _beam_of(beam)
    if allowed is None:
        found: tuple[Floats, Ints] = index.search(queries, k, params=params)
        return found
    scores, rows = np.full((len(queries), k), -np.inf, np.float32), np.full((len(queries), k), -1, np.int64)
    step = max(1, _BLOCK_FOUND // beam)
    for start in range(0, len(queries), step):
        seen, numbers = index.search(queries[start : start + step], beam, params=params)
        passes = (numbers >= 0) & allowed[numbers]
        order = np.argsort(~passes, axis=1, kind="stable")[:, :k]
        kept = np.take_along_axis(passes, order, axis=1)
        scores[start : start + step] = np.where(kept, np.take_along_axis(seen, order, axis=1), -np.inf)
        rows[start : start + step] = np.where(kept, np.take_along_axis(numbers, order, axis=1), -1)
    return scores, rows


@functools.lru_cache
def _beam_of(nodes: int) -> Any:
    return faiss().SearchParametersHNSW(efSearch=nodes)  # made once: a fortieth of a query, else


def _selector(allowed: Bools) -> Any:
    return faiss().IDSelectorBitmap(np.packbits(allowed, bitorder="little"))


def _width(vectors: Any, k: int, allowed: Bools | None) -> int:
    return min(k, vectors.ntotal if allowed is None else int(np.count_nonzero(allowed)))


def _padded(scores: Floats, rows: Ints, k: int) -> tuple[Floats, Ints]:
    """Sorted, best first and equal scores by row, and filled up to k."""
    if rows.min(initial=0) < 0:
        scores = np.where(rows < 0, np.float32(-np.inf), scores)
    if not (scores[:, 1:] < scores[:, :-1]).all():  # FAISS sorts by score alone
        order = np.lexsort((rows, -scores), axis=1)
        scores, rows = np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)
    if scores.shape[1] < k:
        missing = ((0, 0), (0, k - scores.shape[1]))
        scores = np.pad(scores, missing, constant_values=-np.inf)
        rows = np.pad(rows, missing, constant_values=-1)
    return scores, rows
