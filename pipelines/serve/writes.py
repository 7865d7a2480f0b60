"""Documents that a program adds and deletes over HTTP: what waited is one commit, and answered when it is on the disk.

A document that an index refuses fails by itself: then each of its group is tried alone. While another process writes
the index, changes wait to their deadline.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragidx.corpora.errors import BusyError, CorpusError, RagidxError, printable
from ragidx.corpora.records import Document
from ragidx.pipelines.maintain.batch import Batch
from ragidx.pipelines.serve.served_index import Served, run
from ragidx.retriever.searcher import Searcher

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUP = 256  # changes of one commit
_WAIT = 0.8  # of the deadline, for another writer; the rest is for the commit


@dataclass
class WaitingWrite:
    """A document to add, or the id of one to delete."""

    document: Document | None
    name: str
    done: asyncio.Future[int | None]


class Writes:
    """The changes of one index, in the order in which they came.

    Args:
        served: the index that is changed.
        deadline_s: seconds that a change may take.
    """

    def __init__(self, served: Served, deadline_s: float) -> None:
        self.served, self._wait_s = served, _WAIT * deadline_s
        self._waiting: list[WaitingWrite] = []
        self._worker: asyncio.Task[None] | None = None

    async def add(self, document: Document) -> int:
        """Add or replace a document; the generation that has it."""
        generation = await self._change(document, document.id)
        assert generation is not None
        return generation

    async def delete(self, name: str) -> int | None:
        """Delete a document; the generation without it, None where there was none."""
        return await self._change(None, name)

    async def _change(self, document: Document | None, name: str) -> int | None:
        done: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(WaitingWrite(document, name, done))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await done

    async def _work(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:GROUP], self._waiting[GROUP:]
                await self._commit([change for change in group if not change.done.done()])
        finally:
            self._worker = None

    async def _commit(self, group: Sequence[WaitingWrite]) -> None:
        if not group:
            return
        try:
            opened, found = await run(self.served.pools.writing, _committed, self.served.current, group, self._wait_s)
        except asyncio.CancelledError:
            raise
        except BaseException as fault:  # noqa: BLE001 - a panic of a library too: raised where the change was asked for
            if len(group) == 1 or isinstance(fault, BusyError) or not isinstance(fault, RagidxError):
                for change in group:
                    if not change.done.done():
                        change.done.set_exception(fault)
                return
            for change in group:
                await self._commit([] if change.done.done() else [change])
            return
        self.served.show(opened)
        for change, is_found in zip(group, found, strict=True):
            if not change.done.done():
                change.done.set_result(opened.store.manifest.generation if is_found else None)


def _committed(state: Searcher, group: Sequence[WaitingWrite], wait_s: float) -> tuple[Searcher, list[bool]]:
    """The state after the changes, on the disk; and whether there was something to delete."""
    path, found = state.store.path, []
    with Batch(state, wait_s) as batch:
        for is_deleted, alike in itertools.groupby(group, key=lambda change: change.document is None):
            changes = list(alike)
            if not is_deleted:
                batch.add([change.document for change in changes if change.document is not None])
                if batch.blank:
                    raise CorpusError("the document has no text", "write one", where=printable(batch.blank[0]))
                found += [True] * len(changes)
            for change in changes if is_deleted else ():
                before = batch.n_deleted
                batch.delete([change.name], missing="skip")
                found.append(batch.n_deleted > before)
    return Searcher.open(path, state.place, state), found
