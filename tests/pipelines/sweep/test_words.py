"""Search by words in a sweep: the quality is that of an index, and what is compared is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ragidx
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.pipelines.demo import sample_corpus
from ragidx.pipelines.evaluate.significance import ndcg
from ragidx.pipelines.sweep.sweep import sweep

SAMPLE = sample_corpus().parent
FILTERS = ["embedfilter", "truncation"]
QUERIES, QRELS = SAMPLE / "queries.jsonl", SAMPLE / "qrels" / "test.tsv"


@pytest.mark.slow
def test_rows_of_words_have_the_quality_of_an_index(tmp_path: Path) -> None:
    report = sweep(SAMPLE / "documents", dims=[255, 64], filters=FILTERS, queries=QUERIES, qrels=QRELS)

    assert [(row.mode, row.filter, row.dim) for row in report.words] == [
        ("lexical", "", 0),
        *(("hybrid", name, dim) for name in FILTERS for dim in (255, 64)),
    ]
    ragidx.build(SAMPLE / "documents", tmp_path / "index", dtype="float32")
    retriever, qrels = ragidx.Index(tmp_path / "index", dtype="float32"), load_qrels(QRELS)
    queries = {name: text for name, text in load_queries(QUERIES).items() if name in qrels}
    for row, options in zip(report.words, ({"mode": "lexical"}, {}, {"dim": 64}), strict=False):
        found = retriever.rank_documents(list(queries.values()), 10, **options)
        values = [ndcg([name for name, _ in one], qrels[query]) for one, query in zip(found, queries, strict=True)]
        assert row.ndcg.mean == pytest.approx(sum(values) / len(values), abs=0.005)  # vectors of a sweep are not stored
    lexical, wide, narrow, *worse = report.words
    assert (lexical.against_lexical, lexical.against_best) == (None, None)
    assert wide.against_best is not None
    assert wide.against_best.mean == 0
    assert [row.against_best and row.against_best.mean for row in worse] == [
        pytest.approx(row.ndcg.mean - wide.ndcg.mean)
        for row in worse  # the best of all filters
    ]
    assert all(row.ndcg.mean < wide.ndcg.mean for row in worse)
    assert narrow.against_lexical is not None
    assert narrow.against_lexical.mean == pytest.approx(narrow.ndcg.mean - lexical.ndcg.mean)
    assert wide.bytes_per_chunk - narrow.bytes_per_chunk == 2 * (256 - 64)
    size = sum(path.stat().st_size for path in tmp_path.glob("index/segments/*/lexical-*.arrow"))
    assert lexical.disk_bytes == pytest.approx(size, rel=0.02)
    assert report.hybrid_recommendation().startswith("In hybrid search take ")
    assert [row["mode"] for row in json.loads(json.dumps(report.to_json()))["words"]] == ["lexical", *["hybrid"] * 4]


@pytest.mark.slow
def test_an_index_is_searched_by_its_own_texts(tmp_path: Path) -> None:
    ragidx.build(SAMPLE / "documents", tmp_path / "index", filter="none")

    filters = ["embedfilter", "truncation"]
    report = sweep(tmp_path / "index", dims=[255, 32], filters=filters, queries=QUERIES, qrels=QRELS)

    found = [(row.mode, row.filter, row.dim) for row in report.words]
    assert found == [("lexical", "", 0), *(("hybrid", name, dim) for name in filters for dim in (255, 32))]
    assert report.words[0].ndcg.mean > 0.8
    hybrid = [(row.ndcg.mean, row.against_best) for row in report.words[1:]]
    best = max(mean for mean, _ in hybrid)  # of all filters: each narrow width is compared with it
    assert all(one is not None and one.mean == pytest.approx(mean - best) for mean, one in hybrid)


@pytest.mark.slow
def test_without_judged_questions_in_words_there_are_no_such_rows(tmp_path: Path) -> None:
    report = sweep(SAMPLE / "documents", dims=[64])

    assert report.words == ()
    assert report.hybrid_recommendation() == ""
