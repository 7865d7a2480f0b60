"""Kept generations and going back: the state of before, by a commit of its own."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_reader import canonical, flip
from faults import Disk, Unreadable
from states import content_of, texts_of

from ragidx.corpora.errors import BusyError, IndexFormatError, SpecError
from ragidx.indexer.store import Store
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.manifest import files_of, read_manifest
from ragidx.indexer.store.verify import line_of, verify
from ragidx.indexer.writing.history import ROLLED_BACK, history, rollback
from ragidx.indexer.writing.vacuum import vacuum

from ...raising import message_of

STATES = [
    {"ant.txt": ["an ant", "two ants"], "bee.txt": ["a bee"]},
    {"ant.txt": ["an ant", "three ants"], "bee.txt": ["a bee"]},
    {"bee.txt": ["a bee"], "cat.txt": ["a cat"]},
]


@pytest.fixture
def index(tmp_path: Path, kit: Any) -> Path:
    for state in STATES:
        kit.build(tmp_path / "index", state, compact=False)
    return tmp_path / "index"


def state(number: int) -> list[str]:
    return sorted(text for chunks in STATES[number - 1].values() for text in chunks)


def test_the_kept_generations_are_listed_the_committed_one_first(index: Path, kit: Any) -> None:
    assert [manifest.generation for manifest in history(index)] == [3, 2, 1]

    kit.build(index, STATES[0])

    assert [manifest.generation for manifest in history(index)] == [4, 3, 2]


@pytest.mark.slow
@pytest.mark.parametrize("generation", [1, 2])
def test_going_back_is_a_commit_of_what_was_held(index: Path, generation: int, kit: Any) -> None:
    segments = set((index / "segments").iterdir())

    made = rollback(index, generation)

    store = Store.open(index)
    assert (made.generation, made.notes[ROLLED_BACK]) == (4, generation)
    assert store.manifest == made
    assert texts_of(index) == state(generation)
    assert set((index / "segments").iterdir()) <= segments  # none is written
    assert verify(store.path) == []
    queries = kit.queries(3)
    assert np.isfinite(store.search(queries, 2).scores).all()


def test_going_back_can_be_undone(index: Path) -> None:
    rollback(index, 1)
    rollback(index, 3)

    assert [manifest.generation for manifest in history(index)] == [5, 4, 3]
    assert texts_of(index) == state(3)


def test_the_state_that_is_committed_is_not_committed_again(index: Path) -> None:
    before = {path: path.read_bytes() for path in index.rglob("*") if path.is_file() and path.name != "LOCK"}

    assert rollback(index, 3).generation == 3
    assert before == {path: path.read_bytes() for path in index.rglob("*") if path.is_file() and path.name != "LOCK"}


def test_a_build_goes_on_from_the_state_gone_back_to(index: Path, kit: Any) -> None:
    rollback(index, 1)

    _, encoded = kit.build(index, STATES[2])

    assert texts_of(index) == state(3)
    assert encoded == 1  # the cat; the bee stood in both


def test_a_reader_keeps_the_state_it_opened(index: Path) -> None:
    reader = Store.open(index)

    rollback(index, 1)

    assert reader.manifest.generation == 3
    assert reader.rows([0])[0].text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("generation", "kept"), [(9, "3, 2"), (1, "3, 2")], ids=["one that never was", "one that is gone"]
)
def test_a_generation_that_is_not_kept_is_refused(index: Path, generation: int, kept: str, kit: Any) -> None:
    kit.build(index, STATES[0])

    assert message_of(SpecError, lambda: rollback(index, generation)) == (
        f"{index}: generation {generation} of the index is not kept\n"
        f"  hint: kept: {kept}; build again from the corpus as it was"
    )


DAMAGED: dict[str, Callable[[Path], None]] = {
    "flipped": flip,
    "gone": Path.unlink,
    "cut": lambda path: os.truncate(path, 9),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize(
    "name", ["segments/00000003-0000/vectors.faiss", "segments/00000003-0000/chunks.arrow", "deletions/00000003.arrow"]
)
def test_what_the_committed_state_alone_has_does_not_bar_the_way_back(index: Path, name: str, damage: str) -> None:
    DAMAGED[damage](index / name)

    with pytest.raises(IndexFormatError) as caught:
        Store.open(index)
    assert caught.value.where == str(index / name)
    assert caught.value.hint == (
        "put it back from a copy, go back with 'ragidx rollback 2', or build again with `rebuild=True`"
    )
    assert [manifest.generation for manifest in history(index)] == [3, 2, 1]
    assert rollback(index, 2).generation == 4
    assert texts_of(index) == state(2)


def test_a_writer_names_the_way_back_too(index: Path, kit: Any) -> None:
    flip(index / "segments/00000003-0000/vectors.faiss")

    with pytest.raises(IndexFormatError, match="go back with 'ragidx rollback 2'"):
        kit.writer(index)


def test_the_way_back_is_to_the_newest_generation_that_is_whole(index: Path) -> None:
    flip(index / "segments/00000003-0000/vectors.faiss")
    flip(index / "segments/00000002-0000/vectors.faiss")

    with pytest.raises(IndexFormatError, match="go back with 'ragidx rollback 1'"):
        Store.open(index)
    with pytest.raises(IndexFormatError, match=r"00000002-0000/vectors\.faiss: the file is damaged"):
        rollback(index, 2)
    assert rollback(index, 1).generation == 4


def test_a_file_that_every_generation_needs_has_no_way_back(index: Path) -> None:
    flip(index / "segments/00000001-0000/vectors.faiss")  # of the bee, who was there from the first

    with pytest.raises(IndexFormatError) as caught:
        Store.open(index)

    assert caught.value.hint == "put it back from a copy, or build again with `rebuild=True`"


def test_a_damaged_state_is_not_gone_back_to_though_it_is_the_committed_one(index: Path) -> None:
    flip(index / "segments/00000003-0000/vectors.faiss")

    with pytest.raises(IndexFormatError, match="its checksum differs"):
        rollback(index, 3)


def test_one_writer_at_a_time(index: Path) -> None:
    with Lock(index), pytest.raises(BusyError):
        rollback(index, 1)


def test_a_folder_that_is_no_index_is_told(tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match="there is no such folder"):
        rollback(tmp_path / "none", 1)
    with pytest.raises(IndexFormatError, match="there is no such folder"):
        history(tmp_path / "none")


# An earlier manifest that is damaged, and one that cannot be read now.

LOST = "there is no rollback to generation 2; the committed state is not touched"
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a flipped byte": (
        lambda whole: whole[:9] + bytes([whole[9] ^ 1]) + whole[10:],
        "checksum: it does not fit the rest",
    ),
    "no last byte": (lambda whole: whole[:-1], "checksum: it does not fit the rest"),
    "nothing": (lambda whole: b"", "Expecting value: line 1 column 1 (char 0)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest_is_named_wherever_its_generation_is_asked_for(index: Path, damage: str) -> None:
    path = index / "manifest.2.json"
    change, told = DAMAGES[damage]
    path.write_bytes(change(path.read_bytes()))
    message, hint = f"{path}: the manifest is damaged: {told}", f"put it back from a copy; without it {LOST}"
    faults: list[IndexFormatError] = []

    kept = history(index, on_fault=faults.append)
    with pytest.raises(IndexFormatError) as refused:
        rollback(index, 2)

    assert verify(index) == [f"{message}; {hint}"]
    assert [line_of(fault) for fault in faults] == [f"{message}; {hint}"]
    assert str(refused.value) == f"{message}\n  hint: {hint}"
    assert [manifest.generation for manifest in kept] == [3, 1]
    assert rollback(index, 1).generation == 4
    assert texts_of(index) == state(1)


def test_the_manifest_of_another_generation_is_damage(index: Path) -> None:
    path = index / "manifest.2.json"
    path.write_bytes((index / "manifest.1.json").read_bytes())

    assert verify(index) == [
        f"{path}: the manifest is damaged: it belongs to generation 1; put it back from a copy; without it {LOST}"
    ]
    with pytest.raises(IndexFormatError, match="it belongs to generation 1"):
        rollback(index, 2)


def test_a_manifest_that_cannot_be_read_is_not_called_damaged(index: Path) -> None:
    path = index / "manifest.2.json"
    told = f"the manifest cannot be read: Input/output error; look at the disk, and try again; until then {LOST}"

    with Unreadable(index, path, errno.EIO):
        assert verify(index) == [f"{path}: {told}"]
        with pytest.raises(IndexFormatError, match="cannot be read"):
            rollback(index, 2)

    assert rollback(index, 2).generation == 4


def test_the_committed_manifests_own_copy_is_checked_too(index: Path) -> None:
    path = index / "manifest.3.json"
    path.write_bytes(path.read_bytes()[:-1])

    assert verify(index) == [
        f"{path}: the manifest is damaged: checksum: it does not fit the rest; copy manifest.json over it; "
        "the committed state is not touched"
    ]
    path.write_bytes((index / "manifest.json").read_bytes())
    assert verify(index) == []


def test_a_damaged_file_of_an_earlier_generation_is_named_with_what_is_lost(index: Path) -> None:
    path = index / "deletions" / "00000002.arrow"
    flip(path)

    hint = f"put it back from a copy; without it {LOST}"
    assert verify(index) == [f"{path}: the file is damaged: its checksum differs from the manifest's; {hint}"]
    path.unlink()
    assert verify(index) == [f"{path}: the file is missing; {hint}"]


def test_what_is_swept_while_it_is_verified_is_not_called_missing(index: Path) -> None:
    class Swept(Disk):
        def before_read(self, path: Path) -> None:
            if path.name == "00000002.arrow":
                (index / "manifest.2.json").unlink()
                path.unlink()

    with Swept(index):
        assert verify(index) == []
    assert not (index / "deletions" / "00000002.arrow").exists()


@contextmanager
def cannot_be_read(path: Path) -> Iterator[None]:
    with Unreadable(path.parent, path, errno.EIO):
        yield


@contextmanager
def of_a_newer_format(path: Path) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(canonical({"format": 8, "ragidx": "9.1.0"}))
    yield
    path.write_bytes(whole)


@pytest.fixture
def replaced(tmp_path: Path, kit: Any) -> Path:
    """Three generations that share nothing, and what a writer that was killed left of a fourth."""
    index = tmp_path / "index"
    for generation, documents in enumerate(STATES, start=1):
        kit.build(index, documents, replace=True, blobs={"note.txt": b"%d" % generation})
    for name in ("segments/00000004-0000/vectors.faiss", "deletions/00000004.arrow", "manifest.4.json"):
        (index / name).parent.mkdir(exist_ok=True)
        (index / name).write_bytes(b"half")
    return index


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [cannot_be_read, of_a_newer_format])
def test_what_a_manifest_may_name_that_cannot_be_read_now_stays(replaced: Path, hidden: Any, kit: Any) -> None:
    rollback(replaced, 2)
    before = content_of(replaced)
    rollback(replaced, 3)  # generation 4 holds what 2 held, 5 what 3 held
    with hidden(replaced / "manifest.4.json"):
        manifest, _ = kit.build(replaced, STATES[0], replace=True, blobs={"note.txt": b"6"})

    assert manifest.generation == 6
    rollback(replaced, 4)
    assert content_of(replaced) == before
    assert Store.open(replaced).blob("note.txt") == b"2"
    assert verify(replaced) == []


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [cannot_be_read, of_a_newer_format])
def test_what_it_cannot_name_goes_and_the_rest_goes_when_it_can_be_read(replaced: Path, hidden: Any) -> None:
    with hidden(replaced / "manifest.2.json"):
        vacuum(replaced)
    left = {path.relative_to(replaced).as_posix() for path in replaced.rglob("*") if path.is_file()}
    assert left == {
        "LOCK",
        "manifest.json",
        *(f"manifest.{number}.json" for number in (1, 2, 3)),
        *(path for number in (1, 2, 3) for path in files_of(read_manifest(replaced, f"manifest.{number}.json"))),
    }

    (replaced / "manifest.2.json").write_bytes(b"")
    vacuum(replaced)

    names = {path.name for path in (replaced / "segments").iterdir()}
    assert names == {"00000001-0000", "00000003-0000"}
    assert not (replaced / "manifest.2.json").exists()
