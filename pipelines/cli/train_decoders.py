"""`ragidx train contrastive`, `simcse`, `mntp` and `export`."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ragidx.pipelines.cli import console, interrupts
from ragidx.pipelines.cli.help import GroupedCommand, as_options
from ragidx.pipelines.cli.options import (
    cache_option,
    json_option,
    offline_option,
    quiet_option,
    together,
)
from ragidx.pipelines.cli.plan_tables import duration
from ragidx.pipelines.cli.stages import StageLines
from ragidx.pipelines.cli.train_frozen import pairs_option
from ragidx.pipelines.cli.vector_options import (
    encoding_options,
    filter_options,
    instruction_option,
    method_options,
    with_values,
)

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.train.decoders.runs import DecoderReport

F = TypeVar("F", bound=Callable[..., Any])

_number = functools.partial(click.option, metavar="N")
_text_option = click.option(
    "--text",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE|DIR",
    help="Texts to learn from: a corpus, of any files that a build reads.",
)


def _how(batch: int) -> Callable[[F], F]:
    """What of a decoder learns, from how much, for how long; None where `TrainingOptions` has the default."""
    return together(
        click.option(
            "--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="The model that is written."
        ),
        _number("--limit", type=int, help="Take N at most [default: 10,000]."),
        _number("--epochs", type=int, help="How often each is seen [default: 1]."),
        _number(
            "--minutes", type=float, help="Take no more steps than fit into N minutes, as one that is measured has it."
        ),
        _number("--batch", type=int, help=f"Of a step [default: {batch}]."),
        _number("--rate", type=float, help="Learning rate at its height [default: 5e-4]."),
        _number("--read-tokens", type=int, help="Tokens of a text that are read [default: 128]."),
        _number("--every", type=int, help="Steps between two scores [default: a tenth of them, or more]."),
        _number("--patience", type=int, help="Stop after N scores without a better one [default: never]."),
        click.option("--full", is_flag=True, default=None, help="Train all weights, rather than LoRA matrices."),
        _number("--rank", type=int, help="r of LoRA [default: 16]."),
        _number("--alpha", type=int, help="alpha of LoRA [default: 32]."),
        _number("--dropout", type=float, help="Of what LoRA reads [default: 0.05]."),
        _number("--attention-dropout", type=float, help="Of the attention [default: 0; of simcse 0.3]."),
        _number("--seed", type=int, help="Of what is drawn [default: 0]."),
        click.option("--force", is_flag=True, default=None, help="Write the model even if it is no better."),
    )


_scale_option = _number("--scale", type=float, help="What cosines are multiplied with [default: 20].")
_matryoshka_option = click.option(
    "--matryoshka", is_flag=True, default=None, help="Train halves, quarters and eighths of the vectors, too."
)
_encoder = together(method_options, instruction_option, encoding_options, offline_option, quiet_option, json_option)


@click.command("contrastive", cls=GroupedCommand)
@click.argument("model", metavar="MODEL")
@pairs_option
@click.option(
    "--instructions",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What queries of each file of pairs carry: a JSON object by the file's name.",
)
@_number("--negatives", type=int, help="Wrong answers of each query: its own, then found ones [default: 1 of its own].")
@click.option(
    "--teacher", metavar="ID|PATH", help="A model; what it finds nearer than a query's own text is not wrong."
)
@click.option("--like-teacher", type=float, metavar="W", help="Weight of the teacher's cosines [default: 0].")
@_scale_option
@_matryoshka_option
@click.option("--end-token", is_flag=True, default=None, help="Train the vector of the end token, too.")
@_number("--latents", type=int, help="Trained queries of a pooling that begins [default: 8].")
@_number("--heads", type=int, help="Heads of its attention [default: 8].")
@_number("--head-width", type=int, help="Width of a head [default: 64].")
@_how(48)
@cache_option
@_encoder
def contrastive_command(model: str, as_json: bool, **options: Any) -> None:
    """Train a decoder on pairs of texts that belong together, by LoRA.

    \b
        ragidx train contrastive smollm2 --method prompteol --pairs pairs/ --out smollm2-pairs
        ragidx build docs/ --model smollm2-pairs

    It needs the extra `train`. Some of the pairs are held out: they say before the first step, and then every few, how
    good the model is, and the best is written. A run that is killed goes on when the same command is given again.
    """
    _train("contrastive", model, as_json, options)


@click.command("simcse", cls=GroupedCommand)
@click.argument("model", metavar="MODEL")
@_text_option
@_scale_option
@_matryoshka_option
@_how(48)
@_encoder
def simcse_command(model: str, as_json: bool, **options: Any) -> None:
    """Train a decoder on texts alone, each twice under dropout: the second stage of LLM2Vec.

    \b
        ragidx train simcse smollm2-mntp --text docs/ --out smollm2-simcse

    It needs the extra `train`. A model that `train mntp` made begins new LoRA matrices.
    """
    _train("simcse", model, as_json, options)


@click.command("mntp", cls=GroupedCommand)
@click.argument("model", metavar="MODEL")
@_text_option
@_number("--hidden-share", type=float, help="Share of tokens that are hidden [default: 0.2; of Mistral 0.8].")
@_how(32)
@_encoder
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
@method_options
@instruction_option
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

    made = train.export(
        source, out, **with_values({name: one for name, one in options.items() if one not in (None, ())})
    )
    if as_json:
        console.print_json(made.to_json())
        return
    console.print_fields(
        [
            ("folder", f"{made.folder}, {made.dim:,} dimensions"),
            ("modules", ", ".join(made.modules)),
            *((f"prompt of a {name}", said) for name, said in made.prompts.items()),
            (
                "difference",
                f"{made.difference:.1g} at most of a coordinate, of documents and queries that were compared",
            ),
            ("to use it", f'SentenceTransformer("{made.folder}")'),
        ]
    )


def _train(stage: str, model: str, as_json: bool, options: dict[str, Any]) -> None:
    from ragidx.pipelines.experiments import train

    named = {name: one for name, one in options.items() if one not in (None, ())}
    if "cache" in options:
        named["cache"] = options["cache"]
    with StageLines(as_json=as_json, is_kept=False) as lines:
        report: DecoderReport = getattr(train, stage)(model, on_progress=lines.stage, **named)
    interrupts.check()
    if as_json:
        console.print_json(report.to_json())
    elif not console.is_quiet():
        console.print_fields(_shown(report))
        for note in report.notes:
            console.note(as_options(note))
    if report.folder is None:
        raise click.exceptions.Exit(1)


def _shown(r: DecoderReport) -> list[tuple[str, str]]:
    gain = f"{r.gain.mean:+.3f} [{r.gain.low:+.3f}, {r.gain.high:+.3f}], p {r.gain.p:.2g}"
    fields = [
        ("model", f"{r.model}, {r.n_learning:,} numbers learn"),
        ("learnt from", f"{r.n_texts:,}, {r.steps:,} of {r.of_steps:,} steps, the best after {r.best_step:,}"),
        ("loss", f"{r.first_loss:.3f} at first, {r.last_loss:.3f} at last"),
        (r.measure, f"{r.before:.3f} before, {r.after:.3f} after: {gain}, of {r.n_held_out:,} that were held out"),
        ("speed", f"{r.tokens_a_second:,.0f} tokens/s, {console.n_bytes(r.peak_bytes)} of memory"),
        ("time", duration(r.seconds)),
    ]
    if r.folder is not None:
        fields.append(("to use it", shlex.join(["ragidx", "build", "CORPUS", "--model", r.folder])))
    return fields
