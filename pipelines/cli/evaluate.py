"""`ragidx evaluate`, and its page `ragidx sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragidx.indexer.ann.index_types import DEFAULT_RECALL
from ragidx.pipelines.cli import evaluate_tables
from ragidx.pipelines.cli.help import MeasuringCommand
from ragidx.pipelines.cli.keywords import keyword_options, value_of
from ragidx.pipelines.cli.options import path_option
from ragidx.pipelines.cli.stages import StageLines
from ragidx.pipelines.cli.vector_options import (
    cache_option,
    encoder_options,
    instruction_option,
    measured_options,
    rest_of_encoder_options,
    with_chunks,
)
from ragidx.pipelines.experiments.evaluate.options import Grid, Judge, Questions
from ragidx.retriever.keywords import FilterKeywords

_OWN = " [default: those of a BEIR folder]"


@click.command("evaluate", cls=MeasuringCommand)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@keyword_options(Grid)
@keyword_options(Questions, but=["vectors"], notes={"queries": _OWN, "qrels": _OWN})
@keyword_options(Judge, notes={"measure": " [default: ndcg@10; of pairs spearman]"})
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


@click.command("sweep", cls=MeasuringCommand)
@click.argument("source", metavar="SOURCE")
@keyword_options(
    Grid,
    only=["filter", "tau", "dim", "offset", "index_type"],
    notes={
        "filter": " [default: the index's own; else embedfilter for decoders, truncation and pca for"
        " sentence-transformers, endpoints and precomputed vectors]",
        "tau": " [default: 1, 2, 4, 8, 16]",
    },
)
@keyword_options(FilterKeywords, only=["filter_seed", "filter_sample", "filter_topk", "filter_power"])
@keyword_options(
    Questions,
    only=["queries", "qrels", "vectors"],
    notes={"queries": " [default: those of a BEIR folder, else held-out chunks]", "qrels": _OWN},
)
@keyword_options(Judge, only=["answers"])
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
@instruction_option
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

    typed = with_chunks(options)
    with StageLines(as_json=as_json, is_kept=cache is not None) as lines:
        report = evaluate(
            *sources,
            grid=value_of(Grid, typed),
            questions=value_of(Questions, typed),
            judge=value_of(Judge, typed),
            out=out,
            cache=cache,
            on_progress=lines.stage,
            on_build=lines.build,
            **typed,
        )
    evaluate_tables.tell(report, out, as_json=as_json)
