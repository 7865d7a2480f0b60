"""Repeats: the rows of a segment whose vector an earlier row has, so that an index holds each vector once.

A graph links equal vectors to each other alone: a search that reaches a group of them that is larger than its beam ends
there. In lists, a group fills what is compared again. Headers and licences make such groups in most corpora. So the
index of a segment is made of the first row of each group, and what a search finds is expanded by the rows that repeat
it: all of these have its score. Vectors are compared as they are stored; 0 and -0 are equal.

One entry that is missed would cost all hits of its group, and a graph may have no link to a vector that is far from all
others. So the first rows of the largest groups, the *leaders*, are compared with every question.

    firsts (n,), rows (n,) int32     row `rows[i]` repeats row `firsts[i]`; n rows that the index lacks
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.ann.faiss_files import HEADER_BYTES, codes_of, exact_index, faiss, selector
from ragidx.indexer.ann.faiss_layout import REPEAT_BYTES
from ragidx.indexer.arrays import Bools, Floats, Ints

Found: TypeAlias = tuple[Floats, Ints]
"""Scores and rows (q, n), best first; -inf and -1 where there are no more."""

MAX_LEADERS = 256  # to compare them takes 8 us a question

_BLOCK_BYTES = 8 << 20  # of vectors
_NEGATIVE_ZERO = 0x8000  # of float16


@dataclass(eq=False)
class Repeats:
    """Which rows of a segment repeat an earlier one, by the first row of each group and then by themselves.

    Attributes:
        firsts: (n,) int32, ascending.
        rows: (n,) int32, above their `firsts`, and ascending below equal ones.
        n_rows: number of rows of the segment.
    """

    firsts: NDArray[np.int32]
    rows: NDArray[np.int32]
    n_rows: int
    _leaders: tuple[Ints, Any] | None = field(default=None, init=False, repr=False)
    _numbered: tuple[Any, Any] | None = field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        """How many rows the index lacks."""
        return len(self.rows)

    @classmethod
    def mapped(cls, path: Path, count: int, n_rows: int) -> Repeats:
        """The last bytes of a file, as `to_bytes` gave them; `hold` must be asked before they are used."""
        offset = path.stat().st_size - REPEAT_BYTES * count
        firsts, rows = np.memmap(path, "<i4", mode="r", offset=offset, shape=(2, count)).view(np.ndarray)
        return cls(firsts, rows, n_rows)

    def to_bytes(self) -> bytes:
        """All firsts, then all rows, as int32."""
        return np.concatenate([self.firsts, self.rows]).astype("<i4").tobytes()

    def hold(self) -> bool:
        """Whether they are rows of the segment, each once, in their order, and no first is a repeat itself."""
        firsts, rows = self.firsts.astype(np.int64), self.rows.astype(np.int64)
        if firsts.min() < 0 or rows.max() >= self.n_rows or (rows <= firsts).any():
            return False
        falls = (np.diff(firsts) < 0) | ((np.diff(firsts) == 0) & (np.diff(rows) <= 0))
        once = np.bincount(rows, minlength=self.n_rows)
        return not falls.any() and once.max() == 1 and not once[firsts].any()

    @functools.cached_property
    def kept(self) -> Bools:
        """(n_rows,) which rows the index has."""
        kept = np.ones(self.n_rows, np.bool_)
        kept[self.rows] = False
        return kept

    @functools.cached_property
    def selector(self) -> Any:
        """What makes FAISS skip the codes of repeats."""
        return selector(self.kept)

    def numbered(self, index: Any) -> Any:
        """An index of the rows that are kept, which numbers these from 0, with the numbers that they have here."""
        if self._numbered is None or self._numbered[0] is not index:
            module = faiss()
            found = module.IndexIDMap(module.IndexFlatIP(index.d))  # FAISS gives numbers to an empty index alone
            found.index, found.ntotal, found.referenced_objects = index, self.n_rows, [index]
            module.copy_array_to_vector(np.flatnonzero(self.kept), found.id_map)
            self._numbered = index, found
        return self._numbered[1]

    def leading(self, allowed: Bools) -> Bools:
        """(n_rows,) which rows of the index are allowed, or have a repeat that is."""
        found = allowed & self.kept
        found[self.firsts[allowed[self.rows]]] = True
        return found

    def are_repeated(self, rows: Ints) -> Bools:
        """Whether other rows have the vectors of these; of any shape, and never of what is no row."""
        return self._are(self._grouped, rows)

    def equals(self, rows: Ints, allowed: Bools | None) -> Ints:
        """The allowed rows with the vectors of some rows that are repeated; -1 is none."""
        firsts = np.unique(self.firsts_of(rows))
        groups = [self._group(row, allowed) for row in firsts[self._are(self._lead, firsts)].tolist()]
        return np.concatenate([np.zeros(0, np.int64), *groups])

    def leaders(self, vectors: Any) -> tuple[Ints, Any]:
        """The first rows of the largest groups, and an exact index of their vectors."""
        if self._leaders is None:
            firsts, sizes = np.unique(self.firsts, return_counts=True)
            rows = firsts[np.argsort(-sizes, kind="stable")[:MAX_LEADERS]].astype(np.int64)
            self._leaders = rows, exact_index(vectors.d, [vectors.reconstruct_batch(rows).astype(np.float16)])
        return self._leaders

    def expanded(self, found: Found, led: Found, k: int, allowed: Bools | None) -> Found:
        """The k best rows (q, k) of what a search found, equal scores by row; -inf and -1 at the end.

        Args:
            found: rows of the index, (q, n).
            led: leaders, (q, m).
            k: number of rows that are wanted for each query.
            allowed: (n_rows,), the rows that may be given; None: all.
        """
        (its_scores, its_rows), (led_scores, led_rows) = found, led
        better = (led_scores >= its_scores[:, -1:]) & (led_rows >= 0)
        changed = np.flatnonzero(self._lead[its_rows].any(axis=1) | better.any(axis=1))
        if not len(changed) and its_rows.shape[1] >= k:  # mostly
            return its_scores[:, :k], its_rows[:, :k]
        shape, n = (len(its_rows), k), min(k, its_rows.shape[1])
        scores, rows = np.full(shape, -np.inf, np.float32), np.full(shape, -1, np.int64)
        scores[:, :n], rows[:, :n] = its_scores[:, :n], its_rows[:, :n]
        for query in changed:
            entries, places = np.unique(np.append(its_rows[query], led_rows[query][better[query]]), return_index=True)
            shown = np.append(its_scores[query], led_scores[query][better[query]])[places]
            starts, ends = (np.searchsorted(self.firsts, entries, side) for side in ("left", "right"))
            ends = ends if allowed is not None else np.minimum(ends, starts + k)
            parts = [self.rows[start:end] for start, end in zip(starts, ends, strict=True) if start < end]
            wide, shown = np.concatenate([entries, *parts]), np.append(shown, np.repeat(shown, ends - starts))
            chosen = wide >= 0 if allowed is None else (wide >= 0) & allowed[wide]
            wide, shown = wide[chosen], shown[chosen]
            order = np.lexsort((wide, -shown))[:k]
            scores[query, : len(order)], rows[query, : len(order)] = shown[order], wide[order]
        return scores, rows

    def same(self, codes: NDArray[np.float16]) -> bool:
        """Whether the vectors (n_rows, dim) of all repeats are those of their firsts."""
        return bool(_equal(codes, self.firsts, self.rows).all())

    def _group(self, row: int, allowed: Bools | None) -> Ints:
        """The allowed rows with the vector of a row of the index, ascending."""
        start, end = np.searchsorted(self.firsts, [row, row + 1])
        rows = np.append(row, self.rows[start:end])
        return rows if allowed is None else rows[allowed[rows]]

    def _are(self, marked: Bools, rows: Ints) -> Bools:
        found: Bools = marked[np.minimum(np.maximum(rows, -1), self.n_rows)]  # of another segment they lie anywhere
        return found

    @functools.cached_property
    def _lead(self) -> Bools:
        """(n_rows + 1,) which rows are repeated; the last stands for what is no row."""
        lead = np.zeros(self.n_rows + 1, np.bool_)
        lead[self.firsts] = True
        return lead

    @functools.cached_property
    def _grouped(self) -> Bools:
        """(n_rows + 1,) which rows have the vector of another; the last stands for what is no row."""
        grouped = self._lead.copy()
        grouped[self.rows] = True
        return grouped

    def firsts_of(self, rows: Ints) -> Ints:
        """The rows of the index that have the vectors of these."""
        places = np.searchsorted(self.rows, rows, sorter=self._ascending).clip(max=len(self) - 1)
        places = self._ascending[places]
        return np.where(self.rows[places] == rows, self.firsts[places], rows)

    @functools.cached_property
    def _ascending(self) -> Ints:
        return np.argsort(self.rows)


def find_repeats(path: Path, dim: int, rows: int) -> Repeats | None:
    """The repeats in a vectors.faiss, read in blocks; None: no two vectors are equal.

    Rows with equal hashes are compared: of two vectors with one hash, which are hardly ever there, both are kept.
    """
    hashes, done, width = np.empty(rows, np.int64), 0, 2 * dim
    step = max(1, _BLOCK_BYTES // width)
    with path.open("rb") as file:
        file.seek(HEADER_BYTES)
        while done < rows:
            bits = np.frombuffer(file.read(width * min(step, rows - done)), "<u2")
            data = np.where(bits == _NEGATIVE_ZERO, 0, bits).astype("<u2").tobytes()
            found = [hash(data[start : start + width]) for start in range(0, len(data), width)]
            hashes[done : done + len(found)] = found
            done += len(found)
    order = np.argsort(hashes, kind="stable")
    again = np.diff(hashes[order]) == 0
    if not again.any():
        return None
    starts = np.flatnonzero(np.append(True, ~again))
    firsts, later = np.repeat(order[starts], np.diff(np.append(starts, rows)))[1:][again], order[1:][again]
    equal = _equal(codes_of(path, dim, rows), firsts, later)
    firsts, later = firsts[equal].astype(np.int32), later[equal].astype(np.int32)
    order = np.lexsort((later, firsts))
    return Repeats(firsts[order], later[order], rows) if len(order) else None


def _equal(codes: NDArray[np.float16], firsts: NDArray[Any], rows: NDArray[Any]) -> Bools:
    """Which pairs of rows have equal vectors."""
    step = max(1, _BLOCK_BYTES // (2 * codes.shape[1]))
    blocks = [slice(start, start + step) for start in range(0, len(rows), step)]
    return np.concatenate([(codes[firsts[block]] == codes[rows[block]]).all(axis=1) for block in blocks])
