"""LoRA adapters merged into a loaded model: `W + scale * B A` for A (r, in) and B (out, r) of every adapted layer.

Hu et al. 2021 (LoRA). Weights come from adapter_model.safetensors, in PEFT's names; PEFT itself is not needed. Adapters
stack: LLM2Vec merges the one trained on masked tokens first and the one of the task after it. Finding and loading the
base model is the caller's, reading the config is `ragidx.indexer.models.lora_config`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from ragidx.corpora.errors import ModelError, check_machine
from ragidx.indexer.models.lora_config import CONFIG, MERGE_WITH_PEFT, WEIGHTS, AdapterConfig, damaged, read_config

_PICKLE = "adapter_model.bin"
_KEY = re.compile(r"(?P<path>.+)\.lora_(?P<side>[AB])(?:\.[^.]+)?\.weight")
_WRAPPERS = {"base_model", "model", "transformer"}
_HEADS = {"lm_head", "embed_out", "score", "classifier"}


def merge(model: nn.Module, folder: Path, name: str, *, times: float = 1.0) -> None:
    """Add an adapter to the weights of a model, in place. After an error the model may be half merged.

    `times`: it is added so often; -1 takes it out again.

    Products and sums are in float32 (or in the weight's dtype where that is wider); the sum is then rounded to the
    weight's dtype. The model has a language-model head or none; layers may not have been dropped from it.

    Raises:
        ModelError: the adapter is not plain LoRA, its weights are missing, damaged or in a pickle file, it belongs to
            another base model, or a sum overflows the weight's dtype.
    """
    config = read_config(folder)
    path = _weights_path(folder, name)
    for target, module, (a, b), scale in _fitting(model, matrices(folder, name), config, name, path):
        weight = module.weight
        wide = torch.promote_types(weight.dtype, torch.float32)
        with torch.no_grad():
            product = b.to(weight.device, wide) @ a.to(weight.device, wide) * (times * scale)
            merged = (weight.to(wide) + (product.T if isinstance(module, Conv1D) else product)).to(weight.dtype)
            if not bool(merged.isfinite().all()):
                raise ModelError(
                    f"the adapter '{name}' added to '{target}' overflows {_plain(weight.dtype)}",
                    "load the base model with `dtype=bfloat16` or float32",
                    where=str(path),
                )
            weight.copy_(merged)


def matrices(folder: Path, name: str) -> dict[str, tuple[Tensor, Tensor]]:
    """A (r, in) and B (out, r) of an adapter, by the name that their layer had in training.

    Raises:
        ModelError: as `merge`, of the file alone.
    """
    return _pairs(_weights_path(folder, name))


def _fitting(
    model: nn.Module, pairs: Mapping[str, tuple[Tensor, Tensor]], config: AdapterConfig, name: str, path: Path
) -> Iterator[tuple[str, nn.Linear | Conv1D, tuple[Tensor, Tensor], float]]:
    """Each layer that is changed, A (r, in) and B (out, r) that fit it, and their scale."""
    modules = dict(model.named_modules())
    wrapper = str(getattr(model, "base_model_prefix", ""))
    taken: dict[str, str] = {}
    for layer, (a, b) in pairs.items():
        target = _resolved(layer, modules, wrapper)
        if target is None:
            raise _misfit(name, config, _absence(layer, model), path)
        module = modules[target]
        if not isinstance(module, nn.Linear | Conv1D):
            raise _misfit(name, config, f"'{target}' is not a linear layer ({type(module).__name__})", path)
        if target in taken:
            raise _misfit(name, config, f"'{taken[target]}' and '{layer}' both mean '{target}'", path)
        taken[target] = layer
        brings = (a.shape[1], b.shape[0]) if isinstance(module, Conv1D) else (b.shape[0], a.shape[1])
        if tuple(module.weight.shape) != brings:
            has = " x ".join(str(n) for n in module.weight.shape)
            raise _misfit(
                name, config, f"for '{target}' it brings {brings[0]} x {brings[1]}, the model has {has}", path
            )
        if not module.weight.is_floating_point() or module.weight.dtype.itemsize < 2:
            raise ModelError(
                f"the adapter '{name}' cannot be merged: '{target}' is quantised ({_plain(module.weight.dtype)})",
                "load the base model in float32, bfloat16 or float16",
                where=str(path),
            )
        if a.shape[0] != config.rank_of(layer):
            raise damaged(f"'{layer}' has rank {a.shape[0]}, {CONFIG} says {config.rank_of(layer)}", path)
        yield target, module, (a, b), config.scale_of(layer)


def _resolved(layer: str, modules: Mapping[str, nn.Module], wrapper: str) -> str | None:
    """The name in this model of a layer that was named in another wrapping.

    An adapter may have been trained on the backbone, or on a class with a head around it, which names one level more.
    Nothing else is stripped: an encoder's `encoder.layers.0` is not a decoder's `layers.0`.
    """
    parts = layer.split(".")
    for start, part in enumerate(parts):
        tail = ".".join(parts[start:])
        for candidate in (tail, f"{wrapper}.{tail}"):
            if candidate in modules:
                return candidate
        if part not in _WRAPPERS | {wrapper}:
            break
    return None


def _absence(layer: str, model: nn.Module) -> str:
    if layer.rsplit(".", 1)[-1] in _HEADS:
        return f"it changes the output head '{layer}', which {type(model).__name__} does not have"
    return f"{type(model).__name__} has no layer '{layer}'"


def _misfit(name: str, config: AdapterConfig, why: str, path: Path) -> ModelError:
    base = f"'{config.base}'" if config.base else "another base model"
    return ModelError(
        f"the adapter '{name}' does not fit this model: {why}",
        f"it was trained on {base}: give that model, or another adapter; adapters are merged in their order",
        where=str(path),
    )


def _pairs(path: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """A and B by the name that the layer had in training, checked by themselves; in the order of those names."""
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as fault:
        check_machine(fault, path)
        raise damaged(f"the adapter's weights cannot be read: {fault}", path) from fault
    sides: dict[str, dict[str, Tensor]] = {}
    for key, tensor in sorted(tensors.items()):
        match = _KEY.fullmatch(key)
        if match is None:
            raise ModelError(f"'{key}' is not a LoRA weight of a linear layer", MERGE_WITH_PEFT, where=str(path))
        _check_tensor(key, tensor, path)
        layer = match["path"].removeprefix("base_model.model.")
        if match["side"] in sides.setdefault(layer, {}):
            raise damaged(f"'{layer}' has two tensors lora_{match['side']}", path)
        sides[layer][match["side"]] = tensor
    if not sides:
        raise damaged("the adapter holds no weights", path)
    return {layer: _paired(layer, pair, path) for layer, pair in sides.items()}


def _paired(layer: str, pair: Mapping[str, Tensor], path: Path) -> tuple[Tensor, Tensor]:
    if missing := {"A", "B"} - set(pair):
        raise damaged(f"'{layer}' has lora_{next(iter(pair))} without lora_{missing.pop()}", path)
    a, b = pair["A"], pair["B"]
    if a.shape[0] != b.shape[1]:
        shapes = f"lora_A {tuple(a.shape)} and lora_B {tuple(b.shape)}"
        raise damaged(f"{shapes} of '{layer}' cannot be multiplied as B A", path)
    return a, b


def _check_tensor(key: str, tensor: Tensor, path: Path) -> None:
    if tensor.dim() != 2 or not tensor.is_floating_point():
        raise ModelError(
            f"'{key}' is {_plain(tensor.dtype)} of shape {tuple(tensor.shape)}, where a matrix of floats is expected",
            MERGE_WITH_PEFT,
            where=str(path),
        )
    if not bool(tensor.float().isfinite().all()):
        raise damaged(f"'{key}' holds numbers that are not finite", path)


def _weights_path(folder: Path, name: str) -> Path:
    path = folder / WEIGHTS
    if path.is_file():
        return path
    if (folder / _PICKLE).is_file():
        raise ModelError(
            f"the adapter '{name}' has its weights in a pickle file only ({_PICKLE}), which can run code when it is "
            "read",
            "convert it to safetensors, once, where you trust it: "
            f'safetensors.torch.save_file(torch.load("{_PICKLE}", weights_only=True), "{WEIGHTS}")',
            where=str(folder),
        )
    raise damaged(f"the adapter '{name}' has no {WEIGHTS}", folder)


def _plain(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")
