"""Filters that are fitted on the vectors of a server, which are a little different each time it is asked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import BusyError, ModelError
from ragidx.indexer.encoders.endpoint import CANARY
from ragidx.indexer.store import Store
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.verify import verify

from ...embedding_server import EmbeddingServer, Handler, changed, status, vectors

N, SAMPLE = 600, 200


def unsteady(handler: Handler, texts: list[str]) -> None:
    """Vectors with a noise, as of a GPU that is given another batch."""
    rng = np.random.default_rng(handler.server.times and len(handler.server.times))

    def noisy(rows: list[dict[str, Any]]) -> dict[str, Any]:
        for row in rows:
            row["embedding"] = (np.asarray(row["embedding"]) * (1 + 1e-4 * rng.standard_normal(16))).tolist()
        return rows

    changed(noisy)(handler, texts)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "many.jsonl"
    lines = [json.dumps({"id": f"d{n}", "text": f"Document {n} is about item{n} and item{n * 7}."}) for n in range(N)]
    path.write_text("\n".join(lines) + "\n")
    return path


def build(server: EmbeddingServer, corpus: Path, index: Path, **options: Any) -> Any:
    asked = {"model": "openai:m", "endpoint": server.url, "filter": ragidx.FilterSpec("pca", dim=8, sample=SAMPLE)}
    return ragidx.build(corpus, index, **asked | options).report


def journals(index: Path) -> list[Path]:
    return sorted((index / "journal").glob("*.bin"))


@pytest.mark.slow
@pytest.mark.parametrize("n_answered", [3, 8, 12])  # within the sample, and behind it
def test_a_failed_build_asks_for_no_text_twice(
    server: EmbeddingServer, corpus: Path, tmp_path: Path, n_answered: int
) -> None:
    server.always = unsteady
    server.replies.extend([unsteady] * n_answered + [status(404)])
    with pytest.raises(ModelError, match="status 404"):
        build(server, corpus, tmp_path / "index")
    n_failed = len(server.messages[n_answered]["input"])

    report = build(server, corpus, tmp_path / "index")

    asked = Counter(server.asked)
    del asked[CANARY]
    assert sum(asked.values()) <= N + n_failed
    assert len(asked) == N
    assert report.n_chunks == N
    assert journals(tmp_path / "index") == []
    assert verify(tmp_path / "index") == []


def test_a_sample_of_another_model_is_not_gone_on_with(server: EmbeddingServer, corpus: Path, tmp_path: Path) -> None:
    server.replies.extend([unsteady] * 3 + [status(404)])
    with pytest.raises(ModelError):
        build(server, corpus, tmp_path / "index")
    server.seed = 1

    with pytest.raises(ModelError, match="is not the one of the build that was interrupted: a fixed text has a vector"):
        build(server, corpus, tmp_path / "index")


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e6, 1e-7])
def test_numbers_that_float16_cannot_hold_are_fitted_as_they_are(
    server: EmbeddingServer, corpus: Path, tmp_path: Path, scale: float
) -> None:
    def scaled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row | {"embedding": (scale * np.asarray(row["embedding"])).tolist()} for row in rows]

    build(server, corpus, tmp_path / "usual")
    server.always = changed(scaled)
    build(server, corpus, tmp_path / "scaled")

    usual, other = (
        np.asarray(Store.open(tmp_path / name).segments[0].vectors(np.arange(N)), np.float32)
        for name in ("usual", "scaled")
    )
    np.testing.assert_allclose(other @ other.T, usual @ usual.T, atol=0.01)


def test_while_another_process_writes_a_build_is_refused(server: EmbeddingServer, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    lock = Lock(tmp_path / "index")
    try:
        with pytest.raises(BusyError):
            build(server, corpus, tmp_path / "index")
    finally:
        lock.release()

    assert server.asked in ([], [CANARY])


@pytest.mark.slow
@pytest.mark.parametrize(("n_good", "options"), [(8, {"filter": "none"}), (3, {}), (12, {})])
def test_a_model_that_changes_during_a_build_is_noticed(
    server: EmbeddingServer,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    n_good: int,
    options: dict[str, Any],
) -> None:
    monkeypatch.setattr("ragidx.pipelines.ingest.endpoint.CHECK_EVERY", 3)

    def other(handler: Handler, texts: list[str]) -> None:
        server.seed = 1
        vectors(handler, texts)

    server.replies.extend([*[vectors] * n_good, other])
    with pytest.raises(
        ModelError, match="'openai:m' changed while it was asked: a fixed text has a vector with a cosine"
    ):
        build(server, corpus, tmp_path / "index", **options)
    n_kept = sum(path.stat().st_size > 200 for path in journals(tmp_path / "index"))
    server.seed = 0

    report = build(server, corpus, tmp_path / "index", **options)
    build(server, corpus, tmp_path / "whole", **options)

    assert n_kept == (n_good > 3)
    assert report.n_encoded <= N - 32 * (n_good > 3)  # what was made before the last good canary is not asked again
    found, whole = (Store.open(tmp_path / name).segments[0] for name in ("index", "whole"))
    rows = np.arange(N)
    np.testing.assert_allclose(found.vectors(rows), whole.vectors(rows), atol=1e-3)
