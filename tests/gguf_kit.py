"""GGUF files for tests: the twin of a tiny model's folder, written by `gguf.GGUFWriter` as llama.cpp's converter does.

Modules that use this are skipped where the package `gguf` is not installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

gguf = pytest.importorskip("gguf", reason="the package gguf (extra `models`) is not installed")

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3"}
_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_WHOLE = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
BPE = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}


def twin(
    folder: Path,
    path: Path,
    *,
    kind: str = "F32",
    keys: Mapping[str, Any] | None = None,
    tensors: Mapping[str, NDArray[Any] | None] | None = None,
) -> Path:
    """The model of a folder as a GGUF file.

    Args:
        folder: of a tiny model.
        path: of the file.
        kind: how its matrices are stored.
        keys: metadata to add or replace; None as value leaves one out.
        tensors: likewise.
    """
    config = json.loads((folder / "config.json").read_text())
    stored = {name.removeprefix("model."): found for name, found in load_file(folder / "model.safetensors").items()}
    made = {_name(name, config["model_type"]): _converted(name, found, config) for name, found in stored.items()}
    return write(path, _metadata(config, folder) | dict(keys or {}), made | dict(tensors or {}), kind)


def write(path: Path, keys: Mapping[str, Any], tensors: Mapping[str, NDArray[Any] | None], kind: str = "F32") -> Path:
    """A GGUF file with these keys and tensors; those whose value is None are left out."""
    writer = gguf.GGUFWriter(path, arch=str(keys["general.architecture"]))
    for key, value in keys.items():
        if value is not None and key != "general.architecture":
            _add(writer, key, value)
    for name, found in tensors.items():
        if found is not None:
            quantised = gguf.GGMLQuantizationType[kind if found.ndim > 1 else "F32"]
            writer.add_tensor(name, gguf.quants.quantize(found, quantised), raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def vocabulary(folder: Path) -> dict[str, Any]:
    """The keys of the tokenizer in a folder, a byte-level BPE with special tokens."""
    made = json.loads((folder / "tokenizer.json").read_text())
    special = {token["id"]: token["content"] for token in made["added_tokens"]}
    tokens = {number: token for token, number in made["model"]["vocab"].items()} | special
    ids = {name: number for number, name in special.items()}
    return BPE | {
        "tokenizer.ggml.tokens": [tokens[number] for number in range(len(tokens))],
        "tokenizer.ggml.token_type": [3 if number in special else 1 for number in range(len(tokens))],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in made["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": ids["<s>"],
        "tokenizer.ggml.eos_token_id": ids["</s>"],
        "tokenizer.ggml.padding_token_id": ids["<pad>"],
        "tokenizer.ggml.add_bos_token": True,
    }


def _metadata(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    arch = ARCHITECTURES[config["model_type"]]
    rope = config["rope_parameters"]
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    own = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": rope.get("full_attention", rope)["rope_theta"],
    }
    if arch == "gemma3":
        own |= {"attention.sliding_window": config["sliding_window"]}
    pre = {"tokenizer.ggml.pre": "qwen2"} if arch == "qwen2" else {}  # transformers reads this family's folders so
    named = {f"{arch}.{key}": value for key, value in own.items()}
    return {"general.architecture": arch} | named | vocabulary(folder) | pre


def _name(name: str, family: str) -> str:
    stem, _, end = name.rpartition(".")
    if not stem.startswith("layers."):
        return f"{_WHOLE[stem]}.{end}"
    _, layer, part = stem.split(".", 2)
    return f"blk.{layer}.{((_PARTS | _GEMMA) if family == 'gemma3_text' else _PARTS)[part]}.{end}"


def _converted(name: str, found: NDArray[Any], config: dict[str, Any]) -> NDArray[Any]:
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    part = name.split(".")[-2]
    if config["model_type"] == "gemma3_text" and part.endswith("norm"):
        return found + np.float32(1)
    if config["model_type"] == "llama" and part in heads:  # two halves of a head become neighbours
        halves = found.reshape(config[heads[part]], 2, -1, *found.shape[1:])
        return halves.swapaxes(1, 2).reshape(found.shape)
    return found


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
