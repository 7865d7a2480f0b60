"""`ragidx upgrade`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragidx.pipelines.cli import console, describe, interrupts, plan_tables
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.options import index_option, run_options
from ragidx.pipelines.cli.progress import ProgressLine
from ragidx.pipelines.cli.vector_options import vector_options, with_values
from ragidx.retriever.trial_keywords import SwapKeywords

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.trials.upgrade import UpgradeReport


@click.command("upgrade", cls=GroupedCommand)
@index_option
@vector_options
@keyword_options(SwapKeywords)
@run_options
def command(index: Path, as_json: bool, **flat: Any) -> None:
    """Make the vectors of an index anew, by another model say, and swap them unless answers get worse.

    \b
        ragidx upgrade --model smollm2 --queries queries.jsonl --qrels qrels.tsv
        ragidx upgrade --tau 4

    The sources are read again and encoded into a new index beside the old one, which can be asked and written
    meanwhile; run the same command again after an interruption. Both are then asked --queries, or sentences of 300
    documents, which are taken out of them. Only where the new one is not worse by more than --margin, with 95 %
    confidence, it takes the old one's place, in one commit; `ragidx rollback` goes back. Otherwise both stay, and the
    exit status is 1.
    """
    from ragidx.indexer.devices import check_devices
    from ragidx.pipelines.experiments.trials.upgrade import Upgrade
    from ragidx.retriever.models import ModelPlace
    from ragidx.retriever.searcher import Searcher

    swap = {name: flat.pop(name) for name in SwapKeywords.__annotations__}
    options = with_values(flat)
    shown = Searcher.open(index)
    own = shown.spec.encoder
    if options.get("model") in (None, own and own.model):  # else they are about the new model alone
        device = check_devices(options["device"])[0]
        shown = Searcher.open(
            index, ModelPlace(device=device, dtype=options["dtype"], endpoint=options.get("endpoint"))
        )
    upgrade = Upgrade(shown, options)
    upgrade.check(swap["queries"], swap["qrels"], margin=swap["margin"])
    with interrupts.reported(lambda: interrupts.CONTINUES), ProgressLine(as_json=as_json) as line:
        if upgrade.is_needed and not console.is_quiet():
            for name, text in plan_tables.cost(upgrade.plan(line.callback)):
                console.note(f"{name}: {text}")
        report = upgrade.run(on_progress=line.callback, **swap)
    console.print_report(report, _fields, as_json=as_json)
    if report.beside is not None:
        console.note(f"The new index stays in {report.beside}: the same command with --force takes it,")
        console.note(f"    rm -r {shlex.quote(report.beside)}    removes it.")
        raise click.exceptions.Exit(1)


def _fields(r: UpgradeReport) -> list[tuple[str, str]]:
    if r.build is None:
        return [("index", f"{r.index} (generation {r.generation}, unchanged): its vectors are made like that already")]
    c, locked = r.comparison, f", {r.locked_seconds:.1f} s of it locked for other writers" if r.committed else ""
    rows = [
        ("index", f"{r.index} (generation {r.generation}{'' if r.committed else ', unchanged'})"),
        ("new", f"{r.build.model}, {r.build.dim} dimensions"),
    ]
    rows += [] if c is None else describe.comparison(c)
    return [*rows, ("swapped", _verdict(r)), ("time", f"{plan_tables.duration(r.seconds)}{locked}")]


def _verdict(r: UpgradeReport) -> str:
    from ragidx.pipelines.experiments.trials.trial import WORSE

    c = r.comparison
    if r.committed or c is None:
        return f"yes; `ragidx rollback {r.generation - 1}` goes back while generation {r.generation - 1} is kept"
    if r.verdict == WORSE:
        return f"no: the new one is worse by more than {c.margin:g}"
    if not c.old and not c.new:
        return "no: neither finds anything relevant, which shows nothing; check the queries and their judgements"
    loss = f"a loss of more than {c.margin:g} cannot be ruled out"
    if c.is_loss:
        return f"no: the new one is worse, and {loss}"
    return f"no: {loss}; if both are equally good, some {c.queries_needed:,} queries would show it"
