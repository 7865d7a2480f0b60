"""The device and number format of a model, chosen by availability and by measurement.

`mixed` is float32 with the linear layers' products in bfloat16 (weights kept in bfloat16, input cast, output cast
back). On CPUs with bfloat16 units that is about twice as fast as float32 and moves cosines by less than 1e-3;
attention and activations are slower in bfloat16 there, which is why not everything is cast.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from ragidx.indexer.model_files import keep, user_cache
from ragidx.indexer.models.fingerprint import weights_fingerprint
from ragidx.indexer.models.locate import ModelFiles

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "mixed": torch.float32,
}
_WORTH_IT = 1.15
LONG_S = 0.4  # a run of it says enough
_SHARED_WORK = 256 * 100_000_000  # tokens times weights: about a second of one core

# A child that is forked computes on one thread: OpenMP's others are not there any more, and it would wait for them.
_PROCESS = os.getpid()
os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))


def choose_dtype(dtype: str, device: str) -> str:
    """`auto` is bfloat16 on a GPU that has it (else float16), else float32 until another is measured faster."""
    if dtype != "auto":
        return dtype
    if device.startswith("cuda"):
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    return "float32"


class MixedLinear(nn.Module):
    """A linear layer whose product runs in bfloat16, between float32 inputs and outputs."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.exact = linear
        self.weight = linear.weight.detach().to(torch.bfloat16)
        self.bias = None if linear.bias is None else linear.bias.detach().to(torch.bfloat16)
        self._forward_hooks = linear._forward_hooks  # who watches the layer watches its product here too

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_in) float32 -> (..., d_out) float32."""
        return nn.functional.linear(x.to(torch.bfloat16), self.weight, self.bias).to(x.dtype)


def use_mixed(model: nn.Module) -> Callable[[], None]:
    """Put every linear layer's product into bfloat16; the function returned undoes it."""
    changed = [
        (parent, name, child)
        for parent in model.modules()
        if not isinstance(parent, MixedLinear)
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear)
    ]
    for parent, name, child in changed:
        setattr(parent, name, MixedLinear(child))

    def undo() -> None:
        for parent, name, child in changed:
            setattr(parent, name, child)

    return undo


def use_bfloat16(model: nn.Module) -> Callable[[], None]:
    """Put every weight into bfloat16; the function returned undoes it."""
    changed = [(weights, weights.data) for weights in model.parameters() if weights.dtype == torch.float32]
    for weights, exact in changed:
        weights.data = exact.to(torch.bfloat16)

    def undo() -> None:
        for weights, exact in changed:
            weights.data = exact

    return undo


def remembered_format(model: nn.Module, files: ModelFiles, forward: Callable[[], Tensor]) -> str:
    """The format that was measured for this model, machine and these versions, else `fastest_format`; switched on."""
    machine = (platform.machine(), torch.backends.cpu.get_cpu_capability(), os.cpu_count(), _processor())
    known_by = (weights_fingerprint(files), *machine, torch.__version__, importlib.metadata.version("transformers"))
    kept = user_cache("formats")
    if kept is None:
        return fastest_format(model, forward)
    path = kept / hashlib.sha256(repr(known_by).encode()).hexdigest()
    with contextlib.suppress(OSError, ValueError):
        if (remembered := path.read_text("ascii")) in FORMATS:
            use_format(model, remembered)
            return remembered
    measured = fastest_format(model, forward)
    keep(path, lambda temporary: temporary.write_text(measured, "ascii"))
    return measured


def use_format(model: nn.Module, name: str) -> None:
    """Switch one of `FORMATS` on, of a model in float32."""
    if name in _FASTER:
        _FASTER[name](model)


def _processor() -> str:
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/cpuinfo").read_text("ascii").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return platform.processor()


def fastest_format(model: nn.Module, forward: Callable[[], Tensor]) -> str:
    """`mixed` or `bfloat16` where it is worth it here, else `float32`; it is left switched on.

    Each is measured on `forward`, in CPU time, in turns with float32: other work on the machine hardly counts. It is
    worth it if it is at least 15 % faster and the vectors keep a cosine of 0.999. One that is slower at first is not
    measured again.
    """
    exact, best, gain = forward(), "float32", _WORTH_IT
    for name, use in _FASTER.items():
        undo = use(model)
        rough = forward()
        if torch.equal(exact, rough):  # no linear layer runs at all: nothing to gain
            undo()
            break
        quick, usual = [], []
        for _ in range(2):
            quick.append(_seconds(forward, time.process_time))
            undo()
            usual.append(_seconds(forward, time.process_time))
            undo = use(model)
            if quick[0] > usual[0]:
                break
        undo()
        quick = [max(1e-9, seconds) for seconds in quick]  # a clock may not have moved
        close = bool((nn.functional.cosine_similarity(exact, rough, dim=1) > 0.999).all())
        if close and min(usual) > gain * min(quick):
            best, gain = name, min(usual) / min(quick)
    use_format(model, best)
    return best


_FASTER = {"mixed": use_mixed, "bfloat16": use_bfloat16}
FORMATS = ("float32", *_FASTER)


def best_threads(forward: Callable[[], Tensor]) -> int:
    """How many threads `forward` is fastest with: all, half, or one.

    Where other work holds a core, or a container's share is below its count of cores, threads that wait for each
    other make a small batch many times slower than one thread; only a measurement shows it. It is the median of three
    in turns, unless one takes long: a single run that other work met would decide the whole build.
    """
    every = torch.get_num_threads()
    taken: dict[int, list[float]] = {count: [] for count in sorted({every, max(1, every // 2), 1}, reverse=True)}
    forward()  # the first run of a shape is slow
    for _ in range(3):
        for count, times in taken.items():
            with threads(count):
                times.append(_seconds(forward))
        if max(map(min, taken.values())) > LONG_S:
            break
    return min(taken, key=lambda count: (statistics.median(taken[count]), -count))


def n_weights(model: nn.Module) -> int:
    """How many weights every token is multiplied with; of an embedding a token reads one row."""
    rows = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return sum(weights.numel() for weights in model.parameters() if id(weights) not in rows)


def threads_for(tokens: int, weights: int) -> int | None:
    """One for a pass that is too small to share, such as a question's; None: as torch is set.

    On a busy machine threads that wait for each other make such a pass forty times slower; on an idle one sharing it
    would save some tenths of a second.
    """
    return 1 if tokens * weights < _SHARED_WORK else None


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Run torch on `count` threads inside the block; None changes nothing, nor does a forked child."""
    before = torch.get_num_threads()
    if count in (None, before) or os.getpid() != _PROCESS:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds(forward: Callable[[], Tensor], runs: int = 2) -> float:
    """The fastest of some runs; one that is long enough is not repeated."""
    best = _seconds(forward)
    for _ in range(runs - 1):
        if best > LONG_S:
            break
        best = min(best, _seconds(forward))
    return best


def _seconds(forward: Callable[[], Tensor], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    forward()
    return clock() - start
