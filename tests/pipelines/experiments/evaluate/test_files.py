"""What `out` holds: a table, values by query, runs, and a picture."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.corpora.errors import RagidxError
from ragidx.corpora.evalsets import load_qrels, load_run
from ragidx.pipelines.experiments.evaluate.report import COLUMNS

from ....measuring import evaluated
from ....raising import message_of
from .conftest import write_beir, write_qrels, write_run

OPTIONS: dict[str, Any] = {"filter": "truncation", "tau": [2, 8], "chunks": ragidx.ChunkSpec(size=None), "cache": None}
MEASURES = ["ndcg@10", "recall@10", "recall@100", "mrr@10", "map", "p@10", "judged@10"]


def evaluate(*sources: Path, out: Path, **options: Any) -> Any:
    return evaluated(*sources, out=out, **OPTIONS | options)


def table(out: Path) -> list[dict[str, str]]:
    with (out / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_has_a_line_for_each_row(beir: Path, tmp_path: Path) -> None:
    (task,) = evaluate(beir, out=tmp_path / "out").tasks

    lines = table(tmp_path / "out")
    expected = ["task", "row", *COLUMNS, "bytes", "tokens", *MEASURES]
    assert list(lines[0])[: len(expected)] == expected
    assert {"measure", "low", "high", "difference", "p", "detectable", "verdict", "chance_low"} <= lines[0].keys()
    assert [line["row"] for line in lines] == ["1", "2", "3", "4", "5"]
    assert [(line["mode"], line["dim"], line["tau"]) for line in lines] == [
        ("lexical", "", ""), ("dense", "192", "2.0"), ("hybrid", "192", "2.0"), ("dense", "48", "8.0"),
        ("hybrid", "48", "8.0"),
    ]  # fmt: skip
    assert [float(line["ndcg@10"]) for line in lines] == pytest.approx(
        [row.means["ndcg@10"] for row in task.rows], abs=1e-6
    )
    assert [line["p"] == "" for line in lines] == [True, False, False, False, False]
    assert float(lines[1]["bytes"]) > float(lines[3]["bytes"]) > 2 * 48


def test_values_by_query_average_to_the_table(beir: Path, tmp_path: Path) -> None:
    (task,) = evaluate(beir, out=tmp_path / "out").tasks

    values = pq.read_table(tmp_path / "out" / "per_query.parquet").to_pydict()
    assert list(values) == ["task", "row", "query", *MEASURES]
    assert set(values["task"]) == {"beir"}
    for number, row in enumerate(task.rows, start=1):
        mine = [place for place, one in enumerate(values["row"]) if one == number]
        assert [values["query"][place] for place in mine] == [f"q{n}" for n in range(24)]
        assert np.mean([values["map"][place] for place in mine]) == pytest.approx(row.means["map"])


def test_runs_are_read_by_others_and_give_the_same_measures(beir: Path, tmp_path: Path) -> None:
    (task,) = evaluate(beir, out=tmp_path / "out").tasks

    runs = sorted((tmp_path / "out" / "runs").iterdir())
    assert [path.name for path in runs] == [f"{number}.run" for number in range(1, 6)]
    for path, row in zip(runs, task.rows, strict=True):
        read = list(ir_measures.read_trec_run(str(path)))
        found = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], load_qrels(beir), read)
        assert found[ir_measures.nDCG @ 10] == pytest.approx(row.means["ndcg@10"], abs=1e-9)
    (again,) = ragidx.evaluate(*runs, questions=ragidx.Questions.read(qrels=beir / "qrels" / "test.tsv")).tasks
    assert [row.means for row in again.rows] == [row.means for row in task.rows]
    assert load_run(runs[1]) == task.runs[1]


@pytest.mark.slow
def test_runs_of_rows_that_are_no_more_go(beir: Path, tmp_path: Path) -> None:
    evaluate(beir, out=tmp_path, mode="dense")
    (tmp_path / "runs" / "bm25").mkdir()
    for own in ("own.run", "2024.run", "bm25/7.run"):  # of the user
        write_run(tmp_path / "runs" / own, {"q0": ["d0"]})

    evaluate(beir, out=tmp_path, mode=["dense", "lexical"])
    evaluate(beir, out=tmp_path, mode="lexical")

    found = sorted(path.relative_to(tmp_path / "runs").as_posix() for path in (tmp_path / "runs").rglob("*.run"))
    assert found == ["1.run", "2024.run", "bm25/7.run", "own.run"]


def test_the_same_results_are_the_same_bytes(beir: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    for name in ("first", "second"):
        evaluate(beir, out=tmp_path / name)

    files = sorted(path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*.*"))
    assert {"results.png", "results.svg", "results.csv", "per_query.parquet"} <= set(map(str, files))
    for file in files:
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes(), file


@pytest.mark.slow
def test_data_sets_of_odd_and_equal_names_have_files_of_their_own(tmp_path: Path) -> None:
    odd = write_beir(tmp_path / "naïve $x$ ,\n“set”")
    first, second = write_beir(tmp_path / "a" / "set"), tmp_path / "b" / "set"
    shutil.copytree(first, second)

    report = evaluate(odd, first, second, out=tmp_path / "out", mode="dense", tau=8)

    folders = sorted(path.name for path in (tmp_path / "out" / "runs").iterdir())
    assert len(folders) == 3
    assert all(name.isascii() and " " not in name and "\n" not in name for name in folders)
    assert [line["task"] for line in table(tmp_path / "out")] == [task.name for task in report.tasks]
    assert [task.name for task in report.tasks] == [odd.name, str(first), str(second)]
    assert len(set(pq.read_table(tmp_path / "out" / "per_query.parquet")["task"].to_pylist())) == 3


def test_rankings_and_pairs_share_the_table(beir: Path, sts: Path, tmp_path: Path) -> None:
    evaluate(beir, sts, out=tmp_path / "out", mode="dense", tau=8)

    first, second = table(tmp_path / "out")
    assert (first["measure"], first["spearman"], second["measure"], second["ndcg@10"]) == (
        "ndcg@10",
        "",
        "spearman",
        "",
    )


def test_results_in_the_corpus_are_no_documents(small_corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_text("mill\twhere does the old mill stand?\n")
    judged = {"queries": tmp_path / "q.tsv", "qrels": write_qrels(tmp_path / "qrels.tsv", {"mill": {"mill.md": 1}})}
    out = small_corpus / "results"

    reports = [evaluate(small_corpus, out=out, mode="dense", **judged) for _ in range(2)]

    assert [report.tasks[0].n_documents for report in reports] == [6, 6]


def test_a_run_that_was_given_is_not_written_again(beir: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "given.run", {"q0": ["d0"]})

    evaluate(beir, run, out=tmp_path / "out", mode="dense", tau=8)

    assert [path.name for path in (tmp_path / "out" / "runs").iterdir()] == ["1.run"]
    assert [line["run"] for line in table(tmp_path / "out")] == ["", "given.run"]


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_encoded(
    beir: Path, tmp_path: Path, encoded: list[str]
) -> None:
    (tmp_path / "file").write_text("")

    for out, message in (("file", "a file has this name"), ("file/out", "")):
        told = message_of(RagidxError, lambda out=out: evaluate(beir, out=tmp_path / out))  # type: ignore[misc]
        assert told.startswith(f"{tmp_path}/file")
        assert message in told
        assert told.endswith("\n  hint: name another folder with `out`")
    assert not encoded
