"""`ragidx train contrastive`, `simcse`, `mntp` and `export`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragidx.indexer.options import EncoderOptions
from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand, as_options
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.options import json_option, offline_option, run_options
from ragidx.pipelines.cli.plan_tables import duration
from ragidx.pipelines.cli.stages import in_stages
from ragidx.pipelines.cli.vector_options import filter_options, with_values
from ragidx.pipelines.experiments.train.keywords import ContrastiveKeywords, MntpKeywords, SimcseKeywords

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.train.decoders.export import Exported
    from ragidx.pipelines.experiments.train.decoders.runs import DecoderReport

_OF_PAIRS = ("end_token", "rows", "latents", "heads", "head_width")  # options that texts alone do not need


@click.command("contrastive", cls=GroupedCommand)
@click.argument("model", metavar="MODEL")
@keyword_options(ContrastiveKeywords)
@run_options
def contrastive_command(model: str, as_json: bool, **options: Any) -> None:
    """Train a decoder on pairs of texts that belong together, by LoRA.

    \b
        ragidx train contrastive smollm2 --method prompteol --pairs pairs/ --out smollm2-pairs
        ragidx build docs/ --model smollm2-pairs

    It needs the extra `train`. Some of the pairs are held out: they say before the first step, and then every few, how
    good the model is, and the best is written. A run that is killed resumes when the same command is given again.
    """
    _train("contrastive", model, as_json, options)


@click.command("simcse", cls=GroupedCommand)
@click.argument("model", metavar="MODEL")
@keyword_options(SimcseKeywords, but=_OF_PAIRS)
@run_options
def simcse_command(model: str, as_json: bool, **options: Any) -> None:
    """Train a decoder on texts alone, each twice under dropout: the second stage of LLM2Vec.

    \b
        ragidx train simcse smollm2-mntp --text docs/ --out smollm2-simcse

    It needs the extra `train`. A model that `train mntp` made begins new LoRA matrices.
    """
    _train("simcse", model, as_json, options)


@click.command("mntp", cls=GroupedCommand)
@click.argument("model", metavar="MODEL")
@keyword_options(MntpKeywords, but=[*_OF_PAIRS, "scale", "matryoshka"])
@run_options
def mntp_command(model: str, as_json: bool, **options: Any) -> None:
    """Train a decoder to attend both ways, by masked next-token prediction: the first stage of LLM2Vec.

    \b
        ragidx train mntp smollm2 --text docs/ --out smollm2-mntp
        ragidx train simcse smollm2-mntp --text docs/ --out smollm2-simcse
        ragidx train contrastive smollm2-simcse --pairs pairs/ --out smollm2-llm2vec

    It needs the extra `train`. Some decoders break without a beginning before the text: `ragidx doctor` compares.
    """
    _train("mntp", model, as_json, options)


@click.command("export", cls=GroupedCommand)
@click.argument("source", metavar="MODEL|INDEX")
@click.argument("out", type=click.Path(path_type=Path), metavar="DIR")
@keyword_options(EncoderOptions)
@filter_options
@offline_option
@json_option
def export_command(source: str, out: Path, as_json: bool, **options: Any) -> None:
    """Write a model, or that of an index with its filter, as plain sentence-transformers load it.

    \b
        ragidx train export smollm2 smollm2-prompteol --method prompteol
        ragidx train export ragidx-index index-model

    The folder is loaded by sentence-transformers and its vectors are compared before it is kept. What cannot be said
    there is refused by name: the second copy of echo, pairs of tokens, a trainable pooling.
    """
    from ragidx.pipelines.experiments import train

    given = {name: value for name, value in options.items() if value is not None}
    console.print_report(train.export(source, out, **with_values(given)), _of_export, as_json=as_json)


def _of_export(r: Exported) -> list[tuple[str, str]]:
    return [
        ("folder", f"{r.folder}, {r.dim:,} dimensions"),
        ("modules", ", ".join(r.modules)),
        *((f"prompt of a {name}", said) for name, said in r.prompts.items()),
        ("difference", f"{r.difference:.1g} at most of a coordinate, of documents and queries that were compared"),
        ("to use it", f'SentenceTransformer("{r.folder}")'),
    ]


def _train(stage: str, model: str, as_json: bool, options: dict[str, Any]) -> None:
    from ragidx.pipelines.experiments import train

    work, is_first = getattr(train, stage), os.environ.get("RANK", "0") == "0"  # of the processes of a launcher
    report: DecoderReport = in_stages(work, model, as_json=as_json, **options) if is_first else work(model, **options)
    if is_first:
        console.print_report(report, _shown, as_json=as_json)
    for note in report.notes if is_first and not as_json else []:
        console.note(as_options(note))
    if report.folder is None:
        raise click.exceptions.Exit(1)


def _shown(r: DecoderReport) -> list[tuple[str, str]]:
    gain = f"{r.gain.mean:+.3f} [{r.gain.low:+.3f}, {r.gain.high:+.3f}], p {r.gain.p:.2g}"
    fields = [
        ("model", f"{r.model}, {r.n_learning:,} parameters learn"),
        ("learnt from", f"{r.n_texts:,}, {r.steps:,} of {r.of_steps:,} steps, the best after {r.best_step:,}"),
        ("loss", f"{r.first_loss:.3f} at first, {r.last_loss:.3f} at last"),
        (r.measure, f"{r.before:.3f} before, {r.after:.3f} after: {gain}, of {r.n_held_out:,} that were held out"),
        ("score by step", ", ".join(f"{one.step:,}: {one.score:.3f}" for one in r.scores)),
        ("speed", f"{r.tokens_a_second:,.0f} tokens/s, {console.n_bytes(r.peak_bytes)} of memory"),
        ("time", duration(r.seconds)),
    ]
    if r.folder is not None:
        fields.append(("to use it", shlex.join(["ragidx", "build", "CORPUS", "--model", r.folder])))
    return fields
