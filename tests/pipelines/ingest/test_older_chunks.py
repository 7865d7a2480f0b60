"""An index that another chunker cut goes on: what did not change keeps its chunks, and the report counts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ragidx
import ragidx.pipelines.ingest.build  # before a patch could get into it
from ragidx.corpora.spec import CHUNKER, ChunkSpec
from ragidx.indexer.store.store import Store

from ..conftest import Done

NOTE = "Cut by an older version: {}; --rebuild cuts anew.\n"


@pytest.fixture
def older(small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index as version 0.1 made it: its spec names no chunker, and neither do the hashes of its documents."""
    with monkeypatch.context() as patched:
        patched.setattr("ragidx.pipelines.ingest.resolve.CHUNKER", "")
        patched.setattr("ragidx.pipelines.ingest.corpus.CUT_HERE", b"\1\2\3\4")
        ragidx.build(small_corpus, tmp_path / "ragidx-index")
    return tmp_path / "ragidx-index"


def _chunkers(index: Path) -> tuple[object, str]:
    manifest = Store.open(index).manifest
    return manifest.spec["chunk"].get("chunker", ""), manifest.fingerprint


@pytest.mark.slow
def test_documents_that_did_not_change_keep_the_chunks_of_an_older_version(small_corpus: Path, older: Path) -> None:
    (small_corpus / "lease.txt").write_text("The lease was never signed.")
    (small_corpus / "new.txt").write_text("A document that the older version has not seen.")

    changed = ragidx.build(small_corpus, older)
    again = ragidx.build(small_corpus, older)
    reread = ragidx.build(small_corpus, older, reread=True)

    assert (changed.n_encoded, changed.n_unchanged, changed.n_changed, changed.n_added) == (2, 5, 1, 1)
    assert (changed.n_cut_before, again.n_cut_before, reread.n_cut_before) == (5, 5, 5)
    assert (again.committed, reread.committed, reread.n_unchanged) == (False, False, 7)


@pytest.mark.slow
def test_a_rebuild_cuts_all_documents_anew_and_the_fingerprint_stays(small_corpus: Path, older: Path) -> None:
    begun, fingerprint = _chunkers(older)

    rebuilt = ragidx.build(small_corpus, older, rebuild=True)

    assert (begun, rebuilt.n_cut_before) == ("", 0)
    assert _chunkers(older) == (CHUNKER, fingerprint)


@pytest.mark.slow
def test_the_report_says_how_many_documents_an_older_version_cut(run: Callable[..., Done], older: Path) -> None:
    assert run("build", "corpus").err == NOTE.format("6 documents")
    assert run("build", "corpus", "--rebuild").err == ""


def test_a_spec_without_a_chunker_is_that_of_version_0_1_with_the_same_fingerprint() -> None:
    old = ChunkSpec.from_json({"size": 64, "overlap": 8, "headings": True})

    assert old == ChunkSpec(size=64, overlap=8, headings=True, chunker="")
    assert old.fingerprint() == ChunkSpec(size=64, overlap=8, headings=True, chunker=CHUNKER).fingerprint()
