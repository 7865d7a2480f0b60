"""Files become Drafts, most of them in workers, in the order of the files.

    Sources -> tasks -> workers -> (Source, its Drafts), in the order of the sources

Formats whose parsers a hostile file can break are read in a worker always; plain text, Markdown, code, JSON Lines and
CSV in this process, unless there is so much that workers pay.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.left_out import Left
from ragidx.corpora.limits import MIB, ReadOptions
from ragidx.corpora.readers.layouts import Layout, Layouts
from ragidx.corpora.readers.registry import OnRead, is_packed, is_plain, is_streamed, may_be_scanned
from ragidx.corpora.records import Document, OnSkip, Skip
from ragidx.corpora.sources import Source
from ragidx.pipelines.ingest.workers import codec
from ragidx.pipelines.ingest.workers.capacity import has_interpreter, n_workers
from ragidx.pipelines.ingest.workers.chunks import Cutter, Draft
from ragidx.pipelines.ingest.workers.files import drafts_of
from ragidx.pipelines.ingest.workers.frames import FrameError, error_in
from ragidx.pipelines.ingest.workers.known import written
from ragidx.pipelines.ingest.workers.lanes import Message
from ragidx.pipelines.ingest.workers.pool import Pool
from ragidx.pipelines.ingest.workers.process import Process

PAYS_BYTES = 8 * MIB
"""Of files that are read: of fewer, more workers save little time and take more (benchmarks/workers.py)."""
PAYS_FILES = 2048
"""As many files are read by several workers, however small they are."""

WHOLE_BYTES = 64 * MIB
"""Of a text that is not records: a larger one needs more memory than a worker has."""

_READER = "the reader"
_AHEAD_BYTES = 64 * MIB
_AHEAD_FILES = PAYS_FILES


@dataclass(frozen=True)
class Spread:
    """Reads files in workers.

    Args:
        options: options of reading: which fields are taken, and bounds.
        layouts: layouts of earlier builds; those of this one are added.
        on_skip: called for each skip, while the drafts of its file are iterated.
        on_read: called with the bytes that were read since its last call, in all the sizes of the files, and the pages
            that text recognition has read.
        cutter: workers cut as it does; None: they cut nothing.
        workers: how many; None: as the machine has room for, and one if the corpus is small.
        known: digests of the ids, hashes and owners of documents that need not be cut; None: all are cut.
    """

    options: ReadOptions
    layouts: Layouts
    on_skip: OnSkip
    on_read: OnRead = lambda n_bytes, n_pages=0: None
    cutter: Cutter | None = None
    workers: int | None = None
    known: NDArray[np.void] | None = None

    def drafts(
        self, sources: Iterable[Source], is_known: Callable[[Source], bool] = lambda source: False
    ) -> Iterator[tuple[Source, Generator[Draft]]]:
        """Each file with its drafts, in the order of the files.

        Args:
            sources: the files to read.
            is_known: whether a file will probably not be asked for its drafts: then it is not read ahead.
        """
        count, spreads = n_workers(self.workers), False
        ahead = _Ahead(iter(sources), is_known, lambda source: may_be_scanned(source, self.options))
        with self.pool(1) as pool:
            while True:
                new = ahead.look()
                if not spreads and count > 1 and has_interpreter() and (self.workers is not None or ahead.is_much):
                    spreads = True
                    pool.grow(count)
                for entry in new:
                    if has_interpreter() and not self._is_here(entry.source, spreads):
                        entry.task = self.begin(entry.source, pool)
                if (next_entry := ahead.next()) is None:
                    return
                with contextlib.closing(self._stream(next_entry, pool)) as drafts:
                    yield next_entry.source, drafts
                if next_entry.task is not None:
                    pool.cancel(next_entry.task)

    def _is_here(self, source: Source, spreads: bool) -> bool:
        """Whether a file is read in this process."""
        if source.path is None:
            return True
        return is_plain(source) and (not spreads or (source.size > WHOLE_BYTES and not is_streamed(source)))

    def _stream(self, entry: _Entry, pool: Pool) -> Generator[Draft]:
        if entry.task is not None:
            yield from self._given(entry.source, entry.task, pool)
        elif self._is_here(entry.source, spreads=False):
            yield from drafts_of(entry.source, self.options, self.layouts, self.on_skip, self.on_read)
        elif not has_interpreter():
            self.on_skip(Skip(entry.source.name, "needs a Python interpreter to start a worker, and none is known"))
        else:  # wanted after all: the workers have gone on to later files
            with self.pool(1) as other:
                yield from self._given(entry.source, self.begin(entry.source, other), other)

    def begin(self, source: Source, pool: Pool, vectors: Sequence[object] | None = None) -> int:
        """Make the task of a file; `vectors`: for one of precomputed vectors, what `read_vectors` is given."""
        return pool.add(
            {
                "source": [
                    *(str(source.path), source.name, source.size, source.beir, _status(source), source.owner),
                    source.span,
                ],
                "layouts": {name: one.to_json() for name, one in self._layouts_of(source).items()},
                "vectors": vectors,
            }
        )

    def _given(self, source: Source, task: int, pool: Pool) -> Iterator[Draft]:
        """The drafts of a file from what workers say of it."""
        n_read = 0
        for event in events(source, pool, task):
            if isinstance(event, Skip | Left):
                self.on_skip(event)
                if isinstance(event, Skip) and is_death(event, source):
                    break
            elif isinstance(event, codec.Decided):
                self.layouts.decided(event.name, event.layout)
            elif isinstance(event, codec.NRead):
                n_read += event.n_bytes
                self.on_read(event.n_bytes, *[event.n_pages] * bool(event.n_pages))
            elif isinstance(event, Draft):
                yield event
        self.on_read(max(0, source.n_bytes - n_read))

    # -- what workers are sent ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def pool(self, count: int) -> Iterator[Pool]:
        """Workers for these files, at most so many; they start when there is something for them."""
        with contextlib.ExitStack() as stack:
            known: list[int] = []

            def make(on_message: Any, on_end: Any) -> Process:
                if self.known is not None and len(self.known) and not known:
                    known.append(stack.enter_context(written(self.known)).fileno())
                return Process(
                    "workers.worker", self._job(known), self.options.limits, on_message, on_end, tuple(known)
                )

            yield stack.enter_context(Pool(count, make, answer=self._chunker))

    def _job(self, known: Sequence[int]) -> Message:
        return {
            "kind": "job",
            "options": dataclasses.asdict(self.options),
            "language": self.cutter is not None and self.cutter.language,
            "known": next(iter(known), None),
        }, b""

    def _layouts_of(self, source: Source) -> dict[str, Layout]:
        """Those that the reader of a file may ask for."""
        known, own = self.layouts.known, source.name
        if known and is_packed(source):
            return {name: one for name, one in known.items() if name.startswith(own)}
        return {own: known[own]} if own in known else {}

    def _chunker(self) -> Message:
        if self.cutter is None:
            return {"kind": "chunker"}, b""
        chunker = self.cutter.chunker
        spec, limit, tokenizer = chunker.parts()
        return {"kind": "chunker", "spec": spec.to_json(), "limit": limit, "ids": chunker.takes_ids}, (
            tokenizer or ""
        ).encode()


def _status(source: Source) -> list[float] | None:
    s = source.status
    return None if s is None else [*s[:10], s.st_atime, s.st_mtime, s.st_ctime]


def documents(sources: Iterable[Source], on_skip: OnSkip) -> Iterator[Document]:
    """The documents of files, whole, for whoever wants their texts and no chunks."""
    for _, drafts in Spread(ReadOptions(), Layouts(), on_skip, workers=1).drafts(sources):
        for draft in drafts:
            assert draft.document is not None  # nobody cuts it
            yield draft.document


def events(source: Source, pool: Pool, task: int) -> Iterator[codec.Event]:
    """What a task gives; what is said again after a worker died is given once.

    Raises:
        RagidxError: that a worker met.
    """
    n_given = n_passed = 0
    try:
        for message in pool.messages(task):
            kind, said = message[0].get("kind"), iter(list[codec.Event]())
            if kind == "again":
                n_passed = 0
            elif kind == "error":
                raise error_in(message[0])
            elif kind == "died":
                yield Skip(source.name, f"{_READER} {message[0]['why']}")
            elif kind == "piece" and isinstance(piece := message[0].get("task"), int):
                said = events(source, pool, piece)
            else:
                said = iter(codec.decoded(message, source.owner))
            for event in said:
                n_passed += 1
                if n_passed > n_given:
                    n_given += 1
                    yield event
    except FrameError as fault:
        yield Skip(source.name, f"{_READER} says what is no message: {fault}")


def is_death(skip: Skip, source: Source) -> bool:
    """Whether a worker could not read the file to its end."""
    return skip.where == source.name and skip.reason.startswith(_READER)


@dataclass
class _Entry:
    source: Source
    is_known: bool
    task: int | None = None


class _Ahead:
    """Sources, some of them looked at before it is their turn."""

    def __init__(
        self,
        sources: Iterator[Source],
        is_known: Callable[[Source], bool],
        is_scan: Callable[[Source], bool] = lambda source: False,
    ) -> None:
        self._sources, self._is_known, self._is_scan = sources, is_known, is_scan
        self._entries: deque[_Entry] = deque()
        self.n_bytes = 0  # of those that wait and are not known
        self._n_new = 0  # that were not known, so far

    @property
    def is_much(self) -> bool:
        """Whether more than one worker pays for what is not known."""
        return self.n_bytes >= PAYS_BYTES or self._n_new >= PAYS_FILES

    def look(self) -> list[_Entry]:
        """Look at more sources, until enough bytes or files wait; those of them that are not known."""
        new: list[_Entry] = []
        while self.n_bytes < _AHEAD_BYTES and len(self._entries) < _AHEAD_FILES:
            source = next(self._sources, None)
            if source is None:
                break
            entry = _Entry(source, self._is_known(source))
            self._entries.append(entry)
            if not entry.is_known:
                new.append(entry)
                self.n_bytes += source.n_bytes
                self._n_new += PAYS_FILES // 2 if self._is_scan(source) else 1
        return new

    def next(self) -> _Entry | None:
        """The next source in the order; None at the end."""
        if not self._entries:
            return None
        entry = self._entries.popleft()
        self.n_bytes -= 0 if entry.is_known else entry.source.n_bytes
        return entry
