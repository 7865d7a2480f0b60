"""Finished runs of any tool: compared on the same judged queries, alone or beside a corpus."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx import Grid, Questions
from ragidx.corpora import evalsets
from ragidx.corpora.errors import CorpusError, SpecError

from ....measuring import evaluated
from ....raising import message_of
from .conftest import qrels_of, write_beir, write_qrels, write_run

pytestmark = pytest.mark.slow


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """24 queries, of which document n answers query n."""
    return write_qrels(tmp_path / "qrels.tsv", {f"q{n}": {f"d{n}": 1} for n in range(24)})


def right(n_right: int, n_queries: int = 24) -> dict[str, list[str]]:
    """Queries of which the first are answered rightly, and the others not."""
    return {f"q{n}": [f"d{n}" if n < n_right else "other"] for n in range(n_queries)}


def test_runs_of_any_tool_are_compared(judged: Path, tmp_path: Path) -> None:
    old = write_run(tmp_path / "old.run", right(6))
    new = tmp_path / "new.trec.gz"
    new.write_bytes(gzip.compress(write_run(tmp_path / "new", right(18)).read_bytes()))

    (task,) = ragidx.evaluate(old, new, questions=Questions.read(qrels=judged)).tasks

    assert [(row.name, row.interval.mean) for row in task.rows] == [("old.run", 0.25), ("new.trec.gz", 0.75)]
    against = task.rows[1].against
    assert against is not None
    assert (against.mean, against.verdict) == (0.5, "better")
    assert against.p == pytest.approx(2**-11, abs=5e-4)  # twelve queries differ, all in one direction
    assert task.rows[0].against is None
    assert (task.kind, task.choice, task.notes) == ("run", None, ())


def test_a_judged_query_without_an_answer_counts_0_and_an_unjudged_one_nothing(judged: Path, tmp_path: Path) -> None:
    first = write_run(tmp_path / "first.run", right(12, n_queries=12) | {"unjudged": ["d1"]})
    second = write_run(tmp_path / "second.run", right(24))

    (task,) = ragidx.evaluate(first, second, questions=Questions.read(qrels=judged)).tasks

    assert [row.interval.mean for row in task.rows] == [0.5, 1.0]
    assert task.notes == (
        "Without judgements, and left out of first.run: 1 x query.",
        "Judged and not answered, so 0 of first.run: 12 x query.",
    )


def test_of_a_run_too_the_document_with_the_id_of_the_query_is_dropped(tmp_path: Path) -> None:
    judged = write_qrels(tmp_path / "qrels.tsv", {f"d{n}": {f"d{n}": 1, f"e{n}": 1} for n in range(24)})
    run = write_run(tmp_path / "a.run", {f"d{n}": [f"d{n}", f"e{n}"] for n in range(24)})

    reports = [
        ragidx.evaluate(run, questions=Questions.read(qrels=judged, drop_self=drop_self)) for drop_self in (False, True)
    ]

    assert [report.tasks[0].rows[0].means["recall@10"] for report in reports] == [1, 0.5]


OWN = "24 of 24 queries find the document of their own id first, which is not relevant: `drop_self=True` leaves it out."


@pytest.mark.parametrize(("relevant", "drop_self", "notes"), [("e", False, (OWN,)), ("e", True, ()), ("d", False, ())])
def test_queries_that_find_themselves_are_noted_with_the_option(
    relevant: str, drop_self: bool, notes: tuple[str, ...], tmp_path: Path
) -> None:
    judged = write_qrels(tmp_path / "qrels.tsv", {f"d{n}": {f"{relevant}{n}": 1} for n in range(24)})
    run = write_run(tmp_path / "a.run", {f"d{n}": [f"d{n}", f"e{n}"] for n in range(24)})

    (task,) = ragidx.evaluate(run, questions=Questions.read(qrels=judged, drop_self=drop_self)).tasks

    assert tuple(note for note in task.notes if "own id" in note) == notes


def test_a_few_equal_ids_are_not_noted(tmp_path: Path) -> None:
    judged = write_qrels(tmp_path / "qrels.tsv", {f"d{n}": {f"e{n}": 1} for n in range(24)})
    run = write_run(tmp_path / "a.run", {f"d{n}": [f"d{n}" if n == 7 else f"e{n}", "x"] for n in range(24)})

    (task,) = ragidx.evaluate(run, questions=Questions.read(qrels=judged)).tasks

    assert not any("own id" in note for note in task.notes)


def test_a_run_of_another_set_is_refused_by_its_file(judged: Path, tmp_path: Path) -> None:
    ours, other = write_run(tmp_path / "ours.run", right(3)), write_run(tmp_path / "other.run", {"x1": ["d1"]})

    assert message_of(CorpusError, lambda: ragidx.evaluate(ours, other, questions=Questions.read(qrels=judged))) == (
        f"{other}: the run answers no judged query (run: 'x1', ...; qrels: 'q0', ...)\n"
        "  hint: give the qrels of this run's queries"
    )


def test_all_runs_share_qrels_that_are_read_once(judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    load = evalsets.load_qrels
    monkeypatch.setattr(
        "ragidx.pipelines.experiments.evaluate.evaluate.load_qrels",
        lambda path, **rest: [seen.append(path), load(path, **rest)][1],
    )
    runs = [write_run(tmp_path / f"{n}.run", right(n)) for n in range(1, 5)]

    ragidx.evaluate(*runs, questions=Questions.read(qrels=judged))

    assert seen == [judged]


def test_a_run_beside_a_corpus_is_a_row_of_its_table(beir: Path, tmp_path: Path) -> None:
    perfect = {query: list(judged) for query, judged in qrels_of(24).items()}
    run = write_run(tmp_path / "other.run", perfect)

    (task,) = ragidx.evaluate(beir, run, grid=Grid(mode=["lexical", "dense"], filter="none"), cache=None).tasks

    assert [row.name for row in task.rows] == ["lexical", "dense", "other.run"]
    assert task.rows[2].interval.mean == 1
    assert task.rows[2].bytes is None
    assert task.choice is not None  # among those whose bytes are known
    assert task.choice.number != 2


def test_one_configuration_beside_runs_is_named_by_its_model_and_mode(beir: Path, tmp_path: Path) -> None:
    perfect = {query: list(judged) for query, judged in qrels_of(24).items()}
    runs = [write_run(tmp_path / name, perfect) for name in ("a.run", "b.run")]

    (task,) = ragidx.evaluate(beir, *runs, grid=Grid(mode="dense", filter="none"), cache=None).tasks

    assert [row.name for row in task.rows] == ["mini dense", "a.run", "b.run"]


def test_a_run_of_another_set_beside_a_corpus_is_refused_first(beir: Path, tmp_path: Path, encoded: list[str]) -> None:
    run = write_run(tmp_path / "other.run", {"x1": ["d1"]})

    assert "the run answers no judged query" in message_of(CorpusError, lambda: ragidx.evaluate(beir, run, cache=None))
    assert encoded == []


def test_runs_beside_several_corpora_have_a_table_and_qrels_of_their_own(
    beir: Path, judged: Path, tmp_path: Path
) -> None:
    other, run = write_beir(tmp_path / "other"), write_run(tmp_path / "a.run", right(12))
    options: dict[str, Any] = {"mode": "lexical", "cache": None}

    report = evaluated(beir, other, run, qrels=judged, **options)

    assert [(task.name, task.kind) for task in report.tasks] == [
        ("a.run", "run"),
        ("beir", "corpus"),
        ("other", "corpus"),
    ]
    assert message_of(SpecError, lambda: evaluated(beir, other, run, **options)) == (
        f"{run}: nothing says which documents answer which query of this run\n  hint: give `qrels`"
    )


def test_equal_systems_are_said_to_be_equal(judged: Path, tmp_path: Path) -> None:
    first, second = write_run(tmp_path / "a.run", right(12)), write_run(tmp_path / "b.run", right(12))

    (task,) = ragidx.evaluate(first, second, questions=Questions.read(qrels=judged)).tasks

    against = task.rows[1].against
    assert against is not None
    assert (against.mean, against.p, against.verdict) == (0.0, 1.0, "equal")


def test_with_few_queries_nothing_is_concluded(tmp_path: Path) -> None:
    judged = write_qrels(tmp_path / "qrels.tsv", {f"q{n}": {f"d{n}": 1} for n in range(19)})
    runs = [write_run(tmp_path / "a.run", right(2, 19)), write_run(tmp_path / "b.run", right(19, 19))]

    (task,) = ragidx.evaluate(*runs, questions=Questions.read(qrels=judged)).tasks

    against = task.rows[1].against
    assert against is not None
    assert against.verdict == "too few"
    assert task.notes == ("Nothing can be concluded from fewer than 20 queries, here 19.",)
