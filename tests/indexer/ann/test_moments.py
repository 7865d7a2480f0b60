"""Moments: the mean and spread of cosines agree with those of a scan, also after deletions and where all are alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.indexer.ann.moments import Moments, ScoreSpread, merged_spread, moments_of, wants_moments
from ragidx.indexer.arrays import Floats

DIM = 12


def vectors(seed: int, n: int, common: float) -> Floats:
    """Of length 1, stored as float16; `common` is how much all share one direction."""
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((n, DIM)) + common
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)


def queries(seed: int, common: float) -> Floats:
    return vectors(seed + 1, 3, common)


def assert_same(found: ScoreSpread, expected: ScoreSpread) -> None:
    assert found.n == expected.n
    assert found.mean == pytest.approx(expected.mean, abs=1e-7)
    assert found.deviation == pytest.approx(expected.deviation, rel=1e-6, abs=1e-8)


def scanned(stored: Floats, asked: Floats) -> ScoreSpread:
    """In float64, since a float32 product of 12 dimensions is rounded more than the spread."""
    scores = asked.astype(np.float64) @ stored.astype(np.float64).T
    return ScoreSpread(len(stored), scores.mean(axis=1), len(stored) * scores.var(axis=1))


def test_by_hand() -> None:
    stored = np.array([[1, 0], [0, 1], [0, 1]], np.float32)

    found = moments_of([stored], 2).spread(np.array([[1, 0], [0, 1]], np.float32))

    assert found.mean == pytest.approx([1 / 3, 2 / 3])
    assert found.deviation == pytest.approx([np.sqrt(2) / 3] * 2)


@pytest.mark.slow
@given(st.integers(0, 999), st.lists(st.integers(0, 40), min_size=1, max_size=4), st.sampled_from([0.0, 3.0, 30.0]))
def test_blocks_agree_with_a_scan(seed: int, sizes: list[int], common: float) -> None:
    if not sum(sizes):
        return
    stored, asked = vectors(seed, sum(sizes), common), queries(seed, common)
    blocks = np.split(stored, np.cumsum(sizes)[:-1])

    assert_same(moments_of(blocks, DIM).spread(asked), scanned(stored, asked))


@pytest.mark.slow
@given(st.integers(0, 999), st.integers(2, 60), st.sampled_from([0.0, 3.0, 30.0]), st.data())
def test_deleted_rows_leave_nothing_behind(seed: int, n: int, common: float, data: st.DataObject) -> None:
    dead = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    if dead.all():
        return
    stored, asked = vectors(seed, n, common), queries(seed, common)

    every = moments_of([stored], DIM).spread(asked)
    left = every.without(scanned(stored[dead], asked)) if dead.any() else every

    assert_same(left, scanned(stored[~dead], asked))


@pytest.mark.parametrize("data", [b"", b"\0" * 8, np.full(DIM + DIM * (DIM + 1) // 2, np.nan).tobytes()])
def test_a_file_that_holds_no_moments_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="it does not hold the moments of 12 dimensions"):
        Moments.from_bytes(data, 3, DIM)


def test_small_segments_and_very_wide_ones_keep_none() -> None:
    assert [wants_moments(rows, 256) for rows in (9_999, 10_000)] == [False, True]
    assert [wants_moments(rows, 4096) for rows in (32_767, 32_768)] == [False, True]


def test_without_any_row_there_is_no_spread() -> None:
    stored = vectors(0, 3, 0.0)

    asked = queries(0, 0.0)
    found = moments_of([stored], DIM).spread(asked).without(scanned(stored, asked))

    assert (found.n, found.mean.tolist(), found.deviation.tolist()) == (0, [0.0] * 3, [0.0] * 3)


@pytest.mark.slow
@given(st.integers(0, 999), st.lists(st.integers(0, 20), min_size=1, max_size=4))
def test_parts_that_were_scanned_and_parts_that_were_not_add_up(seed: int, sizes: list[int]) -> None:
    if not sum(sizes):
        return
    stored, asked = vectors(seed, sum(sizes), 3.0), queries(seed, 3.0)
    blocks = np.split(stored, np.cumsum(sizes)[:-1])
    parts = [
        moments_of([block], DIM).spread(asked) if number % 2 else scanned(block, asked) if len(block) else None
        for number, block in enumerate(blocks)
    ]

    assert_same(merged_spread([part for part in parts if part is not None]), scanned(stored, asked))


def test_rows_that_are_all_alike_have_no_spread() -> None:
    stored = np.repeat(vectors(5, 1, 0.0), 1_000, axis=0)

    assert moments_of([stored[:300], stored[300:]], DIM).spread(queries(5, 0.0)).deviation.tolist() == [0.0] * 3
