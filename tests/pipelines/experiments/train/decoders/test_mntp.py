"""Masked next-token prediction: what is hidden, what is predicted from where, and the score."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.indexer.encoders.backbone import attend_both_ways
from ragidx.indexer.encoders.load import load_encoder
from ragidx.pipelines.experiments.train.decoders.inputs import steps_of
from ragidx.pipelines.experiments.train.decoders.mntp import _Prediction
from ragidx.pipelines.experiments.train.decoders.network import Network
from ragidx.pipelines.experiments.train.keywords import StepKeywords
from ragidx.pipelines.experiments.train.objectives import NO_LABEL, mntp_loss

from .....raising import message_of
from .conftest import SMALL

pytestmark = pytest.mark.slow

BLOCKS = torch.arange(3, 3 + 60).reshape(4, 15)


@pytest.fixture
def task(network: Callable[..., Network]) -> Callable[..., _Prediction]:
    """`task(family, share, **options)`: the prediction of tokens by a random decoder, without dropout."""

    def make(
        family: str = "llama", share: float | None = None, hidden_as: str | None = None, **options: Any
    ) -> _Prediction:
        trained = network({"dropout": 0.0}, family=family, method="llm2vec", **options)
        return _Prediction(trained, steps_of("mntp", StepKeywords, {"read_tokens": 16, "rank": 4}), share, hidden_as)

    return make


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2", "phi"])
def test_the_loss_is_that_of_the_whole_model_with_its_own_head(
    family: str, task: Callable[..., _Prediction], tiny_model: Callable[..., Path]
) -> None:
    folder = tiny_model(family)
    if family == "phi":  # its head has a bias
        whole = AutoModelForCausalLM.from_pretrained(folder)
        torch.nn.init.normal_(whole.lm_head.bias)
        whole.save_pretrained(folder)
    ours = task(family, 0.4)
    whole = AutoModelForCausalLM.from_pretrained(folder).eval()
    attend_both_ways(whole)
    hidden, labels = ours.hidden(BLOCKS, seed=5)

    with torch.no_grad():
        parts = list(ours.parts(BLOCKS, seed=5, at_once=3))
        logits = whole(input_ids=hidden, use_cache=False).logits
        likelihoods = ours.likelihoods(BLOCKS, seed=5)

    expected = float(mntp_loss(logits, labels))
    assert sum(float(total) for total, _ in parts) / parts[0][1] == pytest.approx(expected, rel=1e-5)
    each = [-float(mntp_loss(one[None], wanted[None])) for one, wanted in zip(logits, labels, strict=True)]
    assert np.allclose(likelihoods, each, rtol=1e-4)


def test_a_block_begins_with_the_tokens_of_the_template_which_are_never_hidden(
    task: Callable[..., _Prediction],
) -> None:
    plain, begun = task(share=0.9), task(share=0.9, template="see:{text}")
    tokenizer = begun.network.encoder.tokenizer

    hidden, labels = begun.hidden(BLOCKS, seed=0)

    start = tokenizer.prefix + tokenizer.piece("see:")
    assert plain.start.tolist() == tokenizer.prefix
    assert begun.start.tolist() == start
    assert begun.length == 16 - len(start)
    assert hidden[:, : len(start)].tolist() == [start] * 4
    assert bool((labels[:, : len(start)] == NO_LABEL).all())
    wanted = labels[:, len(start) :]
    assert torch.equal(torch.where(wanted == NO_LABEL, BLOCKS, wanted), BLOCKS)  # a label is what was hidden


@pytest.mark.parametrize(
    ("family", "asked", "share", "is_all"),
    [
        ("llama", {}, 0.2, False),
        ("mistral", {}, 0.8, True),
        ("mistral", {"hidden_as": "bert", "share": 0.2}, 0.2, False),  # the paper's, for tasks on words
        ("mistral", {"hidden_as": "bert"}, 0.2, False),
        ("llama", {"hidden_as": "mask"}, 0.8, True),
        ("mistral", {"share": 0.4}, 0.4, True),
    ],
)
def test_how_much_is_hidden_and_as_what_is_that_of_the_paper_or_as_asked(
    family: str, asked: dict[str, Any], share: float, is_all: bool, task: Callable[..., _Prediction]
) -> None:
    ours = task(family, **asked)
    blocks = torch.full((400, 15), 20)

    hidden, labels = ours.hidden(blocks, seed=1)

    chosen = labels[:, len(ours.start) :] != NO_LABEL
    masked = hidden[:, len(ours.start) :] == ours.masking.mask_id
    assert chosen.float().mean() == pytest.approx(share, abs=0.03)
    assert float(masked[chosen].float().mean()) == pytest.approx(1.0 if is_all else 0.8, abs=0.03)
    assert ours.network.encoder.tokenizer.pieces.decode([ours.masking.mask_id]) == "_"


def test_texts_are_learnt_by_heart_and_words_are_read_one_place_before(
    text: Path, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    report = ragidx.train.mntp(tiny_model(), text=text, out=tmp_path / "out", epochs=20, **{**SMALL, "rate": 2e-2})

    assert report.measure == "log-likelihood of hidden tokens"
    assert report.after > report.before + 0.5
    assert report.last_loss < report.first_loss
    encoder = load_encoder(str(tmp_path / "out"))
    assert (encoder.spec.method, encoder.spec.attention) == ("llm2vec", "bidirectional")
    words = [["the", "mill", "lies"]]
    before, at = (encoder.encode_words(words, previous=previous)[0] for previous in (True, False))
    assert np.array_equal(encoder.encode_words(words)[0], before)
    assert not np.array_equal(before, at)


def test_a_causal_method_and_a_template_that_fills_the_block_are_refused(
    text: Path, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    def train(**options: Any) -> None:
        ragidx.train.mntp(tiny_model(), text=text, out=tmp_path / "out", **{**SMALL, **options})

    assert message_of(SpecError, lambda: train(method="prompteol")) == (
        "`attention`: attention is causal\n  hint: use `method=llm2vec` or `attention=bidirectional`"
    )
    assert message_of(SpecError, lambda: train(read_tokens=2)) == (
        "`read_tokens`: the template fills the block\n  hint: give more `read_tokens`"
    )
    assert message_of(SpecError, lambda: train(hidden_share=1.5)).startswith("`hidden_share`: hidden_share=1.5")
    assert message_of(SpecError, lambda: train(hidden_as="masks")) == (
        "unknown hidden_as 'masks'; did you mean 'mask'?\n  hint: known: bert, mask"
    )
