"""EmbedFilter: an orthogonal projection, read from the head of the model, whose prefixes are narrower filters."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.filters import EmbedFilter, kept_columns
from ragidx.indexer.methods import default_filter, filter_spec, resolve
from ragidx.indexer.models import locate
from ragidx.indexer.specs import FilterSpec
from ragidx.indexer.unembedding import Spectrum, decompose, find_unembedding, spectrum_of


def _spectrum(hidden: int, seed: int = 0) -> Spectrum:
    head = np.random.default_rng(seed).standard_normal((4 * hidden, hidden))
    return decompose(head.T @ head)


@settings(max_examples=40)
@given(hidden=st.integers(1, 33), data=st.data())
def test_the_first_columns_are_those_of_every_narrower_filter(hidden: int, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, hidden))
    narrow = data.draw(st.integers(1, width))

    columns = kept_columns(hidden, width)

    start = (hidden - width) // 2
    assert sorted(columns) == list(range(start, start + width))
    assert columns[:narrow].tolist() == kept_columns(hidden, narrow).tolist()


def test_the_order_starts_in_the_middle() -> None:
    assert kept_columns(6, 6).tolist() == [2, 3, 1, 4, 0, 5]
    assert kept_columns(5, 5).tolist() == [2, 1, 3, 0, 4]
    assert kept_columns(6, 3, offset=2).tolist() == [2, 3, 4]


@settings(max_examples=30, deadline=None)
@given(hidden=st.integers(2, 24), tau=st.floats(1, 6), seed=st.integers(0, 2**31))
def test_it_is_an_orthogonal_projection(hidden: int, tau: float, seed: int) -> None:
    width = int(hidden // tau)
    if width < 1:
        return
    spectrum = _spectrum(hidden, seed)
    rows = np.random.default_rng(seed).standard_normal((7, hidden)).astype("f4")

    reduced = EmbedFilter.from_spectrum(spectrum, FilterSpec(tau=tau))

    v = spectrum.directions[:, (hidden - width) // 2 : (hidden - width) // 2 + width]
    projector = v @ v.T
    full = rows @ projector
    np.testing.assert_allclose(projector @ projector, projector, atol=1e-9)
    np.testing.assert_allclose(reduced(rows) @ reduced(rows).T, full @ full.T, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(reduced(rows), axis=1), np.linalg.norm(full, axis=1), atol=1e-4)


def test_tau_1_keeps_every_distance() -> None:
    rows = np.random.default_rng(1).standard_normal((5, 16)).astype("f4")

    turned = EmbedFilter.from_spectrum(_spectrum(16), FilterSpec(tau=1))(rows)

    np.testing.assert_allclose(turned @ turned.T, rows @ rows.T, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox", "opt", "qwen2"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_spectrum_is_that_of_the_models_own_head(family: str, tied: bool, tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model(family, tie_word_embeddings=tied)
    from transformers import AutoModelForCausalLM

    head = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).get_output_embeddings().weight.detach()

    spectrum = spectrum_of(locate(str(folder)))

    _, values, rows = torch.linalg.svd(head.to(torch.float64), full_matrices=False)
    np.testing.assert_allclose(spectrum.values, values.numpy(), rtol=1e-8)
    np.testing.assert_allclose(np.abs((spectrum.directions * rows.T.numpy()).sum(0)), 1, atol=1e-6)
    assert find_unembedding(locate(str(folder))).tied is tied


def test_a_stale_head_in_a_tied_checkpoint_is_not_read(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "stale"
    shutil.copytree(tiny_model("llama", tie_word_embeddings=True), folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = torch.randn_like(tensors["model.embed_tokens.weight"])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    assert find_unembedding(locate(str(folder))).tensor == "model.embed_tokens.weight"


def test_a_shard_name_cannot_leave_the_folder(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "sharded"
    shutil.copytree(tiny_model("llama"), folder)
    names = {"lm_head.weight": "../../elsewhere/model.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))

    assert find_unembedding(locate(str(folder))).path == folder / "model.safetensors"


def test_a_quantised_head_is_refused(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "quantised"
    shutil.copytree(tiny_model("llama"), folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = torch.ones_like(tensors["lm_head.weight"], dtype=torch.int8)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ModelError) as fault:
        spectrum_of(locate(str(folder)))

    assert "the unembedding matrix 'lm_head.weight' is stored as I8, which EmbedFilter cannot decompose" in str(
        fault.value
    )


def test_a_model_without_a_head_is_refused(tiny_sentence_transformer: Path) -> None:
    with pytest.raises(ModelError) as fault:
        spectrum_of(locate(str(tiny_sentence_transformer)))

    assert "has no unembedding matrix, so there is no EmbedFilter for it" in str(fault.value)
    assert fault.value.hint == "use --filter none with an encoder model"


def test_a_filter_goes_to_bytes_and_back() -> None:
    one = EmbedFilter.from_spectrum(_spectrum(12), FilterSpec(dim=5))

    again = EmbedFilter.from_bytes(one.to_bytes())

    assert np.array_equal(again.matrix, one.matrix)
    assert again.columns.tolist() == one.columns.tolist()
    assert (again.hidden, again.dim) == (12, 5)


def test_embeddings_of_another_width_are_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"takes embeddings of shape \(n, 12\), got \(3, 11\)"):
        EmbedFilter.from_spectrum(_spectrum(12), FilterSpec(dim=5))(np.zeros((3, 11)))


def test_the_cache_of_a_wide_spectrum_gives_the_same(
    tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("ragidx.indexer.unembedding._CACHED_FROM", 1)
    files = locate(str(tiny_model("llama")))

    made, read = spectrum_of(files), spectrum_of(files)

    assert len(list((tmp_path / ".cache/ragidx/spectrum").iterdir())) == 1
    assert np.array_equal(made.directions, read.directions)


def test_defaults_tau_2_for_a_decoder_none_for_its_own_modules(
    tiny_model: Callable[..., Path], tiny_sentence_transformer: Path
) -> None:
    decoder, wrapped = locate(str(tiny_model("llama"))), locate(str(tiny_sentence_transformer))

    assert default_filter(decoder, resolve(decoder)) == FilterSpec(tau=2)
    assert default_filter(wrapped, resolve(wrapped)) == FilterSpec(name="none")


def test_the_bundled_models_offset_holds_at_every_width() -> None:
    files = locate("mini")

    assert filter_spec(files, resolve(files), dim=64) == FilterSpec(dim=64, offset=1)


def test_an_unknown_filter_names_the_near_miss() -> None:
    files = locate("mini")

    with pytest.raises(SpecError) as fault:
        filter_spec(files, resolve(files), name="embedfiltre")

    assert (
        str(fault.value)
        == "unknown filter 'embedfiltre'; did you mean 'embedfilter'?\n  hint: known: embedfilter, none"
    )
