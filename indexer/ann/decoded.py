"""Vectors that are decoded from a segment's codes, where it keeps no others (`codes_only`).

row numbers -> (n, dim) float16, of unit length; zero where a text has no vector. A row is decoded alone, so its vector
and its scores are the same whatever is decoded with it. FAISS decodes most codes; those that are compared in registers
are read here from the file (FAISS 1.15 ends the process over lists of them that came from a file):

    32 rows a block; for two codes m and m + 1 of each, 32 bytes: m of rows 0 to 15 in the lower, of rows 16 to 31 in
    the upper half of the first 16 bytes, in the order 0, 8, 1, 9, ..., 7, 15; then m + 1 likewise
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.indexer.ann.faiss_files import Halves, exact_index, faiss, inner
from ragidx.indexer.ann.faiss_layout import REPEAT_BYTES
from ragidx.indexer.ann.index_types import BLOCK, Recipe
from ragidx.indexer.ann.repeats import Repeats
from ragidx.indexer.arrays import Bools, Floats, Ints, slices
from ragidx.indexer.damage import damaged
from ragidx.indexer.normalize import ZERO, l2_normalize

_BLOCK_ROWS = 4096  # that are decoded at once
_HALF = BLOCK // 2
_PLACES = np.arange(_HALF).reshape(2, -1).T.reshape(-1).argsort()  # of a row's byte among the 16


class DecodedVectors:
    """The rows of a segment, decoded. Safe to use from several threads.

    Args:
        path: the ann.faiss, whose layout and row numbers were checked; mapped.
        recipe: recipe of the index.
        index: the mapped index.
        dim: width of the vectors, without what they are filled up with.
        rows: number of rows of the segment.
        repeats: the rows that have the vector of an earlier one; None: there are none.
        zero: the first row whose vector is zero; None: there is none.
    """

    def __init__(
        self, path: Path, recipe: Recipe, index: Any, dim: int, rows: int, repeats: Repeats | None, zero: int | None
    ) -> None:
        self.ntotal, self.d = rows, int(index.d)
        self.code_size = 2 * self.d
        self._path, self._index, self._dim, self._repeats, self._zero = path, index, dim, repeats, zero
        self._decode: Callable[[Ints], Floats] = self._by_faiss
        if recipe.in_registers and recipe.n_codes:
            self._decode = _InRegisters(path, recipe, index, rows, repeats).decode
        elif recipe.lists is not None:
            inner(index).set_direct_map_type(faiss().DirectMap.Array)

    def __getitem__(self, numbers: Ints) -> Halves:
        """The vectors of some rows, (n, d)."""
        rounded = exact_index(self.d, [self._units(numbers)])  # as they are compared: FAISS rounds some otherwise
        codes: Halves = faiss().vector_to_array(rounded.codes).view("<f2").reshape(-1, self.d)
        return codes

    def reconstruct_batch(self, numbers: Ints) -> Floats:
        """As FAISS's indexes have it, (n, d)."""
        return self[numbers].astype(np.float32)

    def search(self, queries: Floats, k: int, allowed: Bools | None) -> tuple[Floats, Ints]:
        """The k best rows (q, n) for queries (q, d), of all or of those allowed: every one of these is decoded.

        Rows of equal scores are in any order; -1 where there are no more.
        """
        scores, rows = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        for block in slices(np.arange(self.ntotal) if allowed is None else np.flatnonzero(allowed), _BLOCK_ROWS):
            found, places = exact_index(self.d, [self._units(block)]).search(queries, min(k, len(block)))
            scores, rows = np.append(scores, found, axis=1), np.append(rows, block[places], axis=1)
            if scores.shape[1] > k:
                best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
                scores, rows = np.take_along_axis(scores, best, axis=1), np.take_along_axis(rows, best, axis=1)
        return scores, rows

    def compared(self, queries: Floats, found: Ints, k: int) -> tuple[Floats, Ints]:
        """The k best of the rows (q, m) that were found for each query, by their decoded vectors; -1 is none."""
        scores, rows = np.full((len(queries), k), -np.inf, np.float32), np.full((len(queries), k), -1, np.int64)
        for number, query in enumerate(queries):
            mine = np.sort(found[number][found[number] >= 0])
            if len(mine):
                best, places = exact_index(self.d, [self._units(mine)]).search(query[None], min(k, len(mine)))
                scores[number, : best.shape[1]], rows[number, : best.shape[1]] = best[0], mine[places[0]]
        return scores, rows

    def _units(self, numbers: Ints) -> Floats:
        """The same before they are rounded."""
        firsts = np.asarray(numbers, np.int64)
        if self._repeats is not None:
            firsts = self._repeats.firsts_of(firsts)
        found = self._decode(firsts)
        found[:, self._dim :] = 0
        made = l2_normalize(found)
        if any(fault != ZERO for _, fault in made.faults):
            raise damaged(self._path, "a code in it stands for no vector")
        if self._zero is not None:
            made.vectors[firsts == self._zero] = 0
        return made.vectors

    def _by_faiss(self, firsts: Ints) -> Floats:
        found: Floats = self._index.reconstruct_batch(self._place(firsts))
        return found

    @functools.cached_property
    def _place(self) -> Callable[[Ints], Ints]:
        """What gives the numbers that rows have in the index."""
        if self._repeats is None or self._index.ntotal == self.ntotal:
            return lambda firsts: firsts
        numbers = np.cumsum(self._repeats.kept) - 1  # it lacks repeats, and numbers the others
        return lambda firsts: numbers[firsts]


class _InRegisters:
    """Codes of 4 bits in blocks of 32 rows, without lists or in them; see the module."""

    def __init__(self, path: Path, recipe: Recipe, index: Any, rows: int, repeats: Repeats | None) -> None:
        assert recipe.n_codes is not None
        self._count = recipe.n_codes
        table = faiss().vector_to_array(index.pq.centroids)
        self._table = np.ascontiguousarray(table.reshape(recipe.n_codes * recipe.entries, -1))
        kept = np.arange(rows) if repeats is None else np.flatnonzero(repeats.kept)
        size = BLOCK * recipe.code_bytes(index.d)
        end = path.stat().st_size - (0 if repeats is None else REPEAT_BYTES * len(repeats))
        self._bytes = np.memmap(path, np.uint8, "r")
        self._starts, self._inside = (
            np.zeros(rows, np.int64),
            np.zeros(rows, np.uint8),
        )  # of a row: its block, its place
        if recipe.lists is None:
            places = np.arange(len(kept))
            self._starts[kept] = end - -(-len(kept) // BLOCK) * size + places // BLOCK * size
            self._inside[kept] = places % BLOCK
        else:
            counts = [index.invlists.list_size(number) for number in range(recipe.lists)]
            at = end - sum(16 + 8 * count + -(-count // BLOCK) * size for count in counts)
            for count in counts:
                numbers = np.frombuffer(self._bytes, "<i8", count, at + 8)
                at += 16 + 8 * count
                places = np.arange(count)
                self._starts[numbers], self._inside[numbers] = at + places // BLOCK * size, places % BLOCK
                at += -(-count // BLOCK) * size
        codes = np.arange(self._count)
        self._offsets = codes // 2 * BLOCK + codes % 2 * _HALF
        self._entries = codes * recipe.entries

    def decode(self, rows: Ints) -> Floats:
        """(n, d) of rows that the index has."""
        inside = self._inside[rows]
        codes = self._bytes[(self._starts[rows] + _PLACES[inside % _HALF])[:, None] + self._offsets]
        fours = (codes >> np.where(inside < _HALF, 0, 4).astype(np.uint8)[:, None]) & 15
        found: Floats = self._table.take(fours + self._entries, axis=0).reshape(len(rows), -1)
        return found
