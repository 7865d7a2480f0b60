"""`ragidx compact`, `shrink` and `reindex` after one of them was killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ragidx.indexer.store import Store

from ..conftest import Done
from .conftest import INDEX, fields

pytestmark = pytest.mark.slow

Run = Callable[..., Done]


# The command as a process that kills itself once rows are copied: as kill -9 does, it clears nothing away.
KILLED = """
import os, signal
from ragidx.pipelines.cli.main import main
from ragidx.pipelines.cli.progress import ProgressLine

ProgressLine.on_stage = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main()
"""


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.usefixtures("given", "large")
def test_what_fails_where_a_reindex_was_killed_leaves_an_empty_folder(run: Run, run_process: Run) -> None:
    assert run_process("reindex", "new", code=KILLED).status == -9

    done = run("reindex", "new", "--index-type", "flat", "--max-memory", "1000")

    assert done.err.startswith("Error: --max-memory: 430 vectors of 16 dimensions take 1 MB as flat, more than")
    assert tree(Path("new")) == []


@pytest.mark.usefixtures("given")
def test_an_index_whose_rewriting_was_killed_is_as_it_was_and_the_same_command_goes_through(
    run: Run, run_process: Run
) -> None:
    command = ("shrink", "--dim", "8")
    before = Store.open(INDEX).manifest
    assert run_process(*command, code=KILLED) == (-9, "", "")
    state = Store.open(INDEX).manifest, run("verify")

    done = run(*command)

    assert state == (before, (0, "ragidx-index: intact\n", ""))
    assert fields(done)["index"] == "ragidx-index (generation 4)"
    assert run("verify") == (0, "ragidx-index: intact\n", "")


@pytest.mark.usefixtures("given")
def test_what_a_killed_rewriting_left_goes_where_there_is_nothing_to_do_too(run: Run, run_process: Run) -> None:
    before = tree(INDEX)
    assert run_process("compact", "--all", code=KILLED).status == -9
    assert tree(INDEX) != before

    done = run("shrink", "--dim", "16")

    assert fields(done)["index"] == "ragidx-index (generation 3, unchanged)"
    assert tree(INDEX) == before
