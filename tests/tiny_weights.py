"""Tiny random weights of what stands beside a model: LoRA adapters and trainable poolings for models 32 wide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ragidx.indexer.encoders.trained_pooling import TrainablePooling


def write_adapter(folder: Path, base: str | None = "tiny/base", *, seed: int = 0, **config: Any) -> Path:
    """A folder with a LoRA adapter over the queries of a llama of two layers; `base` is what it calls its model."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(2):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(4, 32, generator=generator) * 0.3
        tensors[f"{name}.lora_B.weight"] = torch.randn(32, 4, generator=generator) * 0.3
    save_file(tensors, folder / "adapter_model.safetensors")
    told = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "base_model_name_or_path": base} | config
    (folder / "adapter_config.json").write_text(json.dumps(told))
    return folder


def write_pooler(path: Path, *, layers: int | None = None, seed: int = 0) -> Path:
    """The file of a trainable pooling: over tokens, or with `layers` over that many layers."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        TrainablePooling(32, latents=3, heads=2, head_width=4, layers=layers).save(path)
    return path
