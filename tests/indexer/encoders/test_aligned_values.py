"""Aligned values, computed a second time by hand: attention of the last token, values, W_O, and the sum over layers.

The second computation reads weights and hidden states alone. It calls no attention of transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.encoders import precision
from ragidx.indexer.encoders.load import load_encoder

from ...raising import message_of
from .decoder_kit import TEXTS, Make, Vectors, close, load

WIDTH = 8  # of a head; the llama's four heads of queries share two of keys and values


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """What the last token takes of all, (t, heads * c) each -> (d,): softmax(q k / sqrt(c)) v for each head."""
    queries, keys, values = (part.split(WIDTH, dim=-1) for part in (query, key, value))
    heads = []
    for number, q in enumerate(queries):
        k, v = (part[number * len(part) // len(queries)] for part in (keys, values))
        scores = [float(q[-1] @ k[i]) / WIDTH**0.5 for i in range(len(k))]
        shares = torch.exp(torch.tensor(scores, dtype=torch.float64) - max(scores))
        heads.append((shares / shares.sum()) @ v)
    return torch.cat(heads)


def rotated(rows: Tensor) -> Tensor:
    """(t, d) with rotary positions, the first half of a head's coordinates paired with the second."""
    out = []
    for head in rows.split(WIDTH, dim=-1):
        half = WIDTH // 2
        angles = torch.arange(len(head))[:, None] * 10000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
        one, two = head[:, :half], head[:, half:]
        out.append(torch.cat([one * angles.cos() - two * angles.sin(), two * angles.cos() + one * angles.sin()], dim=1))
    return torch.cat(out, dim=1)


def llama_layer(layer: Any, states: Tensor) -> Tensor:
    """(t, d) the input of a layer -> (d,) what its attention adds to the last token's state."""
    scale = (states.pow(2).mean(dim=-1, keepdim=True) + 1e-6).rsqrt()
    x = states * scale * layer.input_layernorm.weight.double()
    own = layer.self_attn
    q, k, v, out = (getattr(own, f"{name}_proj").weight.double() for name in "qkvo")
    return out @ attend(rotated(x @ q.T), rotated(x @ k.T), x @ v.T)


def gpt2_layer(layer: Any, states: Tensor) -> Tensor:
    """The same of a GPT-2, whose weights are (in, out) and have biases."""
    centred = states - states.mean(dim=-1, keepdim=True)
    x = centred / (centred.pow(2).mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    x = x * layer.ln_1.weight.double() + layer.ln_1.bias.double()
    qkv, out = layer.attn.c_attn, layer.attn.c_proj
    mixed = attend(*(x @ qkv.weight.double() + qkv.bias.double()).chunk(3, dim=-1))
    return mixed @ out.weight.double() + out.bias.double()


BY_HAND: dict[str, Callable[[Any, Tensor], Tensor]] = {"llama": llama_layer, "gpt2": gpt2_layer}


@pytest.mark.parametrize("layer", [-1, 1, 2])
@pytest.mark.parametrize("family", BY_HAND)
def test_the_vector_is_the_sum_of_what_attention_adds_to_the_last_token(
    family: str, layer: int, tiny_model: Make
) -> None:
    folder = tiny_model(family, num_hidden_layers=3)
    encoder = load(folder, method="aligned-values", layer=layer)
    model = load(folder, method="prompteol").backbone.model
    layers = list(model.layers if family == "llama" else model.h)[: 3 if layer == -1 else layer]

    vectors = encoder.encode_document(TEXTS)

    expected = []
    for row in load(folder, method="prompteol").rendered(TEXTS, None):
        states = model(torch.tensor([row.ids]), output_hidden_states=True).hidden_states
        added = [BY_HAND[family](own, states[i][0].double()) for i, own in enumerate(layers)]
        expected.append(torch.stack(added).sum(dim=0))
    close(vectors, torch.stack(expected).float().numpy())


def test_a_users_prompt_is_read_as_prompteol_reads_it(tiny_model: Make) -> None:
    encoder = load(tiny_model("llama"), method="aligned-values", template='One "{text}":"')
    other = load(tiny_model("llama"), method="prompteol", template='One "{text}":"')

    assert encoder.rendered(TEXTS, None) == other.rendered(TEXTS, None)


def cosines(one: Vectors, other: Vectors) -> Vectors:
    return (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)  # type: ignore[no-any-return]


def test_a_faster_format_comes_close(tiny_model: Make) -> None:
    exact = load(tiny_model("llama"), method="aligned-values").encode_document(TEXTS)

    for dtype in ("mixed", "bfloat16"):
        fast = load_encoder(str(tiny_model("llama")), method="aligned-values", device="cpu", dtype=dtype)
        rough = fast.encode_document(TEXTS)

        assert cosines(exact, rough).min() > 0.99, dtype
        assert not np.array_equal(exact, rough), dtype


def test_a_format_that_is_measured_and_undone_is_watched_all_the_while(tiny_model: Make) -> None:
    encoder = load(tiny_model("llama"), method="aligned-values")
    exact = encoder.encode_document(TEXTS)

    undo = precision.use_mixed(encoder.backbone.model)
    rough = encoder.encode_document(TEXTS)
    undo()

    assert cosines(exact, rough).min() > 0.99
    assert not np.array_equal(exact, rough)
    np.testing.assert_array_equal(encoder.encode_document(TEXTS), exact)


def test_the_width_is_that_of_the_states_where_a_model_projects_its_last_ones(tiny_model: Make) -> None:
    encoder = load(tiny_model("opt", word_embed_proj_dim=16), method="aligned-values")

    assert encoder.encode_document(TEXTS).shape == (len(TEXTS), 32)


@pytest.mark.slow
def test_a_family_without_attention_is_refused(tiny_model: Make) -> None:
    folder = tiny_model("mamba")

    assert message_of(ModelError, lambda: load(folder, method="aligned-values")) == (
        f"'{folder}' cannot be used with aligned values: layer 1 of its family 'mamba' has 0 output projections of "
        "attention that are known, where one is needed\n  hint: choose another `method`, such as `method=prompteol`"
    )


@pytest.mark.parametrize("layer", [-3, 0])
def test_before_any_attention_there_is_nothing_to_add(layer: int, tiny_model: Make) -> None:
    options = {"method": "aligned-values", "template": "classical", "pooling": "mean", "layer": layer}

    with pytest.raises(SpecError, match="layer 0 comes before any attention, which the method reads"):
        load(tiny_model("llama"), **options)


def test_a_server_is_not_asked_for_values() -> None:
    with pytest.raises(SpecError, match="the server runs 'openai:m', whatever its method is"):
        load_encoder("openai:m", method="aligned-values")
