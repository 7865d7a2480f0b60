"""Deleting documents from an index, by id or by a condition on their metadata, in one commit.

Rows are marked dead, no file is rewritten; readers that are open keep what they see. The corpus is not touched: a
document that still stands there is in the index again after the next build.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.corpora.errors import BusyError, QueryError
from ragidx.indexer.history import ROLLED_BACK
from ragidx.indexer.manifest import Manifest
from ragidx.indexer.store import Store, StoreWriter
from ragidx.retriever.matching import matching_rows

_SHOWN = 10


@dataclass(frozen=True)
class DeleteReport:
    """What was deleted, and what is left.

    Attributes:
        n_documents, n_chunks: deleted, or with `dry_run` what would be.
        documents: the first ten of their ids, in order.
        generation: of the committed state.
        committed: whether this made it.
        left_documents, left_chunks: what the index holds now.
    """

    n_documents: int
    n_chunks: int
    documents: list[str]
    generation: int
    committed: bool
    left_documents: int
    left_chunks: int

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return dataclasses.asdict(self)


def delete(
    index: str | Path = "ragidx-index",
    *,
    ids: Sequence[str] = (),
    where: str | None = None,
    dry_run: bool = False,
) -> DeleteReport:
    """Delete documents; every chunk of a document goes, all in one commit or none.

    Args:
        index: the index folder.
        ids: document ids.
        where: a condition as in a query; a document goes if one of its chunks fulfils it. With ids, both are deleted.
        dry_run: say what would be deleted, and leave the index as it is.

    Raises:
        QueryError: neither ids nor a condition, an id that the index does not have, or a wrong condition.
        IndexFormatError: there is no index, or it is damaged.
        BusyError: a writer holds the index.
    """
    if isinstance(ids, str):
        raise TypeError("expected a list of ids, got one string")
    if not ids and where is None:
        raise QueryError("nothing says which documents to delete", "give --id or --where")
    store = Store.open(index)
    if dry_run:
        counts = _chosen(store, ids, where)
        return _report(counts, store.manifest, committed=False)
    with _writer(index, store) as writer:
        if writer.base is None or writer.base.generation != store.manifest.generation:
            raise BusyError("the index was committed to meanwhile", "run it again", where=str(index))
        counts = _chosen(store, ids, where)
        for doc_id in counts:
            writer.delete_document(doc_id)
        notes = {name: note for name, note in store.manifest.notes.items() if name != ROLLED_BACK}
        manifest = writer.commit(notes, max(0, store.manifest.n_documents - len(counts)))
    return _report(counts, manifest, committed=manifest.generation != store.manifest.generation)


def _writer(index: str | Path, store: Store) -> StoreWriter:
    """A writer that goes on with the index as it is."""
    manifest = store.manifest
    return StoreWriter(
        index,
        spec=manifest.spec,
        fingerprint=manifest.fingerprint,
        dim=manifest.dim,
        index=manifest.index,
        blobs={name: store.blob(name) for name in manifest.files},
    )


def _chosen(store: Store, ids: Sequence[str], where: str | None) -> dict[str, int]:
    """The documents to delete, in their order in the index, and how many live chunks each has."""
    masks = None if where is None else matching_rows(store, where)
    wanted, counts, matched = set(ids), dict[str, int](), set[str]()
    for number, segment in enumerate(store.segments):
        dead = store.dead[number]
        alive = np.ones(segment.entry.rows, np.bool_) if dead is None else ~dead
        names = segment.columns(["doc_id"]).column(0).to_pylist()
        for row in np.flatnonzero(alive).tolist():
            counts[names[row]] = counts.get(names[row], 0) + 1
        if masks is not None:
            matched |= {names[row] for row in np.flatnonzero(alive & masks[number]).tolist()}
    unknown = sorted(wanted - counts.keys())
    if unknown:
        near = difflib.get_close_matches(unknown[0], counts, n=1)
        more = f", and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        raise QueryError(
            f"the index has no document '{unknown[0]}'{more}" + (f"; did you mean '{near[0]}'?" if near else ""),
            "ids are those that queries show; nothing was deleted",
            where="--id",
        )
    return {doc_id: count for doc_id, count in counts.items() if doc_id in wanted or doc_id in matched}


def _report(counts: dict[str, int], manifest: Manifest, *, committed: bool) -> DeleteReport:
    return DeleteReport(
        n_documents=len(counts),
        n_chunks=sum(counts.values()),
        documents=list(counts)[:_SHOWN],
        generation=manifest.generation,
        committed=committed,
        left_documents=manifest.n_documents,
        left_chunks=manifest.n_chunks,
    )
