"""Calibration: a sample that does not depend on the order of the corpus, and what is learnt from it."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.corpora.records import Document
from ragidx.indexer.filters.filter import MAKERS, Filter
from ragidx.indexer.filters.fitting import DocumentSample, FilterSample, lowest, random_key
from ragidx.indexer.specs import FilterSpec

from ...raising import message_of


def _documents(lengths: list[int]) -> list[Document]:
    return [Document(f"d{number}", "x" * length) for number, length in enumerate(lengths)]


def _drawn(documents: list[Document], **bounds: int) -> list[str]:
    sample = DocumentSample[str](bounds.pop("seed", 0), **bounds)
    for document in documents:
        sample.add(document.id, len(document.text), document.id)
    return sample.items()


# the sample


def test_a_lot_is_the_same_on_every_machine() -> None:
    assert random_key(0, "lease.txt").hex() == "92cb78b10aed43fe8b8867c84be8d151"
    assert random_key(0, "lease.txt") != random_key(1, "lease.txt")


@settings(max_examples=60)
@given(st.lists(st.integers(1, 30), max_size=30), st.integers(1, 12), st.integers(1, 120), st.integers(0, 99))
def test_the_sample_is_the_shortest_row_by_lot_that_is_enough(
    lengths: list[int], n: int, n_chars: int, seed: int
) -> None:
    documents = _documents(lengths)
    expected: list[str] = []
    chars = 0
    for document in sorted(documents, key=lambda each: random_key(seed, each.id)):
        if len(expected) == n or chars >= n_chars:
            break
        expected.append(document.id)
        chars += len(document.text)

    assert _drawn(documents, n=n, n_chars=n_chars, seed=seed) == expected


@settings(max_examples=60)
@given(st.lists(st.integers(0, 30), max_size=30), st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 120))
def test_the_sample_does_not_depend_on_the_order_of_the_corpus(
    lengths: list[int], shuffle: int, n: int, n_chars: int
) -> None:
    documents = _documents(lengths)
    other = random.Random(shuffle).sample(documents, len(documents))

    assert _drawn(documents, n=n, n_chars=n_chars) == _drawn(other, n=n, n_chars=n_chars)


def test_a_blank_document_is_not_drawn() -> None:
    assert _drawn([Document("blank", ""), Document("said", "word")], n=5, n_chars=100) == ["said"]


def test_a_long_stream_is_held_in_bounded_memory() -> None:
    sample = DocumentSample[int](0, n=10_000, n_chars=1000)
    most = 0
    for number in range(3000):
        sample.add(f"d{number}", 100, number)
        most = max(most, len(sample.items()))

    assert most == 10


def test_documents_of_one_id_do_not_end_the_draw() -> None:
    assert _drawn([Document("same", "one"), Document("same", "two")], n=5, n_chars=100) == ["same", "same"]


@pytest.mark.slow
@given(st.lists(st.text(max_size=4), max_size=20), st.integers(), st.integers(0, 25))
def test_the_lowest_lots_come_first(names: list[str], seed: int, n: int) -> None:
    places = lowest(seed, names, n)

    keys = [random_key(seed, names[place]) for place in places]
    assert len(places) == len(set(places)) == min(n, len(names))
    assert keys == sorted(keys)
    assert all(random_key(seed, names[i]) >= keys[-1] for i in set(range(len(names))) - set(places) if keys)


# what is learnt


def _fitted(name: str, rows: np.ndarray, width: int, **more: float) -> Filter:
    return MAKERS[name](FilterSpec(name, dim=width, **more), SimpleNamespace(hidden=rows.shape[1]), FilterSample(rows))


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 60), hidden=st.integers(1, 12), far=st.floats(-100, 100), seed=st.integers(0, 2**31))
def test_mean_and_components_are_those_of_numpy(n: int, hidden: int, far: float, seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((n, hidden)).astype("f4") + np.float32(far)
    zeros = np.zeros((4, hidden), "f4")  # of texts of which nothing is pooled: they do not count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ragidx.indexer.filters.fitting._BLOCK", 7)
        mean, components = FilterSample(np.concatenate([zeros, rows])).components(1, "pca")

    np.testing.assert_allclose(mean, rows.mean(axis=0, dtype="f8"), rtol=1e-9, atol=1e-9)
    expected = np.cov(rows.T.astype("f8"), bias=True).reshape(hidden, hidden)
    scaled = components.directions * components.values
    np.testing.assert_allclose(scaled @ scaled.T, expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(hidden=st.integers(2, 16), data=st.data(), seed=st.integers(0, 2**31))
def test_the_whitened_sample_has_mean_0_and_covariance_1(hidden: int, data: st.DataObject, seed: int) -> None:
    width = data.draw(st.integers(1, hidden))
    draw = np.random.default_rng(seed)
    rows = (draw.standard_normal((200, hidden)) @ np.diag(draw.uniform(0.1, 4, hidden)) + 3).astype("f4")

    whitened = _fitted("whitening", rows, width)(rows).astype("f8")

    np.testing.assert_allclose(whitened.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(np.atleast_2d(np.cov(whitened.T, bias=True)), np.eye(width), atol=1e-3)


@settings(max_examples=30, deadline=None)
@given(hidden=st.integers(2, 16), data=st.data(), seed=st.integers(0, 2**31))
def test_pca_keeps_the_most_variance_that_so_many_directions_can(hidden: int, data: st.DataObject, seed: int) -> None:
    width = data.draw(st.integers(1, hidden))
    draw = np.random.default_rng(seed)
    rows = (draw.standard_normal((100, hidden)) @ np.diag(draw.uniform(0.1, 4, hidden)) - 2).astype("f4")

    kept = _fitted("pca", rows, width)(rows)

    singular = np.linalg.svd(rows.astype("f8") - rows.mean(axis=0, dtype="f8"), compute_uv=False)
    np.testing.assert_allclose(np.square(kept, dtype="f8").sum(axis=0), np.square(singular[:width]), rtol=1e-3)


@settings(max_examples=20, deadline=None)
@given(power=st.floats(0, 1), seed=st.integers(0, 2**31))
def test_a_power_of_pca_leaves_each_component_its_deviation_to_what_is_left_of_1(power: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = (draw.standard_normal((100, 6)) @ np.diag(draw.uniform(0.1, 4, 6)) - 2).astype("f4")
    plain = _fitted("pca", rows, 4)(rows).std(axis=0)

    made = _fitted("pca", rows, 4, power=power)

    np.testing.assert_allclose(made(rows).std(axis=0), plain ** (1 - power), rtol=1e-3)
    np.testing.assert_allclose(made.narrowed(2)(rows), _fitted("pca", rows, 2, power=power)(rows), atol=1e-4)


def test_the_powers_0_and_1_are_pca_and_whitening() -> None:
    rows = np.array([[2, 0], [-2, 0], [0, 1], [0, -1]], "f4")  # deviations: the roots of 2 and 1/2

    half = _fitted("pca", rows, 2, power=0.5)

    np.testing.assert_allclose(np.abs(half(rows[[0, 2]])), [[2 * 2**-0.25, 0], [0, 2**0.25]], atol=1e-6)
    assert _fitted("pca", rows, 2, power=1).to_bytes() == _fitted("whitening", rows, 2).to_bytes()


@pytest.mark.parametrize("name", ["whitening", "pca"])
def test_more_directions_than_vary_are_refused(name: str) -> None:
    rows = np.random.default_rng(0).standard_normal((6, 16)).astype("f4")

    assert message_of(SpecError, lambda: _fitted(name, rows, 6)) == (
        f"`filter`: filter '{name}' is to keep 6 directions, and the 6 chunks that it is fitted on vary in 5\n"
        "  hint: give a smaller `dim`, a larger `filter_sample` or a larger corpus, or take another filter"
    )
    assert _fitted(name, rows, 5).dim == 5


def test_a_direction_of_rounding_alone_does_not_vary() -> None:
    draw = np.random.default_rng(0)
    rows = draw.standard_normal((100, 8)) + 1000
    rows[:, 5] = 7 + 1e-5 * draw.standard_normal(100)

    with pytest.raises(SpecError, match="and the 100 chunks that it is fitted on vary in 7"):
        _fitted("whitening", rows.astype("f4"), 8)


def test_equal_chunks_vary_in_nothing() -> None:
    with pytest.raises(SpecError, match="vary in 0"):
        _fitted("pca", np.ones((9, 4), "f4"), 1)


def test_tokens_are_counted_up_to_the_rows_of_the_head() -> None:
    assert FilterSample(ids=[[1, 1, 4], [], [0, 9]]).token_counts(5).tolist() == [1, 2, 0, 0, 1]


@pytest.mark.parametrize(
    ("sample", "what"),
    [
        (FilterSample(embeddings=np.zeros((3, 4), "f4")), "embedding"),
        (FilterSample(embeddings=np.zeros((0, 4), "f4")), "embedding"),
        (FilterSample(ids=[[], []]), "token"),
        (FilterSample(ids=[[12, 99]]), "token"),
    ],
)
def test_a_sample_of_nothing_is_refused(sample: FilterSample, what: str) -> None:
    assert message_of(
        SpecError, lambda: sample.components(1, "pca") if what == "embedding" else sample.token_counts(10)
    ) == (f"`filter`: the sample of the corpus has no {what} to fit a filter on\n  hint: take another filter")
