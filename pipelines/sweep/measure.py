"""One width under one index type, made and searched as an index would: files are written, mapped and timed.

blocks (n, dim) float32 of unit length -> vectors.faiss -> what `tuning.choose` makes of it -> ann.faiss, mapped again.
Every number is of the real files: bytes as they lie on the disk, times of `ann.search` after a warm-up. One query at a
time is timed with one thread, a batch with all. Quality is not known here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ragidx.corpora.errors import RagidxError
from ragidx.indexer import atomic
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.faiss_files import check_ann, faiss, map_ann, map_vectors, vectors_header
from ragidx.indexer.ann.faiss_files import write as write_index
from ragidx.indexer.ann.index_types import FLAT, Effort, IndexOptions, Recipe, padded
from ragidx.indexer.ann.prefixes import shortened
from ragidx.indexer.ann.tuning import choose
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.store.files import ANN, VECTORS
from ragidx.pipelines.sweep.report import Times
from ragidx.pipelines.sweep.source import SweepSource

Search: TypeAlias = Callable[[Floats, int], tuple[Floats, Ints]]
"""Queries (q, dim) and k to scores and rows (q, k)."""

BATCH = 64

_SINGLE_CALLS = 1_000
_BATCH_CALLS = 100
_MOST_S = 3.0  # of timing, after the least number of calls
_LEAST_CALLS = 20
_TIE = 1e-6  # as in tuning: a row whose score equals that of the tenth counts as one of the ten


@dataclass(frozen=True)
class Laid:
    """Vectors of one width in a file.

    Attributes:
        folder: that holds the file.
        dim: their width.
        rows: how many.
        seconds: that writing took.
        vectors: the exact index, mapped.
    """

    folder: Path
    dim: int
    rows: int
    seconds: float
    vectors: Any

    def search(self, queries: Floats, k: int) -> tuple[Floats, Ints]:
        """The exact k best."""
        return ann.search_exact(self.vectors, filled(queries), k, None)

    def remove(self) -> None:
        """The files are gone, the mapping stays until it is dropped."""
        atomic.remove(self.folder)


@dataclass(frozen=True)
class Made:
    """An index over laid vectors, mapped.

    Attributes:
        index_type: its factory string, or flat.
        effort: of a search.
        disk_bytes: of the vectors and the index.
        seconds: from the vectors in memory to both files.
        search: queries and k to scores and rows.
    """

    index_type: str
    effort: Effort
    disk_bytes: int
    seconds: float
    search: Search


def lay(folder: Path, dim: int, rows: int, blocks: Iterable[Floats]) -> Laid:
    """Write vectors (n, dim) of unit length into a new folder, and map them.

    Raises:
        RagidxError: the temporary folder has no room.
    """
    started = time.perf_counter()
    with temporary_room(folder):
        atomic.make_folder(folder)
        with atomic.create(folder / VECTORS) as file:
            file.write(vectors_header(padded(dim), rows))
            for block in blocks:
                file.write(np.ascontiguousarray(filled(block), "<f2"))
    seconds = time.perf_counter() - started
    return Laid(folder, dim, rows, seconds, map_vectors(folder / VECTORS, padded(dim), rows))


def filled(vectors: Floats) -> Floats:
    """Vectors (n, dim) with zeros to the width that an index stores."""
    return np.pad(vectors, ((0, 0), (0, padded(vectors.shape[1]) - vectors.shape[1])))


def make(laid: Laid, options: IndexOptions) -> Made:
    """The index that a segment of these vectors would get.

    Raises:
        SpecError: the type cannot hold this width, or does not reach the recall.
        RagidxError: the temporary folder has no room.
    """
    started = time.perf_counter()
    path = laid.folder / VECTORS
    chosen = choose(path, padded(laid.dim), laid.rows, options, options.max_memory, lambda *_: None)
    if chosen is None:
        return Made(FLAT, Effort(), path.stat().st_size, laid.seconds, laid.search)
    index, measured = chosen
    target = laid.folder / ANN
    atomic.remove(target)  # another type's, whose mapping stays
    with temporary_room(target), atomic.create(target) as file:
        write_index(index, file.write)
    seconds = laid.seconds + time.perf_counter() - started
    del index, chosen
    search = _mapped(laid, target, measured.recipe, measured.effort)
    size = path.stat().st_size + target.stat().st_size
    return Made(str(measured.recipe), measured.effort, size, seconds, search)


def share_found(found: Floats, exact: Floats) -> float:
    """The share of the exact k that were found, by scores (q, k) under one measure; ties count.

    >>> share_found(np.array([[0.9, 0.5]]), np.array([[0.9, 0.8]]))
    0.5
    """
    return float((found >= exact[:, -1:] - _TIE).mean())


def timed(search: Search, queries: Floats, k: int) -> tuple[Times, Times, float]:
    """One query at a time by one thread; batches of 64 by all; queries a second in these."""
    with threads(1):
        single = _times(search, [queries[row : row + 1] for row in range(len(queries))], k, _SINGLE_CALLS)
    starts = range(0, max(1, len(queries)), BATCH)
    batches = [np.take(queries, np.arange(start, start + BATCH), axis=0, mode="wrap") for start in starts]
    batch = _times(search, batches, k, _BATCH_CALLS)
    return single, batch, 1000 * BATCH / batch.p50_ms


def timed_singly(rank: Callable[[Sequence[int], int], object], count: int, k: int) -> Times:
    """One of `count` questions at a time, by their numbers, by one thread."""
    with threads(1):
        return _times(rank, [[number] for number in range(count)], k, _SINGLE_CALLS)


@contextlib.contextmanager
def temporary_room(path: Path) -> Iterator[None]:
    """What cannot be written inside the block is in no index of the user's: the hint names the temporary folder.

    Raises:
        RagidxError: in place of an OSError, or of an error about an index.
    """
    try:
        with atomic.writing(path):
            yield
    except RagidxError as fault:
        if type(fault) is not RagidxError or not isinstance(fault.__cause__, OSError):  # not of `writing`
            raise
        raise RagidxError(
            f"the temporary folder: {fault.message}",
            "free some space, or name a folder with room: TMPDIR=DIR ragidx sweep ...",
            where=fault.where,
        ) from fault


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """FAISS searches with so many threads inside the block."""
    module = faiss()
    before = module.omp_get_max_threads()
    module.omp_set_num_threads(count)
    try:
        yield
    finally:
        module.omp_set_num_threads(before)


def _times(search: Callable[[Any, int], object], parts: Sequence[Any], k: int, calls: int) -> Times:
    """The parts in turns, again and again, until there are enough calls or it has taken long enough."""
    for part in parts[:_LEAST_CALLS]:
        search(part, k)
    taken: list[float] = []
    began = time.perf_counter()
    while len(taken) < calls and (len(taken) < _LEAST_CALLS or time.perf_counter() - began < _MOST_S):
        part = parts[len(taken) % len(parts)]
        started = time.perf_counter()
        search(part, k)
        taken.append(1000 * (time.perf_counter() - started))
    p50, p95, p99 = np.percentile(taken, (50, 95, 99)).tolist()
    return Times(p50, p95, p99, len(taken))


def _mapped(laid: Laid, path: Path, recipe: Recipe, effort: Effort) -> Search:
    index = map_ann(path, recipe, laid.vectors)
    check_ann(path, recipe, index, laid.rows)

    def search(queries: Floats, k: int) -> tuple[Floats, Ints]:
        return ann.search(index, recipe, effort, laid.vectors, filled(queries), k, None)

    return search


_QUERIES = 1024  # at a time


class Exact:
    """Exact search over a source.

    Args:
        source: the rows.
    """

    def __init__(self, source: SweepSource) -> None:
        self._source = source

    def search(self, queries: Floats, k: int) -> tuple[Floats, Ints]:
        """The k best, equal scores by row; k is at most the number of rows."""
        unit = shortened(queries, self._source.dim)
        parts = [self._search(unit[start : start + _QUERIES], k) for start in range(0, len(unit), _QUERIES)]
        return np.concatenate([scores for scores, _ in parts]), np.concatenate([rows for _, rows in parts])

    def scores(self, queries: Floats, rows: Ints) -> Floats:
        """(q, k) scores of given rows (q, k); -inf where there is none (-1)."""
        unit = shortened(queries, self._source.dim)
        found, start = np.full(rows.shape, -np.inf, np.float32), 0
        for block in self._source.blocks():
            of_query, place = np.nonzero((rows >= start) & (rows < start + len(block)))
            vectors = self._unit(block[rows[of_query, place] - start])
            found[of_query, place] = np.einsum("ij,ij->i", vectors, unit[of_query])
            start += len(block)
        return found

    def _unit(self, vectors: Floats) -> Floats:
        return vectors if self._source.is_unit else shortened(vectors, self._source.dim)

    def _search(self, unit: Floats, k: int) -> tuple[Floats, Ints]:
        best = np.full((len(unit), 0), -np.inf, np.float32)
        rows, start = np.zeros((len(unit), 0), np.int64), 0
        for block in self._source.blocks():
            numbers = np.arange(start, start + len(block))
            best = np.concatenate([best, unit @ self._unit(block).T], axis=1)
            rows = np.concatenate([rows, np.broadcast_to(numbers, (len(unit), len(block)))], axis=1)
            kept = np.argsort(-best, axis=1, kind="stable")[:, :k]
            best, rows = np.take_along_axis(best, kept, axis=1), np.take_along_axis(rows, kept, axis=1)
            start += len(block)
        return best, rows
