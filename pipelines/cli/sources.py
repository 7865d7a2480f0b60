"""`ragidx sources`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option


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
        console.print_json({"sources": [{**one.to_json(), "root": str(one.root(index))} for one in entries]})
        return
    rows = [(one.name, str(one.root(index)), f"{one.n_documents:,}", one.built or "not known") for one in entries]
    console.print_table(("name", "path", "documents", "last change"), rows)
