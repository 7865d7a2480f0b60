"""Moments of stored vectors: the mean and spread of their cosines with any query, without a scan.

n vectors x (d,), their mean m and scatter S = sum (x - m)(x - m)'. For a query q the cosines q'x have the mean q'm and
the sum of squared distances from it q'Sq. S is centred: the vectors of many decoders have cosines near 0.99 that spread
by 0.005, and the difference of two sums of squares would lose those digits. All sums are float64. Chan, Golub and
LeVeque 1979 for the merging of two parts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ragidx.indexer.arrays import Bools, Doubles, Floats


@dataclass(frozen=True)
class Spread:
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
        return np.where(found > 1e-9 * np.abs(self.mean), found, 0.0)


@dataclass(frozen=True)
class Moments:
    """The moments of some vectors.

    Attributes:
        n: how many vectors.
        mean: (d,); zeros if there is none.
        scatter: (d, d).
    """

    n: int
    mean: Doubles
    scatter: Doubles

    def __add__(self, other: Moments) -> Moments:
        """Those of both sets of vectors together."""
        return self._joined(other, 1)

    def __sub__(self, other: Moments) -> Moments:
        """Those of the vectors that are left without the other ones, which are some of these."""
        return self._joined(other, -1)

    def spread(self, queries: Floats) -> Spread:
        """Of the products of the vectors with queries (q, d)."""
        asked = queries.astype(np.float64)
        squares = np.einsum("qd,qd->q", asked @ self.scatter, asked)
        return Spread(self.n, asked @ self.mean, np.maximum(squares, 0))

    def _joined(self, other: Moments, sign: int) -> Moments:
        n = self.n + sign * other.n
        if n <= 0:
            return Moments(0, np.zeros_like(self.mean), np.zeros_like(self.scatter))
        apart = other.mean - self.mean
        mean = self.mean + apart * (sign * other.n / n)
        between = np.outer(apart, apart) * (sign * self.n * other.n / n)
        return Moments(n, mean, self.scatter + sign * other.scatter + between)


def moments_of(blocks: Iterable[Floats], dim: int) -> Moments:
    """The moments of vectors that come in blocks (n, dim)."""
    none = Moments(0, np.zeros(dim), np.zeros((dim, dim)))
    return functools.reduce(Moments.__add__, map(_of_block, blocks), none)


def spread_of(scores: Floats, dead: Bools | None = None) -> Spread:
    """Of scores (q, rows) that a scan has found, without those of dead rows, (rows,)."""
    alive = (scores if dead is None else scores[:, ~dead]).astype(np.float64)
    n = alive.shape[1]
    mean = alive.sum(axis=1) / max(1, n)
    return Spread(n, mean, ((alive - mean[:, None]) ** 2).sum(axis=1))


def merged_spread(parts: Sequence[Spread]) -> Spread:
    """Of all rows of some parts, for the same queries; `parts` is not empty."""
    n = sum(part.n for part in parts)
    mean = sum((part.n * part.mean for part in parts), np.zeros_like(parts[0].mean)) / max(1, n)
    between = (part.squares + part.n * (part.mean - mean) ** 2 for part in parts)
    return Spread(n, mean, sum(between, np.zeros_like(mean)))


def _of_block(block: Floats) -> Moments:
    exact = block.astype(np.float64)
    mean = exact.sum(axis=0) / max(1, len(exact))
    centred = exact - mean
    return Moments(len(exact), mean, centred.T @ centred)
