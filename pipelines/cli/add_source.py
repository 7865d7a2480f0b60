"""`ragidx add-source`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragidx.pipelines.cli import interrupts
from ragidx.pipelines.cli.build_report import tell_report
from ragidx.pipelines.cli.config import configured_fields
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import (
    corpus_options,
    encoding_options,
    index_option,
    json_option,
    offline_option,
    quiet_option,
    records_option,
    workers_option,
)
from ragidx.pipelines.cli.progress import ProgressLine


@click.command("add-source", cls=GroupedCommand)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--name", metavar="N", help="Name of the source; ids of its documents begin with it [default: folder's].")
@index_option
@encoding_options
@corpus_options
@records_option
@workers_option
@click.option("--strict", is_flag=True, help="Stop with exit status 1 when anything is skipped or cut.")
@offline_option
@quiet_option
@json_option
def command(paths: tuple[str, ...], name: str | None, index: Path, as_json: bool, **options: Any) -> None:
    """Add folders or files to the sources of an index. Only they are read and encoded.

    \b
        ragidx add-source papers/

    Ids of their documents begin with the name of the source: `papers/one.md`. After that `ragidx build` brings all
    sources up to date, and `ragidx build papers/` that one.

    \b
        ragidx add-source ../team/papers --name team-papers
    """
    from ragidx.pipelines.ingest.build import add

    options["fields"] = configured_fields()
    line = ProgressLine(as_json=as_json)
    with interrupts.reported(lambda: "encoded chunks are kept, and the same command continues"), line:
        report = add(paths, index, name=name, on_progress=line.callback, **options)
    tell_report(report, as_json=as_json)
