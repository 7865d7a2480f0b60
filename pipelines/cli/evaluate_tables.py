"""What `ragidx evaluate` prints: a table for each data set, best rows first, and what follows from it."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import as_options

if TYPE_CHECKING:
    from ragidx.pipelines.evaluate.report import Report, TaskReport
    from ragidx.pipelines.evaluate.significance import MeanDifference

_SHOWN = ("ndcg@10", "recall@10", "recall@100", "mrr@10", "map", "p@10", "judged@10", "spearman", "pearson")


def print_report(report: Report) -> None:
    """The report on stdout, notes on stderr."""
    room = min(console.width(sys.stdout), 120)
    for number, task in enumerate(report.tasks):
        if number:
            click.echo()
        click.echo(_title(task))
        click.echo()
        console.print_table(*_table(task))
        click.echo()
        if task.pairs:
            console.print_table(*_pairs(task))
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
    return f"{task.name}: {searched}{console.plural(len(task.query_ids), what, whats)}"


def _table(task: TaskReport) -> tuple[list[str], list[list[str]]]:
    others = [name for name in _SHOWN if name in task.values and name != task.measure]
    has_bytes, has_chance = (any(getattr(row, name) is not None for row in task.rows) for name in ("bytes", "chance"))
    head = ["", "bytes"] if has_bytes else [""]
    head += [task.measure, *(["random"] if has_chance else []), "difference", "p", "detectable", *others]
    order = sorted(range(len(task.rows)), key=lambda number: -task.rows[number].interval.mean)
    return head, [_cells(task, number, others, bytes_=has_bytes, chance=has_chance) for number in order]


def _cells(task: TaskReport, number: int, others: list[str], *, bytes_: bool, chance: bool) -> list[str]:
    row = task.rows[number]
    chosen = task.choice is not None and task.choice.number == number
    cells = [row.name + (" *" if chosen else "")]
    if bytes_:
        cells.append("" if row.bytes is None else f"{row.bytes:,.0f}")
    cells.append(f"{row.interval.mean:.3f} [{row.interval.low:.3f}, {row.interval.high:.3f}]")
    if chance:
        cells.append("" if row.chance is None else f"{row.chance[0]:.3f} to {row.chance[1]:.3f}")
    cells += _apart(row.against)
    return [*cells, *(f"{row.means[name]:.3f}" for name in others)]


def _pairs(task: TaskReport) -> tuple[list[str], list[list[str]]]:
    rows = [[task.rows[one].name, task.rows[other].name, *_apart(apart)] for (one, other), apart in task.pairs.items()]
    return ["", "from", "difference", "p", "detectable"], rows


def _apart(apart: MeanDifference | None) -> list[str]:
    if apart is None:
        return ["reference", "", ""]
    shown = f"{apart.mean:+.3f}" + ("" if apart.verdict == "not real" else f" {apart.verdict}")
    return [shown, f"{apart.p:.2g}", f"{apart.detectable:.3f}"]


def _explained(task: TaskReport) -> list[str]:
    """What the columns mean, and what to take."""
    lines = [
        f"{task.measure}: mean and 95 % interval. p: paired permutation test against the reference, corrected for the"
        " number of rows. detectable: a difference that the test finds four times in five."
    ]
    if task.synthetic is not None:
        lines.append(
            f"Synthetic: a {task.synthetic} was taken out of its document and has to find it. This ranks dense with"
            " dense and hybrid with hybrid as judgements do; it favours shared words, so it cannot tell dense from"
            " lexical."
        )
    if any(row.chance for row in task.rows):
        lines.append("random: ten random projections of the same width in place of EmbedFilter, lowest and highest.")
    choice = task.choice
    if choice is None:
        return lines
    if choice.number is not None:
        row = task.rows[choice.number]
        lines.append(
            f"* Cheapest that is not worse than the best by {choice.margin:g} or more: {row.name},"
            f" {row.bytes or 0:,.0f} bytes a chunk."
        )
    undecided = [one for one in choice.tested if one.verdict == "undecided"]
    if undecided:
        most = max(one.queries_needed for one in undecided)
        names = ", ".join(task.rows[one.number].name for one in undecided[:3])
        more = f" and {len(undecided) - 3} more" if len(undecided) > 3 else ""
        lines.append(f"Undecided: {names}{more}; about {most:,} queries would tell.")
    return lines
