"""`ragidx build`."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click

from ragidx.pipelines.build.options import BuildKeywords
from ragidx.pipelines.build.report import BuildReport
from ragidx.pipelines.cli import console, describe, interrupts, plan_tables
from ragidx.pipelines.cli.build_notes import (
    tell_fields,
    tell_memory,
    tell_removed,
    tell_skips,
    tell_vectors,
    with_options,
)
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import (
    ann_options,
    chunk_options,
    corpus_options,
    encoder_options,
    encoding_options,
    filter_options,
    filter_topk_option,
    index_option,
    instruction_option,
    json_option,
    lexical_options,
    offline_option,
    records_option,
)
from ragidx.pipelines.cli.progress import ProgressLine


@click.command("build", cls=GroupedCommand)
@click.argument("corpus", metavar="[CORPUS]", required=False)
@click.option(
    "--vectors",
    metavar="FILE",
    help="Instead of CORPUS: precomputed vectors, a parquet, arrow, feather or npy file, or a folder of them. "
    "With --model, the model that made them, the index answers questions in words.",
)
@click.option("--vector-field", metavar="F", help="Column of --vectors that holds the vectors.")
@index_option
@encoder_options
@instruction_option
@filter_options
@click.option(
    "--filter-sample",
    type=int,
    metavar="N",
    help="Fit optimal, whitening and pca on at most N chunks of the corpus [default: 4096].",
)
@filter_topk_option
@chunk_options
@ann_options
@lexical_options
@encoding_options
@corpus_options
@records_option
@click.option("--strict", is_flag=True, help="Stop with exit status 1 when anything is skipped or cut.")
@click.option("--plan", is_flag=True, help="Estimate time, disk and memory, and build nothing.")
@click.option(
    "--reread",
    is_flag=True,
    help="Open every file again, even if its size and times are unchanged: a write through an open memory mapping may "
    "not change them.",
)
@click.option("--allow-removal", is_flag=True, help="Allow a build that removes more than half of the documents.")
@click.option("--rebuild", is_flag=True, help="Replace the index, even one made with other options.")
@offline_option
@json_option
def command(
    corpus: str | None,
    vectors: str | None,
    vector_field: str | None,
    index: Path,
    as_json: bool,
    plan: bool,
    **options: Unpack[BuildKeywords],
) -> None:
    """Make or update the index of CORPUS: a folder, a file, a BEIR folder, or - for standard input.

    Reads txt, md, rst, html, json, jsonl, csv, tsv, parquet, arrow (also .gz and .zst), source code, and with the extra
    `docs` pdf, docx, pptx, xlsx and epub. Run it again after the corpus changes: only what changed is encoded.

    \b
        ragidx build docs/
        ragidx build docs/ --model Qwen/Qwen2.5-0.5B --method echo --tau 2
        ragidx build docs/ --model Qwen/Qwen2.5-0.5B --plan
        ragidx build --vectors vectors.parquet
        ragidx build --vectors vectors.parquet --model models/all-MiniLM-L6-v2
    """
    from ragidx.pipelines.cli import build_vectors

    build_vectors.check_usage(corpus, vectors, vector_field)
    if vectors is not None:
        build_vectors.build(vectors, vector_field, index, as_json, options)
        return
    assert corpus is not None
    if not as_json:
        tell_vectors(corpus)
    if plan:
        _plan(corpus, index, options, as_json=as_json)
        return
    from ragidx.pipelines.build.build import build

    line = ProgressLine(as_json=as_json)
    with interrupts.reported(lambda: _what_next(line)), line:
        report = build(corpus, index, on_progress=line.callback, **options)
    if as_json:
        console.print_json(with_options(report.to_json()))
    else:
        _tell(report)


def _what_next(line: ProgressLine) -> str:
    """What an interrupted build keeps, and how to continue."""
    if line.fitting:
        return f"the filter was not fitted, and {interrupts.START_AGAIN}"
    return "encoded chunks are kept, and the same command continues"


def _plan(corpus: str, index: Path, options: BuildKeywords, *, as_json: bool) -> None:
    """The estimate of a build, on stdout."""
    from ragidx.pipelines.plan.plan import forecast

    with ProgressLine(as_json=as_json) as line:
        found = forecast(corpus, index, on_progress=line.callback, **options)
    if as_json:
        console.print_json(with_options(found.to_json()))
    else:
        plan_tables.print_forecast(found)


def _tell(report: BuildReport) -> None:
    """The report on stdout; what was skipped, on stderr."""
    r = report
    gone = f", {r.n_removed:,} removed" if r.n_removed else ""
    unopened = f", {console.plural(r.n_unopened, 'file')} not opened" if r.n_unopened else ""
    fitted = f", fitted on {console.plural(r.n_fitted, 'chunk')} of the corpus" if r.n_fitted else ""
    console.print_fields(
        [
            ("index", f"{r.index}  (generation {r.generation}{'' if r.committed else ', unchanged'})"),
            ("model", f"{r.model}: {describe.encoder(r.spec.encoder)}"),
            ("filter", describe.filter_(r.spec.filter, r.dim) + fitted),
            (
                "documents",
                f"{r.n_documents:,}: {r.n_added:,} new, {r.n_changed:,} changed, {r.n_unchanged:,} unchanged"
                f"{gone}{unopened}",
            ),
            ("chunks", f"{r.n_chunks:,}: {_chunks(r)}"),
            *describe.searched_field(r.index_type, r.made, r.recall),
            ("words", describe.words(r.lexical, r.lexical_asked)),
            ("size", describe.size(r.index_bytes, r.n_chunks, "chunk")),
            ("time", f"{r.seconds:.1f} s{_encoding(r)}"),
        ]
    )
    if r.n_truncated:
        console.note(
            f"Cut: {console.plural(r.n_truncated, 'document')} longer than the model reads; "
            "--chunk-size keeps all of their text."
        )
    if r.n_empty:
        console.note(f"Without text: {console.plural(r.n_empty, 'document')}.")
    tell_fields(r)
    tell_removed(r)
    tell_memory(r)
    tell_skips(r)


def _encoding(r: BuildReport) -> str:
    """How much of the time went into encoding, how fast, and on what; without encoding, on what alone."""
    if not (r.n_encoded and r.encode_seconds > 0):
        return f" ({r.device}, {r.dtype})" if r.device else ""
    rate = f"{r.n_encoded / r.encode_seconds:,.0f} chunks/s"
    return f", {r.encode_seconds:.2f} s of it encoding ({rate}; {r.device}, {r.dtype})"


def _chunks(r: BuildReport) -> str:
    """How the chunks came about; unchanged documents were not cut again."""
    if r.n_kept and not r.n_encoded and not r.n_reused:
        return f"{r.n_kept:,} unchanged"
    kept = f", {r.n_kept:,} unchanged" if r.n_kept else ""
    return f"{r.n_encoded:,} encoded, {r.n_reused:,} reused{kept}"
