"""What is said of rows: of few queries, of equal rows, and of the one that others are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragidx.corpora.errors import SpecError
from ragidx.corpora.evalsets import run_lines
from ragidx.pipelines.experiments.evaluate.conclusions import overall
from ragidx.pipelines.experiments.evaluate.report import EvaluationReport, TaskReport
from ragidx.pipelines.experiments.evaluate.significance import all_pairs

from ....measuring import evaluated
from ....raising import message_of

pytestmark = pytest.mark.slow


def compared(folder: Path, ranks: dict[str, list[int]], **options: Any) -> TaskReport:
    """Runs that find the one relevant document of each query at some rank."""
    folder.mkdir(exist_ok=True)
    n_queries = len(next(iter(ranks.values())))
    (folder / "qrels.txt").write_text("".join(f"q{query} 0 yes 1\n" for query in range(n_queries)))
    for name, of_queries in ranks.items():
        run = (
            (f"q{query}", [("yes" if place == rank else f"no{place}", -float(place)) for place in range(1, 11)])
            for query, rank in enumerate(of_queries)
        )
        (folder / name).write_text("".join(run_lines(run)))
    paths = [folder / name for name in ranks]
    return evaluated(*paths, qrels=folder / "qrels.txt", **options).tasks[0]


def test_fewer_than_20_queries_conclude_nothing(tmp_path: Path) -> None:
    report = compared(tmp_path, {"a.run": [10] * 19, "b.run": [1] * 19})

    assert report.notes == ("Nothing can be concluded from fewer than 20 queries, here 19.",)
    assert report.rows[1].against is not None
    assert report.rows[1].against.verdict == "too few"


def test_equal_rows_are_called_equal(tmp_path: Path) -> None:
    report = compared(tmp_path, {"a.run": [1, 2] * 15, "b.run": [1, 2] * 15})

    assert report.notes == ()
    assert report.rows[0].against is None
    assert report.rows[1].against is not None
    assert (report.rows[1].against.p, report.rows[1].against.verdict) == (1, "equal")


def test_rows_are_compared_with_the_reference_that_is_named(tmp_path: Path) -> None:
    ranks = np.random.default_rng(0).integers(1, 4, 40).tolist()

    report = compared(tmp_path, {"a.run": ranks, "b.run": [1] * 40, "c.run": [1] * 40}, reference="b.run")

    verdicts = [None if row.against is None else row.against.verdict for row in report.rows]
    assert verdicts == ["worse", None, "equal"]
    assert report.rows[0].against is not None
    assert report.rows[0].against.mean == pytest.approx(report.rows[0].interval.mean - 1)


def test_an_unknown_reference_or_measure_is_refused(tmp_path: Path) -> None:
    ranks = {"a.run": [1] * 20, "b.run": [1] * 20}

    assert message_of(SpecError, lambda: compared(tmp_path, ranks, reference="c.run")) == (
        "`reference`: no row is named 'c.run'\n  hint: give words of one of: a.run; b.run"
    )
    assert message_of(SpecError, lambda: compared(tmp_path, ranks, measure="ndcg@7")) == (
        "unknown measure 'ndcg@7'; did you mean 'ndcg@10'?\n"
        "  hint: known: judged@10, map, mrr@10, ndcg@10, p@10, recall@10, recall@100"
    )


def test_all_pairs_are_compared_where_it_is_asked_for(tmp_path: Path) -> None:
    ranks = np.random.default_rng(0).integers(1, 4, 40).tolist()
    runs = {"a.run": ranks, "b.run": [1] * 40, "c.run": [1] * 40}

    report = compared(tmp_path, runs, all_pairs=True)

    assert compared(tmp_path, runs).pairs == {}
    assert report.pairs == all_pairs(report.values["ndcg@10"])
    assert [one.verdict for one in report.pairs.values()] == ["better", "better", "equal"]
    first = EvaluationReport((report,)).to_json()["tasks"][0]["pairs"][0]
    assert (first["row"], first["other"], first["verdict"]) == ("b.run", "a.run", "better")


def test_five_data_sets_are_tested_together(tmp_path: Path) -> None:
    tasks = [
        compared(tmp_path / str(number), {"a.run": [2, 3] * 20, "b.run": [1] * 40, "c.run": [2, 3] * 20})
        for number in range(6)
    ]

    better, equal = overall(tasks)

    assert (better.name, better.mean) == (
        "b.run",
        pytest.approx(tasks[0].rows[1].interval.mean - tasks[0].rows[0].interval.mean),
    )
    assert better.p == 2 * 2 / 2**6  # of 64 choices of signs two are as far from 0; two rows
    assert (equal.name, equal.mean, equal.p) == ("c.run", 0, 1)
    assert overall(tasks[:4]) == ()


def test_rows_that_a_data_set_lacks_are_left_out_over_data_sets(tmp_path: Path) -> None:
    tasks = [
        compared(tmp_path / str(number), {"a.run": [2] * 20, "b.run": [1] * 20, f"{number}.run": [1] * 20})
        for number in range(5)
    ]

    assert [one.name for one in overall(tasks)] == ["b.run"]
