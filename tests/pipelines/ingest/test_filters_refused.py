"""Filters that a corpus, an option or a model cannot have: an error that says why, before anything is fitted."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import CorpusError, ModelError, RagidxError, SpecError

from ...raising import message_of
from .conftest import FITTED

pytestmark = pytest.mark.slow


# what cannot be


@pytest.mark.parametrize("name", FITTED)
def test_standard_input_cannot_be_read_twice(
    name: str, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "one"}\n')))

    assert message_of(SpecError, lambda: ragidx.build("-", tmp_path / "index", **tiny, filter=name)) == (
        f"`filter`: filter '{name}' is fitted on the corpus first, and standard input cannot be read twice\n"
        "  hint: write it to a file and build that, or take another filter"
    )
    assert not (tmp_path / "index").exists()


def test_standard_input_goes_into_an_index_whose_filter_is_fitted(
    corpus: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter=ragidx.FilterSpec("pca", dim=9))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "one"}\n')))

    assert ragidx.build("-", tmp_path / "index", allow_removal=True).report.n_added == 1


@pytest.mark.parametrize("name", ["whitening", "pca"])
def test_a_corpus_that_is_too_small_for_the_width_is_refused(
    name: str, small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    with pytest.raises(SpecError, match=f"'{name}' is to keep 16 directions, and the 6 chunks"):
        ragidx.build(small_corpus, tmp_path / "index", **tiny, filter=name)
    assert not (tmp_path / "index").exists()
    assert ragidx.build(small_corpus, tmp_path / "index", **tiny, filter=ragidx.FilterSpec(name, dim=5)).report.dim == 5


@pytest.mark.parametrize("name", FITTED)
def test_a_width_out_of_range_is_told_before_the_corpus_is_read(
    name: str, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    (tmp_path / "corpus").mkdir()

    with pytest.raises(SpecError, match="dim=33 is wider than the model, which has 32"):
        ragidx.build(tmp_path / "corpus", tmp_path / "index", **tiny, filter=ragidx.FilterSpec(name, dim=33))


def test_an_empty_corpus_is_told_as_ever(tmp_path: Path, tiny: dict[str, Any]) -> None:
    (tmp_path / "corpus").mkdir()
    with pytest.raises(CorpusError, match="the corpus is empty: there is no file in it"):
        ragidx.build(tmp_path / "corpus", tmp_path / "index", **tiny, filter="pca")

    (tmp_path / "corpus" / "blob.bin").write_bytes(b"\0\1\2")
    with pytest.raises(CorpusError, match=r"the corpus has no readable document \(1 x binary file"):
        ragidx.build(tmp_path / "corpus", tmp_path / "index", **tiny, filter="pca")


def test_what_is_left_out_is_counted_once(small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    (small_corpus / "blob.bin").write_bytes(b"\0\1\2" * 100)

    report = ragidx.build(small_corpus, tmp_path / "index", **tiny, filter=ragidx.FilterSpec("pca", dim=4)).report

    assert report.skipped == {"binary file of unknown format '.bin'": 1}


def test_strict_ends_a_fit_as_it_ends_a_build(small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    (small_corpus / "broken.jsonl").write_text('{"text": \n')

    with pytest.raises(RagidxError) as fault:
        ragidx.build(small_corpus, tmp_path / "index", **tiny, filter=ragidx.FilterSpec("pca", dim=4), strict=True)

    assert (fault.value.exit_code, fault.value.where) == (1, "broken.jsonl:1")
    assert not (tmp_path / "index").exists()


def test_a_folder_that_is_no_index_is_refused_before_anything_is_fitted(
    small_corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "notes.txt").write_text("mine")
    seen: list[str] = []

    with pytest.raises(RagidxError):
        ragidx.build(
            small_corpus,
            tmp_path / "papers",
            **tiny,
            filter=ragidx.FilterSpec("pca", dim=4),
            on_progress=lambda progress: seen.append(progress.stage),
        )

    assert "fitting filter pca" not in seen


# models without a head


@pytest.mark.parametrize("name", ["truncation", "random", "whitening", "pca"])
def test_a_sentence_transformers_model_takes_filters_that_read_no_head(
    name: str, corpus: Path, tmp_path: Path, tiny_sentence_transformer: Path
) -> None:
    model = str(tiny_sentence_transformer)

    report = ragidx.build(corpus, tmp_path / "index", model=model, filter=ragidx.FilterSpec(name, dim=8)).report

    assert (report.method, report.dim) == ("sentence-transformers", 8)
    assert len(ragidx.Index(tmp_path / "index").search("mill", k=3)) == 3


@pytest.mark.parametrize("name", ["embedfilter", "bulk", "optimal"])
def test_a_sentence_transformers_model_refuses_the_others(
    name: str, corpus: Path, tmp_path: Path, tiny_sentence_transformer: Path
) -> None:
    with pytest.raises(ModelError, match="has no unembedding matrix"):
        ragidx.build(corpus, tmp_path / "index", model=str(tiny_sentence_transformer), filter=name)
