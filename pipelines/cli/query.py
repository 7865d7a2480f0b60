"""`ragidx query`."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragidx.corpora.errors import QueryError
from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.hits import PER_DOCUMENT, Asked, hits_json, show_answer, show_vector_answer, warnings_as_notes
from ragidx.pipelines.cli.options import (
    device_option,
    dtype_option,
    endpoint_option,
    index_option,
    json_option,
    offline_option,
)

if TYPE_CHECKING:
    from ragidx.pipelines.index import Index
    from ragidx.retriever.options import (  # loads numpy and FAISS's files, which no --help needs
        QueryKeywords,
        RankKeywords,
        Rerank,
    )


_RANKING = (
    *("dim", "rerank_dim", "mode", "weight", "fusion", "min_score", "min_z"),
    "rerank",
)
_TOP, _METHOD = 20, "auto"
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
    "--mode",
    metavar="M",
    help="dense (by the vectors), lexical (by the words), or hybrid, which is the default where the index has both.",
)
@click.option("--weight", type=float, metavar="W", help="Weight of the vectors in hybrid search [default: 0.5].")
@click.option("--fusion", metavar="F", help="z (scores against those of all chunks) or rrf (places) [default: z].")
@click.option("--min-score", type=float, metavar="C", help="Leave out chunks with a cosine below C.")
@click.option("--min-z", type=float, metavar="Z", help="Leave out chunks with a score of hybrid search below Z.")
@click.option(
    "--per-document",
    type=click.IntRange(min=1),
    metavar="N",
    help="At most N hits of a document [default: 3; with --json, --queries or --vector any number].",
)
@click.option("--fold/--no-fold", default=True, help="Show equal and nearly equal passages once [default: fold].")
@click.option("--mmr", type=float, metavar="L", help="Prefer hits unlike those before; 1 is by score, 0 by unlikeness.")
@click.option(
    "--context", type=click.IntRange(min=0), default=0, metavar="N", help="Show N chunks of the document on each side."
)
@click.option(
    "--rerank",
    metavar="MODEL",
    help="Let a cross-encoder or a decoder read the best, and order them again.",
)
@click.option(
    "--rerank-top", type=click.IntRange(min=1), default=_TOP, show_default=True, metavar="N", help="Passages it reads."
)
@click.option(
    "--rerank-method",
    default=_METHOD,
    show_default=True,
    metavar="M",
    help="auto, cross-encoder, qwen3-reranker, yes-no or likelihood.",
)
@click.option("--full", is_flag=True, help="Show whole passages.")
@click.option("--show", metavar="FIELD,...", help="Show these fields of the metadata.")
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
@endpoint_option
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
    full: bool,
    show: str | None,
    device: str,
    dtype: str,
    endpoint: str | None,
    as_json: bool,
    rerank_top: int,
    rerank_method: str,
    **given: Any,
) -> None:
    """Search an index: print the chunks that answer TEXT, best first.

    \b
        ragidx query "why were pigeons chased out of an antenna?" -k 3

    Chunks are found by their vectors and by their words (--mode). TEXT is a question, not a query language: quotes, +,
    - and field:value mean nothing; --where has conditions.

    --queries prints a line of JSON for each query: {"id", "query", "hits"}. With --run it writes a TREC run instead, in
    which a document counts by its best chunk.

    --device encodes the question; auto takes a GPU if there is one. The search runs on the CPU, except with --device
    cuda or cuda:N: then on the GPU, for as many segments as fit its memory. --dim compares on the CPU.
    docs/conditions.md describes --where.

    \b
        ragidx query "ERR_TLS_0x1F" --mode lexical
        ragidx query "treaties" --where 'subject == "history" and year >= 1900'
        ragidx query --queries queries.jsonl > hits.jsonl
        ragidx query --queries queries.jsonl --run run.trec -k 100
        ragidx query --vector question.npy
    """
    from ragidx.pipelines.index import Index

    _check_usage({"a question": text, "--vector": vector, "--queries": queries}, run, as_json=as_json)
    asked: QueryKeywords = {**given, "rerank": _reranking(given["rerank"], rerank_top, rerank_method)}  # type: ignore[typeddict-item]  # click names them
    if queries is not None or as_json:
        _refuse_display(full=full, show=show)
    if run is not None:
        _refuse_shaping(asked)
    if vector is not None:
        _refuse_encoding(instruction, model, adapters, pooler, dtype)
        _answer_vectors(index, vector, asked, device, full, show, as_json)
        return
    opened = Index(
        index,
        model=model,
        adapters=adapters or None,
        pooler=pooler,
        device=device,
        dtype=dtype,
        endpoint=endpoint,
    )
    with warnings_as_notes():
        if queries is not None and run is not None:
            _answer_file(opened, queries, run, instruction, asked, as_json)
        elif queries is not None:
            _answer_lines(opened, queries, instruction, asked)
        else:
            _answer(opened, text or "", instruction, asked, full=full, show=show, as_json=as_json)


def _answer(
    index: Index,
    text: str,
    instruction: str | None,
    options: QueryKeywords,
    *,
    full: bool,
    show: str | None,
    as_json: bool,
) -> None:
    """The hits of one question."""
    if index.searcher.options(**options).mode != "lexical":
        with console.waiting("loading the model"):
            _ = index.searcher.embedder
    if as_json:
        hits = index.search(text, instruction=instruction, **options)
        question_fields = {
            "query": text,
            "where": options["where"],
            "k": options["k"],
            "mode": index.searcher.options(**options).mode,
        }
        console.print_json(question_fields | {"hits": hits_json(index, hits, text)})
        return
    if options["per_document"] is None:
        options["per_document"] = PER_DOCUMENT
    question = Asked(text, options, full, _fields(show, index.info().schema))
    show_answer(index, question, instruction)


def _check_usage(asking: Mapping[str, object], run: Path | None, *, as_json: bool) -> None:
    """Whether one thing is asked, and the options fit it."""
    if run is not None and asking["--queries"] is None:
        raise click.UsageError("--run needs --queries: it holds the answers to a file of queries")
    named = [name for name, value in asking.items() if value is not None]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} exclude each other: remove all but one")
    if not named:
        raise click.UsageError("give a question, or --vector FILE, or --queries FILE")
    if str(run) == "-" and as_json:
        raise click.UsageError("--run - and --json both write to standard output: remove one")


def _reranking(model: str | None, top: int, method: str) -> Rerank | None:
    """The model that reads the best passages, as a value."""
    from ragidx.retriever.options import Rerank

    if model is None:
        for name, is_given in (("rerank_top", top != _TOP), ("rerank_method", method != _METHOD)):
            if is_given:
                raise QueryError("it is for a reranker, and none is named", "give `rerank`, too", where=f"`{name}`")
        return None
    return Rerank(model, top, method)


def _fields(show: str | None, schema: Mapping[str, str]) -> list[str]:
    """The fields of --show."""
    names = [name.strip() for name in (show or "").split(",") if name.strip()]
    for name in names:
        if name not in schema:
            known = ", ".join(sorted(schema)) or "none"
            raise click.UsageError(f"--show: the index has no field '{console.printable(name)}'; known: {known}")
    return names


def _refuse_display(*, full: bool, show: str | None) -> None:
    for option, given in (("--full", full), ("--show", show)):
        if given:
            raise click.UsageError(f"{option} is for the table: JSON has whole passages and all fields")


def _refuse_shaping(asked: QueryKeywords) -> None:
    """A run lists documents, not passages."""
    for name, default in (("per_document", None), ("fold", True), ("mmr", None), ("context", 0)):
        if asked.get(name) != default:
            option = f"--{'no-' * (name == 'fold')}{name.replace('_', '-')}"
            raise click.UsageError(f"{option} and --run exclude each other: a run lists documents, not passages")


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
    index: Path, vector: str, asked: QueryKeywords, device: str, full: bool, show: str | None, as_json: bool
) -> None:
    from ragidx.pipelines.index import Index
    from ragidx.retriever.query_vectors import read_query_vectors

    opened = Index(index, device=device)
    answers = opened.searcher.search_vectors(read_query_vectors(vector), **asked)
    if as_json:
        found = [{"hits": [hit.to_json() for hit in hits]} for hits in answers]
        console.print_json(
            {"vector": vector, "where": asked["where"], "k": asked["k"], "mode": "dense", "answers": found}
        )
        return
    question = Asked("", asked, full, _fields(show, opened.info().schema))
    for number, hits in enumerate(answers, start=1):
        if len(answers) > 1:
            click.echo(f"{'' if number == 1 else chr(10)}query {number}")
        show_vector_answer(hits, question, is_empty=not opened.info().n_chunks)


def _answer_lines(index: Index, queries: Path, instruction: str | None, asked: QueryKeywords) -> None:
    """A line of JSON for each query."""
    from ragidx.corpora.evalsets import load_queries

    waiting = iter(load_queries(queries).items())
    while block := list(itertools.islice(waiting, _BLOCK)):
        found = index.search_batch([text for _, text in block], instruction=instruction, **asked)
        for (name, text), hits in zip(block, found, strict=True):
            click.echo(json.dumps({"id": name, "query": text, "hits": hits_json(index, hits, text)}))


def _answer_file(
    index: Index,
    queries: Path,
    run: Path,
    instruction: str | None,
    asked: QueryKeywords,
    as_json: bool,
) -> None:
    from ragidx.corpora.evalsets import load_queries, write_run

    texts = load_queries(queries)
    ranking: RankKeywords = {name: asked[name] for name in _RANKING}  # type: ignore[assignment,literal-required]
    found = index.rank_documents(
        list(texts.values()), asked["k"], instruction=instruction, where=asked["where"], **ranking
    )
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
