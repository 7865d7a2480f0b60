"""Encoding on several devices: one process for each, one build, one commit.

texts -> parts of similar length, longest first -> whichever device is free -> batches, as they come. The build's own
process encodes on the first device. Each further one has a process with a model of its own, which ends with the build,
also with one that is killed. They speak by pickled messages over a socket pair of their own: nothing from outside is
unpickled. A filter is fitted on a sample by the first device alone, since a later run has to find the same numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragidx.corpora.errors import ModelError, RagidxError
from ragidx.indexer.encoders.embedder import Embedder
from ragidx.indexer.encoders.load import encoder_of
from ragidx.indexer.encoders.protocol import Batch
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.specs import EncoderSpec
from ragidx.pipelines.ingest.resolve import Resolved

if TYPE_CHECKING:
    from ragidx.indexer.filters.filter import Filter

LEAST_TEXTS = 64
"""Of a part: fewer are not worth sending."""

_PARTS = 4  # a device, of one call: the last part is waited for
_CODE = "import sys; sys.path[:] = {path!r}; from ragidx.pipelines.ingest.distributed import serve; serve({handle})"


@dataclass(frozen=True)
class Job:
    """What the process of a device needs to know, once."""

    files: ModelFiles
    spec: EncoderSpec
    filter: Filter | None
    device: str
    dtype: str
    attn: str
    threads: int | None


@contextlib.contextmanager
def embedder_of(resolved: Resolved) -> Iterator[Embedder]:
    """What makes the vectors of a build, on all of its devices; their processes end with the block."""
    devices = resolved.devices
    if len(devices) == 1:
        yield resolved.embedder
        return
    threads = None
    if "cpu" in devices:
        import torch

        threads = max(1, torch.get_num_threads() // devices.count("cpu"))
    with resolved.encoder.on_threads(threads), contextlib.ExitStack() as workers:
        yield _Spread(
            encoder=resolved.encoder, filter=resolved.filter, resolved=resolved, threads=threads, ends=workers
        )


@dataclass(frozen=True, kw_only=True)
class _Spread(Embedder):
    """An embedder on several devices; the processes of all but the first start when there is enough for them."""

    resolved: Resolved
    threads: int | None
    ends: contextlib.ExitStack
    workers: list[_Worker] = field(default_factory=list)
    answers: queue.SimpleQueue[tuple[_Worker, Any]] = field(default_factory=queue.SimpleQueue)

    def batches(
        self,
        texts: Sequence[str],
        *,
        instruction: str | None = None,
        raw: bool = False,
        tune: bool = True,
        names: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        """As `Embedder.batches`; filtered documents are spread, others are not."""
        parts = _parts(texts, len(self.resolved.devices))
        if len(parts) < 2 or instruction is not None or raw:
            yield from super().batches(texts, instruction=instruction, raw=raw, tune=tune, names=names)
            return
        if tune and not self.workers:
            self.encoder.tune(texts)  # all use its number format
        self._start(len(parts))
        while parts or any(worker.rows for worker in self.workers):
            self._share(parts, texts, names)
            if not parts:
                yield from self._answers(wait=True)
                continue
            rows = parts.popleft()
            for batch in super().batches([texts[row] for row in rows], tune=False, names=_of(rows, names)):
                yield _in_call(batch, rows)
                yield from self._answers(wait=False)
                self._share(parts, texts, names)

    def _share(self, parts: deque[list[int]], texts: Sequence[str], names: Sequence[str] | None) -> None:
        """A part for each worker that is free."""
        for worker in self.workers:
            if parts and not worker.rows:
                worker.ask(parts.popleft(), texts, names)

    def _start(self, n_parts: int) -> None:
        """Start what is not started yet; no more devices than parts are of use."""
        resolved, dtype = self.resolved, self.encoder.dtype
        for device in resolved.devices[1 + len(self.workers) : n_parts]:
            job = Job(
                resolved.files, resolved.encoder_spec, self.filter, device, dtype, resolved.options.attn, self.threads
            )
            self.workers.append(self.ends.enter_context(_Worker(device, self.answers)))
            self.workers[-1].send(job)

    def _answers(self, *, wait: bool) -> Iterator[Batch]:
        """The batches that are there; or the next one, or end of a part, and those that are there then."""
        with contextlib.suppress(queue.Empty):
            while True:
                worker, found = self.answers.get(wait)
                yield from worker.batch(found)
                wait = False


class _Worker:
    """The process of a device, and a thread that reads its answers: it never waits for the build's own device.

    A context manager.

    Args:
        device: of the process.
        answers: where its answers are put, each with the worker; an EOFError is its end.

    Attributes:
        rows: of the part that it has; empty: it is free.
    """

    def __init__(self, device: str, answers: queue.SimpleQueue[tuple[_Worker, Any]]) -> None:
        self.rows: list[int] = []
        self._device, self._answers = device, answers
        self._connection, theirs = Pipe()
        with theirs:
            path = [str(Path(entry).absolute()) for entry in sys.path]
            code = _CODE.format(path=path, handle=theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=2,  # the build's own output is not for what libraries print
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C reaches the build alone, and that ends this process
            )
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> _Worker:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # it has given all, or the build has failed
        self._process.wait()
        self._reader.join()

    def ask(self, rows: list[int], texts: Sequence[str], names: Sequence[str] | None) -> None:
        """Send a part: these rows of a call's texts."""
        self.rows = rows
        self.send(([texts[row] for row in rows], _of(rows, names)))

    def batch(self, found: Any) -> Iterator[Batch]:
        """The batch of an answer; none, and the worker is free, after the last one of a part."""
        if isinstance(found, Batch):
            yield _in_call(found, self.rows)
        elif found is None:
            self.rows = []
        elif isinstance(found, EOFError):
            raise self._dead()
        else:
            kind, message, hint, where = found
            raise kind(message, hint, where=where)

    def send(self, what: object) -> None:
        """Send a part, or at first the job."""
        try:
            self._connection.send(what)
        except OSError as fault:
            raise self._dead() from fault

    def _read(self) -> None:
        try:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    self._answers.put((self, self._connection.recv()))
        finally:  # whatever it was, neither side must wait for the other
            self._connection.close()
            self._answers.put((self, EOFError()))

    def _dead(self) -> ModelError:
        status = self._process.wait()
        how = f"by the signal {signal.Signals(-status).name}" if status < 0 else f"with the status {status}"
        return ModelError(
            f"the process of {self._device} ended {how}",
            "run it again: it goes on where it was; if it ends again, name fewer devices",
            where="`device`",
        )


def serve(handle: int) -> None:
    """Encode what comes over a connection, until it ends: what the process of a device does.

    The first message is a `Job`, each further one (texts, names or None). The answers are batches and then None, or
    (class, message, hint, where) of a `RagidxError`.
    """
    with Connection(handle) as build, contextlib.suppress(EOFError, ConnectionError):
        try:
            _encode(build)
        except RagidxError as fault:
            build.send((type(fault), fault.message, fault.hint, fault.where))


def _encode(build: Connection) -> None:
    job: Job = build.recv()
    texts, names = build.recv()  # before the model is loaded: the build does not wait for that
    encoder = encoder_of(job.files, job.spec, device=job.device, dtype=job.dtype, attn=job.attn)
    embedder = Embedder(encoder, job.filter)
    with encoder.on_threads(job.threads):
        while True:
            for batch in embedder.batches(texts, tune=False, names=names):
                build.send(batch)
            build.send(None)
            texts, names = build.recv()


def _parts(texts: Sequence[str], n_devices: int) -> deque[list[int]]:
    """Rows of a call, cut into parts of equally many texts; the longest texts come first."""
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    size = max(LEAST_TEXTS, -(-len(order) // (_PARTS * n_devices)))
    return deque(order[start : start + size] for start in range(0, len(order), size))


def _of(rows: Sequence[int], names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else [names[row] for row in rows]


def _in_call(batch: Batch, rows: Sequence[int]) -> Batch:
    """A batch of a part, with the rows of the call."""
    return dataclasses.replace(batch, rows=[rows[row] for row in batch.rows])
