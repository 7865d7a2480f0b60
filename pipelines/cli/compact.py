"""`ragidx compact`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option, quiet_option
from ragidx.pipelines.cli.progress import ProgressLine
from ragidx.pipelines.cli.rewrite_tables import tell


@click.command("compact", cls=GroupedCommand)
@click.option(
    "--all", "everything", is_flag=True, help="Rewrite all segments, not only small ones and those with dead rows."
)
@index_option
@quiet_option
@json_option
def command(everything: bool, index: Path, as_json: bool) -> None:
    """Merge the small segments of an index, and drop deleted rows. Queries keep working meanwhile.

    \b
        ragidx compact

    Segments below 64 MiB of vectors are merged; segments with more than a tenth of dead rows are rewritten. Rows are
    copied block by block; only the search structure of a large segment is made in memory. It is one commit, which
    `ragidx rollback` undoes.
    """
    from ragidx.pipelines.maintain.rewrite import compact

    with ProgressLine(as_json=as_json) as line:
        report = compact(index, everything=everything, on_stage=line.on_stage)
    tell(report, as_json=as_json)
