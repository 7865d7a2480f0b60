"""Decoder encoders: how much of a text is read, and which models, options and texts are refused."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.encoders.decoder import DecoderEncoder
from ragidx.indexer.encoders.load import load_encoder

from ...raising import message_of
from ...tiny_weights import write_adapter, write_pooler
from .decoder_kit import TEXTS, Make, close, load, told

pytestmark = pytest.mark.slow


# --- lengths


def n_read(encoder: DecoderEncoder, text: str, instruction: str | None = None) -> int:
    return encoder.rendered([text], instruction)[0].longest


LONG = "mill " * 200


@pytest.mark.parametrize(("method", "options", "n_around"), [
    ("classical", {}, 1),
    ("echo", {"copies": 2}, 1),
    ("echo", {"copies": 3}, 1),
    ("reba", {"copies": 3}, 1),
])  # fmt: skip
def test_the_length_counts_tokens_of_a_text_in_each_copy_or_in_all_together(
    method: str, options: dict[str, Any], n_around: int, tiny_model: Make
) -> None:
    folder, copies = tiny_model("llama"), options.get("copies", 1)

    each = load(folder, method=method, max_length=9, **options)
    assert n_read(each, LONG) == n_around + 9 * copies
    assert each.text_limit() == 9
    if copies > 1:
        matched = load(folder, method=method, max_length=9, compute_matched=True, **options)
        assert matched.text_limit() == 9 // copies
        assert n_read(matched, LONG) == n_around + 9 // copies * copies <= n_around + 9


def test_compute_matched_echo_reads_as_many_tokens_of_text_as_classical(tiny_model: Make) -> None:
    folder = tiny_model("llama")
    classical = load(folder, method="classical", max_length=30)
    matched = load(folder, method="echo", max_length=30, compute_matched=True)
    around = n_read(matched, "")

    assert n_read(classical, LONG) == 1 + 30
    assert n_read(matched, LONG) == around + 30
    assert matched.text_limit() == 15
    assert n_read(matched, LONG, "Find it") - n_read(matched, "", "Find it") == 30
    assert n_read(load(folder, method="echo", max_length=1, compute_matched=True), LONG) == around + 2  # never nothing


def test_the_model_itself_limits_what_is_asked_for(tiny_model: Make) -> None:
    for method in ("classical", "echo", "prompteol", "llm2vec", "reba"):
        encoder = load(tiny_model("llama"), method=method, max_length=1000)

        assert n_read(encoder, LONG) <= 128
        assert n_read(encoder, LONG, "Find it among the many mills") <= 128
        assert np.isfinite(encoder.encode_query([LONG], instruction="Find it among the many mills")).all()


def test_the_tokenizers_limit_and_the_models_positions_both_hold(tiny_model: Make, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("llama"), tmp_path / "short")
    told = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(told | {"model_max_length": 20}))

    encoder = load_encoder(str(folder), method="classical", device="cpu")

    assert encoder.text_limit() == 19
    assert load_encoder(str(tiny_model("llama", max_position_embeddings=12)), method="classical").text_limit() == 11


@pytest.mark.parametrize("method", ["classical", "llm2vec", "reba"])
def test_what_is_cut_in_the_middle_keeps_both_ends(
    method: str, tiny_model: Make, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = load(tiny_model("llama"), method=method, max_length=20, truncate="middle")
    middles = [f"The river {'rises in the hills and ' * n}flows to the sea" for n in (20, 2000)]

    with caplog.at_level(logging.WARNING, "ragidx"):
        vectors = encoder.encode_document([*middles, middles[0][:-3] + "mill"])

    close(vectors[0], vectors[1])
    assert float(np.abs(vectors[0] - vectors[2]).max()) > 1e-3
    assert caplog.messages == ["3 of 3 texts are longer than the model reads and were cut"]
    ended = load(tiny_model("llama"), method=method, max_length=20)
    close(ended.encode_document([middles[0]]), ended.encode_document([middles[0][:-3] + "mill"]))


# --- loading


def test_a_trained_pooling_of_every_layer_reads_every_layer(tiny_model: Make, tmp_path: Path) -> None:
    pooler = str(write_pooler(tmp_path / "p.safetensors", layers=2))

    assert (
        told(
            lambda: load_encoder(
                str(tiny_model("llama")), method="classical", pooling="trainable", pooler=pooler, layer=1
            )
        )
        == "`layer`: this pooling reads every layer\n  hint: remove `layer`"
    )


@pytest.mark.parametrize(
    ("family", "attn"), [("llama", "nonsense"), ("llama", "flash_attention_2"), ("gemma2", "sdpa"), ("bloom", "sdpa")]
)
def test_an_attention_implementation_that_is_not_there_is_named(family: str, attn: str, tiny_model: Make) -> None:
    if attn == "flash_attention_2":
        from transformers.utils import is_flash_attn_2_available

        if is_flash_attn_2_available():
            pytest.skip("flash attention is here")
    folder = str(tiny_model(family))

    assert told(lambda: load_encoder(folder, method="classical", attn=attn, device="cpu"), ModelError) == (
        f"`attn`: '{folder}' has no attention implementation '{attn}': its family '{family}' lacks it, or the package "
        "it needs is not installed\n  hint: remove it, or use `attn=eager`"
    )


def test_attention_implementations_agree(tiny_model: Make) -> None:
    folder = tiny_model("llama")
    for method in ("classical", "llm2vec"):
        one, other = (load(folder, method=method, attn=attn).encode_document(TEXTS) for attn in ("sdpa", "eager"))

        close(one, other)


def test_a_sentence_transformers_model_computes_its_own_attention(tiny_sentence_transformer: Path) -> None:
    assert told(lambda: load_encoder(str(tiny_sentence_transformer), attn="eager", device="cpu")) == (
        "`attn`: a sentence-transformers model brings its own attention\n"
        "  hint: remove `attn`, or choose another `method`"
    )


@pytest.mark.parametrize("layer", [3, -4, 100])
@pytest.mark.parametrize("method", ["classical", "reba", "llm2vec"])
def test_a_layer_that_is_not_there_is_told(method: str, layer: int, tiny_model: Make) -> None:
    assert told(lambda: load_encoder(str(tiny_model("llama")), method=method, layer=layer, device="cpu")) == (
        f"`layer`: the model has 2 layers, there is no layer {layer}\n"
        "  hint: give 0 (input embeddings) to 2, or -1 for the last"
    )


def test_a_padding_token_without_an_embedding_is_not_read(tiny_model: Make, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = tiny_model("llama")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(write_adapter(tmp_path / "adapter", None))
    assert tokenizer.pad_token_id == 300

    encoder = load(folder, method="llm2vec", adapters=(str(tmp_path / "adapter"),))

    close(encoder.encode_document(TEXTS), np.concatenate([encoder.encode_document([text]) for text in TEXTS]))


def test_a_tokenizer_of_another_model_is_refused(tiny_model: Make, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("llama", vocab_size=290), tmp_path / "smaller")

    assert told(lambda: load_encoder(str(folder), method="classical", device="cpu"), ModelError) == (
        f"the tokenizer of '{folder}' has 300 tokens, the model has embeddings for 290\n"
        "  hint: put the tokenizer that belongs to the weights beside them"
    )


def test_an_eos_needs_an_embedding(tiny_model: Make, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    for n_tokens in (300, 301):
        folder = shutil.copytree(tiny_model("llama", vocab_size=n_tokens), tmp_path / str(n_tokens))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.add_special_tokens({"eos_token": "[END]"})
        assert tokenizer.eos_token_id == 300
        tokenizer.save_pretrained(folder)

    assert load(tmp_path / "301", method="echo").encode_document(["a"]).any()
    assert told(lambda: load(tmp_path / "300", method="echo"), ModelError).startswith(
        f"the tokenizer of '{tmp_path / '300'}' has 301 tokens, the model has embeddings for 300\n"
    )


def test_adapters_add_up(tiny_model: Make, tmp_path: Path) -> None:
    folder = tiny_model("llama")
    names = [str(write_adapter(tmp_path / f"a{seed}", None, seed=seed)) for seed in range(2)]

    vectors = [
        load(folder, method="llm2vec", adapters=tuple(adapters)).encode_document(TEXTS)
        for adapters in ([], names[:1], names, names[::-1])
    ]

    close(vectors[2], vectors[3])  # sums of products: the order plays no part for the weights
    assert float(np.abs(vectors[0] - vectors[1]).max()) > 1e-2
    assert float(np.abs(vectors[1] - vectors[2]).max()) > 1e-2


@pytest.mark.parametrize("layer", [-1, 2])
def test_the_last_layer_has_gone_through_the_final_norm(layer: int, tiny_model: Callable[..., Path]) -> None:
    assert message_of(SpecError, lambda: load_encoder(str(tiny_model("llama")), layer=layer, layer_norm=True)) == (
        "`layer_norm`: the last layer's states have gone through the final norm\n"
        "  hint: remove `layer_norm`, or give a `layer` before the last"
    )


def test_a_checkpoint_that_lacks_weights_is_refused(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "holed"
    shutil.copytree(tiny_model("llama"), folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"], tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    assert message_of(ModelError, lambda: load_encoder(str(folder))) == (
        f"{folder}: the weights of '{folder}' lack 'layers.1.mlp.up_proj.weight' and 1 more\n"
        "  hint: download or copy the model again"
    )


def test_one_string_is_no_list_of_texts(tiny_model: Callable[..., Path]) -> None:
    encoder = load_encoder(str(tiny_model("llama")))

    for call in (encoder.encode_query, encoder.encode_document):
        with pytest.raises(TypeError, match="expected a list of texts, got one string"):
            call("who signed?")
        with pytest.raises(ValueError, match="text 1 is not Unicode text: half of a surrogate pair at character 2"):
            call(["fine", "no\ud800"])
    with pytest.raises(TypeError, match="expected a list of texts, got one string"):
        encoder.encode_words(["one string"])
