"""Tuning: the least effort that reaches the recall asked for, measured with questions that lie off the rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann import index_types, making, tuning
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.index_types import Effort, IndexOptions, Recipe, TunedIndex, footprint_of
from ragidx.indexer.ann.tuning import choose, exact_answers, tune
from ragidx.indexer.store.files import VECTORS

from ...raising import message_of

pytestmark = pytest.mark.slow

ROWS, DIM = 2000, 32


@pytest.fixture(scope="module")
def stored(ann_kit, tmp_path_factory):
    """Mapped vectors, 2,000 of 32 dimensions around 200 centres, and where they lie."""
    folder = tmp_path_factory.mktemp("tuning")
    return ann_kit.write(folder, ann_kit.clustered(ROWS, DIM)), folder / VECTORS


@pytest.fixture
def any_size(monkeypatch) -> None:
    """An index is made of however few rows."""
    for module in (index_types, tuning):
        monkeypatch.setattr(module, "MIN_ROWS", 1)


def chosen(path: Path, options: IndexOptions, memory: int | None = None, rows: int = ROWS, dim: int = DIM):
    return choose(path, dim, rows, options, memory, lambda stage, count, done: None)


def refused(path: Path, options: IndexOptions, memory: int | None = None) -> str:
    return message_of(SpecError, lambda: chosen(path, options, memory))


def measured(stored, recipe: str, target: float) -> TunedIndex:
    vectors, path = stored
    made = Recipe.parse(recipe)
    return tune(making.make(made, path, DIM, ROWS), made, exact_answers(path, DIM, ROWS), vectors, target)


def test_exact_answers_are_those_of_numpy(stored, monkeypatch):
    monkeypatch.setattr(making, "_BLOCK_BYTES", 4 * DIM * 300)  # rows come in several blocks
    vectors, path = stored

    monkeypatch.setattr(tuning, "SAMPLE", 50)
    truth = exact_answers(path, DIM, ROWS)

    scores = truth.queries @ vectors.reconstruct_n(0, ROWS).T
    assert truth.queries.shape == (50, DIM)
    np.testing.assert_allclose(truth.tenth, np.sort(scores, axis=1)[:, -10], atol=1e-6)


@pytest.mark.parametrize("in_lists", [False, True])
def test_a_question_lies_off_the_row_that_it_is_made_of_and_nearest_to_it(tmp_path, ann_kit, in_lists):
    axes = np.concatenate([np.eye(DIM, dtype=np.float32), -np.eye(DIM, dtype=np.float32)])  # their mean is 0
    ann_kit.write(tmp_path, axes)

    queries = exact_answers(tmp_path / VECTORS, DIM, len(axes), in_lists=in_lists).queries

    scores = queries @ axes.T
    assert queries.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(queries, axis=1), 1, atol=1e-6)
    assert (np.abs(scores - tuning.TURNED).min(axis=1) < 1e-5).all()  # its own row is among those
    assert scores.max() < 0.95
    again = exact_answers(tmp_path / VECTORS, DIM, len(axes), in_lists=in_lists).queries
    np.testing.assert_array_equal(queries, again)


@pytest.mark.parametrize("in_lists", [False, True])
def test_questions_stay_where_the_rows_are(tmp_path, ann_kit, in_lists):
    """In a narrow cone, as the vectors of many decoders are, and without numbers in columns that only fill up."""
    rows = np.random.default_rng(0).standard_normal((500, DIM)).astype(np.float32)
    rows[:, 0], rows[:, -3:] = 40, 0
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    ann_kit.write(tmp_path, rows)

    queries = exact_answers(tmp_path / VECTORS, DIM, 500, in_lists=in_lists).queries

    own = (queries @ rows.T).max(axis=1)
    assert queries[:, 0].min() > 0.95
    assert own.max() < 1 - 1e-3
    assert not queries[:, -3:].any()


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_with_fewer_than_ten_rows_the_last_of_them_counts(tmp_path, ann_kit, rows):
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(rows, DIM))

    truth = exact_answers(tmp_path / VECTORS, DIM, rows)

    scores = truth.queries @ vectors.reconstruct_n(0, rows).T
    assert np.isfinite(truth.queries).all()
    np.testing.assert_allclose(truth.tenth, scores.min(axis=1), atol=1e-6)


@pytest.mark.parametrize(
    "recipe",
    [
        "HNSW8",
        "SQ4",
        "IVF32,SQfp16",
        *(pytest.param(name) for name in ("IVF32,SQ8", "RR,IVF32,RaBitQ", "IVF32,PQ8")),
    ],
)
def test_effort_grows_with_the_target_and_reaches_it(stored, recipe):
    found = [measured(stored, recipe, target) for target in (0.3, 0.8, 0.95, 0.999)]

    assert all(one.recall >= target for one, target in zip(found, (0.3, 0.8, 0.95, 0.999), strict=True))
    cost = [one.effort.beam + one.effort.lists * one.effort.factor + one.effort.factor for one in found]
    if recipe in ("HNSW8", "SQ4"):  # one ladder: what is taken does not depend on the time
        assert cost == sorted(cost)
    assert cost[-1] > cost[0]


@pytest.mark.parametrize("recipe", ["HNSW8", "SQ4", "IVF32,SQfp16"])
def test_the_same_rows_give_the_same_effort(stored, recipe):
    assert measured(stored, recipe, 0.95) == measured(stored, recipe, 0.95)


def test_one_step_less_effort_does_not_reach_the_target(stored):
    vectors, path = stored
    recipe = Recipe.parse("IVF32,SQfp16")
    index, truth = making.make(recipe, path, DIM, ROWS), exact_answers(path, DIM, ROWS)

    found = tune(index, recipe, truth, vectors, 0.95)

    (ladder,) = tuning._ladders(recipe)
    place = ladder.index(found.effort)
    assert place > 0
    assert tuning._recall(index, recipe, ladder[place - 1], truth, vectors) < 0.95 <= found.recall


def test_the_recall_is_the_share_of_the_exact_ten_by_hand(stored):
    vectors, path = stored
    recipe, effort = Recipe.parse("IVF32,SQfp16"), Effort(lists=2)
    index, truth = making.make(recipe, path, DIM, ROWS), exact_answers(path, DIM, ROWS)

    recall = tuning._recall(index, recipe, effort, truth, vectors)

    shares = []
    for query in truth.queries:
        _, exact = ann.search_exact(vectors, query[None], 10, None)
        _, found = ann.search(index, recipe, effort, vectors, query[None], 10, None)
        shares.append(len(set(exact[0].tolist()) & set(found[0].tolist())) / 10)
    assert recall == pytest.approx(np.mean(shares), abs=0.002)
    assert 0.2 < recall < 1


def test_equal_vectors_count_whichever_of_them_is_found(tmp_path, ann_kit):
    """Forty copies of each of fifty texts: any ten others of the same are as good as any."""
    vectors = ann_kit.write(tmp_path, np.repeat(ann_kit.clustered(50, DIM), 40, axis=0))
    recipe = Recipe.parse("IVF8,SQ8")
    index, truth = making.make(recipe, tmp_path / VECTORS, DIM, 2000), exact_answers(tmp_path / VECTORS, DIM, 2000)

    found = tune(index, recipe, truth, vectors, 1.0)

    assert found.recall == 1.0
    best = (truth.queries @ vectors.reconstruct_n(0, 2000).T).max(axis=1)
    np.testing.assert_allclose(truth.tenth, best, atol=1e-6)  # all forty copies have one score


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("name", ["hnsw", "ivf", "sq8", "rabitq", "ivfpq", "pq4", "ivfpq4"])
def test_a_type_by_name_is_made_and_reaches_the_target(stored, name):
    made = chosen(stored[1], IndexOptions(name, target_recall=0.9))

    assert made is not None
    index, _, found = made
    assert (index.ntotal, found.sample > 100, found.recall >= 0.9) == (ROWS, True, True)


@pytest.mark.usefixtures("any_size")
def test_small_segments_and_flat_and_auto_below_its_size_make_nothing(stored):
    for options in (IndexOptions("flat"), IndexOptions("auto"), IndexOptions("auto", target_recall=1.0)):
        assert chosen(stored[1], options) is None


def test_a_segment_below_the_least_size_is_compared_whole_even_where_memory_is_short(stored):
    assert chosen(stored[1], IndexOptions("hnsw"), memory=1) is None


@pytest.mark.usefixtures("any_size")
def test_a_recall_of_one_with_auto_is_exact_search_however_large(stored, monkeypatch):
    monkeypatch.setattr(index_types, "AUTO_FLAT_BYTES", 1)

    assert chosen(stored[1], IndexOptions("auto", target_recall=1.0)) is None
    made = chosen(stored[1], IndexOptions("auto", target_recall=0.9))
    assert made is not None
    assert str(made[2].recipe) == "PQ16x4fs"


@pytest.mark.usefixtures("any_size")
def test_auto_takes_the_first_that_fits_into_the_memory(stored, monkeypatch):
    for name in ("AUTO_FLAT_BYTES", "AUTO_CODE_BYTES"):
        monkeypatch.setattr(index_types, name, 1)

    for name in ("IVF32,PQ16x4fs", "PQ16x4fs"):
        memory = footprint_of(Recipe.parse(name), ROWS, DIM).memory_bytes
        made = chosen(stored[1], IndexOptions("auto", 0.9), memory)
        assert made is not None
        assert str(made[2].recipe) == name


@pytest.mark.usefixtures("any_size")
def test_memory_that_nothing_fits_into_is_told_with_what_is_needed(stored):
    assert refused(stored[1], IndexOptions("auto", max_memory=1000), 1000) == (
        "`max_memory`: 2,000 vectors of 32 dimensions take 1 MB as PQ16x4fs, more than `max_memory` leaves\n"
        "  hint: allow that much or take fewer dimensions (`dim`; give narrower vectors)"
    )
    assert refused(stored[1], IndexOptions("hnsw", max_memory=1000), 1000) == (
        "`max_memory`: 2,000 vectors of 32 dimensions take 1 MB as HNSW16, more than `max_memory` leaves\n"
        "  hint: allow that much, take fewer dimensions (`dim`; give narrower vectors), "
        "or leave the type to `index_type=auto`"
    )
    assert refused(stored[1], IndexOptions("auto", target_recall=1, max_memory=1000), 1000) == (
        "`max_memory`: 2,000 vectors of 32 dimensions take 1 MB as flat, more than `max_memory` leaves\n"
        "  hint: allow that much, take fewer dimensions (`dim`; give narrower vectors), "
        "or lower `target_recall`: at 1 every vector is "
        "compared, 0.99 lets codes be made"
    )
    assert "take 1 MB as flat, more" in refused(stored[1], IndexOptions("flat", max_memory=1000), 1000)


@pytest.mark.usefixtures("any_size")
def test_a_recall_that_nothing_reaches_is_told_with_what_was(stored, monkeypatch):
    monkeypatch.setattr(tuning, "_FACTORS", (1,))  # as codes that are too rough are, however many are compared again

    text = refused(stored[1], IndexOptions("RaBitQ", target_recall=0.999))

    first, hint = text.split("\n")
    assert first.startswith("`target_recall`: the index RaBitQ reaches a recall of 0.")
    assert first.endswith(", not the 0.999 asked for")
    assert hint == "  hint: lower `target_recall`, or take another `index_type`: exact search takes 1 MB, a graph 1 MB"


@pytest.mark.usefixtures("any_size")
def test_what_auto_may_not_take_for_want_of_memory_is_named_where_the_recall_is_not_reached(stored, monkeypatch):
    monkeypatch.setattr(index_types, "AUTO_FLAT_BYTES", 1)
    for name, value in (("_FACTORS", (1,)), ("_FACTOR_OF_ALL", 1)):
        monkeypatch.setattr(tuning, name, value)
    memory = footprint_of(Recipe.parse("PQ16x4fs"), ROWS, DIM).memory_bytes

    hint = refused(stored[1], IndexOptions("auto", 0.999, max_memory=memory), memory).split("\n")[1]

    assert hint == "  hint: lower `target_recall`, or allow more `max_memory`: exact search takes 1 MB, a graph 1 MB"


@pytest.mark.usefixtures("any_size")
def test_how_far_the_making_is_is_told_by_type_and_rows(stored, monkeypatch):
    monkeypatch.setattr(making, "_BLOCK_BYTES", 4 * DIM * 800)
    told = []

    choose(stored[1], DIM, ROWS, IndexOptions("sq8"), None, lambda *one: told.append(one))

    assert told == [("SQ8", ROWS, done) for done in (800, 1600, 2000)]
