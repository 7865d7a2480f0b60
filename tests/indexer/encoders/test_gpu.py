"""Encoding on a GPU gives the vectors of the CPU. Searching on one is in tests/indexer/ann/test_gpu.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import ragidx
from ragidx.indexer.encoders.load import load_encoder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here"),
]
TEXTS = [f"bees number {n} make honey" + " in the old mill" * (n % 5) for n in range(300)]


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)


@pytest.mark.parametrize("method", ["echo", "prompteol", "aligned-values", "classical", "llm2vec", "reba"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3_text"])
def test_vectors_of_a_gpu_are_those_of_the_cpu(tiny_model: Callable[..., Path], family: str, method: str) -> None:
    model = str(tiny_model(family))
    cpu = load_encoder(model, method=method, device="cpu", dtype="float32").encode_document(TEXTS)

    exact = load_encoder(model, method=method, device="cuda", dtype="float32").encode_document(TEXTS)
    np.testing.assert_allclose(exact, cpu, rtol=1e-3, atol=1e-4)
    usual = load_encoder(model, method=method, device="cuda")
    assert cosines(usual.encode_document(TEXTS), cpu).min() > 0.99
    assert usual.dtype in ("bfloat16", "float16")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are fewer than two GPUs here")
def test_all_gpus_share_a_build(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    for number, text in enumerate(TEXTS):
        (tmp_path / f"{number}.txt").write_text(text)
    devices = ",".join(f"cuda:{number}" for number in range(torch.cuda.device_count()))

    report = ragidx.build(
        tmp_path, tmp_path / "index", model=str(tiny_model("llama")), method="echo", device=devices
    ).report

    assert (report.device, report.n_encoded) == (devices, len(TEXTS))
