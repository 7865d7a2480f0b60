"""LoRA adapters: their product with the scale, the layers that they change, and base models that are not theirs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from ragidx.indexer.models.lora import merge
from ragidx.indexer.models.lora_config import AdapterConfig, read_config

from .lora_kit import AGAIN, adapter, model, pair, told

BASE = "hint: it was trained on 'some/base': give that model, or another adapter; adapters are merged in their order"


def weight(of: nn.Module) -> Tensor:
    return of.get_parameter("layers.0.q_proj.weight").detach()


# --- the product


def test_the_scaled_product_is_added(tmp_path: Path) -> None:
    folder, changed = adapter(tmp_path / "a"), model()
    with torch.no_grad():
        changed.get_parameter("layers.0.q_proj.weight").copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))

    merge(changed, folder, "mine")

    # alpha / r = 2, B A = [[3], [4]] [[1, 2]] = [[3, 6], [4, 8]]
    assert weight(changed).tolist() == [[7.0, 12.0], [8.0, 17.0]]


def test_a_conv1d_keeps_its_weight_the_other_way_round(tmp_path: Path) -> None:
    layer = Conv1D(2, 3)  # (in, out) = (3, 2)
    nn.init.zeros_(layer.weight)
    changed = model(layer)

    merge(changed, adapter(tmp_path / "a", pair("layers.0.q_proj", n_in=3)), "mine")

    assert weight(changed).tolist() == [[6.0, 8.0], [12.0, 16.0], [18.0, 24.0]]


def test_adapters_stack(tmp_path: Path) -> None:
    first, second = adapter(tmp_path / "a"), adapter(tmp_path / "b", lora_alpha=1)
    changed = model()

    for folder in (first, second):
        merge(changed, folder, folder.name)

    assert weight(changed).tolist() == [[9.0, 18.0], [12.0, 24.0]]


def test_a_rank_stabilised_adapter_divides_by_the_root_of_r(tmp_path: Path) -> None:
    tensors = pair("layers.0.q_proj", rank=4)
    product = (
        tensors["base_model.model.layers.0.q_proj.lora_B.weight"]
        @ tensors["base_model.model.layers.0.q_proj.lora_A.weight"]
    )
    changed = model()

    merge(changed, adapter(tmp_path / "a", tensors, r=4, lora_alpha=3, use_rslora=True), "mine")

    torch.testing.assert_close(weight(changed), product * 3 / 2)


@pytest.mark.slow
@given(
    n_in=st.integers(1, 5),
    n_out=st.integers(1, 5),
    rank=st.integers(1, 4),
    alpha=st.integers(1, 9),
    stabilised=st.booleans(),
    conv1d=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_merged_layer_is_the_layer_and_the_adapter_beside_it(
    tmp_path_factory: pytest.TempPathFactory,
    n_in: int,
    n_out: int,
    rank: int,
    alpha: int,
    stabilised: bool,
    conv1d: bool,
    seed: int,
) -> None:
    draw = torch.Generator().manual_seed(seed)
    x, w, a, b = (
        torch.randn(*shape, generator=draw) for shape in ((3, n_in), (n_out, n_in), (rank, n_in), (n_out, rank))
    )
    layer: nn.Module = Conv1D(n_out, n_in) if conv1d else nn.Linear(n_in, n_out, bias=False)
    layer.weight.data = w.T.clone() if conv1d else w.clone()
    key = "base_model.model.layers.0.q_proj.lora_"
    tensors = {f"{key}A.weight": a, f"{key}B.weight": b}
    folder = adapter(tmp_path_factory.mktemp("adapter"), tensors, r=rank, lora_alpha=alpha, use_rslora=stabilised)

    merge(model(layer), folder, "mine")

    scale = alpha / (math.sqrt(rank) if stabilised else rank)
    torch.testing.assert_close(layer(x), x @ w.T + scale * (x @ a.T) @ b.T, rtol=1e-4, atol=1e-4)


def test_a_bfloat16_weight_is_rounded_once(tmp_path: Path) -> None:
    tensors = {key: value / 7 for key, value in pair("layers.0.q_proj").items()}
    changed, exact = model(), model()
    for of in (changed, exact):
        nn.init.constant_(of.get_parameter("layers.0.q_proj.weight"), 0.25)
    changed = changed.to(torch.bfloat16)
    folder = adapter(tmp_path / "a", tensors)

    for of in (changed, exact):
        merge(of, folder, "mine")

    assert weight(changed).dtype == torch.bfloat16
    assert torch.equal(weight(changed), weight(exact).to(torch.bfloat16))


def test_patterns_give_a_layer_a_rank_and_an_alpha_of_its_own(tmp_path: Path) -> None:
    config = read_config(
        adapter(
            tmp_path / "a",
            r=4,
            lora_alpha=8,
            rank_pattern={"^layers.0.q_proj": 2, r"layers\.\d+\.k_proj": 16},
            alpha_pattern={"k_proj": 64, "layers.1.k_proj": 1},
        )
    )

    names = ["layers.0.q_proj", "model.layers.0.q_proj", "model.layers.1.k_proj", "layers.1.lk_proj"]
    assert [config.rank_of(name) for name in names] == [2, 4, 16, 4]
    assert [config.scale_of(name) for name in names] == [4.0, 2.0, 4.0, 2.0]


# --- names of layers


WRAPPINGS = [
    ("llama", "layers.1.self_attn.q_proj", ["", "model."]),
    ("gpt2", "h.1.attn.c_attn", ["", "transformer."]),
    ("opt", "decoder.layers.1.fc1", ["", "model."]),
]


@pytest.mark.slow
@pytest.mark.parametrize("default", ["", ".default"])
@pytest.mark.parametrize(("family", "layer", "wrappers"), WRAPPINGS, ids=[w[0] for w in WRAPPINGS])
def test_a_layer_is_found_whatever_class_the_adapter_was_trained_in(
    tiny_model: Callable[..., Path], tmp_path: Path, family: str, layer: str, wrappers: list[str], default: str
) -> None:
    path = tiny_model(family)
    bare = AutoModel.from_pretrained(path)
    module = bare.get_submodule(layer)
    n_in, n_out = module.weight.shape if isinstance(module, Conv1D) else module.weight.shape[::-1]
    before = module.weight.detach().clone()

    for number, wrapper in enumerate(wrappers):
        tensors = {
            key.replace(".weight", f"{default}.weight"): value
            for key, value in pair(wrapper + layer, n_in, n_out).items()
        }
        folder = adapter(tmp_path / str(number), tensors)
        for kind in (AutoModel, AutoModelForCausalLM):
            changed = kind.from_pretrained(path)
            merge(changed, folder, "mine")
            found = changed.base_model.get_submodule(layer).weight - before
            assert found.abs().max() == 2 * n_in * (2 + n_out)


def test_other_levels_are_never_stripped(tmp_path: Path) -> None:
    assert told(adapter(tmp_path / "a", pair("vision.layers.0.q_proj"))) == (
        "HERE/adapter_model.safetensors: the adapter 'mine' does not fit this model: "
        f"ModuleDict has no layer 'vision.layers.0.q_proj'\n  {BASE}"
    )


# --- another base model


def test_a_layer_of_another_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    assert told(adapter(tmp_path / "a", pair("layers.0.q_proj", n_in=3, n_out=4))) == (
        "HERE/adapter_model.safetensors: the adapter 'mine' does not fit this model: "
        f"for 'layers.0.q_proj' it brings 4 x 3, the model has 2 x 2\n  {BASE}"
    )


def test_an_unnamed_base_is_called_another(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a", pair("layers.9.q_proj"), base_model_name_or_path=None)

    assert told(folder) == (
        "HERE/adapter_model.safetensors: the adapter 'mine' does not fit this model: "
        "ModuleDict has no layer 'layers.9.q_proj'\n"
        "  hint: it was trained on another base model: give that model, or another adapter; "
        "adapters are merged in their order"
    )


def test_an_adapter_of_the_output_head_needs_one(tmp_path: Path) -> None:
    assert told(adapter(tmp_path / "a", pair("lm_head"))) == (
        "HERE/adapter_model.safetensors: the adapter 'mine' does not fit this model: "
        f"it changes the output head 'lm_head', which ModuleDict does not have\n  {BASE}"
    )


def test_only_linear_layers_are_changed(tmp_path: Path) -> None:
    assert told(adapter(tmp_path / "a"), model(nn.Embedding(2, 2))) == (
        "HERE/adapter_model.safetensors: the adapter 'mine' does not fit this model: "
        f"'layers.0.q_proj' is not a linear layer (Embedding)\n  {BASE}"
    )


def test_two_names_of_one_layer_are_refused(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a", pair("layers.0.q_proj") | pair("transformer.layers.0.q_proj"))

    assert told(folder) == (
        "HERE/adapter_model.safetensors: the adapter 'mine' does not fit this model: "
        f"'layers.0.q_proj' and 'transformer.layers.0.q_proj' both mean 'layers.0.q_proj'\n  {BASE}"
    )


def test_a_rank_that_the_config_does_not_know_is_refused(tmp_path: Path) -> None:
    assert told(adapter(tmp_path / "a", r=8)) == (
        f"HERE/adapter_model.safetensors: 'layers.0.q_proj' has rank 1, adapter_config.json says 8\n  {AGAIN}"
    )


def test_quantised_weights_are_not_merged(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2, bias=False)
    layer.weight = nn.Parameter(torch.zeros(2, 2, dtype=torch.int8), requires_grad=False)

    assert told(adapter(tmp_path / "a"), model(layer)) == (
        "HERE/adapter_model.safetensors: the adapter 'mine' cannot be merged: 'layers.0.q_proj' is quantised (int8)\n"
        "  hint: load the base model in float32, bfloat16 or float16"
    )


def test_a_sum_beyond_the_dtype_is_refused(tmp_path: Path) -> None:
    tensors = {key: value * 1000 for key, value in pair("layers.0.q_proj").items()}

    assert told(adapter(tmp_path / "a", tensors), model().to(torch.float16)) == (
        "HERE/adapter_model.safetensors: the adapter 'mine' added to 'layers.0.q_proj' overflows float16\n"
        "  hint: load the base model with `dtype=bfloat16` or float32"
    )


def test_a_pattern_that_backtracks_without_end_is_matched_at_once() -> None:
    config = AdapterConfig(
        base="", rank=1, alpha=1.0, rank_stabilised=False, ranks={"(a|a)*(a*)*b": 4, "(?:a+)+": 2}, alphas={}
    )

    assert config.rank_of("layers." + "a" * 60) == 2
    assert config.rank_of("layers." + "a" * 60 + "c") == 1
