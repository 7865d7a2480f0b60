"""`ragidx export`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli import console, interrupts
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option, quiet_option


@click.command("export", cls=GroupedCommand)
@index_option
@click.option(
    "--to",
    required=True,
    metavar="TARGET",
    help="parquet:FILE, or datasets:DIR, which load_dataset of Hugging Face reads.",
)
@click.option(
    "--replace", is_flag=True, help="Also rows of another index, and vectors that were made by another model or filter."
)
@quiet_option
@json_option
def command(index: Path, to: str, replace: bool, as_json: bool) -> None:
    """Write all rows of an index, with texts, metadata and vectors, to a target.

    \b
        ragidx export --to parquet:chunks.parquet
        ragidx export --to datasets:chunks/

    The same state again does nothing; a later state takes the place of what is there.
    """
    from ragidx.indexer.store.store import Store
    from ragidx.pipelines.export.export import export

    with interrupts.reported(lambda: "the target is what it was"), console.waiting(f"writing {to}"):
        done = export(Store.open(index), to, replace=replace)
    if as_json:
        console.print_json(done.to_json())
        return
    what = f"{done.n_rows:,} rows" if done.n_written else f"{done.n_rows:,} rows, there already"
    console.print_fields(
        [
            ("target", done.target),
            ("holds", f"{what} (generation {done.generation})"),
            ("time", f"{done.seconds:.1f} s"),
        ]
    )
