"""`ragidx shrink`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option, quiet_option
from ragidx.pipelines.cli.progress import ProgressLine
from ragidx.pipelines.cli.rewrite_tables import tell


@click.command("shrink", cls=GroupedCommand)
@click.option("--dim", type=int, required=True, metavar="N", help="Keep the first N numbers of each vector.")
@index_option
@quiet_option
@json_option
def command(dim: int, index: Path, as_json: bool) -> None:
    """Make an index narrower in one commit, without encoding again. `ragidx rollback` undoes it.

    \b
        ragidx query "why were pigeons chased out of an antenna?" --dim 64     try it first: changes nothing
        ragidx shrink --dim 64
    """
    from ragidx.pipelines.maintain.rewrite import shrink

    with ProgressLine(as_json=as_json) as line:
        report = shrink(index, dim=dim, on_stage=line.on_stage)
    tell(report, as_json=as_json)
