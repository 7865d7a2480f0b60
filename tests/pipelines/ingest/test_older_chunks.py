"""The chunker of an index is a note in its spec: `rebuild` brings it up to date, the fingerprint does not know it."""

from __future__ import annotations

from pathlib import Path

import pytest

import ragidx
import ragidx.pipelines.ingest.build  # before a patch could get into it
from ragidx.corpora.spec import CHUNKER, ChunkSpec
from ragidx.indexer.store.store import Store


def _chunkers(index: Path) -> tuple[object, str]:
    manifest = Store.open(index).manifest
    return manifest.spec["chunk"].get("chunker", ""), manifest.fingerprint


@pytest.mark.slow
def test_a_rebuild_notes_the_chunker_and_the_fingerprint_stays(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "ragidx-index"
    with monkeypatch.context() as patched:
        patched.setattr("ragidx.pipelines.ingest.resolve.CHUNKER", "")
        ragidx.build(small_corpus, index)
    begun, fingerprint = _chunkers(index)

    ragidx.build(small_corpus, index, rebuild=True)

    assert begun == ""
    assert _chunkers(index) == (CHUNKER, fingerprint)


def test_a_spec_without_a_chunker_is_that_of_version_0_1_with_the_same_fingerprint() -> None:
    old = ChunkSpec.from_json({"size": 64, "overlap": 8, "headings": True})

    assert old == ChunkSpec(size=64, overlap=8, headings=True, chunker="")
    assert old.fingerprint() == ChunkSpec(size=64, overlap=8, headings=True, chunker=CHUNKER).fingerprint()
