"""Indexes whose filter takes the means of documents and of questions off."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.encoders.endpoint import CANARY
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.specs import FilterSpec, IndexSpec
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify
from ragidx.retriever.models import FILTER_FILE

from ...embedding_server import EmbeddingServer, status, vectors
from ...indexer.states import live_vectors
from ...raising import message_of

pytestmark = pytest.mark.slow


@pytest.fixture
def tiny(tiny: dict[str, Any]) -> dict[str, Any]:
    """With an instruction, so that a text is another one as a question."""
    return {**tiny, "instruction": "Find what is told of it"}


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _texts(corpus: Path) -> dict[str, str]:
    """By their ids."""
    return {row["id"]: row["text"] for row in map(json.loads, corpus.read_text().splitlines())}


def _filter(index: Path) -> Filter:
    return Filter.from_bytes(Store.open(index).blob(FILTER_FILE))


@pytest.mark.parametrize("spec", [FilterSpec("none", center=True), FilterSpec("embedfilter", dim=12, center=True)])
def test_stored_vectors_and_questions_lose_their_own_means(
    spec: FilterSpec, corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    index = ragidx.build(corpus, tmp_path / "index", **tiny, filter=spec)
    ragidx.build(corpus, tmp_path / "plain", **tiny, filter=FilterSpec(spec.name, dim=spec.dim))

    texts, searcher = _texts(corpus), index.searcher
    matrix = np.eye(32) if spec.name == "none" else _filter(tmp_path / "plain").matrix
    documents = searcher.encoder.encode_document(list(texts.values()))  # each is one sentence, so it stands for a
    questions = searcher.encoder.encode_query(list(texts.values()))  # question, too
    stored = {
        name.partition("#")[2].partition(":")[0]: vector for name, vector in live_vectors(tmp_path / "index").items()
    }
    expected = _unit((documents - documents.mean(axis=0)) @ matrix)
    np.testing.assert_allclose(np.array([stored[name] for name in texts]), expected, atol=2e-3)
    asked = searcher.embedder.embed_query(["Where is the mill?"])
    raw = searcher.encoder.encode_query(["Where is the mill?"])
    np.testing.assert_allclose(asked, _unit((raw - questions.mean(axis=0)) @ matrix), atol=1e-4)


@pytest.mark.parametrize("name", ["whitening", "optimal", "random"])
def test_every_filter_can_be_centred(name: str, corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    report = ragidx.build(corpus, tmp_path / "index", **tiny, filter=FilterSpec(name, dim=9, center=True)).report

    made = _filter(tmp_path / "index")
    assert (report.dim, report.n_fitted) == (9, 60)
    assert made.shift is not None
    assert made.query_shift is not None
    assert not np.allclose(made.shift, made.query_shift, atol=1e-3)
    raw = ragidx.Index(tmp_path / "index").searcher.encoder.encode_document(list(_texts(corpus).values()))
    np.testing.assert_allclose(made(raw).mean(axis=0), 0, atol=1e-3)


def test_later_builds_keep_the_means(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter=FilterSpec(center=True))
    before = _filter(tmp_path / "index").to_bytes()
    with corpus.open("a") as stream:
        stream.writelines(json.dumps({"id": f"new{n}", "text": f"Quite another text {n}"}) + "\n" for n in range(30))

    report = ragidx.build(corpus, tmp_path / "index").report

    assert (report.n_added, report.n_encoded, report.n_fitted) == (30, 30, 0)
    assert report.filter.center
    assert _filter(tmp_path / "index").to_bytes() == before


def test_an_index_is_centred_or_not(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter=FilterSpec(center=True))

    with pytest.raises(SpecError, match=r"`filter.center` is on in the index, off now"):
        ragidx.build(corpus, tmp_path / "index", filter=FilterSpec(center=False))


def test_a_centred_index_says_so(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter=FilterSpec("none", center=True))

    manifest = Store.open(tmp_path / "index").manifest
    assert manifest.requires == ("centred filter",)
    assert manifest.fingerprint != IndexSpec.from_json(dict(manifest.spec)).fingerprint()  # it has the means, too


def test_a_narrower_index_keeps_both_means(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    for name in ("none", "embedfilter"):
        ragidx.build(corpus, tmp_path / name, **tiny, filter=FilterSpec(name, center=True))
        whole = _filter(tmp_path / name)

        ragidx.Index(tmp_path / name).shrink(dim=7)

        made, rows = _filter(tmp_path / name), np.eye(32)
        np.testing.assert_allclose(made(rows), whole(rows)[:, :7], atol=1e-6)
        np.testing.assert_allclose(made.of_queries()(rows), whole.of_queries()(rows)[:, :7], atol=1e-6)
        assert verify(tmp_path / name) == []
        assert ragidx.Index(tmp_path / name).search("the mill", k=1, mode="dense")


def test_standard_input_has_no_mean(tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "one"}\n')))

    spec = FilterSpec(center=True)
    assert message_of(SpecError, lambda: ragidx.build("-", tmp_path / "index", **tiny, filter=spec)) == (
        "`filter`: the mean is fitted on the corpus first, and standard input cannot be read twice\n"
        "  hint: write it to a file and build that, or take another filter"
    )


def test_an_empty_index_has_no_mean(tmp_path: Path, tiny: dict[str, Any]) -> None:
    made = lambda: ragidx.Index.create(tmp_path / "index", **tiny, filter=FilterSpec(center=True))  # noqa: E731

    assert message_of(SpecError, made) == (
        "`filter`: the mean is fitted on a corpus, and there is none yet\n"
        "  hint: take another, or build the index of a folder first"
    )


def test_an_encoder_alone_has_no_mean(tiny: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="the mean is fitted on a corpus, and there is none here"):
        ragidx.load_embedder(tiny["model"], method="classical", filter=FilterSpec(center=True))


def test_a_server_is_asked_for_no_question_twice(server: EmbeddingServer, corpus: Path, tmp_path: Path) -> None:
    def build(name: str) -> None:
        spec = FilterSpec("none", center=True, sample=20)
        ragidx.build(corpus, tmp_path / name, model="openai:m", endpoint=server.url, filter=spec)

    build("whole")
    n_requests, n_asked = len(server.messages), len(server.asked)
    assert Counter(Counter(server.asked).values())[2] == 20  # as documents and as questions
    server.messages.clear()
    server.replies.extend([vectors] * (n_requests - 1) + [status(404)])
    with pytest.raises(ModelError, match="status 404"):
        build("index")
    n_failed = len(server.messages[-1]["input"])

    build("index")

    assert len(server.asked) - server.asked.count(CANARY) <= n_asked + n_failed
    assert _filter(tmp_path / "index").to_bytes() == _filter(tmp_path / "whole").to_bytes()
