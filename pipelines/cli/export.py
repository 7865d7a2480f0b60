"""`ragidx export`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli import console, interrupts
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option, offline_option, quiet_option


@click.command("export", cls=GroupedCommand)
@index_option
@click.option(
    "--to",
    required=True,
    metavar="TARGET",
    help="parquet:FILE, datasets:DIR, lancedb:DIR, postgresql://HOST/DATABASE, qdrant:URL or milvus:URL; #NAME after "
    "one of an engine names the table.",
)
@click.option("--replace", is_flag=True, help="Write all anew, whatever is there.")
@click.option("--strict", is_flag=True, help="End before anything is written if the target cannot hold all rows.")
@click.option("--decoded", is_flag=True, help="Of an index of codes alone: write the vectors that these stand for.")
@quiet_option
@offline_option
@json_option
def command(index: Path, to: str, replace: bool, strict: bool, decoded: bool, as_json: bool) -> None:
    """Write all rows of an index, with texts, metadata and vectors, to a target.

    \b
        ragidx export --to parquet:chunks.parquet
        ragidx export --to datasets:chunks/
        ragidx export --to lancedb:lance/#chunks

    The same state again does nothing; a later state writes the rows that changed. A target that holds something else,
    or vectors of another model or filter, is refused without --replace.
    """
    from ragidx.pipelines.integrations.export import export
    from ragidx.retriever.rows import FolderRows

    store = FolderRows.open(index)
    with interrupts.reported(lambda: "export again: it continues"), console.waiting("writing"):
        done = export(store, to, replace=replace, strict=strict, decoded=decoded)
    if as_json:
        console.print_json(done.to_json())
        return
    changed = done.n_written + done.n_deleted
    what = f"{done.n_rows:,} rows" if changed else f"{done.n_rows:,} rows, there already"
    is_part = changed and done.n_written < done.n_rows
    console.print_fields(
        [
            ("target", done.target),
            ("holds", f"{what} (generation {done.generation})"),
            *([("change", f"{done.n_written:,} written, {done.n_deleted:,} deleted")] if is_part else []),
            *(("refused", f"{count:,} rows: {reason}") for reason, count in sorted(done.refused.items())),
            ("time", f"{done.seconds:.1f} s"),
        ]
    )
