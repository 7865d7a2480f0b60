"""Bytes that changed by chance, files that became something else: it is named, or no answer depends on it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fault_index import BLOBS, DOCUMENTS, KEPT, NOT_READ, READ, SEED, offsets, path_of
from fault_operations import tree_of
from states import state_of

from ragidx.corpora.errors import IndexFormatError, RagidxError
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify

pytestmark = pytest.mark.slow


@pytest.fixture
def index(every_kind, tmp_path) -> Path:
    shutil.copytree(every_kind, tmp_path / "index")
    return tmp_path / "index"


def test_these_are_all_the_files_of_an_index(index):
    ours = {path_of(index, name) for name in (*READ, *KEPT, *NOT_READ)}

    assert ours == {path for path in index.rglob("*") if path.is_file()}


def flip_each(index: Path, name: str, most: int, check: Callable[[Path, int], None]) -> None:
    path = path_of(index, name)
    whole = path.read_bytes()
    rng = random.Random(f"{SEED}-{name}-bits")
    for place in offsets(len(whole), name, most):
        changed = bytearray(whole)
        changed[place] ^= rng.randrange(1, 256)
        path.write_bytes(changed)
        check(path, place)
    path.write_bytes(whole)


def check_named(index: Path, path: Path, place: int = -1) -> None:
    """Opening ends in one error that names the file, and `verify` has one line, which does as well."""
    with pytest.raises(IndexFormatError) as caught:
        Store.open(index)
    assert caught.value.where == str(path), f"byte {place}"
    assert "damaged" in caught.value.message or caught.value.message in (
        "the file is missing",
        "it is not a plain file",
    )
    assert [line.split(": ")[0] for line in verify(index)] == [str(path)], f"byte {place}"


@pytest.mark.parametrize("name", READ)
def test_a_flipped_byte_is_named(index, name):
    flip_each(index, name, 100, lambda path, place: check_named(index, path, place))

    assert verify(index) == []


@pytest.mark.parametrize("name", [*KEPT, *NOT_READ])
def test_a_flipped_byte_in_what_the_state_does_not_consist_of_changes_no_answer(index, name, kit):
    """`verify` names it where something can be lost with it."""
    before, tree = state_of(index), tree_of(index)

    def check(path: Path, place: int) -> None:
        assert state_of(index) == before, f"byte {place}"
        assert [line.split(": ")[0] for line in verify(index)] == [str(path)] * (name in KEPT), f"byte {place}"
        with kit.writer(index, index_type="hnsw", blobs=BLOBS) as writer:
            rows = kit.rows("later", ["encoded, not committed"])
            known = writer.reuse([rows[0].text_hash])
            right = kit.vectors(rows)[0].astype(np.float16).astype(np.float32)
            assert all(np.array_equal(vector, right) for vector in known.values())
        shutil.rmtree(index)
        shutil.copytree(index.parent / "copy", index)

    shutil.copytree(index, index.parent / "copy")
    flip_each(index, name, 20, check)
    assert tree_of(index) == tree


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "cut in half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "emptied": lambda path: os.truncate(path, 0),
    "longer": lambda path: os.truncate(path, path.stat().st_size + 1),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a sparse giant": lambda path: os.truncate(path, 1 << 42),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link": lambda path: (path.rename(path.parent / "x"), path.symlink_to(path.parent / "x")),
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to("nothing")),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", READ)
def test_a_file_that_became_something_else_is_named(index, name, damage):
    path = path_of(index, name)
    DAMAGES[damage](path)

    check_named(index, path)


@pytest.mark.parametrize("name", READ[1:])
def test_a_file_that_is_gone_is_named(index, name):
    path = path_of(index, name)
    path.unlink()

    check_named(index, path)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", KEPT)
def test_a_kept_manifest_that_became_something_else_is_named_until_it_goes(index, name, damage, kit):
    path, before = path_of(index, name), state_of(index)
    DAMAGES[damage](path)

    assert [line.split(": ")[0] for line in verify(index)] == [str(path)]
    assert state_of(index) == before
    for number in range(3):
        kit.build(index, {"only": [f"text {number}"]}, index_type="hnsw", blobs=BLOBS)
    assert not os.path.lexists(path)
    assert verify(index) == []


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["LOCK", "journal/ffffffffffffffff.bin"])
def test_a_lock_or_journal_that_became_something_else_is_overcome_or_told(index, name, damage, kit):
    """A reader opens neither. A writer begins a cut file anew, and ends with one error where there is none to write."""
    before = state_of(index)
    DAMAGES[damage](index / name)

    told = None
    try:
        kit.build(index, DOCUMENTS, index_type="hnsw", blobs=BLOBS)
    except RagidxError as fault:
        told = fault

    if told is None:
        assert {chunk[0] for chunk in state_of(index).content.chunks.values()} == set(DOCUMENTS)
    else:
        assert (told.where, told.message.partition(": ")[0]) == (str(index / name), "cannot write")
        assert state_of(index) == before
    assert verify(index) == []
