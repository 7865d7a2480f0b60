"""Deleting documents: by id, by a condition, all of it in one commit, and nothing on a mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import BusyError, IndexFormatError, QueryError
from ragidx.indexer.history import rollback
from ragidx.indexer.lock import Lock
from ragidx.indexer.store import Store
from ragidx.pipelines.delete import delete

Run = Callable[..., Any]
HISTORY = 'subject == "history"'  # the old mill, and printing in Korea


def documents(index: str = "ragidx-index") -> list[str]:
    store = Store.open(index)
    found = set()
    for number, segment in enumerate(store.segments):
        dead = store.dead[number]
        names = segment.columns(["doc_id"]).column(0).to_pylist()
        found |= {name for row, name in enumerate(names) if dead is None or not dead[row]}
    return sorted(found)


@pytest.mark.usefixtures("index")
def test_a_document_goes_by_its_id_and_is_found_no_more() -> None:
    report = delete(ids=["lease.txt"])

    assert (report.n_documents, report.n_chunks, report.documents) == (1, 1, ["lease.txt"])
    assert (report.generation, report.committed, report.left_documents, report.left_chunks) == (2, True, 5, 5)
    assert "lease.txt" not in documents()
    hits = ragidx.Retriever.open("ragidx-index").search("who signed the lease?", k=10)
    assert len(hits) == 5
    assert "lease.txt" not in {hit.doc_id for hit in hits}
    assert Store.open("ragidx-index").verify() == []


@pytest.mark.usefixtures("index")
def test_documents_go_by_a_condition_and_by_ids_at_once() -> None:
    report = delete(ids=["lease.txt"], where=HISTORY)

    assert sorted(report.documents) == ["facts.jsonl#printing", "lease.txt", "mill.md"]
    assert documents() == ["facts.jsonl#bees", "facts.jsonl#neptune", "tower.md"]
    assert report.generation == 2


@pytest.mark.usefixtures("index")
def test_a_dry_run_says_what_would_go_and_leaves_the_index_as_it_is() -> None:
    before = documents()

    report = delete(where=HISTORY, dry_run=True)

    assert (report.n_documents, report.committed, report.generation, report.left_documents) == (2, False, 1, 6)
    assert documents() == before


@pytest.mark.usefixtures("index")
def test_a_condition_that_nothing_fulfils_commits_nothing() -> None:
    report = delete(where="year > 3000")

    assert (report.n_documents, report.committed, report.generation) == (0, False, 1)


@pytest.mark.usefixtures("index")
def test_an_index_can_lose_all_its_documents_and_get_them_again() -> None:
    assert delete(where='doc_id != ""').left_chunks == 0
    assert documents() == []
    assert ragidx.Retriever.open("ragidx-index").search("bees", k=3) == []

    rollback(Path("ragidx-index"), 1)

    assert len(documents()) == 6


@pytest.mark.usefixtures("index")
def test_the_next_build_brings_back_what_still_stands_in_the_corpus() -> None:
    delete(ids=["lease.txt"])

    report = ragidx.build("corpus", "ragidx-index")

    assert (report.n_added, report.n_unchanged) == (1, 5)
    assert len(documents()) == 6


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "nothing says which documents to delete\n  hint: give --id or --where"),
        (
            {"ids": ["leese.txt"], "where": HISTORY},
            "--id: the index has no document 'leese.txt'; did you mean 'lease.txt'?\n"
            "  hint: ids are those that queries show; nothing was deleted",
        ),
        (
            {"ids": ["lease.txt", "no", "none"]},
            "--id: the index has no document 'no', and 1 more\n"
            "  hint: ids are those that queries show; nothing was deleted",
        ),
    ],
)
def test_a_mistake_deletes_nothing(asked: dict[str, object], message: str) -> None:
    with pytest.raises(QueryError) as fault:
        delete(**asked)  # type: ignore[arg-type]

    assert str(fault.value) == message
    assert (len(documents()), Store.open("ragidx-index").manifest.generation) == (6, 1)


@pytest.mark.usefixtures("index")
def test_a_wrong_condition_a_writer_and_one_string_are_refused() -> None:
    with pytest.raises(QueryError, match="yeer"):
        delete(where="yeer > 1900")
    with pytest.raises(TypeError, match="expected a list of ids, got one string"):
        delete(ids="lease.txt")
    lock = Lock(Path("ragidx-index"))
    try:
        with pytest.raises(BusyError):
            delete(ids=["lease.txt"])
    finally:
        lock.release()
    with pytest.raises(IndexFormatError, match="there is no such folder"):
        delete("nowhere", ids=["lease.txt"])


@pytest.mark.usefixtures("index")
def test_the_command_tells_what_went_and_what_is_left(run: Run) -> None:
    tried = run("delete", "--where", HISTORY, "--dry-run")
    done = run("delete", "--where", HISTORY)

    assert (tried.status, tried.err) == (0, "")
    assert tried.out.splitlines() == [
        "would be deleted  2 documents, 2 chunks",
        "which             facts.jsonl#printing, mill.md",
        "index             ragidx-index (generation 1, unchanged): 6 documents, 6 chunks",
    ]
    assert done.out.splitlines()[0] == "deleted  2 documents, 2 chunks"
    assert done.out.splitlines()[2] == "index    ragidx-index (generation 2): 4 documents, 4 chunks"
    assert json.loads(run("delete", "--id", "lease.txt", "--json").out)["left_documents"] == 3
    assert run("delete") == (2, "", "Error: nothing says which documents to delete\n  hint: give --id or --where\n")
