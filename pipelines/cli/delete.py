"""`ragidx delete`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.options import index_option, json_option


@click.command("delete")
@click.option("--id", "ids", multiple=True, metavar="ID", help="A document's id, as queries show it; may be repeated.")
@click.option("--where", metavar="EXPR", help="Documents whose metadata match, such as 'year < 1900'.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@index_option
@json_option
def command(ids: tuple[str, ...], where: str | None, dry_run: bool, index: Path, as_json: bool) -> None:
    """Delete documents from an index, all of them in one commit; `ragidx rollback` brings them back.

    The corpus is not touched: a document that still stands there comes back with the next `ragidx build`.

    \b
        ragidx delete --id lease.txt
        ragidx delete --where 'subject == "history" and year < 1900' --dry-run
    """
    from ragidx.pipelines.delete import delete

    report = delete(index, ids=ids, where=where, dry_run=dry_run)
    if as_json:
        console.print_json(report.to_json())
        return
    what = f"{console.plural(report.n_documents, 'document')}, {console.plural(report.n_chunks, 'chunk')}"
    left = f"{console.plural(report.left_documents, 'document')}, {console.plural(report.left_chunks, 'chunk')}"
    rows = [("would be deleted" if dry_run else "deleted", what)]
    if report.documents:
        rows.append(("which", ", ".join(report.documents[:3]) + (" ..." if report.n_documents > 3 else "")))
    unchanged = "" if report.committed else ", unchanged"
    rows.append(("index", f"{index} (generation {report.generation}{unchanged}): {left}"))
    console.print_fields(rows)
