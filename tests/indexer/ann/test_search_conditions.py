"""How a search under a condition goes: the attempts, in what order and until when."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.index_types import Effort, Recipe

ROWS, DIM, TOPICS = 6000, 32, 20
ASKED = TOPICS // 2  # topics that are asked about

TUNED = {  # the least effort that reaches 0.95 here, as `tuning` finds it
    "HNSW16": Effort(beam=32),
    "IVF64,SQfp16": Effort(lists=6),
    "IVF64,SQ8": Effort(lists=6),
    "PQ16x4fs": Effort(factor=8),
    "IVF64,PQ16x4fs": Effort(lists=6, factor=8),
}
CONDITIONS = ["follows", "opposes", "opposes, a tenth", "ignores", "ignores, a hundredth", "nearest deleted"]


def about(topics: np.ndarray, spread: float, rng: np.random.Generator) -> np.ndarray:
    """Unit vectors, each around the centre of its topic."""
    centres = np.random.default_rng(99).standard_normal((TOPICS, DIM))
    raw = centres[topics] + spread * rng.standard_normal((len(topics), DIM))
    return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def topics() -> np.ndarray:
    """The topic of each row."""
    return np.random.default_rng(0).integers(TOPICS, size=ROWS)


@pytest.fixture(scope="module")
def queries() -> np.ndarray:
    """Of the first half of the topics, farther off than their rows are."""
    rng = np.random.default_rng(7)
    return about(rng.integers(ASKED, size=40), 0.8, rng)


@pytest.fixture(scope="module")
def stored(topics, ann_kit, tmp_path_factory):
    """Mapped vectors, and `stored(factory)`: what was made of them, mapped."""
    folder = tmp_path_factory.mktemp("topics")
    vectors = ann_kit.write(folder, about(topics, 0.5, np.random.default_rng(1)))
    return vectors, ann_kit.maker(folder, vectors)


@pytest.fixture(scope="module")
def allowed(stored, topics, queries):
    """Condition -> the rows it leaves."""
    rng = np.random.default_rng(2)
    near = ann.search_exact(stored[0], queries, 30, None)[1]
    kept = np.ones(ROWS, np.bool_)
    kept[near] = False
    masks = topics < ASKED, topics >= ASKED, topics >= TOPICS - 2, rng.random(ROWS) < 0.5, rng.random(ROWS) < 0.01, kept
    return dict(zip(CONDITIONS, masks, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("factory", TUNED)
def test_what_a_condition_leaves_is_the_same_alone_and_in_a_batch_and_in_blocks(
    stored, queries, allowed, monkeypatch, factory
):
    (vectors, make), mask = stored, allowed["nearest deleted"]
    recipe, effort = Recipe.parse(factory), TUNED[factory]
    monkeypatch.setattr(ann, "cost_of", lambda *_: 0)

    together = ann.search(make(factory), recipe, effort, vectors, queries, 10, mask)
    single = [ann.search(make(factory), recipe, effort, vectors, query[None], 10, mask) for query in queries]
    monkeypatch.setattr(ann, "_BLOCK_FOUND", 200)
    blocks = ann.search(make(factory), recipe, effort, vectors, queries, 10, mask)

    np.testing.assert_array_equal(together[1], np.concatenate([rows for _, rows in single]))
    np.testing.assert_array_equal(together[1], blocks[1])
    np.testing.assert_allclose(together[0], np.concatenate([scores for scores, _ in single]), atol=1e-6)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """By what each search that follows was answered, and how many queries it had, in turn."""
    done: list[tuple[str, int]] = []
    for name, place in (("_approximate", 4), ("search_exact", 1)):
        function = getattr(ann, name)

        def noted(*given, function=function, name=name, place=place):
            done.append((name.strip("_"), len(given[place])))
            return function(*given)

        monkeypatch.setattr(ann, name, noted)
    return done


def test_a_query_whose_neighbours_are_deleted_is_asked_again_alone(stored, queries, asked, monkeypatch):
    """First for 10 hits and a margin, then for four times as many, which 30 dead rows are no longer most of."""
    monkeypatch.setattr(ann, "cost_of", lambda *_: 0)
    vectors, make = stored
    mask = np.ones(ROWS, np.bool_)
    mask[ann.search_exact(vectors, queries[:1], 30, None)[1][0]] = False
    others = [query for query in queries if (query @ queries[0]) < 0.5]
    batch = np.stack([queries[0], *others])
    exact = ann.search_exact(vectors, batch, 10, mask)[0]
    asked.clear()

    scores, _ = ann.search(
        make("IVF64,SQfp16"), Recipe.parse("IVF64,SQfp16"), Effort(lists=6), vectors, batch, 10, mask
    )

    assert len(others) > 10
    assert asked == [("approximate", len(batch)), ("approximate", 1)]
    np.testing.assert_allclose(scores[0], exact[0], atol=1e-6)


def test_a_query_that_finds_too_few_for_what_exact_search_costs_is_answered_by_that(stored, queries, allowed, asked):
    vectors, make = stored
    recipe, mask = Recipe.parse("IVF64,SQ8"), allowed["opposes"]

    ann.search(make("IVF64,SQ8"), recipe, TUNED["IVF64,SQ8"], vectors, queries, 10, mask)

    assert asked[0] == ("approximate", 40)
    assert asked[-1] == ("search_exact", asked[-2][1])
    tried = list(ann._attempts(recipe, TUNED["IVF64,SQ8"], 10, int(mask.sum()), ROWS))[: len(asked)]
    costs = np.cumsum([ann.cost_of(recipe, effort, ROWS, DIM, found) for found, effort in tried])
    assert costs[-2] < ann.exact_cost(int(mask.sum()), ROWS) <= costs[-1]  # less is spent in vain than on that


def test_attempts_by_hand():
    """Of 6,000 rows half are allowed: 10 pass of 20, with three deviations of 10 (1 - 1/2) 16.7 of 34."""
    tried = list(ann._attempts(Recipe(lists=64, code="SQ8"), Effort(lists=6, factor=2), 10, 3000, 6000))

    assert tried[0] == (34, Effort(lists=11, factor=2))  # 6 sqrt(3.34)
    assert tried[1] == (151, Effort(lists=24, factor=2))  # for an eighth: (10 + 8.9) / 0.125
    assert [found for found, _ in tried] == [34, 151, 619, 2490, 6000]


def test_without_a_condition_and_for_a_graph_there_is_one_attempt():
    lists, graph = Recipe(lists=64, code="SQ8"), Recipe(links=16)

    assert list(ann._attempts(lists, Effort(lists=6), 40, 6000, 6000)) == [(40, Effort(lists=12))]
    assert list(ann._attempts(graph, Effort(beam=50), 10, 6000, 6000)) == [(10, Effort(beam=50))]
    assert list(ann._attempts(graph, Effort(beam=50), 10, 3000, 6000)) == [(100, Effort(beam=100))]
    assert list(ann._attempts(graph, Effort(beam=50), 10, 30, 6000)) == [(6000, Effort(beam=10_000))]


@pytest.mark.slow
@given(rows=st.integers(1, 10**7), share=st.floats(0, 1), k=st.integers(1, 1000))
def test_each_attempt_finds_more_and_the_last_one_all(rows: int, share: float, k: int) -> None:
    count = max(1, int(share * rows))
    recipe = Recipe(code="SQ4")
    if count == rows:
        return

    found = [one for one, _ in ann._attempts(recipe, Effort(factor=4), min(k, count), count, rows)]

    assert found == sorted(set(found))
    assert found[0] >= min(rows, min(k, count) / (count / rows))
    assert found[-1] == rows
    assert len(found) < 15
