"""Filters that are centred, or not, as an axis of a grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx import Grid, Judge, Questions
from ragidx.corpora.errors import SpecError
from ragidx.corpora.evalsets import load_pairs

from ....measuring import evaluated
from ....raising import message_of
from .test_grid import rows_of, values_of

pytestmark = pytest.mark.slow


def test_both_are_measured_and_named(beir: Path) -> None:
    report = ragidx.evaluate(
        beir, grid=Grid(filter="truncation", dim=32, center=[True, False], mode="dense"), cache=None
    )

    rows = rows_of(report)
    assert list(rows) == ["center", "no-center"]
    assert values_of(report, "center") == [True, False]
    assert rows["center"].means["ndcg@10"] != rows["no-center"].means["ndcg@10"]
    assert "truncation,True," in report.to_csv()


def test_a_row_without_vectors_is_neither(beir: Path) -> None:
    assert values_of(ragidx.evaluate(beir, grid=Grid(mode="lexical"), cache=None), "center") == [None]


def test_random_projections_are_centred_as_the_filter_is(beir: Path) -> None:
    both = ragidx.evaluate(
        beir,
        grid=Grid(model="mini-decoder", filter="embedfilter", dim=8, center=[True, False], mode="dense"),
        cache=None,
    )
    alone = ragidx.evaluate(
        beir, grid=Grid(model="mini-decoder", filter="embedfilter", dim=8, mode="dense"), cache=None
    )

    centred, plain = rows_of(both)["center"], rows_of(both)["no-center"]
    assert plain.chance == alone.tasks[0].rows[0].chance
    assert centred.chance != plain.chance


def test_pairs_lose_the_mean_of_all_their_sentences(sts: Path) -> None:
    report = ragidx.evaluate(sts, grid=Grid(filter="none", center=True), cache=None)

    pairs = load_pairs(sts)
    raw = ragidx.load_encoder("mini").encode_query([*pairs.first, *pairs.second])
    raw -= raw.mean(axis=0, dtype=np.float64).astype(np.float32)
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    cosines = np.einsum("ij,ij->i", *np.split(raw, 2))
    expected = np.corrcoef(cosines, pairs.scores)[0, 1]
    assert report.tasks[0].rows[0].means["pearson"] == pytest.approx(expected, abs=1e-5)


def test_an_index_of_raw_vectors_can_be_centred(beir: Path, tmp_path: Path) -> None:
    ragidx.build(beir, tmp_path / "index", filter="none")

    report = ragidx.evaluate(
        tmp_path / "index",
        grid=Grid(center=[False, True], filter="none", mode="dense"),
        questions=Questions.read(beir / "queries.jsonl", beir / "qrels" / "test.tsv"),
    )

    assert values_of(report, "center") == [False, True]
    assert report.tasks[0].notes[-1].startswith("centring: fitted on vectors of unit length here")


def test_an_index_that_is_centred_is_measured_as_it_is(beir: Path, tmp_path: Path) -> None:
    judged = {"queries": beir / "queries.jsonl", "qrels": beir / "qrels" / "test.tsv", "mode": "dense"}
    ragidx.build(beir, tmp_path / "index", filter=ragidx.FilterSpec("none", center=True))

    report = evaluated(tmp_path / "index", **judged)
    of_corpus = ragidx.evaluate(beir, grid=Grid(filter="none", center=True, mode="dense"), cache=None)

    assert values_of(report, "center") == [True]
    assert report.tasks[0].rows[0].means == pytest.approx(of_corpus.tasks[0].rows[0].means, abs=1e-6)
    assert message_of(SpecError, lambda: evaluated(tmp_path / "index", **judged, center=False)) == (
        "`center`: the index holds vectors after its filter, which is fixed\n"
        "  hint: remove it, or evaluate the corpus, or an index of raw vectors: `filter=none`, not centred"
    )


def test_words_of_rows_that_are_centred_name_a_reference(beir: Path) -> None:
    report = ragidx.evaluate(
        beir, grid=Grid(mode="dense", center=[True, False]), judge=Judge(reference="no-center"), cache=None
    )

    task = report.tasks[0]
    assert task.rows[task.reference].configuration.center is False
