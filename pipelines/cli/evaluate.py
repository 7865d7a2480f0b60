"""`ragidx evaluate`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ragidx.indexer.ann.index_types import FLAT
from ragidx.indexer.specs import FILTERS
from ragidx.pipelines.cli import console, evaluate_tables, interrupts
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import (
    CHUNK_OPTIONS,
    cache_option,
    chunk_options,
    corpus_options,
    encoding_options,
    instruction_option,
    json_option,
    offline_option,
    or_nothing,
    records_option,
    rest_of_encoder_options,
    with_values,
)
from ragidx.pipelines.cli.stages import StageLines
from ragidx.retriever.options import FUSIONS, MODES

F = TypeVar("F", bound=Callable[..., Any])


def axis(name: str, parameter: str, kind: type, metavar: str, about: str) -> Callable[[F], F]:
    """An option that may be repeated: its values are an axis of the grid."""
    return click.option(
        name,
        parameter,
        type=kind,
        multiple=True,
        callback=or_nothing,
        metavar=metavar,
        help=f"{about}; may be repeated.",
    )


@click.command("evaluate", cls=GroupedCommand)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@axis("--model", "model", str, "ID|PATH", "A model, as for build")
@axis("--method", "method", str, "M", "A method, as for build")
@axis("--pooling", "pooling", str, "P", "A pooling")
@axis("--attention", "attention", str, "A", "causal, bidirectional")
@axis("--layer", "layer", int, "N", "A hidden layer")
@axis("--copies", "copies", int, "N", "How often echo or reba repeats the text")
@axis("--filter", "filter", str, "F", f"A filter: {', '.join(FILTERS)}")
@axis("--tau", "tau", float, "N", "A width as hidden width / N")
@axis("--dim", "dim", int, "N", "A width")
@axis("--filter-offset", "offset", int, "N", "embedfilter: the first kept direction of the spectrum")
@axis("--mode", "mode", str, "M", f"A search: {', '.join(MODES)} [default: all of them]")
@axis("--fusion", "fusion", str, "F", f"Of hybrid search: {', '.join(FUSIONS)} [default: z]")
@axis("--weight", "weight", float, "W", "Of the cosine in hybrid search, 0 to 1 [default: 0.5]")
@axis("--index-type", "index_type", str, "T", f"An index type [default: {FLAT}]")
@click.option(
    "--queries",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Queries: JSON lines, lines of id, tab and text, or TREC topics [default: those of a BEIR folder].",
)
@click.option(
    "--qrels",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Relevance judgements, BEIR or TREC [default: those of a BEIR folder].",
)
@click.option(
    "--split",
    default="test",
    show_default=True,
    metavar="S",
    help="Which judgements, or pairs, of a folder.",
)
@click.option("--drop-self", is_flag=True, help="The document with the query's id is no answer.")
@click.option(
    "--without-labels", is_flag=True, help="Make queries of the corpus: a sentence is taken out of its document."
)
@click.option(
    "--query-log",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Queries that nobody judged: how alike the rows answer them; says nothing of quality.",
)
@click.option("--kind", default="sentence", show_default=True, metavar="K", help="Of these queries: sentence, title.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of the draw of these queries.")
@click.option("--measure", metavar="M", help="What intervals and tests are of [default: ndcg@10; of pairs spearman].")
@click.option(
    "--reference", metavar="NAME", help="Words of the row that the others are compared with [default: the first]."
)
@click.option(
    "--margin",
    type=float,
    default=0.01,
    show_default=True,
    metavar="M",
    help="What the cheapest row may lose against the best.",
)
@click.option("--all-pairs", is_flag=True, help="Compare each row with each other, not with the reference alone.")
@cache_option
@click.option("--yes", is_flag=True, help="Measure more than 1,000 configurations.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write results.csv, per_query.parquet, runs and a picture here.",
)
@rest_of_encoder_options
@instruction_option
@chunk_options
@encoding_options
@corpus_options
@records_option
@offline_option
@json_option
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
    from ragidx.pipelines.evaluate.evaluate import evaluate

    options |= with_values({name: options.pop(name) for name in CHUNK_OPTIONS})
    options = {name: value for name, value in options.items() if value is not None}
    with StageLines(as_json=as_json) as lines:
        report = evaluate(*sources, out=out, cache=cache, on_progress=lines.stage, on_build=lines.build, **options)
    interrupts.check()  # nothing checked after the last stage
    if as_json:
        console.print_json(report.to_json())
    else:
        evaluate_tables.print_report(report)
    if out is not None:
        console.note(f"Written to {out}: results.csv and what belongs to it")
