"""How good rankings are, how sure that is, and which differences between two of them are real.

rankings (document numbers, best first) and qrels -> nDCG@10 a query (q,) -> its mean with a 95 % interval, and its
difference from another system's on the same queries. nDCG is as trec_eval has it: linear gain, log2 discount, negative
relevance counts 0, a query without relevant documents is 0; a test holds it equal to ir_measures. Intervals are
percentiles of a bootstrap over queries; the test is a paired permutation test, which swaps the two systems' values of a
query at random (Smucker, Allan and Carterette 2007). Seeded: the same values give the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragidx.indexer.arrays import Doubles

K = 10
RESAMPLES = 10_000
LEVEL = 0.05  # a difference with a lower p is called real

_SEED = 0
_BLOCK = 1 << 22  # drawn numbers held at once


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over queries, and where 95 % of resampled means lie."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class MeanDifference:
    """How far a mean is above the reference's, with a 95 % interval.

    Attributes:
        mean: negative where it is below.
        low: of the interval.
        high: of the interval.
        p: how often chance alone, which of the two systems a query's value came from, does as much.
        verdict: `better`, `worse`, or `not real` where chance explains it.
    """

    mean: float
    low: float
    high: float
    p: float
    verdict: str

    @property
    def is_real(self) -> bool:
        """Whether chance is a poor explanation."""
        return self.p < LEVEL


def ndcg(ranking: Sequence[str], judged: Mapping[str, int]) -> float:
    """Of one query: its documents, best first, and the relevance of those that were judged.

    >>> round(ndcg(["b", "a"], {"a": 1}), 4)
    0.6309
    """
    best = sorted((gain for gain in judged.values() if gain > 0), reverse=True)[:K]
    if not best:
        return 0.0
    discounts = 1 / np.log2(np.arange(2, K + 2))
    found = np.array([max(0, judged.get(name, 0)) for name in ranking[:K]], np.float64)
    return float(found @ discounts[: len(found)] / (np.array(best) @ discounts[: len(best)]))


def interval(values: Doubles) -> Interval:
    """The mean of (q,) values."""
    low, high = np.percentile(_resampled(values), (2.5, 97.5))
    return Interval(float(values.mean()), float(low), float(high))


def difference(values: Doubles, reference: Doubles) -> MeanDifference:
    """How far the mean of `values` (q,) is above that of `reference` (q,), query by query."""
    apart = values - reference
    low, high = np.percentile(_resampled(apart), (2.5, 97.5))
    mean, p = float(apart.mean()), _chance(apart)
    verdict = "not real" if p >= LEVEL else "better" if mean > 0 else "worse"
    return MeanDifference(mean, float(low), float(high), p, verdict)


def _resampled(values: Doubles) -> Doubles:
    """Means of `RESAMPLES` draws of as many values, with replacement."""
    drawn, size = np.random.default_rng(_SEED), len(values)
    step = max(1, _BLOCK // size)
    parts = [
        values[drawn.integers(0, size, (min(step, RESAMPLES - start), size))].mean(axis=1)
        for start in range(0, RESAMPLES, step)
    ]
    return np.concatenate(parts)


def _chance(apart: Doubles) -> float:
    """The two-sided p of a paired permutation test; what was observed counts as one of the permutations."""
    drawn, size = np.random.default_rng(_SEED), len(apart)
    step = max(1, _BLOCK // size)
    observed, reached = abs(apart.sum()), 0
    for start in range(0, RESAMPLES, step):
        signs = 2.0 * drawn.integers(0, 2, (min(step, RESAMPLES - start), size)) - 1
        reached += int(np.count_nonzero(np.abs(signs @ apart) >= observed - 1e-9))
    return (1 + reached) / (1 + RESAMPLES)
