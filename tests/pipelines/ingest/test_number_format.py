"""The number format of a CPU: an index, its journal and the user's cache keep it, and a named one goes before them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.indexer.encoders import precision
from ragidx.indexer.store import Store
from ragidx.pipelines.ingest.report import Progress

pytestmark = pytest.mark.slow


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    lines = [json.dumps({"id": f"d{n}", "text": f"Document {n} is about item {n * 7}."}) for n in range(300)]
    (folder / "many.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """`measures(name, cache)`: which format is fastest from now on, for a user with this cache."""

    def choose(name: str, cache: str) -> None:
        def fastest(model: Any, forward: Any) -> str:
            precision.use_format(model, name)
            return name

        monkeypatch.setattr(precision, "fastest_format", fastest)
        monkeypatch.setenv("RAGIDX_CACHE", str(tmp_path / cache))

    return choose


def test_later_builds_compute_as_the_first_one_did(
    corpus: Path, tmp_path: Path, tiny_model: Callable[..., Path], measures: Callable[[str, str], None]
) -> None:
    model = str(tiny_model("llama"))
    options: dict[str, Any] = {"model": model, "method": "classical", "device": "cpu", "filter": "none"}
    index = tmp_path / "index"
    measures("mixed", "ada")
    first = ragidx.build(corpus, index, **options).report
    measures("float32", "bob")
    (corpus / "new.txt").write_text("A new text.\n")

    later = ragidx.build(corpus, index).report
    (corpus / "new.txt").unlink()
    deleted = ragidx.build(corpus, index).report
    (corpus / "more.txt").write_text("One more.\n")
    named = ragidx.build(corpus, index, dtype="float32").report
    elsewhere = ragidx.build(corpus, tmp_path / "other", **options).report
    measures("float32", "ada")
    remembered = ragidx.build(corpus, tmp_path / "third", **options).report

    assert (first.dtype, later.dtype, named.dtype) == ("mixed", "mixed", "float32")
    assert deleted.n_encoded == 0
    assert (elsewhere.dtype, remembered.dtype) == ("float32", "mixed")


def test_a_build_that_was_interrupted_goes_on_in_its_format(
    corpus: Path,
    tmp_path: Path,
    tiny_model: Callable[..., Path],
    measures: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ragidx.pipelines.ingest.report._TELL_EVERY_S", 0.0)  # it is stopped after its first batch
    model = str(tiny_model("llama"))
    options: dict[str, Any] = {"model": model, "method": "classical", "device": "cpu", "filter": "none"}

    def stop(progress: Progress) -> None:
        if progress.n_chunks:
            raise KeyboardInterrupt

    measures("mixed", "ada")
    with pytest.raises(KeyboardInterrupt):
        ragidx.build(corpus, tmp_path / "index", on_progress=stop, **options)
    measures("float32", "bob")

    report = ragidx.build(corpus, tmp_path / "index", **options).report

    assert report.dtype == "mixed"
    assert Store.open(tmp_path / "index").manifest.notes["dtype"] == "mixed"
    assert not list((tmp_path / "index").glob("journal/*"))
