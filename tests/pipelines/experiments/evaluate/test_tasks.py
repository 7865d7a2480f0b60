"""What lies at a path, which queries are judged, and what does not belong together."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.evalsets import SentencePairs
from ragidx.pipelines.experiments.evaluate.options import Questions
from ragidx.pipelines.experiments.evaluate.tasks import CORPUS, PAIRS, check_documents, task_of

from ....raising import message_of

RUN_LINE = "q1 Q0 d1 1 0.5 tag\n"


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "ants"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "ants?"}\n{"_id": "q2", "text": "bees?"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq3\td2\t1\n")
    return folder


def test_queries_without_judgements_are_left_out_and_counted(beir: Path) -> None:
    task = task_of(beir)

    assert (task.name, task.kind) == ("beir", CORPUS)
    assert task.judged is not None
    assert (task.judged.texts, task.judged.qrels) == ({"q1": "ants?"}, {"q1": {"d1": 1}})
    assert "Without judgements, and left out: 1 x query." in task.judged.notes


def test_judged_queries_that_are_not_asked_are_named_with_the_line(beir: Path) -> None:
    judged = task_of(beir).judged

    assert judged is not None
    place = beir / "qrels" / "test.tsv"
    assert judged.notes[0] == f"Not among the queries: 1 x judged query; first: 'q3' ({place}:3)."


def test_qrels_of_other_queries_are_refused(beir: Path, tmp_path: Path) -> None:
    queries = tmp_path / "q.tsv"
    queries.write_text("x1\tants?\n")

    assert message_of(CorpusError, lambda: task_of(beir, Questions.read(queries=queries))) == (
        f"{beir / 'qrels' / 'test.tsv'}:2: no query is judged (queries: 'x1', ...; qrels: 'q1', ...)\n"
        "  hint: give the qrels that belong to the queries"
    )


def test_relevant_documents_that_are_not_there_are_named_with_the_line(beir: Path) -> None:
    (beir / "qrels" / "test.tsv").write_text("q1\td1\t1\nq1\td8\t0\nq1\td9\t1\n")
    judged = task_of(beir).judged
    assert judged is not None

    assert list(check_documents(judged, ["d1"])) == [
        f"Not in the corpus, so never found: 1 x relevant document; first: 'd9' ({beir / 'qrels' / 'test.tsv'}:3)."
    ]
    assert list(check_documents(judged, ["d1", "d9"])) == []


def test_qrels_of_another_corpus_are_refused(beir: Path) -> None:
    judged = task_of(beir).judged
    assert judged is not None

    assert message_of(CorpusError, lambda: list(check_documents(judged, ["a", "b"]))) == (
        f"{beir / 'qrels' / 'test.tsv'}:2: no relevant document is here (qrels: 'd1', ...; documents: 'a', ...)\n"
        "  hint: give the qrels that belong to the corpus"
    )


@pytest.mark.parametrize("name", ["a.run", "a.trec", "a.txt", "a.tsv", "a.out.gz"])
def test_a_run_is_known_by_its_name_or_its_first_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\n")
    (tmp_path / name).write_bytes(gzip.compress(RUN_LINE.encode()) if name.endswith(".gz") else RUN_LINE.encode())

    assert task_of(tmp_path / name, Questions.read(qrels=tmp_path / "qrels.txt")).run == {"q1": {"d1": 0.5}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("test.tsv", "4.5\ta\tb\n"),
        ("test.csv", "4.5,a,b\n"),
        ("test.jsonl", '{"score": 4.5, "sentence1": "a", "sentence2": "b"}\n'),
    ],
)
def test_pairs_are_known_by_their_file_or_folder(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    for path in (tmp_path / name, tmp_path):
        task = task_of(path)
        assert (task.kind, task.pairs) == (PAIRS, SentencePairs(["a"], ["b"], [4.5]))


def test_a_folder_with_a_table_is_a_corpus_where_queries_are_given(tmp_path: Path, beir: Path) -> None:
    (tmp_path / "test.csv").write_text("name,price\nsaw,3\n")

    assert task_of(tmp_path, Questions.read(queries=beir, qrels=beir)).kind == CORPUS


NO_LABELS = "give `queries` and `qrels`, or make queries of the corpus itself: `Questions.made()`"


def test_a_corpus_without_queries_is_refused(tmp_path: Path) -> None:
    assert message_of(SpecError, lambda: task_of(tmp_path)) == f"{tmp_path}: there are no queries\n  hint: {NO_LABELS}"
    assert message_of(SpecError, lambda: task_of(tmp_path, Questions.read(split="foo"))).startswith(
        f"{tmp_path}: there are no queries, and no pairs of the split 'foo'\n"
    )


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert message_of(CorpusError, lambda: task_of(tmp_path / "x")) == (
        f"{tmp_path / 'x'}: no such file or folder\n  hint: check the path"
    )
