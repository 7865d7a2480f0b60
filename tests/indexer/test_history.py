"""Kept generations and going back: the state of before, by a commit of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragidx.corpora.errors import BusyError, IndexFormatError, SpecError
from ragidx.indexer import atomic
from ragidx.indexer.history import ROLLED_BACK, history, rollback
from ragidx.indexer.lock import Lock
from ragidx.indexer.store import Store

STATES = [
    {"ant.txt": ["an ant", "two ants"], "bee.txt": ["a bee"]},
    {"ant.txt": ["an ant", "three ants"], "bee.txt": ["a bee"]},
    {"bee.txt": ["a bee"], "cat.txt": ["a cat"]},
]


@pytest.fixture
def index(tmp_path: Path, kit: Any) -> Path:
    for state in STATES:
        kit.build(tmp_path / "index", state)
    return tmp_path / "index"


def texts(path: Path) -> list[str]:
    store = Store.open(path)
    alive = [
        (number, row)
        for number, segment in enumerate(store.segments)
        for row in range(segment.entry.rows)
        if store.dead[number] is None or not store.dead[number][row]
    ]
    return sorted(row.text for row in store.rows(alive))


def state(number: int) -> list[str]:
    return sorted(text for chunks in STATES[number - 1].values() for text in chunks)


def test_the_kept_generations_are_listed_the_committed_one_first(index: Path, kit: Any) -> None:
    assert [manifest.generation for manifest in history(index)] == [3, 2, 1]

    kit.build(index, STATES[0])

    assert [manifest.generation for manifest in history(index)] == [4, 3, 2]


@pytest.mark.parametrize("generation", [1, 2])
def test_going_back_is_a_commit_of_what_was_held(index: Path, generation: int, kit: Any) -> None:
    segments = set((index / "segments").iterdir())

    made = rollback(index, generation)

    store = Store.open(index)
    assert (made.generation, made.notes[ROLLED_BACK]) == (4, generation)
    assert store.manifest == made
    assert texts(index) == state(generation)
    assert set((index / "segments").iterdir()) <= segments  # none is written
    assert store.verify() == []
    queries = kit.queries(3)
    assert np.isfinite(store.search(queries, 2).scores).all()


def test_going_back_can_be_undone(index: Path) -> None:
    rollback(index, 1)
    rollback(index, 3)

    assert [manifest.generation for manifest in history(index)] == [5, 4, 3]
    assert texts(index) == state(3)


def test_the_state_that_is_committed_is_not_committed_again(index: Path) -> None:
    before = {path: path.read_bytes() for path in index.rglob("*") if path.is_file() and path.name != "LOCK"}

    assert rollback(index, 3).generation == 3
    assert before == {path: path.read_bytes() for path in index.rglob("*") if path.is_file() and path.name != "LOCK"}


def test_a_build_goes_on_from_the_state_gone_back_to(index: Path, kit: Any) -> None:
    rollback(index, 1)

    _, encoded = kit.build(index, STATES[2])

    assert texts(index) == state(3)
    assert encoded == 1  # the cat; the bee stood in both


def test_a_reader_keeps_the_state_it_opened(index: Path) -> None:
    reader = Store.open(index)

    rollback(index, 1)

    assert reader.manifest.generation == 3
    assert reader.rows([(0, 0)])[0].text


@pytest.mark.parametrize(
    ("generation", "kept"), [(9, "3, 2"), (1, "3, 2")], ids=["one that never was", "one that is gone"]
)
def test_a_generation_that_is_not_kept_is_refused(index: Path, generation: int, kept: str, kit: Any) -> None:
    kit.build(index, STATES[0])

    with pytest.raises(SpecError) as fault:
        rollback(index, generation)

    assert str(fault.value) == (
        f"{index}: generation {generation} of the index is not kept\n"
        f"  hint: kept: {kept}; build again from the corpus as it was"
    )


def test_a_generation_with_a_damaged_file_is_refused_and_the_state_stays(index: Path) -> None:
    lost = index / "segments" / history(index)[-1].segments[0].id / "chunks.arrow"
    content = bytearray(lost.read_bytes())
    content[len(content) // 2] ^= 1
    kept = {manifest.generation for manifest in history(index) if any(s.id in str(lost) for s in manifest.segments)}
    lost.write_bytes(content)

    with pytest.raises(IndexFormatError, match="damaged"):
        rollback(index, min(kept))


def test_one_writer_at_a_time(index: Path) -> None:
    lock = Lock(index)
    try:
        with pytest.raises(BusyError):
            rollback(index, 1)
    finally:
        lock.release()


def test_a_folder_that_is_no_index_is_told(tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match="there is no such folder"):
        rollback(tmp_path / "none", 1)
    with pytest.raises(IndexFormatError, match="there is no such folder"):
        history(tmp_path / "none")


@pytest.mark.parametrize("write", range(3))
def test_a_rollback_that_is_killed_leaves_one_of_both_states(index: Path, write: int) -> None:
    """Killed before the n-th of its files is renamed into place: deletions or not, numbered manifest, manifest."""
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from ragidx.indexer import atomic, history\n"
        "real, seen = os.replace, []\n"
        "def replace(*paths, **options):\n"
        f"    if len(seen) == {write}: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    seen.append(paths); return real(*paths, **options)\n"
        "os.replace = os.rename = replace\n"
        "history.rollback(Path(sys.argv[1]), 2)\n"
    )

    done = subprocess.run([sys.executable, "-c", code, str(index)], check=False, capture_output=True)

    assert done.returncode == -signal.SIGKILL, done.stderr
    generation = Store.open(index).manifest.generation
    assert generation in (3, 4)
    assert texts(index) == state(3 if generation == 3 else 2)
    rollback(index, 2)
    assert texts(index) == state(2)
    assert not [path for path in index.rglob("*") if path.name.endswith(atomic.TEMPORARY)]
