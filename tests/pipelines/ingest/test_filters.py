"""Builds with every filter; those that are fitted on the corpus are fitted once, stored, and used ever after."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.specs import FILTERS, FilterSpec, IndexSpec
from ragidx.indexer.store import Store
from ragidx.pipelines.ingest.report import Progress
from ragidx.retriever.models import FILTER_FILE

from ...indexer.states import live_vectors
from .conftest import FITTED, WORDS

pytestmark = pytest.mark.slow


def _filter(index: Path) -> Filter:
    return Filter.from_bytes(Store.open(index).blob(FILTER_FILE))


def _journals(index: Path) -> list[Path]:
    return sorted((index / "journal").glob("*"))


# every filter


@pytest.mark.parametrize("name", [name for name in FILTERS if name != "none"])
def test_an_index_of_any_filter_answers(name: str, corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    report = ragidx.build(corpus, tmp_path / "index", **tiny, filter=FilterSpec(name, dim=12)).report

    text = json.loads(corpus.read_text().splitlines()[7])["text"]
    hit = ragidx.Index(tmp_path / "index").search(text, k=1, mode="dense")[0]
    assert (report.n_chunks, report.n_encoded, report.n_chunks_reused, report.dim) == (60, 60, 0, 12)
    assert report.n_fitted == (60 if name in FITTED else 0)
    assert Store.open(tmp_path / "index").manifest.dim == 12
    assert (hit.doc_id, hit.text) == ("corpus.jsonl#r7", text)
    assert hit.score == pytest.approx(1, abs=1e-3)
    assert report.filter == FilterSpec(name=name, dim=12)


def test_no_filter_stores_no_matrix(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    report = ragidx.build(corpus, tmp_path / "index", **tiny, filter="none").report

    assert (report.dim, report.n_fitted) == (32, 0)
    assert FILTER_FILE not in Store.open(tmp_path / "index").manifest.files


@pytest.mark.parametrize("name", ["truncation", "bulk", "optimal", "whitening", "pca"])
def test_what_is_stored_is_the_embedding_through_the_stored_filter(
    name: str, corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter=FilterSpec(name, dim=12))

    stored, retriever = live_vectors(tmp_path / "index"), ragidx.Index(tmp_path / "index")
    texts = {row["id"]: row["text"] for row in map(json.loads, corpus.read_text().splitlines())}
    raw = retriever.searcher.encoder.encode_document([texts[key.partition("#")[2].partition(":")[0]] for key in stored])
    vectors = _filter(tmp_path / "index")(raw)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(list(stored.values())), vectors, atol=2e-3)


def test_the_fit_is_that_of_the_embeddings_of_the_corpus(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter=FilterSpec("whitening", dim=20))

    encoder = ragidx.Index(tmp_path / "index").searcher.encoder
    raw = encoder.encode_document([json.loads(line)["text"] for line in corpus.read_text().splitlines()])
    whitened = _filter(tmp_path / "index")(raw)
    np.testing.assert_allclose(whitened.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(whitened.T, bias=True), np.eye(20), atol=1e-2)


# the sample


def test_the_fit_does_not_depend_on_the_order_of_the_corpus(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    options = {**tiny, "filter": FilterSpec("pca", dim=8, sample=25)}
    first = ragidx.build(corpus, tmp_path / "one", **options).report
    corpus.write_text("".join(sorted(corpus.read_text().splitlines(keepends=True), key=lambda line: line[::-1])))

    second = ragidx.build(corpus, tmp_path / "other", **options).report

    assert (first.n_fitted, second.n_fitted) == (25, 25)
    assert _filter(tmp_path / "one").to_bytes() == _filter(tmp_path / "other").to_bytes()


@pytest.mark.parametrize("change", [{"seed": 1}, {"sample": 26}])
def test_another_sample_is_another_fit(
    change: dict[str, Any], corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    asked = {"dim": 8, "sample": 25}
    ragidx.build(corpus, tmp_path / "one", **tiny, filter=FilterSpec("pca", **asked))

    ragidx.build(corpus, tmp_path / "other", **tiny, filter=FilterSpec("pca", **(asked | change)))

    assert _filter(tmp_path / "one").to_bytes() != _filter(tmp_path / "other").to_bytes()


def test_the_sample_holds_chunks_as_the_build_cuts_them(tmp_path: Path, tiny: dict[str, Any]) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for word in WORDS[:4]:
        (folder / f"{word}.txt").write_text("\n\n".join(f"Paragraph {n} of the {word}, {'so ' * n}." for n in range(8)))

    cut = ragidx.build(
        folder, tmp_path / "cut", **tiny, filter=FilterSpec("pca", dim=3), chunks=ragidx.ChunkSpec(size=16)
    ).report
    whole = ragidx.build(
        folder, tmp_path / "whole", **tiny, filter=FilterSpec("pca", dim=3), chunks=ragidx.ChunkSpec(size=None)
    ).report

    assert cut.n_fitted == cut.n_chunks > 20
    assert (whole.n_fitted, whole.n_chunks) == (4, 4)


def test_equal_texts_count_in_the_sample_and_are_encoded_once(tmp_path: Path, tiny: dict[str, Any]) -> None:
    rows = [{"id": n, "text": f"Said {n % 5} times."} for n in range(20)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    report = ragidx.build(tmp_path / "corpus.jsonl", tmp_path / "index", **tiny, filter=FilterSpec("pca", dim=3)).report

    assert (report.n_fitted, report.n_chunks, report.n_encoded, report.n_chunks_reused) == (20, 20, 5, 15)


# later builds


@pytest.mark.parametrize("name", FITTED)
def test_later_builds_go_on_with_the_first_fit(name: str, corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter=FilterSpec(name, dim=9))
    before, old = _filter(tmp_path / "index").to_bytes(), live_vectors(tmp_path / "index")
    with corpus.open("a") as stream:
        stream.writelines(json.dumps({"id": f"new{n}", "text": f"Quite another text {n}"}) + "\n" for n in range(30))

    report = ragidx.build(corpus, tmp_path / "index", device="cpu", dtype="float32").report
    again = ragidx.build(corpus, tmp_path / "index", filter=FilterSpec(name, dim=9)).report

    assert (report.n_added, report.n_encoded, report.n_fitted, report.dim) == (30, 30, 0, 9)
    assert (again.committed, again.n_fitted, again.n_unchanged) == (False, 0, 90)
    assert _filter(tmp_path / "index").to_bytes() == before
    assert all(
        np.array_equal(vector, old[key]) for key, vector in live_vectors(tmp_path / "index").items() if key in old
    )


def test_a_rebuild_fits_anew(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter=FilterSpec("pca", dim=9))
    before = _filter(tmp_path / "index").to_bytes()
    corpus.write_text("".join(corpus.read_text().splitlines(keepends=True)[:40]))

    report = ragidx.build(corpus, tmp_path / "index", **tiny, filter=FilterSpec("pca", dim=9), rebuild=True).report

    assert (report.n_fitted, report.n_chunks) == (40, 40)
    assert _filter(tmp_path / "index").to_bytes() != before


def test_another_sample_for_an_index_is_an_error(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(corpus, tmp_path / "index", **tiny, filter=FilterSpec("pca", dim=9))

    with pytest.raises(SpecError, match=r"`filter.seed` is 0 in the index, 5 now"):
        ragidx.build(corpus, tmp_path / "index", filter=FilterSpec("pca", dim=9, seed=5))


# a build that is killed


class KilledError(Exception):
    """Ends a build in the middle."""


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`kill(corpus, index, options, at=45)`: a build that ends when so many chunks are done; batches are small."""
    monkeypatch.setattr("ragidx.pipelines.ingest.report._TELL_EVERY_S", 0.0)
    monkeypatch.setattr("ragidx.indexer.encoders.batching.CPU_BUDGET", 256)

    def run(corpus: Path, index: Path, options: dict[str, Any], at: int) -> None:
        def end(progress: Progress) -> None:
            if progress.n_chunks >= at:
                raise KilledError

        with pytest.raises(KilledError):
            ragidx.build(corpus, index, **options, on_progress=end)

    return run


def test_a_build_that_was_killed_fits_the_same_filter_and_goes_on(
    corpus: Path, tmp_path: Path, tiny: dict[str, Any], kill: Callable[..., None]
) -> None:
    options = {**tiny, "filter": FilterSpec("whitening", dim=9, sample=20)}
    kill(corpus, tmp_path / "index", options, at=45)
    assert len(_journals(tmp_path / "index")) == 1

    report = ragidx.build(corpus, tmp_path / "index", **options).report

    assert report.n_chunks_reused >= 25  # of those that are not in the sample
    ragidx.build(corpus, tmp_path / "whole", **options)
    ours, theirs = live_vectors(tmp_path / "index"), live_vectors(tmp_path / "whole")
    assert ours.keys() == theirs.keys()
    for key, vector in ours.items():
        np.testing.assert_allclose(vector, theirs[key], atol=2e-3)


def test_vectors_of_another_fit_are_never_taken_from_the_journal(
    corpus: Path, tmp_path: Path, tiny: dict[str, Any], kill: Callable[..., None]
) -> None:
    options = {**tiny, "filter": FilterSpec("whitening", dim=9)}
    kill(corpus, tmp_path / "index", options, at=45)
    corpus.write_text("".join(corpus.read_text().splitlines(keepends=True)[:50]))

    report = ragidx.build(corpus, tmp_path / "index", **options).report

    assert (report.n_chunks_reused, report.n_encoded) == (0, 50)
    ragidx.build(corpus, tmp_path / "whole", **options)
    for key, vector in live_vectors(tmp_path / "index").items():
        np.testing.assert_allclose(vector, live_vectors(tmp_path / "whole")[key], atol=2e-3)


def test_the_fingerprint_holds_the_fit_of_fitted_filters_alone(
    corpus: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    for name in ("pca", "bulk"):
        ragidx.build(corpus, tmp_path / name, **tiny, filter=FilterSpec(name, dim=9))

    for name in ("pca", "bulk"):
        manifest = Store.open(tmp_path / name).manifest
        of_the_spec = IndexSpec.from_json(dict(manifest.spec)).fingerprint()
        content = hashlib.sha256(Store.open(tmp_path / name).blob(FILTER_FILE)).hexdigest()
        with_fit = hashlib.sha256(f"{of_the_spec}\0{content}".encode()).hexdigest()
        assert manifest.fingerprint == (with_fit if name == "pca" else of_the_spec)
