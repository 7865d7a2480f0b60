"""`ragidx build`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragidx.pipelines.cli import console, interrupts, plan_tables, shards
from ragidx.pipelines.cli.build_notes import with_options
from ragidx.pipelines.cli.build_report import tell_report
from ragidx.pipelines.cli.config import configured_sources, taken_fields
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.options import index_option, json_option, offline_option, quiet_option, typed_options
from ragidx.pipelines.cli.progress import ProgressLine
from ragidx.pipelines.cli.vector_options import FILTER_OPTIONS, SEVERAL_DEVICES, with_values
from ragidx.pipelines.ingest.options import QUERY_OPTIONS, STORE_OPTIONS
from ragidx.pipelines.ingest.report import BuildReport
from ragidx.retriever.keywords import BuildKeywords, VectorFileKeywords

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.trials.questions import QuestionFile

_OF_QUERIES = {*QUERY_OPTIONS, *FILTER_OPTIONS} - {"filter_sample", "filter_topk", "filter_power", "center"}
_OF_EVERY = {"index", "as_json", "quiet", "model", "offline", "config"}
_OF_VECTORS = {*STORE_OPTIONS, *_OF_QUERIES, *_OF_EVERY, *VectorFileKeywords.__annotations__}


@click.command("build", cls=GroupedCommand)
@click.argument("corpus", metavar="[CORPUS]...", nargs=-1)
@index_option
@keyword_options(BuildKeywords, notes=SEVERAL_DEVICES)
@shards.shard_options
@click.option("--plan", is_flag=True, help="Estimate time, disk and memory, and build nothing.")
@click.option("--watch", is_flag=True, help="Then build again after each burst of changes, until Ctrl-C.")
@offline_option
@quiet_option
@json_option
def command(
    corpus: Sequence[str] | Mapping[str, str | Mapping[str, Any]],
    vectors: str | None,
    vector_field: str | None,
    index: Path,
    as_json: bool,
    plan: bool,
    watch: bool,
    questions: str | None,
    **flat: Any,
) -> None:
    """Make or update the index of CORPUS: folders and files, a BEIR folder, or - for standard input.

    \b
        ragidx build docs/

    Without CORPUS, every source of the index is brought up to date.

    Reads txt, md, rst, html, tex, ipynb, json, jsonl, csv, tsv, parquet, arrow, eml, mbox, docx, xlsx, pptx, odt, ods,
    odp, epub, rtf, srt, vtt, source code, zip and tar, and with the extra `docs` pdf and msg; packed as .gz, .zst, .bz2
    or .xz, too; with --ocr also scanned pages, png, jpg, tif and webp. Run it again after the corpus changes: only what
    changed is encoded.

    \b
        ragidx build docs/ papers/ notes.md
        ragidx build docs/ --model Qwen/Qwen2.5-0.5B --method echo --tau 2
        ragidx build docs/ --model Qwen/Qwen2.5-0.5B --plan
        ragidx build --vectors vectors.parquet
        ragidx build --vectors vectors.parquet --model models/all-MiniLM-L6-v2
    """
    from ragidx.pipelines.cli import watch as watching

    of_shards = {name: flat.pop(name) for name in shards.OPTIONS} | {"corpus": corpus}
    in_shards = shards.is_asked(of_shards)
    if not corpus and vectors is None:
        corpus = configured_sources()
    options = with_values({"fields": taken_fields(flat), **flat})
    if in_shards:
        shards.run(of_shards, corpus, index, options, as_json=as_json)
        return
    _check_usage(corpus, vectors, vector_field, index)
    for other, is_typed in (
        ("--quiet", console.is_quiet()),
        ("--questions", questions is not None),
        ("--watch", watch),
    ):
        if plan and is_typed:
            raise click.UsageError(f"--plan and {other} exclude each other")
    if watch:
        watching.check_watch(list(corpus))
    if plan:
        _plan(corpus, index, options, as_json=as_json)
        return
    table = None if questions is None else _table(Path(questions), index, options if vectors is None else None)
    if vectors is None:
        report = _build(corpus, index, options, as_json=as_json)
    else:
        report = _build_vectors(vectors, vector_field, index, options, as_json=as_json)
    if table is not None:
        report = dataclasses.replace(report, generation=table.into(index))
    tell_report(report, as_json=as_json)
    if watch:
        again = {**options, "rebuild": False, "restore": False, "retry": False}
        watching.follow(index, lambda: _build(corpus, index, again, as_json=as_json))


def _table(file: Path, index: Path, options: Mapping[str, Any] | None) -> QuestionFile:
    """The table of a file, if the index that is made can take it."""
    from ragidx.pipelines.experiments.trials.questions import questions_for

    return questions_for(file, index, options)


def _check_usage(corpus: Sized, vectors: str | None, vector_field: str | None, index: Path) -> None:
    """Refuse arguments that exclude each other.

    Raises:
        click.UsageError: names them.
    """
    if corpus and vectors is not None:
        raise click.UsageError("give CORPUS or --vectors FILE, not both")
    if not corpus and vectors is None and not index.exists():
        raise click.UsageError("give CORPUS or --vectors FILE")
    if vectors is None and vector_field is not None:
        raise click.UsageError("--vector-field names a column of --vectors")
    typed = {} if vectors is None else typed_options()
    for name, option in typed.items():
        if name in _OF_QUERIES and "model" not in typed:
            raise click.UsageError(
                f"{option} is about the model that encodes questions: add --model, or remove {option}"
            )
        if name not in _OF_VECTORS:
            raise click.UsageError(f"{option} does not apply to precomputed vectors: remove it")


def _build(
    corpus: Sequence[str] | Mapping[str, str | Mapping[str, Any]],
    index: Path,
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> BuildReport:
    """One build, with its progress."""
    from ragidx.indexer.arrays import arrow_without_pandas
    from ragidx.pipelines.ingest.build import build

    arrow_without_pandas()
    line = ProgressLine(as_json=as_json)
    with interrupts.reported(lambda: _what_next(line)), line:
        return build(corpus or None, index, on_progress=line.callback, **options)


def _build_vectors(
    vectors: str, vector_field: str | None, index: Path, options: Mapping[str, Any], *, as_json: bool
) -> BuildReport:
    """A build of precomputed vectors, with its progress."""
    from ragidx.pipelines.vectors import build_vectors

    known = ("model", *QUERY_OPTIONS, *STORE_OPTIONS)
    taken = {name: value for name, value in options.items() if name in known}
    line = ProgressLine(as_json=as_json)
    with interrupts.reported(lambda: interrupts.START_AGAIN), line:
        return build_vectors(vectors, index, on_progress=line.callback, vector_field=vector_field, **taken)


def _what_next(line: ProgressLine) -> str:
    """What an interrupted build keeps, and how to continue."""
    if line.fitting:
        return f"the filter was not fitted, and {interrupts.START_AGAIN}"
    return interrupts.CONTINUES


def _plan(
    corpus: Sequence[str] | Mapping[str, str | Mapping[str, Any]],
    index: Path,
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """The estimate of a build, on stdout."""
    from ragidx.pipelines.plan.plan import plan

    with ProgressLine(as_json=as_json) as line:
        found = plan(corpus or None, index, on_progress=line.callback, **options)
    if as_json:
        console.print_json(with_options(found.to_json()))
    else:
        plan_tables.print_plan(found)
