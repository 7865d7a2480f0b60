"""`ragidx adapt`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragidx.pipelines.cli import console, describe, interrupts, plan_tables
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import (
    cache_option,
    device_option,
    dtype_option,
    endpoint_option,
    index_option,
    json_option,
    judged_queries,
    offline_option,
    quiet_option,
)
from ragidx.pipelines.cli.stages import StageLines

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.trials.adapt import AdaptReport


@click.command("adapt", cls=GroupedCommand)
@index_option
@click.option("--model", metavar="ID|PATH", help="Where the model of the index is now.")
@click.option(
    "--pairs",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE|DIR",
    help="Train on these too: JSON Lines with `query` and `positive`; may be repeated.",
)
@click.option("--limit", type=int, default=10_000, show_default=True, metavar="N", help="Take N pairs at most.")
@click.option("--epochs", type=int, default=8, show_default=True, metavar="N", help="How often each pair is seen.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of what is drawn.")
@judged_queries("sentences taken out of their documents")
@click.option("--force", is_flag=True, help="Commit in any case.")
@cache_option
@device_option
@dtype_option
@endpoint_option
@offline_option
@quiet_option
@json_option
def command(index: Path, as_json: bool, cache: str | None, **options: Any) -> None:
    """Fit the vectors of an index to its own documents, and keep that only where answers get better.

    \b
        ragidx adapt
        ragidx adapt --queries queries.jsonl --qrels qrels.tsv --pairs clicks.jsonl

    A linear map of the stored vectors is trained on sentences and headings, each with the rest of its passage, and on
    --pairs; no document is encoded again. The weight of the vectors in hybrid search is chosen, too. The index is then
    asked --queries, or sentences of 300 documents that nothing was trained on, with and without. Only where answers
    are better with 95 % confidence the map is committed; `ragidx rollback` goes back. Otherwise the index stays as it
    is, and the exit status is 1.
    """
    from ragidx.pipelines.experiments.trials.adapt import adapt
    from ragidx.retriever.models import ModelPlace
    from ragidx.retriever.searcher import Searcher

    place = ModelPlace(**{name: options.pop(name) for name in ("model", "device", "dtype", "endpoint")})
    with StageLines(as_json=as_json, is_kept=cache is not None) as lines:
        report = adapt(Searcher.open(index, place), cache=cache, on_progress=lines.stage, **options)
    interrupts.check()
    if as_json:
        console.print_json(report.to_json())
    else:
        console.print_fields(_fields(report))
    if not report.committed:
        raise click.exceptions.Exit(1)


def _fields(r: AdaptReport) -> list[tuple[str, str]]:
    kinds = ", ".join(f"{count:,} {name}" for name, count in r.pairs.items())
    before, after = r.scores
    gain = "" if after.against is None else f" [{after.against.low:+.3f}, {after.against.high:+.3f}]"
    spent = f"encoding {plan_tables.duration(r.encoding_seconds)}, training {plan_tables.duration(r.training_seconds)}"
    kept, dropped = (
        r.generation - 1,
        f"; {r.n_dropped:,} dropped, which hold what the queries ask for" * bool(r.n_dropped),
    )
    what = "" if r.is_mapped else " (the weight alone: mapped vectors are not better)"
    return [
        ("index", f"{r.index} (generation {r.generation}{'' if r.committed else ', unchanged'})"),
        ("pairs", f"{kinds}{dropped}; held out: MRR {before.mean:.3f}, mapped {after.mean:.3f}{gain}"),
        *([] if r.weight is None else [("weight", f"{r.weight:g} of the vectors in hybrid search")]),
        *describe.comparison(r.comparison),
        (
            "committed",
            f"yes{what}; `ragidx rollback {kept}` goes back while generation {kept} is kept"
            if r.committed
            else f"no: answers are {'worse' if r.comparison.is_loss else 'not shown to be better'};"
            " --force commits it all the same",
        ),
        ("time", f"{plan_tables.duration(r.seconds)}: {spent}"),
    ]
