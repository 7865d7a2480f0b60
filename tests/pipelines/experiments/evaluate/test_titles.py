"""Titles in front of chunks: a build, and what is measured, encode and index the same texts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.pipelines.experiments.evaluate.sources.corpus import CorpusSource
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors
from ragidx.pipelines.experiments.evaluate.sources.source import IndexSource, VectorSource
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.ingest.resolve import resolve_against

SHORT = ragidx.ChunkSpec(size=16)
HEADINGS = {*(f"Of wood {n}" for n in range(4)), "Mills", "Mills > Water"}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    texts = [f"A {one} lives in the old wood, and it sleeps by day." for one in ("bee", "owl", "fox", "elk")]
    records = [{"id": f"r{n}", "title": f"Of wood {n}", "text": text} for n, text in enumerate(texts)]
    (folder / "records.jsonl").write_text("\n".join(map(json.dumps, records)))
    guide = "# Mills\n\nA mill stands here, and the miller sleeps.\n\n## Water\n\nIt turns a wheel.\n"
    (folder / "guide.md").write_text(guide)
    return folder


def check_that_equal_chunks_change_nothing(source: VectorSource) -> None:
    everything, chunks = np.arange(source.n_rows), list(source.chunks())
    before = source.rows(everything)

    source.change({chunk.id: chunk for chunk in chunks})

    assert {chunk.heading for chunk in chunks} == HEADINGS
    np.testing.assert_allclose(source.rows(everything), before, atol=1e-3)


def test_a_changed_chunk_of_an_index_is_encoded_as_the_build_did_it(corpus: Path, tmp_path: Path) -> None:
    ragidx.build(corpus, tmp_path / "index", chunks=SHORT)

    check_that_equal_chunks_change_nothing(IndexSource(tmp_path / "index", {}))


def test_a_changed_chunk_of_a_corpus_is_encoded_as_the_others_were(corpus: Path, tmp_path: Path) -> None:
    resolved = resolve_against(build_options("evaluate", filter="none", chunks=SHORT))
    with RawVectors(resolved, None) as vectors:
        check_that_equal_chunks_change_nothing(CorpusSource(corpus, tmp_path, vectors, fitted=None))


def test_what_is_measured_of_a_corpus_is_what_a_build_makes_of_it(corpus: Path, tmp_path: Path) -> None:
    built = ragidx.build(corpus, tmp_path / "index", chunks=SHORT, filter="none")
    resolved = resolve_against(build_options("evaluate", filter="none", chunks=SHORT))

    with RawVectors(resolved, None) as vectors:
        measured = CorpusSource(corpus, tmp_path, vectors, fitted=None)
        raw = measured.rows(np.arange(measured.n_rows))

    chunks = list(measured.chunks())
    assert sorted(measured.texts()) == sorted(f"{one.heading}\n{one.text}" for one in built.chunks())
    stored = built.vectors([chunk.id for chunk in chunks])
    np.testing.assert_allclose(raw / np.linalg.norm(raw, axis=1, keepdims=True), stored, atol=1e-3)
