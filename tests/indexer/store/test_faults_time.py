"""Readers while commits are made, two writers, and a clock that goes backwards: order comes from generations alone."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest
from fault_operations import COMMITS, documents_at
from fault_writers import Order, Writers
from states import documents_of, state_of

from ragidx.corpora.errors import BusyError
from ragidx.indexer.store import Store
from ragidx.indexer.store import lock as lock_module
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing.history import history, rollback


@pytest.fixture(scope="module")
def two_writers() -> Iterator[list[Writers]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Writers()) for _ in range(2)]


@pytest.mark.slow
def test_a_reader_sees_whole_states_while_another_process_commits(tmp_path, kit, two_writers):
    """New stores see one committed state, never an earlier one than the last; an open one stays what it was."""
    kit.build(tmp_path / "index", documents_at(1))
    held: dict[int, Store] = {}
    with ThreadPoolExecutor(1) as other:
        done = other.submit(two_writers[0].run, Order("many commits", str(tmp_path)))
        last = 0
        while not done.done():
            store = Store.open(tmp_path / "index")
            generation = store.manifest.generation
            assert generation >= last
            assert documents_of(store) == documents_at(generation)
            held.setdefault(generation, store)
            last = generation

    assert done.result().error == ""
    assert len(held) > 3
    assert Store.open(tmp_path / "index").manifest.generation == COMMITS
    for generation, store in held.items():  # most of their files are gone by now
        assert documents_of(store) == documents_at(generation)
        found = store.search(kit.queries(2), 10)
        assert [len(places) for places in found.rows] == [4, 4]


@pytest.mark.slow
def test_a_reader_keeps_its_state_through_commits_rollbacks_and_sweeps(tmp_path, kit):
    kit.build(tmp_path / "index", documents_at(1))
    store = Store.open(tmp_path / "index")
    before = store.search(kit.queries(2), 10)

    kit.build(tmp_path / "index", documents_at(2))
    rollback(tmp_path / "index", 1)
    for number in range(3):
        kit.build(tmp_path / "index", {"only": [f"text {number}"]})

    after = store.search(kit.queries(2), 10)
    assert [manifest.generation for manifest in history(tmp_path / "index")] == [6, 5, 4]
    assert not list((tmp_path / "index" / "segments").glob("00000001-*"))
    assert documents_of(store) == documents_at(1)
    assert after.rows == before.rows
    assert (after.scores == before.scores).all()


@pytest.mark.slow
def test_two_writers_that_wait_for_each_other_lose_nothing(tmp_path, kit, two_writers):
    kit.build(tmp_path / "index", {"first": ["first"]})
    with ThreadPoolExecutor(2) as both:
        outcomes = list(
            both.map(
                lambda writers, who: writers.run(Order(who, str(tmp_path))), two_writers, ["add as Ada", "add as Bob"]
            )
        )

    assert [outcome.error for outcome in outcomes] == ["", ""]
    store = Store.open(tmp_path / "index")
    assert (store.manifest.generation, store.manifest.n_documents) == (21, 21)
    assert set(documents_of(store)) == {"first", *(f"{who} {number}" for who in ("Ada", "Bob") for number in range(10))}
    assert verify(tmp_path / "index") == []


@pytest.mark.slow
def test_a_writer_of_another_process_is_told_who_writes(tmp_path, kit, two_writers):
    with kit.writer(tmp_path / "index") as writer:
        outcome = two_writers[0].run(Order("first build", str(tmp_path)))
        kit.add(writer, kit.rows("a", ["one"]))
        writer.commit({}, 1)

    assert re.search(
        rf"BusyError: {re.escape(str(tmp_path / 'index'))}: the index is being written by process {os.getpid()}, "
        r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n  hint: wait until that ends, then run again\n$",
        outcome.error,
    )
    assert documents_of(Store.open(tmp_path / "index")) == {"a": ["one"]}


@pytest.fixture
def clock(monkeypatch) -> type[datetime]:
    """A clock that goes back an hour whenever it is looked at, over the year 1970."""

    class Clock(datetime):
        seen = 0

        @classmethod
        def now(cls, tz=None):
            cls.seen += 1
            return datetime.fromtimestamp(5 * 3600 - 3600 * cls.seen, tz)

    monkeypatch.setattr(lock_module, "datetime", Clock)
    return Clock


@pytest.mark.slow
def test_a_clock_that_goes_backwards_changes_no_order(tmp_path, kit, clock):
    index = tmp_path / "index"
    for generation in range(1, 5):
        kit.build(index, documents_at(generation))

    manifests = history(index)

    assert clock.seen >= 4
    assert [manifest.generation for manifest in manifests] == [4, 3, 2]
    assert [manifest.created for manifest in manifests] == sorted(manifest.created for manifest in manifests)
    assert manifests[0].created < manifests[-1].created < "1970-01-01T05:00:00Z"
    assert documents_of(Store.open(index)) == documents_at(4)
    assert rollback(index, 3).generation == 5
    assert documents_of(Store.open(index)) == documents_at(3)
    assert verify(index) == []


def test_a_lock_from_the_future_names_its_holder_and_its_time(tmp_path, kit, clock):
    clock.seen = -24 * 365 * 100
    with kit.writer(tmp_path / "index"), pytest.raises(BusyError) as caught:
        kit.writer(tmp_path / "index")

    assert str(caught.value) == (
        f"{tmp_path / 'index'}: the index is being written by process {os.getpid()}, since 2069-12-07 04:00:00 UTC\n"
        "  hint: wait until that ends, then run again"
    )


@pytest.mark.slow
def test_times_of_files_say_nothing(tmp_path, kit):
    index = tmp_path / "index"
    kit.build(index, documents_at(1))
    kit.build(index, documents_at(2))
    before = state_of(index)
    rng = random.Random(0)
    for path in (index, *index.rglob("*")):
        stamp = rng.choice([0, 1, rng.randrange(2**31), int(datetime(2100, 1, 1, tzinfo=UTC).timestamp())])
        os.utime(path, (stamp, stamp))

    assert state_of(index) == before
    assert verify(index) == []
    assert kit.build(index, documents_at(2))[0].generation == 2
    assert kit.build(index, documents_at(3))[0].generation == 3
    assert documents_of(Store.open(index)) == documents_at(3)
