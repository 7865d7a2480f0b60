"""Embedder: encoded, filtered, of length 1; the same for a text alone and among others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ragidx import load_encoder
from ragidx.corpora.errors import ModelError
from ragidx.indexer.encoders import Embedder, Encoder
from ragidx.indexer.filters.anisotropy import unit_sum
from ragidx.indexer.filters.filter import Filter

from ...conftest import SENTENCES
from ...raising import message_of


@pytest.fixture(scope="module")
def mini() -> Encoder:
    return load_encoder("mini", device="cpu")


def _filter(hidden: int, dim: int, *, shifted: bool) -> Filter:
    draw = np.random.default_rng(dim).standard_normal
    return Filter(draw((hidden, dim)), shift=draw(dim) if shifted else None)


@pytest.mark.slow
@given(texts=st.lists(st.text(max_size=40), max_size=6), dim=st.integers(1, 9), shifted=st.booleans())
def test_a_vector_has_length_1_and_owes_nothing_to_the_texts_beside_it(
    mini: Encoder, texts: list[str], dim: int, shifted: bool
) -> None:
    embedder = Embedder(mini, _filter(mini.hidden, dim, shifted=shifted))

    whole = embedder.embed_document(texts)

    assert (whole.shape, whole.dtype) == ((len(texts), dim), np.float32)
    for text, vector in zip(texts, whole, strict=True):
        np.testing.assert_array_equal(vector, embedder.embed_document([text])[0])
        says = mini.encode_document([text]).any() and not mini.tokenizer.is_unknown(text)
        assert np.linalg.norm(vector.astype("f8")) == pytest.approx(float(says), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("shifted", [False, True])
def test_the_filter_on_the_device_is_the_filter_of_numpy(tiny_model: Callable[..., Path], shifted: bool) -> None:
    encoder = load_encoder(str(tiny_model("llama")), method="classical", device="cpu")
    project = _filter(32, 7, shifted=shifted)
    raw = project(encoder.encode_document(SENTENCES))

    found = Embedder(encoder, project).embed_document(SENTENCES)

    np.testing.assert_allclose(found, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("instruction", [None, "", "Find the mill"])
def test_queries_carry_the_instruction_of_the_encoder(tiny_sentence_transformer: Path, instruction: str | None) -> None:
    encoder = load_encoder(str(tiny_sentence_transformer), device="cpu")

    found = Embedder(encoder).embed_query(SENTENCES, instruction)

    raw = encoder.encode_query(SENTENCES, instruction)
    np.testing.assert_allclose(found, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6)


def test_a_vector_that_is_not_finite_is_an_error_that_names_the_text(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "nan"
    shutil.copytree(tiny_model("llama"), folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"][:] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    embedder = Embedder(load_encoder(str(folder), method="classical", layer=0, device="cpu"))

    for call in (embedder.embed_query, embedder.encoder.encode_document):
        assert message_of(ModelError, lambda call=call: call(["a mill"])) == (
            "the model gave a vector that is not finite for text 0: 'a mill'\n  hint: try `dtype=float32`"
        )
    assert message_of(ModelError, lambda: list(embedder.batches(["a mill"], names=["a.txt:0-6"]))) == (
        "a.txt:0-6: the model gave a vector that is not finite\n"
        "  hint: try `dtype=float32`; if it stays, exclude the document"
    )


def test_a_text_that_the_model_does_not_know_has_no_vector_and_its_encoder_is_as_it_was(mini: Encoder) -> None:
    texts = ["the mill", "ผู้ดูแลประภาคารจุดตะเกียง", "mill ขคฆฉ", "mill ขคฆฉช", "🎉🎊"]
    embedder = Embedder(mini, _filter(mini.hidden, 5, shifted=True))

    (batch,) = embedder.batches(texts)

    assert (list(batch.unknown), batch.vectors.any(axis=1).tolist()) == ([1, 3, 4], [True, False, True, False, False])
    assert not embedder.embed_query(texts)[[1, 3, 4]].any()
    assert embedder.raw(texts).any(axis=1).tolist() == [True, False, True, False, False]
    assert mini.encode_document(texts).any(axis=1).all()
    known = mini.encode_document([texts[0], texts[2]])
    assert (embedder.anisotropy.n_vectors, batch.raw_sum) == (2, pytest.approx(unit_sum(known), abs=1e-6))


@pytest.mark.slow
def test_a_network_gives_such_a_text_no_vector_either(tiny_sentence_transformer: Path) -> None:
    encoder = load_encoder(str(tiny_sentence_transformer), device="cpu")
    texts = ["ฆฉ", *SENTENCES]
    embedder = Embedder(encoder, _filter(encoder.hidden, 3, shifted=False))

    found = embedder.embed_document(texts)

    assert found.any(axis=1).tolist() == [not encoder.tokenizer.is_unknown(text) for text in texts]
