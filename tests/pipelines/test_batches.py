"""What a batch takes: documents or given vectors, the wrong one named; deletions by ids and by a condition."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ragidx import BusyError, ChunkSpec, Document, Index, QueryError, SpecError


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.create(tmp_path / "index", chunks=ChunkSpec(size=16))


def test_an_index_holds_texts_or_vectors_and_the_wrong_one_names_the_other(index: Index, tmp_path: Path) -> None:
    given = Index.create(tmp_path / "given", dim=3)
    given.add_vectors(["a", "b"], np.eye(2, 3), texts=["one", "two"])

    assert given.search(vector=[0, 1, 0], k=1)[0].chunk_id == "b"
    with pytest.raises(SpecError, match="give it vectors: `add_vectors`"):
        given.add([Document("a", "x")])
    with pytest.raises(SpecError, match="give it documents: `add`"):
        index.add_vectors(["a"], [[1.0]])
    with pytest.raises(SpecError, match="there is an index already"):
        Index.create(index.path)
    with pytest.raises(SpecError, match=r"remove `model`; the dimensions of encoded texts are `filter=ragidx.Filter"):
        Index.create(tmp_path / "both", dim=3, model="mini")
    assert Index.create(index.path, exist_ok=True).count() == 0


def test_a_batch_deletes_by_a_condition_on_what_the_index_held_before(index: Index) -> None:
    index.add([Document(name, f"The {name}.", {"year": year}) for name, year in (("mill", 1), ("lake", 2), ("sea", 3))])

    with index.batch() as batch:
        batch.add([Document("lake", "Another lake.", {"year": 3}), Document("hill", "The hill.", {"year": 3})])
        batch.delete(where="year <= 3")
        batch.delete(["hill", "nobody"], missing="skip")
        with pytest.raises(QueryError, match="the index has no document 'nobody'"):
            batch.delete(["nobody"])
        with pytest.raises(QueryError, match="nothing says what to delete"):
            batch.delete()

    assert [one.id for one in index.documents()] == ["lake"]
    assert index.delete(["nobody", "lake"], missing="skip").documents == ["lake"]
    assert not index.delete(["nobody"], missing="skip").committed


def test_a_batch_of_given_vectors_is_one_commit_or_none(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "given", dim=4)
    years: list[dict[str, object]] = [{"year": 1}, {"year": 2}, {"year": 3}]
    with index.batch() as batch:
        batch.add_vectors(["a", "b", "c"], np.eye(3, 4), metadata=years, doc_ids=["x", "x", "y"])
        with pytest.raises(SpecError, match="give it vectors: `add_vectors`"):
            batch.add([Document("a", "x")])
    before = index.generation

    with index.batch() as batch:
        batch.delete(where="year == 1")
        batch.delete(["y", "none"], missing="skip")
        batch.add_vectors(["d"], [[0, 0, 0, 1]])
        assert (batch.n_added, index.generation) == (1, before)
    with contextlib.suppress(RuntimeError), index.batch() as batch:
        batch.add_vectors(["e"], [[1, 1, 0, 0]])
        raise RuntimeError

    assert index.generation == before + 1
    rows = [row["chunk_id"] for batch in index.to_batches(["chunk_id"]) for row in batch.to_pylist()]
    assert sorted(rows) == ["b", "d"]
    with index.batch(), pytest.raises(BusyError, match="is being written by process"):
        Index(index.path).add_vectors(["f"], [[1, 0, 0, 0]], timeout=0.1)


class Counted(Document):
    """A document that can be referred to weakly, to see how long it lives."""


def test_a_batch_holds_a_window_of_documents_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragidx.pipelines.maintain.batch.WINDOW_CHARS", 10_000)
    index, gone, most = Index.create(tmp_path / "whole", chunks=ChunkSpec(size=None)), list[int](), 0

    def documents() -> Iterator[Document]:
        nonlocal most
        for number in range(300):  # of 720 characters each
            document = Counted(f"d{number}", f"{number:4} mills. " * 60)
            weakref.finalize(document, gone.append, number)
            most = max(most, number + 1 - len(gone))
            yield document

    index.add(documents())

    assert index.count() == 300
    assert most <= 20


def test_threads_that_share_an_index_wait_for_each_other(index: Index) -> None:
    def add(number: int) -> int:
        return index.add([Document(f"{number}", "The mill.")])

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(add, range(12))) == [1] * 12

    assert (index.count(), index.generation) == (12, 13)
