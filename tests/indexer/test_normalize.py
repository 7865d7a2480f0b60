"""Unit length: every direction has length 1, whatever its length was."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ragidx.indexer.normalize import NOT_FINITE, ZERO, cut_rows, l2_normalize


@pytest.mark.slow
@given(
    row=st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=9).filter(
        lambda row: any(abs(x) > 1e-3 for x in row)
    ),
    scale=st.sampled_from([1e-35, 1e-3, 1.0, 1e35]),
)
def test_every_direction_has_length_1_whatever_its_length_was(row: list[float], scale: float) -> None:
    wide = np.array([row])

    unit = l2_normalize(wide * scale)

    assert unit.faults == []
    np.testing.assert_allclose(unit.vectors, wide / np.linalg.norm(wide), atol=1e-6)


@pytest.mark.slow
@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(1, 400))
@example(seed=3357, dim=17)  # where rounding shortens a row by more than half a code
def test_stored_vectors_keep_their_code(seed: int, dim: int) -> None:
    stored = l2_normalize(np.random.default_rng(seed).standard_normal((3, dim))).vectors.astype(np.float16)

    again = l2_normalize(stored).vectors.astype(np.float16)

    assert (again.astype(np.float32) == stored.astype(np.float32)).all()


def test_numbers_whose_squares_leave_their_range_have_a_direction() -> None:
    unit = l2_normalize(np.array([[3e200, 4e200], [3e-320, 4e-320], [0, 0], [np.inf, 1], [np.nan, 1]]))

    np.testing.assert_allclose(unit.vectors[:2], [[0.6, 0.8]] * 2, rtol=1e-3)
    assert unit.faults == [(2, ZERO), (3, NOT_FINITE), (4, NOT_FINITE)]
    assert not unit.vectors[2:].any()


@pytest.mark.slow
@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(1, 9), width=st.integers(9, 40))
def test_the_first_numbers_of_a_row_have_the_direction_that_they_had_before(seed: int, dim: int, width: int) -> None:
    wide = np.random.default_rng(seed).standard_normal((3, width)) * 50

    cut = cut_rows(l2_normalize(wide), dim)

    assert cut.faults == []
    np.testing.assert_allclose(cut.vectors, l2_normalize(wide[:, :dim]).vectors, atol=1e-6)


def test_rows_as_wide_as_they_are_to_be_stay_the_same_rows() -> None:
    unit = l2_normalize(np.array([[3.0, 4.0], [0.0, 0.0]]))

    assert cut_rows(unit, 2) is unit


def test_a_row_with_nothing_in_its_first_numbers_is_told_and_one_that_was_broken_keeps_its_reason() -> None:
    rows = np.zeros((4, 2_000))
    rows[1, 1_999], rows[2, 0], rows[3, 0] = 1, np.inf, 1

    cut = cut_rows(l2_normalize(rows), 1_500)

    assert cut.faults == [
        (0, "the vector is zero"),
        (1, "the first 1,500 of 2,000 dimensions of the vector are zero"),
        (2, "the vector holds a number that is not finite"),
    ]
    assert cut.vectors.any(axis=1).tolist() == [False, False, False, True]
