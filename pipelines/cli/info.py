"""`ragidx info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragidx.pipelines.cli import console, describe
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option

if TYPE_CHECKING:
    from ragidx.indexer.store import Store
    from ragidx.indexer.store.manifest import Manifest


@click.command("info", cls=GroupedCommand)
@index_option
@json_option
def command(index: Path, as_json: bool) -> None:
    """Show what an index holds and how its vectors were made.

    \b
        ragidx info
    """
    from ragidx.indexer.ann.index_types import MIN_ROWS
    from ragidx.indexer.specs import IndexSpec
    from ragidx.indexer.store import Store
    from ragidx.indexer.store.manifest import files_of
    from ragidx.pipelines.ingest.report import code_bytes, made_in

    store = Store.open(index)
    manifest = store.manifest
    if as_json:
        console.print_json({"path": str(index), **manifest.to_json()})
        return
    spec = IndexSpec.from_json(dict(manifest.spec), where=str(index))
    size = sum(entry.bytes for entry in files_of(manifest).values())
    of_codes = code_bytes(manifest)
    searched = describe.searched(manifest.index.index_type, *made_in(manifest), of_codes)
    if manifest.index.codes_only and of_codes is None:
        searched += f", codes alone from {MIN_ROWS:,} rows in a segment on"
    fields = ", ".join(f"{name} ({kind})" for name, kind in sorted(manifest.schema.items())) or "none"
    console.print_fields(
        [
            ("index", f"{index}  (generation {manifest.generation}, {manifest.created}, ragidx {manifest.ragidx})"),
            (
                "holds",
                f"{console.plural(manifest.n_documents, 'document')}, {console.plural(manifest.n_chunks, 'chunk')}"
                f" in {console.plural(len(manifest.segments), 'segment')}",
            ),
            *describe.dead_rows(manifest.n_dead, manifest.n_chunks),
            *_unknown(store),
            *_sources(manifest, index),
            *describe.largest(store),
            (
                "vectors",
                f"{manifest.dim} x {spec.vectors}, {searched}",
            ),
            ("words", describe.words(manifest.lexical, manifest.index.lexical)),
            ("size", describe.size(size, manifest.n_chunks, "chunk")),
            ("model", describe.model(spec)),
            ("encoder", describe.encoder(spec.encoder)),
            ("filter", describe.filter_(spec.filter, manifest.dim)),
            *([] if spec.weight is None else [("weight", f"{spec.weight:g} of the vectors in hybrid search")]),
            *([] if not spec.questions else [("questions", f"by the {spec.questions}; the index has a table of them")]),
            ("chunks", describe.chunks(spec.chunk) if spec.precomputed is None else "one per row"),
            *_notes(manifest),
            *_left(manifest),
            ("metadata", fields),
            ("fingerprint", manifest.fingerprint),
        ]
    )


def _unknown(store: Store) -> list[tuple[str, str]]:
    """The row on chunks that have no vector, where there are some."""
    if not store.n_zeros:
        return []
    found = "found by their words alone" if store.manifest.lexical is not None else "found by no search"
    return [("no vector", f"{console.plural(store.n_zeros, 'chunk')} that the model does not know, {found}")]


def _sources(manifest: Manifest, index: Path) -> list[tuple[str, str]]:
    """A row a source."""
    from ragidx.indexer.store.source_list import sources_of

    return [
        ("source", f"{one.name}: {console.plural(one.n_documents, 'document')} of {one.root(index)}, {one.built}")
        for one in sources_of(manifest.notes, index)
    ]


def _left(manifest: Manifest) -> list[tuple[str, str]]:
    """What is not in the texts of documents, by class."""
    from ragidx.pipelines.ingest.ledger import left_in

    kinds: dict[str, list[str]] = {}
    for kind, one in left_in(manifest).items():
        kinds.setdefault(one["class"], []).append(f"{one['count']:,} x {kind}")
    return [(name, ", ".join(counts)) for name, counts in kinds.items()]


def _notes(manifest: Manifest) -> list[tuple[str, str]]:
    """What the last build noted: the server that it asked, and documents that were cut.

    Builds add up the documents they cut; some may have been removed since, so their number is an upper bound.
    """
    from ragidx.pipelines.ingest.report import n_truncated

    rows, endpoint = [], manifest.notes.get("endpoint")
    if isinstance(endpoint, str):
        rows.append(("endpoint", endpoint))
    if count := min(n_truncated(manifest), manifest.n_documents):
        are = "is" if count == 1 else "are"
        rows.append(("cut", f"up to {console.plural(count, 'document')} {are} longer than the model reads"))
    return rows
