"""Progress on stderr: a bar at a terminal, a plain line now and then elsewhere, JSON lines for machines.

The bar of a build counts bytes of the corpus, the one total that is known before everything is read; the rates count
chunks and tokens that went through the model. While a filter is fitted, the bar counts the chunks of the sample. The
time left is estimated from the pace since the first chunk, once enough is done.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import click

from ragidx.corpora.records import json_text
from ragidx.pipelines.cli import console, interrupts
from ragidx.pipelines.ingest.report import DERIVING, PLANNING, Progress

_JSON_EVERY_S = 0.2
_TELLING_SHARE = 0.02  # of a stage: the first batches do not give the pace of the rest
_TELLING_S = 2.0


class ProgressLine:
    """A context manager that shows how far something is: `callback` of a build, `on_stage` of what copies rows."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._started = self._told = time.perf_counter()
        self._bar: Any = None
        self._task: Any = None
        self._seen: Progress | None = None
        self._stage: object = None  # what has a pace of its own
        self._share = 0.0  # of it that was done when it began
        self._done = 0  # rows, of `on_stage`

    @property
    def fitting(self) -> bool:
        """Whether a filter is being fitted now; what was encoded for it is not kept."""
        return self._seen is not None and self._seen.fitting  # the same object at every call

    def __enter__(self) -> Self:
        if console.is_terminal() and not self._as_json:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %  {task.fields[done]}  ETA {task.fields[eta]}"),
                TimeElapsedColumn(),
                console=Console(file=sys.stderr),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None, done="", eta="-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def callback(self, progress: Progress) -> None:
        """Show how far a build is."""
        if not progress.last:
            interrupts.check()
        self._seen = progress
        # Before the first chunk a model is loaded and tuned; of a fit, a sample is drawn.
        left_s = self._left_s((progress.stage, progress.n_encoded > 0), progress.share)
        if progress.last and self._bar is None and not self._as_json:
            return  # the report follows
        doing = progress.doing or progress.stage
        self._tell(doing, progress.share, _rates(progress), left_s, dataclasses.asdict(progress))

    def on_stage(self, stage: str, rows: int, done: int) -> None:
        """Show how many rows are copied, or are in an index that is made of them."""
        from ragidx.indexer.writing.merging import COPYING

        interrupts.check()
        if done < self._done:  # the next segment may be like the last
            self._stage = None
        self._done = done
        stage = stage if stage == COPYING else f"{DERIVING} {stage}"
        left_s = self._left_s((stage, rows), done / max(1, rows))
        now = time.perf_counter()
        if self._as_json and now - self._told < _JSON_EVERY_S:
            return
        if self._as_json:
            self._told = now
        counted = f"{done:,} of {console.plural(rows, 'row')}"
        self._tell(stage, done / max(1, rows), counted, left_s, {"stage": stage, "rows": rows, "done": done})

    def _left_s(self, stage: object, share: float | None) -> float | None:
        """Of a stage at its pace so far; None while too little is done."""
        now = time.perf_counter()
        if stage != self._stage:
            self._stage, self._started, self._share = stage, now, share or 0.0
        if share is None or share - self._share < _TELLING_SHARE or now - self._started < _TELLING_S:
            return None
        return (now - self._started) * (1 - share) / (share - self._share)

    def _tell(self, doing: str, share: float | None, done: str, left_s: float | None, data: object) -> None:
        """Show it.

        Args:
            doing: name of the stage.
            share: share of the stage that is done, 0 to 1; None: unknown.
            done: numbers of what is done, for people.
            left_s: seconds; None: unknown.
            data: the same as a value, for machines.
        """
        if console.is_quiet():
            return
        if self._as_json:
            click.echo(json_text({"progress": data}), err=True)
        elif self._bar is not None:
            total = None if share is None else 1.0
            self._bar.update(
                self._task, description=doing, completed=share or 0.0, total=total, done=done, eta=clock(left_s)
            )
        elif (now := time.perf_counter()) - self._told >= console.PLAIN_EVERY_S:
            self._told = now
            percent = "" if share is None else f"{100 * share:.0f} %, "
            click.echo(f"{doing}: {percent}{done}, ETA {clock(left_s)}", err=True)


def _rates(progress: Progress) -> str:
    seconds = max(progress.seconds, 1e-9)
    rates = f"{console.pace(progress.n_encoded, seconds)}, {progress.n_tokens / seconds:,.0f} tokens/s"
    if progress.stage == PLANNING:
        return f"{console.plural(progress.n_documents, 'document')}, {console.plural(progress.n_cut, 'chunk')}"
    if progress.deriving:
        return f"{progress.n_derived:,} of {console.plural(progress.n_rows, 'row')}"
    done = console.plural(progress.n_chunks, "chunk")
    if progress.n_pages:
        done = f"{console.plural(progress.n_pages, 'page')} by OCR, {done}"
    if progress.fitting:
        if not progress.n_sample:
            return "drawing a sample"
        done = f"{progress.n_encoded:,} of {console.plural(progress.n_sample, 'chunk')}"
    return done + (f", {rates}" if progress.n_encoded else "")


def clock(seconds: float | None) -> str:
    """Hours, minutes and seconds; a dash where they are unknown."""
    return "-" if seconds is None else str(timedelta(seconds=round(seconds)))
