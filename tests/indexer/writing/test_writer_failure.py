"""A writer that met a failure: it takes nothing more, so that no commit makes a half of something the index's state."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import Disk, Failing, Step, error_of, turns
from states import State, state_of

from ragidx.corpora.errors import ModelError
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import StoreWriter

OLD = {"a": ["a 0", "a 1"], "b": ["b 0"]}
FAILED = "this writer failed, and what it wrote may be incomplete; make another one"


def change(writer: StoreWriter, kit: Any) -> None:
    """What may fail: two documents come, one of them in place of another, and all is committed."""
    writer.delete_document("b")
    kit.add(writer, kit.rows("b", ["b changed"]))
    kit.add(writer, kit.rows("c", ["c 0", "c 1"]))
    writer.commit({}, 3)


@pytest.fixture
def old(tmp_path: Path, kit: Any) -> Path:
    kit.build(tmp_path / "old" / "index", OLD)
    return tmp_path / "old"


@pytest.fixture
def without_fault(old: Path, root: Path, kit: Any) -> tuple[list[Step], State]:
    """The steps of the change, and the state after it."""
    shutil.copytree(old, root)
    with kit.writer(root / "index") as writer, Disk(root) as disk:
        change(writer, kit)
    state = state_of(root / "index")
    shutil.rmtree(root)
    return disk.steps, state


def refused(call: Callable[[], object]) -> bool:
    """Whether a call is refused in the words of a writer that failed."""
    with pytest.raises(ValueError, match="this writer") as caught:
        call()
    return str(caught.value) == FAILED


@pytest.mark.slow
@pytest.mark.parametrize("torn", [0.0, 0.5], ids=["not written", "half written"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_whatever_call_of_it_failed_a_writer_does_not_commit_again(
    old: Path, without_fault: tuple[list[Step], State], root: Path, kit: Any, code: int, torn: float
) -> None:
    steps, new = without_fault
    commit = next(one.number for one in steps if one.call in ("rename", "replace") and one.path.name == "manifest.json")
    n_failed = 0
    for step in turns(steps):
        shutil.copytree(old, root)
        index = root / "index"
        before = state_of(index)
        with kit.writer(index) as writer:
            with Failing(root, step.number, code, torn=torn):
                fault = error_of(lambda writer=writer: change(writer, kit))
            if fault is not None:
                n_failed += 1
                assert refused(lambda writer=writer: writer.commit({}, 3))
        assert state_of(index) == (before if fault is not None and step.number <= commit else new), step
        assert verify(index) == []
        assert kit.build(index, {"a": OLD["a"], "b": ["b changed"], "c": ["c 0", "c 1"]})[0].generation == 2
        shutil.rmtree(root)

    assert n_failed > len(turns(steps)) // 2  # the others are removals, on which nothing depends


CALLS: dict[str, Callable[[StoreWriter, Any], object]] = {
    "known_documents": lambda writer, kit: writer.known_documents(),
    "delete_document": lambda writer, kit: writer.delete_document("a"),
    "delete_others": lambda writer, kit: writer.delete_others(),
    "reuse": lambda writer, kit: writer.reuse([kit.hash("a 0")]),
    "remember": lambda writer, kit: writer.remember([], np.zeros((0, 8), np.float32)),
    "add": lambda writer, kit: writer.add([], np.zeros((0, 8), np.float32)),
    "add_rows": lambda writer, kit: writer.add_rows([], np.zeros((0, 8), np.float32)),
    "delete_rows": lambda writer, kit: writer.delete_rows(np.zeros(0, np.int64)),
    "commit": lambda writer, kit: writer.commit({}, 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_writer_that_failed_can_only_be_closed(old: Path, kit: Any, name: str) -> None:
    index = old / "index"
    rows = kit.rows("c", ["c 0", "c 1"])
    vectors = kit.vectors(rows)
    vectors[1] *= 2
    before = state_of(index)

    with kit.writer(index) as writer:
        with pytest.raises(ModelError):
            writer.add(rows, vectors)

        assert refused(lambda: CALLS[name](writer, kit))
        assert [path.name for path in (index / "segments").iterdir()] == ["00000001-0000"]

    assert state_of(index) == before
    assert kit.build(index, OLD)[0] == Store.open(index).manifest  # the lock is free


def test_vectors_of_a_wrong_shape_are_no_failure(old: Path, kit: Any) -> None:
    """A program's mistake that is seen before anything is written."""
    with kit.writer(old / "index") as writer:
        with pytest.raises(ValueError, match="vectors have the shape"):
            writer.add(kit.rows("c", ["c 0"]), np.zeros((2, 8), np.float32))

        assert writer.commit({}, 2).generation == 1
