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
from safetensors.numpy import save as save_arrays
from safetensors.torch import load_file, save_file

from ragidx.corpora.errors import IndexFormatError, ModelError
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.encoders.methods import default_filter, filter_spec, resolve
from ragidx.indexer.filters.filter import EmbedFilter, Filter, directions, kept_columns, make_filter
from ragidx.indexer.filters.unembedding import Spectrum, decompose, find_unembedding, spectrum_of
from ragidx.indexer.models.checkpoint import INPUTS
from ragidx.indexer.models.locate import locate
from ragidx.indexer.specs import FilterSpec

from ...raising import message_of


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


@settings(max_examples=40)
@given(hidden=st.integers(1, 33), data=st.data())
def test_with_an_offset_the_order_is_plain(hidden: int, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, hidden - 1))
    width = data.draw(st.integers(1, hidden - offset))

    assert kept_columns(hidden, width, offset).tolist() == list(range(offset, offset + width))


@settings(max_examples=30, deadline=None)
@given(hidden=st.integers(2, 24), tau=st.floats(1, 6), seed=st.integers(0, 2**31))
def test_it_is_an_orthogonal_projection(hidden: int, tau: float, seed: int) -> None:
    width = int(hidden // tau)
    if width < 1:
        return
    spectrum = _spectrum(hidden, seed)
    rows = np.random.default_rng(seed).standard_normal((7, hidden)).astype("f4")

    reduced = directions(spectrum, kept_columns(hidden, width))

    v = spectrum.directions[:, (hidden - width) // 2 : (hidden - width) // 2 + width]
    full = rows @ v @ v.T
    once = reduced(rows) @ reduced.matrix.T
    np.testing.assert_allclose(reduced.matrix.T @ reduced.matrix, np.eye(width), atol=1e-6)
    np.testing.assert_allclose(reduced(once) @ reduced.matrix.T, once, atol=1e-5)  # a second time changes nothing
    np.testing.assert_allclose(once, full, atol=1e-5)
    np.testing.assert_allclose(_distances(reduced(rows)), _distances(full), atol=1e-4)


def _distances(rows: np.ndarray) -> np.ndarray:
    return np.linalg.norm(rows[:, None] - rows[None], axis=-1)


@pytest.mark.slow
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
    assert find_unembedding(locate(str(folder))).name.endswith(INPUTS) is tied


def test_a_stale_head_in_a_tied_checkpoint_is_not_read(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "stale"
    shutil.copytree(tiny_model("llama", tie_word_embeddings=True), folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = torch.randn_like(tensors["model.embed_tokens.weight"])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    assert find_unembedding(locate(str(folder))).name == "model.embed_tokens.weight"


def test_a_head_that_is_stored_is_read_where_no_config_says_that_it_is_tied(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    """Families are tied by default whose larger models are not, and transformers ties no two that differ."""
    folder = tmp_path / "untied"
    shutil.copytree(tiny_model("gemma2", tie_word_embeddings=False), folder)
    config = json.loads((folder / "config.json").read_text())
    config.pop("tie_word_embeddings", None)
    (folder / "config.json").write_text(json.dumps(config))

    from transformers import AutoModelForCausalLM

    found = find_unembedding(locate(str(folder)))

    whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    stored = load_file(folder / "model.safetensors")[found.name]
    assert found.name == "lm_head.weight"
    assert torch.equal(whole.get_output_embeddings().weight, stored)


def test_a_shard_name_cannot_leave_the_folder(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "sharded"
    shutil.copytree(tiny_model("llama"), folder)
    names = {"lm_head.weight": "../../elsewhere/model.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))

    assert find_unembedding(locate(str(folder))).path == folder / "model.safetensors"


@pytest.mark.parametrize(("dtype", "name"), [(torch.int8, "I8"), (torch.uint8, "U8"), (torch.float8_e4m3fn, "F8_E4M3")])
def test_a_quantised_head_is_refused(
    dtype: torch.dtype, name: str, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "quantised"
    shutil.copytree(tiny_model("llama"), folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = torch.ones_like(tensors["lm_head.weight"]).to(dtype)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    assert message_of(ModelError, lambda: spectrum_of(locate(str(folder)))) == (
        f"{folder / 'model.safetensors'}: the unembedding matrix 'lm_head.weight' is stored as {name}, which has no"
        " spectrum\n  hint: use a checkpoint with the head in float16, bfloat16 or float32; or use `filter=none`, or"
        " one that reads no head: truncation, random, whitening, pca"
    )


def test_a_head_that_is_not_finite_is_refused(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(tiny_model("llama"), folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"][3, 5] = torch.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    assert message_of(ModelError, lambda: spectrum_of(locate(str(folder)))) == (
        f"{folder / 'model.safetensors'}: the unembedding matrix 'lm_head.weight' holds numbers that are not finite\n"
        "  hint: download or copy the model again"
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_head_in_half_or_double_precision_is_read_as_it_is(
    dtype: torch.dtype, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("llama"), folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = head = tensors["lm_head.weight"].to(dtype)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    values = spectrum_of(locate(str(folder))).values

    np.testing.assert_allclose(values, torch.linalg.svdvals(head.to(torch.float64)).numpy(), rtol=1e-8)


def test_rows_that_pad_the_vocabulary_belong_to_the_matrix(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "padded"
    shutil.copytree(tiny_model("llama"), folder)
    tensors = load_file(folder / "model.safetensors")
    head = torch.cat([tensors["lm_head.weight"], torch.randn(20, 32, generator=torch.Generator().manual_seed(0))])
    tensors["lm_head.weight"] = head
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    values = spectrum_of(locate(str(folder))).values

    np.testing.assert_allclose(values, torch.linalg.svdvals(head.to(torch.float64)).numpy(), rtol=1e-8)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not readable as JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        *((text, "it does not say which file holds which weight") for text in ("[]", '{"weight_map": 7}', "{}")),
    ],
)
def test_a_broken_list_of_shards_is_refused(
    text: str, reason: str, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "sharded"
    shutil.copytree(tiny_model("llama"), folder)
    (folder / "model.safetensors.index.json").write_text(text)

    assert message_of(ModelError, lambda: find_unembedding(locate(str(folder)))) == (
        f"{folder / 'model.safetensors.index.json'}: {reason}\n  hint: download or copy the model again"
    )


def test_a_list_of_shards_that_lies_is_refused(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "sharded"
    shutil.copytree(tiny_model("llama", tie_word_embeddings=True), folder)
    names = {"elsewhere.embed_tokens.weight": "model.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))

    with pytest.raises(ModelError, match="the weights cannot be read"):
        find_unembedding(locate(str(folder)))


def test_a_model_without_a_head_is_refused(tiny_sentence_transformer: Path) -> None:
    with pytest.raises(ModelError) as fault:
        spectrum_of(locate(str(tiny_sentence_transformer)))

    assert fault.value.message == f"'{tiny_sentence_transformer}' has no unembedding matrix, so it has no spectrum"
    assert fault.value.hint == "use `filter=none`, or one that reads no head: truncation, random, whitening, pca"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no safetensors",
        save_arrays({"vectors": np.eye(3, dtype="f4")}),
        save_arrays({"matrix": np.ones(3, "f4")}),
        save_arrays({"matrix": np.eye(3, dtype="f4"), "shift": np.ones(2, "f4")}),
        save_arrays({"matrix": np.eye(3, dtype="f4"), "columns": np.ones((3, 1), "i8")}),
    ],
)
def test_bytes_that_are_no_filter_are_refused(data: bytes) -> None:
    assert message_of(IndexFormatError, lambda: Filter.from_bytes(data)) == (
        "filter.safetensors: the filter of the index cannot be read\n  hint: build again with `rebuild=True`"
    )


def test_a_filter_that_is_not_finite_is_refused() -> None:
    data = save_arrays({"matrix": np.eye(3, dtype="f4"), "shift": np.array([0, np.inf, 0], "f4")})

    assert message_of(IndexFormatError, lambda: Filter.from_bytes(data)) == (
        "filter.safetensors: the filter of the index holds numbers that are not finite\n"
        "  hint: build again with `rebuild=True`"
    )


def test_what_is_zero_stays_zero_whatever_is_taken_away() -> None:
    made = Filter(np.eye(2), shift=np.array([3.0, 4.0]))

    assert made([[0, 0], [3, 5]]).tolist() == [[0, 0], [0, 1]]


def test_a_shift_of_another_width_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"a filter of shape \(4, 2\) has no shift of shape \(3,\)"):
        Filter(np.eye(4, 2), shift=np.zeros(3))


def test_embeddings_of_another_width_are_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"takes embeddings of shape \(n, 12\), got \(3, 11\)"):
        directions(_spectrum(12), np.arange(5))(np.zeros((3, 11)))


def test_the_cache_of_a_wide_spectrum_gives_the_same(
    tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGIDX_CACHE", str(tmp_path / ".cache/ragidx"))
    monkeypatch.setattr("ragidx.indexer.filters.unembedding._CACHED_FROM", 1)
    files = locate(str(tiny_model("llama")))

    made, read = spectrum_of(files), spectrum_of(files)

    assert len(list((tmp_path / ".cache/ragidx/spectrum").iterdir())) == 1
    assert np.array_equal(made.directions, read.directions)


@pytest.mark.parametrize("what", ["torn", "of another width"])
def test_a_cached_spectrum_that_is_not_whole_is_made_again(
    what: str, tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGIDX_CACHE", str(tmp_path / ".cache/ragidx"))
    monkeypatch.setattr("ragidx.indexer.filters.unembedding._CACHED_FROM", 1)
    files = locate(str(tiny_model("llama")))
    made = spectrum_of(files)
    (cached,) = (tmp_path / ".cache/ragidx/spectrum").iterdir()
    other = save_arrays({"directions": np.eye(3), "values": np.ones(3)})
    cached.write_bytes(cached.read_bytes()[:-9] if what == "torn" else other)

    again = spectrum_of(files)

    assert np.array_equal(made.directions, again.directions)
    assert cached.stat().st_size > 32 * 32 * 8


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".cache").write_text("a file where a folder should be")
    monkeypatch.setenv("RAGIDX_CACHE", str(tmp_path / ".cache/ragidx"))
    monkeypatch.setattr("ragidx.indexer.filters.unembedding._CACHED_FROM", 1)

    assert spectrum_of(locate(str(tiny_model("llama")))).directions.shape == (32, 32)


def test_defaults_tau_2_for_a_decoder_none_for_its_own_modules(
    tiny_model: Callable[..., Path], tiny_sentence_transformer: Path
) -> None:
    decoder, wrapped = locate(str(tiny_model("llama"))), locate(str(tiny_sentence_transformer))

    assert default_filter(decoder, resolve(decoder)) == FilterSpec(tau=2)
    assert default_filter(wrapped, resolve(wrapped)) == FilterSpec(name="none")


@pytest.mark.slow
def test_the_bundled_models_offset_holds_at_every_width() -> None:
    files = locate("mini-decoder")

    assert filter_spec(files, resolve(files), FilterSpec(dim=64)) == FilterSpec(dim=64, offset=1)
    encoder = load_encoder("mini-decoder")
    for options in ({"tau": 2.0}, {"dim": 64}, {"tau": 2.0, "offset": 0}, {"tau": 1.0}):
        wanted = make_filter(filter_spec(files, resolve(files), FilterSpec(**options)), encoder)
        assert wanted is not None
        np.testing.assert_array_equal(EmbedFilter.from_encoder(encoder, **options).columns, wanted.columns)
