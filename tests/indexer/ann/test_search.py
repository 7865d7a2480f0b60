"""Making and searching: scores are exact whatever finds the rows, and conditions and short answers are helped out."""

from __future__ import annotations

import numpy as np
import pytest

from ragidx.indexer.ann import making
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.faiss_files import exact_index
from ragidx.indexer.ann.index_types import Effort, Recipe
from ragidx.indexer.store.files import VECTORS

ROWS, DIM = 300, 8
GRAPH = Recipe.parse("HNSW16")
BEAM = Effort(beam=64)


def by_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows there are, the index is searched."""
    monkeypatch.setattr(ann, "cost_of", lambda *_: 0)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What each search that follows was done by, in turn."""
    done: list[str] = []
    for name in ("_approximate", "search_exact"):
        function = getattr(ann, name)

        def noted(*asked, function=function, name=name):
            done.append(name.strip("_"))
            return function(*asked)

        monkeypatch.setattr(ann, name, noted)
    return done


@pytest.fixture
def small(tmp_path, ann_kit):
    """Mapped vectors, 300 of 8 dimensions, and a graph over them."""
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(ROWS, DIM))
    return vectors, ann_kit.open(ann_kit.make(tmp_path, str(GRAPH), vectors), str(GRAPH), vectors)


@pytest.mark.wheel
def test_mapped_search_equals_search_in_memory(small, ann_kit):
    memory = exact_index(DIM, [ann_kit.clustered(ROWS, DIM).astype("f2")])
    queries = ann_kit.clustered(5, DIM, seed=1)

    mapped = ann.search_exact(small[0], queries, 7, None)

    for one, other in zip(mapped, ann.search_exact(memory, queries, 7, None), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_not_there_is_minus_one_and_minus_infinity(small, ann_kit):
    allowed = np.zeros(ROWS, np.bool_)
    allowed[[3, 250]] = True

    scores, rows = ann.search_exact(small[0], ann_kit.clustered(1, DIM, seed=1), 4, allowed)

    assert (sorted(rows[0, :2]), rows[0, 2:].tolist()) == ([3, 250], [-1, -1])
    assert scores[0, 2:].tolist() == [-np.inf, -np.inf]


def test_a_graph_that_reaches_too_few_rows_is_helped_out_by_the_exact_index(small, ann_kit):
    vectors, graph = small

    _, rows = ann.search(graph, GRAPH, BEAM, vectors, ann_kit.clustered(3, DIM, seed=1), ROWS, None)

    assert [sorted(found) for found in rows.tolist()] == [list(range(ROWS))] * 3


def test_a_graph_that_many_rows_pass_is_used_and_gives_allowed_rows_only(small, ann_kit, monkeypatch):
    by_the_index(monkeypatch)
    vectors, graph = small
    allowed, queries = np.arange(ROWS) % 3 == 0, ann_kit.clustered(10, DIM, seed=1)

    scores, rows = ann.search(graph, GRAPH, BEAM, vectors, queries, 5, allowed)

    exact = ann.search_exact(vectors, queries, 5, allowed)
    assert (rows % 3 == 0).all()
    assert np.mean(rows == exact[1]) > 0.95
    assert (np.diff(scores, axis=1) <= 0).all()


SIZES = (2000, pytest.param(12_000, marks=pytest.mark.slow))
RECIPES = (
    *("HNSW16", "IVF64,SQfp16", "IVF64,SQ8", "RR,IVF64,RaBitQ", "SQ8", "PQ16x4fs", "IVF64,PQ16x4fs"),
    *("IVF64,SQ6", "IVF64,SQ4", "IVF64,PQ8", "IVF64,RaBitQ4", "SQ4", "RaBitQ", "RaBitQ4", "RR,IVF64,PQ8", "RaBitQfs"),
    *("RR,PQ16x4fs", "IVF64,RaBitQfs"),
)
EVERY = [*RECIPES[:7], *(pytest.param(name, marks=pytest.mark.slow) for name in RECIPES[7:])]


@pytest.fixture(scope="module", params=SIZES)
def clustered(request, ann_kit, tmp_path_factory):
    """Rows of 32 dimensions around 200 centres, and `clustered(factory)`: what was made of them, mapped."""
    folder = tmp_path_factory.mktemp("clustered")
    vectors = ann_kit.write(folder, ann_kit.clustered(request.param))
    return vectors, ann_kit.maker(folder, vectors)


def recall(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), exact.tolist(), strict=True)]))


@pytest.fixture(scope="module")
def wide(ann_kit, tmp_path_factory):
    """Rows of 32 dimensions around 200 centres, 6,000 of them, and a graph over them."""
    folder = tmp_path_factory.mktemp("wide")
    vectors = ann_kit.write(folder, ann_kit.clustered(6000))
    return vectors, ann_kit.open(ann_kit.make(folder, str(GRAPH), vectors), str(GRAPH), vectors)


@pytest.mark.slow
def test_one_deleted_row_does_not_turn_a_graph_off(wide, ann_kit, searches):
    vectors, graph = wide
    queries = ann_kit.clustered(50, seed=7)
    best = ann.search_exact(vectors, queries, 1, None)[1][:, 0]
    searches.clear()
    allowed = np.ones(6000, np.bool_)
    allowed[best[0]] = False

    _, rows = ann.search(graph, GRAPH, BEAM, vectors, queries, 10, allowed)

    assert searches == ["approximate"]
    assert best[0] not in rows
    assert recall(rows, ann.search_exact(vectors, queries, 10, allowed)[1]) > 0.95


@pytest.mark.slow
def test_a_mask_that_all_rows_pass_is_none(wide, ann_kit):
    vectors, graph = wide
    queries = ann_kit.clustered(5, seed=7)

    masked = ann.search(graph, GRAPH, BEAM, vectors, queries, 10, np.ones(6000, np.bool_))

    for one, other in zip(masked, ann.search(graph, GRAPH, BEAM, vectors, queries, 10, None), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("k", "share", "by"), [
    (10, 1.0, "approximate"), (20, 1.0, "approximate"), (500, 1.0, "search_exact"),
    (10, 0.9, "approximate"), (10, 0.2, "search_exact"),
])  # fmt: skip
def test_more_hits_and_fewer_rows_are_answered_by_what_costs_less(wide, ann_kit, searches, k, share, by):
    vectors, graph = wide
    allowed = None if share == 1 else np.random.default_rng(0).random(6000) < share

    ann.search(graph, GRAPH, BEAM, vectors, ann_kit.clustered(1, seed=7), k, allowed)

    assert searches == [by]


def test_ten_hits_are_those_the_index_was_tuned_for_whatever_they_cost(small, ann_kit, searches):
    vectors, graph = small

    for k in (10, 11):
        ann.search(graph, GRAPH, BEAM, vectors, ann_kit.clustered(1, DIM, seed=1), k, None)

    assert searches == ["approximate", "search_exact"]


def test_a_question_whose_neighbours_are_all_deleted_gets_the_best_of_the_others(wide, ann_kit, searches):
    """As after the deletion of a whole topic: what the search passed on its way there is no answer."""
    vectors, graph = wide
    query = ann_kit.clustered(1, seed=7)
    near = ann.search_exact(vectors, query, 500, None)[1][0]
    allowed = np.ones(6000, np.bool_)
    allowed[near] = False
    exact = ann.search_exact(vectors, query, 10, allowed)
    searches.clear()

    scores, rows = ann.search(graph, GRAPH, BEAM, vectors, query, 10, allowed)

    assert searches == ["approximate", "search_exact"]
    np.testing.assert_array_equal(rows, exact[1])
    np.testing.assert_array_equal(scores, exact[0])


@pytest.mark.parametrize(
    ("recipe", "effort", "cost"),
    [
        ("HNSW16", Effort(beam=100), 40 * 100 + 80),
        ("HNSW32", Effort(beam=100), 80 * 100 + 80),
        ("HNSW16", Effort(beam=1), 40 * 10 + 0.8),  # never fewer in view than hits
        ("HNSW16", Effort(beam=10**6), 40 * 1000 + 8000),  # never more than rows
        ("IVF64,SQfp16", Effort(lists=16), 250 + 50),
        ("IVF64,SQ8", Effort(lists=16, factor=4), 125 + 200),
        ("IVF64,SQ8", Effort(lists=200, factor=400), 500 + 5000),
        ("SQ8", Effort(factor=4), 500 + 200),
        ("PQ96x4fs", Effort(factor=16), 100 + 800),
    ],
)
def test_what_a_search_costs_by_hand(recipe, effort, cost):
    assert ann.cost_of(Recipe.parse(recipe), effort, 1000, 384, 10) == pytest.approx(cost)


@pytest.mark.parametrize(("count", "cost"), [(0, 30), (100, 260), (421, 998.3), (500, 1000)])
def test_what_an_exact_search_of_some_of_a_thousand_rows_costs_by_hand(count, cost):
    assert ann.exact_cost(count, 1000) == pytest.approx(cost)


def test_rows_from_anywhere_take_as_long_where_they_are_narrow():
    """Of 1,000 rows 40 are compared again: 200 rows' time at 384 dimensions, 800 at 96; a graph is costed as at 384."""
    lists, graph = Recipe.parse("IVF64,SQ8"), Recipe.parse("HNSW16")

    costs = [ann.cost_of(lists, Effort(lists=16, factor=4), 1000, dim, 10) for dim in (1024, 384, 96)]

    assert costs == [325, 325, 925]
    assert ann.cost_of(graph, BEAM, 1000, 96, 10) == ann.cost_of(graph, BEAM, 1000, 384, 10)


@pytest.mark.parametrize("factory", ["IVF64,SQ4", "RR,IVF64,RaBitQ", "SQ4"])
def test_fewer_than_ten_hits_are_the_first_of_the_ten(clustered, ann_kit, factory):
    """As many codes are compared again for one hit as the index was tuned with for ten."""
    vectors, make = clustered
    queries, effort = ann_kit.clustered(50, seed=7), Effort(lists=24, factor=2)
    ten = ann.search(make(factory), Recipe.parse(factory), effort, vectors, queries, 10, None)

    for k in (1, 3):
        few = ann.search(make(factory), Recipe.parse(factory), effort, vectors, queries, k, None)

        for one, other in zip(few, ten, strict=True):
            np.testing.assert_array_equal(one, other[:, :k])


@pytest.mark.parametrize("factory", EVERY)
def test_more_hits_than_rows_are_all_rows(tmp_path, ann_kit, factory):
    factory = factory.replace("IVF64", "IVF4")
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(300))
    index = ann_kit.open(ann_kit.make(tmp_path, factory, vectors), factory, vectors)

    scores, rows = ann.search(
        index, Recipe.parse(factory), Effort(beam=10, lists=1), vectors, ann_kit.clustered(3, seed=1), 400, None
    )

    exact = ann.search_exact(vectors, ann_kit.clustered(3, seed=1), 400, None)
    np.testing.assert_allclose(scores, exact[0], atol=1e-6)
    assert [sorted(one) for one in rows.tolist()] == [[-1] * 100 + list(range(300))] * 3


def test_equal_rows_stand_in_the_order_of_their_numbers(tmp_path, ann_kit):
    vectors = ann_kit.write(tmp_path, np.tile(ann_kit.clustered(20), (20, 1)))
    index = ann_kit.open(ann_kit.make(tmp_path, "IVF4,SQ8", vectors), "IVF4,SQ8", vectors)

    _, rows = ann.search(
        index, Recipe.parse("IVF4,SQ8"), Effort(lists=4, factor=8), vectors, ann_kit.clustered(20), 20, None
    )

    assert [one[0] for one in rows.tolist()] == list(range(20))
    assert (np.diff(rows, axis=1) == 20).all()


@pytest.mark.parametrize("dim", [1, 7, 65])
@pytest.mark.parametrize(
    "factory",
    ["HNSW4", "SQ4", "IVF4,SQ6", "IVF4,PQ1", "RR,IVF4,RaBitQ", "RaBitQ4", "PQ1x4fs", "RaBitQfs", "IVF4,RaBitQfs"],
)
def test_odd_widths_are_made_and_searched(tmp_path, ann_kit, factory, dim):
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(400, dim))
    index = ann_kit.open(ann_kit.make(tmp_path, factory, vectors), factory, vectors)
    queries = ann_kit.clustered(10, dim, seed=3)

    scores, rows = ann.search(index, Recipe.parse(factory), Effort(100, 4, 40), vectors, queries, 10, None)

    exact = ann.search_exact(vectors, queries, 10, None)
    assert recall(rows, exact[1]) > 0.9 or dim == 1  # of one number all are 1 or -1
    np.testing.assert_allclose(scores[:, 0], exact[0][:, 0], atol=1e-3)


def test_nothing_asked_is_nothing_found(small):
    vectors, graph = small

    scores, rows = ann.search(graph, GRAPH, BEAM, vectors, np.zeros((0, DIM), np.float32), 5, None)

    assert (scores.shape, rows.shape) == ((0, 5), (0, 5))


def test_how_many_rows_are_in_is_told_block_by_block(tmp_path, ann_kit, monkeypatch):
    monkeypatch.setattr(making, "_BLOCK_BYTES", 4 * 32 * 128)
    ann_kit.write(tmp_path, ann_kit.clustered(300))
    told: list[int] = []

    index = making.make(Recipe.parse("HNSW8"), tmp_path / VECTORS, 32, 300, told.append)

    assert (told, index.ntotal) == ([128, 256, 300], 300)
