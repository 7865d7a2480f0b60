"""Index time: how long making an approximate index would take here, from a short measurement with vectors like its own.

recipe, rows, dim -> seconds of what `tuning.choose` does: exact answers to its sample, making, tuning. Some thousand
vectors go through the same code; what that took is scaled by the law of each part: a graph n log n (Malkov and Yashunin
2018, section 4.2.1), codes linear in rows, training bounded by its sample. Which rows the lists get and how often
tuning searches is not foreseen but taken as it usually is, so a figure is good to about `SPREAD` times.
Nothing is said here of the recall: that is measured when the index is made.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.corpora.errors import RagidxError, SpecError
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.faiss_files import VECTORS, faiss, map_vectors, vectors_header
from ragidx.indexer.ann.index_types import (
    TUNED_K,
    Effort,
    IndexOptions,
    Recipe,
    padded,
    train_rows,
)
from ragidx.indexer.ann.tuning import exact_answers, fitting
from ragidx.indexer.arrays import Floats
from ragidx.indexer.writing.merging import shares

SPREAD = 2.0  # the range: this much less, this much more; of 15 runs on a busy machine 14 lay within it

_SAMPLE_ROWS = 4096  # of the index that is made to be timed
_FEWEST_ROWS = 1024
_SAMPLE_BYTES = 24 << 20  # of float32 rows
_FEWEST_VECTORS = 64  # given ones that others can be made of
_NEAR = 0.9  # cosine of a made row with the one that it is made of; what asks lies farther off, as `tuning` has it
_SEED = 0
_PRODUCTS = 2 << 30  # multiplications that assigning to lists is timed by
_ROUNDS = 10  # of k-means, as FAISS trains lists
_TABLE_ROWS = 256  # of a table of product codes; as many training rows are copied, and cost nothing
_BEAM = 128
_CALLS = 3
_GRAPH_SEARCHES = 8  # of a tuning: halving the beams, and three to time what was found
_LADDER = 7.5  # searches along one row of efforts
_MOST_FACTOR = 64
_FACTORS = 511  # the sum of 1, 2, 4 ... 256, which tuning tries
_N_FACTORS = 9
_SCANS_FOUND = 1.0  # how often a ladder of lists reads all rows where it ends early
_SCANS_MISSED = 2.1  # and where late


def recipes(options: IndexOptions, parts: Sequence[int], dim: int, taken: int = 0) -> list[Recipe | None]:
    """What a build would try first for each new segment; `taken` bytes are what the segments that stay take.

    Raises:
        SpecError: nothing fits.
    """
    limits = shares(parts, options.max_memory, taken)
    return [fitting(options, rows, padded(dim), limit)[0] for rows, limit in zip(parts, limits, strict=True)]


def fits(options: IndexOptions, parts: Sequence[int], dim: int) -> bool:
    """Whether an index of these segments takes no more than `options.max_memory`."""
    try:
        recipes(options, parts, dim)
    except SpecError:
        return False
    return True


class IndexTimer:
    """Seconds by recipe and rows; each recipe is measured once, when it is first asked for.

    Args:
        dim: width of the vectors.
        vectors: (n, k) some of them, k >= dim, of any length; None or few: made ones, whose variance falls along the
            directions as that of embeddings does.
    """

    def __init__(self, dim: int, vectors: Floats | None = None) -> None:
        self._dim = padded(dim)
        self._rows = max(_FEWEST_ROWS, min(_SAMPLE_ROWS, _SAMPLE_BYTES // (4 * self._dim)))
        self._given = None if vectors is None else vectors[:, :dim]
        self._costs: dict[str, Callable[[int], float]] = {}

    def seconds(self, recipe: Recipe | None, rows: int) -> float:
        """What a segment would take.

        Raises:
            RagidxError: the temporary folder cannot be written.
        """
        if recipe is None:
            return 0.0
        if str(recipe) not in self._costs:
            self._costs[str(recipe)] = self._measured(recipe, rows)
        return self._costs[str(recipe)](rows)

    def _measured(self, recipe: Recipe, rows: int) -> Callable[[int], float]:
        sample = spread(self._given, self._rows, self._dim)
        with tempfile.TemporaryDirectory(prefix="ragidx-plan-") as place:
            path = Path(place) / VECTORS
            try:
                path.write_bytes(vectors_header(self._dim, self._rows) + sample.astype("<f2").tobytes())
            except OSError as fault:
                raise RagidxError(
                    f"the temporary folder cannot be written: {fault.strerror}",
                    "set TMPDIR to a folder with room for it",
                ) from fault
            trial = _Trial(path, sample)
            return trial.graph(recipe) if recipe.links is not None else trial.codes(recipe, rows)


def spread(vectors: Floats | None, rows: int, dim: int) -> Floats:
    """Unit vectors (rows, dim) like those given: these, and others turned from one of them towards another.

    Copies would not do: a graph over them is another one than over vectors that differ. Zeros fill the width up.

    >>> spread(np.eye(64, 8, dtype=np.float32) + 1, 100, 8).shape
    (100, 8)
    """
    rng = np.random.default_rng(_SEED)
    if vectors is not None:
        lengths = np.linalg.norm(vectors, axis=1)
        vectors = vectors[np.isfinite(lengths) & (lengths > 0)]
    if vectors is None or len(vectors) < _FEWEST_VECTORS:
        vectors = rng.standard_normal((rows, dim), np.float32) * np.arange(1, dim + 1, dtype=np.float32) ** -0.5
    unit = vectors[:rows] / np.linalg.norm(vectors[:rows], axis=1, keepdims=True)
    own, other = unit[rng.integers(0, len(unit), (2, rows - len(unit)))]
    across = other - (other * own).sum(axis=1, keepdims=True) * own
    across /= np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-6)
    turned = _NEAR * own + math.sqrt(1 - _NEAR**2) * across
    every: Floats = np.zeros((rows, dim), np.float32)
    every[:, : unit.shape[1]] = np.concatenate([unit, turned / np.linalg.norm(turned, axis=1, keepdims=True)])
    return every


@dataclass
class _Trial:
    """A sample on the disk and in memory, and the time of what is done with it."""

    path: Path
    sample: Floats

    def __post_init__(self) -> None:
        self._n, self._dim = self.sample.shape
        self._truth = exact_answers(self.path, self._dim, self._n)
        self._exact_s = _least_seconds(lambda: exact_answers(self.path, self._dim, self._n))
        self._vectors = map_vectors(self.path, self._dim, self._n)

    def graph(self, recipe: Recipe) -> Callable[[int], float]:
        """A graph: n log n to make, log n to search."""
        started = time.perf_counter()
        index = ann.make(recipe, self.path, self._dim, self._n)
        make_s = time.perf_counter() - started
        search_s = self._search(index, recipe, Effort(beam=_BEAM))

        def seconds(rows: int) -> float:
            deeper = math.log(rows) / math.log(self._n)
            made_s = rows / self._n * (self._exact_s + deeper * make_s)
            return float(made_s + _GRAPH_SEARCHES * deeper * search_s)

        return seconds

    def codes(self, recipe: Recipe, rows: int) -> Callable[[int], float]:
        """Codes, in lists or not: training on a bounded sample, then rows one like the other."""
        lists = recipe.lists or 0
        small = dataclasses.replace(recipe, lists=max(1, round(lists * self._n / rows)) if lists else None)
        read_s = _least_seconds(lambda: list(ann.read_blocks(self.path, self._dim, self._n)))
        index = ann.untrained(small, self._dim)
        is_product = recipe.code.startswith("PQ")
        started = time.perf_counter()
        index.train(self.sample[: _TABLE_ROWS if is_product else None])
        train_s = time.perf_counter() - started
        row_s = (_least_seconds(lambda: _refill(index, self.sample)) + read_s + self._exact_s) / self._n
        assign_s = self._assign_row(lists) if lists else 0.0
        n_train = train_rows(recipe, rows, self._dim)
        train_s = train_s + _ROUNDS * n_train * assign_s if lists else train_s * n_train / self._n
        if is_product:
            train_s += self._tables(int(recipe.code[2:]), n_train)
        scan_s, again_s = self._scan(index, small)
        n_scans, n_again, n_searches = _tuning(recipe, self._dim)
        tune_s = n_again * again_s + n_searches * len(self._truth.queries) * assign_s

        def seconds(rows: int) -> float:
            return float(train_s + tune_s + rows * (row_s + assign_s + n_scans * scan_s))

        return seconds

    def _assign_row(self, lists: int) -> float:
        """Seconds to find the nearest of so many lists for one row."""
        coarse = faiss().IndexFlatIP(self._dim)
        coarse.add(spread(self.sample, lists, self._dim))
        rows = self.sample[: max(256, _PRODUCTS // (lists * self._dim))]
        return _least_seconds(lambda: coarse.search(rows, 1)) / len(rows)

    def _tables(self, number: int, n_train: int) -> float:
        """Seconds to train the tables of product codes: one is, on as many rows as each."""
        width = self._dim // number
        table = faiss().ProductQuantizer(width, 1, 8)
        ann.bound_tables(table)
        pieces = self.sample.reshape(-1, width)[:n_train]
        started = time.perf_counter()
        table.train(pieces)
        return float(number * (time.perf_counter() - started))

    def _scan(self, index: Any, recipe: Recipe) -> tuple[float, float]:
        """Seconds of all questions: to look at one row's code, and to compare again what a factor of 1 more finds."""
        every, few = recipe.lists or 0, max(1, (recipe.lists or 0) // 4)
        factor = min(_MOST_FACTOR, self._n // TUNED_K)
        once = self._search(index, recipe, Effort(lists=every))
        more = self._search(index, recipe, Effort(lists=every, factor=factor))
        if every > few:  # what a search takes beside the rows is not scaled with them
            least, share = self._search(index, recipe, Effort(lists=few)), 1 - few / every
        else:
            _refill(index, self.sample[: self._n // 4])
            least, share = _least_seconds(lambda: index.search(self._truth.queries, TUNED_K)), 0.75
        return max(once / 4, once - least) / (share * self._n), max(0.0, more - once) / (factor - 1)

    def _search(self, index: Any, recipe: Recipe, effort: Effort) -> float:
        return _least_seconds(
            lambda: ann.search(index, recipe, effort, self._vectors, self._truth.queries, TUNED_K, None)
        )


def _tuning(recipe: Recipe, dim: int) -> tuple[float, float, float]:
    """How often tuning reads all rows, compares a row more for each hit again, and searches: as it usually goes.

    The fewer bits a number, the more factors find too little, whatever lists are read; that was seen on sentence
    vectors: codes of 1 bit need 8 times the hits at 50,000 rows and 32 times at 200,000.
    """
    if recipe.lists is None:
        return 7.0, 26.0, 0.0
    if recipe.code == "SQfp16":
        return _SCANS_FOUND, 0.0, _LADDER
    bits = 8 * recipe.code_bytes(dim) / dim
    missed = 0.0 if bits >= 4 else 1.5 if bits >= 2 else 4.0
    scans = missed * _SCANS_MISSED + (_N_FACTORS - missed) * _SCANS_FOUND
    return scans, _LADDER * _FACTORS, _LADDER * _N_FACTORS


def _refill(index: Any, rows: Floats) -> None:
    index.reset()  # what was trained stays
    index.add(rows)


def _least_seconds(call: Callable[[], object]) -> float:
    """Of a few calls: what is this short is slow by chance far more often than fast."""
    taken = []
    for _ in range(_CALLS):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return min(taken)
