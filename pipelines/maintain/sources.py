"""The sources of an index: which there are, and taking one away.

Adding one is a build: `ragidx.pipelines.ingest.build.add`.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from ragidx.corpora.errors import QueryError
from ragidx.corpora.spec import Json
from ragidx.indexer.store.source_list import SOURCES, SourceEntry, sources_of
from ragidx.indexer.store.store import Store
from ragidx.pipelines.ingest.removal import DELETED_FILE, deleted_file, deleted_ids
from ragidx.pipelines.maintain.delete import writer_on


def sources(index: str | Path = "ragidx-index") -> tuple[SourceEntry, ...]:
    """The sources of an index; empty for precomputed vectors.

    Raises:
        IndexFormatError: there is no index, or it is damaged.
    """
    manifest = Store.open(index).manifest
    return sources_of(manifest.notes, Path(index))


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
    store, writer = writer_on(Store.open(index))
    with writer:
        manifest = store.manifest
        entries = sources_of(manifest.notes, Path(index))
        chosen = next((entry for entry in entries if entry.name == name), None)
        if chosen is None:
            names = [entry.name for entry in entries]
            near = "".join(f"; did you mean '{one}'?" for one in difflib.get_close_matches(name, names, n=1))
            raise QueryError(f"the index has no source '{name}'{near}", "`ragidx sources` lists them", where="`name`")
        deleted = deleted_ids(writer.blobs.get(DELETED_FILE))
        if deleted.pop(chosen.number, None):
            writer.blobs[DELETED_FILE] = deleted_file(deleted)
        known = writer.known_documents()
        known.keep_all(known.of([entry.number for entry in entries if entry != chosen]))
        n_removed = writer.delete_others()
        left: list[Json] = [entry.to_json() for entry in entries if entry != chosen]
        writer.commit({SOURCES: left}, max(0, manifest.n_documents - chosen.n_documents), changed=True)
    return n_removed
