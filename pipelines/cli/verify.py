"""`ragidx verify`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option


@click.command("verify", cls=GroupedCommand)
@index_option
@json_option
def command(index: Path, as_json: bool) -> int:
    """Read a whole index and check every byte; exit status 1 if the committed state is damaged.

    What is wrong beside it is told on stderr: with the generations kept before it, which only `ragidx rollback` needs,
    and with narrower copies of its vectors, which are made again when they are asked for.
    """
    from ragidx.indexer.store.manifest import MANIFEST
    from ragidx.indexer.store.store import Store
    from ragidx.indexer.store.verify import verify_committed, verify_kept

    if not (index / MANIFEST).is_file():
        Store.open(index)  # says what is there instead
    faults, kept = verify_committed(index), verify_kept(index)
    if as_json:
        console.print_json({"path": str(index), "faults": faults, "kept": kept})
    else:
        for fault in kept:
            console.note(fault)
        for fault in faults:
            click.echo(console.printable_lines(fault))
        if not faults:
            click.echo(f"{index}: whole")
    return 1 if faults else 0
