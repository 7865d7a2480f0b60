"""`ragidx query`."""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import device_option, dtype_option, index_option, json_option, offline_option
from ragidx.retriever.hit import Hit

if TYPE_CHECKING:
    from ragidx.retriever.options import SearchKeywords  # loads numpy and FAISS's files, which no --help needs
    from ragidx.retriever.retriever import Retriever


_BLOCK = 256  # queries that are answered at once


@click.command("query", cls=GroupedCommand)
@click.argument("text", metavar="[TEXT]", required=False)
@index_option
@click.option("-k", type=click.IntRange(min=1), default=10, show_default=True, help="Hits to return.")
@click.option("--instruction", metavar="S", help="Task sentence put before the query, or task:NAME; '' for none.")
@click.option("--where", metavar="EXPR", help="Keep chunks whose metadata match, such as 'year >= 1900'.")
@click.option("--model", metavar="PATH", help="Where the index's model is now, if it was moved.")
@click.option(
    "--adapter",
    "adapters",
    multiple=True,
    metavar="PATH",
    help="Where its LoRA adapters are now: all of them, in order.",
)
@click.option("--pooler", metavar="FILE", help="Where the weights of its trainable pooling are now.")
@click.option(
    "--vector",
    metavar="FILE",
    help="Query vectors instead of TEXT: an .npy file, a JSON list of numbers, or a list of such lists; - for stdin.",
)
@click.option("--dim", type=click.IntRange(min=1), metavar="N", help="Compare only the first N numbers of the vectors.")
@click.option(
    "--rerank-dim",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --dim: compare the found chunks again, by the first N numbers.",
)
@click.option(
    "--queries",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Answer each query of a file in BEIR form (JSON lines).",
)
@click.option(
    "--run",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a TREC run of documents for --queries; - for stdout.",
)
@device_option
@dtype_option
@offline_option
@json_option
def command(
    text: str | None,
    index: Path,
    instruction: str | None,
    model: str | None,
    adapters: tuple[str, ...],
    pooler: str | None,
    vector: str | None,
    queries: Path | None,
    run: Path | None,
    device: str,
    dtype: str,
    as_json: bool,
    **asked: Unpack[SearchKeywords],
) -> None:
    """Print the hits for TEXT, best first; or for vectors; or for each line of a file of queries.

    --queries prints a line of JSON for each query: {"id", "query", "hits"}. With --run it writes a TREC run instead, in
    which a document counts by its best chunk.

    --device encodes the question; auto takes a GPU if there is one. The search runs on the CPU, except with --device
    cuda or cuda:N: then on the GPU, for as many segments as fit its memory. --dim compares on the CPU.
    docs/conditions.md describes --where.

    \b
        ragidx query "why were pigeons chased out of an antenna?" -k 3
        ragidx query "treaties" --where 'subject == "history" and year >= 1900'
        ragidx query --queries queries.jsonl > hits.jsonl
        ragidx query --queries queries.jsonl --run run.trec -k 100
        ragidx query --vector question.npy
    """
    from ragidx.retriever.retriever import Retriever

    if run is not None and queries is None:
        raise click.UsageError("--run needs --queries: it holds the answers to a file of queries")
    asking = {"a question": text, "--vector": vector, "--queries": queries}
    named = [name for name, value in asking.items() if value is not None]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} exclude each other: remove all but one")
    if not named:
        raise click.UsageError("give a question, or --vector FILE, or --queries FILE")
    if str(run) == "-" and as_json:
        raise click.UsageError("--run - and --json both write to standard output: remove one")
    if vector is not None:
        _refuse_encoding(instruction, model, adapters, pooler, dtype)
        _answer_vectors(index, vector, asked, device, as_json)
        return
    retriever = Retriever.open(index, model=model, adapters=adapters or None, pooler=pooler, device=device, dtype=dtype)
    if queries is not None:
        if run is None:
            _answer_lines(retriever, queries, instruction, asked)
        else:
            _answer_file(retriever, queries, run, instruction, asked, as_json)
        return
    assert text is not None
    hits = retriever.search(text, instruction=instruction, **asked)
    if as_json:
        console.print_json(
            {"query": text, "where": asked["where"], "k": asked["k"], "hits": [hit.to_json() for hit in hits]}
        )
        return
    _show(hits, text, asked)


def _show(hits: list[Hit], query: str, asked: SearchKeywords) -> None:
    """The hits, and a note if there are fewer than -k."""
    if not hits and asked["where"]:
        console.note("No chunk matches --where.")
        return
    show(hits, query)
    if len(hits) < asked["k"]:
        there = "There is 1 chunk" if len(hits) == 1 else f"There are {len(hits)} chunks"
        what = ("that matches" if len(hits) == 1 else "that match") + " --where" if asked["where"] else "in the index"
        console.note(f"{there} {what}; {asked['k']} hits were requested.")


def show(hits: list[Hit], query: str) -> None:
    """A table: rank, score, source, and below it the passage that is nearest to the query's words.

    For precomputed vectors, the row's own id is shown too.
    """
    room = console.width(sys.stdout)
    click.echo(click.style(" #  score  source", bold=True))
    for hit in hits:
        source = console.printable(hit.doc_id) + (f"  › {console.printable(hit.heading)}" if hit.heading else "")
        if hit.chunk_id not in (hit.doc_id, f"{hit.doc_id}:{hit.start}-{hit.end}"):
            source += f"  row {console.printable(hit.chunk_id)}"
        click.echo(f"{hit.rank:>2}  {hit.score:5.3f}  {click.style(source, fg='cyan')}")
        for line in textwrap.wrap(console.passage(hit.text, query), room - 11):
            click.echo(f"           {line}")


def _refuse_encoding(
    instruction: str | None, model: str | None, adapters: tuple[str, ...], pooler: str | None, dtype: str
) -> None:
    """Refuse options on how a question is encoded: a vector is not."""
    given = {
        "--instruction": instruction,
        "--model": model,
        "--adapter": adapters or None,
        "--pooler": pooler,
        "--dtype": None if dtype == "auto" else dtype,
    }
    for option, value in given.items():
        if value is not None:
            raise click.UsageError(f"{option} and --vector exclude each other: nothing is encoded")


def _answer_vectors(
    index: Path,
    vector: str,
    asked: SearchKeywords,
    device: str,
    as_json: bool,
) -> None:
    from ragidx.retriever.query_vectors import read_query_vectors
    from ragidx.retriever.reader import IndexReader

    reader = IndexReader.open(index, device=device)
    answers = reader.search(read_query_vectors(vector), **asked)
    if as_json:
        found = [{"hits": [hit.to_json() for hit in hits]} for hits in answers]
        console.print_json({"vector": vector, "where": asked["where"], "k": asked["k"], "answers": found})
        return
    for number, hits in enumerate(answers, start=1):
        if len(answers) > 1:
            click.echo(f"{'' if number == 1 else chr(10)}query {number}")
        _show(hits, "", asked)


def _answer_lines(retriever: Retriever, queries: Path, instruction: str | None, asked: SearchKeywords) -> None:
    """A line of JSON for each query."""
    from ragidx.corpora.evalsets import load_queries

    waiting = iter(load_queries(queries).items())
    while block := list(itertools.islice(waiting, _BLOCK)):
        found = retriever.search_batch([text for _, text in block], instruction=instruction, **asked)
        for (name, text), hits in zip(block, found, strict=True):
            click.echo(json.dumps({"id": name, "query": text, "hits": [hit.to_json() for hit in hits]}))


def _answer_file(
    retriever: Retriever,
    queries: Path,
    run: Path,
    instruction: str | None,
    asked: SearchKeywords,
    as_json: bool,
) -> None:
    from ragidx.corpora.evalsets import load_queries, write_run

    texts = load_queries(queries)
    found = retriever.search_documents(list(texts.values()), instruction=instruction, **asked)
    answers = list(zip(texts, found, strict=True))
    if str(run) == "-":
        with tempfile.TemporaryDirectory(prefix="ragidx-run-") as folder:
            write_run(Path(folder) / "run", answers)
            click.echo((Path(folder) / "run").read_text(encoding="utf-8"), nl=False)
        console.note(f"{console.plural(len(texts), 'query', 'queries')} answered")
        return
    write_run(run, answers)
    if as_json:
        console.print_json({"queries": len(texts), "run": str(run), "k": asked["k"], "documents": sum(map(len, found))})
    else:
        console.note(f"{console.plural(len(texts), 'query', 'queries')} answered, run in {run}")
