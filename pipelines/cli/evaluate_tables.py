"""What `ragidx evaluate` prints: a table for each data set, best rows first, and what follows from it."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragidx.pipelines.cli import console, interrupts
from ragidx.pipelines.cli.help import as_options

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.evaluate.cells import Costs
    from ragidx.pipelines.experiments.evaluate.report import EvaluationReport, TaskReport
    from ragidx.pipelines.experiments.evaluate.significance import MeanDifference


def tell(report: EvaluationReport, out: Path | None, *, as_json: bool) -> None:
    """What a command has measured, and where it was written."""
    interrupts.check()  # nothing checked after the last stage
    if as_json:
        console.print_json(report.to_json())
    else:
        print_report(report)
    if out is not None:
        console.note(f"Written to {out}: results.csv and what belongs to it")


def print_report(report: EvaluationReport) -> None:
    """The report on stdout, notes on stderr."""
    room = min(console.width(sys.stdout), 120)
    for number, task in enumerate(report.tasks):
        if number:
            click.echo()
        click.echo(_title(task))
        click.echo()
        order = _order(task)
        console.print_table(*_table(task, order), bold=order.index(task.reference))
        click.echo()
        if task.pairs:
            _print_pairs(task)
            click.echo()
        for line in _explained(task):
            click.echo(textwrap.fill(line, room))
        for note in task.notes:
            console.note(as_options(note))
    if report.overall:
        click.echo()
        first = report.tasks[0]
        click.echo(f"Over {len(report.tasks):,} data sets, from {first.rows[first.reference].name}:\n")
        rows = [[one.name, f"{one.mean:+.3f}", f"{one.p:.2g}"] for one in report.overall]
        console.print_table(["", "difference", "p"], rows)
        click.echo("\np: Wilcoxon's signed-rank test, corrected for the number of rows.")
    for note in report.notes:
        console.note(as_options(note))


def _title(task: TaskReport) -> str:
    what = "synthetic query" if task.synthetic else "pair" if task.kind == "pairs" else "query"
    whats = "synthetic queries" if task.synthetic else "pairs" if task.kind == "pairs" else "queries"
    searched = ""
    if task.n_chunks and task.kind != "pairs":
        documents, chunks = console.plural(task.n_documents, "document"), console.plural(task.n_chunks, "chunk")
        searched = f"{documents}, {chunks}, "
    return f"{task.name}: {searched}{console.plural(len(task.query_ids), what, whats)}{_made_by(task)}"


def _made_by(task: TaskReport) -> str:
    """Model and method, which no row's name has where all have the same."""
    from ragidx.pipelines.experiments.evaluate.report import shown

    shared = list[str]()
    for name in ("model", "method"):
        found = {getattr(row.configuration, name) for row in task.rows} - {None}
        shared += [shown(name, value) for value in found if len(found) == 1]
    return f"; {', '.join(shared)}" if shared else ""


def _order(task: TaskReport) -> list[int]:
    """Places of the rows, best first; where costs were measured, in the order of the grid."""
    places = range(len(task.rows))
    if _has(task, "costs"):
        return list(places)
    return sorted(places, key=lambda number: -task.rows[number].interval.mean)


def _table(task: TaskReport, order: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """Head and rows."""
    from ragidx.pipelines.experiments.evaluate.measures import AGREEMENT, CORRELATIONS, MEASURES, NEARNESS

    chosen = None if task.choice is None else task.choice.number
    columns = {"": [task.rows[number].name + " *" * (number == chosen) for number in order]}
    rows = [task.rows[number] for number in order]
    if _has(task, "bytes"):
        columns["bytes"] = ["" if row.bytes is None else f"{row.bytes:,.0f}" for row in rows]
    if task.reads_differently:
        columns["tokens"] = ["" if row.tokens is None else f"{row.tokens:,.1f}" for row in rows]
    if _has(task, "costs"):
        columns |= _costs([row.costs for row in rows])
    columns[task.measure] = [
        f"{row.interval.mean:.3f} [{row.interval.low:.3f}, {row.interval.high:.3f}]" for row in rows
    ]
    if _has(task, "chance"):
        columns["random"] = [
            "" if row.chance is None else f"{row.chance[0]:.3f} to {row.chance[1]:.3f}" for row in rows
        ]
    if task.measure not in (*NEARNESS, *AGREEMENT):
        for number, name in enumerate(("difference", "p", "detectable")):
            columns[name] = [_apart(row.against)[number] for row in rows]
    room = console.width(sys.stdout) if sys.stdout.isatty() else math.inf
    room -= sum(2 + max(map(len, [name, *cells])) for name, cells in columns.items())
    for name in NEARNESS if _has(task, "costs") else (*MEASURES, *CORRELATIONS, *AGREEMENT):
        if name in task.values and name != task.measure and (room := room - max(5, len(name)) - 2) >= -2:
            columns[name] = [f"{row.means[name]:.3f}" for row in rows]
    return list(columns), [list(cells) for cells in zip(*columns.values(), strict=True)]


def _has(task: TaskReport, what: str) -> bool:
    return any(getattr(row, what) is not None for row in task.rows)


def _costs(costs: Sequence[Costs | None]) -> dict[str, list[str]]:
    """Columns of size on disk and of time; a rate only where batches were timed."""
    columns = {
        "disk": ["" if one is None else console.n_bytes(one.disk_bytes) for one in costs],
        "made": ["" if one is None else f"{one.build_seconds:.2f} s" for one in costs],
        "ms": ["" if one is None else f"{one.single.p50_ms:.2f}" for one in costs],
    }
    rates = [None if one is None else one.queries_per_s for one in costs]
    if any(rates):
        columns["q/s"] = ["" if rate is None else f"{rate:,.0f}" for rate in rates]
    return columns


def _print_pairs(task: TaskReport) -> None:
    """The pairs that are told apart, and how many are not."""
    rows = [
        [task.rows[one].name, task.rows[other].name, *_apart(apart)]
        for (one, other), apart in task.pairs.items()
        if apart.verdict in ("better", "worse")
    ]
    if rows:
        console.print_table(["", "from", "difference", "p", "detectable"], rows)
    if left := len(task.pairs) - len(rows):
        click.echo(f"Not shown to differ: {left:,} of {len(task.pairs):,} pairs of rows; --json has all of them.")


def _apart(apart: MeanDifference | None) -> list[str]:
    if apart is None:
        return ["reference", "", ""]
    shown = f"{apart.mean:+.3f}" + ("" if apart.verdict == "not real" else f" {apart.verdict}")
    return [shown, f"{apart.p:.2g}", f"{apart.detectable:.3f}"]


def _explained(task: TaskReport) -> list[str]:
    """What the columns mean, and what to take."""
    from ragidx.pipelines.experiments.evaluate.measures import NEARNESS, OVERLAP

    lines = []
    timed = next((row.costs for row in task.rows if row.costs is not None), None)
    if timed is not None:
        rate = f" q/s: in batches, {console.plural(timed.threads, 'thread')}." if timed.queries_per_s else ""
        lines.append(f"ms: one query, one thread, median.{rate}")
    if "rbo" in task.values:
        reference = task.rows[task.reference].name
        return [
            f"How alike the answers are to those of {reference}: overlap@10, the share of the first ten that both have,"
            " and rank-biased overlap. It favours what resembles the reference, and says nothing of which is better."
        ]
    if OVERLAP in task.values:
        lines.append(
            "overlap@10: share of the first ten that exact search at full width has too. ann_recall@10: share of those"
            " that exact search at the same width has."
        )
    if task.measure in NEARNESS:
        lines.append(
            "Without qrels the overlap tells how near a width stays to the full one, not whether it is good enough:"
            " give `queries` and `qrels`."
        )
        return [as_options(line) for line in lines]
    lines.append(
        f"{task.measure}: mean and 95 % interval. p: paired permutation test against the reference,"
        f" {task.rows[task.reference].name}, corrected for the number of rows."
        " detectable: a difference that the test finds four times in five."
    )
    if task.synthetic is not None:
        lines.append(
            f"Synthetic: a {task.synthetic} was taken out of its document and has to find it. This ranks dense with"
            " dense and hybrid with hybrid as judgements do; it favours shared words, so it cannot tell dense from"
            " lexical."
        )
    if task.reads_differently:
        lines.append("tokens: what the model reads of a text, on average, with the template and all copies.")
    if any(row.chance for row in task.rows):
        lines.append("random: ten random projections of the same width in place of EmbedFilter, lowest and highest.")
    choice = task.choice
    if choice is None:
        return lines
    text, query = ("sentence", "pairs") if task.kind == "pairs" else ("chunk", "queries")
    if choice.number is not None:
        row = task.rows[choice.number]
        lines.append(
            f"* Cheapest that is not worse than the best by {choice.margin:g} or more: {row.name},"
            f" {row.bytes or 0:,.0f} bytes a {text}."
        )
    elif all(one.verdict == "worse" for one in choice.tested):
        lines.append(f"No row is shown to be not worse than the best by {choice.margin:g}.")
    undecided = [one for one in choice.tested if one.verdict == "undecided"]
    if undecided:
        most = max(one.queries_needed for one in undecided)
        names = ", ".join(task.rows[one.number].name for one in undecided[:3])
        more = f" and {len(undecided) - 3} more" if len(undecided) > 3 else ""
        lines.append(f"Undecided: {names}{more}; about {most:,} {query} would tell.")
    return lines
