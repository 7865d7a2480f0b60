"""Ctrl-C that is not lost: libraries swallow a KeyboardInterrupt that reaches them inside an import or a callback.

The handler raises as Python's own does, and notes it. Whoever shows progress looks at the note, in our own code, where
nothing can swallow it; and a failure after it is the interruption, whatever a library made of it. And what a build says
of it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click

from ragidx.pipelines.cli import console

BEGINS_ANEW = "the same command begins anew"

_noted = False


@contextmanager
def watched() -> Iterator[None]:
    """Note Ctrl-C inside; where it is ignored, as behind `nohup`, or handled by others, leave that."""
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
        _noted = False  # whoever is called next in this process was not interrupted
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def was_interrupted() -> bool:
    """Whether Ctrl-C came."""
    return _noted


def check() -> None:
    """End here where Ctrl-C came and was swallowed.

    Raises:
        KeyboardInterrupt: it did.
    """
    if _noted:
        raise KeyboardInterrupt


@contextmanager
def told(what_next: Callable[[], str]) -> Iterator[None]:
    """Say of a build that Ctrl-C ends what is left of it, and end with status 130.

    Args:
        what_next: what is kept, and what the same command does now; asked when Ctrl-C came.

    Raises:
        click.exceptions.Exit: it came, and that was told.
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
