"""Encoders that run a network: rendered texts in padded batches, and the measurements that make them fast."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ragidx.indexer.encoders import batching, precision
from ragidx.indexer.encoders.batching import Budget
from ragidx.indexer.encoders.protocol import TUNE_FROM, EncodedRows, Encoder
from ragidx.indexer.filters.filter import Filter, apply
from ragidx.indexer.prompts.rendering import Rendered


class _Gate:
    """Forward passes run side by side; measurements, which change the network, run alone."""

    def __init__(self) -> None:
        self.open()
        _GATES.add(self)

    def open(self) -> None:
        """Nobody is inside: at first, and in a child that was forked, which has no other thread."""
        self._inside, self._changed = 0, threading.Condition()

    @contextmanager
    def passing(self) -> Iterator[None]:
        """One of many inside."""
        with self._changed:
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until all are out; nobody enters meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: not self._inside)
            yield


_GATES: weakref.WeakSet[_Gate] = weakref.WeakSet()


def _open_all() -> None:
    for gate in _GATES:
        gate.open()


os.register_at_fork(after_in_child=_open_all)


class BatchEncoder(Encoder):
    """The base of encoders with a network: batches are here, rendering is in the subclasses."""

    def __init__(self, device: str, dtype: str) -> None:
        self.device = device
        self.dtype = precision.choose_dtype(dtype, device)
        self._measured = dtype == "auto"
        self._tuned = False
        self._gate = _Gate()
        self.threads: int | None = None  # None: as torch is set
        self.apart: int | None = None  # longer rows share no batch with shorter ones
        self.budget = Budget(batching.CPU_BUDGET if device == "cpu" else batching.GPU_BUDGET)

    def batches(
        self, texts: Sequence[str], *, instruction: str | None = None, project: Filter | None = None, tune: bool = True
    ) -> Iterator[EncodedRows]:
        """Vectors as they come, longest texts first; the arguments are those of `Encoder.batches`.

        Queries do not tune: they are short, and their best settings are not those of documents.
        """
        if tune and instruction is None and len(texts) >= TUNE_FROM:
            self.tune(texts)
        matrix = None if project is None else torch.from_numpy(project.matrix).to(self.device)
        shift = None if project is None or project.shift is None else torch.from_numpy(project.shift).to(self.device)

        raw: Tensor | None = None  # of the pass whose vectors come next

        def forward(ids: Tensor, attention: Tensor | None, pooled: Tensor) -> Tensor:
            nonlocal raw
            with precision.threads(self._threads_for(ids, documents=instruction is None)):
                vectors = self.forward(ids, attention, pooled, instruction)
                if matrix is None:
                    return vectors
                raw = normalize(vectors, dim=1)
                return apply(vectors, matrix, shift)

        rendered = self.rendered(texts, instruction)
        for batch in self._run(rendered, forward):
            unknown = self._unknown([texts[row] for row in batch.rows], [rendered[row] for row in batch.rows])
            known = [place for place in range(len(batch.rows)) if place not in unknown] if unknown else slice(None)
            raw_sum = None if raw is None else raw[known].sum(dim=0).cpu().numpy()
            yield replace(batch, raw_sum=raw_sum, unknown=unknown)

    def tune(self, texts: Sequence[str]) -> None:
        """Measure, once, on texts that are about to be encoded: threads, batch size, and the number format.

        Only on a CPU, where the best settings depend on the machine and its load; the dtype only if it is `auto`.
        """
        if self._tuned or self.device != "cpu" or not texts:
            return
        with self._gate.alone():
            if not self._tuned:
                self._measure(texts)
                self._tuned, self.has_measured = True, self._measured

    def _measure(self, texts: Sequence[str]) -> None:
        rows = sorted(self.rendered(texts[:512], None), key=lambda row: -row.width)
        small, _ = self._sample(rows, batching.CPU_BUDGETS[0] // 2)  # a trial costs what it reads
        if precision.seconds(small, 1) <= precision.LONG_S:
            small, _ = self._sample(rows, batching.CPU_BUDGETS[0])
        self.threads = precision.best_threads(small)
        with precision.threads(self.threads):
            if self._measured:
                self.dtype = precision.remembered_format(self.module(), self.files, small)
            self.budget.tokens = self._best_budget(rows)

    def use_format(self, name: str) -> None:
        """Compute in this number format, and measure none."""
        if self._measured and self.device == "cpu" and name in precision.FORMATS:
            with self._gate.alone():
                precision.use_format(self.module(), name)
                self.dtype, self._measured, self.has_measured = name, False, False

    def on_threads(self, count: int | None) -> AbstractContextManager[None]:
        """Run torch on `count` threads inside; None changes nothing."""
        return precision.threads(count)

    def _best_budget(self, rows: Sequence[Rendered]) -> int:
        """The batch size with the most tokens a second: larger ones are tried as long as they are 5 % faster."""
        best, fastest = 0, 0.0
        for budget in batching.CPU_BUDGETS:
            forward, n_tokens = self._sample(rows, budget)
            rate = n_tokens / precision.seconds(forward)
            if rate <= 1.05 * fastest:
                break
            best, fastest = budget, rate
        return best

    def _sample(self, rows: Sequence[Rendered], budget: int) -> tuple[Callable[[], Tensor], int]:
        """A forward pass over a batch of typical rows, and how many tokens it reads."""
        middle = rows[len(rows) // 4 :]
        taken = middle[: max(1, budget // max(1, middle[0].width))]
        batch = batching.collate(taken, self.tokenizer.pad, torch.device(self.device))
        return lambda: self.forward(*batch, None), sum(row.n_tokens for row in taken)

    def _threads_for(self, ids: Tensor, *, documents: bool = False) -> int | None:
        """Of a batch on a CPU: what was measured for documents; where nothing was, and for questions, one if small."""
        if self.device != "cpu":
            return None
        if documents and self._tuned:
            return self.threads
        return precision.threads_for(ids.numel(), self._n_weights) or self.threads

    @functools.cached_property
    def _n_weights(self) -> int:
        return precision.n_weights(self.module())

    @abstractmethod
    def forward(self, ids: Tensor, attention: Tensor | None, pooled: Tensor, instruction: str | None) -> Tensor:
        """One padded batch to (b, hidden) float32."""

    @abstractmethod
    def module(self) -> torch.nn.Module:
        """The network, for the choice of its number format."""

    def _run(self, rows: Sequence[Rendered], forward: batching.Forward) -> Iterator[EncodedRows]:
        place = torch.device(self.device)

        def passing(ids: Tensor, attention: Tensor | None, pooled: Tensor) -> Tensor:
            with self._gate.passing(), torch.inference_mode():
                return forward(ids, attention, pooled)

        yield from batching.run(
            rows, passing, budget=self.budget, pad=self.tokenizer.pad, device=place, apart=self.apart
        )
