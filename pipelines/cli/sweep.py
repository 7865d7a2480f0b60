"""`ragidx sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragidx.indexer.ann.index_types import DEFAULT_RECALL, FLAT, INDEX_TYPES
from ragidx.indexer.specs import FILTERS
from ragidx.pipelines.cli import console, evaluate_tables, interrupts
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import (
    CHUNK_OPTIONS,
    cache_option,
    chunk_options,
    corpus_options,
    encoder_options,
    encoding_options,
    filter_topk_option,
    instruction_option,
    json_option,
    offline_option,
    records_option,
    with_values,
)
from ragidx.pipelines.cli.stages import StageLines

_NESTED = [name for name, kind in FILTERS.items() if kind.nested]


@click.command("sweep", cls=GroupedCommand)
@click.argument("source", metavar="SOURCE")
@click.option("--dim", "dims", type=int, multiple=True, metavar="N", help="A width to measure; may be repeated.")
@click.option(
    "--tau",
    "taus",
    type=float,
    multiple=True,
    metavar="N",
    help="A width as hidden width / N; may be repeated [default: 1, 2, 4, 8, 16].",
)
@click.option(
    "--index-type",
    "index_types",
    multiple=True,
    default=[FLAT],
    metavar="T",
    help=f"{', '.join(INDEX_TYPES)}, or a factory string; may be repeated [default: flat].",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="F",
    help=f"Filters to measure: {', '.join(_NESTED)}; may be repeated"
    " [default: the index's own; else embedfilter for decoders, truncation and pca for"
    " sentence-transformers, endpoints and precomputed vectors].",
)
@click.option("--filter-offset", type=int, metavar="N", help="embedfilter: first kept direction of the spectrum.")
@click.option(
    "--filter-seed", type=int, metavar="N", help="Random seed of the sample for fitting filters [default: 0]."
)
@click.option("--filter-sample", type=int, metavar="N", help="Fit filters on at most N chunks [default: 4096].")
@filter_topk_option
@click.option(
    "--queries",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Queries in BEIR form (JSON lines) [default: those of a BEIR folder, else held-out chunks].",
)
@click.option(
    "--qrels",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Relevance judgements, BEIR or TREC [default: those of a BEIR folder].",
)
@click.option(
    "--query-vectors",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="For an index: the vectors of the queries, in their order, an .npy file or JSON, as for query --vector.",
)
@click.option(
    "--target-recall",
    type=float,
    default=DEFAULT_RECALL,
    show_default=True,
    metavar="R",
    help="ann_recall@10 to tune approximate indexes to.",
)
@cache_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write results.csv, results.json, per_query.parquet and, with the extra `plot`, a picture here.",
)
@encoder_options
@instruction_option
@chunk_options
@encoding_options
@corpus_options
@records_option
@offline_option
@json_option
def command(source: str, as_json: bool, out: Path | None, cache: str | None, **options: Any) -> None:
    """Measure storage, time and quality of SOURCE at several widths, to choose one.

    \b
        ragidx sweep ragidx-index

    SOURCE is an index, or a corpus as for `build`, which is encoded once. Each width is written, mapped and searched as
    an index of that width would be. With queries and qrels, nDCG@10 has an interval, and a test shows which losses are
    real.

    \b
        ragidx sweep docs/ --queries queries.jsonl --qrels qrels.tsv --out report/
        ragidx sweep scifact/ --filter embedfilter --filter pca --dim 128 --dim 64
        ragidx sweep ragidx-index --tau 1 --tau 4 --index-type flat --index-type hnsw
        ragidx sweep own-vectors --queries q.jsonl --query-vectors q.npy --qrels qrels.tsv
    """
    from ragidx.pipelines.sweep.sweep import sweep

    options["filters"] = options["filters"] or None
    options |= with_values({name: options.pop(name) for name in CHUNK_OPTIONS})
    with StageLines(as_json=as_json) as lines:
        report = sweep(source, out=out, cache=cache, on_progress=lines.stage, on_build=lines.build, **options)
    interrupts.check()  # nothing checked after the last stage
    if as_json:
        console.print_json(report.to_json())
    else:
        evaluate_tables.print_report(report)
    if out is not None:
        console.note(f"Written to {out}: results.csv and what belongs to it")
