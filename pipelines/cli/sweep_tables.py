"""What `ragidx sweep` prints: what was measured, one line for each width and index, and a recommendation."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

import click

from ragidx.pipelines.cli import console, describe
from ragidx.pipelines.cli.help import as_options

if TYPE_CHECKING:
    from ragidx.pipelines.evaluate.significance import Interval, MeanDifference
    from ragidx.pipelines.sweep.report import SweepReport


def print_report(report: SweepReport) -> None:
    """The report on stdout, notes on stderr."""
    r = report
    full = "" if r.reference_ndcg is None else f", nDCG@10 {_interval(r.reference_ndcg)}"
    console.print_fields(
        [
            (
                "source",
                f"{r.source}: {console.plural(r.n_documents, 'document')}, {console.plural(r.n_chunks, 'chunk')}",
            ),
            ("model", _model(r)),
            ("queries", r.queries),
            ("full width", f"{r.reference}, {console.plural(r.reference_dim, 'dimension')}, float32, exact{full}"),
        ]
    )
    click.echo()
    console.print_table(*_table(r))
    click.echo()
    room = min(console.width(sys.stdout), 120)
    for line in _explained(r):
        click.echo(textwrap.fill(line, room))
    click.echo(textwrap.fill(as_options(r.recommendation()), room))
    if r.words:
        click.echo()
        console.print_table(*_words(r))
        click.echo()
        click.echo(textwrap.fill(_WORDS_EXPLAINED, room))
        click.echo(textwrap.fill(r.hybrid_recommendation(), room))
    for note in r.notes:
        console.note(as_options(note))


def _model(report: SweepReport) -> str:
    spec = report.encoder
    if spec is None:
        return "none: precomputed vectors" + (f", made by {report.model}" if report.model else "")
    return f"{report.model}: {describe.encoder(spec)}"


def _table(report: SweepReport) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the widths; without qrels without quality."""
    head = ["filter", "index", "dim", "bytes", "disk", "made", "ms", "q/s", "recall", "overlap"]
    rows = [
        [
            row.filter,
            row.index_type,
            f"{row.dim:,}",
            f"{row.bytes_per_vector:,}",
            console.n_bytes(row.disk_bytes),
            f"{row.build_seconds:.2f} s",
            f"{row.single.p50_ms:.2f}",
            f"{row.queries_per_s:,.0f}",
            f"{row.recall:.3f}",
            f"{row.overlap:.3f}",
            *([] if row.ndcg is None else [_interval(row.ndcg), _moved(row.against_full)]),
        ]
        for row in report.rows
    ]
    return head + ["nDCG@10", "vs full"] * (report.reference_ndcg is not None), rows


def _words(report: SweepReport) -> tuple[list[str], list[list[str]]]:
    """Head and rows of search by words."""
    head = ["search", "filter", "dim", "bytes", "disk", "made", "ms", "nDCG@10", "vs words", "vs best"]
    return head, [
        [
            row.mode,
            row.filter or "-",
            f"{row.dim:,}" if row.dim else "-",
            f"{row.bytes_per_chunk:,.0f}",
            console.n_bytes(row.disk_bytes),
            "" if row.build_seconds is None else f"{row.build_seconds:.2f} s",
            f"{row.single.p50_ms:.2f}",
            _interval(row.ndcg),
            *(_moved(one) for one in (row.against_lexical, row.against_best)),
        ]
        for row in report.words
    ]


def _moved(apart: MeanDifference | None) -> str:
    if apart is None:
        return ""
    return f"{apart.mean:+.3f} {apart.verdict}" if apart.is_real else f"({apart.mean:+.3f})"


_WORDS_EXPLAINED = (
    "With words: bytes and disk are of postings and vectors together; every vector is compared. vs words: difference "
    "of nDCG@10 from BM25 alone; vs best: from the best row of hybrid search."
)


def _interval(value: Interval) -> str:
    return f"{value.mean:.3f} ± {(value.high - value.low) / 2:.3f}"


def _explained(report: SweepReport) -> list[str]:
    """What the columns mean."""
    threads = console.plural(report.threads, "thread")
    lines = [
        f"ms: one query, one thread, median. q/s: in batches of {report.batch}, {threads}. recall: ann_recall@10"
        " against exact search at the same width. overlap: share of the first ten that full width has too."
    ]
    if report.reference_ndcg is not None:
        lines.append(
            "vs full: difference of nDCG@10; in brackets where chance explains it (paired permutation test, p >= 0.05)."
            " ±: half of a 95 % bootstrap interval."
        )
    return lines
