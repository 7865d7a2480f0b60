"""`ragidx sources`, `add-source` and `remove-source`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragidx.pipelines.cli import console, interrupts
from ragidx.pipelines.cli.build_report import tell_report
from ragidx.pipelines.cli.config import taken_fields
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.options import (
    index_option,
    json_option,
    offline_option,
    quiet_option,
)
from ragidx.pipelines.cli.progress import ProgressLine
from ragidx.pipelines.cli.vector_options import SEVERAL_DEVICES
from ragidx.retriever.keywords import ReadKeywords


@click.command("sources", cls=GroupedCommand)
@index_option
@json_option
def command(index: Path, as_json: bool) -> None:
    """List the folders and files that an index is built from.

    \b
        ragidx sources
    """
    from ragidx.pipelines.index import Index

    entries = Index(index).sources()
    if as_json:
        console.print_json({"sources": [{**entry.to_json(), "root": str(entry.root(index))} for entry in entries]})
        return
    rows = [(entry.name, str(entry.root(index)), f"{entry.n_documents:,}", entry.built or "-") for entry in entries]
    console.print_table(("name", "path", "documents", "last change"), rows)


@click.command("add-source", cls=GroupedCommand)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--name", metavar="N", help="Name of the source; ids of its documents begin with it [default: folder's].")
@index_option
@keyword_options(ReadKeywords, notes=SEVERAL_DEVICES)
@offline_option
@quiet_option
@json_option
def add_source(paths: tuple[str, ...], name: str | None, index: Path, as_json: bool, **options: Any) -> None:
    """Add folders or files to the sources of an index. Only they are read and encoded.

    \b
        ragidx add-source papers/

    Ids of their documents begin with the name of the source: `papers/one.md`. After that `ragidx build` brings all
    sources up to date, and `ragidx build papers/` that one.

    \b
        ragidx add-source ../team/papers --name team-papers
    """
    from ragidx.pipelines.ingest.build import add

    options["fields"] = taken_fields(options)
    line = ProgressLine(as_json=as_json)
    with interrupts.reported(lambda: interrupts.CONTINUES), line:
        report = add(paths, index, name=name, on_progress=line.callback, **options)
    tell_report(report, as_json=as_json)


@click.command("remove-source", cls=GroupedCommand)
@click.argument("name", metavar="NAME")
@index_option
@quiet_option
@json_option
def remove_source(name: str, index: Path, as_json: bool) -> None:
    """Remove a source and all of its documents from an index. Its files are not touched.

    \b
        ragidx remove-source papers

    It is one commit, which `ragidx rollback` undoes.
    """
    from ragidx.pipelines.maintain.delete import remove_source

    n_removed = remove_source(name, index)
    if as_json:
        console.print_json({"name": name, "n_removed": n_removed})
    else:
        console.print_fields([("removed", f"{name}: {console.plural(n_removed, 'document')}")])
