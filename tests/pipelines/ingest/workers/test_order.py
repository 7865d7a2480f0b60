"""Tasks that end in any order, workers that die at any place: the results are those of the tasks one after another."""

import random
import resource
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ragidx.corpora.errors import MachineError
from ragidx.pipelines.ingest.workers import frames
from ragidx.pipelines.ingest.workers.lanes import Lanes, Message
from ragidx.pipelines.ingest.workers.pool import Pool


class Machine:
    """Workers that do a step when the machine chooses them; one that begins a task of `deadly` dies in the middle."""

    def __init__(self, seed: int, deadly: dict[int, int], n_workers: int, memory: int = 3000) -> None:
        self.chance, self.deadly, self.workers = random.Random(seed), deadly, list[Fake]()
        self.asked = self.given = 0
        self.pool = Pool(n_workers, self.make, Lanes(memory, 1 << 20), self.word, self.wait)

    def make(self, heard: Callable[..., bool], ended: Callable[..., None]) -> "Fake":
        self.workers.append(Fake(self, heard, ended))
        return self.workers[-1]

    def word(self) -> Message:
        self.asked += 1
        return {"kind": "word"}, b"w"

    def wait(self, holds: Callable[[], object]) -> None:
        for _ in range(100_000):
            if holds():
                return
            able = [worker for worker in self.workers if worker.can_step()]
            assert able, "nobody can go on, and somebody waits"
            self.chance.choice(able).step()
        raise AssertionError("it does not end")


class Fake:
    def __init__(self, machine: Machine, heard: Callable[..., bool], ended: Callable[..., None]) -> None:
        self.machine, self.heard, self.ended = machine, heard, ended
        self.tasks, self.is_ready, self.is_dead, self.number = deque[int](), False, False, -1
        self.ran_out_of_time = False
        self.inbox, self.script = deque[Message](), deque[Message]([({"kind": "ready"}, b"")])
        self.wanted = Counter[int]()

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        if header["kind"] == "task":
            self.inbox.append((header, body))
        elif header["kind"] == "give":
            self.wanted[header["task"]] += header["count"]

    def can_step(self) -> bool:
        return not self.is_dead and bool(self.script or self.inbox)

    def step(self) -> None:
        if not self.script:
            task, body = self.inbox.popleft()
            number = self.number = task["task"]
            own = [
                ({"kind": "events", "said": [number, part], "more": True}, bytes(400)) for part in range(task["parts"])
            ]
            says = [frames.nested(body)] if "is_piece" in task else own
            wants = [({"kind": "want"}, b"")] if number % 3 == 0 else []
            if self.machine.deadly.get(number, 0) > 0:
                self.machine.deadly[number] -= 1
                self.script.extend([*wants, *says[: len(says) // 2], ({"kind": "die"}, b"")])
            else:
                self.script.extend([*wants, *says, ({"kind": "end"}, b"")])
        header, body = self.script.popleft()
        if header["kind"] == "die":
            self.kill()
        elif header["kind"] == "events" and self.wanted[self.number] > 0:
            self.wanted[self.number] -= 1
            self.machine.given += 1
            self.heard(self, ({"kind": "piece"}, b"".join(frames.packed(header, body))))
        else:
            self.heard(self, (header, body))

    def kill(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            self.ended(self, "ended by SIGSEGV")

    close = kill


def said(pool: Pool, task: int) -> list[object]:
    """What is said of a task, and of the pieces of it."""
    found: list[object] = []
    for header, _ in pool.messages(task):
        if header["kind"] == "again":
            found.clear()
        elif header["kind"] == "piece":
            found += said(pool, int(str(header["task"])))
        else:
            found.append(header.get("why") or header["said"])
    return found


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 5), st.integers(0, 2**32), st.data())
def test_results_come_in_the_order_of_the_tasks(
    parts: list[int], n_workers: int, seed: int, data: st.DataObject
) -> None:
    numbers = st.integers(0, max(0, len(parts) - 1))
    deadly = data.draw(st.dictionaries(numbers, st.integers(1, 2), max_size=4))
    machine = Machine(seed, dict(deadly), n_workers)

    with machine.pool as pool:
        found = [said(pool, task) for task in [pool.add({"parts": count}) for count in parts]]

    whole = [[[number, part] for part in range(count)] for number, count in enumerate(parts)]
    dead = [[*one[: len(one) // 2], "ended by SIGSEGV"] for one in whole]
    assert found == [dead[n] if deadly.get(n) == 2 else whole[n] for n in range(len(parts))]
    assert len(machine.workers) <= n_workers + sum(deadly.values())
    assert machine.asked <= 1


@given(st.integers(1, 4), st.integers(0, 2**32), st.sets(st.integers(0, 19)))
def test_a_task_that_nobody_wants_does_not_stop_the_others(n_workers: int, seed: int, unwanted: set[int]) -> None:
    machine, found = Machine(seed, {}, n_workers), dict[int, int]()

    with machine.pool as pool:
        for task in [pool.add({"parts": 4}) for _ in range(20)]:
            messages = pool.messages(task)
            if task in unwanted:
                next(messages)
                pool.cancel(task)
            else:
                found[task] = len(list(messages))
                pool.cancel(task)

    assert found == {task: 4 for task in range(20) if task not in unwanted}


@pytest.mark.slow
@example(2, 87668, {})
@given(st.integers(2, 5), st.integers(0, 2**32), st.dictionaries(st.integers(0, 30), st.just(1), max_size=4))
def test_a_long_task_is_done_by_all_workers_and_given_in_order(
    n_workers: int, seed: int, deadly: dict[int, int]
) -> None:
    machine = Machine(seed, dict(deadly), n_workers)

    with machine.pool as pool:
        found = [said(pool, task) for task in [pool.add({"parts": count}) for count in (2, 40, 1)]]

    assert found == [[[number, part] for part in range(count)] for number, count in enumerate((2, 40, 1))]
    assert machine.given > 0  # how many follows from who is slow to begin: 4 of 40, by chance
    assert len(machine.workers) <= n_workers + len(deadly)


def test_workers_that_cannot_start_are_an_error() -> None:
    def refuse(*_: object) -> Fake:
        raise OSError("no such file")

    with Pool(2, refuse) as pool, pytest.raises(MachineError, match="cannot be run: no such file"):
        next(pool.messages(pool.add({})))


@pytest.mark.parametrize("n_on_disk", [0, 3])
def test_what_waits_is_bounded_in_memory_and_then_on_disk(n_on_disk: int) -> None:
    lanes, full = Lanes(memory_bytes=2000, disk_bytes=4000), list[int]()
    for number in range(3):
        lanes.open(number)

    def give_up(_: object) -> bool:
        full.append(1)
        return False

    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not n_on_disk:  # the disk is full
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, most[1]))
    try:
        kept = [lanes.put(1, ({"n": n}, bytes([n]) * 500), give_up) for n in range(8)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    first = lanes.put(0, ({}, bytes(900)), give_up)
    lanes.end(1)

    n_kept = 1 + n_on_disk
    assert kept == [True] * n_kept + [False] * (8 - n_kept)
    assert first
    assert [lanes.take(1) for _ in range(n_kept)] == [({"n": n}, bytes([n]) * 500) for n in range(n_kept)]
    assert lanes.take(1) is None
    lanes.close()
