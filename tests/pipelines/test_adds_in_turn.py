"""An index that stays open adds, and adds again: what it keeps of its last commit is no older than the folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ragidx import ChunkSpec, Document, Index, RagidxError
from ragidx.indexer.store.files import SEGMENTS

_ADD = "import sys, ragidx; ragidx.Index(sys.argv[1]).add([ragidx.Document(sys.argv[2], 'the owl of another')])"


@pytest.fixture
def index(tmp_path: Path) -> Index:
    made = Index.create(tmp_path / "index", chunks=ChunkSpec(size=16))
    made.add([Document("mill", "The mill by the river.")])
    return made


def _ids(index: Index) -> list[str]:
    """As the open index has them, and as one that is opened now: they are the same, and every byte is right."""
    ids = sorted(one.id for one in index.documents())
    fresh = Index(index.path)
    assert sorted(one.id for one in fresh.documents()) == ids
    fresh.verify()
    return ids


def test_another_process_adds_between_two_adds(index: Index) -> None:
    subprocess.run([sys.executable, "-c", _ADD, str(index.path), "owl"], check=True)
    index.add([Document("lake", "The lake.")])

    assert _ids(index) == ["lake", "mill", "owl"]


def test_a_rollback_between_two_adds(index: Index) -> None:
    before = index.history()[0].generation
    index.add([Document("lake", "The lake.")])
    Index(index.path).rollback(before)
    index.add([Document("sea", "The sea.")])

    assert _ids(index) == ["mill", "sea"]


@pytest.mark.parametrize("size", [16, 24])
def test_another_index_takes_the_place_of_the_folder(index: Index, tmp_path: Path, size: int) -> None:
    other = Index.create(tmp_path / "other", chunks=ChunkSpec(size=size))
    other.add([Document("hill", "The hill.")])
    shutil.rmtree(index.path)
    other.path.rename(index.path)
    index.add([Document("sea", "The sea.")])

    assert _ids(index) == ["hill", "sea"]


def test_a_folder_that_is_gone_is_not_made_again(index: Index) -> None:
    shutil.rmtree(index.path)
    with pytest.raises(RagidxError, match="there is no such folder"):
        index.add([Document("sea", "The sea.")])

    assert not index.path.exists()


def test_what_another_writer_left_is_removed_by_the_next_add(index: Index) -> None:
    left = index.path / SEGMENTS / "00000099-0000"
    left.mkdir()
    (left / "chunks.arrow").write_bytes(b"half")
    (index.path / ".manifest.json.1-0.tmp").write_bytes(b"half")
    index.add([Document("lake", "The lake.")])

    assert not left.exists()
    assert not list(index.path.glob("*.tmp"))


def test_an_add_works_after_one_that_failed(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, left = os.fsync, [3]

    def failing(handle: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(RagidxError, match="cannot write"):
        index.add([Document("lake", "The lake.")])
    monkeypatch.undo()
    assert _ids(index) == ["mill"]
    index.add([Document("lake", "The lake.")])

    assert _ids(index) == ["lake", "mill"]
