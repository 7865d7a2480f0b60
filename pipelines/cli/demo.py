"""`ragidx demo`: the bundled corpus and model, three questions, each hit's place by its vectors and by its words."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import click

from ragidx.indexer.atomic import temporary_room
from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import offline_option, path_option
from ragidx.pipelines.cli.passages import wrapped
from ragidx.pipelines.cli.progress import ProgressLine
from ragidx.pipelines.index import Index, build
from ragidx.pipelines.ingest.report import OnProgress
from ragidx.retriever.hit import Hit
from ragidx.retriever.passages import nearest

QUESTIONS = (
    "Why did two radio engineers chase pigeons out of their antenna?",
    "what makes an old chocolate bar turn grey and is it safe to eat",
    "Which ship passage let foreign fish and jellyfish spread from one sea into another?",
)
_PLACES = 100  # of each list


@dataclass(frozen=True)
class PlacedHit:
    """A hit of hybrid search.

    Attributes:
        hit: the hit, with its scores.
        dense_place: place of the hit among the chunks by their vectors, from 1; None: not among the first hundred.
        lexical_place: place of the hit among the chunks with a word of the question, by BM25; None: not among the first
            hundred.
    """

    hit: Hit
    dense_place: int | None
    lexical_place: int | None


def sample_corpus() -> Path:
    """The folder of the sample's documents."""
    return Path(str(resources.files("ragidx.corpora") / "sample" / "documents"))


@click.command("demo", cls=GroupedCommand)
@path_option("--keep", "DIR", "Keep the index in this folder [default: it is removed].")
@offline_option
def command(keep: Path | None) -> None:
    """Index the bundled sample corpus with the bundled model and ask it three questions.

    \b
        ragidx demo

    It needs no network. Each answer shows its place by the vectors alone and by the words alone.
    """
    with ExitStack() as opened:
        if keep is None:
            keep = Path(opened.enter_context(tempfile.TemporaryDirectory()))
            opened.enter_context(temporary_room(keep))
        index, answers = run(keep, opened.enter_context(ProgressLine(as_json=False)).callback)
    info = index.info()
    click.echo(
        f"Indexed {info.n_documents} documents in {info.n_chunks} chunks with the bundled model: {info.dim} "
        "dimensions, and their words."
    )
    for question, hits in zip(QUESTIONS, answers, strict=True):
        click.echo(f"\n{click.style(question, bold=True)}\n")
        click.echo(click.style("  #  score  by vectors  by words  source", dim=True))
        for one in hits:
            places = f"{_place(one.dense_place):>10}  {_place(one.lexical_place):>8}"
            click.echo(f"  {one.hit.rank}  {one.hit.score:5.2f}  {places}  {console.printable(one.hit.doc_id)}")
        lines = wrapped(nearest(hits[0].hit.text, question, length=180)[0], 94)
        click.echo("\n" + "\n".join(f"    {line}" for line in lines))
    click.echo(_next(sys.argv[0]))


def run(folder: Path, on_progress: OnProgress | None = None) -> tuple[Index, list[list[PlacedHit]]]:
    """Index the sample in `folder` and ask it the three questions, as `ragidx query` does by default."""
    index = build(sample_corpus(), folder, on_progress=on_progress)
    answers = []
    for question in QUESTIONS:
        by_vectors = _places(index.search(question, _PLACES, mode="dense", fold=False))
        by_words = _places(index.search(question, _PLACES, mode="lexical", fold=False))
        hits = index.search(question, 3)
        answers.append([PlacedHit(hit, by_vectors.get(hit.chunk_id), by_words.get(hit.chunk_id)) for hit in hits])
    return index, answers


def _places(hits: list[Hit]) -> dict[str, int]:
    return {hit.chunk_id: hit.rank for hit in hits}


def _place(place: int | None) -> str:
    return "over 100" if place is None else f"{place}."


def _next(program: str) -> str:
    beside = Path(".venv/bin/ragidx")  # where `make demo` installs it
    name = str(beside) if beside.exists() and Path(program).resolve() == beside.resolve() else "ragidx"
    return (
        "\nTry next:\n"
        f"  {name} build DOCUMENTS            index a folder of yours (txt, md, html, pdf, csv, jsonl ...)\n"
        f'  {name} query "a question"         ask it\n'
        f"  {name} models                     other models, and their memory\n"
        f"  {name} --help                     everything else"
    )
