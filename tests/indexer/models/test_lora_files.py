"""LoRA adapters: files that are damaged or dangerous, and what a config may say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ragidx.indexer.models.lora_config import read_config

from .lora_kit import AGAIN, BY_PEFT, adapter, told

# --- damaged and dangerous files


def test_weights_in_a_pickle_file_are_never_read(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a")
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")

    assert told(folder) == (
        "HERE: the adapter 'mine' has its weights in a pickle file only (adapter_model.bin), which can run code when "
        "it is read\n  hint: convert it to safetensors, once, where you trust it: "
        'safetensors.torch.save_file(torch.load("adapter_model.bin", weights_only=True), "adapter_model.safetensors")'
    )


def test_missing_weights_are_named(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a")
    (folder / "adapter_model.safetensors").unlink()

    assert told(folder) == f"HERE: the adapter 'mine' has no adapter_model.safetensors\n  {AGAIN}"


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a")
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-3])

    text = told(folder)

    assert text.startswith("HERE/adapter_model.safetensors: the adapter's weights cannot be read: ")
    assert text.endswith(f"\n  {AGAIN}")


KEY = "base_model.model.layers.0.q_proj.lora_"
A, B = torch.ones(1, 2), torch.ones(2, 1)
DAMAGED = {
    "no weights": ({}, f"the adapter holds no weights\n  {AGAIN}"),
    "A alone": ({f"{KEY}A.weight": A}, f"'layers.0.q_proj' has lora_A without lora_B\n  {AGAIN}"),
    "B alone": ({f"{KEY}B.weight": B}, f"'layers.0.q_proj' has lora_B without lora_A\n  {AGAIN}"),
    "A twice": (
        {f"{KEY}A.weight": A, f"{KEY}A.default.weight": A.clone(), f"{KEY}B.weight": B},
        f"'layers.0.q_proj' has two tensors lora_A\n  {AGAIN}",
    ),
    "no product": (
        {f"{KEY}A.weight": torch.ones(3, 2), f"{KEY}B.weight": B},
        f"lora_A (3, 2) and lora_B (2, 1) of 'layers.0.q_proj' cannot be multiplied as B A\n  {AGAIN}",
    ),
    "not finite": (
        {f"{KEY}A.weight": torch.tensor([[1.0, float("nan")]]), f"{KEY}B.weight": B},
        f"'{KEY}A.weight' holds numbers that are not finite\n  {AGAIN}",
    ),
    "a convolution": (
        {f"{KEY}A.weight": torch.ones(1, 2, 3), f"{KEY}B.weight": B},
        f"'{KEY}A.weight' is float32 of shape (1, 2, 3), where a matrix of floats is expected\n  {BY_PEFT}",
    ),
    "integers": (
        {f"{KEY}A.weight": A.to(torch.int32), f"{KEY}B.weight": B},
        f"'{KEY}A.weight' is int32 of shape (1, 2), where a matrix of floats is expected\n  {BY_PEFT}",
    ),
    "embeddings": (
        {"base_model.model.embed_tokens.lora_embedding_A": A, "base_model.model.embed_tokens.lora_embedding_B": B},
        f"'base_model.model.embed_tokens.lora_embedding_A' is not a LoRA weight of a linear layer\n  {BY_PEFT}",
    ),
    "a magnitude": (
        {f"{KEY}A.weight": A, f"{KEY}B.weight": B, f"{KEY}magnitude_vector": torch.ones(2)},
        f"'{KEY}magnitude_vector' is not a LoRA weight of a linear layer\n  {BY_PEFT}",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("tensors", "fault"), DAMAGED.values(), ids=DAMAGED)
def test_weights_that_are_no_pairs_are_refused(tmp_path: Path, tensors: dict[str, Tensor], fault: str) -> None:
    assert told(adapter(tmp_path / "a", tensors)) == f"HERE/adapter_model.safetensors: {fault}"


# --- the config


BEYOND = {
    "use_dora": (True, "use_dora=True"),
    "use_something_new": (True, "use_something_new=True"),
    "bias": ("lora_only", "bias='lora_only'"),
    "lora_bias": (True, "lora_bias=True"),
    "modules_to_save": (["lm_head"], "modules_to_save=['lm_head']"),
    "layer_replication": ([[0, 2], [1, 3]], "layer_replication=[[0, 2], [1, 3]]"),
    "target_parameters": (["experts.up"], "target_parameters=['experts.up']"),
    "trainable_token_indices": ([7], "trainable_token_indices=[7]"),
    "alora_invocation_tokens": (list(range(99)), f"alora_invocation_tokens={repr(list(range(99)))[:57]}..."),
    "init_lora_weights": ("pissa_niter_16", "init_lora_weights='pissa_niter_16'"),
}


@pytest.mark.parametrize("field", BEYOND)
def test_more_than_plain_lora_is_refused(tmp_path: Path, field: str) -> None:
    value, shown = BEYOND[field]

    assert told(adapter(tmp_path / "a", **{field: value})) == (
        f"HERE/adapter_config.json: the adapter is more than plain LoRA: {shown}\n  {BY_PEFT}"
    )


@pytest.mark.parametrize("value", [True, False, None, "gaussian", "eva", "orthogonal"])
def test_a_start_that_leaves_the_base_alone_is_read(tmp_path: Path, value: object) -> None:
    assert read_config(adapter(tmp_path / "a", init_lora_weights=value)).rank == 1


def test_another_kind_of_adapter_is_refused(tmp_path: Path) -> None:
    assert told(adapter(tmp_path / "a", peft_type="IA3")) == (
        f"HERE/adapter_config.json: the adapter is of the kind 'IA3', and only 'LORA' is read\n  {BY_PEFT}"
    )


NUMBERS = {
    "r of 0": ({"r": 0}, "r is 0, where a whole number above 0 is expected"),
    "r that is true": ({"r": True}, "r is True, where a whole number above 0 is expected"),
    "no alpha": ({"lora_alpha": None}, "lora_alpha is None, where a number is expected"),
    "an endless alpha": ({"lora_alpha": float("inf")}, "lora_alpha is inf, where a number is expected"),
    "an alpha that is not a number": ({"lora_alpha": float("nan")}, "lora_alpha is nan, where a number is expected"),
    "a rank of a pattern": (
        {"rank_pattern": {"q_proj": "4"}},
        "rank_pattern of 'q_proj' is '4', where a whole number above 0 is expected",
    ),
    "a list of alphas": ({"alpha_pattern": [1]}, "alpha_pattern is not an object: [1]"),
    "a broken set": (
        {"rank_pattern": {"[q": 4}},
        "rank_pattern has '[q', which is not a pattern of RE2: missing ]: [q)$",
    ),
    "a pattern that looks ahead": (
        {"rank_pattern": {"(?=q)": 4}},
        "rank_pattern has '(?=q)', which is not a pattern of RE2: invalid perl operator: (?=",
    ),
    "a broken pattern": (
        {"alpha_pattern": {"(q": 4}},
        "alpha_pattern has '(q', which is not a pattern of RE2: missing ): ^(?:.*\\.)?(?:(q)$",
    ),
}


@pytest.mark.parametrize(("config", "fault"), NUMBERS.values(), ids=NUMBERS)
def test_numbers_that_cannot_be_are_refused(tmp_path: Path, config: dict[str, Any], fault: str) -> None:
    assert told(adapter(tmp_path / "a", **config)) == f"HERE/adapter_config.json: {fault}\n  {AGAIN}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[]", "not a JSON object"),
        ("{", "not readable as JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
)
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    folder = adapter(tmp_path / "a")
    (folder / "adapter_config.json").write_text(text)

    assert told(folder) == f"HERE/adapter_config.json: {fault}\n  {AGAIN}"


def test_reading_a_config_loads_no_torch() -> None:
    code = (
        "import sys, ragidx.indexer.models.lora_config\n"
        "print({'torch', 'transformers', 'safetensors'} & set(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
