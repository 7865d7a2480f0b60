"""Questions and texts that are odd: common or unknown words, very long ones, and one token a million times."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import QueryError
from ragidx.indexer.store.manifest import _with_checksum
from ragidx.pipelines.index import Index
from ragidx.pipelines.vectors import RowWriter


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Three texts and the bundled model."""
    folder = tmp_path_factory.mktemp("three")
    (folder / "mill.txt").write_text("The old mill stands by the river, and it is the oldest of them.")
    (folder / "lake.txt").write_text("A house at a lake.")
    (folder / "bees.txt").write_text("Bees dance.")
    ragidx.build(folder, folder / "index")
    return Index(folder / "index")


def of_texts(path: Path, *texts: str) -> Index:
    """An index of vectors with these texts, that is asked by words alone."""
    with RowWriter(path, len(texts)) as writer:
        writer.add_vectors(range(len(texts)), np.eye(len(texts)), texts)
        writer.commit()
    return Index(path)


@pytest.mark.slow
def test_a_question_of_common_words_has_an_answer(retriever: Index) -> None:
    hits = retriever.search("the of and it is", mode="lexical")

    assert [hit.doc_id for hit in hits] == ["mill.txt"]
    assert len(retriever.search("the of and it is")) == 3


def test_a_question_of_unknown_words_is_answered_by_its_vector(retriever: Index) -> None:
    hits = retriever.search("zebras giraffes")

    assert [hit.doc_id for hit in hits] == [hit.doc_id for hit in retriever.search("zebras giraffes", mode="dense")]
    assert [hit.bm25 for hit in hits] == [None] * 3
    assert retriever.search("zebras giraffes", mode="lexical") == []


@pytest.mark.parametrize("question", ["...", "+", '"', "🦓"])
def test_a_question_without_a_word_has_no_lexical_hit(question: str, retriever: Index) -> None:
    assert retriever.search(question, mode="lexical") == []
    assert len(retriever.search(question, fusion="rrf")) == (0 if question == "🦓" else 3)  # which mini does not know


def test_a_question_is_no_query_language(retriever: Index) -> None:
    plain = retriever.search("old mill", mode="lexical")

    for question in ('"old mill"', "+old -mill", "old AND mill", "text:old^3 mill~"):
        hits = retriever.search(question, mode="lexical")
        assert hits[0].doc_id == plain[0].doc_id == "mill.txt"
    assert retriever.search("-bees", mode="lexical")[0].doc_id == "bees.txt"


@pytest.mark.parametrize(
    ("question", "message"),
    [("", "the query is empty\n  hint: write a question"), (" \n", "is empty"), ("\ud800", "not Unicode text")],
)
def test_what_is_no_question_is_refused_in_every_mode(question: str, message: str, retriever: Index) -> None:
    for mode in ("dense", "lexical", "hybrid"):
        with pytest.raises(QueryError, match=message):
            retriever.search(question, mode=mode)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_question_of_three_megabytes_is_answered(tmp_path: Path) -> None:
    question = " ".join(f"w{n}" for n in range(100_000))
    question = f"{question} " * (3_000_000 // len(question) + 1) + "mill"
    assert len(question) > 3_000_000
    retriever = of_texts(tmp_path / "index", "The old mill.", "A house.")

    hits = retriever.search(question)

    assert [(hit.chunk_id, math.isfinite(hit.score)) for hit in hits] == [("0", True)]


@pytest.mark.slow
def test_a_long_question_is_answered_by_both_parts(retriever: Index) -> None:
    hits = retriever.search("bees " * 200_000)

    assert hits[0].doc_id == "bees.txt"
    assert all(math.isfinite(hit.score) for hit in hits)


@pytest.mark.slow
def test_a_token_a_million_times_in_a_text_counts_as_saturated(tmp_path: Path) -> None:
    retriever = of_texts(tmp_path / "index", "mill " * 1_000_000, "mill", "A house by the lake.", "Bees dance.")

    hits = retriever.search("mill")

    idf = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    mean = (1_000_000 + 1 + 5 + 2) / 4
    expected = {str(row): idf * tf / (tf + 1.2 * (0.25 + 0.75 * tf / mean)) for row, tf in enumerate((1_000_000, 1))}
    assert {hit.chunk_id: hit.score for hit in hits} == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_a_term_of_a_hundred_kilobytes_is_found_by_its_beginning(tmp_path: Path) -> None:
    long = "x" * 100_000
    retriever = of_texts(tmp_path / "index", f"{long} mill", "x lake", f"{'x' * 254}y")

    assert [hit.chunk_id for hit in retriever.search(long)] == ["0"]
    assert [hit.chunk_id for hit in retriever.search("x" * 255)] == ["0"]
    assert [hit.chunk_id for hit in retriever.search("x")] == ["1"]
    assert [hit.chunk_id for hit in retriever.search("mill")] == ["0"]


def test_compatible_forms_of_letters_are_one_word(tmp_path: Path) -> None:
    retriever = of_texts(tmp_path / "index", "Ｍｕ\u0308ｈｌｅ ﬁne STRASSE", "lake")

    for question in ("mühle", "MÜHLE", "fine", "Straße", "mu\u0308hle"):
        assert [hit.chunk_id for hit in retriever.search(question)] == ["0"], question


def test_an_odd_note_of_an_index_says_nothing_about_its_model(tmp_path: Path) -> None:
    index = ragidx.Index.create(tmp_path / "index")
    index.add([ragidx.Document("a", "a river")])
    index.close()
    manifest = json.loads((tmp_path / "index" / "manifest.json").read_text())
    manifest["notes"]["endpoint"] = ["x"]  # where a model's server is, if anywhere
    del manifest["checksum"]
    (tmp_path / "index" / "manifest.json").write_bytes(_with_checksum(manifest))

    with Index(tmp_path / "index") as opened:
        assert [hit.doc_id for hit in opened.search("river")] == ["a"]
