"""Files become Drafts in processes of their own: `Files`, spread over workers, in the same order.

    Sources -> tasks -> workers -> (Source, its Drafts), in the order of the sources

Formats whose parsers a hostile file can break are read in a worker always; plain text, Markdown, code, JSON Lines and
CSV in this process, unless there is so much that workers pay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora import errors
from ragidx.corpora.errors import DefectError, RagidxError
from ragidx.corpora.limits import MIB, UnreadableError
from ragidx.corpora.readers.layouts import Layout, Layouts
from ragidx.corpora.readers.records.documents import SeenIds, seen_before
from ragidx.corpora.readers.records.jsonl import divided
from ragidx.corpora.readers.registry import is_lines, is_packed, is_plain
from ragidx.corpora.readers.source_file import Part, SourceFile
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import Source
from ragidx.pipelines.ingest.workers import codec
from ragidx.pipelines.ingest.workers.capacity import n_workers
from ragidx.pipelines.ingest.workers.chunks import Draft, Item
from ragidx.pipelines.ingest.workers.files import Files
from ragidx.pipelines.ingest.workers.frames import FrameError
from ragidx.pipelines.ingest.workers.known import written
from ragidx.pipelines.ingest.workers.lanes import Message
from ragidx.pipelines.ingest.workers.pool import Pool
from ragidx.pipelines.ingest.workers.process import Process

PART_BYTES = 2 * MIB
"""Of a file of JSON Lines that one task reads."""

PAYS_BYTES = 4 * MIB
"""Of plain files that are read: fewer are read sooner here than a worker starts."""

_READER = "the reader"
_LOSES_THE_REST = (_READER, "needs more than")  # why nothing more of a file is taken
_AHEAD_BYTES = 64 * MIB
_AHEAD_FILES = 2048
_WHOLE_BYTES = 64 * MIB  # a text that is larger needs more memory than a worker has


def _never(source: Source) -> bool:
    return False


@dataclass(frozen=True)
class Spread(Files):
    """Reads files in workers, as `Files` does here.

    Args:
        workers: how many; None: as the machine has room for, and one if the corpus is small.
        known: of documents that need not be cut, the digests of their ids and their hashes; None: all are cut.
    """

    workers: int | None = None
    known: NDArray[np.void] | None = None

    def drafts(
        self, sources: Iterable[Source], is_known: Callable[[Source], bool] = _never
    ) -> Iterator[tuple[Source, Generator[Draft]]]:
        """Each file with its drafts; files are read ahead, but those that `is_known` names."""
        count, found = n_workers(self.workers), _Ahead(iter(sources), is_known)
        found.fill(PAYS_BYTES)
        spreads = count > 1 and bool(sys.executable) and (self.workers is not None or found.n_bytes >= PAYS_BYTES)
        with self._pool(count if spreads else 1) as pool:
            while True:
                found.fill(_AHEAD_BYTES)
                for new in found.untasked():
                    if sys.executable and not self._is_here(new.source, spreads):
                        self._begin(new, pool)
                entry = found.next()
                if entry is None:
                    return
                with contextlib.closing(self._stream(entry, pool, spreads)) as drafts:
                    yield entry.source, drafts
                for task in entry.tasks:
                    pool.cancel(task)

    def _is_here(self, source: Source, spreads: bool) -> bool:
        """Whether a file is read in this process."""
        if source.path is None:
            return True
        return is_plain(source) and (not spreads or source.size > _WHOLE_BYTES)

    def _stream(self, entry: _Entry, pool: Pool, spreads: bool) -> Generator[Draft]:
        if not entry.tasks and self._is_here(entry.source, spreads):
            yield from self.of(entry.source)
        elif entry.tasks:
            yield from self._given(entry, pool)
        elif not sys.executable:
            self.on_skip(Skip(entry.source.name, "needs a Python interpreter to start a worker, and none is known"))
        else:  # wanted after all: the workers have gone on to later files
            with self._pool(1) as other:
                self._begin(entry, other)
                yield from self._given(entry, other)

    def _begin(self, entry: _Entry, pool: Pool) -> None:
        """Make the tasks of a file: one, or one for each part of it."""
        source = entry.source
        layouts = _Decisions(self._layouts_of(source))
        parts: Sequence[Part | None] = [None]
        if source.size >= 2 * PART_BYTES and is_lines(source):
            file = SourceFile(source=source, options=self.options, on_skip=lambda skip: None, layouts=layouts)
            with contextlib.suppress(OSError, UnreadableError):  # whoever reads it reports that
                layout, found = divided(file, PART_BYTES)
                if found:
                    parts, entry.decisions, layouts.known = found, layouts.calls, {source.name: layout}
        entry.tasks = [pool.add(*_task(source, layouts.known, part)) for part in parts]

    def _given(self, entry: _Entry, pool: Pool) -> Iterator[Draft]:
        """The drafts of a file from what workers say of it."""
        source, n_read, joined = entry.source, 0, None
        for call in entry.decisions:
            self.layouts.decided(*call)
        if len(entry.tasks) > 1:
            joined = _Joined(SourceFile(source=source, options=self.options, on_skip=self.on_skip))
        for event in itertools.chain.from_iterable(_events(source, pool, task) for task in entry.tasks):
            if isinstance(event, Skip):
                self.on_skip(event if joined is None else joined.skip(event))
                if event.where == source.name and event.reason.startswith(_LOSES_THE_REST):
                    break
            elif isinstance(event, codec.Decided):
                self.layouts.decided(event.name, event.layout)
            elif isinstance(event, codec.NRead):
                n_read += event.n_bytes
                self.on_read(event.n_bytes)
            elif joined is None or joined.is_new(event):
                yield Draft(event.id, event.hash, event.n_chars, functools.partial(self._items, event), event.at)
        self.on_read(max(0, source.size - n_read))

    def _items(self, sent: codec.Sent) -> list[Item]:
        if sent.document is not None:
            return self.cutter.cut(sent.document, sent.hash)
        if sent.items is None:
            raise DefectError("a document that the index has is wanted as a new one", "report it", where=sent.id)
        return list(sent.items)

    # -- what workers are sent ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _pool(self, count: int) -> Iterator[Pool]:
        with contextlib.ExitStack() as stack:
            known: list[int] = []

            def make(on_message: Any, on_end: Any) -> Process:
                if self.known is not None and len(self.known) and not known:
                    known.append(stack.enter_context(written(self.known)).fileno())
                return Process(self._job(known), self.options.limits, on_message, on_end, tuple(known))

            yield stack.enter_context(Pool(count, make, answers={"chunker": self._chunker}))

    def _job(self, known: Sequence[int]) -> Message:
        o = self.options
        return {
            "kind": "job",
            "limits": dataclasses.asdict(o.limits),
            "options": {name: getattr(o, name) for name in ("text_field", "id_field", "records")},
            "fields": dict(o.fields),
            "language": self.cutter.language,
            "known": next(iter(known), None),
        }, b""

    def _layouts_of(self, source: Source) -> dict[str, Layout]:
        """Those that the reader of a file may ask for."""
        known, own = self.layouts.known, source.name
        if is_packed(source):
            return {name: one for name, one in known.items() if name.startswith(own)}
        return {own: known[own]} if own in known else {}

    def _chunker(self) -> Message:
        chunker = self.cutter.chunker
        spec, limit, tokenizer = chunker.parts()
        return {"kind": "chunker", "spec": spec.to_json(), "limit": limit, "ids": chunker.takes_ids}, (
            tokenizer if tokenizer and self.cutter.ahead else ""
        ).encode()


def _task(source: Source, layouts: Mapping[str, Layout], part: Part | None) -> Message:
    s = source.status
    status = None if s is None else [*s[:10], s.st_atime, s.st_mtime, s.st_ctime]
    return {
        "source": [str(source.path), source.name, source.size, source.beir, status],
        "layouts": {name: dataclasses.astuple(one) for name, one in layouts.items()},
        "part": None if part is None else dataclasses.astuple(part),
    }, b""


def _events(source: Source, pool: Pool, task: int) -> Iterator[codec.Event]:
    """What a task gives; what is said again after a worker died is given once.

    Raises:
        RagidxError: that a worker met.
    """
    n_given = n_passed = 0
    try:
        for message in pool.messages(task):
            kind, events = message[0].get("kind"), iter(list[codec.Event]())
            if kind == "again":
                n_passed = 0
            elif kind == "error":
                raise _error(message[0]["error"])
            elif kind == "died":
                yield Skip(source.name, f"{_READER} {message[0]['why']}")
            elif kind == "piece" and isinstance(piece := message[0].get("task"), int):
                events = _events(source, pool, piece)
            elif kind == "events":
                events = iter(codec.decoded(message))
            for event in events:
                n_passed += 1
                if n_passed > n_given:
                    n_given += 1
                    yield event
    except FrameError as fault:
        yield Skip(source.name, f"{_READER} says what is no message: {fault}")


def _error(told: Any) -> RagidxError:
    """The error that a worker met."""
    name, message, hint, where = map(str, told)
    kind = getattr(errors, name, None)
    kind = kind if isinstance(kind, type) and issubclass(kind, RagidxError) else RagidxError
    return kind(message, hint, where=where)


class _Decisions(Layouts):
    """Layouts that note what is decided."""

    def __init__(self, known: Mapping[str, Layout]) -> None:
        super().__init__(known)
        self.calls: list[tuple[str, Layout]] = []

    def decided(self, name: str, layout: Layout) -> None:
        """Note the layout of a file."""
        super().decided(name, layout)
        self.calls.append((name, layout))


class _Joined:
    """What the reader of a whole file knows, of a file whose parts have several."""

    def __init__(self, file: SourceFile) -> None:
        self._file, self._seen, self._first = file, SeenIds(), dict[str, str]()

    def is_new(self, sent: codec.Sent) -> bool:
        """Whether the file has not had this id before; else that is reported."""
        own = sent.id if self._file.source.beir else sent.id.removeprefix(f"{self._file.source.name}#")
        if self._seen.add(own):
            return True
        self._file.skip(seen_before(own), sent.at)
        return False

    def skip(self, skip: Skip) -> Skip:
        """The skip in the words of the first one of its field: they name what else that record has."""
        begin, missing, _ = skip.reason.partition("' is missing (found: ")
        return Skip(skip.where, self._first.setdefault(begin, skip.reason)) if missing else skip


@dataclass
class _Entry:
    source: Source
    is_known: bool
    tasks: Sequence[int] = ()
    decisions: Sequence[tuple[str, Layout]] = ()


class _Ahead:
    """Sources, some of them looked at before it is their turn."""

    def __init__(self, sources: Iterator[Source], is_known: Callable[[Source], bool]) -> None:
        self._sources, self._is_known = sources, is_known
        self._entries: deque[_Entry] = deque()
        self._new: list[_Entry] = []
        self.n_bytes = 0  # of files that are not known

    def fill(self, n_bytes: int) -> None:
        """Look at more sources, until so many bytes wait."""
        while self.n_bytes < n_bytes and len(self._entries) < _AHEAD_FILES:
            source = next(self._sources, None)
            if source is None:
                return
            entry = _Entry(source, self._is_known(source))
            self._entries.append(entry)
            if not entry.is_known:
                self._new.append(entry)
                self.n_bytes += source.size

    def untasked(self) -> list[_Entry]:
        """Those that were looked at since the last call, and are not known."""
        found, self._new = self._new, []
        return found

    def next(self) -> _Entry | None:
        """The next source in the order; None at the end."""
        if not self._entries:
            return None
        entry = self._entries.popleft()
        self.n_bytes -= 0 if entry.is_known else entry.source.size
        return entry
