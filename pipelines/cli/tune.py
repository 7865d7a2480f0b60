"""`ragidx tune`."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any

import click

from ragidx.indexer.options import EncoderOptions
from ragidx.pipelines.cli import console, interrupts
from ragidx.pipelines.cli.help import MeasuringCommand, as_options
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.progress import clock
from ragidx.pipelines.cli.stages import StageLines
from ragidx.pipelines.cli.vector_options import cache_option, measured_options, with_chunks
from ragidx.pipelines.experiments.evaluate.options import Grid, Judge, Questions

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.tune.proposal import Estimate, Proposal, Tried
    from ragidx.pipelines.experiments.tune.search import TunedChoice

_SHOWN = 6  # rows of a part


@click.command("tune", cls=MeasuringCommand)
@click.argument("source", metavar="INDEX|CORPUS")
@click.option("--model", metavar="ID|PATH", help="The model, as for build [default: the index's, else mini].")
@keyword_options(
    Grid,
    only=["method", "filter", "dim", "offset"],
    notes={
        "method": " [default: the index's, else the model's]",
        "filter": " [default: none, embedfilter, pca, whitening]",
        "dim": " [default: a half and a quarter; of embedfilter also nearly all]",
        "offset": " [default: the middle, the preset's, 0, 1, hidden width / 32]",
    },
)
@keyword_options(
    Questions, only=["queries", "qrels", "split"], notes={"queries": " [default: queries made of the corpus]"}
)
@keyword_options(Judge, only=["measure"], notes={"measure": " [default: ndcg@10]"})
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="What encoding may take, about: the sample is as large as that allows.",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of what is drawn.")
@cache_option
@keyword_options(EncoderOptions, but=["method", "layer"])
@measured_options
def command(source: str, as_json: bool, cache: str | None, **options: Any) -> None:
    """Propose a layer, a filter, a width and a weight of words for a corpus and a model; change nothing.

    \b
        ragidx tune docs/ --model smollm2
        ragidx tune ragidx-index --queries queries.jsonl --qrels qrels.tsv

    A sample of the corpus is encoded at every layer, and searched by sentences that are taken out of it, or by judged
    queries. The choice is tested on queries that did not choose it; where it is not better, the defaults are advised.
    """
    from ragidx.pipelines.experiments.tune.tune import tune

    typed = with_chunks(options)
    queries, qrels, split = typed.pop("queries", None), typed.pop("qrels", None), typed.pop("split")
    questions = Questions.read(queries, qrels, split) if queries or qrels else Questions.made(seed=typed["seed"])
    with StageLines(as_json=as_json, is_kept=cache is not None) as lines:
        proposal = tune(
            source,
            questions=questions,
            cache=cache,
            on_estimate=lambda estimate: console.note(_estimate(estimate)),
            on_progress=lines.stage,
            on_build=lines.build,
            **typed,
        )
    interrupts.check()  # nothing checked after the last stage
    if as_json:
        console.print_json(proposal.to_json())
    else:
        print_proposal(proposal)


def print_proposal(proposal: Proposal) -> None:
    """The proposal on stdout, notes on stderr."""
    room = min(console.width(sys.stdout), 120)
    kind = "synthetic " if proposal.synthetic else ""
    click.echo(
        f"{proposal.source}, {proposal.model}: {console.plural(proposal.n_documents, 'document')} of"
        f" {proposal.of_documents:,}, {console.plural(proposal.n_chunks, 'chunk')},"
        f" {console.plural(proposal.n_queries, f'{kind}query', f'{kind}queries')}"
    )
    for name, part in (("vectors", proposal.vectors), ("search", proposal.search)):
        rows = [one for one in proposal.tried if one.part == name]
        click.echo()
        console.print_table(*_table(rows, part, proposal.measure))
        click.echo()
        click.echo(textwrap.fill(verdict(part, name), room))
    click.echo()
    click.echo(proposal.build)
    click.echo(proposal.query)
    for note in proposal.notes:
        console.note(as_options(note))


def _estimate(estimate: Estimate) -> str:
    layers = f" at {estimate.n_layers} layers" if estimate.n_layers > 1 else ""
    return (
        f"A sample of {console.plural(estimate.n_documents, 'document')} of {estimate.of_documents:,}:"
        f" {console.plural(estimate.n_chunks, 'chunk')} and {console.plural(estimate.n_queries, 'query', 'queries')}"
        f"{layers}, about {clock(estimate.seconds)} of encoding"
    )


def _table(rows: list[Tried], part: TunedChoice, measure: str) -> tuple[list[str], list[list[str]]]:
    """The best rows, with the default and what was chosen."""
    best = sorted(rows, key=lambda one: -one.mean)
    shown = [one for place, one in enumerate(best) if place < _SHOWN or one.what in (part.default, part.chosen)]
    cells = []
    for one in shown:
        mark = " *" if one.what == part.chosen else ""
        apart = "default" if one.what == part.default else f"{one.difference:+.3f}"
        cells.append([f"{one.what}{mark}", f"{one.bytes:,.0f}", f"{one.mean:.3f}", apart])
    if len(shown) < len(rows):
        cells.append([f"{len(rows) - len(shown)} more: --json", "", "", ""])
    return ["vectors, dense search" if rows[0].part == "vectors" else "search", "bytes", measure, "difference"], cells


def verdict(part: TunedChoice, what: str) -> str:
    """What the choice of vectors or of a search is worth, and what to take."""
    if part.chosen == part.default:
        return f"Nothing that was tried is better than the default {what} by more than chance: keep {part.default}."
    gain = part.gain
    tested = (
        f"on queries that did not choose it: {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}], p = {gain.p:.2g};"
        f" {gain.detectable:.3f} would be detected"
    )
    if part.is_better:
        return f"* Better than the default {what}, {tested}. Take {part.chosen}."
    if gain.verdict == "worse":
        return f"* Worse than the default {what}, {tested}. Keep {part.default}."
    return f"* Not shown to be better than the default {what}, {tested}. Keep {part.default}."
