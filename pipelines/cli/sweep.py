"""`ragidx sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragidx.indexer.ann.index_types import DEFAULT_RECALL, FLAT, INDEX_TYPES
from ragidx.indexer.specs import FILTERS
from ragidx.pipelines.cli import evaluate_tables
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import (
    cache_option,
    judged_queries,
    path_option,
    several,
)
from ragidx.pipelines.cli.stages import StageLines
from ragidx.pipelines.cli.vector_options import (
    encoder_options,
    filter_topk_option,
    measured_options,
    with_chunks,
)

_NESTED = [name for name, kind in FILTERS.items() if kind.nested]


@click.command("sweep", cls=GroupedCommand)
@click.argument("source", metavar="SOURCE")
@several("--dim", "dims", int, "N", "A width to measure")
@several("--tau", "taus", float, "N", "A width as hidden width / N [default: 1, 2, 4, 8, 16]")
@several("--index-type", "index_types", str, "T", f"{', '.join(INDEX_TYPES)}, or a factory string [default: {FLAT}]")
@several(
    "--filter",
    "filters",
    str,
    "F",
    f"Filters to measure: {', '.join(_NESTED)} [default: the index's own; else embedfilter for decoders, truncation and"
    " pca for sentence-transformers, endpoints and precomputed vectors]",
)
@click.option("--filter-offset", type=int, metavar="N", help="embedfilter: first kept direction of the spectrum.")
@click.option(
    "--filter-seed", type=int, metavar="N", help="Random seed of the sample for fitting filters [default: 0]."
)
@click.option("--filter-sample", type=int, metavar="N", help="Fit filters on at most N chunks [default: 4096].")
@filter_topk_option
@judged_queries("those of a BEIR folder, else held-out chunks", "those of a BEIR folder")
@path_option(
    "--query-vectors",
    "FILE",
    "For an index: the vectors of the queries, in their order, an .npy file or JSON, as for query --vector.",
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
@path_option(
    "--out",
    "DIR",
    "Write results.csv, results.json, per_query.parquet and, with the extra `plot`, a picture here.",
)
@encoder_options
@measured_options
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
    from ragidx.pipelines.experiments.evaluate.sweep import sweep

    with StageLines(as_json=as_json, is_kept=cache is not None) as lines:
        report = sweep(
            source, out=out, cache=cache, on_progress=lines.stage, on_build=lines.build, **with_chunks(options)
        )
    evaluate_tables.tell(report, out, as_json=as_json)
