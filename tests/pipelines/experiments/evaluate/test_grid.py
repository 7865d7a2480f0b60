"""A grid: which configurations there are, and that each is what `build` and `search` give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.pipelines.experiments.evaluate.report import EvaluationReport, EvaluationRow

from ....measuring import evaluated, ndcg_at_10
from ....raising import message_of
from .conftest import WORDS, text_of

pytestmark = pytest.mark.slow

DOCUMENTS = ragidx.ChunkSpec(size=None)


def evaluate(*sources: Any, **options: Any) -> EvaluationReport:
    """With a model that has every filter."""
    return evaluated(*sources, **{"model": "mini-decoder", **options})


def best_first(hits: Mapping[str, float]) -> list[str]:
    """The ids of documents; those of equal scores in one order."""
    return sorted(hits, key=lambda name: (-round(hits[name], 4), name))


def rows_of(report: EvaluationReport) -> dict[str, EvaluationRow]:
    (task,) = report.tasks
    return {row.name: row for row in task.rows}


def values_of(report: EvaluationReport, name: str) -> list[Any]:
    """One value of each configuration, in order."""
    return [getattr(row.configuration, name) for task in report.tasks for row in task.rows]


@pytest.mark.slow
@pytest.mark.parametrize(
    "filter",
    [
        ragidx.FilterSpec("embedfilter", tau=4),
        ragidx.FilterSpec("pca", dim=16),
        ragidx.FilterSpec("embedfilter", tau=4, center=True),
    ],
)
@pytest.mark.parametrize("mode", ["dense", "hybrid", "lexical"])
def test_a_row_is_what_build_and_search_give(beir: Path, tmp_path: Path, filter: ragidx.FilterSpec, mode: str) -> None:
    chunks = ragidx.ChunkSpec(size=64)
    index = ragidx.build(
        beir, tmp_path / "index", model="mini-decoder", filter=filter, chunks=chunks, index_type="flat"
    )
    texts = load_queries(beir)
    del texts["unjudged"]
    answers = index.rank_documents(list(texts.values()), k=100, mode=mode)
    run = {name: dict(hits) for name, hits in zip(texts, answers, strict=True)}

    width = {"tau": filter.tau, "dim": filter.dim, "center": filter.center}
    report = evaluate(beir, filter=filter.name, mode=mode, chunks=chunks, cache=None, out=tmp_path / "out", **width)

    (task,) = report.tasks
    (row,) = task.rows
    assert row.means["ndcg@10"] == pytest.approx(ndcg_at_10(load_qrels(beir), run), abs=1e-12)
    assert {name: best_first(hits) for name, hits in task.runs[0].items()} == {
        name: best_first(hits) for name, hits in run.items()
    }
    stored = sum(file.stat().st_size for file in (tmp_path / "index").rglob("*") if "vectors" in file.name)
    if mode == "dense":
        assert row.bytes == stored / task.n_chunks


def test_all_combinations_are_measured_in_the_order_of_the_options(beir: Path) -> None:
    report = evaluate(
        beir, filter=["random", "truncation"], tau=[2, 8], mode=["dense", "hybrid"], weight=[0.2, 0.8], cache=None
    )

    shown = [
        (row.configuration.filter, row.configuration.dim, row.configuration.mode, row.configuration.weight)
        for row in report.tasks[0].rows
    ]
    searches = [("dense", None), ("hybrid", 0.2), ("hybrid", 0.8)]
    assert shown == [
        (name, dim, *search) for name in ("random", "truncation") for dim in (128, 32) for search in searches
    ]
    assert [row.name for row in report.tasks[0].rows][:3] == [
        "random dim=128 dense", "random dim=128 hybrid weight=0.2", "random dim=128 hybrid weight=0.8"
    ]  # fmt: skip


def test_without_options_a_build_is_measured_in_three_modes(beir: Path) -> None:
    report = ragidx.evaluate(beir, cache=None)

    assert values_of(report, "mode") == ["lexical", "dense", "hybrid"]
    assert values_of(report, "model") == [None, "mini", "mini"]
    assert values_of(report, "filter") == [None, "truncation", "truncation"]
    assert values_of(report, "dim") == [None, 255, 255]
    assert report.tasks[0].n_documents == len(WORDS)


def test_fusions_and_index_types_are_axes(beir: Path) -> None:
    report = evaluate(beir, filter="none", mode="hybrid", fusion=["z", "rrf"], index_type=["flat", "sq8"], cache=None)

    assert values_of(report, "fusion") == ["z", "rrf"]
    assert values_of(report, "index_type") == ["flat", "flat"]  # what became the same index is measured once
    (note,) = (note for note in report.tasks[0].notes if note.startswith("sq8"))
    assert note.startswith("sq8 is measured as flat: 26 chunks are fewer than the 10,000 ")


def test_all_texts_are_encoded_once_for_all_filters_and_widths(beir: Path, encoded: list[str]) -> None:
    evaluate(beir, filter=["truncation", "none", "random", "bulk"], tau=[2, 4], chunks=DOCUMENTS, cache=None)

    assert len(encoded) == len(set(encoded)) == 2 * len(WORDS)
    assert set(encoded) >= set(map(text_of, WORDS[1:]))


@pytest.mark.slow
def test_every_option_of_the_encoder_is_an_axis(beir: Path, tiny_model: Callable[..., Path]) -> None:
    model = tiny_model("llama")

    report = evaluate(
        beir, model=str(model), method=["classical", "echo"], copies=[2, 3], layer=[1, 2], mode="dense",
        chunks=DOCUMENTS, cache=None,
    )  # fmt: skip

    rows = [row.configuration for row in report.tasks[0].rows]
    assert {(one.method, one.copies, one.layer) for one in rows if one.model == str(model)} == {
        ("classical", None, 1), ("echo", 2, 1), ("echo", 3, 1), ("classical", None, 2), ("echo", 2, 2), ("echo", 3, 2)
    }  # fmt: skip
    assert len({row.name for row in report.tasks[0].rows}) == len(rows)


@pytest.mark.slow
def test_poolings_and_attention_are_axes(beir: Path, tiny_model: Callable[..., Path]) -> None:
    model = tiny_model("llama")

    report = evaluate(
        beir, model=str(model), method="classical", pooling=["mean", "last"], attention=["causal", "bidirectional"],
        mode="dense", chunks=DOCUMENTS, cache=None,
    )  # fmt: skip

    assert list(zip(values_of(report, "pooling"), values_of(report, "attention"), strict=True)) == [
        ("mean", "causal"), ("mean", "bidirectional"), ("last", "causal"), ("last", "bidirectional")
    ]  # fmt: skip


@pytest.mark.slow
def test_words_of_other_chunks_are_another_row(beir: Path, tiny_model: Callable[..., Path]) -> None:
    model = str(tiny_model("llama"))
    options: dict[str, Any] = {"model": ["mini", model], "method": "classical", "mode": "lexical", "cache": None}

    apart = evaluate(beir, chunks=ragidx.ChunkSpec(size=64), **options)
    alike = evaluate(beir, chunks=DOCUMENTS, **options)

    assert values_of(apart, "model") == [None, model]
    assert len({row.name for row in apart.tasks[0].rows}) == 2
    assert values_of(alike, "model") == [None]


def test_an_offset_is_of_the_filters_that_have_it(beir: Path) -> None:
    report = evaluate(
        beir, filter=["embedfilter", "truncation"], offset=[0, 7], tau=8, mode="dense", chunks=DOCUMENTS, cache=None
    )

    assert list(zip(values_of(report, "filter"), values_of(report, "offset"), strict=True)) == [
        ("embedfilter", 0), ("embedfilter", 7), ("truncation", None)
    ]  # fmt: skip


def test_what_cannot_be_is_left_out_with_a_note(beir: Path) -> None:
    report = evaluate(
        beir,
        model=["mini-decoder", "no-such-model"],
        filter=["truncation", "pca"],
        tau=4,
        mode="dense",
        chunks=DOCUMENTS,
        cache=None,
    )

    assert values_of(report, "filter") == ["truncation"]
    assert report.tasks[0].notes[1:] == (
        "Left out of mini-decoder: filter pca: filter 'pca' is to keep 64 directions, and the 24 chunks that it is "
        "fitted on vary in 23.",
        "Left out: model=no-such-model: no model 'no-such-model': neither bundled, nor a GGUF file, a folder or an id "
        "of the form owner/name.",
    )


def test_where_nothing_can_be_measured_the_first_fault_is_an_error(beir: Path) -> None:
    with pytest.raises(ModelError, match="no-such-model"):
        evaluate(beir, model=["no-such-model", "neither"], cache=None)
    with pytest.raises(SpecError, match="filter 'pca' is to keep 64 directions"):
        evaluate(beir, filter=["pca", "whitening"], tau=4, chunks=DOCUMENTS, cache=None)


def test_random_projections_stand_beside_embedfilter_alone(beir: Path) -> None:
    report = evaluate(beir, filter=["embedfilter", "truncation"], tau=8, measure="mrr@10", chunks=DOCUMENTS, cache=None)

    drawn = {row.name: row.chance for row in report.tasks[0].rows}
    assert {name for name, chance in drawn.items() if chance} == {"embedfilter dense", "embedfilter hybrid"}
    low, high = drawn["embedfilter dense"] or (0, 0)
    assert 0.3 < low < high <= 1


def test_names_and_numbers_that_make_no_sense_are_refused_before_anything_is_encoded(
    beir: Path, encoded: list[str]
) -> None:
    for options, message in (
        ({"filter": "embedfiltr"}, "unknown filter 'embedfiltr'"),
        ({"mode": "densse"}, "unknown mode 'densse'"),
        ({"fusion": "sum"}, "unknown fusion 'sum'"),
        ({"measure": "ndcg"}, "unknown measure 'ndcg'"),
        ({"measure": "spearman"}, "unknown measure 'spearman'"),
        ({"dim": 0}, "dim=0 keeps nothing"),
        ({"margin": 0}, "margin=0 allows no loss"),
        ({"margin": -0.5}, "margin=-0.5 allows no loss"),
        ({"margin": float("inf")}, "margin=inf allows any loss"),
        ({"center": "no"}, "center='no' is not true or false"),
        ({"dim": "64"}, "dim='64' is not a whole number"),
        ({"tau": "4"}, "tau='4' is not a number"),
        ({"log": "log.tsv", "all_pairs": True}, "queries without judgements say no row is better"),
        ({"weight": 2}, "weight=2 is not from 0 to 1"),
        ({"index_type": "hnws"}, "hnws"),
        ({"reference": "dim=64 hybird"}, "unknown word of `reference`: 'hybird'; did you mean 'hybrid'?"),
    ):
        assert message in message_of(ragidx.RagidxError, lambda options=options: evaluate(beir, **options))  # type: ignore[misc]
    assert not encoded


def test_more_than_a_thousand_configurations_need_consent(beir: Path) -> None:
    grid: dict[str, Any] = {"dim": range(1, 257), "weight": [0.2, 0.8], "filter": ["truncation", "pca"]}

    assert message_of(SpecError, lambda: evaluate(beir, **grid)) == (
        "the grid has 1,537 configurations, more than 1,000\n"
        "  hint: name fewer values, or say that you mean it: `yes=True`"
    )
