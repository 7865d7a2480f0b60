"""Rows that were deleted by hand: builds of the file leave them out until they are restored, a program may add them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ragidx import Index
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import DELETED_FILE
from ragidx.pipelines.maintain.delete import delete
from ragidx.pipelines.maintain.rewrite import compact
from ragidx.pipelines.vectors import RowWriter, build_vectors

from .conftest import AXES, content_of, table_of

Run = Callable[..., Any]
TABLE = table_of(id=list("abcd"), text=["one", "two", "three", "four"], doc_id=list("xxyy"))


@pytest.fixture
def vectors(write: Callable[..., Path]) -> Path:
    return write(TABLE)


@pytest.fixture
def index(vectors: Path, tmp_path: Path) -> Path:
    build_vectors(vectors, tmp_path / "index")
    return tmp_path / "index"


@pytest.mark.slow
def test_rows_stay_out_and_the_report_counts_them(run: Run, vectors: Path, index: Path) -> None:
    done = run("delete", "--id", "b", "--index", str(index))
    assert done.err == "Builds skip what was deleted; `ragidx build --restore` adds it again.\n"

    for _ in range(2):
        done = run("build", "--vectors", str(vectors), "--index", str(index))
        assert (done.status, done.err) == (0, "Deleted earlier, skipped: 1 row; --restore adds them again.\n")
    assert sorted(content_of(index)) == ["a", "c", "d"]
    assert (
        json.loads(run("build", "--vectors", str(vectors), "--index", str(index), "--json").out)["n_deleted_before"]
        == 1
    )

    restored = run("build", "--vectors", str(vectors), "--index", str(index), "--restore")
    assert restored.err == ""
    assert sorted(content_of(index)) == list("abcd")
    assert build_vectors(vectors, index).n_deleted_before == 0


def test_a_document_goes_with_its_rows_and_only_new_rows_of_it_come_in(
    vectors: Path, index: Path, write: Callable[..., Path]
) -> None:
    delete(index, ids=["x"])
    assert json.loads(Store.open(index).blob(DELETED_FILE)) == {"0": ["a", "b"]}
    report = build_vectors(write(table_of(id=list("abce"), doc_id=list("xxyx"))), index)

    assert (report.n_deleted_before, report.n_removed, report.n_documents) == (2, 1, 2)
    assert sorted(content_of(index)) == ["c", "e"]


@pytest.mark.parametrize("change", [lambda index: compact(index, everything=True), lambda index: None])
def test_a_build_of_a_file_of_which_all_is_deleted_changes_nothing(
    change: Callable[[Path], Any], vectors: Path, index: Path
) -> None:
    delete(index, where='doc_id == "x"')
    change(index)
    delete(index, ids=["c", "d"])

    report = build_vectors(vectors, index)

    assert (report.n_deleted_before, report.n_chunks, report.committed) == (4, 0, False)


def test_a_row_that_a_program_adds_is_in_again_for_later_builds_too(vectors: Path, index: Path) -> None:
    delete(index, ids=["a", "b"])
    with RowWriter(index, 4) as writer:
        writer.add_vectors(["a"], AXES[:1], ["one"], doc_ids=["x"])
        writer.commit()
        assert writer.n_added == 1

    report = build_vectors(vectors, index)

    assert (report.n_deleted_before, report.n_unchanged, report.n_removed) == (1, 3, 0)
    assert sorted(content_of(index)) == ["a", "c", "d"]


def test_a_broken_row_that_was_deleted_is_left_out_and_not_reported(
    vectors: Path, index: Path, write: Callable[..., Path]
) -> None:
    delete(index, ids=["a"])

    report = build_vectors(write(table_of([[0, 0, 0, 0], *AXES[1:]], id=list("abcd"))), index)

    assert (report.n_deleted_before, report.skipped) == (1, {})


def test_a_build_that_replaces_the_index_takes_all_in(vectors: Path, index: Path) -> None:
    delete(index, ids=["a"])

    assert (build_vectors(vectors, index, rebuild=True).n_chunks, len(content_of(index))) == (4, 4)


def test_a_document_of_which_a_batch_replaced_a_row_is_deleted_whole(vectors: Path, index: Path) -> None:
    with Index(index).batch() as batch:
        batch.add_vectors(["a"], AXES[3:], doc_ids=["x"])
        batch.delete(["x"])

    assert build_vectors(vectors, index).n_deleted_before == 2
    assert sorted(content_of(index)) == ["c", "d"]


@pytest.mark.slow
def test_what_another_writer_deletes_stays_out_where_one_waited_for_it(vectors: Path, index: Path) -> None:
    other = Index(index)
    with ThreadPoolExecutor(1) as threads:
        with Index(index).batch() as batch:
            waits = threads.submit(other.add_vectors, ["e"], AXES[:1], timeout=60)
            time.sleep(0.5)
            batch.delete(["a"])
        waits.result()

    assert build_vectors(vectors, index).n_deleted_before == 1
