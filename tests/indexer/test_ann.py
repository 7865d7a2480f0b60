"""Making and searching: scores are exact whatever finds the rows, and conditions and short answers are helped out."""

from __future__ import annotations

import numpy as np
import pytest

from ragidx.indexer import ann
from ragidx.indexer.faiss_files import exact_index
from ragidx.indexer.index_types import Effort, Recipe

ROWS, DIM = 300, 8
GRAPH = Recipe.parse("HNSW16")
BEAM = Effort(beam=64)


@pytest.fixture
def small(tmp_path, ann_kit):
    """Mapped vectors, 300 of 8 dimensions, and a graph over them."""
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(ROWS, DIM))
    return vectors, ann_kit.open(ann_kit.make(tmp_path, str(GRAPH), vectors), str(GRAPH), vectors)


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
    monkeypatch.setattr(ann, "EXACT_ROWS", 10)
    vectors, graph = small
    allowed, queries = np.arange(ROWS) % 3 == 0, ann_kit.clustered(10, DIM, seed=1)

    scores, rows = ann.search(graph, GRAPH, BEAM, vectors, queries, 5, allowed)

    exact = ann.search_exact(vectors, queries, 5, allowed)
    assert (rows % 3 == 0).all()
    assert np.mean(rows == exact[1]) > 0.95
    assert (np.diff(scores, axis=1) <= 0).all()
