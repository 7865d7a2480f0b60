"""Decoded batches are kept for the next question, so many bytes of them at most."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from ragidx.indexer import byte_cache
from ragidx.indexer.byte_cache import ByteCache
from ragidx.indexer.store import Store
from ragidx.indexer.store.segment import BATCH_ROWS, CACHE_BYTES, Segment

from ...fork_kit import run_forking

DOCUMENTS = {f"d{n:03d}": [f"t{n} {part}" for part in range(10)] for n in range(150)}  # 1,500 rows, 6 batches


@pytest.fixture
def index(tmp_path, kit) -> Path:
    kit.build(tmp_path / "index", DOCUMENTS)
    return tmp_path / "index"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of each batch that is read from a file."""
    done: list[int] = []
    read = Segment._batch

    def counted(self, reader, number, *which):
        done.append(number)
        return read(self, reader, number, *which)

    monkeypatch.setattr(Segment, "_batch", counted)
    return done


def batch_of(n_bytes: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(n_bytes), pa.int8())], names=["x"])


def test_a_question_that_is_repeated_reads_no_batch(index, kit, reads):
    store, queries = Store.open(index), kit.queries(1)
    first = store.rows(store.search(queries, 10).rows[0])
    assert 1 <= len(reads) <= 6
    reads.clear()

    again = store.rows(store.search(queries, 10).rows[0])

    assert again == first
    assert reads == []


@pytest.mark.slow
def test_each_batch_is_read_once_and_gives_the_rows_that_are_in_the_file(index, reads):
    store = Store.open(index)
    places = list(range(1_499, -1, -7))

    found = [store.rows(places[start : start + 20]) for start in range(0, len(places), 20)]

    assert sorted(reads) == [0, 1, 2, 3, 4, 5]
    assert [row for part in found for row in part] == Store.open(index).rows(places)


@pytest.mark.slow
def test_ids_alone_and_whole_rows_are_different_batches(index):
    segment = Store.open(index).segments[0]

    assert (
        segment.strings("chunk_id", [3])
        == [row.chunk_id for row in segment.rows([3])]
        == segment.strings("chunk_id", [3])
    )


@pytest.mark.slow
def test_segments_do_not_answer_for_each_other(index, kit):
    kit.build(index, DOCUMENTS | {"new": ["one", "two"]})
    store = Store.open(index)
    assert len(store.segments) == 2

    second = store.segments[0].entry.rows
    rows = store.rows([0, second, 1, second + 1])

    assert [row.doc_id for row in rows] == ["d000", "new", "d000", "new"]


def test_two_open_indexes_do_not_answer_for_each_other(index, kit, tmp_path):
    kit.build(tmp_path / "other", {"other": ["one"]})

    assert [Store.open(path).rows([0])[0].doc_id for path in (index, tmp_path / "other")] == ["d000", "other"]


@pytest.mark.slow
def test_what_is_kept_has_no_more_bytes_than_the_limit(index, reads):
    store = Store.open(index)
    store.rows([0])
    cache = store.segments[0]._cache
    one = cache.n_bytes
    assert 0 < one < CACHE_BYTES
    cache._limit = int(2.5 * one)
    for _ in range(3):
        for number in range(6):
            store.rows([number * BATCH_ROWS])
            assert cache.n_bytes <= cache._limit
            assert cache.n_bytes == sum(batch.nbytes for batch in cache._kept.values())

    reads.clear()
    store.rows([5 * BATCH_ROWS])
    assert reads == []
    store.rows([0])
    assert reads == [0]


def test_what_was_used_longest_ago_goes_first():
    cache = ByteCache(30)
    for name in ("a", "b", "a", "c"):
        cache.get(name, lambda: batch_of(12))
    decoded: list[str] = []
    for name in ("a", "c", "b"):
        cache.get(name, lambda name=name: (decoded.append(name), batch_of(12))[1])

    assert decoded == ["b"]


def test_a_batch_beyond_the_limit_is_given_and_not_kept():
    cache = ByteCache(30)
    cache.get("small", lambda: batch_of(20))

    assert cache.get("large", lambda: batch_of(31)).num_rows == 31
    assert cache.n_bytes == 20


@pytest.mark.slow
def test_threads_share_it_and_the_bound_holds(index):
    whole, store = Store.open(index), Store.open(index)
    expected = whole.rows(range(1_500))
    cache = store.segments[0]._cache
    cache._limit = whole.segments[0]._cache.n_bytes // 2
    wrong: list[int] = []

    def work(seed: int) -> None:
        for step in range(40):
            row = (seed * 997 + step * 263) % 1_500
            if store.rows([row]) != [expected[row]] or cache.n_bytes > cache._limit:
                wrong.append(row)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))

    assert wrong == []
    assert cache.n_bytes == sum(batch.nbytes for batch in cache._kept.values())


FORK = """
import pyarrow as pa
from ragidx.indexer.byte_cache import ByteCache

cache = ByteCache(1 << 20)
batch = pa.record_batch([pa.array([1])], names=["x"])
cache.get("a", lambda: batch)
cache._lock.acquire()  # as another thread might at that moment
print(in_child(lambda: cache.get("a", lambda: batch) is batch and cache.n_bytes == batch.nbytes))
"""


@pytest.mark.slow
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(tmp_path):
    assert run_forking(FORK, tmp_path) == "same\n"


@pytest.mark.slow
def test_a_cache_that_is_no_longer_used_is_not_held(index):
    before = len(byte_cache._caches)
    store = Store.open(index)
    assert len(byte_cache._caches) == before + 1

    del store

    assert len(byte_cache._caches) == before
