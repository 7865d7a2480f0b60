"""Architectures in GGUF: names, permuted rows, and what is refused because it is not known."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragidx.corpora.errors import ModelError
from ragidx.indexer.models.gguf.architectures import config_of, rotated_rows, weights_of
from ragidx.indexer.models.locate import locate

from ...gguf_kit import twin
from ...raising import message_of

SAFETENSORS = "\n  hint: name the folder with the model's safetensors"
AGAIN = "\n  hint: download or copy the model again"


def test_rows_of_a_head_go_back_to_their_halves() -> None:
    # A head of six rows is stored as a0 b0 a1 b1 a2 b2, where a and b are rotated together.
    stored = np.array(["a0", "b0", "a1", "b1", "a2", "b2", "A0", "B0", "A1", "B1", "A2", "B2"])

    assert stored[rotated_rows(12, 2)].tolist() == [
        *("a0", "a1", "a2", "b0", "b1", "b2"),
        *("A0", "A1", "A2", "B0", "B1", "B2"),
    ]


def test_a_config_is_made_from_the_header(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    files = locate(str(twin(tiny_model("llama"), tmp_path / "x.gguf")))

    assert (files.family, files.hidden, files.folder, files.adapters) == ("llama", 32, tmp_path, ())
    assert files.config == {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 128,
        "rms_norm_eps": pytest.approx(1e-6),
        "tie_word_embeddings": False,
        "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }


def test_gemmas_windows_come_every_layer_but_the_sixth(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tiny_model("gemma3_text", num_hidden_layers=7, query_pre_attn_scalar=8)
    config = locate(str(twin(folder, tmp_path / "x.gguf"))).config

    assert [kind == "full_attention" for kind in config["layer_types"]] == [False] * 5 + [True, False]
    assert config["rope_parameters"]["sliding_attention"]["rope_theta"] == 10_000.0
    assert config["query_pre_attn_scalar"] == 8


def test_absent_settings_are_those_of_llama_cpp(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tiny_model("llama", num_key_value_heads=4)
    left_out = ("attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.freq_base")
    files = locate(str(twin(folder, tmp_path / "x.gguf", keys={f"llama.{name}": None for name in left_out})))

    config = files.config
    assert (config["num_key_value_heads"], config["head_dim"]) == (4, 8)
    assert config["rope_parameters"]["rope_theta"] == 10_000.0


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"scaling.factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"scaling.type": "linear", "scaling.factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"scaling.type": "none", "scaling.factor": 4.0}, {"rope_type": "default"}),
        ({"scaling.type": "linear"}, {"rope_type": "default"}),
        ({"scaling.factor": 0.0}, {"rope_type": "default"}),
    ],
)
def test_rotations_are_scaled_as_llama_cpp_does(
    keys: dict[str, Any], expected: dict[str, Any], tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    named = {f"llama.rope.{name}": value for name, value in keys.items()}

    files = locate(str(twin(tiny_model("llama"), tmp_path / "x.gguf", keys=named)))

    assert files.config["rope_parameters"] == expected | {"rope_theta": 10_000.0}


def test_one_number_of_heads_for_each_layer_is_read_where_all_agree(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    files = locate(str(twin(tiny_model("llama"), tmp_path / "x.gguf", keys={"llama.attention.head_count_kv": [2, 2]})))
    assert files.config["num_key_value_heads"] == 2

    keys = {"llama.attention.head_count_kv": [2, 4]}
    with pytest.raises(ModelError, match=r"'llama.attention.head_count_kv' differs between its layers"):
        locate(str(twin(tiny_model("llama"), tmp_path / "y.gguf", keys=keys)))


def test_parts_for_pictures_and_drafts_are_left_out(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    unused = {name: np.ones((2, 4), np.float32) for name in ("v.blk.0.x.weight", "mm.0.weight", "mtp.0.weight")}
    files = locate(str(twin(tiny_model("llama"), tmp_path / "x.gguf", tensors=unused)))

    assert files.gguf is not None
    assert not {weight.tensor.name for weight in weights_of(files.gguf)} & unused.keys()


@pytest.mark.parametrize(
    ("keys", "tensors", "message"),
    {
        "architecture": (
            {"general.architecture": "bert"},
            {},
            "the architecture 'bert' cannot be read from GGUF\n  hint: name the folder with the model's safetensors; "
            "from GGUF ragidx reads llama, qwen2, qwen3, gemma3",
        ),
        "terminal": (
            {"general.architecture": "\x1b[2J" + "x" * 99},
            {},
            f"the architecture '\\x1b[2J{'x' * 36}' cannot be read from GGUF\n  hint: name the folder with the model's "
            "safetensors; from GGUF ragidx reads llama, qwen2, qwen3, gemma3",
        ),
        "adapter": (
            {"general.type": "adapter"},
            {},
            "it is a LoRA adapter, not a model\n  hint: name the GGUF file of a decoder",
        ),
        "pictures": (
            {"general.type": "mmproj"},
            {},
            "it is the part of a model that reads pictures, not a model\n  hint: name the GGUF file of a decoder",
        ),
        "type": (
            {"general.type": "vocab"},
            {},
            "it is of the type 'vocab', not a model\n  hint: name the GGUF file of a decoder",
        ),
        "yarn": ({"llama.rope.scaling.type": "yarn"}, {}, f"the rope scaling 'yarn' is not known{SAFETENSORS}"),
        "experts": ({"llama.expert_count": 8}, {}, f"the setting 'llama.expert_count' is not known{SAFETENSORS}"),
        "both ways": ({"llama.attention.causal": False}, {}, f"its attention goes both ways{SAFETENSORS}"),
        "window": ({"llama.attention.sliding_window": 8}, {}, f"its attention has a window of 8 tokens{SAFETENSORS}"),
        "half rotated": (
            {"llama.rope.dimension_count": 4},
            {},
            f"'llama.rope.dimension_count' is not 8, the width of a head{SAFETENSORS}",
        ),
        "no context": (
            {"llama.context_length": None},
            {},
            f"'llama.context_length' is missing, not a number above 0{AGAIN}",
        ),
        "no heads": (
            {"llama.attention.head_count": 0},
            {},
            f"'llama.attention.head_count' is 0, not a number above 0{AGAIN}",
        ),
        "heads": ({"llama.attention.head_count_kv": 3}, {}, f"4 heads of width 8 do not share 3 keys{AGAIN}"),
        "epsilon": (
            {"llama.attention.layer_norm_rms_epsilon": float("nan")},
            {},
            f"'llama.attention.layer_norm_rms_epsilon' is nan, not a number above 0{AGAIN}",
        ),
        "layers": ({"llama.block_count": 1 << 30}, {}, f"it says that it has 1073741824 layers, and has 2{AGAIN}"),
        "tokens": (
            {"tokenizer.ggml.tokens": ["a", "b"]},
            {},
            f"the embeddings are (300, 32), where the header says (2, 32){AGAIN}",
        ),
        "no embeddings": (
            {},
            {"token_embd.weight": None},
            f"the embeddings are None, where the header says (300, 32){AGAIN}",
        ),
        "missing": ({}, {"blk.1.ffn_up.weight": None}, f"the tensor 'blk.1.ffn_up.weight' is missing{AGAIN}"),
        "shape": (
            {"llama.feed_forward_length": 1 << 30},
            {},
            f"'blk.0.ffn_gate.weight' is (48, 32), where the header says (1073741824, 32){AGAIN}",
        ),
        "strange": (
            {},
            {"blk.1.attn_sinks.weight": np.ones(4, np.float32)},
            f"the tensor 'blk.1.attn_sinks.weight' is not known in 'llama'{SAFETENSORS}",
        ),
        "rope factors": (
            {},
            {"rope_freqs.weight": np.ones(3, np.float32)},
            f"'rope_freqs.weight' is (3,), where the header says (4,){AGAIN}",
        ),
    }.values(),
)
def test_what_is_not_known_is_refused_by_name(
    keys: dict[str, Any], tensors: dict[str, Any], message: str, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    path = twin(tiny_model("llama"), tmp_path / "x.gguf", keys=keys, tensors=tensors)

    assert message_of(ModelError, lambda: locate(str(path))) == f"{path}: {message}"


def test_rope_factors_are_known_in_llama_alone(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    factors = {"rope_freqs.weight": np.ones(4, np.float32)}

    with pytest.raises(ModelError, match=r"the tensor 'rope_freqs\.weight' is not known in 'qwen3'"):
        locate(str(twin(tiny_model("qwen3"), tmp_path / "x.gguf", tensors=factors)))


VALUES: list[Any] = [None, 7, True, float("nan"), "x", ["a", "b"], np.array([1, 2]), np.array([]), np.array([np.inf])]


def test_any_kind_of_value_is_read_or_refused(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    whole = locate(str(twin(tiny_model("gemma3_text"), tmp_path / "x.gguf"))).gguf
    assert whole is not None
    more = ("expert_count", "rope.scaling.type", "rope.scaling.factor", "attention.sliding_window_pattern")

    for key in {*whole.metadata, "general.type", *(f"gemma3.{name}" for name in more)}:
        for value in VALUES:
            with contextlib.suppress(ModelError):
                weights_of(dataclasses.replace(whole, metadata=whole.metadata | {key: value}))

    for key, message in (
        ("general.architecture", "the architecture 'an array of 2' cannot be read from GGUF"),
        ("general.type", "it is of the type 'an array of 2', not a model"),
        ("gemma3.expert_count", "the setting 'gemma3.expert_count' is not known"),
        ("gemma3.rope.scaling.type", "the rope scaling 'an array of 2' is not known"),
        ("gemma3.block_count", "'gemma3.block_count' is an array of 2, not a number above 0"),
    ):
        with pytest.raises(ModelError, match=message):
            config_of(dataclasses.replace(whole, metadata=whole.metadata | {key: np.array([0, 0])}))
