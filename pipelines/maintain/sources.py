"""The sources of an index: which there are, and taking one away.

Adding one is a build: `ragidx.pipelines.ingest.build.add`.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from ragidx.corpora.errors import QueryError
from ragidx.corpora.spec import Json
from ragidx.indexer.digests import as_digests, digest
from ragidx.indexer.store.source_list import SOURCES, SourceEntry, owner_of, sources_of
from ragidx.indexer.store.store import Store
from ragidx.indexer.writing.history import ROLLED_BACK
from ragidx.pipelines.ingest.removal import DELETED_FILE, deleted_file, deleted_ids, document_ids
from ragidx.pipelines.maintain.delete import writer_of


def sources(index: str | Path = "ragidx-index") -> tuple[SourceEntry, ...]:
    """The sources of an index; empty for precomputed vectors.

    Raises:
        IndexFormatError: there is no index, or it is damaged.
    """
    manifest = Store.open(index).manifest
    return sources_of(manifest.notes, Path(index), manifest.n_documents)


def remove(name: str, index: str | Path = "ragidx-index") -> int:
    """Take a source out of an index with all of its documents, in one commit; its files are not touched.

    Args:
        name: of the source.
        index: the index folder.

    Returns:
        How many documents were removed.

    Raises:
        QueryError: there is no such source.
        IndexFormatError: there is no index, or it is damaged.
        BusyError: a writer holds the index.
    """
    store = Store.open(index)
    manifest = store.manifest
    entries = sources_of(manifest.notes, Path(index), manifest.n_documents)
    chosen = next((entry for entry in entries if entry.name == name), None)
    if chosen is None:
        names = [entry.name for entry in entries]
        near = "".join(f"; did you mean '{one}'?" for one in difflib.get_close_matches(name, names, n=1))
        raise QueryError(f"the index has no source '{name}'{near}", "`ragidx sources` lists them", where="`name`")

    def is_own(doc_id: str) -> bool:
        return owner_of(entries, doc_id) == chosen

    blobs = {blob: store.blob(blob) for blob in manifest.files}
    if DELETED_FILE in blobs:
        blobs[DELETED_FILE] = deleted_file([one for one in deleted_ids(blobs[DELETED_FILE]) if not is_own(one)])
    with writer_of(index, store, blobs) as writer:
        known = writer.known_documents()
        others = [doc_id for doc_id in document_ids(store) if not is_own(doc_id)]
        known.keep_all(as_digests([digest(doc_id) for doc_id in others]))
        n_removed = writer.delete_others()
        left: list[Json] = [entry.to_json() for entry in entries if entry != chosen]
        notes = {note: value for note, value in manifest.notes.items() if note != ROLLED_BACK}
        writer.commit({**notes, SOURCES: left}, max(0, manifest.n_documents - chosen.n_documents), changed=True)
    return n_removed
