"""Several processes of one run, as `accelerate launch` or `torchrun` start them.

Each process has every batch, and reads its own part of it. The loss is that of the whole batch in all of them, and
their gradients are summed: they make the steps that one process would make, but for rounding and what dropout draws.
The first process measures, scores, decides and writes; the others wait for what it says.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

_PATIENCE = timedelta(days=1)  # of those that wait while the first one scores, or writes a large model


def begin(device: str) -> None:
    """Let the processes of a run find each other, if there are several; on GPUs each takes its own."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # the launcher's
        from accelerate import PartialState

        PartialState(cpu=device == "cpu", timeout=_PATIENCE)


def count() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this one, from 0."""
    return dist.get_rank() if count() > 1 else 0


def own(parts: Iterable[T]) -> Iterator[T]:
    """Those parts of a batch that this process reads."""
    return itertools.islice(parts, rank(), None, count())


def of_first(make: Callable[[], T]) -> T:
    """What the first process makes, in all of them.

    Raises:
        Exception: as it is raised there.
    """
    if count() == 1:
        return make()
    made: list[tuple[T | None, Exception | None]] = [(None, None)]
    if rank() == 0:
        try:
            made = [(make(), None)]
        except Exception as fault:  # noqa: BLE001 - it is raised again, also where others wait
            made = [(None, fault)]
    dist.broadcast_object_list(made, src=0)
    value, raised = made[0]
    if raised is not None:
        raise raised
    return value  # type: ignore[return-value]  # what was made, None or not


def summed(values: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if count() > 1:
        dist.all_reduce(values)
    return values
