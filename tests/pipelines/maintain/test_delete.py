"""Deleting documents: by id, by a condition, all of it in one commit, and nothing on a mistake."""

from __future__ import annotations

import dataclasses
import difflib
import errno
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import Disk, Step
from hypothesis import HealthCheck, settings
from hypothesis import given as given_
from hypothesis import strategies as st

import ragidx
from ragidx.corpora.errors import BusyError, IndexFormatError, QueryError, RagidxError
from ragidx.indexer.store import Store
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing.history import rollback
from ragidx.pipelines.maintain.delete import _nearest, delete
from ragidx.pipelines.vectors import RowWriter
from ragidx.retriever import contents

from ...raising import message_of
from .conftest import documents

Run = Callable[..., Any]
HISTORY = 'subject == "history"'  # the old mill, and printing in Korea


@pytest.mark.usefixtures("index")
def test_a_document_goes_by_its_id_and_is_found_no_more() -> None:
    report = delete(ids=["lease.txt"])

    assert (report.n_documents, report.n_chunks, report.documents) == (1, 1, ["lease.txt"])
    assert (report.generation, report.committed, report.n_documents_left, report.n_chunks_left) == (2, True, 5, 5)
    assert "lease.txt" not in documents()
    hits = ragidx.Index("ragidx-index").search("who signed the lease?", k=10)
    assert len(hits) == 5
    assert "lease.txt" not in {hit.doc_id for hit in hits}
    assert verify(Path("ragidx-index")) == []


class Full(Disk):
    """No room any more when the columns of a segment are to be written: everything is encoded by then."""

    def before(self, step: Step) -> None:
        if step.path.name == "chunks.arrow":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(step.path))


@pytest.mark.slow
@pytest.mark.parametrize("where", [HISTORY, 'doc_id == "nobody"'], ids=["something", "nothing"])
def test_what_an_interrupted_build_encoded_is_there_after_a_deletion(index: Path, folder: Path, where: str) -> None:
    (folder / "corpus" / "new.txt").write_text("A new document, encoded and not committed.")
    with Full(folder), pytest.raises(RagidxError, match="No space left on device"):
        ragidx.build("corpus")

    report = delete(where=where)

    assert report.n_documents == (2 if where == HISTORY else 0)
    built = ragidx.build("corpus", exclude=["mill.md", "facts.jsonl"]).report
    assert (built.n_added, built.n_encoded) == (1, 0)


@pytest.mark.usefixtures("index")
def test_with_ids_and_a_condition_both_must_hold() -> None:
    report = delete(ids=["lease.txt", "mill.md"], where=HISTORY)

    assert (report.documents, report.n_documents, report.n_chunks) == (["mill.md"], 1, 1)
    assert "lease.txt" in documents()
    assert delete(ids=["lease.txt"], where=HISTORY).committed is False


@pytest.mark.usefixtures("index")
def test_an_empty_list_of_ids_deletes_nothing_and_commits_nothing() -> None:
    for asked in ({}, {"where": HISTORY}):
        report = delete(ids=[], **asked)
        with ragidx.Index().batch() as batch:
            batch.delete([], **asked)
        assert (report.n_chunks, report.committed, ragidx.Index().generation) == (0, False, 1)


@pytest.mark.usefixtures("index")
def test_a_dry_run_says_what_would_go_and_leaves_the_index_as_it_is() -> None:
    before = documents()

    report = delete(where=HISTORY, dry_run=True)

    assert (report.n_documents, report.committed, report.generation, report.n_documents_left) == (2, False, 1, 6)
    assert documents() == before


@pytest.mark.usefixtures("index")
def test_a_condition_that_nothing_fulfils_commits_nothing() -> None:
    report = delete(where="year > 3000")

    assert (report.n_documents, report.committed, report.generation) == (0, False, 1)


@pytest.mark.usefixtures("index")
def test_an_index_can_lose_all_its_documents_and_get_them_again() -> None:
    assert delete(where='doc_id != ""').n_chunks_left == 0
    assert documents() == []
    assert ragidx.Index("ragidx-index").search("bees", k=3) == []

    rollback(Path("ragidx-index"), 1)

    assert len(documents()) == 6


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "nothing says what to delete\n  hint: give `ids` or `where`"),
        (
            {"ids": ["leese.txt"], "where": HISTORY},
            "`ids`: the index has no document 'leese.txt'; did you mean 'lease.txt'?\n"
            "  hint: ids are those that queries show; nothing was deleted",
        ),
        (
            {"ids": ["lease.txt", "caf\udce9"]},
            "`ids`: the index has no document 'caf?'\n  hint: ids are those that queries show; nothing was deleted",
        ),
        (
            {"ids": ["lease.txt", "no", "none"]},
            "`ids`: the index has no document 'no', and 1 more\n"
            "  hint: ids are those that queries show; nothing was deleted",
        ),
    ],
)
def test_a_mistake_deletes_nothing(asked: dict[str, object], message: str) -> None:
    assert message_of(QueryError, lambda: delete(**asked)) == message  # type: ignore[arg-type]
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
def test_a_deletion_waits_for_another_writer_and_goes_on_from_its_state() -> None:
    begun = threading.Event()

    def add() -> None:
        with ragidx.Index().batch() as batch:
            batch.add([ragidx.Document("faq-1", "The mill opens at nine.")])
            begun.set()
            time.sleep(0.3)

    with ThreadPoolExecutor(1) as other:
        added = other.submit(add)
        assert begun.wait(60)
        report = ragidx.Index().delete(["lease.txt"])
        added.result()

    assert (report.n_documents, report.n_documents_left, report.generation) == (1, 6, 3)
    with pytest.raises(BusyError), ragidx.Index().batch():
        ragidx.Index().delete(["mill.md"], timeout=0.1)


@pytest.mark.usefixtures("index")
def test_the_command_tells_what_went_and_what_is_left(run: Run) -> None:
    tried = run("delete", "--where", HISTORY, "--dry-run")
    done = run("delete", "--where", HISTORY)

    assert (tried.status, tried.err) == (0, "")
    assert done.err == "Builds skip what was deleted; `ragidx build --restore` adds it again.\n"
    assert tried.out.splitlines() == [
        "would be deleted  2 documents, 2 chunks",
        "which             facts.jsonl#printing, mill.md",
        "index             ragidx-index (generation 1, unchanged): 6 documents, 6 chunks",
    ]
    assert done.out.splitlines()[0] == "deleted  2 documents, 2 chunks"
    assert done.out.splitlines()[2] == "index    ragidx-index (generation 2): 4 documents, 4 chunks"
    assert json.loads(run("delete", "--id", "lease.txt", "--json").out)["n_documents_left"] == 3
    assert run("delete") == (2, "", "Error: nothing says what to delete\n  hint: give --id or --where\n")


# documents of several chunks


@pytest.fixture
def long(folder: Path, model: Path) -> Path:
    """An index of two documents of three chunks each, under a heading of their own."""
    (folder / "corpus").mkdir()
    for name in ("one", "two"):
        parts = "".join(f"# {name} {n}\n\n{' '.join([f'{name}{n}'] * 12)}\n\n" for n in range(3))
        (folder / "corpus" / f"{name}.md").write_text(parts)
    ragidx.build("corpus", "ragidx-index", model="tiny", method="classical", chunks=ragidx.ChunkSpec(size=32))
    return folder / "ragidx-index"


@pytest.mark.slow
def test_a_document_of_a_corpus_goes_whole_and_the_report_says_so(long: Path, run: Run) -> None:
    headings = [row.heading for row in contents.rows(ragidx.Index(long).searcher.store, document="one.md")]

    done = run("delete", "--where", 'heading == "one 1"')

    assert 1 < headings.count("one 1") < len(headings)
    assert done.out.splitlines()[:2] == [
        f"deleted  1 document, {len(headings)} chunks: {headings.count('one 1')} match; documents are deleted whole",
        "which    one.md",
    ]
    assert documents() == ["two.md"]


@pytest.mark.slow
def test_a_build_that_restores_brings_the_document_back_whole(long: Path) -> None:
    before = contents.rows(ragidx.Index(long).searcher.store, document="one.md")
    delete(where='heading == "one 1"')

    ragidx.build("corpus", "ragidx-index", restore=True)

    assert contents.rows(ragidx.Index(long).searcher.store, document="one.md") == before


def test_a_chunk_of_a_document_is_no_id_that_can_be_deleted(long: Path) -> None:
    chunk = contents.rows(ragidx.Index(long).searcher.store, document="one.md")[1].chunk_id

    assert message_of(QueryError, lambda: delete(ids=[chunk])) == (
        f"`ids`: '{chunk}' is a chunk of the document 'one.md'\n"
        "  hint: documents of a corpus go whole: give the document's id; nothing was deleted"
    )
    assert documents() == ["one.md", "two.md"]


# rows of given vectors


@pytest.fixture
def given(folder: Path) -> Path:
    """An index of six rows: `r0` to `r3` of the document `d`, `r4` alone, and `d2`, a row of `e`, whose year is 4."""
    with RowWriter(folder / "ragidx-index", 6) as writer:
        names = ["r0", "r1", "r2", "r3", "r4", "d2"]
        owners = ["d", "d", "d", "d", "r4", "e"]
        writer.add_vectors(names, np.eye(6), metadata=[{"year": n} for n in (0, 1, 2, 3, 3, 4)], doc_ids=owners)
        writer.commit()
    return folder / "ragidx-index"


def rows(index: Path) -> list[str]:
    store = Store.open(index)
    return [row.chunk_id for row in store.rows(range(store.n_rows))]


def test_of_given_vectors_just_the_rows_go_that_match(given: Path) -> None:
    tried = delete(where="year >= 2", dry_run=True)
    report = delete(where="year >= 2")

    assert dataclasses.replace(tried, generation=2, committed=True, n_documents_left=1, n_chunks_left=2) == report
    assert (report.n_chunks, report.n_matched, report.n_documents, report.n_documents_partly) == (4, 4, 2, 1)
    assert (report.documents, report.n_documents_left, report.n_chunks_left) == (["d", "r4", "e"], 1, 2)
    assert rows(given) == ["r0", "r1"]
    assert verify(given) == []


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ({"ids": ["d"]}, ["r4", "d2"]),
        ({"ids": ["r1", "d2", "r1"]}, ["r0", "r2", "r3", "r4"]),
        ({"ids": ["d", "r4"], "where": "year == 3"}, ["r0", "r1", "r2", "d2"]),
        ({"ids": ["r1", "e"], "where": "year == 1"}, ["r0", "r2", "r3", "r4", "d2"]),
    ],
    ids=str,
)
def test_an_id_is_a_documents_or_a_rows(asked: dict[str, Any], left: list[str], given: Path) -> None:
    delete(**asked)

    assert rows(given) == left


def test_a_row_that_has_the_name_of_a_document_is_left_where_the_document_is_meant(given: Path) -> None:
    with RowWriter(given, 6) as writer:
        writer.add_vectors(["d"], np.ones((1, 6)), doc_ids=["f"])
        writer.commit()

    delete(ids=["d"])

    assert sorted(rows(given)) == ["d", "d2", "r4"]


def test_an_id_that_neither_a_document_nor_a_row_has_deletes_nothing(given: Path) -> None:
    delete(ids=["r0"])
    assert message_of(QueryError, lambda: delete(ids=["r1", "r0", "r9"])) == (
        "`ids`: the index has no document or row 'r0', and 1 more\n"
        "  hint: ids are those that queries show; nothing was deleted"
    )
    assert len(rows(given)) == 5


def test_the_command_tells_documents_that_lost_a_part_and_where_nothing_matches(given: Path, run: Run) -> None:
    tried = run("delete", "--where", "year >= 2", "--dry-run")
    done = run("delete", "--id", "r0", "--where", "year < 2")
    nothing = run("delete", "--where", "year < 0")

    assert tried.out.splitlines() == [
        "would be deleted  4 chunks: 2 documents whole, a part of 1 document",
        "which             d, r4, e",
        "index             ragidx-index (generation 1, unchanged): 3 documents, 6 chunks",
    ]
    assert done.out.splitlines() == [
        "deleted  1 chunk: a part of 1 document",
        "which    d",
        "index    ragidx-index (generation 2): 3 documents, 5 chunks",
    ]
    assert nothing.err == "Nothing matches --where.\n"
    assert nothing.out.startswith("deleted  0 documents, 0 chunks\n")


def test_no_ids_delete_no_row_and_an_index_that_is_empty_has_nothing_to_delete(given: Path) -> None:
    with ragidx.Index(given).batch() as batch:
        batch.delete([])
        batch.delete([], where="year >= 0")
    assert delete(given, ids=[], where="year >= 0").generation == 1
    delete(where="year >= 0")

    assert (rows(given), delete(where='doc_id == "d"').n_chunks) == ([], 0)
    assert ragidx.Index(given).search_vectors(np.eye(6), k=3) == [[]] * 6
    with pytest.raises(QueryError, match="no document or row 'd'"):
        delete(ids=["d"])


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given_(
    owners=st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    cut=st.integers(1, 6),
    gone=st.integers(0, 2**12 - 1),
    data=st.data(),
)
def test_what_is_deleted_is_what_a_list_comprehension_says(
    owners: list[str], cut: int, gone: int, data: st.DataObject, tmp_path: Path
) -> None:
    names = [f"r{n}" for n in range(len(owners))]
    path = tmp_path / "index"
    with RowWriter(path, 2, replace=True) as writer:
        writer.commit()
    for part in (slice(0, cut), slice(cut, None)):  # two segments, where there are so many rows
        with RowWriter(path, 2) as writer:
            writer.add_vectors(
                names[part],
                np.ones((len(names[part]), 2)),
                metadata=[{"n": n} for n in range(len(names))][part],
                doc_ids=owners[part],
            )
            writer.commit()
    dead = [name for n, name in enumerate(names) if gone >> n & 1]
    if dead:
        delete(path, ids=dead)
    live = [n for n, name in enumerate(names) if name not in dead]
    if not live:
        return
    known = [names[n] for n in live] + [owners[n] for n in live]
    ids = data.draw(st.none() | st.lists(st.sampled_from(known), max_size=3))
    bound = data.draw(st.integers(0, 12))

    report = delete(path, ids=ids, where=f"n < {bound}")

    expected = [n for n in live if n < bound and (ids is None or names[n] in ids or owners[n] in ids)]
    left = [n for n in live if n not in expected]
    before, after = {owners[n] for n in live}, {owners[n] for n in left}
    assert sorted(rows(path)) == sorted(names[n] for n in left)
    assert (report.n_chunks, report.n_documents) == (len(expected), len(before - after))
    assert (report.n_chunks_left, report.n_documents_left) == (len(left), len(after))
    assert report.n_documents_partly == len({owners[n] for n in expected} & after)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("docs/12/page-0350x.md", "docs/12/page-0350.md"),
        ("docs/12/pgae-0351.md", "docs/12/page-0351.md"),
        ("something else", None),
    ],
)
def test_a_wrong_id_is_compared_with_those_around_it_in_a_large_index(
    wrong: str, near: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [f"docs/{number // 400:02}/page-{number % 400:04}.md" for number in range(20_000)]
    compared = list[str]()

    class Counted(difflib.SequenceMatcher[str]):
        def set_seq1(self, a: Sequence[str]) -> None:
            compared.append(str(a))
            super().set_seq1(a)

    monkeypatch.setattr(difflib, "SequenceMatcher", Counted)

    assert _nearest(wrong, known[::-1]) == near
    assert 100 < len(compared) < len(known) / 5


def test_of_few_ids_the_nearest_is_found_wherever_it_is_in_their_order() -> None:
    assert _nearest("xocs/a.md", ["docs/a.md", *(f"more/{number}" for number in range(900))]) == "docs/a.md"
