"""Two indexes that are asked what their own sentences say: without these, and as `ragidx.evaluate` measures it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import ragidx
from ragidx import Grid, Questions
from ragidx.corpora.records import Document
from ragidx.indexer.store import Store
from ragidx.pipelines.experiments.evaluate.synthetic import taken_out
from ragidx.pipelines.experiments.trials.trial import Comparison, Trial, queries_of
from ragidx.retriever.searcher import Searcher

from .conftest import files

pytestmark = pytest.mark.slow

SAMPLE = Path(ragidx.__file__).parent / "corpora" / "sample" / "documents"


def index(name: str, **options: object) -> Searcher:
    """Of the sample by vectors alone, two documents of a program, and one that was deleted."""
    made = ragidx.build(SAMPLE, name, lexical=False, **options)
    made.add([Document(f"p{n}", f"A program wrote text {n}. It has no end. Nobody reads it.", {}) for n in range(2)])
    made.delete(["p1"])
    return made.searcher


def test_each_side_is_what_an_evaluation_without_labels_measures(folder: Path) -> None:
    old, new = (
        index("old"),
        index("new", filter=ragidx.FilterSpec("truncation", dim=64), chunks=ragidx.ChunkSpec(size=96)),
    )
    asked = queries_of(old, None, None)
    before = files(Path("old")), files(Path("new"))

    with Trial(old, "tried", asked) as trial:
        found = trial.against(new)

    assert (found.queries, found.n_queries) == ("sentence", len(asked.texts))
    (task,) = ragidx.evaluate("old", grid=Grid(mode="dense"), questions=Questions.made()).tasks
    assert task.values["ndcg@10"][0].mean() == pytest.approx(found.old)
    assert found.difference == pytest.approx(found.new - found.old)
    assert found.low <= found.difference <= found.high
    assert found.lower_bound < found.difference
    after = {name: data for name, data in files(Path("old")).items() if name != "upgrade/LOCK"}
    assert (after, files(Path("new"))) == before


def test_what_asks_is_not_there_to_be_found_and_an_index_loses_nothing_against_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = index("one")
    asked = queries_of(one, None, None)
    seen: list[Store] = []
    ranks = Searcher.rank_documents

    def look(searcher: Searcher, *args: object, **options: object) -> object:
        seen.append(searcher.store)
        return ranks(searcher, *args, **options)

    monkeypatch.setattr(Searcher, "rank_documents", look)
    with Trial(one, "tried", asked) as trial:
        found = trial.against(one)

    assert (found.difference, found.lower_bound, found.p, found.verdict) == (0, 0, 1, "not worse")

    changed = taken_out(asked, (chunk for _, chunk in one.store.chunks()))
    stored = {row.chunk_id: row for row in one.store.rows(range(one.store.n_rows))}
    for store in seen:
        rows = {row.chunk_id: row for row in store.rows(range(store.n_rows))}
        text = "\n".join(row.text for row in rows.values())
        assert not [query for query in asked.texts.values() if query in text]
        assert {name for name in rows if rows[name].text != stored[name].text} == changed.keys() & rows.keys()
        assert rows.keys() == stored.keys()
        same = [name for name in rows if name not in changed]
        assert all(rows[name] == stored[name] for name in same)


def test_queries_for_which_neither_finds_anything_relevant_decide_nothing_nor_do_few(folder: Path) -> None:
    one = index("one")
    asked = queries_of(one, SAMPLE.parent, SAMPLE.parent)
    none = dataclasses.replace(asked, qrels={name: dict.fromkeys(judged, 0) for name, judged in asked.qrels.items()})

    found = list[Comparison]()
    for queries in (asked, none, asked.some(list(asked.texts)[:19])):
        with Trial(one, "tried", queries) as trial:
            found.append(trial.against(one))

    assert [(c.lower_bound, c.verdict) for c in found] == [(0, "not worse"), (0, "undecided"), (0, "undecided")]
    assert (found[1].old, found[1].new) == (0, 0)
