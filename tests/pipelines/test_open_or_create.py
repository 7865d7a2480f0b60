"""`Index(path, create=...)`: an index is opened, or made by the first write; and one that shows the newest state."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from ragidx import Document, Index, IndexFormatError, SpecError

from ..raising import message_of

MILL, LAKE = Document("mill", "The mill turns."), Document("lake", "The lake is deep.")


def test_the_first_write_makes_it_and_it_is_opened_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with Index(path, create=True) as index:
        assert (index.count(), index.search("mill"), list(index.documents()), index.refresh()) == (0, [], [], False)
        assert not path.exists()
        assert index.add([MILL]) == 1
        assert (index.count(), index.search("mill")[0].doc_id, index.verify()) == (1, "mill", [])
    with Index(path, create={"index_type": "hnsw"}) as again:  # options are of one that is not there
        assert (again.count(), again.info().index.index_type) == (1, "auto")


@pytest.mark.parametrize("makes_a_folder", [True, False])
def test_its_options_say_what_is_made(tmp_path: Path, makes_a_folder: bool) -> None:
    if makes_a_folder:
        (tmp_path / "index").mkdir()
    index = Index(tmp_path / "index", create={"dim": 2, "index_type": "flat"})

    assert (index.search(vector=[1, 0]), index.info().dim) == ([], 2)
    index.add_vectors(["a"], [[1, 0]])
    assert (index.search(vector=[1, 0])[0].doc_id, Index(tmp_path / "index").info().index.index_type) == ("a", "flat")


def test_what_another_one_made_meanwhile_is_taken(tmp_path: Path) -> None:
    first, second = (Index(tmp_path / "index", create=True) for _ in range(2))
    third: Index = pickle.loads(pickle.dumps(first))

    first.add(MILL)

    assert (second.count(), second.refresh(), second.count()) == (0, True, 1)
    third.add(LAKE)
    assert third.count() == 2


def test_threads_that_write_first_make_one_index(tmp_path: Path) -> None:
    indexes = [Index(tmp_path / "index", create=True) for _ in range(4)]
    writes = [
        threading.Thread(target=index.add, args=(Document(f"d{n}", f"Text {n}."),)) for n, index in enumerate(indexes)
    ]
    for write in writes:
        write.start()
    for write in writes:
        write.join()

    assert sorted(one.id for one in Index(tmp_path / "index").documents()) == ["d0", "d1", "d2", "d3"]


def test_each_call_shows_the_newest_state_where_that_is_asked(tmp_path: Path) -> None:
    writer = Index(tmp_path / "index", create=True)
    newest, fixed = Index(tmp_path / "index", create=True, refresh="auto"), Index(tmp_path / "index", create=True)

    writer.add(MILL)
    assert (newest.count(), fixed.count()) == (1, 0)
    writer.add(LAKE)
    assert ([hit.doc_id for hit in newest.search("lake", k=1)], pickle.loads(pickle.dumps(newest)).count()) == (
        ["lake"],
        2,
    )
    with newest.batch() as batch:
        batch.delete(["lake"])
        assert newest.count() == 2
    assert newest.count() == 1


def test_what_cannot_be_made_or_opened_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    odd: Any = "always"

    with pytest.raises(IndexFormatError, match="it is a file, not a folder"):
        Index(tmp_path / "file", create=True)
    with pytest.raises(IndexFormatError, match="it is not an index"):
        Index(tmp_path / "other", create=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'dims'"):
        Index(tmp_path / "index", create={"dims": 3})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(SpecError, match="is about encoding"):
        Index(tmp_path / "index", create={"dim": 3, "model": "mini"})
    assert message_of(SpecError, lambda: Index(tmp_path / "index", refresh=odd)) == (
        "`refresh`: refresh is 'always'\n  hint: give \"auto\" or None"
    )
    with pytest.raises(IndexFormatError):
        Index(tmp_path / "index")
