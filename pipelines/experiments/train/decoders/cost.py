"""What a step of training takes, measured before the run: seconds, memory, and so how many texts a mini-batch has."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ragidx.indexer.encoders import precision
from ragidx.pipelines.base.resources import free_bytes
from ragidx.pipelines.experiments.train.decoders import processes
from ragidx.pipelines.experiments.train.decoders.network import Network
from ragidx.pipelines.experiments.train.decoders.optimizer import steps_of_rise
from ragidx.pipelines.experiments.train.keywords import StepKeywords

_OF_FREE = 0.5  # of free memory that a mini-batch may take
_MOST_TEXTS = 32  # of a mini-batch
_FEW_TOKENS = 32


def measured(network: Network, ids: Tensor, attention: Tensor, pooled: Tensor) -> tuple[float, float]:
    """For each token of a pass over ids, attention and pooled span, (b, t) each: the bytes that the pass back needs,
    and the seconds of both.
    """
    held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.random.fork_rng(devices=[]):
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
    return sum(size for place, size in held.items() if place not in weights) / n_tokens, seconds / n_tokens


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

    Where not even one text fits, states inside of layers are made again for the gradients from here on.

    Args:
        network: the decoder that learns.
        how: the options of the training.
        features: ids, attention and pooled span of the mini-batch that is measured, (b, t) each.
        steps: how many steps there are to make.
        n_tokens: how many tokens a step reads; those that it reads again without gradients count in part.
        longest: how many tokens the longest text has.
        more_bytes: the memory of a token beside what the network needs.
    """
    device, threads = network.encoder.device, None
    start = features[0][-1:, :_FEW_TOKENS]  # of all of a long text the pass may not fit
    of_token = measured(network, start, torch.ones_like(start), torch.ones_like(start, dtype=torch.bool))[0]
    recompute = texts_that_fit(of_token + more_bytes, longest, device) < 1 and network.recompute()
    if recompute:  # for one layer at a time
        more_bytes += of_token / network.encoder.backbone.n_layers
    own = -(-how["batch"] // processes.count())  # of a batch
    n_texts = 1 if recompute else fitting(of_token + more_bytes, longest, own, device)
    features = [part[-n_texts:] for part in features]
    if device == "cpu":
        with torch.no_grad():
            threads = precision.best_threads(lambda: network(*features))
    elif device.startswith("cuda"):  # one that is full takes little longer
        features = [part.repeat(-(-n_texts // len(part)), 1) for part in features]
    with precision.threads(threads):
        n_bytes, seconds = measured(network, *features)
    of_step = seconds * n_tokens / processes.count()
    if how["minutes"] is not None:
        steps = min(steps, max(1, int(60 * how["minutes"] / of_step)))
    steps_of_rise(how["warmup"], steps)
    n_bytes += more_bytes
    return {
        "steps": steps,
        "step_seconds": of_step,
        "mini_batch": fitting(n_bytes, longest, own, device),
        "threads": threads,
        "bytes_a_token": round(n_bytes),
        "recompute": recompute,
    }


def fitting(bytes_a_token: float, longest: int, batch: int, device: str) -> int:
    """How many texts of `longest` tokens a mini-batch may have, one in any case."""
    return int(max(1, min(batch, _MOST_TEXTS, texts_that_fit(bytes_a_token, longest, device))))


def texts_that_fit(bytes_a_token: float, longest: int, device: str) -> float:
    """How many texts of `longest` tokens the memory holds that a mini-batch may take; below 1 not one."""
    if device.startswith("cuda"):
        free = torch.cuda.mem_get_info()[0]
    else:
        free = min(_available(), free_bytes() or _available()) // processes.count()
    return _OF_FREE * free / max(1.0, bytes_a_token * longest)


def _available() -> int:
    """Bytes of memory that are free or can be freed; where the system does not say, 4 GiB."""
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 1 << 32
