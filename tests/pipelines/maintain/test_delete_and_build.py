"""What a build makes of an index that documents were deleted from: they stay out until they are restored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import DELETED_FILE
from ragidx.indexer.writing.history import rollback
from ragidx.pipelines.ingest.removal import deleted_file, deleted_ids
from ragidx.pipelines.maintain.delete import delete
from ragidx.pipelines.maintain.rewrite import compact

from ...indexer.states import live_vectors
from .conftest import INDEX, documents

Run = Callable[..., Any]


def _bytes() -> dict[str, bytes]:
    return {name: vector.tobytes() for name, vector in live_vectors(INDEX).items()}


@pytest.mark.usefixtures("index")
def test_what_was_deleted_stays_out_and_the_report_counts_it(run: Run) -> None:
    delete(ids=["lease.txt"])

    done = run("build", "corpus")

    assert (done.status, done.err) == (0, "Deleted earlier, skipped: 1 document; --restore adds them again.\n")
    assert "lease.txt" not in documents()
    assert json.loads(run("build", "corpus", "--json").out)["n_deleted_before"] == 1

    delete(ids=documents())  # a corpus of which everything was deleted is not empty
    assert run("build", "corpus").err == "Deleted earlier, skipped: 6 documents; --restore adds them again.\n"


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_what_is_restored_keeps_its_vector_bit_for_bit_and_nothing_is_encoded() -> None:
    before = _bytes()
    delete(ids=["lease.txt", "mill.md"])

    report = ragidx.build("corpus", "ragidx-index", restore=True).report

    assert (report.n_added, report.n_encoded, report.n_chunks_reused) == (2, 0, 2)
    assert _bytes() == before


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_a_record_of_many_stays_out_alone() -> None:
    delete(ids=["facts.jsonl#bees"])

    for _ in range(2):
        report = ragidx.build("corpus", "ragidx-index").report
        assert (report.n_deleted_before, report.n_added, report.n_unchanged, report.committed) == (1, 0, 5, False)


@pytest.mark.usefixtures("index")
def test_it_stays_out_after_compaction_and_a_second_deletion() -> None:
    delete(ids=["lease.txt"])
    compact("ragidx-index", everything=True)
    delete(ids=["mill.md"])

    assert ragidx.build("corpus", "ragidx-index").report.n_deleted_before == 2


@pytest.mark.usefixtures("index")
def test_a_rollback_behind_the_deletion_takes_it_back() -> None:
    delete(ids=["lease.txt"])
    rollback(INDEX, 1)

    report = ragidx.build("corpus", "ragidx-index").report

    assert (report.n_deleted_before, report.n_unchanged) == (0, 6)


@pytest.mark.slow
def test_a_document_of_a_beir_folder_stays_out(folder: Path) -> None:
    (folder / "beir" / "qrels").mkdir(parents=True)
    lines = '{"_id": "a", "text": "One."}\n{"_id": "b", "text": "Two."}\n'
    (folder / "beir" / "corpus.jsonl").write_text(lines)
    ragidx.build("beir", "ragidx-index")
    delete(ids=["a"])

    assert ragidx.build("beir", "ragidx-index").report.n_deleted_before == 1
    assert documents() == ["b"]


@pytest.mark.usefixtures("index")
def test_the_list_of_what_was_deleted_is_a_file_of_the_index() -> None:
    delete(ids=["lease.txt"])

    assert Store.open(INDEX).blob(DELETED_FILE) == b'{"1": ["lease.txt"]}'


def test_the_list_is_read_as_it_was_written() -> None:
    assert deleted_ids(deleted_file({1: {"b", "a\u00e9"}, 2: set()})) == {1: {"a\u00e9", "b"}}
    assert deleted_ids(None) == {}


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"{", "Expecting property name"), (b"[7]", "no attribute"), (b'{"1": [7]}', "no lists of ids")],
)
def test_a_damaged_list_is_an_error(data: bytes, reason: str) -> None:
    with pytest.raises(IndexFormatError, match=reason):
        deleted_ids(data)
