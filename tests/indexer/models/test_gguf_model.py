"""Decoders from GGUF files: the vectors, heads and filters of the same model in safetensors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from ragidx.corpora.errors import ModelError
from ragidx.indexer.encoders.load import encoder_of, load_encoder
from ragidx.indexer.encoders.methods import resolve
from ragidx.indexer.filters.logits import logits
from ragidx.indexer.filters.unembedding import find_unembedding, spectrum_of
from ragidx.indexer.models.locate import locate

from ...conftest import SENTENCES
from ...gguf_kit import ARCHITECTURES, gguf, twin

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


OWN = {"gemma3_text": {"query_pre_attn_scalar": 8}}  # what the format has no key for


@pytest.fixture(params=ARCHITECTURES)
def pair(request: Any, tiny_model: Callable[..., Path], tmp_path: Path) -> tuple[str, str]:
    """A folder and its GGUF file."""
    return _pair(tiny_model(request.param, **OWN.get(request.param, {})), tmp_path)


def _pair(folder: Path, place: Path, **options: Any) -> tuple[str, str]:
    return str(folder), str(twin(folder, place / "twin.gguf", **options))


def _vectors(model: str, **options: Any) -> np.ndarray:
    return load_encoder(model, device="cpu", dtype="float32", **options).encode_document(SENTENCES)


def _near(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"method": "echo"},
        {"method": "prompteol"},
        {"method": "llm2vec"},
        {"method": "reba"},
        {"method": "aligned-values"},
        {"method": "classical", "layer": 1, "pooling": "last"},
    ],
    ids=lambda options: options["method"],
)
def test_every_method_gives_the_vectors_of_the_safetensors_folder(pair: tuple[str, str], options: Any) -> None:
    folder, file = pair

    _near(_vectors(file, **options), _vectors(folder, **options))


@pytest.mark.slow
def test_the_head_its_spectrum_and_logits_are_those_of_the_folder(pair: tuple[str, str]) -> None:
    folder, file = (locate(name) for name in pair)
    head, expected = find_unembedding(file), find_unembedding(folder)

    assert head.shape == expected.shape
    np.testing.assert_allclose(spectrum_of(file).values, spectrum_of(folder).values, rtol=1e-6)
    one = np.ones((1, 32), np.float32)
    np.testing.assert_allclose(logits(head, one), logits(expected, one), rtol=1e-6)


@pytest.mark.slow
def test_rope_factors_of_llama_3_slow_the_rotations_down(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    model = tiny_model("llama", rope_parameters=LLAMA3_ROPE)
    from transformers import AutoConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    slowed = LlamaRotaryEmbedding(AutoConfig.from_pretrained(model)).inv_freq
    plain = 10000.0 ** (-torch.arange(0, 8, 2) / 8)
    folder, file = _pair(model, tmp_path, tensors={"rope_freqs.weight": (plain / slowed).numpy()})

    assert float((plain / slowed).max()) == pytest.approx(8)
    _near(_vectors(file, method="echo"), _vectors(folder, method="echo"))


@pytest.mark.wheel
@pytest.mark.slow
def test_linear_rope_scaling_divides_the_positions(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    keys = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    folder, file = _pair(tiny_model("llama", rope_parameters=rope), tmp_path, keys=keys)

    _near(_vectors(file, method="echo"), _vectors(folder, method="echo"))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"attention_bias": True}, {"tie_word_embeddings": True}], ids=str)
def test_biases_and_a_tied_head_are_read(tiny_model: Callable[..., Path], tmp_path: Path, options: Any) -> None:
    model = shutil.copytree(tiny_model("llama", **options), tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    for name, found in weights.items():
        if name.endswith("bias"):
            weights[name] = np.random.default_rng(len(name)).normal(size=found.shape).astype(np.float32)
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    folder, file = _pair(model, tmp_path)

    _near(_vectors(file, method="echo"), _vectors(folder, method="echo"))
    is_tied = find_unembedding(locate(file)).name == "token_embd.weight"
    assert is_tied is ("tie_word_embeddings" in options)


def test_a_static_encoder_reads_a_file_without_a_network(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder, file = _pair(tiny_model("llama"), tmp_path)
    options = {"method": "classical", "layer": 0, "pooling": "mean"}

    encoder = load_encoder(file, **options)

    assert type(encoder).__name__ == "StaticEncoder"
    _near(encoder.encode_document(SENTENCES), _vectors(folder, **options))


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "distance"), [("bfloat16", 1e-3), ("float16", 1e-4), ("mixed", 1e-3)])
def test_number_formats_of_16_bits_are_near(
    tiny_model: Callable[..., Path], tmp_path: Path, dtype: str, distance: float
) -> None:
    folder, file = _pair(tiny_model("llama"), tmp_path)

    found = load_encoder(file, method="echo", device="cpu", dtype=dtype).encode_document(SENTENCES)

    expected = _vectors(folder, method="echo")
    cosines = (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 1 - distance


@pytest.mark.slow
def test_quantised_weights_are_those_that_gguf_says(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    model = tiny_model("llama", hidden_size=64, intermediate_size=96)
    dequantised = shutil.copytree(model, tmp_path / "dequantised")
    _, file = _pair(model, tmp_path, kind="Q8_0")
    weights = {
        name: _through(found, "Q8_0") if found.ndim > 1 else found
        for name, found in load_file(model / "model.safetensors").items()
    }
    save_file(weights, dequantised / "model.safetensors", metadata={"format": "pt"})

    _near(_vectors(file, method="echo"), _vectors(str(dequantised), method="echo"))
    assert find_unembedding(locate(file)).kind == "Q8_0"


@pytest.mark.slow
def test_an_attention_implementation_that_is_missing_is_told(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    file = twin(tiny_model("llama"), tmp_path / "twin.gguf")

    with pytest.raises(ModelError, match="has no attention implementation 'flash_attention_2': its family 'llama'"):
        load_encoder(str(file), method="echo", device="cpu", attn="flash_attention_2")


@pytest.mark.slow
def test_a_file_that_is_cut_short_after_it_was_found_is_told(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    file = twin(tiny_model("llama"), tmp_path / "twin.gguf")
    files = locate(str(file))
    file.write_bytes(file.read_bytes()[:-4096])

    with pytest.raises(ModelError, match="it ends inside '"):
        encoder_of(files, resolve(files, method="echo"), device="cpu")


def _through(found: np.ndarray, kind: str) -> np.ndarray:
    """The numbers after quantisation."""
    number = gguf.GGMLQuantizationType[kind]
    return gguf.quants.dequantize(gguf.quants.quantize(found, number), number)
