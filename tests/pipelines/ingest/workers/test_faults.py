"""Builds whose workers, or who themselves, end in any stage: no process is left, and the next build ends as ever."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from worker_corpora import WORDS, children, large, lines, linux, read, state

from ragidx.corpora.records import Skip
from ragidx.indexer.store.verify import verify
from ragidx.pipelines.ingest.build import build
from ragidx.pipelines.ingest.workers import words

pytestmark = linux

SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]

# -- a worker ---------------------------------------------------------------------------------------------------------

WORKER_STAGES = {
    "reading": "read_csv",
    "cutting": "Cutter.cut",
    "cutting what another read": "_Worker._piece",
    "giving": "write",
    "idle": "_Worker._take",
}
KILL, TIME, MEMORY = (
    *("signal.raise_signal(signal.SIGKILL)", "signal.raise_signal(signal.SIGXCPU)"),
    "bytearray(1 << 44)",
)
FAULT = """
import os, signal, sys
if "workers.worker" in sys.orig_argv[-1]:
    def fire(frame, event, _):
        if event == "call" and frame.f_code.co_qualname == {function!r}:
            for turn in range({times}):
                try:
                    os.close(os.open({mark!r} + str(turn), os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                {fault}
    sys.setprofile(fire)
"""


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, int], Callable[[], int]]:
    """Lets the workers that start from now on meet a fault, so often; gives how often they have."""

    def arm(stage: str, fault: str, times: int) -> Callable[[], int]:
        folder = tmp_path / "site"
        folder.mkdir()
        code = FAULT.format(function=WORKER_STAGES[stage], fault=fault, times=times, mark=str(folder / "met-"))
        (folder / "sitecustomize.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", f"{folder}:{os.environ.get('PYTHONPATH', '')}")
        return lambda: len(list(folder.glob("met-*")))

    return arm


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A long file between two short ones."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.html").write_text("<p>before")
    large(folder, "csv")
    (folder / "z.html").write_text("<p>after")
    return folder


@pytest.fixture(scope="module")
def whole(corpus: Path) -> list[Any]:
    """What is read of it without workers."""
    return read(corpus)


@pytest.mark.slow
@pytest.mark.parametrize("stage", WORKER_STAGES)
def test_a_worker_that_dies_once_changes_nothing(corpus: Path, whole: list[Any], arm: Any, stage: str) -> None:
    n_met = arm(stage, KILL, 1)

    found = read(corpus, 2)

    assert n_met() == 1
    assert found == whole
    assert children() == []


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["reading", "cutting what another read"])
@pytest.mark.parametrize(
    ("fault", "times", "reason"),
    [
        (KILL, 2, "the reader ended by SIGKILL"),
        (TIME, 1, "the reader takes more than 120 s"),
        (MEMORY, 2, "the reader needs more than 2 GiB of memory"),
    ],
)
def test_a_file_at_which_workers_end_is_one_line_and_the_others_are_read(
    corpus: Path, whole: list[Any], arm: Any, stage: str, fault: str, times: int, reason: str
) -> None:
    n_met = arm(stage, fault, times)

    found, skips, *_ = read(corpus, 2)

    assert n_met() == times
    assert skips[-1] == Skip("large.csv", reason)
    assert [name for name, *_ in found][:: len(found) - 1] == ["a.html", "z.html"]
    assert found[:-1] == whole[0][: len(found) - 1]
    assert found[-1] == whole[0][-1]
    assert children() == []


@pytest.mark.slow
def test_a_file_that_runs_out_of_time_is_not_read_twice(corpus: Path, arm: Any) -> None:
    n_met = arm("reading", TIME, 2)

    found, skips, *_ = read(corpus, 2)

    assert n_met() == 1
    assert skips[0].reason == "the reader takes more than 120 s"
    assert [skip.where for skip in skips] == ["large.csv"]
    assert [name for name, *_ in found] == ["a.html", "z.html"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), [("executable", ""), ("executable", "/no/python"), ("frozen", True)])
def test_without_an_interpreter_plain_text_is_read_and_the_rest_is_one_reason(
    corpus: Path, whole: list[Any], monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(sys, name, value, raising=False)

    found, skips, *_ = read(corpus, 2)

    assert found == whole[0][1:-1]
    assert [skip.where for skip in skips if skip not in whole[1]] == ["a.html", "z.html"]
    assert len({skip.reason for skip in skips if skip not in whole[1]}) == 1


# -- the build --------------------------------------------------------------------------------------------------------

BUILD = """
import os, runpy, signal, sys

what, turn, number, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
del sys.argv[1:5]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
if limit:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

def hook(event, args):
    global turn
    if event in ("open", "os.rename", "subprocess.Popen") and what in f"{event} {args}":
        turn -= 1
        if turn == 0:
            os.kill(os.getpid(), number)

if number:
    sys.addaudithook(hook)
runpy.run_module("ragidx", run_name="__main__", alter_sys=True)
"""
BUILD_STAGES = {  # a call that the build makes in it, and which of these calls
    "reading": ("subprocess.Popen", 2),
    "encoding": ("journal/", 1),
    "writing": ("chunks.arrow", 1),
    "words": ("lexical-", 1),
    "commit": ("manifest.json'", 3),  # that of the new state is renamed
}


@pytest.fixture(scope="module")
def updated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any, Any]:
    """A corpus, an index of what it was before, and the states before and after its build."""
    folder = tmp_path_factory.mktemp("updated")
    corpus, before, after = folder / "corpus", folder / "before", folder / "after"
    corpus.mkdir()
    for number in range(8):
        (corpus / f"{number}.html").write_text(f"<h1>Page {number}</h1><p>{' '.join(WORDS[number:])}")
    lines(corpus / "lines.jsonl", 100)
    build(corpus, before, workers=2, index_type="hnsw")
    (corpus / "3.html").write_text("<p>The lease was signed in Bergen.")
    (corpus / "4.html").unlink()
    lines(corpus / "lines.jsonl", 120, seed=1)
    shutil.copytree(before, after)
    build(corpus, after, workers=2)
    return corpus, before, state(before), state(after)


def run_build(corpus: Path, index: Path, what: str, turn: int, number: int, limit: int = 0) -> tuple[int, str]:
    """Exit status and standard error of a build; and no process of it may be left."""
    command = [sys.executable, "-c", BUILD, what, str(turn), str(number), str(limit)]
    mine = {**os.environ, "RAGIDX_TEST_BUILD": str(index)}
    done = subprocess.run(
        [*command, "build", str(corpus), "--index", str(index), "--workers", "2", "--quiet"],
        env=mine,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    deadline = time.monotonic() + 60
    while (left := processes(str(index))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    return done.returncode, done.stderr


def processes(mark: str) -> list[str]:
    """Those that run with the mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"RAGIDX_TEST_BUILD={mark}\0".encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("stage", BUILD_STAGES)
def test_a_build_that_ends_in_any_stage_leaves_no_process_and_loses_nothing(
    updated: tuple[Path, Path, Any, Any], tmp_path: Path, stage: str, number: int
) -> None:
    corpus, before, old, new = updated
    index = before.parent / tmp_path.name  # where a corpus is, an index keeps relative to itself
    shutil.copytree(before, index)

    status, _ = run_build(corpus, index, *BUILD_STAGES[stage], number)

    assert status == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[signal.Signals(number)]
    assert verify(index) == []
    generation = json.loads((index / "manifest.json").read_text())["generation"]
    assert generation == 1 or (stage == "commit" and number != signal.SIGKILL)
    build(corpus, index, workers=1)
    assert state(index) == new
    assert old != new


@pytest.mark.slow
@pytest.mark.parametrize("limit", [100, 20_000])
def test_a_build_on_a_full_disk_is_one_error_and_the_next_goes_on(
    updated: tuple[Path, Path, Any, Any], tmp_path: Path, limit: int
) -> None:
    corpus, before, _, new = updated
    index = before.parent / tmp_path.name
    shutil.copytree(before, index)

    status, said = run_build(corpus, index, "", 0, 0, limit)

    assert status == 2, said
    assert "Traceback" not in said
    assert json.loads((index / "manifest.json").read_text())["generation"] == 1
    assert verify(index) == []
    build(corpus, index, workers=1)
    assert state(index) == new


# -- the same bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "workers", "index_type"), [(0, 2, "hnsw"), (1, 3, "flat")])
def test_builds_and_updates_give_the_same_bytes_for_any_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, workers: int, index_type: str
) -> None:
    monkeypatch.setattr(words, "TASK_BATCHES", 1)
    chance, corpus = random.Random(seed), tmp_path / "corpus"
    corpus.mkdir()

    for _ in range(3):
        for number in chance.sample(range(30), 12):
            text = f"# Part {number}\n\n" + " ".join(chance.choices(WORDS, k=chance.randint(1, 60)))
            (corpus / f"{number}.{chance.choice(['md', 'html', 'txt'])}").write_text(text)
        for path in chance.sample(sorted(corpus.iterdir()), 2):
            path.unlink()
        lines(corpus / "lines.jsonl", chance.randint(500, 800), seed=chance.randint(0, 3))
        one, several = (
            build(corpus, tmp_path / str(n), workers=n, index_type=index_type, allow_removal=True) for n in (1, workers)
        )

        assert one.n_documents == several.n_documents
        assert one.skipped == several.skipped
        assert state(tmp_path / "1") == state(tmp_path / str(workers))
