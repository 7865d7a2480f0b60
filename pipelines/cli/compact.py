"""`ragidx compact`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option
from ragidx.pipelines.cli.rewrite_tables import StageLine, tell


@click.command("compact", cls=GroupedCommand)
@click.option("--all", "everything", is_flag=True, help="Rewrite all segments, not only small and holed ones.")
@index_option
@json_option
def command(everything: bool, index: Path, as_json: bool) -> None:
    """Merge the small segments of an index, and drop what was deleted; questions are answered meanwhile.

    Segments below 64 MiB of vectors are merged, and those of which more than a tenth is dead are rewritten. Rows are
    copied block by block, whatever the size of the index; only what a large segment is searched by is made in memory.
    One commit: `ragidx rollback` goes back.
    """
    from ragidx.pipelines.maintain.rewrite import compact

    with StageLine(as_json=as_json) as line:
        report = compact(index, everything=everything, on_stage=line.on_stage)
    tell(report, as_json=as_json)
