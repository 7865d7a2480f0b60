"""Ctrl-C that is not lost: libraries swallow a KeyboardInterrupt that reaches them inside an import or a callback.

The handler raises as Python's own does, and notes it. Code that shows progress checks the note, where no library can
swallow it. A failure after Ctrl-C counts as the interruption.
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

_noted = False


@contextmanager
def watched() -> Iterator[None]:
    """Note Ctrl-C inside; if it is ignored, as under `nohup`, or has another handler, change nothing."""
    global _noted  # noqa: PLW0603 - there is one Ctrl-C a process
    _noted = False
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        _noted = False  # the next call in this process was not interrupted
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def was_interrupted() -> bool:
    """Whether Ctrl-C came."""
    return _noted


def check() -> None:
    """Raise again if Ctrl-C came and was swallowed.

    Raises:
        KeyboardInterrupt: it did.
    """
    if _noted:
        raise KeyboardInterrupt


@contextmanager
def reported(what_next: Callable[[], str]) -> Iterator[None]:
    """If Ctrl-C ends a build, print what it keeps, and exit with status 130.

    Args:
        what_next: what is kept, and how to continue; called after Ctrl-C.

    Raises:
        click.exceptions.Exit: after Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        console.note(f"Interrupted: nothing was committed; {what_next()}.")
        raise click.exceptions.Exit(130) from None


def _note(number: int, frame: FrameType | None) -> None:
    global _noted  # noqa: PLW0603
    _noted = True
    raise KeyboardInterrupt
