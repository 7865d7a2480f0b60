"""`ragidx remove-source`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option, quiet_option


@click.command("remove-source", cls=GroupedCommand)
@click.argument("name", metavar="NAME")
@index_option
@quiet_option
@json_option
def command(name: str, index: Path, as_json: bool) -> None:
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
