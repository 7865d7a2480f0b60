"""`ragidx verify`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand, as_options
from ragidx.pipelines.cli.options import index_option, json_option, quiet_option


@click.command("verify", cls=GroupedCommand)
@index_option
@quiet_option
@json_option
def command(index: Path, as_json: bool) -> int:
    """Check every byte of an index. Exit status 1 if the committed state is damaged.

    \b
        ragidx verify

    Other damage is reported on stderr: in kept generations, which only `ragidx rollback` needs, and in narrow copies of
    the vectors, which are made again at their next use.
    """
    from ragidx.indexer.store import Store
    from ragidx.indexer.store.files import MANIFEST
    from ragidx.indexer.store.verify import verify_committed, verify_kept

    if not (index / MANIFEST).is_file():
        Store.open(index)  # raises the error that fits
    faults, kept = ([as_options(line) for line in found(index)] for found in (verify_committed, verify_kept))
    if as_json:
        console.print_json({"path": str(index), "faults": faults, "kept": kept})
    else:
        for fault in kept:
            console.error(fault)
        for fault in faults:
            click.echo(console.printable_lines(fault))
        if not faults and not console.is_quiet():
            click.echo(f"{index}: intact")
    return 1 if faults else 0
