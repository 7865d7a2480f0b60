"""`ragidx delete`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.options import index_option, json_option, quiet_option
from ragidx.retriever.keywords import PlanKeywords

if TYPE_CHECKING:
    from ragidx.pipelines.maintain.delete import DeleteReport


@click.command("delete", cls=GroupedCommand)
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="ID",
    help="A document's id, as queries show it; of precomputed vectors, also a row's id. May be repeated.",
)
@click.option("--where", metavar="EXPR", help="Delete what matches a condition on metadata, such as 'year < 1900'.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@keyword_options(PlanKeywords, only=["compact"])
@index_option
@quiet_option
@json_option
def command(ids: tuple[str, ...], where: str | None, dry_run: bool, compact: bool, index: Path, as_json: bool) -> None:
    """Delete documents from an index by id, by a condition on metadata, or by both, in one commit.

    \b
        ragidx delete --id history/black-death.md

    A document of a corpus is deleted whole, even if only one of its chunks matches --where. Of precomputed vectors,
    only matching rows are deleted; a document's id matches all of its rows. With --id and --where, both must match.
    docs/conditions.md describes --where.

    The corpus is not changed. Later builds skip what was deleted, until `ragidx build --restore`;
    `ragidx rollback` undoes a deletion.

    \b
        ragidx delete --where 'subject == "history" and year < 1900' --dry-run
    """
    from ragidx.pipelines.maintain.delete import delete

    report = delete(index, ids=ids or None, where=where, dry_run=dry_run, compact=compact)
    if as_json:
        console.print_json(report.to_json())
        return
    rows = [("would be deleted" if dry_run else "deleted", _what(report))]
    if report.documents:
        n_touched = report.n_documents + report.n_documents_partly
        rows.append(("which", ", ".join(report.documents[:3]) + (" ..." if n_touched > 3 else "")))
    left = f"{console.plural(report.n_documents_left, 'document')}, {console.plural(report.n_chunks_left, 'chunk')}"
    unchanged = "" if report.committed else ", unchanged"
    rows.append(("index", f"{index} (generation {report.generation}{unchanged}): {left}"))
    console.print_fields(rows)
    if where is not None and not report.n_chunks:
        console.note("Nothing matches --where.")
    if report.committed:
        console.note("Builds skip what was deleted; `ragidx build --restore` adds it again.")


def _what(r: DeleteReport) -> str:
    """How many documents and chunks are deleted, and how many of these match."""
    chunks = console.plural(r.n_chunks, "chunk")
    whole = console.plural(r.n_documents, "document")
    if r.n_documents_partly:
        parts = f"a part of {console.plural(r.n_documents_partly, 'document')}"
        return f"{chunks}: " + (f"{whole} whole, {parts}" if r.n_documents else parts)
    match = "1 matches" if r.n_matched == 1 else f"{r.n_matched:,} match"
    also = f": {match}; documents are deleted whole" if r.n_matched < r.n_chunks else ""
    return f"{whole}, {chunks}{also}"
