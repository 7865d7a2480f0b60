"""`ragidx train head`, `pooling`, `questions` and `mini`: what is trained beside a model that stays as it is."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragidx.indexer.options import ENCODER_OPTIONS
from ragidx.indexer.store.files import MANIFEST
from ragidx.pipelines.cli import console, describe
from ragidx.pipelines.cli.help import GroupedCommand, as_options
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.options import run_options, typed_options
from ragidx.pipelines.cli.plan_tables import duration
from ragidx.pipelines.cli.stages import in_stages
from ragidx.pipelines.cli.vector_options import SEVERAL_DEVICES, place_options
from ragidx.pipelines.experiments.train.keywords import HeadKeywords, MiniKeywords, PoolingKeywords, TableKeywords
from ragidx.retriever.trial_keywords import QuestionsKeywords

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.train.frozen import TrainingReport
    from ragidx.pipelines.experiments.train.static_models import StaticReport
    from ragidx.pipelines.experiments.trials.questions import QuestionsReport


@click.command("head", cls=GroupedCommand)
@click.argument("source", metavar="MODEL|INDEX")
@keyword_options(HeadKeywords, notes=SEVERAL_DEVICES)
@run_options
def head_command(source: str, as_json: bool, **options: Any) -> None:
    """Train a linear map over the vectors of a model, or of the model of an index, on pairs of texts.

    \b
        ragidx train head smollm2 --method prompteol --pairs pairs/ --out smollm2.head
        ragidx build docs/ --model smollm2 --method prompteol --filter head:smollm2.head

    The model stays as it is: its vectors of the pairs are made once, and kept in --cache. Then the map takes seconds.
    Some of the pairs are held out, to say what it is worth.
    """
    from ragidx.pipelines.experiments.train.heads import head

    report = in_stages(head, source, as_json=as_json, **options)
    _show(report, [*_building(source, report, options), "--filter", f"head:{report.file}"], as_json)


@click.command("questions", cls=GroupedCommand)
@click.argument("source", default="ragidx-index", metavar="[INDEX|MODEL]")
@keyword_options(QuestionsKeywords)
@keyword_options(TableKeywords, only=["out", *ENCODER_OPTIONS], but=["instruction"])
@place_options
@run_options
def questions_command(source: str, as_json: bool, **options: Any) -> None:
    """Train a table that encodes the questions of an index, so that a query loads neither its model nor torch.

    \b
        ragidx train questions
        ragidx query "why were pigeons chased out of an antenna?"

    The table learns from the index's own chunks and their stored vectors, of which none is made again. Answers by the
    table are then compared with those by the model, on --queries or on sentences of 300 documents. Where they are not
    worse, the table encodes questions from now on, else the model does; `query --questions` takes the other one.
    `ragidx rollback` takes the table out.

    Of a model, it learns from --text, and is a file for indexes of this model:

    \b
        ragidx train questions smollm2 --text docs/ --out smollm2.questions
        ragidx build notes/ --model smollm2 --questions smollm2.questions
    """
    is_index = source == "ragidx-index" or (Path(source) / MANIFEST).exists()
    of_other = ("out", *ENCODER_OPTIONS) if is_index else ("model", "queries", "qrels", "margin", "force")
    wrong = next((flag for name, flag in typed_options().items() if name in of_other), None)
    if wrong is not None:
        raise click.UsageError(f"{wrong} is of {'a model' if is_index else 'an index'}: remove it")
    named = {name: value for name, value in options.items() if name not in of_other}
    if is_index:
        from ragidx.pipelines.experiments.trials.questions import train_questions
        from ragidx.retriever.models import ModelPlace
        from ragidx.retriever.searcher import Searcher

        place = ModelPlace(**{name: named.pop(name) for name in ("model", "device", "dtype", "endpoint")})
        trained = in_stages(train_questions, Searcher.open(Path(source), place), as_json=as_json, **named)
        console.print_report(trained, _of_questions, as_json=as_json)
        return
    from ragidx.pipelines.experiments.train.static_models import questions

    if len(options["text"]) != 1:
        raise click.UsageError("a table of a model learns from texts: give one --text FILE|DIR")
    made = in_stages(questions, source, as_json=as_json, **named | {"text": options["text"][0]})
    console.print_report(made, lambda r: _of_table("file", r, "--model", source, "--questions"), as_json=as_json)


def _of_questions(r: QuestionsReport) -> list[tuple[str, str]]:
    more = f" and {r.n_texts:,} other texts" if r.n_texts else ""
    other = "model" if r.questions == "table" else "table"
    undecided = "the table is worse" if r.comparison.is_loss else "the table is not shown to be as good"
    why = {"worse": "the table is worse", "undecided": undecided}.get(r.verdict, r.verdict)
    made = dict(describe.comparison(r.comparison))
    made["nDCG@10"] = made["nDCG@10"].replace(" before,", " by the model,").replace(" now,", " by the table,")
    return [
        ("index", f"{r.index} (generation {r.generation})"),
        ("table", f"{r.n_tokens:,} tokens and {r.n_pairs:,} pairs, {console.n_bytes(r.n_bytes)}"),
        ("learnt from", f"{console.plural(r.n_chunks, 'chunk')}{more}, in {duration(r.training_seconds)}"),
        *made.items(),
        ("a question", f"{r.table_ms:.2g} ms by the table, {r.model_ms:.2g} ms by the model when it is loaded"),
        ("questions", f"by the {r.questions} ({why}); `ragidx query --questions {other}` takes the {other}"),
        ("time", duration(r.seconds)),
    ]


@click.command("pooling", cls=GroupedCommand)
@click.argument("source", metavar="MODEL|INDEX")
@keyword_options(PoolingKeywords, notes=SEVERAL_DEVICES)
@run_options
def pooling_command(source: str, as_json: bool, **options: Any) -> None:
    """Train a pooling over the states of a decoder, or of the model of an index, on pairs of texts.

    \b
        ragidx train pooling smollm2 --method llm2vec --pairs pairs/ --out smollm2.pooling
        ragidx build docs/ --model smollm2 --method llm2vec --pooling trainable --pooler smollm2.pooling --filter none

    The model stays as it is: its states of the pairs are made once. Some of the pairs are held out, to say what it is
    worth beside the last layer's last token, or with bidirectional attention its mean.
    """
    from ragidx.pipelines.experiments.train.poolings import pooling

    report = in_stages(pooling, source, as_json=as_json, **options)
    parts = [*_building(source, report, options), "--pooling", "trainable", "--pooler", str(report.file)]
    _show(report, [*parts, *(["--layer", "-1"] if options["rows"] == "layers" else []), "--filter", "none"], as_json)


@click.command("mini", cls=GroupedCommand)
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE|DIR",
    help="Texts to learn from, tens of thousands; with --vectors the folder that the paths of its rows begin in.",
)
@keyword_options(MiniKeywords)
@run_options
def mini_command(text: Path, as_json: bool, **options: Any) -> None:
    """Train a model without layers, a table of tokens, whose vectors are like those of a better model.

    \b
        ragidx train mini --text docs/ --teacher sentence-transformers/all-MiniLM-L6-v2 --out docs-mini
        ragidx build docs/ --model docs-mini

    The bundled model mini was made like this. It encodes thousands of texts a second, without torch.
    """
    from ragidx.pipelines.experiments.train.static_models import mini

    report = in_stages(mini, text, as_json=as_json, **options)
    console.print_report(report, lambda r: _of_table("model", r, "--model"), as_json=as_json)


def _of_table(what: str, r: StaticReport, *taken_by: str) -> list[tuple[str, str]]:
    stored = f", of which a build stores {r.stored:,}" if r.stored < r.dim else ""
    return [
        (what, f"{r.folder}, {console.n_bytes(r.n_bytes)}"),
        ("table", f"{r.n_rows:,} tokens and {r.n_pairs:,} pairs, {r.dim:,} dimensions{stored}"),
        ("learnt from", f"{r.n_texts:,} texts of {r.n_tokens:,} tokens, in {duration(r.training_seconds)}"),
        ("1 - cosine", f"{', '.join(f'{loss:.3f}' for loss in r.losses)}, by epoch"),
        ("cosine", f"{r.cosine:.3f} with the model's own vectors, of {r.n_held_out:,} texts held out"),
        ("time", duration(r.seconds)),
        ("to use it", shlex.join(["ragidx", "build", "CORPUS", *taken_by, r.folder])),
    ]


def _show(report: TrainingReport, follow_up: list[str], as_json: bool) -> None:
    if as_json:
        console.print_json(report.to_json())
    elif not console.is_quiet():
        _print(report, shlex.join(["ragidx", *follow_up]))
    if report.file is None:
        raise click.exceptions.Exit(1)


def _building(source: str, report: TrainingReport, options: dict[str, Any]) -> list[str]:
    """What takes it: a build with what was said of the model, or an upgrade of the index."""
    is_index = source != report.model and (Path(source) / MANIFEST).exists()
    parts = ["upgrade", "--index", source] if is_index else ["build", "CORPUS", "--model", source]
    for name, flag in typed_options().items():
        if name in (*ENCODER_OPTIONS, "endpoint"):
            values = options[name] if isinstance(options[name], tuple) else (options[name],)
            parts += (
                [flag] if isinstance(options[name], bool) else [one for value in values for one in (flag, str(value))]
            )
    return parts


def _print(r: TrainingReport, follow_up: str) -> None:
    pairs = f"{r.n_pairs:,} of {r.of_pairs:,} pairs, {r.n_held_out:,} held out"
    click.echo(f"{r.model}: {pairs}; encoding {duration(r.encoding_seconds)}, training {duration(r.training_seconds)}")
    click.echo()
    rows = []
    for one in r.scores:
        apart = one.against
        gain = "" if apart is None else f"{apart.mean:+.3f} [{apart.low:+.3f}, {apart.high:+.3f}]"
        rows.append([one.name, f"{one.dim:,}", f"{one.mean:.3f}", gain, "" if apart is None else f"{apart.p:.2g}"])
    console.print_table(["vectors", "dim", "mrr", "difference", "p"], rows)
    click.echo()
    if r.file is not None:
        click.echo(follow_up)
    for note in r.notes:
        console.note(as_options(note))
