"""`ragidx demo`."""

from __future__ import annotations

import sys
import tempfile
import textwrap
from pathlib import Path

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.progress import ProgressLine


@click.command("demo", cls=GroupedCommand)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the two indexes in this folder [default: they are removed].",
)
def command(keep: Path | None) -> None:
    """Index the bundled sample corpus with the bundled model and ask it three questions.

    It needs no network. The second column is the same model with echo embeddings and EmbedFilter.

    \b
        ragidx demo
    """
    from ragidx.pipelines import demo

    with tempfile.TemporaryDirectory() as temporary, ProgressLine(as_json=False) as line:
        preset, echo = demo.run(keep or Path(temporary), line.callback)
    r = preset.report
    click.echo(
        f"Indexed {r.n_documents} documents in {r.n_chunks} chunks, twice, with the bundled model:\n"
        f"{r.dim} dimensions with its preset, {echo.report.dim} with echo embeddings and EmbedFilter."
    )
    for number, question in enumerate(demo.QUESTIONS):
        click.echo(f"\n{click.style(question, bold=True)}\n")
        left, right = preset.answers[number], echo.answers[number]
        click.echo(click.style(f"    {'preset':<50}{'echo + EmbedFilter'}", dim=True))
        for one, other in zip(left, right, strict=True):
            click.echo(f"  {one.rank} {_cell(one.score, one.doc_id):<50}{_cell(other.score, other.doc_id)}".rstrip())
        lines = textwrap.wrap(console.passage(left[0].text, question, 180), 94)
        click.echo("\n" + "\n".join(f"    {line}" for line in lines))
    click.echo(_next(sys.argv[0]))


def _cell(score: float, doc_id: str) -> str:
    return f"{score:.2f}  {console.printable(doc_id)}"


def _next(program: str) -> str:
    beside = Path(".venv/bin/ragidx")  # where `make demo` installs it
    name = str(beside) if beside.exists() and Path(program).resolve() == beside.resolve() else "ragidx"
    return (
        "\nTry next:\n"
        f"  {name} build DOCUMENTS            index a folder of yours (txt, md, html, pdf, csv, jsonl ...)\n"
        f'  {name} query "a question"         ask it\n'
        f"  {name} models                     other models, and what each needs\n"
        f"  {name} --help                     everything else"
    )
