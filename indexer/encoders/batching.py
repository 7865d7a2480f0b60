"""Batches by token budget: what the model reads, longest first, into padded tensors and back to the order of the texts.

A batch holds as many rows as `rows x longest <= budget` allows. The longest come first, so that a lack of memory
shows at once; then the budget is halved and encoding continues. Small budgets are fast on a CPU (caches), large ones on
a GPU. Texts on both sides of a length at which a model changes how it reads positions never share a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ragidx.corpora.errors import ModelError
from ragidx.indexer.encoders.protocol import EncodedRows
from ragidx.indexer.prompts.rendering import Rendered

CPU_BUDGET = 2048
CPU_BUDGETS = (1024, 2048, 4096, 8192, 16384)  # tried by measurement
GPU_BUDGET = 32768


@dataclass
class Budget:
    """How many padded tokens one forward pass takes; falls when memory runs out."""

    tokens: int


# ids (b, t) int64, attention (b, t) int64 or None without padding, pooled (b, t) bool -> (b, k) or (b, t, k) float32
Forward = Callable[[Tensor, Tensor | None, Tensor], Tensor]


def run(
    rendered: Sequence[Rendered],
    forward: Forward,
    *,
    budget: Budget,
    pad: int,
    device: torch.device,
    apart: int | None = None,
) -> Iterator[EncodedRows]:
    """Every row through `forward`, in batches, longest first; rows of more than `apart` tokens apart from the others.

    Raises:
        ModelError: a single row does not fit into memory.
    """
    order = sorted(range(len(rendered)), key=lambda i: -rendered[i].width)
    at = 0
    while at < len(order):
        rows = order[at : at + _fitting(rendered, order, at, budget.tokens, apart)]
        try:
            vectors = forward(*collate([rendered[i] for i in rows], pad, device)).to("cpu", torch.float32).numpy()
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as fault:
            if not _out_of_memory(fault):
                raise
            if len(rows) == 1:
                raise ModelError(
                    f"one text of {rendered[rows[0]].n_tokens} tokens does not fit into the memory of '{device}'",
                    "use smaller chunks (`chunk_size`), a smaller `dtype`, or another `device`",
                ) from fault
            budget.tokens = len(rows) * rendered[rows[0]].width // 2
            if device.type == "cuda":
                torch.cuda.empty_cache()
            continue
        yield EncodedRows(
            rows,
            vectors,
            sum(rendered[i].n_tokens for i in rows),
            sum(rendered[i].truncated for i in rows),
        )
        at += len(rows)


def collate(rows: Sequence[Rendered], pad: int, device: torch.device) -> tuple[Tensor, Tensor | None, Tensor]:
    """Right-padded ids, the attention mask (None where nothing is padded), and the pooled mask.

    Further prompts for a text are separate rows after its first.
    """
    rows = [prompt for row in rows for prompt in (row, *row.also)]
    longest = max(1, *(len(row.ids) for row in rows))
    ids = np.full((len(rows), longest), pad, dtype=np.int64)
    attention = np.zeros((len(rows), longest), dtype=np.int64)
    pooled = np.zeros((len(rows), longest), dtype=bool)
    for number, row in enumerate(rows):
        ids[number, : len(row.ids)] = row.ids
        attention[number, : len(row.ids)] = 1
        for start, end in row.pooled:
            pooled[number, start:end] = True
    mask = None if attention.all() else torch.from_numpy(attention).to(device)
    return torch.from_numpy(ids).to(device), mask, torch.from_numpy(pooled).to(device)


def _fitting(rendered: Sequence[Rendered], order: Sequence[int], at: int, budget: int, apart: int | None) -> int:
    width = max(1, rendered[order[at]].width)
    n = max(1, min(len(order) - at, budget // width))
    if apart is None or rendered[order[at]].longest <= apart:
        return n
    return next((i for i in range(1, n) if rendered[order[at + i]].longest <= apart), n)


def _out_of_memory(fault: BaseException) -> bool:
    text = str(fault).lower()
    return (
        isinstance(fault, torch.OutOfMemoryError | MemoryError)
        or "out of memory" in text
        or "can't allocate memory" in text
    )
