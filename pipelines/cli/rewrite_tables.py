"""What `compact`, `shrink` and `reindex` print: progress, and the report."""

from __future__ import annotations

import json
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from ragidx.pipelines.cli import console, describe, interrupts

if TYPE_CHECKING:
    from ragidx.pipelines.maintain.rewrite import ReshapeReport

_JSON_EVERY_S = 0.2


class StageLine:
    """A context manager; `on_stage` takes the stage, its rows, and how many are done."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._stage = ("", 0)
        self._done = 0
        self._started = self._told = time.perf_counter()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if console.is_terminal() and not self._as_json:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(file=sys.stderr), transient=True)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def on_stage(self, stage: str, rows: int, done: int) -> None:
        """Show it."""
        interrupts.check()
        now = time.perf_counter()
        if (stage, rows) != self._stage or done < self._done:  # the next segment may be like the last
            self._stage, self._started = (stage, rows), now
            if self._bar is not None:
                if self._task is not None:
                    self._bar.remove_task(self._task)
                self._task = self._bar.add_task(stage, total=rows)
        self._done = done
        if self._bar is not None:
            self._bar.update(self._task, completed=done)
        elif console.is_quiet():
            return
        elif self._as_json and now - self._told >= _JSON_EVERY_S:
            self._told = now
            click.echo(json.dumps({"progress": {"stage": stage, "rows": rows, "done": done}}), err=True)
        elif not self._as_json and now - self._told >= console.PLAIN_EVERY_S:
            self._told = now
            left = (now - self._started) * (rows - done) / max(1, done)
            click.echo(f"{stage}: {done:,} of {rows:,} rows, ETA {left:,.0f} s", err=True)


def tell(report: ReshapeReport, *, as_json: bool) -> None:
    """The report on stdout."""
    if as_json:
        console.print_json(report.to_json())
        return
    r = report
    unchanged = "" if r.committed else ", unchanged"
    rows = [
        ("index", f"{r.index} (generation {r.generation}{unchanged})"),
        ("holds", f"{console.plural(r.n_chunks, 'chunk')} in {console.plural(r.n_segments, 'segment')}"),
        ("vectors", f"{r.dim} numbers, {describe.searched(r.index_type, r.segment_types, r.recall)}"),
    ]
    if r.committed:
        dropped = f", {console.plural(r.n_dropped, 'dead row')} dropped" if r.n_dropped else ""
        rows.append(("rewritten", console.plural(r.n_rewritten, "segment") + dropped))
    rows.append(("size", f"{console.n_bytes(r.bytes_after)}, before {console.n_bytes(r.bytes_before)}"))
    if r.folder_bytes > 1.1 * r.bytes_after:
        from ragidx.indexer.store.manifest import KEPT

        rows.append(
            (
                "folder",
                f"{console.n_bytes(r.folder_bytes)}: the last {KEPT} generations are kept for `ragidx rollback`; "
                "each commit removes the oldest",
            )
        )
    console.print_fields(rows)
