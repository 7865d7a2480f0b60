"""Requests that are worked off together: each has the answer that it has alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ragidx.indexer.ann import index_types
from ragidx.pipelines.serve.served_index import SEARCHED, Pools, Served, Together
from ragidx.pipelines.vectors import RowWriter
from ragidx.retriever.hit import Hits
from ragidx.retriever.rows import Queries
from ragidx.retriever.searcher import Searcher


def worked_off(
    work: Callable[[list[int]], Sequence[object]], asked: Sequence[tuple[object, list[int]]], n_threads: int = 1
) -> list[object]:
    """What each request gets that asks with a key for some items, or its failure; all at once, batches of three."""

    async def ask() -> list[object]:
        with ThreadPoolExecutor(n_threads) as pool:
            batches = Together(pool, 3, n_threads)
            done = (batches.done(key, work, items) for key, items in asked)
            return await asyncio.gather(*done, return_exceptions=True)

    return asyncio.run(ask())


def test_what_waits_is_one_batch_and_each_request_gets_its_own() -> None:
    batches: list[list[int]] = []

    def tenfold(items: list[int]) -> list[int]:
        batches.append(items)
        return [10 * item for item in items]

    found = worked_off(tenfold, [("a", [1]), ("b", [2, 3]), ("a", [4]), ("a", [5, 6]), ("a", [7]), ("b", [8, 9, 1, 2])])

    assert found == [[10], [20, 30], [40], [50, 60], [70], [80, 90, 10, 20]]
    assert batches == [[1, 4, 7], [2, 3], [5, 6], [8, 9, 1, 2]]


@pytest.mark.parametrize("n_threads", [1, 4])
def test_a_request_that_fails_fails_by_itself(n_threads: int) -> None:
    def inverse(items: list[int]) -> list[float]:
        return [1 / item for item in items]

    found = worked_off(inverse, [("a", [1]), ("a", [0]), ("a", [2]), ("a", [4])], n_threads)

    assert isinstance(found.pop(1), ZeroDivisionError)
    assert found == [[1.0], [0.5], [0.25]]


def test_requests_that_come_later_are_done_too() -> None:
    async def ask() -> list[object]:
        with ThreadPoolExecutor(2) as pool:
            batches = Together(pool, 3, 2)
            found = []
            for number in range(50):
                found += await batches.done("a", lambda items: items, [number])
                await asyncio.sleep(0 if number % 2 else 0.001)
            return found

    assert asyncio.run(ask()) == list(range(50))


@pytest.fixture(scope="module", params=["flat", "hnsw", "pq4", "ivfpq4"])
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of vectors, some of which are equal."""
    folder = tmp_path_factory.mktemp("rows") / "index"
    vectors = np.random.default_rng(0).standard_normal((600, 16)).astype(np.float32)
    vectors[100:160] = vectors[5]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_types, "MIN_ROWS", 1)
        with RowWriter(folder, 16, index_type=request.param) as writer:
            writer.add_vectors([f"r{number}" for number in range(600)], vectors)
            writer.commit()
    return folder


def test_vectors_that_are_searched_together_have_the_hits_that_they_have_alone(
    rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = np.random.default_rng(1).standard_normal((20, 16)).astype(np.float32)
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    together: list[int] = []
    alone = Searcher.open(rows)

    async def ask() -> list[Hits]:
        pools = Pools()
        served = Served("rows", rows, pools)
        assert await served.reload()
        state = served.current
        hits, options = state.hits, state.options(in_words=False, k=10)
        monkeypatch.setattr(state, "hits", lambda one, as_asked: (together.append(len(one)), hits(one, as_asked))[1])
        every = (
            served.search(state, Queries(vector[None]), None, options, lambda found, _: found[0]) for vector in asked
        )
        found = await asyncio.gather(*every)
        pools.close()
        return found

    found = asyncio.run(ask())

    options = alone.options(in_words=False, k=10)
    assert found == [alone.hits(Queries(vector[None]), options)[0] for vector in asked]
    assert max(together) == SEARCHED
    assert sum(together) == len(asked)
