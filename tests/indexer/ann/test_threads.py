"""Threads of a search: one where others would only be waited for, and one in a forked child."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest

from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.index_types import Effort, Recipe
from ragidx.indexer.store.files import VECTORS

from ...fork_kit import run_forking

SMALL, LARGE = 4_000, 20_000  # rows of 32 dimensions: 256 kB, 1.3 MB


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(2)
    yield
    faiss.omp_set_num_threads(before)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """With how many threads each search of vectors began."""
    counts: list[int] = []
    search = faiss.IndexScalarQuantizer.search

    def noted(*args: object, **options: object) -> object:
        counts.append(faiss.omp_get_max_threads())
        return search(*args, **options)

    monkeypatch.setattr(faiss.IndexScalarQuantizer, "search", noted)
    return counts


@pytest.mark.parametrize(("rows", "queries", "threads"), [(SMALL, 50, 1), (LARGE, 1, 1), (LARGE, 50, 2)])
def test_others_search_only_where_there_is_work_for_them(tmp_path, ann_kit, seen, rows, queries, threads):
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(rows))

    ann.search_exact(vectors, ann_kit.clustered(queries, seed=1), 10, None)

    assert seen == [threads]
    assert faiss.omp_get_max_threads() == 2


def test_the_count_comes_back_after_a_failure(tmp_path, ann_kit, monkeypatch):
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(SMALL))
    monkeypatch.setattr(faiss, "SearchParameters", lambda **_: "no parameters")

    with pytest.raises((TypeError, AssertionError, AttributeError)):
        ann.search_exact(vectors, ann_kit.clustered(1, seed=1), 10, np.arange(SMALL) > 0)

    assert faiss.omp_get_max_threads() == 2


def test_searches_in_several_threads_find_the_same_and_do_not_change_each_others_threads(tmp_path, ann_kit):
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(LARGE))
    queries = ann_kit.clustered(64, seed=1)
    expected = ann.search_exact(vectors, queries, 10, None)
    wrong: list[str] = []

    def work(size: int) -> None:
        faiss.omp_set_num_threads(2)
        for start in range(0, 64, size):
            part = slice(start, start + size)
            scores, rows = ann.search_exact(vectors, queries[part], 10, None)
            if not (np.array_equal(scores, expected[0][part]) and np.array_equal(rows, expected[1][part])):
                wrong.append(f"{size} from {start}")
        if faiss.omp_get_max_threads() != 2:
            wrong.append("threads")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, (1, 1, 32, 64)))

    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["HNSW8", "IVF16,SQfp16", "SQ8"])
def test_an_index_finds_the_same_on_one_thread(tmp_path, ann_kit, factory):
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(1_500))
    index, recipe = ann_kit.open(ann_kit.make(tmp_path, factory, vectors), factory, vectors), Recipe.parse(factory)
    queries, effort = ann_kit.clustered(64, seed=1), Effort(beam=32, lists=4, factor=2)

    one = ann.search(index, recipe, effort, vectors, queries, 10, None)
    refined = index if recipe.links else faiss.IndexRefine(index, vectors)
    params = ann._beam_of(32) if recipe.links else ann._params_of(recipe, effort, 2)
    scores, rows = refined.search(queries, 10, params=params)  # on two threads

    np.testing.assert_array_equal(one[0], scores)
    np.testing.assert_array_equal(one[1], rows)


FORK = """
import sys
from pathlib import Path
import faiss, numpy as np
from ragidx.indexer.ann import making
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.faiss_files import map_vectors
from ragidx.indexer.ann.index_types import Effort, Recipe
from ragidx.indexer.store.files import VECTORS

assert faiss.omp_get_max_threads() == 2
vectors = map_vectors(Path(VECTORS), 128, 4_500)
queries = vectors.reconstruct_n(0, 64)
searches = [lambda: ann.search_exact(vectors, queries, 10, None)]
for name, effort in (("HNSW4", Effort(beam=16)), ("IVF16,SQfp16", Effort(lists=2))):
    recipe = Recipe.parse(name)
    index = making.make(recipe, Path(VECTORS), 128, 4_500)
    searches.append(lambda index=index, recipe=recipe, effort=effort: ann.search(
        index, recipe, effort, vectors, queries, 10, None))
before = [search() for search in searches]
for search, expected in zip(searches, before, strict=True):
    print(in_child(lambda: all(np.array_equal(a, b) for a, b in zip(search(), expected, strict=True))), flush=True)
"""


@pytest.mark.slow
def test_a_forked_child_finds_the_same_as_its_parent(tmp_path, ann_kit):
    ann_kit.write(tmp_path, ann_kit.clustered(4_500, 128))
    assert (tmp_path / VECTORS).stat().st_size > ann._SMALL_BYTES

    assert run_forking(FORK, tmp_path) == "same\nsame\nsame\n"
