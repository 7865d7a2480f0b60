"""Work that is done for several requests at once: a batch is what waited while the one before it was done.

Nothing waits for a timer: what finds nothing in front of it is done at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[[list[Any]], Any]
"""What is made of items, a list or an array: as many, in their order."""


async def run(pool: ThreadPoolExecutor, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """What a function returns, run in a thread of a pool."""
    return await asyncio.wrap_future(pool.submit(function, *args, **options))


class _Waiting(NamedTuple):
    """Items of a request, and who waits for what is made of them."""

    key: object
    work: Work
    items: Sequence[Any]
    future: asyncio.Future[Any]


class Batches:
    """One batch after the other, in a thread; where more than a batch waits, in several.

    Args:
        pool: the threads.
        most: items of a batch; a request that has more is done alone.
        n_threads: how many of the threads are used at once, at most.
        is_quick: whether a single item is done between two requests, without a change of threads.
    """

    def __init__(
        self, pool: ThreadPoolExecutor, most: int, n_threads: int = 1, is_quick: Callable[[], bool] = lambda: False
    ) -> None:
        self._pool, self._most, self._n_threads, self._is_quick = pool, most, n_threads, is_quick
        self._waiting: list[_Waiting] = []
        self._workers: set[asyncio.Task[None]] = set()

    async def done(self, key: object, work: Work, items: Sequence[Any]) -> Any:
        """What the work makes of some items; items with equal keys are given to the work of one of them."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(key, work, items, future))
        if not self._workers or (len(self._waiting) >= self._most and len(self._workers) < self._n_threads):
            # it begins when all requests that are here are waiting
            self._workers.add(asyncio.create_task(self._work()))
        return await future

    async def _work(self) -> None:
        try:
            await self._work_off()
        finally:
            self._workers.discard(asyncio.current_task())

    async def _work_off(self) -> None:
        while self._waiting:
            key = self._waiting[0].key
            batch: list[_Waiting] = []
            left, room = [], self._most
            for waiting in self._waiting:
                if waiting.key == key and (room >= len(waiting.items) or not batch):
                    room -= len(waiting.items)
                    batch.append(waiting)
                else:
                    left.append(waiting)
            self._waiting = left
            await self._do([waiting for waiting in batch if not waiting.future.done()])

    async def _do(self, batch: Sequence[_Waiting]) -> None:
        """Do a batch; where it fails, each of it alone, so that a request fails by itself."""
        if not batch:
            return
        items = [item for waiting in batch for item in waiting.items]
        try:
            if len(items) == 1 and self._is_quick():
                made = batch[0].work(items)
            else:
                made = await run(self._pool, batch[0].work, items)
        except asyncio.CancelledError:
            raise
        except BaseException as fault:  # noqa: BLE001 - a panic of a library too: raised where it was asked for
            if len(batch) == 1:
                if not batch[0].future.done():
                    batch[0].future.set_exception(fault)
                return
            for waiting in batch:
                await self._do([waiting])
            return
        for waiting in batch:
            if not waiting.future.done():
                waiting.future.set_result(made[: len(waiting.items)])
            made = made[len(waiting.items) :]
