"""How sure a mean is, and which differences are real: known values, other implementations, simulated error rates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from ragidx.pipelines.experiments.evaluate import significance
from ragidx.pipelines.experiments.evaluate.significance import (
    FEWEST_QUERIES,
    LEVEL,
    POWER,
    Interval,
    MeanDifference,
    all_pairs,
    detectable,
    difference,
    differences,
    holm,
    interval,
    intervals,
    lower_bound,
    over_data_sets,
    queries_needed,
)

EXPERIMENTS = 1000
Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.float64]]


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the resamples: a simulation repeats them a thousand times."""
    monkeypatch.setattr(significance, "RESAMPLES", 1000)


def normal(drawn: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    return 0.1 * drawn.standard_normal(shape)


def like_ndcg(drawn: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Differences of nDCG: most queries have none."""
    return np.where(drawn.random(shape) < 0.6, 0, drawn.uniform(-0.5, 0.5, shape))


def close(found: Interval | MeanDifference) -> list[object]:
    """Its fields without the last digits: sums of many rows are made in another order."""
    return [round(value, 12) if isinstance(value, float) else value for value in dataclasses.astuple(found)]


# known values


def test_an_interval_of_equal_values_is_that_value() -> None:
    found = interval(np.full(5, 0.25))

    assert (found.mean, found.low, found.high) == (0.25, 0.25, 0.25)


def test_an_interval_of_one_value_is_that_value() -> None:
    assert interval(np.array([0.5])).low == 0.5


@pytest.mark.slow
def test_an_interval_is_that_of_the_normal_distribution_for_many_values() -> None:
    values = np.random.default_rng(0).standard_normal(2000)

    found = interval(values)

    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / math.sqrt(2000), rel=0.05)


def test_an_interval_of_few_values_is_that_of_students_distribution() -> None:
    values = stats.norm.ppf((np.arange(20) + 0.5) / 20)

    found = interval(values)

    standard_error = values.std(ddof=1) / math.sqrt(20)
    assert found.high - found.low == pytest.approx(2 * stats.t.ppf(0.975, 19) * standard_error, rel=0.05)


def test_intervals_of_many_rows_are_those_of_each() -> None:
    values = np.random.default_rng(0).random((3, 30))

    assert [close(one) for one in intervals(values)] == [close(interval(row)) for row in values]


def test_a_difference_that_is_always_the_same_way_is_real() -> None:
    found = difference(np.zeros(20), np.full(20, 0.1))

    assert (found.mean, found.verdict) == (pytest.approx(-0.1), "worse")
    assert found.p < 0.001
    assert difference(np.full(20, 0.1), np.zeros(20)).verdict == "better"


def test_equal_systems_have_a_p_of_1_and_are_called_equal() -> None:
    values = np.random.default_rng(0).random(30)

    found = difference(values, values)

    assert (found.mean, found.low, found.high, found.p) == (0, 0, 0, 1)
    assert (found.verdict, found.is_real, found.detectable) == ("equal", False, 0)
    assert [one.verdict for one in holm([found, found])] == ["equal", "equal"]


def test_a_difference_of_few_queries_is_not_judged() -> None:
    few = difference(np.full(FEWEST_QUERIES - 1, 0.5), np.zeros(FEWEST_QUERIES - 1))

    assert few.p < 0.001
    assert (few.verdict, few.is_real) == ("too few", False)
    assert holm([few])[0].verdict == "too few"


def test_of_few_queries_all_signs_are_taken() -> None:
    # All three the same way: of the eight ways to swap them two are as extreme.
    assert difference(np.full(3, 0.9), np.zeros(3)).p == 2 / 8


def test_figures_of_one_query_are_finite() -> None:
    found = difference(np.array([0.5]), np.array([0.2]))

    assert (found.p, found.verdict) == (1, "too few")
    assert math.isfinite(found.detectable)
    assert queries_needed(np.array([0.3]), 0.01) > 100


def test_holm_multiplies_the_smallest_p_by_the_number_of_comparisons() -> None:
    base = difference(normal(np.random.default_rng(0), (50,)), np.zeros(50))
    three = [dataclasses.replace(base, p=p, verdict="better") for p in (0.04, 0.01, 0.02)]

    found = holm(three)

    assert [one.p for one in found] == [0.04, 0.03, 0.04]  # 0.02 times 2, and none below the one before
    assert [one.verdict for one in found] == [("better" if base.mean > 0 else "worse")] * 3
    wider = (stats.norm.ppf(1 - 0.05 / 6) + stats.norm.ppf(0.8)) / (stats.norm.ppf(0.975) + stats.norm.ppf(0.8))
    assert found[0].detectable == pytest.approx(wider * base.detectable)


def test_holm_makes_a_difference_that_is_no_longer_real_not_real() -> None:
    base = difference(normal(np.random.default_rng(0), (50,)), np.zeros(50))

    found = holm([dataclasses.replace(base, p=0.03, verdict="better")] * 2)

    assert [(one.p, one.verdict) for one in found] == [(0.06, "not real")] * 2


def test_of_no_comparison_nothing_follows() -> None:
    assert holm([]) == differences(np.zeros((0, 5)), np.zeros(5)) == []
    assert all_pairs(np.zeros((1, 5))) == {}


def test_differences_of_many_rows_are_those_of_each() -> None:
    values = np.random.default_rng(0).random((4, 30))

    each = holm([difference(row, values[0]) for row in values[1:]])
    assert [close(one) for one in differences(values[1:], values[0])] == [close(one) for one in each]


def test_all_pairs_are_compared_and_corrected_together() -> None:
    values = np.random.default_rng(0).random((3, 30))

    found = all_pairs(values)

    pairs = [(1, 0), (2, 0), (2, 1)]
    assert list(found) == pairs
    each = holm([difference(values[one], values[before]) for one, before in pairs])
    assert [close(one) for one in found.values()] == [close(one) for one in each]


def test_the_detectable_difference_is_2_8_standard_errors_of_many_queries() -> None:
    apart = np.random.default_rng(0).standard_normal(1000)

    assert detectable(apart) == pytest.approx(2.8 * apart.std(ddof=1) / math.sqrt(1000), rel=0.002)


def test_the_queries_that_are_needed_follow_from_spread_and_margin() -> None:
    apart = np.random.default_rng(0).standard_normal(1000)

    reach = stats.norm.ppf(0.95) + stats.norm.ppf(0.8)
    assert queries_needed(apart, 0.1) == math.ceil((reach * apart.std(ddof=1) / 0.1) ** 2)


def test_of_a_thousand_rows_one_that_is_far_better_is_still_real() -> None:
    values = np.random.default_rng(0).random((1000, 60))
    values[500] = values[0] + np.linspace(0.1, 0.3, 60)

    found = differences(values[1:], values[0])

    assert [place for place, one in enumerate(found, start=1) if one.is_real] == [500]
    assert found[499].p < 1e-6


# other implementations


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(-20, 20), min_size=5, max_size=9).filter(any))
def test_wilcoxons_test_is_exact_and_equals_that_of_scipy(apart: list[int]) -> None:
    exact = stats.wilcoxon(apart, method=stats.PermutationMethod(n_resamples=1 << 12))

    assert over_data_sets(apart, [0] * len(apart)) == pytest.approx(exact.pvalue)


def test_of_five_data_sets_that_agree_p_is_a_sixteenth() -> None:
    assert over_data_sets([0.5, 0.6, 0.7, 0.8, 0.9], [0.4] * 5) == 2 / 32


def test_of_many_data_sets_signs_are_drawn() -> None:
    apart = np.random.default_rng(0).standard_normal(40) + 0.3

    assert over_data_sets(apart, np.zeros(40)) == pytest.approx(stats.wilcoxon(apart).pvalue, abs=0.01)


def test_equal_systems_differ_on_no_data_set() -> None:
    assert over_data_sets([0.5] * 6, [0.5] * 6) == 1


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_permutation_test_equals_that_of_scipy(seed: int) -> None:
    values, reference = np.random.default_rng(seed).random((2, 10))

    exact = stats.permutation_test(
        (values, reference), lambda x, y, axis: (x - y).mean(axis=axis), permutation_type="samples", n_resamples=np.inf
    )
    assert difference(values, reference).p == pytest.approx(exact.pvalue)


# error rates, simulated


@pytest.mark.slow
@pytest.mark.usefixtures("quickly")
def test_p_is_uniform_where_systems_are_alike() -> None:
    drawn = np.random.default_rng(0)

    p = [difference(*drawn.random((2, 40))).p for _ in range(EXPERIMENTS)]

    assert stats.kstest(p, "uniform").statistic < 0.043  # 95 % of uniform samples of this size lie below


@pytest.mark.slow
@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("draw", [normal, like_ndcg])
def test_intervals_and_bounds_hold_the_mean_as_often_as_they_say(draw: Draw) -> None:
    apart = draw(np.random.default_rng(0), (EXPERIMENTS, 60))

    held = np.mean([one.low <= 0 <= one.high for one in intervals(apart)])
    above = np.mean([lower_bound(row) > 0 for row in apart])

    assert held == pytest.approx(0.95, abs=0.015)
    assert above == pytest.approx(LEVEL, abs=0.015)


@pytest.mark.slow
@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("compare", ["reference", "all pairs"])
def test_holm_keeps_the_chance_of_any_false_claim_below_5_percent(compare: str) -> None:
    drawn = np.random.default_rng(0)
    false = uncorrected = 0
    for number in range(EXPERIMENTS):
        values = drawn.random((1, 30)) + like_ndcg(drawn, (5, 30))
        values[4] += 0.3  # truly better: what is claimed of it is not false
        if compare == "reference":
            found = differences(values[1:], values[0])[:-1]
            uncorrected += number < 200 and any(difference(row, values[0]).is_real for row in values[1:4])
        else:
            found = [one for pair, one in all_pairs(values).items() if 4 not in pair]
        false += any(one.is_real for one in found)

    assert false / EXPERIMENTS < LEVEL + 0.015
    assert compare == "all pairs" or uncorrected / 200 > 2 * LEVEL  # without it the rate is not kept


@pytest.mark.slow
@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("n_queries", [25, 100])
@pytest.mark.parametrize("draw", [normal, like_ndcg])
def test_the_detectable_difference_is_detected_four_times_in_five(draw: Draw, n_queries: int) -> None:
    apart = draw(np.random.default_rng(0), (EXPERIMENTS, n_queries))
    size = np.mean([detectable(row) for row in apart])

    power = np.mean([difference(row + size, np.zeros(n_queries)).is_real for row in apart])

    assert power == pytest.approx(POWER, abs=0.03)


@pytest.mark.slow
@pytest.mark.usefixtures("quickly")
def test_the_queries_that_are_needed_decide_four_times_in_five() -> None:
    drawn = np.random.default_rng(0)
    needed = queries_needed(normal(drawn, (10_000,)), 0.02)

    decided = np.mean([lower_bound(normal(drawn, (needed,))) > -0.02 for _ in range(EXPERIMENTS)])

    assert decided == pytest.approx(POWER, abs=0.03)
