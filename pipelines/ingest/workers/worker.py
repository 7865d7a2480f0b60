"""What a worker does: it reads files for its build, and says what is in them, until the build ends.

    stdin   {"kind": "job", ...} once, then {"kind": "task", "task": n, "source": [...]}
            or {"kind": "task", "task": n, "words": [start, stop], "mapped": n}: of the body's segment
    stdout  {"kind": "ready"}; for each task messages of events, {"kind": "end"}
            {"kind": "want"}: answered with the tokenizer's JSON, when the first text is cut
            {"kind": "picture", "languages": "deu"}: answered with tesseract's table of it, a PGM
    stdin   {"kind": "give", "task": n, "count": m}, after events with "more": other workers have nothing to do
    stdout  {"kind": "piece"}, m times: a message of events in it, of documents that this worker did not cut
    stdin   a task with "is_piece", for another worker, with that message in it

It has one thread, limits on memory and time, no network and no process of its own (refused by the kernel, where it
can, and by Python), and is gone soon after its build, however that ended. Neither torch nor transformers nor faiss is
imported here.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import math
import os
import resource
import select
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.errors import RagidxError
from ragidx.corpora.limits import MIB, Limits, ReadOptions
from ragidx.corpora.readers.layouts import Layout, Layouts
from ragidx.corpora.readers.registry import may_be_scanned
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.sources import LineSpan, Source
from ragidx.corpora.spec import ChunkSpec
from ragidx.corpora.vectors.files import VectorRows, read_vectors
from ragidx.indexer.arrays import arrow_without_pandas
from ragidx.pipelines.base.no_network import close_network
from ragidx.pipelines.ingest.workers import codec, frames
from ragidx.pipelines.ingest.workers.capacity import NO_MEMORY, NO_MEMORY_FOR_PDF
from ragidx.pipelines.ingest.workers.chunks import Cutter, Draft
from ragidx.pipelines.ingest.workers.files import drafts_of
from ragidx.pipelines.ingest.workers.known import Known
from ragidx.pipelines.ingest.workers.lanes import Message

_FLUSH_CHARS = MIB
_FLUSH_S = 0.2
_FORBIDDEN = (
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"),
    *("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.system", "os.posix_spawn", "os.kill"),
)
_PDEATHSIG = 1


def main() -> None:
    """Answer tasks until the build ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with(os.getppid())
    close_network()
    stdin, out = frames.over_pipes()
    arrow_without_pandas()
    with contextlib.suppress(EOFError, BrokenPipeError):
        _Worker(stdin, out).run()
    os._exit(0)  # what libraries do at the end is of no use here


class _Worker:
    """The state of a worker: its job, and the messages that came before their turn."""

    def __init__(self, stdin: BinaryIO, out: BinaryIO) -> None:
        self._stdin, self._exactly, self._out = stdin, frames.reader(stdin), out
        self._waiting: deque[Message] = deque()
        self._n_wanted: Counter[int] = Counter()  # pieces, by task
        job, _ = frames.read(self._exactly)
        said = job["options"]
        self.limits = Limits(**said.pop("limits"))
        self._known = Known(os.fdopen(job["known"], "rb")) if job["known"] is not None else None
        fields = {name: _as_tuple(value) for name, value in said.pop("fields").items()}
        options = {name: _as_tuple(value) for name, value in said.items()}
        self._options = ReadOptions(**options, fields=fields, limits=self.limits)
        self._language, self._leaves = job["language"], False
        self.cuts = True  # until the tokenizer does not come
        _limit("RLIMIT_AS", self.limits.worker_memory_bytes)
        _limit("RLIMIT_CORE", 0)
        sys.addaudithook(_refuse)

    def run(self) -> None:
        """Say that it is ready, then do the tasks."""
        self.send({"kind": "ready"})
        while True:
            while not self._waiting:
                self._take()
            task, body = self._waiting.popleft()
            if "words" in task:
                self._make_words(task, body)
            else:
                self._do(task, body)
            self.send({"kind": "end"})

    def _take(self) -> tuple[dict[str, Any], bytes]:
        """Wait for a message; tasks are kept for their turn."""
        header, body = frames.read(self._exactly)
        if header["kind"] == "task":
            self._waiting.append((header, body))
        elif header["kind"] == "give":
            self._n_wanted[header["task"]] += header["count"]
        return header, body

    def gives(self, task: int) -> bool:
        """Whether the next documents of a task are for another worker."""
        while select.select([self._stdin], [], [], 0)[0]:
            self._take()
        count = self._n_wanted[task]  # what was wanted of tasks before came too late
        self._n_wanted = Counter({task: max(0, count - 1)})
        self._leaves = count > 0
        return self._leaves

    def _do(self, task: dict[str, Any], body: bytes) -> None:
        source = _source(task["source"])
        saying, self._leaves = _Saying(self, task["task"], source), False
        try:
            if task["vectors"] is not None:
                events: Iterator[codec.Event] = self._vectors(task, source, saying)
            else:
                events = self._piece(body) if task.get("is_piece") else self._drafts(task, source, saying)
            for event in events:
                saying.add(event)
        except (RagidxError, MemoryError) as fault:
            if not isinstance(fault, RagidxError) or _is_of_memory(fault):
                os._exit(NO_MEMORY_FOR_PDF if self._is_bounded(source) else NO_MEMORY)
            saying.flush()
            self.send(frames.of_error(fault))
        saying.flush()

    def _make_words(self, task: dict[str, Any], segment: bytes) -> None:
        from ragidx.pipelines.ingest.workers.words import pieces  # not where files are read

        _limit("RLIMIT_AS", self.limits.worker_memory_bytes + task["mapped"])
        try:
            for piece in pieces(segment, range(*task["words"])):
                self.send({"kind": "postings"}, piece)
        except (RagidxError, MemoryError):
            self.send({"kind": "error"})

    def _drafts(self, task: dict[str, Any], source: Source, saying: _Saying) -> Iterator[Draft]:
        limits = self.limits
        bounded = self._is_bounded(source)
        _limit("RLIMIT_AS", limits.pdf_worker_memory_bytes if bounded else limits.worker_memory_bytes)
        known = {name: Layout.from_json(said) for name, said in task["layouts"].items()}
        layouts = Layouts(known, lambda name, layout: saying.add(codec.Decided(name, layout)))
        for draft in drafts_of(
            source, self._options, layouts, saying.add, lambda *read: saying.add(codec.NRead(*read)), self._tesseract
        ):
            is_known = self._known is not None and self._known.has(draft)
            yield dataclasses.replace(draft, document=None) if is_known else self._cut(draft)

    def _is_bounded(self, source: Source) -> bool:
        """Whether a file is a PDF without text recognition, which takes half a GiB itself."""
        return source.name.lower().endswith(".pdf") and not may_be_scanned(source, self._options)

    def _piece(self, body: bytes) -> Iterator[codec.Event]:
        """What another worker said, with its documents cut."""
        for event in codec.decoded(frames.nested(body)):
            yield self._cut(event) if isinstance(event, Draft) else event

    def _cut(self, draft: Draft) -> Draft:
        """A draft with its chunks, and their ids where the encoder takes them; or as it is, for others to cut."""
        if draft.document is None or self._leaves or self._cutter is None:
            return draft
        return dataclasses.replace(draft, items=self._cutter.cut(draft), document=None)

    def _vectors(self, task: dict[str, Any], source: Source, saying: _Saying) -> Iterator[VectorRows]:
        file = SourceFile(source=source, options=self._options, on_skip=saying.add)
        yield from read_vectors(file, *task["vectors"])

    def _tesseract(self, pgm: bytes, languages: str) -> str:
        """Tesseract's table of a picture; the build runs it, since this process may start none."""
        self.send({"kind": "picture", "languages": languages}, pgm)
        while (message := self._take())[0]["kind"] != "table":
            pass
        if not message[0]["done"]:
            raise OSError("tesseract")
        return message[1].decode()

    @functools.cached_property
    def _cutter(self) -> Cutter | None:
        """What cuts; None where the build's own process does."""
        self.send({"kind": "want"})
        while (message := self._take())[0]["kind"] != "chunker":
            pass
        header, body = message
        self.cuts = bool(body)
        if not self.cuts:
            return None
        from tokenizers import Tokenizer

        spec, tokenizer = ChunkSpec.from_json(header["spec"]), Tokenizer.from_str(body.decode())
        chunker = Chunker(spec, tokenizer, limit=header["limit"], takes_ids=header["ids"])
        return Cutter(lambda: chunker, language=self._language)

    def send(self, header: dict[str, Any], body: bytes = b"", *, flush: bool = True) -> None:
        frames.write(self._out, header, body, flush=flush)


class _Saying:
    """Events of a file, sent when there are many or some time has passed; of a long task, some to another worker."""

    def __init__(self, worker: _Worker, task: int, source: Source) -> None:
        self._worker, self._task, self._is_piece = worker, task, False
        self._seconds = worker.limits.worker_cpu_s + source.size / MIB
        self._begin()
        _limit_cpu(self._seconds)

    def _begin(self) -> None:
        self._events: list[codec.Event] = []
        self._n_chars, self._since = 0, time.monotonic()

    def add(self, event: codec.Event) -> None:
        """Take an event; each document gets the whole limit on CPU time, and so does each page of a scan."""
        if isinstance(event, VectorRows):
            self.flush()
            self._worker.send(*codec.encoded_vectors(event))
            _limit_cpu(self._seconds)
            return
        self._events.append(event)
        if isinstance(event, Draft):
            self._n_chars += event.n_chars
        if isinstance(event, Draft) or (isinstance(event, codec.NRead) and event.n_pages):
            _limit_cpu(self._seconds)
        if self._n_chars > _FLUSH_CHARS or time.monotonic() - self._since > _FLUSH_S:
            self.flush(more=True)
            self._is_piece = self._worker.gives(self._task)

    def flush(self, *, more: bool = False) -> None:
        """Send what there is; `more`: at once, and there will be more, perhaps; else with the end of the task."""
        if self._events:
            header, body = codec.encoded(self._events)
            if self._is_piece:
                self._worker.send({"kind": "piece"}, b"".join(frames.packed(header, body)))
            else:
                self._worker.send({**header, "more": more and self._worker.cuts}, body, flush=more)
        self._begin()


def _is_of_memory(fault: BaseException | None) -> bool:
    return fault is not None and (isinstance(fault, MemoryError) or _is_of_memory(fault.__cause__))


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _source(told: list[Any]) -> Source:
    path, name, size, beir, status, owner, span = told
    found, part = os.stat_result(status) if status else None, None if span is None else LineSpan(*span)
    return Source(None if path is None else Path(path), name, size, beir=beir, status=found, owner=owner, span=part)


def _limit(name: str, value: int) -> None:
    kind = getattr(resource, name, None)
    if kind is None:
        return
    with contextlib.suppress(OSError, ValueError):  # a stricter hard limit is set already
        resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))


def _limit_cpu(seconds: float) -> None:
    """Limit the CPU time from now on: the system counts from the process's start."""
    _limit("RLIMIT_CPU", math.ceil(time.process_time() + seconds) + 1)


def _end_with(parent: int) -> None:
    """End soon after the parent, whatever this process does then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _refuse(event: str, _: object) -> None:
    if event in _FORBIDDEN:
        raise PermissionError(f"{event} is not allowed in a worker")
