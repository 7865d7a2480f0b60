"""The cheapest configuration that is not worse than the best by a margin or more.

values by query of each configuration, and its cost -> `Choice`. A configuration is not worse than the best where it is
not worse than any other, each tested one-sided: all of these tests must succeed, so they need no correction (Berger
1982; Hsu 1984), and nothing has to choose the best, which few queries choose wrongly. (The best by cross-fitting lies
below the true one where several are close; then too much passed: one time in four at the margin, in a simulation.)
Configurations that differ in width alone are a line. Each line is tested from dear to cheap and ends at the first one
that is not shown to be not worse: so the tests of a line need no correction either (Maurer, Hothorn and Lehmacher
1995), and the lines share the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragidx.indexer.arrays import Doubles
from ragidx.pipelines.experiments.evaluate.options import MARGIN
from ragidx.pipelines.experiments.evaluate.significance import (
    FEWEST_QUERIES,
    LEVEL,
    lower_bounds,
    queries_needed,
    resampled,
)


@dataclass(frozen=True, slots=True)
class Tested:
    """One configuration against the best.

    Attributes:
        number: place of the configuration among all.
        low: a lower bound, 0 or negative: the mean is above that of every other configuration by more than this.
        verdict: `not worse`, `worse` (by the margin or more than some other), or `undecided`.
        queries_needed: number of queries that would decide it if the configuration were as good as the best; 0 where it
            is decided.
    """

    number: int
    low: float
    verdict: str
    queries_needed: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The cheapest configuration that is not worse, and all tests in their order.

    Attributes:
        number: place of the cheapest configuration that is not worse; None: none was shown to be so.
        margin: the loss against the best that is allowed.
        tested: the tests, a line after the other; a line ends with its first failure.
    """

    number: int | None
    margin: float
    tested: tuple[Tested, ...]


def cheapest(values: Doubles, costs: Sequence[float], lines: Sequence[object], *, margin: float = MARGIN) -> Choice:
    """The cheapest of c configurations that is not worse than any other.

    Args:
        values: (c, q) values of a measure, by configuration and query.
        costs: c numbers, such as bytes a chunk.
        lines: c keys; configurations of one line have the same.
        margin: the loss against the best that is allowed, above 0.
    """
    means = resampled(values)
    level = LEVEL / len(set(lines))
    tested: list[Tested] = []
    passed: list[int] = []
    for line in dict.fromkeys(lines):
        members = [number for number, one in enumerate(lines) if one == line]
        for number in sorted(members, key=lambda number: (-costs[number], number)):
            one = _tested(number, values[number] - values, means[number] - means, margin, level)
            tested.append(one)
            if one.verdict != "not worse":
                break
            passed.append(number)
    chosen = min(passed, key=lambda number: (costs[number], -values[number].mean()), default=None)
    return Choice(chosen, margin, tuple(tested))


def _tested(number: int, apart: Doubles, means: Doubles, margin: float, level: float) -> Tested:
    """One configuration, by its differences (c, q) from all and their resampled means (c, r)."""
    n_others, size = apart.shape
    lows = lower_bounds(means, size, level)
    nearest = int(lows.argmin())
    low = float(lows[nearest])
    if size >= FEWEST_QUERIES:
        if low > -margin:
            return Tested(number, low, "not worse", 0)
        if (-lower_bounds(-means, size, level / n_others)).min() < -margin:
            return Tested(number, low, "worse", 0)
    gap = float(np.clip(abs(apart[nearest].mean() + margin), margin / 10, margin))  # where it may lie
    return Tested(number, low, "undecided", max(FEWEST_QUERIES, queries_needed(apart[nearest], gap, level)))
