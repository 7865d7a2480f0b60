"""`Index(None)`: an index in memory, which is an index in every respect, and gone with the object."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
from pathlib import Path

import pytest

import ragidx
from ragidx import Document, Index, SpecError
from ragidx.pipelines.maintain import create as making

from ..raising import message_of

MILL = Document("mill", "The mill turns.", {"owner": {"name": "Ada", "since": [1790, None]}})


def test_it_is_an_index_in_every_respect(tmp_path: Path) -> None:
    with Index(None) as index, Index(None, create={"dim": 2, "index_type": "flat"}) as vectors:
        assert (repr(index), index.count(), index.search("mill")) == (
            "<ragidx.Index in memory: generation 1, 0 chunks>",
            0,
            [],
        )
        index.add([MILL, Document("lake", "The lake is deep.")])
        index.delete(["lake"])
        index.compact(everything=True)
        [hit] = index.search("mill", where=ragidx.field("owner.name") == "Ada")
        assert (hit.metadata, index.get(["mill"]), index.verify()) == (MILL.metadata, [MILL], [])
        assert [one.generation for one in index.history()] == [3, 2, 1]
        assert ragidx.search([index], "mill")[0].doc_id == "mill"
        index.reindex(tmp_path / "kept")
        vectors.add_vectors(["a"], [[1, 0]])
        assert (vectors.search(vector=[1, 0])[0].doc_id, vectors.info().index.index_type) == ("a", "flat")
    assert Index(tmp_path / "kept").get(["mill"]) == [MILL]


def test_it_is_gone_when_it_is_closed_or_no_longer_used() -> None:
    closed, unused = Index(None), Index(None)
    closed.add(MILL)
    folders = [closed.path, unused.path]
    documents = closed.documents()
    assert len(set(folders)) == 2

    closed.close()
    del unused
    gc.collect()

    assert not any(map(Path.exists, folders))
    assert list(documents) == [MILL]  # a state that is read stays open
    with pytest.raises(ValueError, match="was closed"):
        closed.count()


def test_it_is_in_the_temporary_folder_where_memory_has_no_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(making, "_ROOM", 1 << 80)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with Index(None) as index:
        assert index.path.parent == tmp_path
        assert index.add(MILL) == 1
    assert list(tmp_path.iterdir()) == []


def test_another_process_has_not_got_it_and_leaves_it_alone() -> None:
    index = Index(None)
    index.add(MILL)

    assert message_of(SpecError, lambda: pickle.dumps(index)) == (
        "an index in memory is one process's and one object's alone\n"
        "  hint: give it a folder: ragidx.Index(path, create=True)"
    )
    child = multiprocessing.get_context("fork").Process(target=gc.collect)
    child.start()
    child.join()
    assert index.path.exists()
    assert index.count() == 1
