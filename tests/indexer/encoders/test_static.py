"""Static models: the vectors of a network that is never run, without the libraries that would run it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from ragidx import load_encoder
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.encoders import Encoder, static
from ragidx.indexer.encoders.decoder import DecoderEncoder
from ragidx.indexer.encoders.static import StaticEncoder
from ragidx.indexer.filters import unembedding
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.models.locate import locate
from ragidx.indexer.prompts import tokenizer as tokens

TEXTS = [
    "a",
    "Who signed the lease for the house by the lake?",
    "",
    "[CLS] a text that spells [SEP] and <s> special tokens </s>",
    "Ünïcödé naïve café, 東京タワー, Привет мир!",
    "The river flows past the old mill before it reaches the sea. " * 60,
]
OPTIONS: dict[str, Any] = {"method": "classical", "pooling": "mean", "layer": 0, "device": "cpu"}

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def mini() -> Encoder:
    return load_encoder("mini-decoder", device="cpu")


@pytest.fixture(scope="module")
def network() -> Encoder:
    """mini-decoder's layer 0 through transformers: naming an attention asks for the network."""
    found = load_encoder("mini-decoder", device="cpu", attn="sdpa")
    assert isinstance(found, DecoderEncoder)
    return found


@pytest.fixture
def copied(tiny_model: Make, tmp_path: Path) -> Path:
    """A llama of one's own, to be changed."""
    return Path(shutil.copytree(tiny_model("llama"), tmp_path / "model"))


def close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())


def change(path: Path, **values: Any) -> None:
    known = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({k: v for k, v in (known | values).items() if v is not None}), "utf-8")


def test_a_vector_is_the_mean_of_the_rows_of_its_tokens(tiny_model: Make) -> None:
    folder = tiny_model("llama")
    encoder = load_encoder(str(folder), **OPTIONS)
    table = load_file(folder / "model.safetensors")["model.embed_tokens.weight"].numpy()
    ids = encoder.tokenizer.ids(["a mill"])[0]

    assert isinstance(encoder, StaticEncoder)
    close(encoder.encode_document(["a mill"])[0], table[ids].mean(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("instruction", [None, "", "Find the passage that answers the question."])
def test_vectors_are_those_of_the_network(mini: Encoder, network: Encoder, instruction: str | None) -> None:
    assert isinstance(mini, StaticEncoder)

    close(mini.encode_document(TEXTS), network.encode_document(TEXTS))
    close(mini.encode_query(TEXTS, instruction), network.encode_query(TEXTS, instruction))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(max_size=80), min_size=1, max_size=5))
def test_any_text_has_the_vector_that_the_network_gives_it(mini: Encoder, network: Encoder, texts: list[str]) -> None:
    ours, theirs = mini.encode_document(texts), network.encode_document(texts)

    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    assert [row.ids for row in mini.rendered(texts, None)] == [row.ids for row in network.rendered(texts, None)]


@pytest.mark.parametrize("truncate", ["end", "middle"])
def test_long_texts_are_cut_as_for_the_network(tiny_model: Make, truncate: str) -> None:
    options = OPTIONS | {"max_length": 7, "truncate": truncate}
    ours, theirs = (load_encoder(str(tiny_model("llama")), **options, attn=attn) for attn in ("auto", "sdpa"))

    close(ours.encode_document(TEXTS), theirs.encode_document(TEXTS))
    assert [b.n_truncated for b in ours.batches(TEXTS)] == [sum(b.n_truncated for b in theirs.batches(TEXTS))]
    assert ours.text_limit() == theirs.text_limit() == 7
    assert (ours.hidden, ours.template_content()) == (theirs.hidden, theirs.template_content())


def test_a_filter_is_applied_as_on_a_device(mini: Encoder, network: Encoder) -> None:
    random = np.random.default_rng(3)
    project = Filter(random.normal(size=(mini.hidden, 12)), shift=random.normal(size=12))
    ours = np.concatenate([batch.vectors for batch in mini.batches(TEXTS, project=project)])
    theirs = np.zeros_like(ours)
    for batch in network.batches(TEXTS, project=project):
        theirs[batch.rows] = batch.vectors

    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
    assert not ours[2].any()  # the empty text


def test_a_vector_does_not_depend_on_the_texts_beside_it(mini: Encoder) -> None:
    texts = [f"{text} {number}" for number in range(90) for text in TEXTS[:4]]
    whole = mini.encode_document(texts)

    assert [len(batch.rows) for batch in mini.batches(texts)] == [256, 104]
    assert (whole[:6] == np.concatenate([mini.encode_document([text]) for text in texts[:6]])).all()


def test_it_has_no_words_and_nothing_to_tune(mini: Encoder) -> None:
    mini.tune(TEXTS)

    assert (mini.device, mini.dtype) == ("cpu", "float32")
    with pytest.raises(SpecError, match="classical has one vector a text and none for its words"):
        mini.encode_words([["a", "mill"]])


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_embeddings_may_be_stored_in_other_formats(copied: Path, kind: torch.dtype) -> None:
    weights = load_file(copied / "model.safetensors")
    save_file({name: value.to(kind) for name, value in weights.items()}, copied / "model.safetensors")
    rounded = weights["model.embed_tokens.weight"].to(kind).to(torch.float32).numpy()
    encoder = load_encoder(str(copied), **OPTIONS)

    close(encoder.encode_document(["a mill"])[0], rounded[encoder.tokenizer.ids(["a mill"])[0]].mean(axis=0))


@pytest.mark.parametrize(
    "options",
    [{"layer": 1}, {"layer": -3}, {"pooling": "last"}, {"method": "echo"}, {"dtype": "float16"}, {"attn": "eager"}],
    ids=str,
)
def test_what_is_not_the_mean_of_the_input_embeddings_is_left_to_the_network(
    tiny_model: Make, options: dict[str, Any]
) -> None:
    assert not isinstance(load_encoder(str(tiny_model("llama")), **OPTIONS | options), StaticEncoder)


def test_families_that_change_the_rows_on_the_way_are_left_to_the_network(tiny_model: Make) -> None:
    for family in ("gemma2", "gpt2", "mistral"):  # scaled, with positions added, and nobody has looked
        assert not isinstance(load_encoder(str(tiny_model(family)), **OPTIONS), StaticEncoder), family


@pytest.mark.parametrize(
    "setting",
    [
        {"add_bos_token": True},
        {"tokenizer_class": "LlamaTokenizer"},
        {"pad_token": {"content": "<pad>"}},
        {"model_max_length": None},
    ],
    ids=str,
)
def test_a_tokenizer_that_settings_may_change_is_left_to_transformers(copied: Path, setting: dict[str, Any]) -> None:
    files = locate(str(copied))
    assert tokens.is_plain(files)

    change(copied / "tokenizer_config.json", **setting)

    assert not tokens.is_plain(files)


@pytest.mark.parametrize(
    "change_file",
    [
        lambda known: known | {"padding": known["padding"], "post_processor": None},
        lambda known: (
            known | {"truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}}
        ),
        lambda known: known | {"added_tokens": [t | {"special": False} for t in known["added_tokens"]]},
    ],
    ids=["no post-processor", "truncation", "tokens that are not special"],
)
def test_a_tokenizer_file_that_transformers_would_change_is_left_to_them(copied: Path, change_file: Any) -> None:
    path = copied / "tokenizer.json"
    path.write_text(json.dumps(change_file(json.loads(path.read_text("utf-8")))), "utf-8")
    theirs = AutoTokenizer.from_pretrained(copied)
    ours = tokens.load_tokenizer(locate(str(copied)))

    assert tokens._read_plain(copied) is None
    assert (ours.bos, ours.eos, ours.pad) == (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id)
    assert [ours.prefix] == [tokens.TextTokenizer.of(theirs, model="x").prefix]


@pytest.mark.slow
def test_a_tokenizer_is_read_as_transformers_read_it(tiny_model: Make) -> None:
    for folder in (locate("mini").folder, tiny_model("llama")):
        ours = tokens.load_tokenizer(locate(str(folder)))
        theirs = tokens.TextTokenizer.of(AutoTokenizer.from_pretrained(folder), model="x")

        assert tokens.is_plain(locate(str(folder)))
        for name in ("bos", "eos", "pad", "prefix", "suffix", "max_length", "_special", "_named"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert ours.texts.to_str() == theirs.texts.to_str()
        assert ours.pieces.to_str() == theirs.pieces.to_str()


def test_a_tokenizer_file_that_is_damaged_is_an_error(copied: Path) -> None:
    (copied / "tokenizer.json").write_text('{"version": "1.0"', "utf-8")

    with pytest.raises(ModelError, match=r"the tokenizer of '.*' cannot be loaded"):
        load_encoder(str(copied), **OPTIONS)


def test_a_checkpoint_without_input_embeddings_is_an_error(copied: Path) -> None:
    weights = load_file(copied / "model.safetensors")
    save_file({name: value for name, value in weights.items() if "embed" not in name}, copied / "model.safetensors")

    with pytest.raises(ModelError) as fault:
        load_encoder(str(copied), **OPTIONS)

    assert "lack its input embeddings" in str(fault.value)
    assert fault.value.hint == "download or copy the model again"


def test_embeddings_that_the_config_does_not_name_are_an_error(copied: Path) -> None:
    change(copied / "config.json", vocab_size=999)

    with pytest.raises(ModelError) as fault:
        load_encoder(str(copied), **OPTIONS)

    assert "in F32, where the config names (999, 32)" in str(fault.value)
    assert fault.value.hint == "copy the config.json that belongs to the weights, in float16, bfloat16 or float32"


def test_a_tokenizer_with_more_tokens_than_the_model_is_an_error(copied: Path) -> None:
    weights = load_file(copied / "model.safetensors")
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"][:200].clone()
    save_file(weights, copied / "model.safetensors")
    change(copied / "config.json", vocab_size=200)

    with pytest.raises(ModelError, match="has 300 tokens, the model has embeddings for 200"):
        load_encoder(str(copied), **OPTIONS)


def test_the_families_that_are_known_to_be_decoders_fill_no_masks() -> None:
    assert not unembedding._DECODERS & MODEL_FOR_MASKED_LM_MAPPING_NAMES.keys()
    assert static._FAMILIES <= unembedding._DECODERS


@pytest.mark.slow
def test_building_and_asking_with_mini_load_neither_torch_nor_transformers(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("The mill by the river grinds flour.", "utf-8")
    script = """
import sys
from ragidx.pipelines.cli.main import main
for command in (["build", "docs", "--index", "index"], ["query", "flour", "--index", "index"]):
    sys.argv = ["ragidx", *command]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
print(sorted({"torch", "transformers", "sentence_transformers"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr
