"""The figures of a sweep: known values, widths, the recommendation, and the files that hold them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import RagidxError, SpecError
from ragidx.pipelines.evaluate.cells import exact_search, scores_of, share_found
from ragidx.pipelines.evaluate.significance import difference, interval, ndcg
from ragidx.pipelines.evaluate.sources.series import WidthChoice
from ragidx.pipelines.sweep.report import SweepReport
from ragidx.pipelines.sweep.sweep import sweep

from ...measuring import ndcg_at_10
from ...raising import message_of
from .conftest import made_report, made_row, random_rows

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


def test_ndcg_has_linear_gain_and_a_logarithmic_discount() -> None:
    got = ndcg(["a", "x", "b"], {"a": 1, "b": 2, "c": 0, "d": -1})

    assert got == pytest.approx((1 + 2 / 2) / (2 + 1 / math.log2(3)))


def test_ndcg_of_a_query_without_relevant_documents_is_0() -> None:
    assert ndcg(["a"], {"a": 0}) == 0.0


def test_ndcg_counts_ten_documents() -> None:
    assert ndcg([f"x{n}" for n in range(10)] + ["a"], {"a": 1}) == 0.0


@pytest.mark.wheel
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_ndcg_equals_that_of_ir_measures(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    qrels = {f"q{q}": {f"d{d}": int(drawn.integers(-1, 4)) for d in drawn.permutation(20)[:8]} for q in range(3)}
    run = {q: {f"d{d}": 1 - rank / 20 for rank, d in enumerate(drawn.permutation(20)[:14])} for q in qrels}

    ours = np.mean([ndcg(list(run[q]), qrels[q]) for q in qrels])

    assert ours == pytest.approx(ndcg_at_10(qrels, run), abs=1e-6)


def test_the_share_found_counts_ties_with_the_last() -> None:
    exact = np.array([[0.9, 0.5]], "f4")

    assert share_found(np.array([[0.9, 0.5]], "f4"), exact) == 1
    assert share_found(np.array([[0.9, -np.inf]], "f4"), exact) == 0.5


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


# the recommendation


def _report(rows: list[tuple[int, float]], spread: float = 0.0) -> SweepReport:
    """Rows of (dim, nDCG) by real statistics: forty queries whose values vary alike for all rows."""
    base = 0.5 + 0.1 * np.sin(np.arange(40))
    noise = spread * np.random.default_rng(1).standard_normal(40)
    made = []
    for dim, moved in rows:
        values = base + moved + noise
        made.append(made_row(dim, ndcg=interval(values), against_full=difference(values, base)))
    return made_report(made, base)


def test_the_smallest_width_that_surely_loses_little_is_recommended() -> None:
    report = _report([(256, 0.0), (64, -0.004), (32, -0.2)])

    assert report.recommended is report.rows[1]
    assert report.recommendation() == (
        "Take 64 dimensions, pca: the smallest width that loses less than 0.01 of nDCG@10 to the full one, with 25 %"
        " of its bytes (0.499 against 0.503; at most 0.004 is lost, 40 queries)."
    )


def test_queries_that_cannot_decide_give_no_smaller_width() -> None:
    report = _report([(256, 0.0), (64, 0.0)], spread=0.1)

    assert report.rows[1].against_full is not None
    assert not report.rows[1].against_full.is_real
    assert report.recommended is None
    assert report.recommendation() == (
        "The 40 queries cannot decide on a smaller width: 64 dimensions (pca) may lose up to"
        f" {-report.rows[1].against_full.low:.3f} of nDCG@10, more than 0.01. Give more queries."
    )


def test_where_every_smaller_width_is_worse_the_full_one_is_kept() -> None:
    assert _report([(256, 0.0), (64, -0.1)]).recommendation() == (
        "Keep all 256 dimensions. Every smaller width loses nDCG@10: 64 dimensions (pca) loses 0.100."
    )
    assert _report([(256, -0.1), (64, -0.1)]).recommendation() == (
        "Every smaller width loses nDCG@10: 64 dimensions (pca) loses 0.100."
    )


@pytest.mark.slow
def test_without_qrels_nothing_is_recommended(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(random_rows(30, 8)), filters=["truncation"])

    assert report.recommended is None
    assert report.recommendation() == (
        "Without qrels the overlap tells how near a width stays to the full one, not whether it is good enough: give"
        " `queries` and `qrels`."
    )


@pytest.mark.slow
def test_json_and_csv_hold_every_row(given_index: Callable[..., Path], tmp_path: Path) -> None:
    report = sweep(given_index(random_rows(30, 8)), filters=["truncation"], out=tmp_path / "out")

    data = json.loads((tmp_path / "out" / "sweep.json").read_text("ascii"))
    head, *lines = (tmp_path / "out" / "sweep.csv").read_text().splitlines()
    assert data == json.loads(json.dumps(report.to_json()))
    assert len(lines) == len(data["rows"]) == 4
    assert head.startswith(
        "filter,dim,tau,requested,index_type,effort_beam,effort_lists,effort_factor,bytes_per_vector,"
    )
    assert lines[0].startswith("none,8,1.0,flat,flat,0,0,1,16,")
    assert "ndcg" not in head  # nothing is judged
    judged = _report([(64, 0.0)]).to_csv().splitlines()[0]
    assert judged.endswith(
        ",ndcg_mean,ndcg_low,ndcg_high,against_full_mean,against_full_low,against_full_high,against_full_p,against_full_verdict"
    )


def test_an_out_that_is_no_folder_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    said = message_of(RagidxError, lambda: sweep(tmp_path / "nothing", out=tmp_path / "file"))

    assert said == f"{tmp_path / 'file'}: a file has this name\n  hint: name another folder with `out`"
