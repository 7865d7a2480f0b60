"""Results of tasks that run at the same time, taken in the order of the tasks.

    put(number, message) in any order -> take(number): the messages of one task, in their order

What waits behind a slow task is bounded in memory, then on disk, then its worker waits. The task that is taken is never
kept waiting by others, so nothing waits for ever. Where the disk is full the worker waits, too.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from typing import IO, TypeAlias

from ragidx.corpora.limits import GIB, MIB

Message: TypeAlias = tuple[dict[str, object], bytes]

MEMORY_BYTES = 64 * MIB
DISK_BYTES = 4 * GIB


class Lanes:
    """A queue for each task, and the lock that all of them share.

    Args:
        memory_bytes: bytes of all bodies that may wait in memory.
        disk_bytes: bytes of all bodies that may wait in the temporary files.

    Attributes:
        changed: the lock; it is notified of every change.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES, disk_bytes: int = DISK_BYTES) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.head = 0
        self._left = [memory_bytes, disk_bytes]
        self._is_full = False  # the disk, until something is taken from it
        self._lanes: dict[int, _Lane] = {}

    def open(self, number: int) -> None:
        """Make the queue of a task."""
        self._lanes[number] = _Lane()

    def put(self, number: int, message: Message, wait: Callable[[Callable[[], bool]], bool]) -> bool:
        """Add a message, header and body, to those of a task.

        `wait` waits until a condition holds, or gives up and returns False, as this does then.
        """
        with self.changed:
            is_added = self._add(number, message) or wait(lambda: self._add(number, message))
            self.changed.notify_all()
            return is_added

    def _add(self, number: int, message: Message) -> bool:
        """Add a message if there is room for it, in memory or in the file."""
        lane, size = self._lanes[number], len(message[1]) + 512
        if not lane.on_disk and (size <= self._left[0] or (number == self.head and not lane.waiting)):
            lane.waiting.append((message, size, None))
            self._left[0] -= size
            return True
        if number == self.head or size > self._left[1] or self._is_full:
            return False
        place = lane.spool(message[1])
        self._is_full = place is None
        if place is not None:
            lane.waiting.append(((message[0], b""), size, place))
            lane.on_disk += 1
            self._left[1] -= size
        return not self._is_full

    def end(self, number: int) -> None:
        """Note that no more messages of a task come."""
        with self.changed:
            self._lanes[number].ended = True
            self.changed.notify_all()

    def drop(self, number: int) -> None:
        """Forget what waits of a task that has ended, if it was not taken to its end."""
        lane = self._lanes.pop(number, None)
        if lane is not None:
            for _, size, place in lane.waiting:
                self._left[0 if place is None else 1] += size
            lane.close()
            self.changed.notify_all()

    def drop_waiting(self, number: int) -> None:
        """Forget what waits of a task that goes on."""
        while self._lanes[number].waiting:
            self.take(number)

    def is_ready(self, number: int) -> bool:
        """Whether there is a message of a task, or its end."""
        lane = self._lanes[number]
        return bool(lane.waiting) or lane.ended

    def take(self, number: int) -> Message | None:
        """The next message of a task that is ready; None: there are no more."""
        with self.changed:
            lane = self._lanes[number]
            if not lane.waiting:
                lane.close()
                self._is_full = False
                del self._lanes[number]
                return None
            (header, body), size, place = lane.waiting.popleft()
            if place is not None:
                body = lane.spooled(place)
                lane.on_disk -= 1
                self._is_full = False
            self._left[0 if place is None else 1] += size
            self.changed.notify_all()
            return header, body

    def close(self) -> None:
        """Close the temporary files."""
        with self.changed:
            for lane in self._lanes.values():
                lane.close()


class _Lane:
    def __init__(self) -> None:
        self.waiting: deque[tuple[Message, int, range | None]] = deque()  # message, size, place in the temporary file
        self.ended, self.on_disk = False, 0
        self._file: IO[bytes] | None = None
        self._end = 0  # of the bodies that wait there

    def spool(self, body: bytes) -> range | None:
        """Write a body to the file, and give its place; None: there is no room on the disk."""
        start = self._end if self.on_disk else 0
        try:
            self._file = self._file or tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            self._file.seek(start)
            view = memoryview(body)
            while view:
                view = view[self._file.write(view) :]
        except OSError:
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.truncate(start)
            return None
        self._end = start + len(body)
        return range(start, self._end)

    def spooled(self, place: range) -> bytes:
        """The body at a place."""
        assert self._file is not None
        self._file.seek(place.start)
        return self._file.read(len(place))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
