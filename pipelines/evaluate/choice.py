"""The cheapest configuration that is not worse than the best by more than a margin.

values by query of each configuration, and its cost -> `Choice`. Configurations that differ in width alone are a line.
Each line is tested from dear to cheap, one-sided, and ends at the first one that is not shown to lie above -margin: so
the tests of a line need no correction, and the lines share the level (fixed-sequence testing: Maurer, Hothorn and
Lehmacher 1995). What is best is chosen for each query by the other queries, so that no query judges its own choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.arrays import Doubles
from ragidx.pipelines.evaluate.significance import LEVEL, lower_bound, queries_needed

MARGIN = 0.01
FOLDS = 5

_SEED = 0

Matrix: TypeAlias = NDArray[np.float64]
"""(c, q) values of c configurations for q queries."""


@dataclass(frozen=True, slots=True)
class Tested:
    """One configuration against the best.

    Attributes:
        number: of the configuration.
        low: its mean difference is above this.
        verdict: `not worse`, `worse` (the upper bound is below -margin), or `undecided`.
        queries_needed: that would decide it if it were as good as the best; 0 where it is decided.
    """

    number: int
    low: float
    verdict: str
    queries_needed: int


@dataclass(frozen=True, slots=True)
class Choice:
    """What was tested, in the order of the tests.

    Attributes:
        number: of the cheapest configuration that is not worse; None: none was shown to be so.
        margin: that it may lose.
        tested: a line after the other; a line ends with its first failure.
    """

    number: int | None
    margin: float
    tested: tuple[Tested, ...]


def best_by_others(values: Matrix) -> Doubles:
    """(q,) values of the best configuration, which for each query is chosen by the queries of the other folds."""
    n_queries = values.shape[1]
    fold_of = np.random.default_rng(_SEED).permutation(n_queries) % min(FOLDS, n_queries)
    best = np.zeros(n_queries)
    for fold in range(min(FOLDS, n_queries)):
        here = fold_of == fold
        others = values[:, ~here] if n_queries > 1 else values
        best[here] = values[int(others.mean(axis=1).argmax()), here]
    return best


def cheapest(
    values: Matrix,
    costs: Sequence[float],
    lines: Sequence[object],
    *,
    margin: float = MARGIN,
    reference: int | None = None,
) -> Choice:
    """The cheapest of c configurations that is not worse than the reference.

    Args:
        values: (c, q).
        costs: c numbers, such as bytes a chunk.
        lines: c keys; those of one line have the same.
        margin: that may be lost, above 0.
        reference: the number of the configuration to compare with; None: the best, by cross-fitting.
    """
    against = best_by_others(values) if reference is None else values[reference]
    level = LEVEL / len(set(lines))
    tested: list[Tested] = []
    passed: list[int] = []
    for line in dict.fromkeys(lines):
        members = [number for number, one in enumerate(lines) if one == line]
        for number in sorted(members, key=lambda number: (-costs[number], number)):
            one = _tested(number, values[number] - against, margin, level)
            tested.append(one)
            if one.verdict != "not worse":
                break
            passed.append(number)
    means = values.mean(axis=1)
    chosen = min(passed, key=lambda number: (costs[number], -means[number]), default=None)
    return Choice(chosen, margin, tuple(tested))


def _tested(number: int, apart: Doubles, margin: float, level: float) -> Tested:
    low, high = lower_bound(apart, level), -lower_bound(-apart, level)
    if low > -margin:
        return Tested(number, low, "not worse", 0)
    if high < -margin:
        return Tested(number, low, "worse", 0)
    return Tested(number, low, "undecided", queries_needed(apart, margin, level))
