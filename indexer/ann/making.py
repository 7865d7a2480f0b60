"""Making the index of a segment: vectors (n, dim) float16 in a file -> `make` -> an index in memory, to be written.

The file is read in blocks, and an index is trained on a bounded sample. It is written and mapped again (`faiss_files`)
before it is searched (`search`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ragidx.indexer.ann.faiss_files import HEADER_BYTES, empty, faiss, inner, map_vectors
from ragidx.indexer.ann.index_types import Recipe, train_rows
from ragidx.indexer.ann.repeats import Repeats
from ragidx.indexer.arrays import Floats, Ints

OnRows: TypeAlias = Callable[[int], None]  # called with the number of rows that are done
BUILD_BEAM = 200  # of a graph (efConstruction): half of it takes half as long, and a search then reads a tenth more

_BLOCK_BYTES = 8 << 20  # of float32 rows


def read_blocks(path: Path, dim: int, rows: int) -> Iterator[Floats]:
    """The rows of a vectors.faiss, (n, dim) float32 a block, read and not mapped: they leave no pages behind."""
    step = max(1, _BLOCK_BYTES // (4 * dim))
    with path.open("rb") as file:
        file.seek(HEADER_BYTES)
        for start in range(0, rows, step):
            count = min(step, rows - start)
            yield np.frombuffer(file.read(2 * dim * count), "<f2").reshape(count, dim).astype(np.float32)


def make(
    recipe: Recipe,
    path: Path,
    dim: int,
    rows: int,
    on_rows: OnRows = lambda _: None,
    repeats: Repeats | None = None,
) -> Any:
    """An index of all rows of a vectors.faiss, in memory.

    Args:
        recipe: what to make.
        path: place of the vectors.faiss.
        dim: width of the vectors.
        rows: number of rows in the file.
        on_rows: called after each block with the number of rows added.
        repeats: the rows that a graph does not link, and lists do not hold; None: there are none.
    """
    firsts = np.arange(rows) if repeats is None else np.flatnonzero(repeats.kept)
    index = (
        _new_graph(recipe.links, dim, len(firsts)) if recipe.links is not None else _trained(recipe, path, dim, firsts)
    )
    done = 0
    for block in read_blocks(path, dim, rows):
        mine = firsts[slice(*np.searchsorted(firsts, [done, done + len(block)]))]
        if recipe.lists is not None:
            index.add_with_ids(block[mine - done], mine)
        elif recipe.links is not None or not recipe.takes_selector:
            index.add(block[mine - done])
        else:
            index.add(block)  # the place of a code is its number; a search skips those of repeats
        done += len(block)
        on_rows(done)
    if repeats is not None and recipe.takes_selector:
        if recipe.links is not None:
            _spread_graph(index, firsts, map_vectors(path, dim, rows))
        index.ntotal = inner(index).ntotal = rows
    return index


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


def untrained(recipe: Recipe, dim: int) -> Any:
    """An empty index of codes, set up to train on a bounded sample."""
    index = empty(recipe, dim)
    core = inner(index)
    if recipe.lists is not None:
        core.cp.min_points_per_centroid = 1  # no warning on the user's terminal
    if recipe.n_codes:
        # 10 rounds over 64 rows for each of 256 entries: the default takes minutes and does not find more
        core.pq.cp.min_points_per_centroid, core.pq.cp.max_points_per_centroid = 1, 256 if recipe.in_registers else 64
        core.pq.cp.niter = 10
        if not recipe.in_registers:
            core.do_polysemous_training = False  # it orders the codes for a search by bits, which is not used here
    return index


def _spread_graph(graph: Any, firsts: Ints, vectors: Any) -> None:
    """Give the nodes of a graph the numbers of their rows, `firsts`; the other rows become nodes without links.

    It is searched over the codes of the mapped vectors from then on. FAISS refuses a node without room for links.
    """
    module, hnsw, rows = faiss(), graph.hnsw, vectors.ntotal
    module.downcast_index(graph.storage).this.own(True)  # freed here: it has other numbers
    graph.storage, graph.own_fields, graph.referenced_objects = vectors, False, [vectors]
    to_array, to_vector = module.vector_to_array, module.copy_array_to_vector
    levels, is_kept = np.ones(rows, np.int32), np.zeros(rows, np.bool_)
    levels[firsts], is_kept[firsts] = to_array(hnsw.levels), True
    widths = to_array(hnsw.cum_nneighbor_per_level)[levels]
    links, numbers = to_array(hnsw.neighbors), firsts.astype(np.int32)
    linked = links >= 0
    links[linked] = numbers[links[linked]]
    starts = np.append(0, np.cumsum(widths, dtype=np.int64))
    spread = np.full(starts[-1], -1, np.int32)
    spread[np.repeat(is_kept, widths)] = links
    hnsw.neighbors.resize(len(spread))
    module.rev_swig_ptr(hnsw.neighbors.data(), len(spread))[:] = spread
    to_vector(levels, hnsw.levels)
    to_vector(starts.astype(np.uint64), hnsw.offsets)
    hnsw.entry_point = int(firsts[hnsw.entry_point])


def _trained(recipe: Recipe, path: Path, dim: int, kept: Ints) -> Any:
    """An index of codes, trained on some of the rows `kept`, spread evenly over the file."""
    index = untrained(recipe, dim)
    count = train_rows(recipe, len(kept), dim)
    count = max(count, recipe.entries)  # FAISS refuses fewer than it makes; where there are not so many, they recur
    wanted = kept[np.linspace(0, len(kept) - 1, count).astype(np.int64)]
    codes = np.memmap(path, "<f2", mode="r", offset=HEADER_BYTES, shape=(int(kept[-1]) + 1, dim))
    index.train(codes[wanted].astype(np.float32))
    return index
