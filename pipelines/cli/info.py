"""`ragidx info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragidx.pipelines.cli import console, describe
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option

if TYPE_CHECKING:
    from ragidx.indexer.specs import IndexSpec
    from ragidx.indexer.store.manifest import Manifest


@click.command("info", cls=GroupedCommand)
@index_option
@json_option
def command(index: Path, as_json: bool) -> None:
    """Show what an index holds and how its vectors were made.

    \b
        ragidx info
    """
    from ragidx.indexer.specs import IndexSpec
    from ragidx.indexer.store.manifest import files_of
    from ragidx.indexer.store.store import Store

    manifest = Store.open(index).manifest
    if as_json:
        console.print_json({"path": str(index), **manifest.to_json()})
        return
    spec = IndexSpec.from_json(dict(manifest.spec), where=str(index))
    size = sum(entry.bytes for entry in files_of(manifest).values())
    fields = ", ".join(f"{name} ({kind})" for name, kind in sorted(manifest.schema.items())) or "none"
    console.print_fields(
        [
            ("index", f"{index}  (generation {manifest.generation}, {manifest.created}, ragidx {manifest.ragidx})"),
            (
                "holds",
                f"{console.plural(manifest.n_documents, 'document')}, {console.plural(manifest.n_chunks, 'chunk')}"
                f" in {console.plural(len(manifest.segments), 'segment')}",
            ),
            *_sources(manifest, index),
            ("vectors", f"{manifest.dim} x {spec.vectors}, {describe.index(manifest)}"),
            ("words", describe.words(manifest.lexical, manifest.index.lexical)),
            ("size", describe.size(size, manifest.n_chunks, "chunk")),
            ("model", describe.model(spec)),
            ("encoder", describe.encoder(spec.encoder)),
            *_similarity(spec),
            *_endpoint(manifest),
            ("filter", describe.filter_(spec.filter, manifest.dim)),
            ("chunks", describe.chunks(spec.chunk) if spec.precomputed is None else "one per row"),
            *_cut(manifest),
            ("metadata", fields),
            ("fingerprint", manifest.fingerprint),
        ]
    )


def _sources(manifest: Manifest, index: Path) -> list[tuple[str, str]]:
    """A row a source; none where an older version made the index."""
    from ragidx.indexer.store.source_list import SOURCES, sources_of

    if SOURCES not in manifest.notes:
        return []
    return [
        ("source", f"{one.name}: {console.plural(one.n_documents, 'document')} of {one.root(index)}, {one.built}")
        for one in sources_of(manifest.notes, index)
    ]


def _similarity(spec: IndexSpec) -> list[tuple[str, str]]:
    """The row on the better method for pairs of sentences, of an index by echo; figures: docs/models.md."""
    if spec.encoder is None or spec.encoder.method != "echo":
        return []
    figures = "STS-B test 0.717 against 0.625, SmolLM2-135M with tau 2"
    return [("similarity", f"to compare sentences, --method prompteol is ahead of echo ({figures})")]


def _endpoint(manifest: Manifest) -> list[tuple[str, str]]:
    """The row on the server that the last build asked, if any."""
    found = manifest.notes.get("endpoint")
    return [("endpoint", console.printable(found))] if isinstance(found, str) else []


def _cut(manifest: Manifest) -> list[tuple[str, str]]:
    """The row on documents that were cut, if any.

    Builds add up the documents they cut; some may have been removed since, so the note is an upper bound.
    """
    found = manifest.notes.get("truncated")
    count = min(found, manifest.n_documents) if isinstance(found, int) else 0
    if count < 1:
        return []
    are = "is" if count == 1 else "are"
    return [("cut", f"up to {console.plural(count, 'document')} {are} longer than the model reads")]
