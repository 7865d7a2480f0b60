"""`ragidx evaluate`, and its page `ragidx sweep`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

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
    split_option,
    together,
)
from ragidx.pipelines.cli.stages import StageLines
from ragidx.pipelines.cli.vector_options import (
    encoder_options,
    filter_topk_option,
    measured_options,
    rest_of_encoder_options,
    with_chunks,
)
from ragidx.retriever.options import FUSIONS, MODES

F = TypeVar("F", bound=Callable[..., Any])


def _grid_options(filters: str, widths: str = "") -> Callable[[F], F]:
    """The filters, widths and index types of a grid."""
    return together(
        several("--filter", "filter", str, "F", filters),
        several("--tau", "tau", float, "N", f"A width as hidden width / N{widths}"),
        several("--dim", "dim", int, "N", "A width"),
        several("--filter-offset", "offset", int, "N", "embedfilter: the first kept direction of the spectrum"),
        several(
            "--index-type", "index_type", str, "T", f"{', '.join(INDEX_TYPES)}, or a factory string [default: {FLAT}]"
        ),
    )


@click.command("evaluate", cls=GroupedCommand)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@several("--model", "model", str, "ID|PATH", "A model, as for build")
@several("--method", "method", str, "M", "A method, as for build")
@several("--pooling", "pooling", str, "P", "A pooling")
@several("--attention", "attention", str, "A", "causal, bidirectional")
@several("--layer", "layer", int, "N", "A hidden layer")
@several("--copies", "copies", int, "N", "How often echo or reba repeats the text")
@several("--questions", "questions", str, "Q", "Of an index that has a table of questions: table, model")
@_grid_options(f"A filter: {', '.join(FILTERS)}, head:FILE")
@several("--center", "center", bool, "yes|no", "Whether the filter takes the means of both sides off")
@several("--mode", "mode", str, "M", f"A search: {', '.join(MODES)} [default: all of them]")
@several("--fusion", "fusion", str, "F", f"Of hybrid search: {', '.join(FUSIONS)} [default: z]")
@several("--weight", "weight", float, "W", "Of the cosine in hybrid search, 0 to 1 [default: 0.5, or what adapt chose]")
@judged_queries("those of a BEIR folder", "those of a BEIR folder")
@split_option
@click.option("--drop-self", is_flag=True, help="The document with the query's id is no answer.")
@click.option(
    "--without-labels", is_flag=True, help="Make queries of the corpus: a sentence is taken out of its document."
)
@path_option(
    "--query-log", "FILE", "Queries that nobody judged: how alike the rows answer them; says nothing of quality."
)
@click.option("--kind", default="sentence", show_default=True, metavar="K", help="Of these queries: sentence, title.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of the draw of these queries.")
@click.option("--measure", metavar="M", help="What intervals and tests are of [default: ndcg@10; of pairs spearman].")
@click.option(
    "--reference",
    metavar="NAME",
    help="Words of the row that the others are compared with [default: the first; without labels the first hybrid].",
)
@click.option(
    "--margin", type=float, metavar="M", help="What the cheapest row may lose against the best [default: 0.01]."
)
@click.option("--all-pairs", is_flag=True, help="Compare each row with each other, not with the reference alone.")
@cache_option
@click.option("--yes", is_flag=True, help="Measure more than 1,000 configurations.")
@path_option("--out", "DIR", "Write results.csv, per_query.parquet, runs and a picture here.")
@rest_of_encoder_options
@measured_options
def command(sources: tuple[str, ...], as_json: bool, out: Path | None, cache: str | None, **options: Any) -> None:
    """Measure which configuration is better on SOURCE, and say which differences are real.

    \b
        ragidx evaluate scifact/ --filter embedfilter --filter pca --tau 1 --tau 2 --tau 4

    A SOURCE is a BEIR folder, pairs of sentences with scores, an index or a folder with --queries and --qrels, or
    runs in TREC's format. Options that may be repeated make a grid; each model encodes once.

    \b
        ragidx evaluate docs/ --queries queries.jsonl --qrels qrels.tsv --model mini --model smollm2
        ragidx evaluate ragidx-index --queries queries.jsonl --qrels qrels.tsv --weight 0.3 --weight 0.7
        ragidx evaluate sts/test.tsv --model smollm2 --method prompteol --method echo
        ragidx evaluate old.run new.run --qrels qrels.tsv
    """
    _measure(sources, as_json, out, cache, options)


@click.command("sweep", cls=GroupedCommand)
@click.argument("source", metavar="SOURCE")
@_grid_options(
    f"Filters to measure: {', '.join(FILTERS)} [default: the index's own; else embedfilter for decoders, truncation and"
    " pca for sentence-transformers, endpoints and precomputed vectors]",
    " [default: 1, 2, 4, 8, 16]",
)
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
def sweep(source: str, as_json: bool, out: Path | None, cache: str | None, **options: Any) -> None:
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
    _measure((source,), as_json, out, cache, options | {"costs": True})


def _measure(
    sources: tuple[str, ...], as_json: bool, out: Path | None, cache: str | None, options: dict[str, Any]
) -> None:
    from ragidx.pipelines.experiments.evaluate.evaluate import evaluate

    with StageLines(as_json=as_json, is_kept=cache is not None) as lines:
        report = evaluate(
            *sources, out=out, cache=cache, on_progress=lines.stage, on_build=lines.build, **with_chunks(options)
        )
    evaluate_tables.tell(report, out, as_json=as_json)
