"""Tasks for workers: who gets which, what happens when one ends, results in the order of the tasks.

    add(header, body) -> number; messages(number) in that order -> headers and bodies

A worker that reads a long file gives pieces of it to those that have nothing to do: {"kind": "piece"}, documents that
nobody cut, becomes a task of its own, and {"kind": "piece", "task": n} takes its place among the messages. What no
worker has begun when its turn comes is given as it is.

A worker has a few tasks ahead of it. When one dies, what it worked on is tried once more by another that has nothing
else to do; what it had begun to say is then said again, after a message {"kind": "again"}. A second death, or that of
one that ran out of time, which another would, too, is its last message, {"kind": "died", "why": ...}. The other tasks
of the worker go to others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from ragidx.corpora.errors import MachineError
from ragidx.pipelines.ingest.workers import frames
from ragidx.pipelines.ingest.workers.lanes import Lanes, Message
from ragidx.pipelines.ingest.workers.process import Process

_AHEAD = 8  # tasks that a worker has at most
_PIECES = 2  # for each worker without a task that may wait
_AHEAD_BYTES = 1 << 15  # of messages that may be in its pipe while it works: less than any system's pipe holds


class Pool:
    """Workers and the tasks for them; a context manager.

    Args:
        n_workers: most workers; they start when there is something for them.
        make: starts one, given what to call with its messages and at its end.
        lanes: where results wait.
        answer: function that gives what workers may ask for, once; called by whoever takes results.
        wait: waits until a condition holds, the lock of the lanes being held.
    """

    def __init__(
        self,
        n_workers: int,
        make: Callable[[Callable[[Process, Message], bool], Callable[[Process, str], None]], Process],
        lanes: Lanes | None = None,
        answer: Callable[[], Message] = lambda: ({}, b""),
        wait: Callable[[Callable[[], bool]], object] | None = None,
    ) -> None:
        self.lanes = lanes or Lanes()
        self._n_workers, self._make, self._answer = n_workers, make, answer
        self._wait = wait or self.lanes.changed.wait_for
        self._workers: list[Process] = []
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="ragidx-start")
        self._tasks: dict[int, Message] = {}  # that are not done
        self._queue: deque[int] = deque()
        self._again: deque[int] = deque()  # that a worker died of
        self._pieces: deque[int] = deque()  # that no worker has begun
        self._pieces_of: dict[int, list[int]] = {}
        self._n_promised: Counter[int] = Counter()  # pieces that the reader of a task was asked for
        self._tried: set[int] = set()
        self._cancelled: set[int] = set()
        self._asking: list[Process] = []
        self._answered: Message | None = None
        self._next, self._closing, self.broken = 0, False, ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End all workers."""
        with self.lanes.changed:
            self._closing = True
            workers = list(self._workers)
            self.lanes.changed.notify_all()
        for worker in workers:
            worker.close()
        self._starter.shutdown()
        self.lanes.close()

    def grow(self, n_workers: int) -> None:
        """Start as many workers as this from now on, as far as there is something for them."""
        with self.lanes.changed:
            self._n_workers = n_workers

    def add(self, header: dict[str, Any], body: bytes = b"") -> int:
        """Add a task; its number."""
        with self.lanes.changed:
            number, self._next = self._next, self._next + 1
            self._tasks[number] = ({**header, "kind": "task", "task": number}, body)
            self.lanes.open(number)
            self._queue.append(number)
            self._dispatch()
            return number

    def messages(self, number: int) -> Iterator[Message]:
        """What a task gives, as it comes; tasks are asked for in their order.

        Raises:
            MachineError: no worker starts here.
        """
        lanes = self.lanes
        while True:
            with lanes.changed:
                lanes.head = number
                lanes.changed.notify_all()
                if number in self._pieces:
                    self._pieces.remove(number)
                    lanes.put(number, frames.nested(self._tasks[number][1]), self._until)
                    self._done(number)
                self._wait(lambda: lanes.is_ready(number) or bool(self._asking or self.broken))
                asking, self._asking = self._asking, []
                if not asking and not lanes.is_ready(number):
                    hint = "use `workers=1`, and see `ragidx doctor`"
                    raise MachineError(f"a worker cannot start: it {self.broken}", hint)
            for worker in asking:
                self._answered = self._answered or self._answer()
                worker.send(*self._answered)
            if lanes.is_ready(number):
                message = lanes.take(number)
                if message is None:
                    return
                yield message

    def cancel(self, number: int) -> None:
        """Nobody wants more of a task, if it is not done: its worker ends, since it may read for long."""
        with self.lanes.changed:
            for piece in self._pieces_of.pop(number, ()):
                self.cancel(piece)
            if number not in self._tasks:
                self.lanes.drop(number)
                return
            self._cancelled.add(number)
            for waiting in (self._queue, self._pieces):
                if number in waiting:
                    waiting.remove(number)
                    self._done(number)
                    return
            self.lanes.drop_waiting(number)
            for worker in [one for one in self._workers if one.is_ready and one.tasks and one.tasks[0] == number]:
                worker.kill()

    # -- called by the threads of the workers -------------------------------------------------------------------

    def _heard(self, worker: Process, message: Message) -> bool:
        header, kind = message[0], message[0].get("kind")
        if kind == "ready":
            with self.lanes.changed:
                worker.is_ready = True
                self._dispatch()
        elif kind == "end":
            with self.lanes.changed:
                self._done(worker.tasks.popleft())
        elif kind == "want":
            with self.lanes.changed:
                if self._answered is not None:
                    worker.send(*self._answered)
                else:
                    self._asking.append(worker)
                    self.lanes.changed.notify_all()
        elif kind == "picture":
            table = _table_of(message)  # while the others go on
            with self.lanes.changed:
                worker.send(*table)
        elif worker.tasks and worker.tasks[0] not in self._cancelled:
            number = worker.tasks[0]
            if kind == "piece":
                message = self._piece(number, message[1])
            elif header.get("more"):
                self._ask(worker, number)
            return self.lanes.put(number, message, self._until)
        return not self._closing

    def _piece(self, number: int, body: bytes) -> Message:
        """A new task for what a worker did not do, if it was asked for that."""
        with self.lanes.changed:
            if self._n_promised[number] <= 0:
                return frames.nested(body)
            piece, self._next = self._next, self._next + 1
            self._tasks[piece] = ({**self._tasks[number][0], "task": piece, "is_piece": True}, body)
            self.lanes.open(piece)
            self._pieces.append(piece)
            self._pieces_of.setdefault(number, []).append(piece)
            self._n_promised[number] -= 1
            self._dispatch()
        return {"kind": "piece", "task": piece}, b""

    def _ask(self, worker: Process, number: int) -> None:
        """Ask a worker whose file is long for pieces, if others have nothing else to do."""
        with self.lanes.changed:
            if self._queue or self._again or self._closing or self._is_piece(number):
                return
            if len(self._workers) < self._n_workers and all(one.is_ready for one in self._workers):
                self._started()
            free = [one for one in self._workers if one.is_ready and all(map(self._is_piece, one.tasks))]
            n_waiting = len(self._pieces) + sum(len(one.tasks) for one in free) + sum(self._n_promised.values())
            if (count := _PIECES * len(free) - n_waiting) > 0:
                self._n_promised[number] += count
                worker.send({"kind": "give", "task": number, "count": count})

    def _is_piece(self, number: int) -> bool:
        return bool(self._tasks[number][0].get("is_piece"))

    def _until(self, holds: Callable[[], bool]) -> bool:
        self.lanes.changed.wait_for(lambda: self._closing or holds())
        return not self._closing

    def _done(self, number: int) -> None:
        del self._tasks[number]
        self._n_promised.pop(number, None)
        self.lanes.end(number)
        if number in self._cancelled:
            self.lanes.drop(number)
        self._dispatch()

    def _ended(self, worker: Process, why: str) -> None:
        with self.lanes.changed:
            self._workers.remove(worker)
            self._asking = [one for one in self._asking if one is not worker]
            tasks = list(worker.tasks)
            worker.tasks.clear()
            if self._closing:
                return
            begun = tasks.pop(0) if tasks and worker.is_ready else None
            self._queue.extendleft(reversed(tasks))
            if not worker.is_ready:
                self._no_more(why)
            elif begun in self._cancelled:
                self._done(begun)
            elif begun in self._tried or (begun is not None and worker.ran_out_of_time):
                self.lanes.put(begun, ({"kind": "died", "why": why}, b""), self._until)
                self._done(begun)
            elif begun is not None:
                self._n_promised.pop(begun, None)
                self._tried.add(begun)
                self.lanes.put(begun, ({"kind": "again"}, b""), self._until)
                self._again.append(begun)
            self._dispatch()

    def _no_more(self, why: str) -> None:
        """A worker did not start: the others do its work, if there are any."""
        self._n_workers = len(self._workers)
        self.broken = "" if self._workers else why
        self.lanes.changed.notify_all()

    # -- with the lock held -------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Give tasks to workers that have room for them; start one if none is free and there may be more."""
        while (self._again or self._pieces or self._queue) and not self._closing:
            worker = self._free()
            if worker is None and len(self._workers) < self._n_workers:
                worker = self._started()
                if worker is None:
                    continue
                if self._again or self._pieces:
                    return
            worker = worker or self._ahead()
            if worker is None:
                return
            number = (self._again or self._pieces or self._queue).popleft()
            worker.tasks.append(number)
            worker.send(*self._tasks[number])

    def _started(self) -> Process | None:
        # Linux ends a worker with the thread that started it: this one lives as long as the pool.
        try:
            worker = self._starter.submit(self._make, self._heard, self._ended).result()
        except OSError as fault:
            self._no_more(f"cannot be run: {fault}")
            return None
        self._workers.append(worker)
        return worker

    def _free(self) -> Process | None:
        """A worker without a task; one that has started, if a task is retried or a piece."""
        any_may = not self._again and not self._pieces
        return next((w for w in self._workers if not w.tasks and (w.is_ready or any_may)), None)

    def _ahead(self) -> Process | None:
        """A worker whose pipe takes one task more, if nothing is retried there; a piece is too large for that."""
        if self._again or self._pieces:
            return None
        size = len(self._tasks[self._queue[0]][1]) + 2048
        calm = [w for w in self._workers if not self._tried.intersection(w.tasks)]
        found = min(calm, key=lambda worker: len(worker.tasks), default=None)
        if found is None or len(found.tasks) >= _AHEAD or size * len(found.tasks) > _AHEAD_BYTES:
            return None
        return found


def _table_of(message: Message) -> Message:
    """What tesseract says of a worker's picture."""
    from ragidx.corpora.readers.ocr.engines import tesseract

    header, pgm = message
    try:
        return {"kind": "table", "done": True}, tesseract(pgm, str(header.get("languages"))).encode()
    except OSError:
        return {"kind": "table", "done": False}, b""
