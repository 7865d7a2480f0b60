"""Ctrl-C and SIGTERM that are not lost: libraries swallow a KeyboardInterrupt inside an import or a callback.

The handler raises as Python's own does, for both, and notes the signal. Code that shows progress checks the note, where
no library can swallow it. A failure after a signal counts as the interruption. The exit status is 128 and the signal's
number: 130 after Ctrl-C, 143 after SIGTERM.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click

from ragidx.pipelines.cli import console

START_AGAIN = "the same command starts again"
CONTINUES = "encoded chunks are kept, and the same command continues"

_PYTHONS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}

_noted = 0  # the signal that came; 0: none did


@contextmanager
def watched() -> Iterator[None]:
    """Note the signals inside; one that is ignored, as under `nohup`, or has another handler stays as it is."""
    global _noted  # noqa: PLW0603 - there is one Ctrl-C a process
    _noted = 0
    in_main = threading.current_thread() is threading.main_thread()
    ours = {number: usual for number, usual in _PYTHONS.items() if in_main and signal.getsignal(number) is usual}
    for number in ours:
        signal.signal(number, _note)
    try:
        yield
    finally:
        _noted = 0  # the next call in this process was not interrupted
        for number, usual in ours.items():
            signal.signal(number, usual)


def was_interrupted() -> bool:
    """Whether Ctrl-C or SIGTERM came."""
    return _noted > 0


def exit_status() -> int:
    """The exit status of a command that was interrupted."""
    return 128 + (_noted or signal.SIGINT)


def check() -> None:
    """Raise again if a signal came and was swallowed.

    Raises:
        KeyboardInterrupt: it did.
    """
    if _noted:
        raise KeyboardInterrupt


@contextmanager
def reported(what_next: Callable[[], str]) -> Iterator[None]:
    """If Ctrl-C or SIGTERM ends a build, print what it keeps, and exit.

    Args:
        what_next: function that tells what is kept, and how to continue; called after the signal.

    Raises:
        click.exceptions.Exit: after the signal.
    """
    try:
        yield
    except KeyboardInterrupt:
        console.error(f"Interrupted: nothing was committed; {what_next()}.")
        raise click.exceptions.Exit(exit_status()) from None


def _note(number: int, frame: FrameType | None) -> None:
    global _noted  # noqa: PLW0603
    _noted = number
    raise KeyboardInterrupt
