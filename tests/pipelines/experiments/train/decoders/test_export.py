"""Folders for sentence-transformers: the same vectors there, and what cannot be said there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import ragidx
from ragidx.corpora.errors import RagidxError, SpecError
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import FilterSpec
from ragidx.pipelines.experiments.train.decoders.export import TOLERANCE, _dense
from ragidx.retriever.searcher import Searcher

from .....raising import message_of

pytestmark = pytest.mark.slow

TEXTS = ["the mill lies by the river", 'Who said "bees"?', "a lease of the tower was signed in the valley"]
PREFIX = {"method": "llm2vec", "template": "see this:{text}"}


def _agree(folder: Path, embedder: Any) -> None:
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert np.abs(theirs.encode_document(TEXTS) - embedder.embed_document(TEXTS)).max() <= TOLERANCE
    assert np.abs(theirs.encode(TEXTS) - embedder.embed_document(TEXTS)).max() <= TOLERANCE
    assert np.abs(theirs.encode_query(TEXTS) - embedder.embed_query(TEXTS)).max() <= TOLERANCE


@pytest.mark.parametrize(
    ("options", "modules"),
    [
        ({"method": "prompteol", "filter": "none"}, ("Transformer", "Pooling", "Normalize")),
        ({"method": "prompteol"}, ("Transformer", "Pooling", "Dense", "Normalize")),
        ({"method": "prompteol", "instruction": ""}, ("Transformer", "Pooling", "Dense", "Normalize")),
        (PREFIX, ("Transformer", "Pooling", "Dense", "Normalize")),
        ({**PREFIX, "instruction": "Find it."}, ("Transformer", "Pooling", "Dense", "Normalize")),
        ({**PREFIX, "filter": FilterSpec("truncation", dim=8)}, ("Transformer", "Pooling", "Dense", "Normalize")),
    ],
    ids=["prompteol", "embedfilter", "no-instruction", "prefix", "instruction", "truncation"],
)
def test_sentence_transformers_load_the_same_vectors(
    options: dict[str, Any], modules: tuple[str, ...], tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    made = ragidx.train.export(tiny_model(), tmp_path / "out", **options)

    assert made.modules == modules
    assert made.difference <= TOLERANCE
    _agree(tmp_path / "out", ragidx.load_embedder(str(tiny_model()), device="cpu", **options))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # nothing is left beside it


def test_a_text_is_read_without_a_chat_template_behind_its_prompt_alone(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    ragidx.train.export(tiny_model(), tmp_path / "out", **PREFIX)

    model = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    read = model.preprocess(["x"], prompt=model.prompts["document"])["input_ids"][0]
    assert model.tokenizer.decode(read) == "<s>see this:x"
    assert "message" not in json.loads((tmp_path / "out" / "sentence_bert_config.json").read_text())["modality_config"]
    assert not (tmp_path / "out" / "chat_template.jinja").exists()


def test_an_index_is_exported_with_its_filter(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    corpus = tmp_path / "docs"
    corpus.mkdir()
    for number in range(30):
        (corpus / f"{number}.txt").write_text(f"{TEXTS[number % 3]} {number}")
    index = ragidx.build(
        corpus, tmp_path / "index", model=str(tiny_model()), method="prompteol", filter=FilterSpec("pca", dim=6)
    )

    made = ragidx.train.export(tmp_path / "index", tmp_path / "out")

    assert made.dim == 6
    _agree(tmp_path / "out", Searcher.open(tmp_path / "index").embedder)
    assert index.count() == 30


def test_a_map_behind_a_filter_is_a_layer_behind_length_1() -> None:
    drawn = np.random.default_rng(0)
    last = Filter(drawn.standard_normal((3, 2)), shift=drawn.standard_normal(2))
    filter = Filter(drawn.standard_normal((5, 3))).followed(last)
    rows = drawn.standard_normal((4, 5)).astype(np.float32)

    features = {"sentence_embedding": torch.from_numpy(rows)}
    for layer in _dense(filter):
        features = layer(features)

    expected = filter.mapped(l2_normalize(filter(rows)).vectors)
    assert np.allclose(features["sentence_embedding"].detach().numpy(), expected, atol=1e-6)


def test_means_of_both_sides_are_refused() -> None:
    filter = Filter(np.eye(2), shift=np.zeros(2), query_shift=np.ones(2))

    assert message_of(SpecError, lambda: _dense(filter)).startswith(
        "`center`: sentence-transformers cannot say this: a filter that takes one mean off documents and another off"
    )


def test_a_sentence_transformers_model_keeps_its_modules(tiny_sentence_transformer: Path, tmp_path: Path) -> None:
    made = ragidx.train.export(tiny_sentence_transformer, tmp_path / "out", filter=FilterSpec("truncation", dim=8))

    assert made.modules[-2:] == ("Dense", "Normalize")
    assert made.dim == 8


def test_a_table_without_pairs_is_a_static_embedding(tmp_path: Path) -> None:
    texts = [{"id": str(number), "text": f"{TEXTS[number % 3]} {number}"} for number in range(1100)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in texts))
    teacher = {"teacher": "mini-decoder", "pairs": 0, "epochs": 1, "cache": None}
    ragidx.train.mini(tmp_path / "texts.jsonl", out=tmp_path / "table", **teacher)

    made = ragidx.train.export(tmp_path / "table", tmp_path / "out")

    assert made.modules[0] == "StaticEmbedding"
    _agree(tmp_path / "out", ragidx.load_embedder(str(tmp_path / "table")))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"method": "echo"},
            "`method`: sentence-transformers cannot say this: the second copy of a text, which echo pools",
        ),
        ({"method": "reba"}, "`method`: sentence-transformers cannot say this: copies of a text"),
        ({"method": "metaeol"}, "`method`: sentence-transformers cannot say this: the method metaeol"),
        ({"method": "prompteol", "layer": 1}, "`layer`: sentence-transformers cannot say this: layer 1"),
        (
            {"method": "classical", "pooling": "weighted_mean"},
            "`pooling`: sentence-transformers cannot say this: weighted_mean pooling",
        ),
        (
            {"method": "llm2vec", "instruction": ""},
            "`model`: sentence-transformers cannot say this: '<s>', which the tokenizer puts before a text, is not",
        ),
        (
            {"method": "llm2vec", "template": "see: {text}"},
            "`template`: sentence-transformers cannot say this: a beginning that ends in a space",
        ),
        (
            {"method": "llm2vec", "template_query": "see:{text}!"},
            "`template`: sentence-transformers cannot say this: the template 'llm2vec', which pools what is behind",
        ),
    ],
)
def test_what_cannot_be_said_there_is_refused_by_name(
    options: dict[str, Any], said: str, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    assert message_of(SpecError, lambda: ragidx.train.export(tiny_model(), tmp_path / "out", **options)).startswith(
        said
    )
    assert list(tmp_path.iterdir()) == []


def test_pairs_of_tokens_are_refused(tmp_path: Path) -> None:
    said = message_of(SpecError, lambda: ragidx.train.export("mini", tmp_path / "out"))

    assert said == (
        "`model`: sentence-transformers cannot say this: pairs of tokens, for which this table has rows\n"
        "  hint: build with ragidx itself, which reads all of its own models"
    )


@pytest.mark.slow
def test_the_input_embeddings_are_refused_and_what_can_be_said_is_named(tmp_path: Path) -> None:
    assert message_of(SpecError, lambda: ragidx.train.export("mini-decoder", tmp_path / "out")) == (
        "`layer`: sentence-transformers cannot say this: layer 0, the input embeddings\n"
        "  hint: take a method of the last layer: `method=prompteol`"
    )


def test_a_folder_that_would_give_other_vectors_is_not_kept(
    tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragidx.pipelines.experiments.train.decoders.export._SYSTEM", "oops ")

    said = message_of(RagidxError, lambda: ragidx.train.export(tiny_model(), tmp_path / "out", method="prompteol"))

    assert "sentence-transformers would give other vectors of documents: a coordinate differs by" in said
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_left_alone(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    assert message_of(SpecError, lambda: ragidx.train.export(tiny_model(), tmp_path)) == (
        f"{tmp_path}: there is something in this place\n  hint: name another folder"
    )


def test_an_index_takes_no_options(tmp_path: Path, small_corpus: Path) -> None:
    ragidx.build(small_corpus, tmp_path / "index")

    said = message_of(SpecError, lambda: ragidx.train.export(tmp_path / "index", tmp_path / "out", method="echo"))

    assert said == f"{tmp_path / 'index'}: an index has its own method and filter\n  hint: remove `method`"
