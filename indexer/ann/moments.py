"""Moments of stored vectors: the mean and spread of their cosines with any query, without a scan.

n vectors x (d,), their mean m and scatter S = sum (x - m)(x - m)'. For a query q the cosines q'x have the mean q'm and
the sum of squared distances from it q'Sq. S is centred: the vectors of many decoders have cosines near 0.99 that spread
by 0.005, and the difference of two sums of squares would lose those digits. All sums are float64. Chan, Golub and
LeVeque 1979 for the merging of two parts.

    moments-<generation>.bin    float64, little-endian: m (d), then the rows of S from the diagonal on, d (d + 1) / 2;
                                int32: the rows that were dead when it was written, whose vectors are not counted
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ragidx.indexer.ann import index_types
from ragidx.indexer.arrays import Doubles, Floats, Ints

_ROUNDING = 1e-7  # of float32 scores, relative: a deviation below it is none
_CANCELLED = 1e-14  # of float64 sums, relative: a difference below it is what rounding left
_ROWS_A_NUMBER = 8  # the file has a quarter of the bytes of the vectors, at most


@dataclass(frozen=True)
class ScoreSpread:
    """The scores of rows for each of q queries, in sum.

    Attributes:
        n: how many rows.
        mean: (q,) of their scores.
        squares: (q,) the sum of squared distances from the mean.
    """

    n: int
    mean: Doubles
    squares: Doubles

    @property
    def deviation(self) -> Doubles:
        """(q,) the standard deviation of the scores; 0 where all are equal, up to rounding."""
        found = np.sqrt(self.squares / max(1, self.n))
        return np.where(found > _ROUNDING * np.abs(self.mean), found, 0.0)

    def without(self, other: ScoreSpread) -> ScoreSpread:
        """The spread of the rows that are left without the other ones, which are some of these."""
        n = self.n - other.n
        if n <= 0:
            return ScoreSpread(0, np.zeros_like(self.mean), np.zeros_like(self.squares))
        mean = self.mean + (self.mean - other.mean) * (other.n / n)
        squares = self.squares - other.squares - (self.mean - other.mean) ** 2 * (self.n * other.n / n)
        return ScoreSpread(n, mean, np.where(squares > _CANCELLED * self.squares, squares, 0.0))


@dataclass(frozen=True)
class Moments:
    """The moments of some vectors.

    Attributes:
        n: how many vectors.
        mean: (d,); zeros if there is none.
        scatter: (d, d); below the diagonal it is not read.
    """

    n: int
    mean: Doubles
    scatter: Doubles

    def __add__(self, other: Moments) -> Moments:
        """Those of both sets of vectors together."""
        n = self.n + other.n
        if not n:
            return self
        apart = other.mean - self.mean
        scatter = self.scatter + other.scatter + np.outer(apart, apart * (self.n * other.n / n))
        return Moments(n, self.mean + apart * (other.n / n), scatter)

    def __sub__(self, other: Moments) -> Moments:
        """Those without the vectors of `other`, which are some of these."""
        n = self.n - other.n
        if n <= 0:
            return Moments(0, np.zeros_like(self.mean), np.zeros_like(self.scatter))
        mean = self.mean + (self.mean - other.mean) * (other.n / n)
        apart = other.mean - mean
        return Moments(n, mean, self.scatter - other.scatter - np.outer(apart, apart * (n * other.n / self.n)))

    def spread(self, queries: Floats) -> ScoreSpread:
        """The spread of the products of the vectors with queries (q, d)."""
        asked = queries.astype(np.float64)
        upper = np.einsum("qd,qd->q", asked @ np.triu(self.scatter), asked)
        squares = 2 * upper - (asked**2) @ np.diagonal(self.scatter)
        return ScoreSpread(self.n, asked @ self.mean, np.maximum(squares, 0))

    def to_bytes(self) -> bytes:
        """The moments as the file holds them."""
        rows = [row[number:] for number, row in enumerate(self.scatter)]
        return np.concatenate([self.mean, *rows]).astype("<f8").tobytes()

    @staticmethod
    def n_bytes(dim: int) -> int:
        """Bytes of the moments of vectors (dim,)."""
        return 8 * (dim + dim * (dim + 1) // 2)

    @classmethod
    def from_bytes(cls, data: bytes, n: int, dim: int) -> Moments:
        """The inverse of `to_bytes`, of n vectors (d,).

        Raises:
            ValueError: they cannot be the moments of vectors of length 1.
        """
        numbers = np.frombuffer(data, "<f8")
        if len(data) != cls.n_bytes(dim) or not np.isfinite(numbers).all():
            raise ValueError(f"it does not hold the moments of {dim:,} dimensions")
        scatter, start = np.zeros((dim, dim)), dim
        for row in range(dim):
            scatter[row, row:] = numbers[start : start + dim - row]
            start += dim - row
        return cls(n, numbers[:dim].copy(), scatter)


def wants_moments(rows: int, dim: int) -> bool:
    """Whether a segment keeps its moments: below, a scan takes a few ms, and they would take many bytes."""
    return rows >= max(index_types.MIN_ROWS, _ROWS_A_NUMBER * dim)


def most_beside(dim: int) -> int:
    """Dead rows that moments may count: each question subtracts their cosines, in a part of the time of the moments."""
    return max(16, dim // 4)


def left_out_of(data: bytes, rows: int) -> Ints:
    """The rows behind the moments of a segment of so many, (n,), which these are without.

    Raises:
        ValueError: they cannot be that.
    """
    found = np.frombuffer(data, "<i4").astype(np.int64)
    if len(found) and (found[0] < 0 or found[-1] >= rows or (np.diff(found) <= 0).any()):
        raise ValueError("it leaves out rows that are not there")
    return found


def moments_of(blocks: Iterable[Floats], dim: int) -> Moments:
    """The moments of vectors that come in blocks (n, dim)."""
    none = Moments(0, np.zeros(dim), np.zeros((dim, dim)))
    return functools.reduce(Moments.__add__, map(_of_block, blocks), none)


def spread_of(scores: Floats) -> ScoreSpread:
    """The spread of scores (q, rows) that a scan has found."""
    exact, n = scores.astype(np.float64), scores.shape[1]
    mean = exact.sum(axis=1) / max(1, n)
    return ScoreSpread(n, mean, ((exact - mean[:, None]) ** 2).sum(axis=1))


def merged_spread(parts: Sequence[ScoreSpread]) -> ScoreSpread:
    """The spread over all rows of some parts, for the same queries; `parts` is not empty."""
    n = sum(part.n for part in parts)
    mean = sum((part.n * part.mean for part in parts), np.zeros_like(parts[0].mean)) / max(1, n)
    between = (part.squares + part.n * (part.mean - mean) ** 2 for part in parts)
    return ScoreSpread(n, mean, sum(between, np.zeros_like(mean)))


def _of_block(block: Floats) -> Moments:
    exact = block.astype(np.float64)
    mean = exact.sum(axis=0) / max(1, len(exact))
    centred = exact - mean
    return Moments(len(exact), mean, centred.T @ centred)
