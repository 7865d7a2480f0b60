"""Checkpoints of a training run: weights, Adam's moments and counters, in one safetensors file, replaced atomically."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

PREFIXES = ("weight", "exp_avg", "exp_avg_sq")


@dataclass(slots=True)
class Progress:
    """How far a run has come."""

    step: int = 0
    tokens: int = 0
    elapsed_s: float = 0.0


def save(
    path: Path, parameters: dict[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer, progress: Progress
) -> None:
    """Write a checkpoint beside `path` and rename it into place."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in parameters.items():
        tensors[f"weight/{name}"] = parameter.detach()
        for moment in PREFIXES[1:]:
            tensors[f"{moment}/{name}"] = optimizer.state[parameter].get(moment, torch.zeros_like(parameter))
    temporary = path.with_suffix(".partial")
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        temporary,
        {k: str(v) for k, v in asdict(progress).items()},
    )
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    temporary.replace(path)


def load(path: Path, parameters: dict[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer) -> Progress:
    """Load a checkpoint's weights and moments; without a checkpoint at `path`, nothing changes."""
    if not path.is_file():
        return Progress()
    with safe_open(path, "pt") as stored:
        metadata = stored.metadata()
        progress = Progress(int(metadata["step"]), int(metadata["tokens"]), float(metadata["elapsed_s"]))
        for name, parameter in parameters.items():
            parameter.data.copy_(stored.get_tensor(f"weight/{name}"))
            moments = {moment: stored.get_tensor(f"{moment}/{name}") for moment in PREFIXES[1:]}
            optimizer.state[parameter] = {"step": torch.tensor(float(progress.step)), **moments}
    return progress


def weights(path: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint alone, by parameter name."""
    with safe_open(path, "pt") as stored:
        names = [name for name in stored.keys() if name.startswith("weight/")]  # noqa: SIM118 - safe_open is not a mapping
        return {name.removeprefix("weight/"): stored.get_tensor(name) for name in names}
