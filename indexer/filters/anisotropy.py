"""Anisotropy: how alike the vectors of different texts are on average, before and after the filter.

Vectors of decoders lie in a narrow cone: the cosine of any two is high, and tells texts apart badly. A filter that
takes away what all share brings the mean cosine down. It is that of all pairs, from one sum: of rows u of length 1,
|Σ u|² = n + Σ u_i · u_j over i != j. Random pairs give an estimate of it.
Sources: Ethayarajh 2019, section 4.1; the EmbedFilter paper, sections 1 and 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.arrays import Doubles, Floats
from ragidx.indexer.normalize import l2_normalize


@dataclass(frozen=True, slots=True)
class MeanCosines:
    """The mean cosine of two different vectors, over all pairs.

    Attributes:
        before: mean cosine of the model's own vectors, -1 to 1; near 1, all texts look alike.
        after: mean cosine of what the filter keeps of them.
        n_vectors: number of vectors whose pairs these are.
    """

    before: float
    after: float
    n_vectors: int


@dataclass(slots=True)
class Anisotropy:
    """What is summed up of vectors as they come, to know the mean cosine of all their pairs.

    Attributes:
        n_vectors: number of vectors so far, without those that are zero.
        before: (d,) sum of the raw vectors, each of length 1.
        after: (k,) sum of the filtered ones, each of length 1.
    """

    n_vectors: int = 0
    before: Doubles | float = 0.0
    after: Doubles | float = 0.0

    def add(self, units: Floats, before: NDArray[np.floating] | None = None) -> None:
        """Add filtered vectors (n, k) of length 1 or zero; `before` (d,): the sum of the raw ones, None: the same."""
        after = units.sum(axis=0, dtype=np.float64)
        self.n_vectors += int(np.count_nonzero(units.any(axis=1)))
        self.before = self.before + (after if before is None else before.astype(np.float64))
        self.after = self.after + after

    def means(self) -> MeanCosines | None:
        """The mean cosines; None where there are fewer than two vectors."""
        if self.n_vectors < 2:
            return None
        before, after = (mean_cosine(total, self.n_vectors) for total in (self.before, self.after))
        return MeanCosines(before, after, self.n_vectors)


def mean_cosine(total: Doubles | float, n: int) -> float:
    """The mean cosine of two different ones of n >= 2 vectors, from the sum (d,) of all, each at length 1.

    >>> mean_cosine(unit_sum(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])), 3)  # of 1, 0 and 0
    0.3333333333333333
    """
    return float((np.dot(total, total) - n) / (n * (n - 1)))


def unit_sum(vectors: Floats) -> Doubles:
    """(d,) sum of vectors (n, d), each at length 1; zeros add nothing."""
    total: Doubles = l2_normalize(vectors).vectors.sum(axis=0, dtype=np.float64)
    return total
