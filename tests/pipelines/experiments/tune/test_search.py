"""The strategy of a tuning: what is best by construction is found, chance is not, and no query tests its own choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from ragidx.indexer.arrays import Doubles
from ragidx.pipelines.experiments.tune.search import FOLDS, SearchChoice, Space, VectorsChoice, search

LAST = VectorsChoice("echo", -1, "embedfilter", 16)
HALF = SearchChoice("hybrid", "z", 0.5)
SEARCHES = [HALF, SearchChoice("hybrid", "z", 0.3), SearchChoice("dense")]


class Table:
    """Values by query of vectors and of searches, as a function has them."""

    def __init__(
        self, of_vectors: Callable[[VectorsChoice], Doubles], of_search: Callable[[SearchChoice], Doubles]
    ) -> None:
        self._of_vectors, self._of_search = of_vectors, of_search
        self.n_measured = 0

    def dense(self, vectors: VectorsChoice) -> Doubles | None:
        self.n_measured += 1
        return None if vectors.filter == "whitening" else self._of_vectors(vectors)

    def searches(self, vectors: VectorsChoice) -> Mapping[SearchChoice, Doubles]:
        return {one: self._of_search(one) for one in SEARCHES}


def layers(present: VectorsChoice) -> list[VectorsChoice]:
    return [dataclasses.replace(present, layer=layer) for layer in (1, 2, 3)]


def filters(present: VectorsChoice) -> list[VectorsChoice]:
    return [dataclasses.replace(present, filter=name) for name in ("none", "pca", "whitening")]


SPACE = Space(LAST, HALF, (layers, filters))


def noise(*key: object, size: int = 100, seed: int = 0) -> Doubles:
    drawn = np.random.default_rng([seed, *(sum(map(ord, str(one))) for one in key)])
    return drawn.uniform(0, 1, size)


def test_the_best_of_each_step_is_chosen_and_its_worth_is_measured_on_other_queries() -> None:
    right = VectorsChoice("echo", 2, "pca", 16)
    table = Table(
        lambda one: 0.5 * noise("q") + 0.2 * (one.layer == right.layer) + 0.1 * (one.filter == right.filter),
        lambda one: 0.5 * noise("q") + 0.1 * (one.weight == 0.3) + 0.02 * noise(one),
    )

    vectors, found = search(SPACE, table, 100)

    assert (vectors.chosen, vectors.is_better, vectors.advised) == (right, True, right)
    assert vectors.gain.mean == pytest.approx(0.3)
    assert (found.chosen, found.is_better) == (SearchChoice("hybrid", "z", 0.3), True)
    assert found.gain.mean == pytest.approx(0.1, abs=0.01)


def test_what_is_equal_or_cannot_be_had_leaves_the_default() -> None:
    table = Table(lambda one: noise("q"), lambda one: noise("q"))

    vectors, found = search(SPACE, table, 100)

    assert (vectors.chosen, vectors.is_better, found.chosen, found.is_better) == (LAST, False, HALF, False)
    assert (vectors.gain.mean, vectors.gain.p) == (0, 1)


def test_a_gain_within_the_standard_error_leaves_the_default() -> None:
    table = Table(lambda one: noise(one) + 0.01 * (one.layer == 2), lambda one: noise("q"))

    assert search(SPACE, table, 100)[0].advised == LAST


@pytest.mark.slow
def test_among_random_scores_the_choice_is_better_in_at_most_five_of_a_hundred_seeds() -> None:
    n_seeds, better = 100, 0
    for seed in range(n_seeds):
        table = Table(
            lambda one, seed=seed: noise(one, seed=seed), lambda one, seed=seed: noise("search", one, seed=seed)
        )
        better += any(part.is_better for part in search(SPACE, table, 100))

    assert better <= 0.05 * n_seeds


def test_no_query_has_a_say_in_what_it_tests() -> None:
    folds = np.random.default_rng(0).permutation(100) % FOLDS

    def values(fold: int, by: float) -> Table:
        liked = np.where(folds == fold, by, 0.0)
        return Table(
            lambda one: noise(one) + liked * (one.layer == 3), lambda one: noise(one) + liked * (one.weight == 0.3)
        )

    for fold in range(FOLDS):
        vectors, found = search(SPACE, values(fold, 0), 100)
        moved, moved_search = search(SPACE, values(fold, 100), 100)

        assert moved.of_folds[fold] == vectors.of_folds[fold]
        assert moved_search.of_folds[fold] == found.of_folds[fold]
        assert moved.chosen.layer == 3


def test_with_fewer_than_twenty_queries_the_default_is_advised() -> None:
    table = Table(lambda one: np.full(19, float(one.layer == 2)), lambda one: np.full(19, float(one.weight == 0.3)))

    vectors, found = search(SPACE, table, 19)

    assert (vectors.chosen.layer, vectors.advised, found.advised) == (2, LAST, HALF)
