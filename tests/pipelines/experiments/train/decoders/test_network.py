"""What learns of a decoder: its attention while it trains, its dropout, and the model that is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.encoders.load import load_embedder, load_encoder
from ragidx.pipelines.experiments.train.decoders.contrastive import MethodModule
from ragidx.pipelines.experiments.train.decoders.network import Network

from .....raising import message_of
from .conftest import moved

pytestmark = pytest.mark.slow

SIZES = {"latents": 2, "heads": 2, "head_width": 4}
TEXTS = ["the mill lies by the river", "bees", "a lease of the tower was signed in the valley by the harbour"]


def _features(network: Network, texts: list[str], instruction: str | None = None) -> list[torch.Tensor]:
    return list(MethodModule(network, 64).preprocess(texts, instruction).values())


@pytest.mark.parametrize(
    ("how", "options"),
    [
        ({}, {}),
        ({}, {"method": "llm2vec"}),
        ({}, {"method": "classical", "family": "qwen2"}),
        ({}, {"method": "classical", "family": "gpt2"}),
        ({"full": True}, {"method": "llm2vec"}),
        ({"end_token": True}, {"method": "echo", "pooling": "last"}),
        ({"end_token": True}, {"method": "echo", "pooling": "last", "family": "gemma2"}),
        *(
            ({**SIZES, "rows": rows}, {"method": method, "pooling": "trainable"})
            for rows in ("layers", "tokens")
            for method in ("llm2vec", "classical")
        ),
    ],
)
def test_the_model_that_is_written_makes_the_vectors_that_were_trained(
    how: dict[str, Any], options: dict[str, Any], network: Callable[..., Network], tmp_path: Path
) -> None:
    trained = moved(network(how, **options))

    trained.save(tmp_path / "made")

    made = load_encoder(str(tmp_path / "made"), device="cpu", dtype="float32")
    assert np.allclose(made.encode_document(TEXTS), trained.vectors(TEXTS, None, 64), atol=1e-4)
    spec = made.spec
    wanted = trained.spec
    assert (spec.method, spec.pooling, spec.attention) == (wanted.method, wanted.pooling, wanted.attention)


def test_a_pooling_of_all_layers_learns_with_the_decoder_and_is_read_back(
    network: Callable[..., Network], tmp_path: Path
) -> None:
    plain = network(method="classical", pooling="eos").encoder.encode_layers(["the mill", "bees"])
    trained = network(SIZES, method="classical", pooling="trainable")
    vectors = trained.pooling.layer_vectors
    assert np.allclose(vectors.detach(), -plain.mean(axis=1), atol=1e-5)  # of the two texts it began with

    moved(trained)(*_features(trained, TEXTS)).sum().backward()
    trained.save(tmp_path / "made")

    assert bool((vectors.grad != 0).any(dim=1).all())
    assert all(bool((weight.grad != 0).any()) for name, weight in trained.named_parameters() if "lora_" in name)
    made = load_encoder(str(tmp_path / "made"), device="cpu", dtype="float32")
    assert made.pooler.multi_layer
    assert load_embedder(str(tmp_path / "made"), device="cpu").filter is None


def test_the_written_model_keeps_a_head_that_is_not_tied(network: Callable[..., Network], tmp_path: Path) -> None:
    trained = moved(network(family="qwen2"))

    trained.save(tmp_path / "made")

    embedder = load_embedder(str(tmp_path / "made"), device="cpu")
    assert embedder.embed_document(TEXTS).shape == (3, 16)


@pytest.mark.parametrize(("method", "sees"), [("llm2vec", True), ("classical", False)])
@pytest.mark.parametrize("padded", [True, False])
def test_in_training_the_first_token_sees_what_comes_after_only_where_attention_runs_both_ways(
    method: str, sees: bool, padded: bool, network: Callable[..., Network]
) -> None:
    trained = moved(network({"dropout": 0.0}, method=method))
    trained.train()
    ids = torch.tensor([[0, 7, 9], [0, 7, 11]])
    rest = torch.tensor([[0, 7, 9, 12]]) if padded else None

    with torch.no_grad():
        if rest is None:
            states = trained.states(ids)
        else:
            attention = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]])
            both = torch.cat([torch.nn.functional.pad(ids, (0, 1), value=2), rest])
            states = trained.encoder.backbone.states(both, attention)

    assert bool((states[0, 1] - states[1, 1]).abs().max() > 1e-5) == sees


def test_a_text_has_one_vector_alone_and_beside_a_longer_one(network: Callable[..., Network]) -> None:
    trained = moved(network({"dropout": 0.0}))

    with torch.no_grad():
        together = trained(*_features(trained, TEXTS))
        alone = torch.cat([trained(*_features(trained, [text])) for text in TEXTS])

    assert torch.allclose(together, alone, atol=1e-5)


def test_dropout_of_the_attention_draws_another_view_each_time(network: Callable[..., Network]) -> None:
    plain, drawn = (network({"dropout": 0.0, "attention_dropout": share}) for share in (0.0, 0.3))

    same, apart = (torch.equal(one(*_features(one, TEXTS)), one(*_features(one, TEXTS))) for one in (plain, drawn))

    assert same
    assert not apart
    assert np.array_equal(drawn.vectors(TEXTS, None, 64), plain.vectors(TEXTS, None, 64))  # none where it is used


def test_only_what_learns_has_gradients(network: Callable[..., Network]) -> None:
    trained = network()

    trained(*_features(trained, TEXTS)).sum().backward()

    learning = {name for name, weight in trained.named_parameters() if weight.grad is not None}
    assert learning == set(trained.weights())
    assert all("lora_" in name for name in learning)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("options", [{}, {"method": "llm2vec"}, {"method": "classical", "pooling": "trainable"}])
def test_states_that_are_made_again_give_the_same_vectors_and_gradients(
    family: str, options: dict[str, Any], network: Callable[..., Network]
) -> None:
    how = {**SIZES, "dropout": 0.1, "attention_dropout": 0.1}
    plain, again = (moved(network(how, family=family, **options)) for _ in range(2))
    assert again.recompute()

    made = []
    for one in (plain, again):
        torch.manual_seed(0)
        vectors = one(*_features(one, TEXTS))
        (vectors**2).sum().backward()
        gradients = {name: weight.grad for name, weight in one.named_parameters() if weight.grad is not None}
        made.append({"vectors": vectors.detach(), **gradients})

    assert made[0].keys() == made[1].keys()
    assert len(made[0]) == len(plain.weights()) + 1
    for name, numbers in made[0].items():
        assert torch.allclose(numbers, made[1][name], rtol=0, atol=1e-6 * float(numbers.abs().max())), name


def test_weights_of_another_network_are_refused(network: Callable[..., Network]) -> None:
    small, large = network({"rank": 2}), network({"rank": 4})

    assert message_of(ModelError, lambda: small.restore(large.weights())).startswith(
        "the weights are of another network"
    )


def test_what_cannot_be_trained_is_named(network: Callable[..., Network], tmp_path: Path) -> None:
    assert message_of(SpecError, lambda: network(method="reba")).startswith("`method`: reba of")
    assert message_of(SpecError, lambda: network({"end_token": True})) == (
        "`end_token`: the template 'prompteol' has no end token\n  hint: remove `end_token`, or take `method=echo`"
    )


def test_the_written_tokenizer_has_no_chat_template(
    network: Callable[..., Network], tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    trained = network()
    settings = json.loads((tiny_model("llama") / "tokenizer_config.json").read_text())

    trained.save(tmp_path / "made")

    made = json.loads((tmp_path / "made" / "tokenizer_config.json").read_text())
    assert made == {name: value for name, value in settings.items() if name != "chat_template"}
    assert not (tmp_path / "made" / "chat_template.jinja").exists()
