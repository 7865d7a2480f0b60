"""`ragidx demo`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from ragidx.corpora.errors import install
from ragidx.pipelines.build.report import BuildReport
from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.passages import passage, wrapped
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

    It needs no network. The second column is the same model with echo embeddings and EmbedFilter; it needs the extra
    `models`.

    \b
        ragidx demo
    """
    from ragidx.pipelines import demo

    with tempfile.TemporaryDirectory() as temporary, ProgressLine(as_json=False) as line:
        sides = demo.run(keep or Path(temporary), line.callback)
    _tell_sizes([side.report for side in sides])
    names = ["preset", "echo + EmbedFilter"][: len(sides)]
    for number, question in enumerate(demo.QUESTIONS):
        click.echo(f"\n{click.style(question, bold=True)}\n")
        click.echo(click.style("    " + "".join(f"{name:<50}" for name in names).rstrip(), dim=True))
        for hits in zip(*(side.answers[number] for side in sides), strict=True):
            cells = "".join(f"{_cell(hit.score, hit.doc_id):<50}" for hit in hits)
            click.echo(f"  {hits[0].rank} {cells}".rstrip())
        lines = wrapped(passage(sides[0].answers[number][0].text, question, length=180), 94)
        click.echo("\n" + "\n".join(f"    {line}" for line in lines))
    click.echo(_next(sys.argv[0]))


def _tell_sizes(reports: list[BuildReport]) -> None:
    r = reports[0]
    if len(reports) > 1:
        click.echo(
            f"Indexed {r.n_documents} documents in {r.n_chunks} chunks, twice, with the bundled model:\n"
            f"{r.dim} dimensions with its preset, {reports[1].dim} with echo embeddings and EmbedFilter."
        )
        return
    click.echo(
        f"Indexed {r.n_documents} documents in {r.n_chunks} chunks with the bundled model: {r.dim} dimensions.\n"
        f"Beside it, echo embeddings and EmbedFilter: {install('models')}"
    )


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
