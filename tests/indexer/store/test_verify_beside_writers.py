"""Verifying an index beside a writer, which removes the files of earlier states: at each step, and without waiting."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_reader import flip

from ragidx.indexer.store import Store
from ragidx.indexer.store import verify as verifying
from ragidx.indexer.store.manifest import read_manifest
from ragidx.indexer.store.verify import verify, verify_committed

STEPS = ("read_manifest", "check_file", "read_deletions", "_read_all", "prefix_files", "is_whole", "earlier")


class Steps:
    """Calls `act` before the step of `verify` with this number; `n` counts the steps."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int, act: Callable[[], object]) -> None:
        self.n, self._number, self._act = 0, number, act
        for name in STEPS:
            patch.setattr(verifying, name, self._step(getattr(verifying, name)))

    def _step(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            self.n += 1
            if self.n == self._number:
                self._act()
            return real(*args, **options)

        return step


@pytest.fixture
def index(tmp_path: Path, kit: Any) -> Path:
    """With dead rows and a narrower copy of its vectors."""
    return commit_thrice(tmp_path / "index", kit, "d")


def commit_thrice(index: Path, kit: Any, name: str) -> Path:
    """Replace all documents, and commit until no file of an earlier state is left."""
    for state in range(3):
        kit.build(index, {name: [f"text of {name}", "words"], f"{name}2": [f"state {state} of {name}"]})
    Store.open(index).search(kit.queries(1), 1, dim=2)  # makes narrower copies
    return index


def test_the_files_that_others_removed_are_no_faults(index: Path, kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Steps(monkeypatch, 2, lambda: commit_thrice(index, kit, "e"))

    assert verify(index) == []


@pytest.mark.slow
def test_at_whatever_step_others_commit_a_sound_index_is_sound(
    index: Path, kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = (shutil.copytree(index, tmp_path / name) for name in ("before", "after"))
    commit_thrice(after, kit, "e")

    def become(state: Path) -> None:
        shutil.rmtree(index)
        shutil.copytree(state, index)

    for number in itertools.count(1):
        become(before)
        with monkeypatch.context() as patch:
            steps = Steps(patch, number, lambda: become(after))
            assert verify(index) == [], f"the writer came before step {number}"
        if steps.n < number:
            break
    assert number > 20


def test_a_fault_that_the_newer_state_has_too_is_found_and_read_once(
    tmp_path: Path, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, texts = tmp_path / "index", {f"d{n}": [f"text {n}"] for n in range(40)}
    kit.build(index, texts)
    damaged = index / "segments" / read_manifest(index).segments[0].id / "vectors.faiss"
    reads: list[Path] = []
    real = verifying.check_file

    def check_file(path: Path, *rest: Any, **more: Any) -> None:
        reads.append(path)
        real(path, *rest, **more)

    def act() -> None:
        for n in range(3):
            kit.build(index, {**texts, "new": [f"new {n}"]})
        flip(damaged)

    monkeypatch.setattr(verifying, "check_file", check_file)
    Steps(monkeypatch, 2, act)

    faults = verify_committed(index)

    assert read_manifest(index).generation == 4
    assert [fault.partition(":")[0] for fault in faults] == [str(damaged)]
    assert reads.count(damaged) == 1
