"""What a build makes of an index that documents were deleted from: those that are still in the corpus come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.pipelines.maintain.delete import delete

from .conftest import INDEX, documents, vectors

Run = Callable[..., Any]


def _bytes() -> dict[str, bytes]:
    return {name: vector.tobytes() for name, vector in vectors(INDEX).items()}


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_the_next_build_brings_back_what_still_stands_in_the_corpus() -> None:
    delete(ids=["lease.txt"])

    report = ragidx.build("corpus", "ragidx-index")

    assert (report.n_added, report.n_unchanged) == (1, 5)
    assert len(documents()) == 6


@pytest.mark.usefixtures("index")
def test_what_comes_back_keeps_its_vector_bit_for_bit_and_nothing_is_encoded() -> None:
    before = _bytes()
    delete(ids=["lease.txt", "mill.md"])

    report = ragidx.build("corpus", "ragidx-index")

    assert (report.n_added, report.n_encoded, report.n_reused) == (2, 0, 2)
    assert _bytes() == before


@pytest.mark.usefixtures("index")
def test_the_report_says_what_is_still_in_the_corpus_and_how_it_stays_away(run: Run) -> None:
    Path("corpus/mill.md").unlink()

    done = run("delete", "--id", "lease.txt", "--id", "mill.md")

    assert (done.status, done.err) == (
        0,
        "Still in the corpus: 1 document. The next `ragidx build` brings it back, unless --exclude leaves the file "
        "out.\n",
    )
    assert run("build", "corpus", "--exclude", "lease.txt").status == 0
    assert "lease.txt" not in documents()


@pytest.mark.usefixtures("index")
def test_records_are_still_in_the_corpus_while_their_file_is() -> None:
    assert delete(ids=["facts.jsonl#bees"]).n_in_corpus == 1

    Path("corpus").rename("elsewhere")

    assert delete(ids=["facts.jsonl#neptune"]).n_in_corpus == 0


@pytest.mark.slow
def test_of_a_corpus_that_is_one_file_or_of_beir_every_document_is_still_there(folder: Path) -> None:
    (folder / "beir" / "qrels").mkdir(parents=True)
    lines = '{"_id": "a", "text": "One."}\n{"_id": "b", "text": "Two."}\n'
    (folder / "beir" / "corpus.jsonl").write_text(lines)

    for corpus, one in (("beir", "a"), ("beir/corpus.jsonl", "corpus.jsonl#a")):
        ragidx.build(corpus, "ragidx-index", rebuild=True)
        assert delete(ids=[one]).n_in_corpus == 1
