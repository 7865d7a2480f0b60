"""`ragidx adapt`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragidx.pipelines.cli import console, describe, plan_tables
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.options import index_option, run_options
from ragidx.pipelines.cli.stages import in_stages
from ragidx.pipelines.cli.vector_options import place_options
from ragidx.retriever.trial_keywords import AdaptKeywords

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.trials.adapt import AdaptReport


@click.command("adapt", cls=GroupedCommand)
@index_option
@keyword_options(AdaptKeywords)
@place_options
@run_options
def command(index: Path, as_json: bool, **options: Any) -> None:
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
    report = in_stages(adapt, Searcher.open(index, place), as_json=as_json, **options)
    console.print_report(report, _fields, as_json=as_json)
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
