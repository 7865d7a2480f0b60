"""`ragidx rollback`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option, quiet_option


@click.command("rollback", cls=GroupedCommand)
@click.argument("generation", type=click.IntRange(min=1), metavar="GENERATION")
@index_option
@quiet_option
@json_option
def command(generation: int, index: Path, as_json: bool) -> None:
    """Go back to an earlier GENERATION of an index, one of those that `ragidx history` lists.

    \b
        ragidx rollback 3

    It is a commit of its own: nothing is encoded, queries see the state before or after it, and another rollback undoes
    it. The next `ragidx build` updates the index to its corpus again.
    """
    from ragidx.indexer.writing.history import rollback

    manifest = rollback(index, generation)
    if as_json:
        console.print_json({"path": str(index), **manifest.to_json()})
        return
    if console.is_quiet():
        return
    what = "already the committed state" if manifest.generation == generation else f"as generation {generation}"
    click.echo(
        f"{index}: generation {manifest.generation}, {what}: {console.plural(manifest.n_documents, 'document')}, "
        f"{console.plural(manifest.n_chunks, 'chunk')}"
    )
