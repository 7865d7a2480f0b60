"""Shared by tests of LoRA adapters: a model of one layer, an adapter for it, and what merging is refused with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ragidx.corpora.errors import ModelError
from ragidx.indexer.models.lora import merge

from ...raising import message_of

PLAIN = {"peft_type": "LORA", "base_model_name_or_path": "some/base", "r": 1, "lora_alpha": 2, "bias": "none"}
AGAIN = "hint: download or copy the adapter again"
BY_PEFT = (
    "hint: merge it once with peft, PeftModel.from_pretrained(base, folder).merge_and_unload().save_pretrained(...), "
    "and give the folder that this writes as the model"
)


def adapter(folder: Path, tensors: dict[str, Tensor] | None = None, **config: Any) -> Path:
    """A folder with an adapter: `PLAIN` with changes, and one pair for the layer of `model` if no tensors are given."""
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(PLAIN | config))
    save_file(pair("layers.0.q_proj") if tensors is None else tensors, folder / "adapter_model.safetensors")
    return folder


def pair(layer: str, n_in: int = 2, n_out: int = 2, rank: int = 1) -> dict[str, Tensor]:
    """A = [[1, 2, ..]], B = [[3], [4], ..] for a layer."""
    key = f"base_model.model.{layer}"
    a, b = torch.arange(1.0, 1 + rank * n_in), torch.arange(3.0, 3 + rank * n_out)
    return {f"{key}.lora_A.weight": a.view(rank, n_in), f"{key}.lora_B.weight": b.view(n_out, rank)}


def model(layer: nn.Module | None = None) -> nn.Module:
    """`layers.0.q_proj`, a 2 x 2 matrix of zeros if no layer is given."""
    if layer is None:
        layer = nn.Linear(2, 2, bias=False)
        nn.init.zeros_(layer.weight)
    return nn.ModuleDict({"layers": nn.ModuleList([nn.ModuleDict({"q_proj": layer})])})


def told(folder: Path, of: nn.Module | None = None) -> str:
    """The whole text of the error that merging ends in, less the name of the folder."""
    said = message_of(ModelError, lambda: merge(model() if of is None else of, folder, "mine"))
    return said.replace(str(folder), "HERE")
