"""`ragidx build --watch`: a commit after each burst of changes, none after none."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import ragidx
from ragidx.indexer.store.manifest import read_manifest
from ragidx.pipelines.cli import interrupts
from ragidx.pipelines.cli.watch import follow
from ragidx.pipelines.ingest.report import BuildReport

Run = Callable[..., tuple[int, str, str]]


def _wait_for(generation: int) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if Path("index/manifest.json").is_file() and read_manifest(Path("index")).generation == generation:
            return
        time.sleep(0.1)
    raise AssertionError(f"generation {generation} was not made")


@pytest.mark.wheel
@pytest.mark.slow
def test_a_burst_of_changes_is_one_commit_one_that_is_refused_waits_and_ctrl_c_ends_it(folder: Path) -> None:
    pytest.importorskip("watchfiles", reason="needs the extra 'watch'")
    Path("docs").mkdir()
    Path("docs/a.md").write_text("bees")
    # Where the tests run in the background SIGINT is ignored, and a child would inherit that.
    code = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from ragidx.pipelines.cli.main import main\nmain(sys.argv[1:])"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "build", "docs", "--index", "index", "--watch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    try:
        _wait_for(1)
        Path("docs/early.md").write_text("ants")  # before the folder is watched
        while not child.stderr.readline().startswith("Watching "):
            assert child.poll() is None
        _wait_for(2)
        for name in "bcd":
            Path(f"docs/{name}.md").write_text(f"wasps {name}")
        _wait_for(3)
        assert child.stderr.readline().startswith("Generation 3: 3 new, 0 changed, 0 removed; 5 documents, ")
        Path("docs/a.md").unlink()
        _wait_for(4)
        Path("docs/z").mkdir()
        for number in range(10):
            Path(f"docs/z/{number}.md").write_text(f"hornets {number}")
            Path(f"docs/{number}.md").write_text(f"mites {number}")
        _wait_for(5)
        Path("docs/z").rename("elsewhere")
        Path("docs/z").mkdir()
        while not (line := child.stderr.readline()).startswith("Error: "):
            assert child.poll() is None
        assert line == "Error: index: this build would remove all 10 documents of the folder z/, which is empty\n"
        Path("docs/z").rmdir()
        Path("elsewhere").rename("docs/z")
        Path("docs/e.md").write_text("mites")
        _wait_for(6)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    finally:
        child.kill()
        child.communicate()


@pytest.mark.slow
def test_an_interrupt_that_a_library_swallows_ends_it_too(folder: Path) -> None:
    pytest.importorskip("watchfiles", reason="needs the extra 'watch'")
    Path("docs").mkdir()
    Path("docs/a.md").write_text("bees")
    index = ragidx.build("docs", "index").path

    def build() -> BuildReport:
        with suppress(KeyboardInterrupt):  # as Python does in a callback
            signal.raise_signal(signal.SIGTERM)
        return ragidx.build(index=index).report

    def give_up(number: int, frame: object) -> None:
        pytest.fail("it watches on")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(30)
    with interrupts.watched(), pytest.raises(KeyboardInterrupt):
        follow(Path(index), build)
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_standard_input_cannot_be_watched(run: Run) -> None:
    status, _, err = run("build", "-", "--watch")
    assert (status, err.splitlines()[-1]) == (2, "Error: standard input is read once, and cannot be watched")


def test_without_watchfiles_the_extra_is_named_before_anything_is_built(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    Path("docs").mkdir()
    assert run("build", "docs", "--watch") == (
        2,
        "",
        "Error: `--watch` needs watchfiles, which is not installed\n"
        "  hint: pip install '.[watch]' in a checkout of ragidx\n",
    )
