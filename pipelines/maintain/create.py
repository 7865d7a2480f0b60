"""An empty index, for documents or vectors of a program.

options -> spec -> one commit without rows
"""

from __future__ import annotations

from pathlib import Path

from ragidx.corpora.errors import SpecError
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.writing.writer import StoreWriter
from ragidx.pipelines.ingest.options import BuildKeywords, build_options
from ragidx.pipelines.ingest.resolve import resolve


def is_free(path: Path, *, exist_ok: bool) -> bool:
    """Whether there is no index yet.

    Raises:
        SpecError: there is one, and it may not be.
    """
    if committed_or_none(path) is None:
        return True
    if exist_ok:
        return False
    raise SpecError("there is an index already", "open it with ragidx.Index, or give `exist_ok=True`", where=str(path))


def create(path: Path, options: BuildKeywords) -> None:
    """Commit an empty index that encodes texts as the options say.

    Raises:
        SpecError: an option is wrong, or the filter is fitted on a corpus.
    """
    resolved = resolve(path, build_options("create", **options))
    if resolved.wants_a_sample:
        raise SpecError(
            f"the filter '{resolved.spec.filter.name}' is fitted on a corpus, and there is none yet",
            "take another, or build the index of a folder first",
            where="`filter`",
        )
    with StoreWriter(
        path,
        spec=resolved.spec.to_json(),
        fingerprint=resolved.fingerprint(),
        dim=resolved.dim(),
        index=resolved.index_options(),
        blobs=resolved.blobs(),
    ) as writer:
        writer.commit({}, 0, changed=True)
