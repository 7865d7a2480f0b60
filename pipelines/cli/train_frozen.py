"""`ragidx train head`, `pooling`, `questions` and `mini`: what is trained beside a model that stays as it is."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ragidx.indexer.store.files import MANIFEST
from ragidx.pipelines.cli import console, describe, interrupts
from ragidx.pipelines.cli.help import GroupedCommand, as_options
from ragidx.pipelines.cli.options import (
    cache_option,
    device_option,
    dtype_option,
    endpoint_option,
    json_option,
    judged_queries,
    offline_option,
    quiet_option,
    together,
    typed_options,
)
from ragidx.pipelines.cli.plan_tables import duration
from ragidx.pipelines.cli.stages import StageLines
from ragidx.pipelines.cli.vector_options import (
    encoding_options,
    instruction_option,
    method_options,
    state_options,
)

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.train.frozen import TrainingReport
    from ragidx.pipelines.experiments.train.static_models import StaticReport
    from ragidx.pipelines.experiments.trials.questions import QuestionsReport

F = TypeVar("F", bound=Callable[..., Any])


pairs_option = click.option(
    "--pairs",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    metavar="FILE|DIR",
    help="JSON Lines with `query` and `positive`, each file a data set; may be repeated.",
)


def _training_options(out: str, than: str) -> Callable[[F], F]:
    """How long it trains, and where its file goes; `than`: what the file has to be no worse than."""
    number = functools.partial(click.option, type=int, show_default=True, metavar="N")
    file = click.Path(path_type=Path)
    return together(
        number("--limit", default=10_000, help="Take N pairs at most."),
        number("--epochs", default=8, help="How often each pair is seen."),
        number("--seed", default=0, help="Of what is drawn."),
        click.option(
            "--out", type=file, default=out, show_default=True, metavar="FILE", help="The file that is written."
        ),
        click.option("--force", is_flag=True, help=f"Write it even if it is worse than {than}."),
        cache_option,
    )


@click.command("head", cls=GroupedCommand)
@click.argument("source", metavar="MODEL|INDEX")
@pairs_option
@click.option("--kind", default="linear", show_default=True, metavar="K", help="linear, or whitening.")
@click.option("--dim", type=int, metavar="N", help="Width of the map [default: the model's; of whitening a quarter].")
@click.option("--teacher", metavar="ID|PATH", help="A model whose cosines are learnt, too.")
@_training_options("head.safetensors", "no map")
@method_options
@instruction_option
@encoding_options
@offline_option
@quiet_option
@json_option
def head_command(source: str, as_json: bool, cache: str | None, **options: Any) -> None:
    """Train a linear map over the vectors of a model, or of the model of an index, on pairs of texts.

    \b
        ragidx train head smollm2 --method prompteol --pairs pairs/ --out smollm2.head
        ragidx build docs/ --model smollm2 --method prompteol --filter head:smollm2.head

    The model stays as it is: its vectors of the pairs are made once, and kept in --cache. Then the map takes seconds.
    Some of the pairs are held out, to say what it is worth.
    """
    from ragidx.pipelines.experiments.train.heads import head

    with StageLines(as_json=as_json, is_kept=cache is not None) as lines:
        named = {name: one for name, one in options.items() if one is not None}
        report = head(source, cache=cache, on_progress=lines.stage, **named)
    _show(report, [*_building(source, report, options), "--filter", f"head:{report.file}"], as_json)


@click.command("questions", cls=GroupedCommand)
@click.argument("source", default="ragidx-index", metavar="[INDEX|MODEL]")
@click.option("--model", metavar="ID|PATH", help="Where the model of the index is now.")
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE|DIR",
    help="Train on these texts too, as the model encodes them; may be repeated. A model alone needs one.",
)
@click.option("--limit", type=int, metavar="N", help="Take N chunks at most [default: 100,000; of a model 150,000].")
@click.option("--epochs", type=int, metavar="N", help="How often each chunk is seen [default: 10; of a model 5].")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of what is drawn.")
@judged_queries("sentences taken out of their documents")
@click.option("--margin", type=float, metavar="M", help="nDCG@10 that may be lost [default: 0.01].")
@click.option("--force", is_flag=True, help="Let the table encode questions in any case.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of a model: the file that is written [default: questions.safetensors].",
)
@cache_option
@method_options
@device_option
@dtype_option
@endpoint_option
@offline_option
@quiet_option
@json_option
def questions_command(source: str, as_json: bool, cache: str | None, **options: Any) -> None:
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
    from ragidx.indexer.options import ENCODER_OPTIONS

    is_index = source == "ragidx-index" or (Path(source) / MANIFEST).exists()
    of_other = ("out", *ENCODER_OPTIONS) if is_index else ("model", "queries", "qrels", "margin", "force")
    wrong = next((flag for name, flag in typed_options().items() if name in of_other), None)
    if wrong is not None:
        raise click.UsageError(f"{wrong} is of {'a model' if is_index else 'an index'}: remove it")
    named = {name: one for name, one in options.items() if name not in of_other and one not in (None, ())}
    with StageLines(as_json=as_json, is_kept=cache is not None) as lines:
        named |= {"cache": cache, "on_progress": lines.stage}
        if is_index:
            trained = _train_for_index(Path(source), named)
            report, shown = trained.to_json(), _of_questions(trained)
        else:
            made = _train_for_model(source, named)
            report, shown = made.to_json(), _of_file(made, source)
    interrupts.check()
    if as_json:
        console.print_json(report)
    else:
        console.print_fields(shown)


def _train_for_index(index: Path, options: dict[str, Any]) -> QuestionsReport:
    from ragidx.pipelines.experiments.trials.questions import train_questions
    from ragidx.retriever.models import ModelPlace
    from ragidx.retriever.searcher import Searcher

    place = {name: options.pop(name) for name in ("model", "device", "dtype", "endpoint") if name in options}
    return train_questions(Searcher.open(index, ModelPlace(**place)), **options)


def _train_for_model(model: str, options: dict[str, Any]) -> StaticReport:
    from ragidx.pipelines.experiments.train.static_models import questions

    text = options.pop("text", ())
    if len(text) != 1:
        raise click.UsageError("a table of a model learns from texts: give one --text FILE|DIR")
    return questions(model, text=text[0], **options)


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
@pairs_option
@click.option(
    "--rows",
    default="layers",
    show_default=True,
    metavar="R",
    help="What it reads: layers, a row for each layer; tokens, a row for each token of the last.",
)
@click.option("--latents", type=int, default=8, show_default=True, metavar="N", help="Trained queries.")
@click.option("--heads", type=int, default=8, show_default=True, metavar="N", help="Heads of its attention.")
@click.option("--head-width", type=int, default=64, show_default=True, metavar="N", help="Width of a head.")
@_training_options("pooling.safetensors", "the plain pooling")
@state_options
@instruction_option
@encoding_options
@offline_option
@quiet_option
@json_option
def pooling_command(source: str, as_json: bool, cache: str | None, **options: Any) -> None:
    """Train a pooling over the states of a decoder, or of the model of an index, on pairs of texts.

    \b
        ragidx train pooling smollm2 --method llm2vec --pairs pairs/ --out smollm2.pooling
        ragidx build docs/ --model smollm2 --method llm2vec --pooling trainable --pooler smollm2.pooling --filter none

    The model stays as it is: its states of the pairs are made once. Some of the pairs are held out, to say what it is
    worth beside the last layer's last token, or with bidirectional attention its mean.
    """
    from ragidx.pipelines.experiments.train.poolings import pooling

    with StageLines(as_json=as_json, is_kept=cache is not None) as lines:
        named = {name: one for name, one in options.items() if one is not None}
        report = pooling(source, cache=cache, on_progress=lines.stage, **named)
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
@click.option("--teacher", required=True, metavar="ID|PATH", help="The model whose vectors are learnt.")
@click.option(
    "--vectors",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The teacher's vectors, rows.parquet and vectors.i8.npy [default: it encodes the texts].",
)
@click.option("--pairs", type=int, default=30_000, show_default=True, metavar="N", help="Rows of pairs of tokens.")
@click.option("--dim", type=int, metavar="N", help="Width of a row [default: the teacher's].")
@click.option("--stored", type=int, metavar="N", help="Dimensions that a build stores by default [default: all].")
@click.option(
    "--power", type=float, default=0.5, show_default=True, metavar="P", help="How far it is whitened, from 0 to 1."
)
@click.option("--limit", type=int, default=150_000, show_default=True, metavar="N", help="Take N texts at most.")
@click.option("--epochs", type=int, default=5, show_default=True, metavar="N", help="How often each text is seen.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of what is drawn.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("mini"),
    show_default=True,
    metavar="DIR",
    help="The folder that is written.",
)
@cache_option
@offline_option
@quiet_option
@json_option
def mini_command(text: Path, as_json: bool, cache: str | None, **options: Any) -> None:
    """Train a model without layers, a table of tokens, whose vectors are like those of a better model.

    \b
        ragidx train mini --text docs/ --teacher sentence-transformers/all-MiniLM-L6-v2 --out docs-mini
        ragidx build docs/ --model docs-mini

    The bundled model mini was made like this. It encodes thousands of texts a second, without torch.
    """
    from ragidx.pipelines.experiments.train.static_models import mini

    with StageLines(as_json=as_json, is_kept=cache is not None) as lines:
        report = mini(text, cache=cache, on_progress=lines.stage, **options)
    interrupts.check()
    if as_json:
        console.print_json(report.to_json())
    else:
        console.print_fields(_of_mini(report))


def _of_mini(r: StaticReport) -> list[tuple[str, str]]:
    use = shlex.join(["ragidx", "build", "CORPUS", "--model", r.folder])
    return [("model", f"{r.folder}, {console.n_bytes(r.n_bytes)}"), *_learnt(r), ("to use it", use)]


def _of_file(r: StaticReport, model: str) -> list[tuple[str, str]]:
    use = shlex.join(["ragidx", "build", "CORPUS", "--model", model, "--questions", r.folder])
    return [("file", f"{r.folder}, {console.n_bytes(r.n_bytes)}"), *_learnt(r), ("to use it", use)]


def _learnt(r: StaticReport) -> list[tuple[str, str]]:
    stored = f", of which a build stores {r.stored:,}" if r.stored < r.dim else ""
    return [
        ("table", f"{r.n_rows:,} tokens and {r.n_pairs:,} pairs, {r.dim:,} dimensions{stored}"),
        ("learnt from", f"{r.n_texts:,} texts of {r.n_tokens:,} tokens, in {duration(r.training_seconds)}"),
        ("1 - cosine", f"{', '.join(f'{loss:.3f}' for loss in r.losses)}, by epoch"),
        ("cosine", f"{r.cosine:.3f} with the model's own vectors, of {r.n_held_out:,} texts held out"),
        ("time", duration(r.seconds)),
    ]


def _show(report: TrainingReport, follow_up: list[str], as_json: bool) -> None:
    interrupts.check()
    if as_json:
        console.print_json(report.to_json())
    elif not console.is_quiet():
        _print(report, shlex.join(["ragidx", *follow_up]))
    if report.file is None:
        raise click.exceptions.Exit(1)


def _building(source: str, report: TrainingReport, options: dict[str, Any]) -> list[str]:
    """What takes it: a build with what was said of the model, or an upgrade of the index."""
    from ragidx.indexer.options import ENCODER_OPTIONS

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
