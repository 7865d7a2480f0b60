"""How good rankings are, how sure that is, and which differences between two of them are real.

rankings (document numbers, best first) and qrels -> nDCG@10 a query (q,) -> its mean with a 95 % interval, and its
difference from another system's on the same queries. nDCG is as trec_eval has it: linear gain, log2 discount, negative
relevance counts 0, a query without relevant documents is 0; a test holds it equal to ir_measures. Intervals are
percentiles of a bootstrap over queries; the test is a paired permutation test, which swaps the two systems' values of a
query at random (Smucker, Allan and Carterette 2007). Beside each p stands the difference that the test would find four
times in five: without it "not significant" says nothing. Seeded: the same values give the same numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ragidx.indexer.arrays import Doubles

K = 10
RESAMPLES = 10_000
LEVEL = 0.05  # a difference with a lower p is called real
POWER = 0.8
"""How often a difference as large as the detectable one is found."""

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
        p: how often chance alone, which of the two systems a query's value came from, does as much; of several
            comparisons the one that `holm` gives.
        verdict: `better`, `worse`, or `not real` where chance explains it.
        detectable: a difference of this size is found with a chance of `POWER`.
    """

    mean: float
    low: float
    high: float
    p: float
    verdict: str
    detectable: float

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
    low, high = np.percentile(resampled(values), (2.5, 97.5))
    return Interval(float(values.mean()), float(low), float(high))


def difference(values: Doubles, reference: Doubles) -> MeanDifference:
    """How far the mean of `values` (q,) is above that of `reference` (q,), query by query."""
    apart = values - reference
    low, high = np.percentile(resampled(apart), (2.5, 97.5))
    mean, p = float(apart.mean()), _chance(apart)
    return MeanDifference(mean, float(low), float(high), p, _verdict(mean, p), detectable(apart))


def holm(differences: Sequence[MeanDifference]) -> list[MeanDifference]:
    """The same differences, each p corrected for their number (Holm 1979), and what can be detected with it.

    The chance that any of them is called real though none is stays below `LEVEL`.
    """
    count, least = len(differences), 0.0
    corrected = list(differences)
    for place, number in enumerate(sorted(range(count), key=lambda number: differences[number].p)):
        one = differences[number]
        least = max(least, min(1.0, (count - place) * one.p))
        wider = _reach(LEVEL / 2 / count) / _reach(LEVEL / 2)
        corrected[number] = dataclasses.replace(
            one, p=least, verdict=_verdict(one.mean, least), detectable=wider * one.detectable
        )
    return corrected


def detectable(apart: Doubles) -> float:
    """The difference of means that a two-sided test at `LEVEL` finds with a chance of `POWER`.

    Args:
        apart: (q,) differences by query.
    """
    return float(_reach(LEVEL / 2) * _spread(apart) / len(apart) ** 0.5)


def queries_needed(apart: Doubles, margin: float, level: float = LEVEL) -> int:
    """How many queries show, with a chance of `POWER`, that equal systems differ by less than a margin.

    Args:
        apart: (q,) differences by query.
        margin: above 0.
        level: of the one-sided test.
    """
    return int(np.ceil((_reach(level) * _spread(apart) / margin) ** 2))


def lower_bound(apart: Doubles, level: float = LEVEL) -> float:
    """The mean of (q,) differences is above this, with a confidence of 1 - level, one-sided."""
    return float(np.percentile(resampled(apart), 100 * level))


def _reach(level: float) -> float:
    """Standard errors between no difference and one that a test at a one-sided level finds with a chance of `POWER`.

    >>> round(_reach(0.025), 2)
    2.8
    """
    normal = NormalDist()
    return normal.inv_cdf(1 - level) + normal.inv_cdf(POWER)


def _spread(apart: Doubles) -> float:
    return float(apart.std(ddof=1)) if len(apart) > 1 else float("inf")


def _verdict(mean: float, p: float) -> str:
    return "not real" if p >= LEVEL else "better" if mean > 0 else "worse"


def resampled(values: Doubles) -> Doubles:
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
