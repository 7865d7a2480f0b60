"""Narrower copies of vectors belong to the vectors they are made of: those of another index are not opened."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from ragidx.indexer.ann.faiss_files import HEADER_BYTES
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify, verify_committed

ONE = {f"d{n:02d}": [f"t{n} {part}" for part in range(5)] for n in range(40)}
OTHER = {name: [f"other {text}" for text in texts] for name, texts in ONE.items()}


@pytest.fixture
def index(tmp_path, kit) -> Path:
    kit.build(tmp_path / "index", ONE)
    return tmp_path / "index"


def cached(index: Path) -> list[Path]:
    return sorted(index.glob("segments/*/prefix-*"))


def expected(kit, folder: Path, documents: dict[str, list[str]]):
    """What an index of these documents answers that never had another copy beside it."""
    kit.build(folder, documents)
    return Store.open(folder).search(kit.queries(5), 7, dim=3)


def renamed(path: Path, data: bytes) -> Path:
    """The file with these bytes under the name that fits them."""
    _, width, source, _ = path.name.split("-")
    path.unlink()
    named = path.parent / f"prefix-{width}-{source}-{hashlib.sha256(data).hexdigest()[:16]}.faiss"
    named.write_bytes(data)
    return named


def test_the_copy_of_another_index_with_as_many_rows_does_not_answer(index, kit, tmp_path):
    right = expected(kit, tmp_path / "same", ONE)
    assert not np.array_equal(expected(kit, tmp_path / "other", OTHER).scores, right.scores)
    (foreign,) = cached(tmp_path / "other")
    (index / "segments" / "00000001-0000" / foreign.name).write_bytes(foreign.read_bytes())

    found = Store.open(index).search(kit.queries(5), 7, dim=3)

    np.testing.assert_array_equal(found.scores, right.scores)
    assert found.rows == right.rows


def test_a_commit_removes_the_copies_of_other_vectors_and_keeps_its_own(index, kit):
    Store.open(index).search(kit.queries(1), 3, dim=3)
    (own,) = cached(index)
    (own.parent / f"prefix-3-{'0' * 16}-{own.name[-22:]}").write_bytes(own.read_bytes())
    (own.parent / "prefix-notes.txt").write_text("no name of ours")

    kit.build(index, ONE | {"new": ["one"]})

    assert [path.name for path in cached(index)] == [own.name, "prefix-notes.txt"]


def other_number(data: bytes) -> bytes:
    return data[: HEADER_BYTES + 1] + b"\x7f" + data[HEADER_BYTES + 2 :]


@pytest.mark.parametrize("forge", [other_number, lambda data: data[:-16]], ids=["another number", "a row less"])
def test_verify_finds_a_copy_of_other_bytes_under_the_right_name(index, kit, forge):
    Store.open(index).search(kit.queries(1), 3, dim=3)
    (path,) = cached(index)
    forged = renamed(path, forge(path.read_bytes()))

    told = [
        f"{forged}: the file is damaged: it does not hold the first dimensions of the vectors beside it; "
        "it can be made again: delete it"
    ]
    assert verify_committed(index) == verify(index) == told
    forged.unlink()
    assert verify(index) == []


def test_a_number_that_another_processor_rounded_to_its_neighbour_is_no_damage(index, kit):
    Store.open(index).search(kit.queries(1), 3, dim=3)
    (path,) = cached(index)
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES] ^= 1  # the last digit of the first number
    renamed(path, bytes(data))

    assert verify(index) == []
