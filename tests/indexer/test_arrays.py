"""Cutting what is all there into slices, gathering what comes one by one into bundles, and arrays from files."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.indexer.arrays import bundles, saved, slices


@given(st.integers(0, 40), st.integers(1, 12))
def test_slices_hold_every_item_once_and_are_of_the_kind_of_the_items(n: int, size: int) -> None:
    rows = np.arange(n)

    found = list(slices(rows, size))

    assert [row for part in found for row in part.tolist()] == list(range(n))
    assert [len(part) for part in found] == [size] * (n // size) + [n % size] * (n % size > 0)
    assert list(slices(range(n), size)) == [range(part[0], part[-1] + 1) for part in found]


@given(st.lists(st.integers(0, 9)), st.integers(1, 20), st.integers(1, 5))
def test_bundles_hold_every_item_once_and_end_as_soon_as_they_are_full(
    sizes: list[int], enough: int, most: int
) -> None:
    found = list(bundles(sizes, lambda size: size, enough, most))

    assert [size for bundle in found for size in bundle] == sizes
    assert all(sum(bundle[:-1]) < enough and len(bundle) <= most for bundle in found)
    assert all(sum(bundle) >= enough or len(bundle) == most for bundle in found[:-1])


def test_a_bundle_is_given_before_more_is_asked_for() -> None:
    asked: list[int] = []

    def items() -> Iterator[int]:
        for number in range(4):
            asked.append(number)
            yield number

    assert next(bundles(items(), lambda _: 1, 2)) == [0, 1]
    assert asked == [0, 1]


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("kind", [np.dtype("<f4"), np.dtype("S16"), np.dtype([("digest", "S16"), ("owner", "<i4")])])
def test_what_numpy_has_saved(kind: np.dtype, rows: int) -> None:
    array = np.frombuffer(bytes(range(kind.itemsize * rows)), kind)
    file = io.BytesIO()
    np.save(file, array)

    found = saved(file.getvalue(), kind)

    assert (found.dtype, found.tobytes()) == (kind, array.tobytes())
    with pytest.raises(ValueError, match="buffer size must be a multiple of element size"):
        saved(file.getvalue() + b"x", kind)
    with pytest.raises(ValueError, match="magic string is not correct"):
        saved(b"PK\3\4" + file.getvalue(), kind)
