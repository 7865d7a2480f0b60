"""Encoding on several devices: one process for each, one build, one commit.

texts -> parts of similar length, longest first -> whichever device is free -> batches, as they come. The build's own
process encodes on the first device. Each further one has a process with a model of its own, which is started and spoken
to as a worker is, and ends with the build, also with one that is killed. A filter is fitted on a sample by the first
device alone, since a later run has to find the same numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import queue
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ragidx.corpora.errors import ModelError, RagidxError
from ragidx.indexer.arrays import slices
from ragidx.indexer.encoders import Embedder
from ragidx.indexer.encoders.load import encoder_of
from ragidx.indexer.encoders.protocol import EncodedRows
from ragidx.indexer.models.locate import ModelFiles, locate
from ragidx.indexer.specs import EncoderSpec
from ragidx.pipelines.ingest.resolve import Resolved
from ragidx.pipelines.ingest.workers import frames
from ragidx.pipelines.ingest.workers.lanes import Message
from ragidx.pipelines.ingest.workers.process import Process

if TYPE_CHECKING:
    from ragidx.indexer.filters.filter import Filter

LEAST_TEXTS = 64
"""Of a part: fewer are not worth sending."""

_COUNTS = ("n_tokens", "n_truncated", "unknown")  # of a batch, beside its vectors
_PARTS = 4  # a device, of one call: the last part is waited for


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
    with resolved.encoder.on_threads(threads), contextlib.ExitStack() as ends:
        first = resolved.embedder
        yield _Spread(first.encoder, first.filter, first.anisotropy, resolved=resolved, threads=threads, ends=ends)


@dataclass(frozen=True, kw_only=True)
class _Spread(Embedder):
    """An embedder on several devices; the processes of all but the first start when there is enough for them."""

    resolved: Resolved
    threads: int | None
    ends: contextlib.ExitStack
    devices: list[_Device] = field(default_factory=list)
    answers: queue.SimpleQueue[tuple[_Device, Message]] = field(default_factory=queue.SimpleQueue)

    def batches(
        self,
        texts: Sequence[str],
        *,
        instruction: str | None = None,
        raw: bool = False,
        tune: bool = True,
        names: Sequence[str] | None = None,
    ) -> Iterator[EncodedRows]:
        """As `Embedder.batches`; filtered documents are spread, others are not."""
        parts = _parts(texts, len(self.resolved.devices))
        if len(parts) < 2 or instruction is not None or raw:
            yield from super().batches(texts, instruction=instruction, raw=raw, tune=tune, names=names)
            return
        if tune and not self.devices:
            self.encoder.tune(texts)  # all use its number format
        self._start(len(parts))
        while parts or any(device.rows for device in self.devices):
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
        """A part for each device that is free."""
        for device in self.devices:
            if parts and not device.rows:
                device.ask(parts.popleft(), texts, names)

    def _start(self, n_parts: int) -> None:
        """Start what is not started yet; no more devices than parts are of use."""
        r = self.resolved
        for name in r.devices[1 + len(self.devices) : n_parts]:
            job = job_of(r.files, r.encoder_spec, self.filter, name, self.encoder.dtype, r.options.attn, self.threads)
            self.devices.append(_Device(job, self.answers))
            self.ends.callback(self.devices[-1].close)  # it has given all, or the build has failed

    def _answers(self, *, wait: bool) -> Iterator[EncodedRows]:
        """The batches that are there; or the next one, or end of a part, and those that are there then."""
        with contextlib.suppress(queue.Empty):
            while True:
                device, answer = self.answers.get(wait)
                yield from device.batches(answer)
                wait = False


class _Device(Process):
    """The process of a device; its answers are put into a queue, each with the device.

    Attributes:
        rows: rows of the part that the device has; empty: it is free.
    """

    def __init__(self, job: Message, answers: queue.SimpleQueue[tuple[_Device, Message]]) -> None:
        self.rows: list[int] = []
        self._name = job[0]["device"]

        def heard(_: Process, answer: Message) -> bool:
            answers.put((self, answer))
            return True

        def ended(_: Process, why: str) -> None:
            answers.put((self, ({"kind": "ended", "why": why}, b"")))

        super().__init__("distributed", job, None, heard, ended)

    def ask(self, rows: list[int], texts: Sequence[str], names: Sequence[str] | None) -> None:
        """Send a part: these rows of a call's texts."""
        self.rows = rows
        self.send({"kind": "part"}, json.dumps([[texts[row] for row in rows], _of(rows, names)]).encode())

    def batches(self, answer: Message) -> Iterator[EncodedRows]:
        """The batch in an answer; none, and the device is free, after the last one of a part."""
        header: dict[str, Any] = answer[0]
        match header["kind"]:
            case "batch":
                vectors = np.frombuffer(answer[1], np.float32).reshape(header["shape"])
                counts = {name: header[name] for name in _COUNTS}
                yield _in_call(EncodedRows(header["rows"], vectors, **counts), self.rows)
            case "end":
                self.rows = []
            case "error":
                raise frames.error_in(header)
            case _:
                raise ModelError(
                    f"the process of {self._name} {header['why']}",
                    "run the build again, it continues where it was; if the process ends again, name fewer devices",
                    where="`device`",
                )


def job_of(
    files: ModelFiles,
    spec: EncoderSpec,
    filter_: Filter | None,
    device: str,
    dtype: str = "auto",
    attn: str = "auto",
    threads: int | None = None,
) -> Message:
    """What the process of a device needs to know, once; its body is the filter."""
    return {
        "gguf": None if files.gguf is None else str(files.gguf.path),
        "files": json.dumps({**vars(files), "gguf": None}, default=str),  # of paths
        "spec": spec.to_json(),
        "device": device,
        "dtype": dtype,
        "attn": attn,
        "threads": threads,
    }, (b"" if filter_ is None else filter_.to_bytes())


# -- in the process of a device ------------------------------------------------------------------------------------


def main() -> None:
    """Encode what comes, until the build ends."""
    stdin, out = frames.over_pipes()
    with contextlib.suppress(EOFError, BrokenPipeError):
        try:
            _encode(stdin, out)
        except RagidxError as fault:
            frames.write(out, frames.of_error(fault))


def _encode(stdin: BinaryIO, out: BinaryIO) -> None:
    from ragidx.indexer.filters.filter import Filter

    exactly = frames.reader(stdin)
    job, filter_ = frames.read(exactly)
    _, part = frames.read(exactly)  # before the model is loaded: the build does not wait for that
    files = _files(**json.loads(job["files"]))
    if job["gguf"] is not None:
        files = dataclasses.replace(locate(job["gguf"]), name=files.name, pooler=files.pooler)
    spec = EncoderSpec.from_json(job["spec"])
    encoder = encoder_of(files, spec, device=job["device"], dtype=job["dtype"], attn=job["attn"])
    embedder = Embedder(encoder, Filter.from_bytes(filter_) if filter_ else None)
    with encoder.on_threads(job["threads"]):
        while True:
            texts, names = json.loads(part)
            for batch in embedder.batches(texts, tune=False, names=names):
                vectors = np.ascontiguousarray(batch.vectors, np.float32)
                counts = {name: getattr(batch, name) for name in _COUNTS}
                header = {"kind": "batch", "rows": batch.rows, "shape": vectors.shape, **counts}
                frames.write(out, header, vectors.tobytes())
            frames.write(out, {"kind": "end"})
            _, part = frames.read(exactly)


def _files(folder: str, adapters: Sequence[str], pooler: str | None, names: Sequence[str], **others: Any) -> ModelFiles:
    """As the build found them: found again by their paths, they would lose the names that adapters are checked by."""
    return ModelFiles(
        folder=Path(folder),
        adapters=tuple(map(Path, adapters)),
        pooler=None if pooler is None else Path(pooler),
        names=tuple(names),
        **others,
    )


# -- parts ---------------------------------------------------------------------------------------------------------


def _parts(texts: Sequence[str], n_devices: int) -> deque[list[int]]:
    """Rows of a call, cut into parts of equally many texts; the longest texts come first."""
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    size = max(LEAST_TEXTS, -(-len(order) // (_PARTS * n_devices)))
    return deque(slices(order, size))


def _of(rows: Sequence[int], names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else [names[row] for row in rows]


def _in_call(batch: EncodedRows, rows: Sequence[int]) -> EncodedRows:
    """A batch of a part, with the rows of the call."""
    return dataclasses.replace(batch, rows=[rows[row] for row in batch.rows])
