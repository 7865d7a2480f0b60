"""What a step of training takes, measured before the run: seconds, memory, and so how many texts a mini-batch has."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ragidx.indexer.encoders import precision
from ragidx.pipelines.base.resources import free_bytes
from ragidx.pipelines.experiments.train.decoders.network import Network
from ragidx.pipelines.experiments.train.keywords import StepKeywords

_OF_FREE = 0.5  # of free memory that a mini-batch may take
_MOST_TEXTS = 32  # of a mini-batch


@dataclass(frozen=True)
class Measure:
    """What training takes for each token that is read: bytes that a pass back needs, and seconds of both passes."""

    n_bytes: float
    seconds: float
    threads: int | None  # that are fastest; None: not of this device


def measured(network: Network, ids: Tensor, attention: Tensor, pooled: Tensor) -> Measure:
    """The cost of a pass with gradients over ids, attention and pooled span, (b, t) each; repeated to fill a GPU."""
    held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    threads = None
    if network.encoder.device == "cpu":
        with torch.no_grad():
            threads = precision.best_threads(lambda: network(ids, attention, pooled))
    if network.encoder.device.startswith("cuda"):
        ids, attention, pooled = (part.repeat(-(-_MOST_TEXTS // len(part)), 1) for part in (ids, attention, pooled))
    with precision.threads(threads), torch.random.fork_rng(devices=[]):
        network(ids, attention, pooled).sum().backward()  # the first one is slow
        _wait(network)
        began = time.perf_counter()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = network(ids, attention, pooled).sum()
        loss.backward()
        _wait(network)
        seconds = time.perf_counter() - began
    weights = {weight.untyped_storage().data_ptr() for weight in network.parameters()}
    network.zero_grad(set_to_none=True)
    n_tokens = int(attention.sum())
    n_bytes = sum(size for place, size in held.items() if place not in weights)
    return Measure(n_bytes / n_tokens, seconds / n_tokens, threads)


def _wait(network: Network) -> None:
    """Until a GPU has done what it was asked: it answers before."""
    if network.encoder.device.startswith("cuda"):
        torch.cuda.synchronize()


def plan(
    network: Network,
    how: StepKeywords,
    features: Sequence[Tensor],
    *,
    steps: int,
    n_tokens: float,
    longest: int,
    more_bytes: float = 0.0,
) -> dict[str, Any]:
    """How many steps a run makes, and how many texts a mini-batch has, by the cost of a small one, which is measured.

    Args:
        network: the decoder that learns.
        how: the options of the training.
        features: ids, attention and pooled span of the mini-batch that is measured, (b, t) each.
        steps: how many steps there are to make.
        n_tokens: how many tokens a step reads; those that it reads again without gradients count in part.
        longest: how many tokens the longest text has.
        more_bytes: the memory of a token beside what the network needs.
    """
    cost = measured(network, *features)
    n_bytes, of_step = cost.n_bytes + more_bytes, cost.seconds * n_tokens
    if how["minutes"] is not None:
        steps = min(steps, max(1, int(60 * how["minutes"] / of_step)))
    mini_batch = fitting(n_bytes, longest, how["batch"], network.encoder.device)
    threads = {"threads": cost.threads, "bytes_a_token": round(n_bytes)}
    return {"steps": steps, "step_seconds": of_step, "mini_batch": mini_batch, **threads}


def fitting(bytes_a_token: float, longest: int, batch: int, device: str) -> int:
    """How many texts of `longest` tokens a mini-batch may have."""
    if device.startswith("cuda"):
        free = torch.cuda.mem_get_info()[0]
    else:
        free = min(_available(), free_bytes() or _available())
    return int(max(1, min(batch, _MOST_TEXTS, _OF_FREE * free / max(1.0, bytes_a_token * longest))))


def _available() -> int:
    """Bytes of memory that are free or can be freed; where the system does not say, 4 GiB."""
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 1 << 32
