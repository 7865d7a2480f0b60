"""`ragidx query`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragidx.corpora.records import json_text
from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.hits import PER_DOCUMENT, show_answer, show_served, warnings_as_notes
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.options import (
    indexes_option,
    json_option,
    offline_option,
    path_option,
    typed_options,
)
from ragidx.retriever.keywords import AskKeywords, PlaceKeywords, Rerank, SearchKeywords, ShapeKeywords
from ragidx.retriever.passages import hits_json, stem_of

if TYPE_CHECKING:
    from ragidx.retriever.searcher import Searcher

_PLACE = tuple(PlaceKeywords.__annotations__)
_SHAPING = tuple(ShapeKeywords.__annotations__)
_EXCLUDED = (  # by what they have no effect with, and why
    ("run", _SHAPING, "a run lists documents, not passages"),
    ("vector", ("instruction", "model", "adapters", "pooler", "dtype", "questions"), "nothing is encoded"),
)
_SHOWN = {"index", "full", "as_json"}  # what decides the form of an answer alone
_ANSWERED = {*AskKeywords.__annotations__, *SearchKeywords.__annotations__} - {"rerank"}  # what a service answers, too
_BLOCK = 256  # queries that are answered at once


@click.command("query", cls=GroupedCommand)
@click.argument("text", metavar="[TEXT]", required=False)
@indexes_option
@click.option(
    "--at",
    metavar="TARGET",
    help="Ask the rows where an engine has them: a target of `ragidx export`, in place of --index.",
)
@keyword_options(AskKeywords)
@keyword_options(PlaceKeywords)
@click.option(
    "--vector",
    metavar="FILE",
    help="Query vectors instead of TEXT: an .npy file, a JSON list of numbers, or a list of such lists; - for stdin.",
)
@keyword_options(
    SearchKeywords,
    but=["rerank"],
    notes={"per_document": " [default: 3; with --json, --queries or --vector any number]"},
)
@click.option(
    "--rerank",
    metavar="MODEL",
    help="Let a cross-encoder or a decoder read the best, and order them again.",
)
@click.option(
    "--rerank-top", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="Passages it reads."
)
@click.option(
    "--rerank-method",
    default="auto",
    show_default=True,
    metavar="M",
    help="auto, cross-encoder, qwen3-reranker, yes-no or likelihood.",
)
@click.option("--full", is_flag=True, help="Show whole passages.")
@click.option("--show", metavar="FIELD,...", help="Show these fields of the metadata.")
@path_option("--queries", "FILE", "Answer each query of a file in BEIR form (JSON lines).")
@path_option("--run", "FILE", "Write a TREC run of documents for --queries; - for stdout.")
@offline_option
@json_option
def command(
    text: str | None,
    index: tuple[Path, ...],
    at: str | None,
    vector: str | None,
    queries: Path | None,
    run: Path | None,
    full: bool,
    show: str | None,
    as_json: bool,
    rerank: str | None,
    rerank_top: int,
    rerank_method: str,
    **options: Any,
) -> None:
    """Search an index: print the chunks that answer TEXT, best first.

    \b
        ragidx query "why were pigeons chased out of an antenna?" -k 3

    Chunks are found by their vectors and by their words (--mode). TEXT is a question, not a query language: quotes, +,
    - and field:value mean nothing; --where has conditions.

    Scores order the hits of one question. What is a good one depends on the model and the corpus: a reranker's may be
    -0.4 or 23.1, and docs/query.md says more.

    --queries prints a line of JSON for each query: {"id", "query", "notes", "hits"}. With --run it writes a TREC run
    instead, in which a document counts by its best chunk.

    --device encodes the question; auto takes a GPU if there is one. The search runs on the CPU, except with --device
    cuda or cuda:N: then on the GPU, for as many segments as fit its memory. --dim compares on the CPU.
    docs/conditions.md describes --where.

    --index may be repeated: several indexes are asked as one, or, where their vectors or words cannot be compared, each
    by itself.

    \b
        ragidx query "ERR_TLS_0x1F" --mode lexical
        ragidx query "treaties" --where 'subject == "history" and year >= 1900'
        ragidx query --queries queries.jsonl > hits.jsonl
        ragidx query --queries queries.jsonl --run run.trec -k 100
        ragidx query --vector question.npy
    """
    _check_usage({"a question": text, "--vector": vector, "--queries": queries}, run, as_json=as_json)
    is_one = at is None and text is not None and len(index) == 1
    if is_one and _answered_by_service(index[0], text or "", options, full=full, as_json=as_json):
        return
    if at is not None and "index" in typed_options():
        raise click.UsageError("--index and --at exclude each other: remove one")
    options["rerank"] = None if rerank is None else Rerank(rerank, rerank_top, rerank_method)
    opened = _opened(index, at, {name: options.pop(name) for name in _PLACE})
    shown = {"full": full, "fields": _fields(show, opened.store.manifest.schema)}
    asked = {name: value for name, value in options.items() if name != "instruction"} | {"in_words": vector is None}
    about = {} if at is None and len(index) == 1 else _about_several(opened, asked)
    if at is not None:
        about = _about_engine(opened, asked)
    with warnings_as_notes():
        if vector is not None:
            _answer_vectors(opened, vector, options, shown, about, as_json=as_json)
        elif queries is None:
            if not as_json and options["per_document"] is None:
                options["per_document"] = PER_DOCUMENT
            _answer(opened, text or "", options, shown, about, as_json=as_json)
        elif run is None:
            _answer_lines(opened, queries, options)
        else:
            _answer_file(opened, queries, run, options, as_json=as_json)


def _opened(indexes: Sequence[Path], at: str | None, place: Mapping[str, Any]) -> Searcher:
    """The index, or several as one, or what an engine has."""
    from ragidx.retriever.models import ModelPlace

    if at is not None:
        from ragidx.pipelines.integrations.engines.remote import RemoteSearcher

        return RemoteSearcher.open(at, ModelPlace(**place))
    from ragidx.retriever.searcher import Searcher

    opened = [Searcher.open(index, ModelPlace(**place)) for index in indexes]
    if len(opened) == 1:
        return opened[0]
    from ragidx.retriever.several_indexes import Several

    return Several(opened)


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
    typed = typed_options()
    for name in ("full", "show"):
        if name in typed and (as_json or asking["--queries"] is not None):
            raise click.UsageError(f"{typed[name]} is for the table: JSON has whole passages and all fields")
    for name, others, why in _EXCLUDED:
        for other in others:
            if {name, other} <= typed.keys():
                raise click.UsageError(f"{typed[other]} and {typed[name]} exclude each other: {why}")
    for name in ("rerank_top", "rerank_method"):
        if name in typed and "rerank" not in typed:
            raise click.UsageError(f"{typed[name]} is for a reranker: add --rerank, or remove {typed[name]}")


def _answered_by_service(index: Path, text: str, options: Mapping[str, Any], *, full: bool, as_json: bool) -> bool:
    """Print the answer of a service that has the index open for this user, at the generation that is committed now.

    False, and nothing is printed, where there is none, or the question needs more than it offers.
    """
    typed = typed_options()
    if not typed.keys() <= _SHOWN | _ANSWERED:
        return False
    from ragidx.pipelines.serve.client import answer_of, through_socket
    from ragidx.retriever.passages import Excerpt

    asked = {name: options[name] for name in _ANSWERED & typed.keys()}
    shown = PER_DOCUMENT if not as_json and options["per_document"] is None else options["per_document"]
    answer = through_socket(index, {"query": text, **asked, "per_document": shown}, _say_waiting)
    if answer is None or not (answer["hits"] or as_json):
        return False
    try:
        about = {name: answer[name] for name in ("query", "where", "k", "mode", "stemmer", "notes")}
        hits = answer_of(answer)
        passages = [Excerpt(**hit["passage"]) for hit in answer["hits"]]
    except (LookupError, TypeError):  # of a service of another version
        return False
    about.pop("stemmer")
    if as_json:
        console.print_json(about | {"hits": answer["hits"]})
        return True
    show_served(answer, hits, passages, {**options, "per_document": shown}, full=full)
    return True


def _say_waiting() -> None:
    from ragidx.pipelines.serve.client import WAIT_S

    console.note(f"The service of this index does not answer. After {WAIT_S:g} s it is not waited for.")


def _fields(show: str | None, schema: Mapping[str, str]) -> list[str]:
    """The fields of --show."""
    names = [name.strip() for name in (show or "").split(",") if name.strip()]
    for name in names:
        if name not in schema:
            known = ", ".join(sorted(schema)) or "none"
            raise click.UsageError(f"--show: the index has no field '{console.printable(name)}'; known: {known}")
    return names


def _about_several(searcher: Searcher, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON says of several indexes, empty for one; a note says why they are fused by places."""
    from ragidx.retriever.several_indexes import Several

    if not isinstance(searcher, Several):
        return {}
    why = searcher.by_places(**asked)
    if why:
        console.note(f"Each index answers by itself, and hits are fused by places: {why}.")
    return {"indexes": searcher.paths, "by_places": why or None}


def _about_engine(searcher: Searcher, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON says of an engine; a note says why hybrid search is by places."""
    about = {"words_by": searcher.store.words_by}
    if searcher.options(**asked).mode != "hybrid":
        return about
    why = "an engine does not tell how its scores spread"
    console.note(f"Hits by vectors and by words are fused by places: {why}.")
    return about | {"by_places": why}


def _answer(
    searcher: Searcher,
    text: str,
    options: dict[str, Any],
    shown: Mapping[str, Any],
    several: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """The hits of one question."""
    mode = searcher.options(**{name: value for name, value in options.items() if name != "instruction"}).mode
    if mode != "lexical":
        with console.waiting("loading the model"):
            searcher.load(options["instruction"])
    [hits] = searcher.search([text], **options)
    if as_json:
        about = {"query": text, "where": options["where"], "k": options["k"], "mode": mode, **several}
        console.print_json(about | {"notes": hits.notes, "hits": hits_json(hits, text, stem_of(searcher.stemmer))})
    else:
        show_answer(searcher, text, options, hits, mode, shown)


def _answer_vectors(
    searcher: Searcher,
    vector: str,
    options: dict[str, Any],
    shown: Mapping[str, Any],
    several: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """The hits of each vector of a file."""
    from ragidx.retriever.query_vectors import read_query_vectors

    answers = searcher.search(vectors=read_query_vectors(vector), **options)
    if as_json:
        about = {"vector": vector, "where": options["where"], "k": options["k"], "mode": "dense", **several}
        console.print_json(about | {"answers": [{"hits": [hit.to_json() for hit in hits]} for hits in answers]})
        return
    for number, hits in enumerate(answers, start=1):
        if len(answers) > 1:
            click.echo(f"{'' if number == 1 else chr(10)}query {number}")
        show_answer(searcher, "", options, hits, "dense", shown)


def _answer_lines(searcher: Searcher, queries: Path, options: Mapping[str, Any]) -> None:
    """A line of JSON for each query."""
    from ragidx.corpora.evalsets import load_queries
    from ragidx.indexer.arrays import slices

    stem = stem_of(searcher.stemmer)
    for block in slices(list(load_queries(queries).items()), _BLOCK):
        answers = searcher.search([text for _, text in block], **options)
        for (name, text), hits in zip(block, answers, strict=True):
            found = {"id": name, "query": text, "notes": hits.notes, "hits": hits_json(hits, text, stem)}
            click.echo(json_text(found))


def _answer_file(searcher: Searcher, queries: Path, run: Path, options: Mapping[str, Any], *, as_json: bool) -> None:
    """A TREC run of the documents of all queries."""
    from ragidx.corpora.errors import RagidxError
    from ragidx.corpora.evalsets import load_queries, run_lines
    from ragidx.indexer.atomic import write_file, writing

    texts = load_queries(queries)
    ranking = {name: value for name, value in options.items() if name not in _SHAPING}
    answers = searcher.rank_documents(list(texts.values()), **ranking)
    text = "".join(run_lines(zip(texts, answers, strict=True)))
    if str(run) == "-":
        click.echo(text, nl=False)
        console.note(f"{console.plural(len(texts), 'query', 'queries')} answered")
        return
    try:
        if run.exists() and not run.is_file():  # a pipe or a device
            with writing(run):
                run.write_text(text, encoding="utf-8")
        else:
            write_file(run, text.encode())
    except RagidxError as fault:  # its hint is about an index
        raise RagidxError(fault.message, "choose another file with --run", where=str(run)) from fault
    if as_json:
        n_documents = sum(map(len, answers))
        console.print_json({"queries": len(texts), "run": str(run), "k": options["k"], "documents": n_documents})
    else:
        console.note(f"{console.plural(len(texts), 'query', 'queries')} answered, run in {run}")
