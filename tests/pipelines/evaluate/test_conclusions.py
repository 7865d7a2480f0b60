"""What is said of rows: of few queries, of equal rows, and of the one that others are compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.corpora.evalsets import run_lines
from ragidx.pipelines.evaluate.report import TaskReport

from ...raising import message_of


def compared(folder: Path, ranks: dict[str, list[int]], **options: str) -> TaskReport:
    """Runs that find the one relevant document of each query at some rank."""
    n_queries = len(next(iter(ranks.values())))
    (folder / "qrels.txt").write_text("".join(f"q{query} 0 yes 1\n" for query in range(n_queries)))
    for name, of_queries in ranks.items():
        run = (
            (f"q{query}", [("yes" if place == rank else f"no{place}", -float(place)) for place in range(1, 11)])
            for query, rank in enumerate(of_queries)
        )
        (folder / name).write_text("".join(run_lines(run)))
    paths = [folder / name for name in ranks]
    return ragidx.evaluate(*paths, qrels=folder / "qrels.txt", **options).tasks[0]


def test_fewer_than_20_queries_conclude_nothing(tmp_path: Path) -> None:
    report = compared(tmp_path, {"a.run": [10] * 19, "b.run": [1] * 19})

    assert report.notes == ("19 queries are too few to conclude anything: give 20 or more.",)
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
