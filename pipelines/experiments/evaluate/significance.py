"""How sure a mean over queries is, and which differences between systems are real.

values of a measure by query (q,) -> their mean with a 95 % interval; two systems' on the same queries -> the difference
of the means with p; several systems' (c, q) -> differences with p corrected for their number; means over data sets (s,)
-> p. What needs no distribution: resampling. Seeded: the same values give the same numbers.

Intervals and bounds: bootstrap over queries, with percentiles that are widened for few queries (Hesterberg 2015, "What
teachers should know about the bootstrap"). p: the signs of the differences by query are drawn at random (paired
permutation test; Smucker, Allan and Carterette 2007), or all are taken where they are no more than `RESAMPLES`; what is
too small for these is bounded (Hoeffding 1963). Several comparisons: Holm 1979. Data sets: Wilcoxon's signed ranks
(Demsar 2006). Beside each p stands the difference that the test would find four times in five: without it "not real"
says nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ragidx.indexer.arrays import Doubles, slices

K = 10
RESAMPLES = 10_000
LEVEL = 0.05  # a difference with a lower p is called real
POWER = 0.8
"""How often a difference as large as the detectable one is found."""
FEWEST_QUERIES = 20
"""With fewer queries nothing is concluded."""
FEWEST_DATA_SETS = 5
"""With fewer data sets no test over them is made."""

_SEED = 0
_BLOCK = 1 << 22  # drawn numbers held at once
_PAIRS = 256  # of all, compared at once


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
        mean: the difference; negative where the mean is below the reference's.
        low: lower end of the interval.
        high: upper end of the interval.
        p: how often chance alone, which of the two systems a query's value came from, does as much; of several
            comparisons the one that `holm` gives.
        verdict: `better`, `worse`, `not real` where chance explains it, `equal` where the two have the same value for
            every query, or `too few` where there are fewer than `FEWEST_QUERIES`.
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
        return self.verdict in ("better", "worse")


def too_few(n: int, what: str = "queries") -> list[str]:
    """A note, where there are fewer than `FEWEST_QUERIES`."""
    note = f"Nothing can be concluded from fewer than {FEWEST_QUERIES} {what}, here {n}."
    return [note] * (n < FEWEST_QUERIES)


def interval(values: Doubles) -> Interval:
    """The mean of (q,) values."""
    return intervals(values[None])[0]


def intervals(values: Doubles) -> list[Interval]:
    """The mean of each of (c, q) values."""
    bounds = _percentiles(resampled(values), values.shape[1], LEVEL / 2, 1 - LEVEL / 2)
    return list(itertools.starmap(Interval, np.vstack([values.mean(axis=1), bounds]).T.tolist()))


def difference(values: Doubles, reference: Doubles) -> MeanDifference:
    """How far the mean of `values` (q,) is above that of `reference` (q,), query by query."""
    return _differences((values - reference)[None])[0]


def differences(values: Doubles, reference: Doubles) -> list[MeanDifference]:
    """How far the mean of each of (c, q) is above that of `reference` (q,), corrected by `holm`."""
    return holm(_differences(values - reference))


def all_pairs(values: Doubles) -> dict[tuple[int, int], MeanDifference]:
    """Each of (c, q) against each before it, corrected by `holm`: (number, that before) -> difference."""
    pairs = [(number, before) for before, number in itertools.combinations(range(len(values)), 2)]
    means, found = resampled(values), list[MeanDifference]()
    for some in slices(pairs, _PAIRS):
        numbers, before = (list(places) for places in zip(*some, strict=True))
        found += _differences(values[numbers] - values[before], means[numbers] - means[before])
    return dict(zip(pairs, holm(found), strict=True))


def holm(differences: Sequence[MeanDifference]) -> list[MeanDifference]:
    """The same differences, each p corrected for their number (Holm 1979), and what can be detected with it.

    The chance that any of them is called real though none is stays below `LEVEL`.
    """
    corrected = []
    for one, p in zip(differences, holm_p([one.p for one in differences]), strict=True):
        verdict = _verdict(one.mean, p) if one.is_real else one.verdict
        wider = _reach(LEVEL / 2 / len(differences), math.inf) / _reach(LEVEL / 2, math.inf)
        corrected.append(dataclasses.replace(one, p=p, verdict=verdict, detectable=wider * one.detectable))
    return corrected


def holm_p(p: Sequence[float]) -> list[float]:
    """Each p corrected for their number.

    >>> holm_p([0.04, 0.01, 0.02])
    [0.04, 0.03, 0.04]
    """
    least, corrected = 0.0, list(p)
    for place, number in enumerate(sorted(range(len(p)), key=lambda number: p[number])):
        least = corrected[number] = max(least, min(1.0, (len(p) - place) * p[number]))
    return corrected


def over_data_sets(means: Sequence[float] | Doubles, reference: Sequence[float] | Doubles) -> float:
    """The two-sided p of Wilcoxon's signed-rank test over data sets.

    Data sets without a difference are left out; equal differences share the mean of their ranks. Of five data sets p is
    at least 1/16, of six 1/32.

    Args:
        means: (s,) means of one system, one for each data set.
        reference: (s,) means of the other system.
    """
    apart = np.asarray(means, np.float64) - np.asarray(reference, np.float64)
    apart = apart[apart != 0]
    return float(_chances((np.sign(apart) * ranks(np.abs(apart)))[None])[0])


def detectable(apart: Doubles) -> float:
    """The difference of means that a two-sided test at `LEVEL` finds with a chance of `POWER`.

    Args:
        apart: (q,) differences by query.
    """
    return _reach(LEVEL / 2, max(1, len(apart) - 1)) * _spread(apart) / math.sqrt(len(apart))


def queries_needed(apart: Doubles, margin: float, level: float = LEVEL) -> int:
    """How many queries show, with a chance of `POWER`, that equal systems differ by less than a margin.

    Args:
        apart: (q,) differences by query.
        margin: the difference that is to be excluded, above 0.
        level: level of the one-sided test.
    """
    return math.ceil((_reach(level, math.inf) * _spread(apart) / margin) ** 2)


def lower_bound(apart: Doubles) -> float:
    """The mean of (q,) differences is above this, with a confidence of 1 - `LEVEL`, one-sided."""
    return float(lower_bounds(resampled(apart), len(apart), LEVEL))


def lower_bounds(means: Doubles, size: int, level: float) -> Doubles:
    """`lower_bound` for many, at any level: (...,) of resampled means (..., `RESAMPLES`), each over `size` queries."""
    return _percentiles(means, size, level)[0]  # type: ignore[no-any-return]


def resampled(values: Doubles) -> Doubles:
    """Means of `RESAMPLES` draws of as many queries, with replacement: (q,) -> (r,), or (c, q) -> (c, r).

    All rows are drawn alike, so that means of rows differ as the rows do.
    """
    size, drawn = values.shape[-1], np.random.default_rng(_SEED)
    step = max(1, _BLOCK // size)
    parts = []
    for start in range(0, RESAMPLES, step):
        n = min(step, RESAMPLES - start)
        places = drawn.integers(0, size, (n, size)) + size * np.arange(n)[:, None]
        times = np.bincount(places.ravel(), minlength=n * size).reshape(n, size)  # that each query is drawn
        parts.append(values @ times.T / size)
    return np.concatenate(parts, axis=-1)


def ranks(values: Doubles) -> Doubles:
    """Ranks from 1; equal values have the mean of theirs.

    >>> ranks(np.array([0.5, 0.1, 0.5])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[group]


def _differences(apart: Doubles, means: Doubles | None = None) -> list[MeanDifference]:
    """Of (c, q) differences by query, not corrected; `means` are their resampled ones, (c, r)."""
    if not len(apart):
        return []
    size = apart.shape[1]
    lows, highs = _percentiles(resampled(apart) if means is None else means, size, LEVEL / 2, 1 - LEVEL / 2)
    found = []
    for one, low, high, p in zip(apart, lows, highs, _chances(apart), strict=True):
        mean = float(one.mean())
        verdict = "equal" if not one.any() else "too few" if size < FEWEST_QUERIES else _verdict(mean, float(p))
        found.append(MeanDifference(mean, float(low), float(high), float(p), verdict, detectable(one)))
    return found


def _verdict(mean: float, p: float) -> str:
    return "not real" if p >= LEVEL else "better" if mean > 0 else "worse"


def _chances(apart: Doubles) -> Doubles:
    """(c,) two-sided p of (c, q)."""
    observed, reached, drawn = np.abs(apart.sum(axis=1)), np.zeros(len(apart)), 0
    for signs in _signs(apart.shape[1], max(1, _BLOCK // (apart.shape[1] + len(apart)))):
        reached += np.count_nonzero(np.abs(signs @ apart.T) >= observed - 1e-9, axis=0)
        drawn += len(signs)
    # Of many comparisons 1 / RESAMPLES, times their number, may be above LEVEL: Hoeffding's bound on p may be below it.
    bound = 2 * np.exp(-(observed**2) / np.maximum(2 * (apart**2).sum(axis=1), 1e-300))
    return np.minimum(reached / drawn, bound)  # type: ignore[no-any-return]


def _signs(size: int, step: int) -> Iterator[Doubles]:
    """Rows of `size` signs, at most `step` at once: all that there are, or what was observed and `RESAMPLES` draws."""
    if 1 << size <= RESAMPLES:
        yield np.where(np.arange(1 << size)[:, None] >> np.arange(size) & 1, -1.0, 1.0)
        return
    yield np.ones((1, size))
    drawn = np.random.default_rng(_SEED)
    for start in range(0, RESAMPLES, step):
        yield np.where(drawn.integers(0, 2, (min(step, RESAMPLES - start), size)), -1.0, 1.0)


def _percentiles(means: Doubles, size: int, *levels: float) -> Doubles:
    """(levels, ...) of resampled means (..., r) over `size` queries, at levels that are widened.

    A resample varies less than a sample by (size - 1) / size, and its own spread is not known either: in large samples
    this makes the interval that of the t distribution.
    """
    freedom = max(1, size - 1)
    wide = math.sqrt(size / freedom)
    at = [NormalDist().cdf(wide * _t(level, freedom)) for level in levels]
    return np.quantile(means, at, axis=-1)


def _reach(level: float, freedom: float) -> float:
    """Standard errors between no difference and one that a test at a one-sided level finds with a chance of `POWER`.

    >>> round(_reach(0.025, math.inf), 2)
    2.8
    """
    return _t(1 - level, freedom) + _t(POWER, freedom)


def _t(level: float, freedom: float) -> float:
    """A quantile of Student's t (Abramowitz and Stegun, 26.7.5); to 0.02 from 10 degrees of freedom on.

    >>> round(_t(0.975, 19), 2)
    2.09
    """
    z, n = NormalDist().inv_cdf(level), 1 / freedom
    return z + (z**3 + z) * n / 4 + (5 * z**5 + 16 * z**3 + 3 * z) * n**2 / 96


def _spread(apart: Doubles) -> float:
    """The standard deviation; of one query, whose spread nobody knows, its difference, so that figures are finite."""
    return float(apart.std(ddof=1) if len(apart) > 1 else abs(apart[0]))
