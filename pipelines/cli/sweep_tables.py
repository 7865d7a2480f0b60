"""What `ragidx sweep` prints: what was measured, one line for each width and index, and what to take."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

import click

from ragidx.indexer.specs import EncoderSpec
from ragidx.pipelines.cli import console, words

if TYPE_CHECKING:
    from ragidx.pipelines.sweep_quality import Interval
    from ragidx.pipelines.sweep_report import SweepReport, SweepRow

_TEXT = 2  # columns of text, on the left; the others are numbers and stand on the right


def print_report(report: SweepReport) -> None:
    """The report on stdout, what was left out on stderr."""
    r = report
    full = "" if r.reference_ndcg is None else f", nDCG@10 {_interval(r.reference_ndcg)}"
    console.print_fields(
        [
            (
                "source",
                f"{r.source}: {console.plural(r.n_documents, 'document')}, {console.plural(r.n_chunks, 'chunk')}",
            ),
            (
                "model",
                f"{r.model}: {words.encoder(EncoderSpec.parse(r.encoder))}"
                if r.model
                else "none: the vectors were made elsewhere",
            ),
            ("queries", r.queries),
            ("full", f"{r.reference}, {console.plural(r.reference_dim, 'dimension')}, float32, exact{full}"),
        ]
    )
    click.echo()
    head, rows = _table(r)
    console.print_table(head, rows)
    click.echo()
    room = min(console.width(sys.stdout), 120)
    for line in _explained(r):
        click.echo(textwrap.fill(line, room))
    click.echo(textwrap.fill(r.recommendation(), room))
    for note in r.notes:
        console.note(note)


def _table(report: SweepReport) -> tuple[list[str], list[list[str]]]:
    """Columns whose numbers stand under each other; those that say nothing here are left out."""
    head = ["filter", "index", "dim", "bytes", "disk", "made", "ms", "q/s", "recall", "overlap"]
    judged = report.reference_ndcg is not None
    cells = [[*_row(row), *(_quality(row) if judged else ())] for row in report.rows]
    head += ["nDCG@10", "vs full"] * judged
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    sides = [str.ljust] * _TEXT + [str.rjust] * (len(head) - _TEXT)
    aligned = [[side(*of) for side, *of in zip(sides, row, widths, strict=True)] for row in [head, *cells]]
    return aligned[0], aligned[1:]


def _row(row: SweepRow) -> list[str]:
    return [
        row.filter,
        row.index_type,
        f"{row.dim:,}",
        f"{row.bytes_per_vector:,}",
        console.n_bytes(row.disk_bytes),
        f"{row.build_seconds:.1f} s",
        f"{row.single.p50_ms:.2f}",
        f"{row.queries_per_s:,.0f}",
        f"{row.recall:.3f}",
        f"{row.overlap:.3f}",
    ]


def _quality(row: SweepRow) -> list[str]:
    assert row.ndcg is not None
    assert row.against is not None
    moved = f"{row.against.mean:+.3f}"
    return [_interval(row.ndcg), f"{moved} {row.against.verdict}" if row.against.is_real else f"({moved})       "]


def _interval(value: Interval) -> str:
    return f"{value.mean:.3f} ± {(value.high - value.low) / 2:.3f}"


def _explained(report: SweepReport) -> list[str]:
    """What the columns mean."""
    threads = console.plural(report.threads, "thread")
    lines = [
        f"ms: one query, one thread, median. q/s: in batches of {report.batch}, {threads}. recall: ann_recall@10"
        " against exact search at the same width. overlap: share of the first ten that full width has, too."
    ]
    if report.reference_ndcg is not None:
        lines.append(
            "vs full: difference of nDCG@10; in brackets where chance explains it (paired permutation test, p >= 0.05)."
            " ±: half of a 95 % bootstrap interval."
        )
    return lines
