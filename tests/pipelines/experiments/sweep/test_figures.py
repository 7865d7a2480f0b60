"""The figures of a sweep: known values, widths, and the files that hold them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ragidx.corpora.errors import RagidxError, SpecError
from ragidx.pipelines.experiments.evaluate.cells import exact_search, scores_of, share_found
from ragidx.pipelines.experiments.evaluate.sources.series import WidthChoice

from ....raising import message_of
from .conftest import random_rows, sweep

pytestmark = pytest.mark.usefixtures("briefly")


# known values


def test_the_nearest_rows_are_those_with_the_largest_cosine() -> None:
    blocks = [np.array([[1, 0], [0.6, 0.8]], "f4"), np.array([[0, 1], [-1, 0]], "f4")]

    scores, rows = exact_search(blocks, np.array([[1.0, 0.0], [0.0, 1.0]], "f4"), 3)

    assert rows.tolist() == [[0, 1, 2], [2, 1, 0]]
    np.testing.assert_allclose(scores, [[1, 0.6, 0], [1, 0.8, 0]], atol=1e-6)


def test_scores_of_given_rows_are_cosines_and_no_row_has_none() -> None:
    blocks = [np.array([[1, 0], [0.6, 0.8]], "f4"), np.array([[0, 1]], "f4")]

    scores = scores_of(blocks, np.array([[0.0, 1.0]], "f4"), np.array([[2, -1, 1]]))

    np.testing.assert_allclose(scores, [[1, -np.inf, 0.8]], atol=1e-6)


def test_the_share_found_counts_ties_with_the_last() -> None:
    exact = np.array([[0.9, 0.5]], "f4")

    assert share_found(np.array([[0.9, 0.5]], "f4"), exact).tolist() == [1]
    assert share_found(np.array([[0.9, -np.inf]], "f4"), exact).tolist() == [0.5]


# widths


def test_widths_are_those_of_the_given_taus_and_dims() -> None:
    assert WidthChoice().of(896, 896) == (896, 448, 224, 112, 56)
    assert WidthChoice(taus=(1, 3)).of(10, 10) == (10, 3)
    assert WidthChoice(dims=(3, 7), taus=(2,)).of(10, 10) == (7, 5, 3)
    assert WidthChoice().of(256, 255) == (255, 128, 64, 32, 16)
    assert WidthChoice().of(4, 4) == (4, 2, 1)


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ({"dims": (0,)}, "`dim`: dim=0 keeps nothing\n  hint: give 1 or more"),
        ({"taus": (0.5,)},
         "`filter.tau`: tau=0.5 would widen the vectors\n  hint: give 1 or more: hidden width / kept width"),
        ({"dims": (11,)}, "`dim`: dim=11 is more than the 8 dimensions there are\n  hint: give at most 8"),
        ({"taus": (1.1,)}, "`tau`: tau=1.1, 9 dimensions, is more than the 8 dimensions there are\n"
                           "  hint: give a larger tau"),
    ],
)  # fmt: skip
def test_a_width_that_is_not_there_is_refused(widths: dict[str, Any], message: str) -> None:
    assert message_of(SpecError, lambda: WidthChoice(**widths).of(10, 8)) == message


# what is told


@pytest.mark.slow
def test_without_qrels_nothing_is_recommended(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(random_rows(30, 8)), filter=["truncation"])

    task = report.tasks[0]
    assert len(report.tasks) == 1  # and nothing with words
    assert task.choice is None
    assert {row.against for row in task.rows} == {None}
    assert list(task.values) == ["overlap@10", "ann_recall@10"]
    assert task.measure == "overlap@10"


@pytest.mark.slow
def test_json_and_csv_hold_every_row(given_index: Callable[..., Path], tmp_path: Path) -> None:
    report = sweep(given_index(random_rows(30, 8)), filter=["truncation"], out=tmp_path / "out")

    data = json.loads((tmp_path / "out" / "results.json").read_text("ascii"))
    lines = list(csv.DictReader((tmp_path / "out" / "results.csv").read_text().splitlines()))
    assert data == json.loads(json.dumps(report.to_json()))
    assert len(lines) == len(data["tasks"][0]["rows"]) == 5
    exact, whole, half = lines[:3]
    assert (exact["index_type"], exact["bytes"], exact["factory"], exact["single_p50_ms"]) == ("exact", "", "", "")
    assert (whole["filter"], whole["dim"], whole["factory"], whole["effort_factor"]) == ("none", "8", "flat", "1")
    assert float(whole["bytes"]) == int(whole["disk_bytes"]) / 27 > 16
    assert (half["filter"], half["dim"]) == ("truncation", "4")
    assert all(float(line[name]) > 0 for line in (whole, half) for name in ("single_p95_ms", "batch_p50_ms"))
    assert pq.read_table(tmp_path / "out" / "per_query.parquet").column_names[-2:] == ["overlap@10", "ann_recall@10"]
    assert b"overlap@10" in (tmp_path / "out" / "results.svg").read_bytes()


def test_an_out_that_is_no_folder_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    said = message_of(RagidxError, lambda: sweep(tmp_path, out=tmp_path / "file"))

    assert said == f"{tmp_path / 'file'}: a file has this name\n  hint: name another folder with `out`"
