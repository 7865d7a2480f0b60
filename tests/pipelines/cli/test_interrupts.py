"""Ctrl-C or SIGTERM that a library swallows, or turns into something else, still ends the command."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.store import verify
from ragidx.indexer.writing.segment_writer import SegmentWriter
from ragidx.pipelines.cli import interrupts

from ..conftest import Done


@pytest.fixture(autouse=True)
def python_s_own_handler() -> Iterator[None]:
    """As it is in a process that nobody has told otherwise."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _interrupt(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


def test_what_was_swallowed_is_raised_where_progress_is_shown() -> None:
    with interrupts.watched():
        interrupts.check()
        with contextlib.suppress(KeyboardInterrupt):
            _interrupt()
        assert interrupts.was_interrupted()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    interrupts.check()  # of what comes after, nothing was interrupted
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with interrupts.watched():
        assert not interrupts.was_interrupted()


def test_a_process_that_ignores_it_goes_on_ignoring_it() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts.watched():
        _interrupt()
        assert not interrupts.was_interrupted()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.parametrize(
    "made_of_it", [AttributeError("partially initialized module"), IndexFormatError("damaged"), KeyboardInterrupt()]
)
def test_a_failure_after_it_is_the_interruption(
    made_of_it: BaseException, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    def swallow(folder: Path) -> list[str]:
        with contextlib.suppress(KeyboardInterrupt):
            _interrupt()
        raise made_of_it

    monkeypatch.setattr(verify, "verify_committed", swallow)
    Path("index").mkdir()
    Path("index/manifest.json").touch()
    assert run("verify", "--index", "index") == (130, "", "Interrupted.\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_build_ends_at_the_next_look_and_commits_nothing(
    number: int, status: int, run: Callable[..., Done], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("vectors.npy", np.eye(600, 8, dtype=np.float32) + 1)
    add = SegmentWriter.add

    def swallow(*arguments: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            _interrupt(number)
        add(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SegmentWriter, "add", swallow)
    monkeypatch.setattr("ragidx.pipelines.ingest.report._TELL_EVERY_S", 0.0)
    done = run("build", "--vectors", "vectors.npy", "--index", "index")
    assert done == (status, "", "Interrupted: nothing was committed; the same command starts again.\n")
    assert not (folder / "index" / "manifest.json").exists()


def test_ctrl_c_while_the_command_line_is_imported_is_no_traceback(run_process: Callable[..., Done]) -> None:
    code = (
        "import os, runpy, signal, sys\n"
        "class Hook:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.meta_path.insert(0, Hook())\n"
        "runpy.run_module('ragidx', run_name='__main__')\n"
    )

    assert run_process("--help", code=code) == (130, "", "Interrupted.\n")
