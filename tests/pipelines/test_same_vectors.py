"""Every door makes the same vectors of the same texts: build, query, LangChain, sweep, precomputed vectors.

Bit for bit by a static model, within 1e-5 by a network; a stored vector is within one step of float16.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.frameworks.langchain import RagidxEmbeddings
from ragidx.indexer.arrays import Floats
from ragidx.indexer.encoders import Embedder
from ragidx.indexer.filters.filter import make_filter
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import FilterSpec
from ragidx.indexer.store import Store
from ragidx.pipelines.experiments.evaluate.sources.corpus import CorpusSource
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.ingest.resolve import resolve_against
from ragidx.pipelines.vectors import build_vectors

from ..conftest import SENTENCES

WORDS = [word for sentence in SENTENCES for word in sentence.split()]
KINDS = ["static", "decoder", pytest.param("sentence-transformers", marks=pytest.mark.slow)]


def _texts(seed: int) -> list[str]:
    """Texts of 1 to 20 words, one of them twice."""
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(WORDS, draw.integers(1, 20))) for _ in range(12)]
    return [*texts, texts[3]]


@pytest.fixture(params=KINDS)
def options(
    request: pytest.FixtureRequest, tiny_model: Callable[..., Path], tiny_sentence_transformer: Path
) -> dict[str, Any]:
    """Of a model whose vectors are filtered: mini-decoder, two layers of a llama, a BERT."""
    if request.param == "static":
        return {"model": "mini-decoder", "device": "cpu", "filter": FilterSpec("embedfilter", dim=100, offset=1)}
    if request.param == "decoder":
        model = {"model": str(tiny_model("llama")), "method": "echo", "device": "cpu"}
        return model | {"filter": FilterSpec("embedfilter", dim=16, offset=3)}
    return {"model": str(tiny_sentence_transformer), "device": "cpu", "filter": FilterSpec("truncation", dim=16)}


@pytest.fixture
def same(options: dict[str, Any]) -> Callable[[Any, Floats], None]:
    """`same(vectors, others)`, as the model allows."""
    tolerance = 0 if options["model"] == "mini-decoder" else 1e-5

    def check(vectors: Any, others: Floats) -> None:
        np.testing.assert_allclose(np.asarray(vectors, "f4"), others, rtol=0, atol=tolerance)

    return check


@pytest.fixture
def embedder(options: dict[str, Any]) -> Embedder:
    """What all doors are compared with."""
    encoder = ragidx.load_encoder(**_without_filter(options))
    return Embedder(encoder, make_filter(options["filter"], encoder))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_every_door_makes_the_same_vectors(
    tmp_path: Path, options: dict[str, Any], embedder: Embedder, same: Callable[[Any, Floats], None], seed: int
) -> None:
    texts = _texts(seed)
    documents, queries = embedder.embed_document(texts), embedder.embed_query(texts)
    corpus = _write(tmp_path / "corpus.jsonl", texts)
    ragidx.build(corpus, tmp_path / "built", chunks=ragidx.ChunkSpec(size=None), **options)
    retriever = ragidx.Index(tmp_path / "built", device="cpu")
    framework = RagidxEmbeddings(**options)
    given = _write_vectors(tmp_path / "v.parquet", texts, framework.embed_documents(texts))
    build_vectors(given, tmp_path / "given", **options)

    same(framework.embed_documents(texts), documents)
    same(retriever.searcher.embedder.embed_document(texts), documents)
    same([framework.embed_query(text) for text in texts], queries)
    same(retriever.searcher.encode(texts), queries)
    same(np.concatenate([retriever.searcher.encode([text]) for text in texts]), queries)
    same(ragidx.Index(tmp_path / "given", device="cpu").searcher.encode(texts), queries)
    for index in ("built", "given"):
        stored = _stored(tmp_path / index)
        assert (np.abs(stored - documents) <= np.spacing(np.abs(documents).astype("f2"))).all()


@pytest.mark.slow
def test_a_sweep_makes_the_raw_vectors_of_the_others(
    tmp_path: Path, options: dict[str, Any], embedder: Embedder, same: Callable[[Any, Floats], None]
) -> None:
    texts = _texts(2)
    encoder, project = embedder.encoder, embedder.filter
    own = _without_filter(options) | {"chunks": ragidx.ChunkSpec(size=None)}
    folder = tmp_path / "work"
    folder.mkdir()

    resolved = resolve_against(build_options("sweep", filter="none", **own))
    with RawVectors(resolved, None) as vectors:
        source = CorpusSource(_write(tmp_path / "corpus.jsonl", texts), folder, vectors, fitted=None)

        rows = source.rows(np.arange(len(texts)))
        same(rows, encoder.encode_document(texts))
        same(source.encode(texts), encoder.encode_query(texts))
    assert project is not None
    # A product of many rows at once rounds otherwise than that of one.
    np.testing.assert_allclose(l2_normalize(project(rows)).vectors, embedder.embed_document(texts), rtol=0, atol=1e-5)


def _without_filter(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "filter"}


def _write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"id": f"d{n:02}", "text": text}) + "\n" for n, text in enumerate(texts)))
    return path


def _write_vectors(path: Path, texts: list[str], vectors: list[list[float]]) -> Path:
    pq.write_table(pa.table({"id": [f"d{n:02}" for n in range(len(texts))], "vector": vectors, "text": texts}), path)
    return path


def _stored(index: Path) -> Floats:
    """All vectors, by document id."""
    store = Store.open(index)
    (segment,) = store.segments
    order = np.argsort(segment.columns(["doc_id"]).column(0).to_pylist())
    return np.asarray(segment.vectors(np.arange(segment.entry.rows)), np.float32)[order]
