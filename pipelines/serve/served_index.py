"""One index of a service: the state that answers, the models it needs, and the change to a newer state.

A request takes `Served.state` once and uses nothing else, so it never mixes two generations. A newer state is opened
beside the one that answers, with its model, and put in its place by one assignment; the files of the old one stay
readable until its last request ends. What cannot be opened changes nothing: the state before keeps answering, and
`problem` says why. Files that are mapped must not be written into: a state whose files are is let go, and opened anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

import numpy as np

from ragidx.corpora.errors import IndexFormatError, RagidxError
from ragidx.indexer.ann.search import on_one_thread
from ragidx.indexer.arrays import Floats
from ragidx.indexer.store.files import MANIFEST
from ragidx.indexer.store.manifest import files_of
from ragidx.pipelines.base.resources import usable_cores
from ragidx.retriever.keywords import Rerank
from ragidx.retriever.models import HERE, ModelPlace
from ragidx.retriever.options import SearchOptions
from ragidx.retriever.rows import Queries, needs_vectors
from ragidx.retriever.searcher import Searcher

if TYPE_CHECKING:
    from ragidx.retriever.hit import Hits

WATCH_S = 1.0  # between looks at the manifest
REMOTE_S = 10.0  # between looks at an engine
BACK_OFF_S = 30.0  # at most, between tries to open what could not be opened
BATCH = 32  # questions that are encoded at once
SEARCHED = 8  # vectors that are searched at once: from 20 on, the library that compares them may round otherwise
# A search that may be made between two requests, where others must not wait, and no other thread could help: in more
# rows, the library that compares vectors lets another thread run, unless there is nothing else to do.
SMALL_K, SMALL_ROWS = 20, 10_000
RECENT = 8  # such searches, of which each took so little
QUICK_CPU_S, QUICK_S = 0.008, 0.05  # of the processor, and in all: from a cold disk it takes longer
_Stat = tuple[int, int, int]
P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[[list[Any]], Any]
"""What is made of items, a list or an array: as many, in their order."""


class NotReadyError(Exception):
    """The index is being opened, or cannot be: its text says why."""


class Pools:
    """The threads of a service: one encodes, as many as there are cores search, two read, one writes."""

    def __init__(self) -> None:
        self.encoding = ThreadPoolExecutor(1, "encode")
        self.searching = ThreadPoolExecutor(usable_cores(), "search")
        self.reading = ThreadPoolExecutor(2, "read")
        self.writing = ThreadPoolExecutor(1, "write")

    def close(self) -> None:
        """Let what runs end; what waits is dropped."""
        for pool in (self.encoding, self.searching, self.reading, self.writing):
            pool.shutdown(wait=False, cancel_futures=True)


class Served:
    """An index that is served.

    Args:
        name: name of the index in requests.
        path: folder of the index, or the target that has its rows.
        pools: thread pools of the service.
        place: where its model is.
        rerank: a model that reads the best passages, loaded with the index.

    Attributes:
        state: what answers; None until the index is open.
        problem: why a newer state cannot be shown, or the model not be loaded; empty where all is well.
        is_loaded: whether the models that questions need are in memory.
        n_reloads, n_failures: newer states shown, and tries that failed.
    """

    def __init__(
        self, name: str, path: Path | str, pools: Pools, place: ModelPlace = HERE, *, rerank: str | None = None
    ) -> None:
        self.name, self.path, self.place, self.rerank = name, path, place, rerank
        self.pools = pools
        self.state: Searcher | None = None
        self.problem = ""
        self.is_loaded = False
        self.n_reloads = self.n_failures = 0
        self._questions = Together(pools.encoding, BATCH)
        self._searches = Together(pools.searching, SEARCHED, usable_cores(), self._is_quick)
        self._seen: _Stat | None = None
        self._recent: tuple[Searcher | None, deque[bool]] = (None, deque(maxlen=RECENT))
        self._mapped: tuple[Searcher | None, dict[Path, _Stat | None]] = None, {}

    @property
    def current(self) -> Searcher:
        """The state that answers.

        Raises:
            NotReadyError: the index is being opened.
        """
        if self.state is None:
            raise NotReadyError(self.problem)
        return self.state

    async def watch(self) -> None:
        """Open the index and load its models, then show each newer state; ends when it is cancelled."""
        wait, again = WATCH_S, 0.0
        while True:
            self._check_mapped()
            is_due = bool(self.problem) and time.monotonic() >= again
            is_new = self._manifest() != self._seen or (self.state is None and not self.problem)
            if is_due or is_new:
                wait = WATCH_S if await self.reload() else min(2 * wait, BACK_OFF_S)
                again = time.monotonic() + wait
                self._check_mapped()  # notes the files of a state that is new
            await asyncio.sleep(WATCH_S)

    async def reload(self) -> bool:
        """Show the newest state; whether there is nothing that keeps it from being shown."""
        first, self._seen = self.state is None, self._manifest()
        try:
            if self._seen is None and not first:
                raise IndexFormatError("the index is gone", where=str(self.path))
            before = self.state
            opened = await run(self.pools.reading, self._newest, before)
            if first:
                self.state = opened  # what needs no model is answered from now on
            await self._load(opened)
        except Exception as fault:  # noqa: BLE001 - whatever it is, what is shown keeps answering
            self.problem = (
                str(fault) if isinstance(fault, RagidxError | OSError) else f"{type(fault).__name__}: {fault}"
            )
            self.n_failures += 1
            return False
        if first or self.state is before:
            self.n_reloads += opened is not self.state
            self.state = opened
        else:  # a change that was made here is newer
            self._seen = None
        self.problem = ""
        return True

    def _check_mapped(self) -> None:
        """Let go of the state whose files were truncated or overwritten where they are: it would answer wrongly, or
        end the process. Files that are gone, or have others in their place, stay as they are to who has mapped them.
        """
        if self.state is None or not isinstance(self.path, Path):
            return
        if self._mapped[0] is not self.state:
            names = files_of(self.state.store.manifest)
            self._mapped = self.state, {self.path / name: _stat(self.path / name) for name in names}
        for file, before in self._mapped[1].items():
            now = _stat(file)
            if before is not None and now is not None and now != before and now[0] == before[0]:
                self.state, self.is_loaded, self._seen = None, False, None
                hint = "replace an index by rename (docs/serve.md)"
                self.problem = str(IndexFormatError("a file that is read was written into", hint, where=str(file)))
                return

    def show(self, opened: Searcher) -> None:
        """Show a state that was committed here."""
        if self.state is None or opened.store.manifest.generation > self.state.store.manifest.generation:
            self.state = opened

    async def _load(self, opened: Searcher) -> None:
        """Load what questions need, and ask once, so that the first question of a person does not wait."""

        def load() -> None:
            if opened.spec.encoder is not None:
                opened.encode(["ready"])
            if self.rerank is not None:
                opened.reranker(self.rerank, Rerank(self.rerank).method)

        await run(self.pools.encoding, load)
        self.is_loaded = True

    def _newest(self, before: Searcher | None) -> Searcher:
        """The state that is there now."""
        if isinstance(self.path, Path):
            return Searcher.open(self.path, self.place, before)
        from ragidx.pipelines.integrations.engines.remote import RemoteSearcher

        return RemoteSearcher.open(self.path, self.place, before)

    def _manifest(self) -> _Stat | None:
        """What tells one manifest from the next; None where there is none."""
        if isinstance(self.path, str):  # an engine is asked now and then
            return 0, int(time.monotonic() / REMOTE_S), 0
        return _stat(self.path / MANIFEST)

    def _is_quick(self) -> bool:
        """Whether the last plain searches of this state took so little that one can be made between two requests."""
        searcher, recent = self._recent
        return searcher is self.state and len(recent) == RECENT and all(recent)

    def _note(self, searcher: Searcher, seconds: float, of_processor: float) -> None:
        """Note how long a plain search took."""
        if self._recent[0] is not searcher:
            self._recent = searcher, deque(maxlen=RECENT)
        self._recent[1].append(of_processor < QUICK_CPU_S and seconds < QUICK_S)

    async def encoded(self, searcher: Searcher, queries: Sequence[str], instruction: str | None = None) -> Floats:
        """(q, dim) of some questions, encoded with those of other requests."""
        found: Floats = await self._questions.done(
            (searcher, instruction), lambda texts: searcher.encode(texts, instruction), queries
        )
        return found

    async def search(
        self,
        searcher: Searcher,
        asked: Queries,
        instruction: str | None,
        options: SearchOptions,
        written: Callable[[list[Hits], dict[str, float]], T],
    ) -> T:
        """What is written of the hits of some queries and of the ms of each stage, in the thread that searched.

        Single vectors that wait for a thread are searched together; each has the answer that it has alone.
        """
        started = time.perf_counter()
        waits = asked.vectors is None and needs_vectors(options)
        vectors = asked.vectors
        if waits and not searcher.encodes_at_once(instruction):
            vectors = await self.encoded(searcher, asked.texts or (), instruction)
            waits = False

        def search(together: Sequence[_Asked[T]]) -> list[T]:
            begun, spent = time.perf_counter(), time.thread_time()
            if waits:
                queries = Queries(searcher.encode(asked.texts or (), instruction), asked.texts)
            else:
                queries = _together([one.queries for one in together])
            encoded = time.perf_counter()
            with on_one_thread() if len(together) > 1 else contextlib.nullcontext():
                hits, answers = searcher.hits(queries, options), []
            took = 1000 * (time.perf_counter() - encoded)
            for one in together:
                mine, hits = hits[: len(one.queries)], hits[len(one.queries) :]
                answers.append(one.written(mine, {"encode": 1000 * (encoded - one.started), "search": took}))
            if is_plain:
                n = len(together)
                self._note(searcher, (time.perf_counter() - begun) / n, (time.thread_time() - spent) / n)
            return answers

        is_plain = len(asked) == 1 and options.k <= SMALL_K and not options.context
        is_plain &= options.where is None and options.mmr is None and options.rerank is None
        mine, answer = [_Asked(Queries(vectors, asked.texts), started, written)], list[T]()
        if is_plain and asked.texts is None and isinstance(self.path, Path):  # an engine answers several at once
            answer = await self._searches.done((searcher, options), search, mine)
        elif is_plain and searcher.store.manifest.n_chunks <= SMALL_ROWS and self._is_quick():
            answer = search(mine)  # a change of threads would cost half as much again
        else:
            pool = self.pools.searching if options.rerank is None else self.pools.encoding
            answer = await run(pool, search, mine)
        return answer[0]


class _Asked(NamedTuple, Generic[T]):
    """What a request asks, since when, and what is written of its hits."""

    queries: Queries
    started: float
    written: Callable[[list[Hits], dict[str, float]], T]


def _together(queries: Sequence[Queries]) -> Queries:
    """Those of one request, or the vectors of several."""
    if len(queries) == 1:
        return queries[0]
    return Queries(np.concatenate([one.vectors for one in queries if one.vectors is not None]))


def _stat(file: Path) -> _Stat | None:
    """What tells one state of a file from the next; None where there is none."""
    with contextlib.suppress(OSError):
        found = file.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size
    return None


async def run(pool: ThreadPoolExecutor, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """What a function returns, run in a thread of a pool."""
    return await asyncio.wrap_future(pool.submit(function, *args, **options))


class _Waiting(NamedTuple):
    """Items of a request, and who waits for what is made of them."""

    key: object
    work: Work
    items: Sequence[Any]
    future: asyncio.Future[Any]


class Together:
    """Work that is done for several requests at once: a batch is what waited while the one before it was done.

    Nothing waits for a timer: what finds nothing in front of it is done at once. Where more than a batch waits, several
    threads work.

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
