"""LoRA adapters: their config, and their product with the scale added to the weights of a loaded model."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from ragidx.corpora.errors import ModelError
from ragidx.indexer.models.lora import merge
from ragidx.indexer.models.lora_config import base_name, is_adapter, read_config

PLAIN = {"peft_type": "LORA", "base_model_name_or_path": "some/base", "r": 1, "lora_alpha": 2, "bias": "none"}
AGAIN = "hint: download or copy the adapter again"
BY_PEFT = (
    "hint: merge it once with peft, PeftModel.from_pretrained(base, folder).merge_and_unload().save_pretrained(...), "
    "and give the folder that this writes as the model"
)
BASE = "hint: it was trained on 'some/base': give that model, or another adapter; adapters are merged in their order"


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


def weight(of: nn.Module) -> Tensor:
    return of.get_parameter("layers.0.q_proj.weight").detach()


def told(folder: Path, of: nn.Module | None = None) -> str:
    """The whole text of the error that merging ends in, less the name of the folder."""
    with pytest.raises(ModelError) as caught:
        merge(model() if of is None else of, folder, "mine")
    return str(caught.value).replace(str(folder), "HERE")


# --- the product


def test_the_scaled_product_is_added(tmp_path: Path) -> None:
    folder, changed = adapter(tmp_path / "a"), model()
    with torch.no_grad():
        changed.get_parameter("layers.0.q_proj.weight").copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))

    assert merge(changed, folder, "mine") == 1

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
            assert merge(changed, folder, "mine") == 1
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
        f"'layers.0.q_proj' is no linear layer (Embedding)\n  {BASE}"
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
        "  hint: load the base model with --dtype bfloat16 or float32"
    )


def test_an_adapter_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a", pair("layers.0.q_proj") | pair("layers.1.q_proj"))
    kept = model()
    before = copy.deepcopy(kept.state_dict())

    told(folder, kept)

    for name, value in kept.state_dict().items():
        assert torch.equal(value, before[name])


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
    "a broken pattern": (
        {"alpha_pattern": {"(q": 4}},
        "alpha_pattern has '(q', which is no pattern: missing ), unterminated subpattern at position 0",
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


def test_a_folder_without_a_config_holds_no_adapter(tmp_path: Path) -> None:
    assert not is_adapter(tmp_path)
    assert told(tmp_path) == (
        "HERE: the folder has no adapter_config.json, so it holds no adapter\n"
        "  hint: name the folder that `save_pretrained` of peft wrote"
    )


def test_the_base_is_what_the_config_names(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a")

    assert is_adapter(folder)
    assert base_name(folder) == "some/base"


def test_a_config_without_a_base_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        base_name(adapter(tmp_path / "a", base_model_name_or_path=""))

    assert str(caught.value).replace(str(tmp_path), "HERE") == (
        "HERE/a/adapter_config.json: the adapter's config names no base model\n"
        "  hint: name the base model with --model, and this folder with --adapter"
    )


def test_reading_a_config_loads_no_torch() -> None:
    code = (
        "import sys, ragidx.indexer.models.lora_config\n"
        "print({'torch', 'transformers', 'safetensors'} & set(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
