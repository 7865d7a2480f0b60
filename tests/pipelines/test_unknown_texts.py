"""Texts that the model does not know, from files to answers: counted, kept for their words, carried through changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.indexer.encoders.protocol import Encoder
from ragidx.pipelines.doctor.unknown_chunks import unknown_chunks
from ragidx.pipelines.index import Index

from .conftest import Done

Run = Callable[..., Done]

THAI = "ผู้ดูแลประภาคารจุดตะเกียงทุกคืนก่อนที่เรือประมงจะกลับเข้าฝั่ง"
KHMER = "អ្នកថែរក្សាប៉មភ្លើង អុជចង្កៀងរៀងរាល់យប់"
TEXTS = {"mill": "The old mill grinds flour by the river.", "lamp": THAI, "tower": KHMER, "party": "🎉🎉🎊🥳👏🏽"}
NOTE = "Not known to the model: 3 chunks (Thai 1, symbols 1, Khmer 1), found by words alone; `ragidx doctor --index "
WORDS_ALONE = "The model does not know most of the question: only its words count.\n"
NO_VECTOR = "The model does not know most of the question, so nothing can be compared: search hybrid or lexical.\n"


@pytest.fixture
def texts(folder: Path) -> Path:
    """`texts`: an English, a Thai and a Khmer file, and one of emoji."""
    (folder / "texts").mkdir()
    for name, text in TEXTS.items():
        (folder / "texts" / f"{name}.txt").write_text(text, "utf-8")
    return Path("texts")


@pytest.fixture(scope="module")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("built") / "index"
    with Index.create(path) as index:
        index.add([ragidx.Document(name, text) for name, text in TEXTS.items()])
    return path


@pytest.fixture
def index(_built: Path, folder: Path) -> Path:
    """`ragidx-index`, of the same texts."""
    return shutil.copytree(_built, folder / "ragidx-index")


@pytest.mark.slow
def test_a_build_counts_them_once_and_keeps_them(texts: Path, run: Run) -> None:
    first = run("build", str(texts))
    again = run("build", str(texts), "--json")
    (texts / "copy.txt").write_text(THAI, "utf-8")
    third = ragidx.build(texts, "ragidx-index").report

    assert [line for line in first.err.splitlines() if "Not known" in line] == [f"{NOTE}ragidx-index` says more."]
    assert "unknown" not in json.loads(again.out)
    assert third.to_json()["unknown"] == {"Thai": 1}
    assert (third.n_chunks, third.n_encoded, third.n_chunks_reused) == (5, 0, 1)
    assert "no vector    4 chunks that the model does not know, found by their words alone\n" in run("info").out
    assert run("verify").status == 0


@pytest.mark.slow
def test_the_terminal_says_who_answered(index: Path, run: Run) -> None:
    hybrid, dense = run("query", "ประภาคาร"), run("query", "ประภาคาร", "--mode", "dense")
    few, nothing = run("query", "the mill", "-k", "5"), run("query", "ἀρχή 🎉🎉🎉🎉🎉", "--where", 'doc_id != "x"')

    assert "lamp\n" in hybrid.out
    assert hybrid.err == f"{WORDS_ALONE}1 hit, 10 were requested: no other chunk has a word of the question.\n"
    assert (dense.status, dense.out, dense.err) == (0, "", NO_VECTOR)
    assert few.err == "1 hit, 5 were requested: no other chunk has a vector or a word of the question.\n"
    assert nothing.err == "No word of the question is in the index, and the model does not know most of it.\n"
    (index.parent / "queries.jsonl").write_text('{"_id": "1", "text": "ประภาคาร"}\n{"_id": "2", "text": "old mill"}\n')
    lines = map(json.loads, run("query", "--queries", "queries.jsonl", "--mode", "dense").out.splitlines())
    assert [(line["notes"], len(line["hits"])) for line in lines] == [([NO_VECTOR.strip()], 0), ([], 1)]
    ran = run("query", "--queries", "queries.jsonl", "--run", "-", "--mode", "dense")
    assert [line.split()[:3] for line in ran.out.splitlines()] == [["2", "Q0", "mill"]]


@pytest.mark.slow
def test_changes_of_a_program_keep_them(folder: Path, run: Run) -> None:
    with Index.create("index") as index:
        documents = [ragidx.Document(name, text) for name, text in TEXTS.items()]
        with index.batch() as batch:
            batch.add(documents)
        assert (batch.n_added, batch.blank, batch.unknown) == (4, [], {"Thai": 1, "Khmer": 1, "symbols": 1})
        index.add([ragidx.Document("lamp", f"{THAI} {THAI}"), ragidx.Document("mill", "The new mill.")])
        index.delete(["party"])
        for _ in range(2):
            assert [hit.doc_id for hit in index.search("ประภาคาร")] == ["lamp"]
            assert [hit.doc_id for hit in index.search("mill", mode="dense")] == ["mill"]
            index.compact(everything=True)
        index.shrink(64)
        assert [hit.doc_id for hit in index.search("ប៉មភ្លើង")][:1] == ["tower"]
        assert (index.searcher.folder.n_zeros, index.verify()) == (2, [])
    (folder / "more.jsonl").write_text(f'{{"id": "n", "text": "{KHMER} "}}\n', "utf-8")
    done = run("add", "more.jsonl", "--index", "index")
    assert done.err.splitlines()[0] == "Not known to the model: 1 chunk (Khmer 1), found by words alone."


def test_without_words_nothing_finds_them_and_the_report_says_so(texts: Path, run: Run) -> None:
    done = run("build", str(texts), "--no-lexical")

    assert "Khmer 1), found by no search: the index has no words (--lexical); `ragidx doctor" in done.err
    assert "that the model does not know, found by no search\n" in run("info").out


@pytest.mark.slow
def test_a_filter_is_fitted_without_them(texts: Path) -> None:
    known = {
        f"{n}.txt": f"The {word} by the river is old." for n, word in enumerate(("mill", "house", "tower", "bridge"))
    }
    for name, text in known.items():
        (texts / name).write_text(text)
    (alone := Path("alone")).mkdir()
    for name, text in {**known, "mill.txt": TEXTS["mill"]}.items():
        (alone / name).write_text(text)

    one, other = (
        ragidx.build(corpus, f"{corpus}-index", filter=ragidx.FilterSpec("pca", dim=3)) for corpus in (texts, alone)
    )

    filters = [index.searcher.embedder.filter for index in (one, other)]
    assert filters[0] is not None
    assert filters[1] is not None
    np.testing.assert_allclose(filters[0].matrix, filters[1].matrix, atol=1e-5)
    assert one.report.unknown == {"Thai": 1, "Khmer": 1, "symbols": 1}


@pytest.mark.slow
def test_an_older_index_keeps_their_vectors_and_its_questions_are_not_compared(
    texts: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(Encoder, "_unknown", lambda self, texts, rows: [])
        run("build", str(texts))

    index = Index("ragidx-index")
    assert len(index.search("old mill", mode="dense")) == 4
    assert (list(index.search("ประภาคาร", mode="dense")), index.search("ประภาคาร")[0].doc_id) == ([], "lamp.txt")
    assert (unknown_chunks(index.path).n_unknown, unknown_chunks(index.path).n_zeros) == (3, 0)
    lines = run("doctor", "--index", "ragidx-index").out.split("\n\n")[1].splitlines()
    assert lines[:4] == [
        "index     ragidx-index",
        "model     mini",
        "examined  4 chunks",
        "script   chunks  unknown  share   known by",
    ]
    assert lines[-1] == (
        "3 chunks of them still have a vector, of an earlier version: `ragidx build --rebuild` drops it."
    )
    assert ragidx.build(index=index.path, rebuild=True).searcher.folder.n_zeros == 3


def test_the_doctor_finds_them_by_script_with_the_models_that_know_them(index: Path) -> None:
    found = unknown_chunks(index)

    assert (found.model, found.n_examined, found.n_chunks, found.n_zeros, found.n_unknown) == ("mini", 4, 4, 3, 3)
    assert {one.script: (one.n_chunks, one.n_unknown) for one in found.scripts} == {
        "Latin": (1, 0),
        "Thai": (1, 1),
        "Khmer": (1, 1),
        "symbols": (1, 1),
    }
    assert not {"mini", "mini-decoder"} & {name for one in found.scripts for name in one.known_by}
