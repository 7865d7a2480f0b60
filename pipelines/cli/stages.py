"""Progress of what goes in stages, on stderr."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ragidx.corpora.records import json_text
from ragidx.pipelines.cli import console, interrupts
from ragidx.pipelines.cli.progress import ProgressLine, clock

if TYPE_CHECKING:
    from ragidx.pipelines.base.stages import Stage
    from ragidx.pipelines.ingest.report import Progress


R = TypeVar("R")


def in_stages(work: Callable[..., R], *args: Any, as_json: bool, **options: Any) -> R:
    """What a call gives that goes in stages and has a cache, with its progress on stderr."""
    with StageLines(as_json=as_json, is_kept=options.get("cache") is not None) as lines:
        report = work(*args, on_progress=lines.stage, **options)
    interrupts.check()
    return report


class StageLines(contextlib.ExitStack):
    """Progress on stderr: the encoding as in a build, then which stage of how many. Closing it takes the line away.

    Args:
        as_json: a line of JSON for each stage.
        is_kept: whether vectors are kept in a cache, which Ctrl-C then says.
    """

    def __init__(self, *, as_json: bool, is_kept: bool) -> None:
        super().__init__()
        self._as_json, self._is_kept = as_json, is_kept
        self._told = time.perf_counter()
        self._bar: ProgressLine | None = None

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: Any) -> bool | None:
        """Take the line away, and say after Ctrl-C or SIGTERM what is kept.

        Raises:
            click.exceptions.Exit: after the signal.
        """
        handled = super().__exit__(kind, fault, trace)
        if self._is_kept and fault is not None and interrupts.was_interrupted():
            console.error("Interrupted: encoded vectors are kept in the cache, and the same command continues.")
            raise click.exceptions.Exit(interrupts.exit_status()) from None
        return handled

    def build(self, progress: Progress) -> None:
        """A corpus is being encoded."""
        if self._bar is None:
            self.close()
            self._bar = self.enter_context(ProgressLine(as_json=self._as_json))
        self._bar.callback(progress)

    def stage(self, stage: Stage) -> None:
        """A stage begins."""
        interrupts.check()
        if self._as_json:
            click.echo(json_text({"stage": dataclasses.asdict(stage)}), err=True)
            return
        self.close()
        self._bar = None
        total = f" of {stage.total}" if stage.total else ""
        left = "" if stage.left_s is None else f", ETA {clock(stage.left_s)}"
        text = f"stage {stage.number}{total}: {stage.name}{left}"
        if console.is_terminal():  # no animation: a drawing thread would take time from what is timed
            click.echo(f"\r{console.printable(text)}", nl=False, err=True)
            self.callback(click.echo, "\r\x1b[2K", nl=False, err=True)
        elif time.perf_counter() - self._told >= console.PLAIN_EVERY_S:
            self._told = time.perf_counter()
            click.echo(text, err=True)
