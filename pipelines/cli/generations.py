"""`ragidx history` and `rollback`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.corpora.errors import IndexFormatError
from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand, as_options
from ragidx.pipelines.cli.options import index_option, json_option, quiet_option


@click.command("history", cls=GroupedCommand)
@index_option
@json_option
def history(index: Path, as_json: bool) -> None:
    """List the kept generations of an index, the committed one first. `ragidx rollback N` goes back to one.

    \b
        ragidx history
        ragidx rollback 3
    """
    from ragidx.indexer.store.manifest import files_of
    from ragidx.indexer.store.verify import line_of
    from ragidx.indexer.writing.history import ROLLED_BACK, history

    faults: list[IndexFormatError] = []
    manifests = history(index, on_fault=faults.append)
    lines = [as_options(line_of(fault)) for fault in faults]
    if as_json:
        generations = [manifest.to_json() for manifest in manifests]
        console.print_json({"path": str(index), "generations": generations, "faults": lines})
        return
    rows = []
    for number, manifest in enumerate(manifests):
        back = manifest.notes.get(ROLLED_BACK)
        notes = ["committed"] * (number == 0) + [f"as generation {back}"] * (back is not None)
        size = sum(entry.bytes for entry in files_of(manifest).values())
        counts = [f"{manifest.n_documents:,}", f"{manifest.n_chunks:,}", str(manifest.dim), console.n_bytes(size)]
        rows.append([str(manifest.generation), manifest.created, *counts, ", ".join(notes)])
    console.print_table(["generation", "made", "documents", "chunks", "dim", "size", ""], rows)
    for line in lines:
        console.note(f"Skipped: {line}")


@click.command("rollback", cls=GroupedCommand)
@click.argument("generation", type=click.IntRange(min=1), metavar="GENERATION")
@index_option
@quiet_option
@json_option
def rollback(generation: int, index: Path, as_json: bool) -> None:
    """Go back to an earlier GENERATION of an index, one of those that `ragidx history` lists.

    \b
        ragidx rollback 3

    It is a commit of its own: nothing is encoded, queries see the state before or after it, and another rollback undoes
    it. The next `ragidx build` updates the index to its corpus again.
    """
    from ragidx.indexer.writing.history import rollback

    manifest = rollback(index, generation)
    if as_json:
        console.print_json({"path": str(index), **manifest.to_json()})
        return
    if console.is_quiet():
        return
    what = "already the committed state" if manifest.generation == generation else f"as generation {generation}"
    click.echo(
        f"{index}: generation {manifest.generation}, {what}: {console.plural(manifest.n_documents, 'document')}, "
        f"{console.plural(manifest.n_chunks, 'chunk')}"
    )
