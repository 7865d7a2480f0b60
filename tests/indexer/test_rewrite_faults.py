"""Compaction, and a commit that merges, on a disk that fails and in a process that is killed: before or after, whole."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragidx.corpora.errors import RagidxError
from ragidx.indexer.assembly import MAX_SMALL
from ragidx.indexer.rewrite import compact
from ragidx.indexer.store import Store

from .faults import Disk, Failing, Step
from .states import files_of, state_of

DOCUMENTS = {f"d{number:02}": [f"text {number}", f"more {number}"] for number in range(MAX_SMALL)}
CHANGED = {**DOCUMENTS, "d03": ["changed"], "new": ["a new one"]}

# A warm process with one thread forks a writer for each step at which it is to end, and says what is found after it.
CHILD = """
    import json, os, shutil, sys
    from pathlib import Path

    folder, before, root, operation = sys.argv[1:]
    sys.path.insert(0, folder)
    from conftest import StoreKit
    from faults import Disk, Killed
    from states import state_of
    from ragidx.indexer.rewrite import compact
    from ragidx.indexer.store import Store

    kit, documents = StoreKit(), json.loads(os.environ["DOCUMENTS"])
    root, index = Path(root), Path(root) / "index"

    def operate():
        compact(index) if operation == "compact" else kit.build(index, documents)

    def fresh():
        shutil.rmtree(index, ignore_errors=True)
        shutil.copytree(before, index)

    fresh()
    old = state_of(index)
    with Disk(root) as disk:
        operate()
    new = state_of(index)
    assert {segment.id[:8] for segment in Store.open(index).manifest.segments} == {"00000017"}
    commit = next(step.number for step in disk.steps if step.path.name == "manifest.json" and step.call != "open")
    for at in range(len(disk.steps)):
        fresh()
        pid = os.fork()
        if pid == 0:
            with Killed(root, at):
                operate()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        found, store = state_of(index), Store.open(index)
        after = {"at": at, "ending": os.waitstatus_to_exitcode(status), "generation": store.manifest.generation,
                 "right": found == (old if at <= commit else new), "faults": store.verify()}
        operate()
        after["again"] = state_of(index) == new and Store.open(index).verify() == []
        after["left"] = [path.name for path in index.rglob("*") if path.name.endswith(".tmp")]
        after["segments"] = len(Store.open(index).manifest.segments)
        print(json.dumps(after), flush=True)
    print(json.dumps({"commit": commit, "steps": len(disk.steps)}))
"""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory, kit: Any) -> Path:
    """As many small segments as a commit leaves at most, one of them with dead rows."""
    index = tmp_path_factory.mktemp("before") / "index"
    for number, (doc_id, texts) in enumerate(DOCUMENTS.items()):
        with kit.writer(index) as writer:
            kit.add(writer, kit.rows(doc_id, texts))
            writer.commit({}, number + 1)
    assert len(Store.open(index).manifest.segments) == MAX_SMALL == 16
    return index


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["compact", "merge"])
def test_wherever_it_is_killed_one_of_both_states_is_left(operation: str, before: Path, tmp_path: Path) -> None:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    child = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(CHILD)]
    arguments = [str(Path(__file__).parent), str(before), str(tmp_path), operation]
    done = subprocess.run(
        [*child, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | one_thread | {"DOCUMENTS": json.dumps(CHANGED)},
        check=False,
    )

    assert done.returncode == 0, done.stderr
    *outcomes, summary = map(json.loads, done.stdout.splitlines())
    assert len(outcomes) == summary["steps"]
    assert any(outcome["at"] <= summary["commit"] for outcome in outcomes)
    assert any(outcome["at"] > summary["commit"] for outcome in outcomes)
    for outcome in outcomes:
        assert outcome["ending"] == -9, outcome
        assert outcome["generation"] == (16 if outcome["at"] <= summary["commit"] else 17), outcome
        assert outcome["right"], outcome
        assert (outcome["again"], outcome["segments"], outcome["faults"], outcome["left"]) == (True, 1, [], []), outcome


def one_of_each_call(steps: list[Step], commit: int) -> list[int]:
    """The first and the last step of each kind of call before the commit, and the first after it."""
    kinds: dict[tuple[str, bool], list[int]] = {}
    for step in steps:
        kinds.setdefault((step.call, step.number > commit), []).append(step.number)
    return sorted({number for found in kinds.values() for number in (found[0], found[-1])})


@pytest.mark.parametrize("operation", ["compact", pytest.param("merge", marks=pytest.mark.slow)])
def test_a_full_disk_leaves_the_old_state_and_is_told_in_one_message(
    operation: str, before: Path, tmp_path: Path, kit: Any
) -> None:
    index = tmp_path / "index"
    operate: Callable[[], object] = {
        "compact": lambda: compact(index),
        "merge": lambda: kit.build(index, CHANGED),
    }[operation]

    def fresh() -> None:
        shutil.rmtree(index, ignore_errors=True)
        shutil.copytree(before, index)

    fresh()
    old = state_of(index)
    with Disk(tmp_path) as disk:
        operate()
    new = state_of(index)
    commit = next(s.number for s in disk.steps if s.path.name == "manifest.json" and s.call in ("rename", "replace"))
    told = 0
    for at in one_of_each_call(disk.steps, commit):
        fresh()
        kept = files_of(index)
        with Failing(tmp_path, at, errno.ENOSPC, lasting=True) as failing:
            try:
                operate()
            except RagidxError as fault:
                told += 1
                assert fault.message == "cannot write: No space left on device"
                assert fault.hint is not None
                assert fault.hint.startswith("free some space")
                assert failing.failures
        if Store.open(index).manifest.generation == 16:
            assert state_of(index) == old
            left = {name for name in files_of(index).keys() - kept.keys() if not name.startswith("journal/")}
            assert left <= {"manifest.17.json"}  # which no manifest.json stands for yet: the next writer sweeps it
        else:
            assert at >= commit
            assert state_of(index) == new
        operate()
        assert state_of(index) == new
        assert Store.open(index).verify() == []
    assert told
