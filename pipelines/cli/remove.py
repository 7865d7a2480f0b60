"""`ragidx remove`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option, quiet_option


@click.command("remove", cls=GroupedCommand)
@click.argument("name", metavar="NAME")
@index_option
@quiet_option
@json_option
def command(name: str, index: Path, as_json: bool) -> None:
    """Take a source out of an index, with all of its documents. Its files are not touched.

    It is one commit, which `ragidx rollback` undoes.

    \b
        ragidx remove papers
    """
    from ragidx.pipelines.maintain.sources import remove

    n_removed = remove(name, index)
    if as_json:
        console.print_json({"name": name, "n_removed": n_removed})
    else:
        console.print_fields([("removed", f"{name}: {console.plural(n_removed, 'document')}")])
