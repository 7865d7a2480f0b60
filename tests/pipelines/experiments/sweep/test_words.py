"""Search by words in a sweep: the quality is that of an index, and each row is compared with words alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.pipelines.cli.demo import sample_corpus

from ....measuring import ndcg_at_10
from .conftest import sweep

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("briefly")]

SAMPLE = sample_corpus().parent
FILTERS = ["embedfilter", "truncation"]
QUERIES, QRELS = SAMPLE / "queries.jsonl", SAMPLE / "qrels" / "test.tsv"


def test_rows_of_words_have_the_quality_of_an_index(tmp_path: Path) -> None:
    report = sweep(
        SAMPLE / "documents", model="mini-decoder", dim=[255, 64], filter=FILTERS, queries=QUERIES, qrels=QRELS
    )

    task = report.tasks[1]
    assert task.name == "documents, with words"
    made = [(row.configuration.mode, row.configuration.filter, row.configuration.dim) for row in task.rows]
    hybrid = [("none", 256), *((name, dim) for name in FILTERS for dim in (255, 64))]
    assert made == [("lexical", None, None), *(("hybrid", *one) for one in hybrid)]
    ragidx.build(SAMPLE / "documents", tmp_path / "index", model="mini-decoder", dtype="float32")
    retriever, qrels = ragidx.Index(tmp_path / "index", dtype="float32"), load_qrels(QRELS)
    queries = {name: text for name, text in load_queries(QUERIES).items() if name in qrels}
    lexical, _, wide, narrow, *_ = task.rows
    for row, options in ((lexical, {"mode": "lexical"}), (wide, {}), (narrow, {"dim": 64})):
        answers = retriever.rank_documents(list(queries.values()), 100, **options)
        run = {name: dict(hits) for name, hits in zip(queries, answers, strict=True)}
        assert row.interval.mean == pytest.approx(ndcg_at_10(qrels, run), abs=0.005)  # rounding is another
    size = sum(path.stat().st_size for path in tmp_path.glob("index/segments/*/lexical-*.arrow"))
    assert lexical.costs is not None
    assert lexical.costs.disk_bytes == pytest.approx(size, rel=0.02)
    assert wide.bytes is not None
    assert narrow.bytes is not None
    assert wide.bytes - narrow.bytes == pytest.approx(2 * (256 - 64))


def test_every_row_is_compared_with_words_alone_and_the_choice_is_among_all_filters() -> None:
    report = sweep(
        SAMPLE / "documents", model="mini-decoder", dim=[255, 32], filter=FILTERS, queries=QUERIES, qrels=QRELS
    )

    task = report.tasks[1]
    lexical, *others = task.rows
    assert lexical.against is None
    assert [row.against and row.against.mean for row in others] == [
        pytest.approx(row.interval.mean - lexical.interval.mean) for row in others
    ]
    assert task.choice is not None
    best = max(range(len(task.rows)), key=lambda number: task.rows[number].interval.mean)
    shown = {one.number: one for one in task.choice.tested}
    apart = np.array([task.values["ndcg@10"][number] - task.values["ndcg@10"][best] for number in shown])
    for number, mean in zip(shown, apart.mean(axis=1), strict=True):
        assert shown[number].low <= mean + 1e-9  # against the best of every filter, not of its own


def test_an_index_is_searched_by_its_own_texts(tmp_path: Path) -> None:
    ragidx.build(SAMPLE / "documents", tmp_path / "index", model="mini-decoder", filter="none")

    report = sweep(tmp_path / "index", dim=[255, 32], filter=["embedfilter"], queries=QUERIES, qrels=QRELS)

    made = [(row.configuration.mode, row.configuration.dim) for row in report.tasks[1].rows]
    assert made == [("lexical", None), *(("hybrid", dim) for dim in (256, 255, 32))]
    assert report.tasks[1].rows[0].interval.mean > 0.8


def test_without_judged_questions_in_words_there_are_no_such_rows() -> None:
    report = sweep(SAMPLE / "documents", model="mini-decoder", dim=[64])

    assert [task.name for task in report.tasks] == ["documents"]
