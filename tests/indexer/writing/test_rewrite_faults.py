"""Compaction, and a commit that merges, on a full disk and in a process that is killed: before or after, whole."""

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
from faults import Disk, Failing, Step, error_of
from states import content_of, files_of

from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import merging
from ragidx.indexer.writing.rewrite import compact

FEW = 4  # small segments in a commit, at most, in place of MAX_SMALL
SEGMENTS = {"compact": 3, "merge": FEW}  # before the operation


def documents(operation: str, *, changed: bool) -> dict[str, list[str]]:
    """Two documents a segment; where they are changed, one of them is other, and there is a new one."""
    found = {
        f"{name}{n:02}": [f"{name} {n}", f"more {n}"] for n in range(SEGMENTS[operation]) for name in ("ant", "bee")
    }
    return found | ({"ant01": ["changed"], "new": ["a new one"]} if changed else {})


# A warm process with one thread forks a writer for each step at which it is to end, and says what is found after it.
CHILD = """
    import json, os, shutil, sys
    from pathlib import Path

    folder, before, root, operation = sys.argv[1:]
    sys.path.insert(0, folder)
    from conftest import StoreKit
    from faults import Disk, Killed, turns
    from states import content_of
    from ragidx.indexer.writing import merging
    from ragidx.indexer.writing.rewrite import compact
    from ragidx.indexer.store import Store
    from ragidx.indexer.store.verify import verify

    merging.MAX_SMALL = int(os.environ["FEW"])
    kit, documents = StoreKit(), json.loads(os.environ["DOCUMENTS"])
    root, index = Path(root), Path(root) / "index"

    def operate():
        compact(index) if operation == "compact" else kit.build(index, documents)

    def fresh():
        shutil.rmtree(index, ignore_errors=True)
        shutil.copytree(before, index)

    fresh()
    old = content_of(index)
    with Disk(root) as disk:
        operate()
    new = content_of(index)
    (segment,) = Store.open(index).manifest.segments
    assert segment.id.startswith("000000" + os.environ["GENERATION"].zfill(2) + "-")
    commit = next(step.number for step in disk.steps if step.path.name == "manifest.json" and step.call != "open")
    for at in [step.number for step in turns(disk.steps)]:
        fresh()
        pid = os.fork()
        if pid == 0:
            with Killed(root, at):
                operate()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        found, store = content_of(index), Store.open(index)
        after = {"at": at, "ending": os.waitstatus_to_exitcode(status), "generation": store.manifest.generation,
                 "right": found == (old if at <= commit else new), "faults": verify(store.path)}
        operate()
        after["again"] = content_of(index) == new and verify(index) == []
        after["left"] = [path.name for path in index.rglob("*") if path.name.endswith(".tmp")]
        after["segments"] = len(Store.open(index).manifest.segments)
        print(json.dumps(after), flush=True)
    print(json.dumps({"commit": commit, "points": len(turns(disk.steps))}))
"""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory, kit: Any) -> Callable[[str], Path]:
    """`before(operation)`: an index of small segments, for a merging commit as many as a commit leaves at most."""
    made: dict[str, Path] = {}

    def make(operation: str) -> Path:
        if operation not in made:
            made[operation] = index = tmp_path_factory.mktemp(operation) / "index"
            every = list(documents(operation, changed=False).items())
            for number in range(SEGMENTS[operation]):
                kit.build(index, dict(every[: 2 * number + 2]))
            assert len(Store.open(index).manifest.segments) == SEGMENTS[operation]
        return made[operation]

    return make


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["compact", "merge"])
def test_wherever_it_is_killed_one_of_both_states_is_left(
    operation: str, before: Callable[[str], Path], tmp_path: Path
) -> None:
    generation = SEGMENTS[operation] + 1
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    told = {"DOCUMENTS": json.dumps(documents(operation, changed=True)), "GENERATION": str(generation), "FEW": str(FEW)}
    child = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(CHILD)]
    arguments = [str(Path(__file__).parents[1]), str(before(operation)), str(tmp_path), operation]
    done = subprocess.run(
        [*child, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | one_thread | told,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    *outcomes, summary = map(json.loads, done.stdout.splitlines())
    assert len(outcomes) == summary["points"]
    assert any(outcome["at"] <= summary["commit"] for outcome in outcomes)
    assert any(outcome["at"] > summary["commit"] for outcome in outcomes)
    for outcome in outcomes:
        assert outcome["ending"] == -9, outcome
        assert outcome["generation"] == generation - (outcome["at"] <= summary["commit"]), outcome
        assert outcome["right"], outcome
        assert (outcome["again"], outcome["segments"], outcome["faults"], outcome["left"]) == (True, 1, [], []), outcome


# The same of a copying into a folder that is not there yet. What is left of it is killed once more, somewhere else.
COPYING = """
    import json, os, shutil, sys
    from pathlib import Path

    folder, source, root = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    sys.path.insert(0, folder)
    from faults import Disk, Killed, turns
    from states import content_of
    from ragidx.corpora.errors import IndexFormatError, SpecError
    from ragidx.indexer.writing.rewrite import NewForm, copy
    from ragidx.indexer.store import Store
    from ragidx.indexer.store.verify import verify

    target, blobs = root / "new" / "target", {}

    def change(store):
        old = store.manifest
        return NewForm(old.spec, old.fingerprint, old.dim, old.index, {name: store.blob(name) for name in old.files})

    def operate():
        copy(Store.open(source), target, change)

    def killed(at, lose):
        pid = os.fork()
        if pid == 0:
            with Killed(root, at, lose=lose):
                operate()
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def state():
        try:
            return verify(Store.open(target).path)
        except IndexFormatError as fault:
            return fault.message

    root.mkdir()
    with Disk(root) as disk:
        operate()
    new, tree = content_of(target), sorted(str(path) for path in target.rglob("*"))
    assert new == content_of(source)
    commit = next(step.number for step in disk.steps if step.path.name == "manifest.json" and step.call != "open")
    for count, at in enumerate(step.number for step in turns(disk.steps)):
        shutil.rmtree(root)
        root.mkdir()
        power = count % 2 == 1
        after = {"at": at, "power": power, "ending": killed(at, at if power else None), "state": state()}
        if not (target / "manifest.json").exists():
            after["twice"] = killed(at // 2, None)
        try:
            operate()
            after["again"] = "made"
        except SpecError as fault:
            after["again"] = fault.message
        after["whole"] = content_of(target) == new and verify(target) == []
        after["like new"] = sorted(str(path) for path in target.rglob("*")) == tree
        print(json.dumps(after), flush=True)
    print(json.dumps({"commit": commit, "points": len(turns(disk.steps))}))
"""


@pytest.mark.slow
def test_wherever_a_copying_is_killed_the_next_one_begins_anew(before: Callable[[str], Path], tmp_path: Path) -> None:
    source = before("compact")
    old = content_of(source)
    child = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(COPYING)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [*child, str(Path(__file__).parents[1]), str(source), str(tmp_path / "root")],
        capture_output=True,
        text=True,
        env=os.environ | one_thread,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    *outcomes, summary = map(json.loads, done.stdout.splitlines())
    assert len(outcomes) == summary["points"]
    assert any(outcome["at"] > summary["commit"] for outcome in outcomes)
    for outcome in outcomes:
        assert outcome["ending"] == -9, outcome
        committed = outcome["state"] == []
        assert committed or outcome["at"] <= summary["commit"] or outcome["power"], outcome
        assert not committed or outcome["at"] > summary["commit"], outcome
        assert outcome["again"] == ("there is an index already" if committed else "made"), outcome
        assert outcome["whole"], outcome
        assert committed or outcome["like new"], outcome
    assert content_of(source) == old


def one_of_each_call(steps: list[Step], commit: int) -> list[int]:
    """The first and the last step of each kind of call before the commit, and the first after it."""
    kinds: dict[tuple[str, bool], list[int]] = {}
    for step in steps:
        kinds.setdefault((step.call, step.number > commit), []).append(step.number)
    return sorted({number for found in kinds.values() for number in (found[0], found[-1])})


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["compact", "merge"])
def test_a_full_disk_leaves_the_old_state_and_is_told_in_one_message(
    operation: str, before: Callable[[str], Path], tmp_path: Path, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "MAX_SMALL", FEW)
    index = tmp_path / "index"
    operate: Callable[[], object] = {
        "compact": lambda: compact(index),
        "merge": lambda: kit.build(index, documents(operation, changed=True)),
    }[operation]

    def fresh() -> None:
        shutil.rmtree(index, ignore_errors=True)
        shutil.copytree(before(operation), index)

    fresh()
    old = content_of(index)
    with Disk(tmp_path) as disk:
        operate()
    new, generation = content_of(index), Store.open(index).manifest.generation
    assert len(Store.open(index).manifest.segments) == 1
    commit = next(s.number for s in disk.steps if s.path.name == "manifest.json" and s.call in ("rename", "replace"))
    told = 0
    for at in one_of_each_call(disk.steps, commit):
        fresh()
        kept = files_of(index)
        with Failing(tmp_path, at, errno.ENOSPC, lasting=True) as failing:
            fault = error_of(operate)
        assert failing.failures
        if fault is not None:
            told += 1
            assert fault.message == "cannot write: No space left on device"
            assert str(fault.hint).startswith("free some space")
        if Store.open(index).manifest.generation < generation:
            assert content_of(index) == old
            left = {name for name in files_of(index).keys() - kept.keys() if not name.startswith("journal/")}
            assert left <= {
                f"manifest.{generation}.json"
            }  # which no manifest.json stands for yet: the next writer sweeps it
        else:
            assert at >= commit
            assert content_of(index) == new
        operate()
        assert content_of(index) == new
        assert verify(index) == []
    assert told
