"""The filters that EmbedFilter is compared with: what each keeps, by hand and in general. tests/golden has numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.encoders.methods import filter_spec, resolve
from ragidx.indexer.filters import filter as filters
from ragidx.indexer.filters.filter import MAKERS, Filter, make_filter
from ragidx.indexer.filters.fitting import FilterSample
from ragidx.indexer.filters.logits import average_of_log_p, delta, top_tokens
from ragidx.indexer.filters.unembedding import find_unembedding, spectrum_of
from ragidx.indexer.models.locate import locate
from ragidx.indexer.specs import FILTERS, FilterSpec

from ...raising import message_of

BASELINES = sorted(set(FILTERS) - {"embedfilter", "none"})
OF_THE_HEAD = [name for name in BASELINES if FILTERS[name].head]


@pytest.fixture
def model(tiny_model: Callable[..., Path]) -> Any:
    """A source of filters: a random model, 32 wide."""
    return SimpleNamespace(files=locate(str(tiny_model("llama"))), hidden=32)


@functools.cache
def _sample(seed: int = 0) -> FilterSample:
    """Of a corpus with a mean, in which directions vary unlike and tokens occur unlike."""
    random = np.random.default_rng(seed)
    embeddings = random.standard_normal((300, 32)) @ np.diag(np.linspace(3, 0.2, 32)) + 5
    ids = [random.zipf(1.6, 40).clip(0, 300).tolist() for _ in range(30)]
    return FilterSample(embeddings.astype("f4"), ids)


def _made(name: str, source: Any, **options: Any) -> Filter:
    made = make_filter(FilterSpec(name=name, **options), source, _sample())
    assert made is not None
    return made


# what each keeps


def test_every_filter_but_none_has_a_maker() -> None:
    assert set(MAKERS) == set(FILTERS) - {"none"}


def test_none_is_no_filter(model: Any) -> None:
    assert make_filter(FilterSpec(name="none"), model) is None


@pytest.mark.parametrize("dim", [8, 9, 31, 32])
def test_which_columns_are_kept(dim: int, model: Any) -> None:
    kept = {name: set(_made(name, model, dim=dim).columns) for name in ("truncation", "dominant", "secondary", "bulk")}

    both = {*range((dim + 1) // 2), *range(32 - dim // 2, 32)}
    assert kept == {
        "truncation": set(range(dim)),
        "dominant": set(range(32 - dim, 32)),
        "secondary": set(range(dim)),
        "bulk": both,
    }


@pytest.mark.parametrize("dim", [8, 24])
def test_bulk_and_embedfilter_share_out_the_spectrum(dim: int, model: Any) -> None:
    bulk, middle = _made("bulk", model, dim=dim), _made("embedfilter", model, dim=32 - dim)

    assert sorted([*bulk.columns, *middle.columns]) == list(range(32))


@pytest.mark.parametrize("name", OF_THE_HEAD)
def test_filters_of_the_spectrum_hold_its_directions(name: str, model: Any) -> None:
    made = _made(name, model, dim=10)

    assert np.array_equal(made.matrix, spectrum_of(model.files).directions[:, made.columns].astype("f4"))
    assert made.shift is None


def test_truncation_and_random_take_coordinates_as_they_are(model: Any) -> None:
    rows = np.random.default_rng(0).standard_normal((3, 32)).astype("f4")

    for name in ("truncation", "random"):
        made = _made(name, model, dim=7)
        assert np.array_equal(made(rows), rows[:, made.columns])


@settings(max_examples=40, deadline=None)
@given(hidden=st.integers(1, 40), data=st.data())
def test_what_is_drawn_is_sorted_and_follows_from_the_seed(hidden: int, data: st.DataObject) -> None:
    width, seed = data.draw(st.integers(1, hidden)), data.draw(st.integers())

    drawn = filters.drawn_columns(hidden, width, seed)

    assert len(set(drawn)) == width
    assert sorted(drawn) == drawn.tolist()
    assert {*drawn} <= {*range(hidden)}
    assert np.array_equal(drawn, filters.drawn_columns(hidden, width, seed))


def test_the_drawn_columns_of_a_seed_are_the_same_in_every_version() -> None:
    assert filters.drawn_columns(12, 5, 0).tolist() == [1, 4, 5, 8, 9]
    assert filters.drawn_columns(12, 5, 1).tolist() == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("name", ["random", "random-directions"])
def test_another_seed_draws_other_columns(name: str, model: Any) -> None:
    assert _made(name, model, dim=12).columns.tolist() == _made(name, model, dim=12, seed=0).columns.tolist()
    assert _made(name, model, dim=12).columns.tolist() != _made(name, model, dim=12, seed=1).columns.tolist()


def test_every_column_is_drawn_about_as_often_as_any_other() -> None:
    often = np.bincount(np.concatenate([filters.drawn_columns(16, 4, seed) for seed in range(800)]), minlength=16)

    assert often.min() > 140  # 200 each are expected; the standard deviation is 12
    assert often.max() < 260


@pytest.mark.parametrize("name", [name for name in FILTERS if FILTERS[name].nested and name != "none"])
@pytest.mark.parametrize("narrow", [1, 6, 9])
def test_the_first_numbers_are_the_vector_of_the_narrower_filter(name: str, narrow: int, model: Any) -> None:
    rows = np.random.default_rng(0).standard_normal((4, 32))

    wide, narrower = _made(name, model, dim=13), _made(name, model, dim=narrow)

    np.testing.assert_allclose(wide(rows)[:, :narrow], narrower(rows), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in FILTERS if not FILTERS[name].nested])
def test_of_drawn_columns_the_first_are_not_the_narrower_draw(name: str, model: Any) -> None:
    assert _made(name, model, dim=13).columns.tolist()[:6] != _made(name, model, dim=6).columns.tolist()


@pytest.mark.parametrize("name", ["embedfilter", *BASELINES])
def test_a_filter_at_full_width_keeps_every_distance_but_for_whitening(name: str, model: Any) -> None:
    rows = np.random.default_rng(1).standard_normal((6, 32)).astype("f4")

    made = _made(name, model, tau=1)

    ours, theirs = (np.linalg.norm(each[:, None] - each[None], axis=-1) for each in (made(rows), rows))
    assert np.allclose(ours, theirs, atol=1e-4) is (name != "whitening")


@pytest.mark.parametrize("name", ["embedfilter", *BASELINES])
def test_every_filter_goes_to_bytes_and_back(name: str, model: Any) -> None:
    rows = np.random.default_rng(2).standard_normal((5, 32))
    made = _made(name, model, dim=9)

    again = Filter.from_bytes(made.to_bytes())

    assert np.array_equal(again(rows), made(rows))
    assert again.to_bytes() == made.to_bytes()
    assert again.columns is None if made.columns is None else again.columns.tolist() == made.columns.tolist()
    assert (made.shift is not None) is (name in ("whitening", "pca"))


# optimal


@pytest.mark.parametrize(("name", "size"), [("optimal", lambda effect: effect), ("optimal-abs", np.abs)])
def test_optimal_keeps_what_moves_the_frequent_tokens_least(name: str, size: Any, model: Any) -> None:
    head, spectrum, sample = find_unembedding(model.files), spectrum_of(model.files), _sample()
    counts = sample.token_counts(head.shape[0])
    log_p = np.log((counts + 1) / (counts + 1).sum())

    made = _made(name, model, dim=11, topk=7)

    effect = size(delta(head, spectrum, average_of_log_p(head, spectrum, log_p), top_tokens(counts, 7)))
    assert made.columns.tolist() == np.argsort(effect, kind="stable")[:11].tolist()


def test_tokens_that_never_occur_are_not_frequent_however_many_are_asked_for(model: Any) -> None:
    sample = FilterSample(ids=[[5, 5, 5, 9]])

    few = make_filter(FilterSpec(name="optimal", dim=8, topk=2), model, sample)
    many = make_filter(FilterSpec(name="optimal", dim=8, topk=10_000), model, sample)

    assert few is not None
    assert many is not None
    assert few.columns.tolist() == many.columns.tolist()


# what is asked for


def test_the_others_keep_half_of_the_width_where_nothing_is_said(tiny_model: Callable[..., Path]) -> None:
    files = locate(str(tiny_model("llama")))
    encoder = resolve(files)

    for name in BASELINES:
        assert filter_spec(files, encoder, FilterSpec(name)) == FilterSpec(name=name, tau=2)
        assert filter_spec(files, encoder, FilterSpec(name, dim=7)) == FilterSpec(name=name, dim=7)
    assert filter_spec(files, encoder, FilterSpec("embedfilter")) == FilterSpec(tau=2)  # the default filter's
    assert filter_spec(files, encoder, FilterSpec("none")) == FilterSpec(name="none")


def test_the_offset_of_a_preset_is_embedfilters_alone() -> None:
    files = locate("mini-decoder")

    assert filter_spec(files, resolve(files), FilterSpec("secondary", dim=64)) == FilterSpec(name="secondary", dim=64)
    assert filter_spec(files, resolve(files), FilterSpec("embedfilter", dim=64)) == FilterSpec(dim=64, offset=1)


def test_a_seed_alone_belongs_to_no_filter() -> None:
    files = locate("mini-decoder")

    with pytest.raises(SpecError, match="filter 'embedfilter' has no seed"):
        filter_spec(files, resolve(files), FilterSpec(seed=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"name": "bulk", "offset": 3},
            "`filter.offset`: filter 'bulk' has no offset\n"
            "  hint: remove `filter.offset`, or take a filter that has one: embedfilter",
        ),
        (
            {"name": "truncation", "seed": 3},
            "`filter.seed`: filter 'truncation' has no seed\n  hint: remove `filter.seed`, or take a filter that has"
            " one: random, random-directions, optimal, optimal-abs, whitening, pca",
        ),
        (
            {"name": "random", "sample": 9},
            "`filter.sample`: filter 'random' has no sample\n  hint: remove `filter.sample`, or take a filter that"
            " has one: optimal, optimal-abs, whitening, pca",
        ),
        (
            {"name": "pca", "topk": 9},
            "`filter.topk`: filter 'pca' has no topk\n"
            "  hint: remove `filter.topk`, or take a filter that has one: optimal, optimal-abs",
        ),
        (
            {"name": "pca", "sample": 1},
            "`filter.sample`: in a sample of 1 nothing varies\n  hint: give 2 or more",
        ),
        (
            {"name": "optimal", "topk": 0},
            "`filter.topk`: topk=0 counts no token\n  hint: give 1 or more",
        ),
        (
            {"name": "pca", "power": 1.5},
            "`filter.power`: power=1.5 is out of range\n  hint: give 0, plain PCA, to 1, whitening",
        ),
        (
            {"name": "whitening", "power": 0.5},
            "`filter.power`: filter 'whitening' has no power\n"
            "  hint: remove `filter.power`, or take a filter that has one: pca",
        ),
        (
            {"name": "whitning"},
            "unknown filter 'whitning'; did you mean 'whitening'?\n  hint: known: bulk, dominant, embedfilter, "
            "head:FILE, none, optimal, optimal-abs, pca, random, random-directions, secondary, truncation, whitening",
        ),
    ],
)
def test_options_that_a_filter_does_not_have_are_refused(options: dict[str, Any], message: str) -> None:
    assert message_of(SpecError, lambda: FilterSpec(**options)) == message


@pytest.mark.parametrize("name", ["embedfilter", *BASELINES])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 33}, "dim=33 is wider than the model, which has 32"),
        ({"tau": 33}, "tau=33 leaves nothing of 32 dimensions"),
        ({"tau": float("inf")}, "tau=inf leaves nothing of 32 dimensions"),
    ],
)
def test_a_width_that_the_model_does_not_have_is_refused(
    name: str, options: dict[str, Any], message: str, model: Any
) -> None:
    with pytest.raises(SpecError, match=message):
        _made(name, model, **options)


@pytest.mark.parametrize("name", ["embedfilter", *OF_THE_HEAD])
def test_a_model_without_a_head_has_no_filter_of_its_spectrum(name: str, tiny_sentence_transformer: Path) -> None:
    source = SimpleNamespace(files=locate(str(tiny_sentence_transformer)), hidden=32)

    with pytest.raises(ModelError, match="has no unembedding matrix, so it has no spectrum"):
        _made(name, source, dim=8)


@pytest.mark.parametrize("name", [name for name in BASELINES if not FILTERS[name].head])
def test_a_model_without_a_head_has_the_other_filters(name: str, tiny_sentence_transformer: Path) -> None:
    source = SimpleNamespace(files=locate(str(tiny_sentence_transformer)), hidden=32)

    assert _made(name, source, dim=8).matrix.shape == (32, 8)


@pytest.mark.parametrize("name", [name for name in BASELINES if FILTERS[name].calibrated])
def test_a_fitted_filter_without_a_corpus_is_refused(name: str, model: Any) -> None:
    assert message_of(SpecError, lambda: make_filter(FilterSpec(name=name, dim=4), model)) == (
        f"`filter`: filter '{name}' is fitted on a corpus, and there is none here\n"
        f"  hint: build an index with it, or take a filter that needs none"
    )
