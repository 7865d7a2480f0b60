"""What a build removes, and what it leaves although the corpus does not have it.

documents of the index that this build did not see -> of another source: kept · of a file that cannot be read now: kept,
and stale · the others: gone, if that is not most of a source

A document that was deleted by hand stays out: its id is on a list that the index keeps (`deleted.json`). Of
precomputed vectors the list has the ids of rows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc

from ragidx.corpora.errors import IndexFormatError
from ragidx.corpora.sources import BY_RULE
from ragidx.indexer.digests import Digests, as_digests, digest
from ragidx.indexer.store.rows import places_of
from ragidx.indexer.store.source_list import SourceEntry, owner_of
from ragidx.indexer.store.store import Store

DELETED_FILE = "deleted.json"
"""The ids of documents or rows that `delete` removed, as sorted JSON; beside the files of the spec."""

SHOWN = 10
"""Ids of removed and stale documents in a report."""

TAKEN = "its path begins with the name of another source"
"""Why a file is skipped whose documents would have the ids of another source's."""

READ_WHOLE = frozenset({"empty text", "holds no document", TAKEN})
"""Reasons for skipping a file that could be read: documents with its name are gone."""

_BOUNDARY = re.compile(r"[#/]")


@dataclass
class Missing:
    """Documents of the index that a build did not see, by what becomes of them."""

    elsewhere: list[str] = field(default_factory=list)  # of sources that were not read
    stale: list[str] = field(default_factory=list)  # of files that could not be read
    gone: list[str] = field(default_factory=list)
    by_source: Counter[str] = field(default_factory=Counter)  # how many are gone

    def kept(self) -> Digests:
        """The digests of those that stay."""
        return as_digests([digest(name) for name in (*self.elsewhere, *self.stale)])


def missing(
    store: Store,
    unseen: Digests,
    entries: Sequence[SourceEntry],
    selected: Collection[str],
    unreadable: Collection[str],
) -> Missing:
    """Sort the documents that a build did not see.

    Args:
        store: the committed state.
        unseen: digests of their ids.
        entries: the sources of the index.
        selected: names of those that were read.
        unreadable: files that could not be read; a folder's name ends in `/`.
    """
    found = Missing()
    for doc_id in document_ids(store, unseen):
        owner = owner_of(entries, doc_id)
        if owner is not None and owner.name not in selected:
            found.elsewhere.append(doc_id)
        elif is_of(doc_id, unreadable):
            found.stale.append(doc_id)
        else:
            found.gone.append(doc_id)
            found.by_source[owner.name if owner else ""] += 1
    return found


def is_unreadable(where: str, reason: str, reading: str) -> bool:
    """Whether a skip says that a whole file, or a folder, could not be read this time.

    Args:
        where: of the skip.
        reason: of the skip.
        reading: the file that is being read.
    """
    return reason not in BY_RULE | READ_WHOLE and not where.startswith((f"{reading}:", f"{reading}#"))


def is_of(doc_id: str, files: Collection[str]) -> bool:
    """Whether a document is of one of these files or folders.

    >>> is_of("a/b.jsonl#7", {"a/b.jsonl"}), is_of("a/b.txt", {"a/"}), is_of("a/bc", {"a/b"})
    (True, True, False)
    """
    return bool(files) and any(name in files for name in file_names(doc_id))


def file_names(doc_id: str) -> list[str]:
    """The names that the file of a document may have, and the folders above.

    >>> file_names("a/b.jsonl#7")
    ['a/b.jsonl#7', 'a', 'a/', 'a/b.jsonl']
    """
    cuts = [(mark.start(), mark[0]) for mark in _BOUNDARY.finditer(doc_id)]
    above = [[doc_id[:cut], *([doc_id[: cut + 1]] if mark == "/" else [])] for cut, mark in cuts]
    return [doc_id, *(name for names in above for name in names)]


def deleted_ids(data: bytes | None) -> frozenset[str]:
    """The ids in a `deleted.json`.

    Raises:
        IndexFormatError: it is no list of texts.
    """
    try:
        found = [] if data is None else json.loads(data)
    except ValueError as fault:
        raise IndexFormatError(f"{DELETED_FILE} is damaged: {fault}", _DAMAGED) from fault
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise IndexFormatError(f"{DELETED_FILE} is damaged: it is no list of ids", _DAMAGED)
    return frozenset(found)


def deleted_file(ids: Collection[str]) -> bytes:
    """The inverse of `deleted_ids`."""
    return json.dumps(sorted(ids)).encode()


_DAMAGED = "build again with `rebuild=True`"


def document_ids(store: Store, wanted: Digests | None = None) -> Iterator[str]:
    """The ids of live documents, each once; of those with these digests, where they are given."""
    seen = set[str]()
    for segment, dead in zip(store.segments, store.dead, strict=True):
        first = 0
        for batch in segment.batches(["doc_id"]):
            column = batch.column(0)
            alive = np.ones(len(column), np.bool_) if dead is None else ~dead[first : first + len(column)]
            first += len(column)
            names = pc.unique(column.take(places_of(np.flatnonzero(alive)))).to_pylist()
            if wanted is not None:
                there = np.isin(as_digests([digest(name) for name in names]), wanted)
                names = [names[place] for place in np.flatnonzero(there)]
            fresh = [name for name in names if name not in seen]
            seen.update(fresh)
            yield from fresh
