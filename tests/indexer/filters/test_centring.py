"""Filters that take the mean of documents off documents, and that of questions off questions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.filters.fitting import N_QUESTIONS, FilterSample, as_questions
from ragidx.indexer.specs import FilterSpec, requirements

from ...raising import message_of


def _drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


# the map


def test_each_side_loses_its_own_mean_before_the_map() -> None:
    matrix = np.array([[1.0, 0], [0, 2], [3, 0]], np.float32)

    made = Filter(matrix).centred(np.array([1.0, 1, 0]), np.array([0.0, 1, 1]))

    row = np.array([[2.0, 3, 1]], np.float32)  # less (1, 1, 0) it is (1, 2, 1), less (0, 1, 1) it is (2, 2, 0)
    assert made(row).tolist() == [[4, 4]]
    assert made.of_queries()(row).tolist() == [[2, 4]]


def test_a_filter_without_a_mean_of_questions_is_the_same_for_them() -> None:
    made = Filter(np.eye(3, dtype=np.float32), shift=np.ones(3))

    assert made.of_queries() is made


@settings(max_examples=40)
@given(hidden=st.integers(1, 12), data=st.data(), seed=st.integers(0, 99))
def test_a_prefix_is_the_narrower_filter_on_both_sides(hidden: int, data: st.DataObject, seed: int) -> None:
    width = data.draw(st.integers(1, hidden))
    dim = data.draw(st.integers(1, width))
    rows, matrix = _drawn(seed, 5, hidden), _drawn(seed + 1, hidden, width)
    whole = Filter(matrix, np.arange(width)).centred(_drawn(seed + 2, hidden), _drawn(seed + 3, hidden))

    narrow = Filter.from_bytes(whole.narrowed(dim).to_bytes())

    assert narrow.columns is not None
    assert narrow.columns.tolist() == list(range(dim))
    np.testing.assert_allclose(narrow(rows), whole(rows)[:, :dim], atol=1e-5)
    np.testing.assert_allclose(narrow.of_queries()(rows), whole.of_queries()(rows)[:, :dim], atol=1e-5)


def test_a_zero_embedding_stays_zero_on_both_sides() -> None:
    made = Filter(np.eye(3, dtype=np.float32)).centred(np.ones(3), np.ones(3))

    assert not made(np.zeros((1, 3))).any()
    assert not made.of_queries()(np.zeros((1, 3))).any()


# the means


def test_means_skip_embeddings_of_nothing() -> None:
    sample = FilterSample(embeddings=np.array([[1, 3], [0, 0], [3, 5]]), questions=np.array([[0, 0], [4, 4]]))

    documents, questions = sample.means()

    assert (documents.tolist(), questions.tolist()) == ([2, 4], [4, 4])


def test_a_sample_of_nothing_has_no_mean() -> None:
    sample = FilterSample(embeddings=np.ones((2, 3)), questions=np.zeros((2, 3)))

    assert message_of(SpecError, sample.means) == (
        "`filter`: the sample of the corpus has no embedding to fit a filter on\n  hint: take another filter"
    )


# what stands for questions


def test_a_sentence_of_each_text_stands_for_a_question() -> None:
    long = "This sentence has more than thirty characters. Short. And this one has more than thirty, too."

    drawn = as_questions(["", long, "Too short.", "  "], seed=0)

    assert drawn[0] in (long[:47].strip(), long[54:])
    assert drawn[1:] == ["Too short."]


def test_no_more_than_three_hundred_are_drawn_and_none_is_long() -> None:
    drawn = as_questions((f"{number} " + "word " * 200 for number in range(1000)), seed=0)

    assert (len(drawn), max(map(len, drawn))) == (N_QUESTIONS, 300)


def test_another_seed_draws_other_sentences() -> None:
    texts = [" ".join(f"Sentence {n} of text {text} is long enough." for n in range(9)) for text in range(9)]

    assert as_questions(texts, 0) == as_questions(texts, 0) != as_questions(texts, 1)


# the spec


def test_an_older_index_has_the_fingerprint_that_it_had() -> None:
    assert "center" not in FilterSpec("embedfilter", tau=2).decisive()
    assert "center" in FilterSpec("embedfilter", tau=2, center=True).decisive()


def test_a_head_is_not_centred() -> None:
    assert message_of(SpecError, lambda: FilterSpec("head:a", center=True)) == (
        "`filter.center`: a trained head has its own mean, of the texts that it was trained on\n"
        "  hint: remove `filter.center`"
    )


def test_the_sample_of_a_mean_has_a_seed_and_a_size() -> None:
    assert FilterSpec("embedfilter", tau=2, center=True, seed=3, sample=50).fitted == "the mean"
    with pytest.raises(SpecError, match="filter 'embedfilter' has no seed"):
        FilterSpec("embedfilter", tau=2, seed=3)


@pytest.mark.parametrize(
    ("stored", "needed"),
    [
        ({}, ()),
        ({"filter": {"name": "embedfilter"}}, ()),
        ({"filter": {"name": "embedfilter", "center": True}}, ("centred filter",)),
        ({"filter": {"name": "head:0123456789abcdef"}}, ("trained head",)),
        ({"filter": {"name": "none", "adapted": "0123456789abcdef"}}, ("adapted filter",)),
    ],
)
def test_an_index_says_what_its_reader_must_know(stored: dict[str, object], needed: tuple[str, ...]) -> None:
    assert requirements(stored) == needed
