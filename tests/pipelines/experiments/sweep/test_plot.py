"""The picture of an evaluation with costs: time below quality, and exact search as a line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ragidx.pipelines.experiments.evaluate.plot import draw
from ragidx.pipelines.experiments.evaluate.report import EvaluationReport

from .conftest import random_rows, sweep

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("briefly")]


@pytest.fixture
def report(given_index: Callable[..., Path], tmp_path: Path) -> EvaluationReport:
    """Of two filters, without qrels."""
    np.save(tmp_path / "q.npy", np.array(random_rows(30, 8, seed=1), "f4"))
    return sweep(given_index(random_rows(60, 8)), filter=["truncation", "pca"], vectors=tmp_path / "q.npy")


def _words(svg: bytes) -> list[str]:
    """What is written in the picture: matplotlib keeps each text as a comment beside its outlines."""
    return [text.strip() for text in re.findall(r"<!--(.*?)-->", svg.decode())]


@pytest.mark.wheel
def test_the_picture_names_what_it_shows(report: EvaluationReport) -> None:
    words = _words(draw(report, "svg"))

    assert {"given: 30 queries", "overlap@10", "bytes a chunk", "ms a query, one thread"} <= set(words)
    assert {"none exact", "none flat", "truncation flat", "pca flat"} <= set(words)
    assert draw(report, "svg") == draw(report, "svg")


def test_without_costs_there_is_no_time(report: EvaluationReport) -> None:
    task = report.tasks[0]
    bare = dataclasses.replace(task, rows=tuple(dataclasses.replace(row, costs=None) for row in task.rows))

    assert "ms a query, one thread" not in _words(draw(EvaluationReport((bare,)), "svg"))


def test_ticks_never_lie_over_each_other(report: EvaluationReport) -> None:
    task = report.tasks[0]
    near = dataclasses.replace(task.rows[1], bytes=(task.rows[1].bytes or 0) * 1.1)
    crowded = EvaluationReport((dataclasses.replace(task, rows=(*task.rows, near)),))

    assert f"{near.bytes:,.0f}" not in _words(draw(crowded, "svg"))


def test_quality_against_tokens_is_drawn_where_rows_differ_in_them(report: EvaluationReport) -> None:
    task = report.tasks[0]
    read = [
        dataclasses.replace(row, tokens=10.0 * (1 + place % 3), name=f"echo copies={place}", costs=None)
        for place, row in enumerate(task.rows)
    ]
    alike = [dataclasses.replace(row, tokens=10.0) for row in read]

    words = _words(draw(EvaluationReport((dataclasses.replace(task, rows=tuple(read)),)), "svg"))

    assert {"bytes a chunk", "tokens read of a text", "10", "20", "30", "echo"} <= set(words)
    assert "tokens read of a text" not in _words(
        draw(EvaluationReport((dataclasses.replace(task, rows=tuple(alike)),)), "svg")
    )
