"""A program's documents where an index is made anew: they are read from its rows, as others are from files.

index folder -> Documents
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ragidx.corpora.errors import IndexFormatError
from ragidx.corpora.records import Document, OnSkip, Skip
from ragidx.indexer.specs import holds_precomputed
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.store.lookup import program_documents
from ragidx.indexer.store.manifest import Manifest, NewerFormatError, OlderFormatError
from ragidx.indexer.store.source_list import sources_of
from ragidx.indexer.store.store import Store

LOST = "a program's documents cannot be read"


def n_of_program(manifest: Manifest, index: Path) -> int:
    """How many documents of an index a program added."""
    if holds_precomputed(manifest.spec):
        return 0
    return manifest.n_documents - sum(entry.n_documents for entry in sources_of(manifest.notes, index))


def stored_documents(index: Path, on_skip: OnSkip, *, may_lose: bool) -> Iterator[Document]:
    """The documents of an index that a program added; none where there is no index, or one of an older format.

    Args:
        index: its folder.
        on_skip: called once where they cannot be read.
        may_lose: whether they may be left out then.

    Raises:
        IndexFormatError: they cannot be read.
    """
    try:
        manifest = committed_or_none(index)
        if manifest is not None and n_of_program(manifest, index):
            yield from program_documents(Store.open(index))
    except NewerFormatError:
        raise
    except OlderFormatError:
        return
    except IndexFormatError as fault:
        if not may_lose:
            hint = "put the file back from a copy, or give `allow_removal=True` to build without these documents"
            raise IndexFormatError(f"{LOST}: {fault.message}", hint, where=fault.where) from fault
        on_skip(Skip(fault.where, f"{LOST}: {fault.message}"))
