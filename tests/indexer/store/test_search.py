"""Searching a store: exact over segments, whatever is dead or not allowed, and the same order every time."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import QueryError
from ragidx.indexer.ann import index_types
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import segment_writer

from ...raising import message_of


def by_hand(store: Store, query: np.ndarray, k: int) -> list[int]:
    """The k best rows by numpy: score, then chunk id. Scores are rounded so that equal ones are equal."""
    ids = [row.chunk_id for row in store.rows(range(store.n_rows))]
    scores = np.round(store.vectors(range(store.n_rows)).astype("f8") @ query.astype("f8"), 6)
    order = sorted(range(len(ids)), key=lambda row: (-scores[row], ids[row]))
    return order[:k]


def test_search_equals_numpy_over_the_rounded_vectors(tmp_path, kit, monkeypatch):
    monkeypatch.setattr(segment_writer, "MAX_VECTOR_BYTES", 100 * 2 * kit.dim)
    kit.build(tmp_path / "index", {f"d{n}": [f"t{n} {part}" for part in range(7)] for n in range(50)})
    kit.build(tmp_path / "index", {f"d{n}": [f"t{n} {part}" for part in range(7)] for n in range(10, 50)})
    store, queries = Store.open(tmp_path / "index"), kit.queries(20)

    found = store.search(queries, 10)

    vectors = store.vectors(range(store.n_rows))
    assert len(store.segments) > 2
    assert found.scores.shape == (20, 10)
    np.testing.assert_allclose(found.scores, -np.sort(-(queries @ vectors.T), axis=1)[:, :10], atol=1e-6)
    assert found.rows == [by_hand(store, query, 10) for query in queries]


def test_more_hits_than_rows_gives_all_rows(tmp_path, kit):
    kit.build(tmp_path / "index", {"a": ["x", "y"], "b": ["z"]})

    found = Store.open(tmp_path / "index").search(kit.queries(1), 1_000_000_000)

    assert found.scores.shape == (1, 3)
    assert sorted(found.rows[0]) == [0, 1, 2]


def test_dead_rows_are_never_found(tmp_path, kit):
    kit.build(tmp_path / "index", {"a": ["x"], "b": ["y"]})
    kit.build(tmp_path / "index", {"a": ["x"]})
    store = Store.open(tmp_path / "index")

    found = store.search(kit.queries(1), 2)

    assert [row.doc_id for row in store.rows(found.rows[0])] == ["a"]
    assert (store.n_rows, store.stored.tolist(), found.scores.shape) == (1, [0], (1, 1))


def test_rows_that_are_not_allowed_are_never_found_and_k_others_are(tmp_path, kit):
    kit.build(tmp_path / "index", {f"d{n}": [f"t{n}"] for n in range(40)})
    kit.build(tmp_path / "index", {f"d{n}": [f"t{n}"] for n in range(60)})
    store = Store.open(tmp_path / "index")
    allowed = np.arange(store.n_rows) % 4 == 0

    found = store.search(kit.queries(3), 10, allowed)

    assert all(len(rows) == 10 and all(row % 4 == 0 for row in rows) for rows in found.rows)
    nothing = store.search(kit.queries(3), 10, np.zeros_like(allowed))
    assert nothing.rows == [[], [], []]


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(order=st.permutations(list("abcdefgh")), cut=st.integers(1, 7), k=st.integers(1, 8), same=st.integers(0, 8))
def test_equal_scores_stand_by_chunk_id_however_rows_are_spread(kit, order, cut, k, same):
    texts = {name: ["the same text" if position < same else f"own {name}"] for position, name in enumerate("abcdefgh")}
    query = kit.vectors(kit.rows("q", ["the same text"]))
    with tempfile.TemporaryDirectory() as folder:
        for end in (cut, 8):
            kit.build(Path(folder) / "index", {name: texts[name] for name in order[:end]})
        store = Store.open(Path(folder) / "index")

        rows = store.search(query, k).rows[0]

        assert [row.doc_id for row in store.rows(rows)][:same] == list("abcdefgh")[: min(k, same)]
        assert rows == by_hand(store, query[0], k)


@pytest.mark.slow
def test_a_thousand_equal_rows_give_the_first_chunk_ids(tmp_path, kit):
    kit.build(tmp_path / "index", {f"d{n:04d}": ["boilerplate", f"own {n}"] for n in reversed(range(1000))})
    store = Store.open(tmp_path / "index")

    rows = store.search(kit.vectors(kit.rows("q", ["boilerplate"])), 5).rows[0]

    assert [row.doc_id for row in store.rows(rows)] == ["d0000", "d0001", "d0002", "d0003", "d0004"]


def test_many_queries_at_once_equal_one_at_a_time(tmp_path, kit):
    kit.build(tmp_path / "index", {f"d{n}": [f"t{n}"] for n in range(30)})
    store, queries = Store.open(tmp_path / "index"), kit.queries(12)

    together = store.search(queries, 4)

    for row, query in enumerate(queries):
        alone = store.search(query[None], 4)
        assert alone.rows[0] == together.rows[row]
        np.testing.assert_array_equal(alone.scores[0], together.scores[row])


@pytest.mark.slow
def test_no_score_is_above_one_and_those_that_would_be_stand_by_chunk_id(tmp_path, kit):
    """float16 makes some vectors longer than 1, and a vector that asks as it stands is then nearer than a cosine is."""
    raw = np.array([2048, 2047, 2, 1, 0, 0, 0, 0])
    directions = np.stack([np.roll(raw, turn) for turn in range(3)] * 40) + np.random.default_rng(0).random((120, 8))
    unit = (directions / np.linalg.norm(directions, axis=1, keepdims=True)).astype(np.float32)
    for first in (60, 0):
        with kit.writer(tmp_path / "index") as writer:
            for number in range(first, first + 60):
                writer.add(kit.rows(f"d{number:03d}", [f"t{number}"]), unit[number : number + 1])
            writer.commit({}, 120)
    store = Store.open(tmp_path / "index")
    vectors, names = store.vectors(range(store.n_rows)), [row.chunk_id for row in store.rows(range(store.n_rows))]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    assert lengths.max() > 1 + 1e-5

    scores, found = store.search(unit, 120)

    raw_scores = unit @ vectors.T
    assert raw_scores.max() > 1 + 1e-5
    assert (scores.max(), scores.min() >= -1) == (1.0, True)
    for query in range(120):
        ranked = [(-score, names[row]) for score, row in zip(scores[query].tolist(), found[query], strict=True)]
        assert ranked == sorted(ranked)
    cut = store.search(unit, 3)
    assert [of[:3] for of in found] == cut.rows
    assert store.search(unit, 3, dim=2).scores.max() <= 1
    assert store.search(unit, 3, dim=2, rerank_dim=4).scores.max() <= 1
    assert store.search(-unit, 120).scores.min() == -1


def test_a_query_of_another_dimension_is_refused(tmp_path, kit):
    kit.build(tmp_path / "index", {"a": ["x"]})

    assert message_of(QueryError, lambda: Store.open(tmp_path / "index").search(kit.queries(1, dim=12), 3)) == (
        "the query's vector has 12 dimensions, those of the index have 8\n"
        "  hint: make it as the vectors of the index were made"
    )


def test_a_query_that_is_not_finite_is_refused(tmp_path, kit):
    kit.build(tmp_path / "index", {"a": ["x"]})

    said = message_of(QueryError, lambda: Store.open(tmp_path / "index").search(np.full((1, 8), np.nan, np.float32), 3))

    assert said == ("the query vector holds a number that is not finite\n  hint: encode the query in float32")


def test_shapes_that_a_program_gets_wrong_are_named(tmp_path, kit):
    kit.build(tmp_path / "index", {"a": ["x"]})
    store = Store.open(tmp_path / "index")

    with pytest.raises(ValueError, match=r"queries have the shape \(8,\), not \(q, 8\)"):
        store.search(kit.queries(1)[0], 3)
    with pytest.raises(ValueError, match=r"the mask has the shape \(5,\), not \(1,\)"):
        store.search(kit.queries(1), 3, np.ones(5, np.bool_))
    with pytest.raises(ValueError, match="k is 0, not 1 or more"):
        store.search(kit.queries(1), 0)


@pytest.mark.slow
def test_the_graph_finds_nearly_all_of_the_exact_hits(tmp_path, kit, monkeypatch):
    monkeypatch.setattr(index_types, "MIN_ROWS", 1000)
    documents = {f"d{n}": [f"t{n}"] for n in range(1000)}
    for kind in ("flat", "hnsw"):
        kit.build(tmp_path / kind, documents, index=IndexOptions(kind, target_recall=0.999))
    exact, graph, queries = Store.open(tmp_path / "flat"), Store.open(tmp_path / "hnsw"), kit.queries(50)
    assert [store.segments[0].is_exact() for store in (exact, graph)] == [True, False]

    one, other = exact.search(queries, 10), graph.search(queries, 10)

    shared = [len(set(a) & set(b)) for a, b in zip(one.rows, other.rows, strict=True)]
    assert np.mean(shared) / 10 >= 0.98
    assert verify(graph.path) == []


@pytest.mark.slow
def test_the_graph_gives_k_hits_under_a_hard_condition(tmp_path, kit, monkeypatch):
    monkeypatch.setattr(index_types, "MIN_ROWS", 1000)
    kit.build(tmp_path / "index", {f"d{n}": [f"t{n}"] for n in range(1000)}, index_type="hnsw")
    kit.build(tmp_path / "index", {f"d{n}": [f"t{n}"] for n in range(1, 1000)}, index_type="hnsw")
    store, queries = Store.open(tmp_path / "index"), kit.queries(5)
    allowed = store.stored % 50 == 0
    assert not store.segments[0].is_exact()

    found = store.search(queries, 10, allowed)

    scores = queries @ store.vectors(range(store.n_rows)).T
    scores[:, ~allowed] = -1
    np.testing.assert_allclose(found.scores, -np.sort(-scores, axis=1)[:, :10], atol=1e-6)
