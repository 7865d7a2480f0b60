"""`ragidx reindex`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import ann_options, index_option, json_option, quiet_option
from ragidx.pipelines.cli.progress import ProgressLine
from ragidx.pipelines.cli.rewrite_tables import tell


@click.command("reindex", cls=GroupedCommand)
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--dim", type=int, metavar="N", help="Keep the first N numbers of each vector [default: all].")
@ann_options
@index_option
@quiet_option
@json_option
def command(
    target: Path,
    dim: int | None,
    index_type: str | None,
    target_recall: float | None,
    max_memory: str | None,
    index: Path,
    as_json: bool,
) -> None:
    """Make a new index in DIR from the vectors of an index: narrower, or of another type. Nothing is encoded.

    \b
        ragidx reindex small-index --dim 112

    Options that are not named keep the old index's values. The old index is only read.

    \b
        ragidx reindex fast-index --index-type hnsw --target-recall 0.98
    """
    from ragidx.pipelines.maintain.rewrite import reindex

    with ProgressLine(as_json=as_json) as line:
        report = reindex(
            index,
            target,
            dim=dim,
            index_type=index_type,
            target_recall=target_recall,
            max_memory=max_memory,
            on_stage=line.on_stage,
        )
    tell(report, as_json=as_json)
