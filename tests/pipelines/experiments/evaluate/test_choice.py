"""The cheapest configuration that is not worse than the best: what is tested, and how often it is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ragidx.pipelines.experiments.evaluate import significance
from ragidx.pipelines.experiments.evaluate.choice import Choice, cheapest

MARGIN = 0.01


def systems(
    means: list[float], spread: float = 0.01, n_queries: int = 40, drawn: np.random.Generator | None = None
) -> NDArray[np.float64]:
    """Values of systems: queries are hard for all alike, and each system has some luck."""
    drawn = drawn or np.random.default_rng(0)
    hard, luck = drawn.random((1, n_queries)), drawn.standard_normal((len(means), n_queries))
    return np.array(means)[:, None] + hard + spread * luck


def verdicts(choice: Choice) -> list[tuple[int, str]]:
    return [(one.number, one.verdict) for one in choice.tested]


def test_the_cheapest_that_loses_less_than_the_margin_is_chosen() -> None:
    found = cheapest(systems([0, 0, -0.1]), [4, 2, 1], ["a"] * 3)

    assert (found.number, found.margin) == (1, MARGIN)
    assert verdicts(found) == [(0, "not worse"), (1, "not worse"), (2, "worse")]


def test_a_line_ends_at_its_first_failure() -> None:
    found = cheapest(systems([0, -0.1, 0, 0]), [8, 4, 2, 1], ["a", "a", "a", "b"])

    assert verdicts(found) == [(0, "not worse"), (1, "worse"), (3, "not worse")]
    assert found.number == 3


def test_of_equal_costs_the_better_one_is_chosen() -> None:
    assert cheapest(systems([0, 0.005]), [1, 1], ["a", "b"]).number == 1


def test_queries_that_cannot_tell_leave_it_undecided_and_say_how_many_would() -> None:
    found = cheapest(systems([0, 0], spread=0.1), [2, 1], ["a", "a"])

    assert verdicts(found) == [(0, "not worse"), (1, "undecided")]  # by luck, the first is 0.04 better
    assert found.tested[1].low < -MARGIN
    # of the difference the standard deviation is 0.14, so 1,240 queries are needed
    assert found.tested[1].queries_needed == pytest.approx((2.486 * 0.1414 / MARGIN) ** 2, rel=0.2)


def test_the_queries_that_are_needed_stay_finite_at_the_margin() -> None:
    apart = np.where(np.arange(40) % 2, 0.09, -0.11)  # its mean is -0.01

    found = cheapest(np.stack([np.zeros(40), apart]), [1, 2], ["a", "b"])

    assert found.tested[1].verdict == "undecided"
    assert 40 < found.tested[1].queries_needed < 10_000_000


def test_fewer_than_20_queries_decide_nothing() -> None:
    found = cheapest(systems([0, -0.5], n_queries=19), [2, 1], ["a", "a"])

    assert found.number is None
    assert found.tested[0].verdict == "undecided"
    assert found.tested[0].queries_needed >= 20


def test_equal_systems_are_not_worse_than_each_other() -> None:
    values = np.repeat(systems([0]), 3, axis=0)

    found = cheapest(values, [3, 2, 1], ["a"] * 3)

    assert found.number == 2
    assert [one.low for one in found.tested] == pytest.approx([0, 0, 0], abs=1e-12)  # processors round apart


def test_one_configuration_alone_is_the_best() -> None:
    assert cheapest(systems([0]), [1], ["a"]).number == 0


def test_the_best_is_compared_with_whatever_its_line() -> None:
    assert cheapest(systems([0, -0.1, -0.1]), [3, 2, 1], ["a", "b", "c"]).number == 0


EXPERIMENTS = 1000
LINES = [0, 0, 1, 1, 2, 2]
COSTS = [6, 3, 5, 2, 4, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("means", "spread"),
    [
        # all but the best lose exactly the margin
        ([0, -MARGIN, -MARGIN, -MARGIN, -MARGIN, -MARGIN], 0.02),
        # several are so near the best that 60 queries cannot say which one it is
        ([0, -MARGIN, -0.009, -MARGIN, -0.009, -MARGIN], 0.05),
        # each line ends in one that loses the margin
        ([0, -MARGIN, 0, -MARGIN, 0, -MARGIN], 0.01),
    ],
)
def test_a_worse_configuration_is_chosen_in_fewer_than_5_percent(
    means: list[float], spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(significance, "RESAMPLES", 1000)
    drawn = np.random.default_rng(0)

    chosen = [
        cheapest(systems(means, spread, 60, drawn), COSTS, LINES, margin=MARGIN).number for _ in range(EXPERIMENTS)
    ]

    wrong = np.mean([number is not None and means[number] <= -MARGIN for number in chosen])
    assert wrong < 0.05 + 0.015


@pytest.mark.slow
def test_a_cheaper_configuration_that_is_as_good_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(significance, "RESAMPLES", 1000)
    drawn = np.random.default_rng(0)

    chosen = [cheapest(systems([0, 0, -0.1], 0.02, 100, drawn), [3, 2, 1], [0] * 3).number for _ in range(200)]

    assert np.mean([number == 1 for number in chosen]) > 0.8
