"""What a build removes, and what it leaves although the corpus does not have it.

documents of a source that a build read and did not see -> of a file that cannot be read now: kept, and stale ·
the others: gone, if that is not most of the source, or all of a folder that is empty or gone

A document that was deleted by hand stays out: its id is on a list that the index keeps (`deleted.json`). Of
precomputed vectors the list has the ids of rows.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from ragidx.corpora.errors import CorpusError, IndexFormatError, SpecError, check_machine, printable
from ragidx.corpora.readers.registry import is_named_packed
from ragidx.corpora.sources import BY_RULE, PICTURE, beir_corpus
from ragidx.corpora.spec import Json
from ragidx.indexer.digests import Digests, as_digests, digest
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import DELETED_FILE
from ragidx.indexer.store.lookup import Documents, program_documents
from ragidx.indexer.store.source_list import PROGRAM, SourceEntry
from ragidx.indexer.writing import StoreWriter

SHOWN = 10
"""Ids of removed and stale documents in a report."""

READ_WHOLE = frozenset({"empty text", "holds no document", PICTURE})
"""Reasons for skipping a file that could be read: documents with its name are gone."""

_GUARDED_FROM = 10  # documents of a folder: of fewer, a build may remove all
_GUARDED_SHARE = 0.25  # of a source that a folder had which is gone: a smaller one was deleted, more likely

_THERE, _EMPTY, _GONE, _UNKNOWN = "there", "empty", "gone", "unknown"  # a folder

_BOUNDARY = re.compile(r"[#/]")


@dataclass
class Vacated:
    """A folder of a source that had documents and has none now, as it is empty or gone itself."""

    name: str  # as ids begin
    is_gone: bool
    n_documents: int = 0


@dataclass
class Missing:
    """Documents of sources that were read which a build did not see, by what becomes of them."""

    stale: list[str] = field(default_factory=list)  # of files that could not be read
    gone: list[str] = field(default_factory=list)
    n_stale: Counter[int] = field(default_factory=Counter)  # by the number of the source
    n_gone: Counter[int] = field(default_factory=Counter)
    folders: dict[int, list[Vacated]] = field(default_factory=dict)  # of those that are gone, the largest first

    @property
    def largest_folders(self) -> list[Vacated]:
        """Ten of them, of all sources."""
        every = itertools.chain(*self.folders.values())
        return sorted(every, key=lambda one: -one.n_documents)[:SHOWN]


def missing(
    store: Store,
    documents: Documents,
    unreadable: Mapping[int, Collection[str]],
    roots: Iterable[tuple[str | Path, SourceEntry]] = (),
) -> Missing:
    """Sort the documents that a build did not see: those of `documents` that are not marked as kept.

    `unreadable` are files that could not be read, by the number of their source; a folder's name ends in `/`. `roots`
    are the places of the sources.
    """
    unseen, gone = Missing(), defaultdict[int, list[str]](list)
    for doc_id in _live_ids(store, documents.others()):
        owner = documents.owner(doc_id) or PROGRAM
        is_stale = is_of(doc_id, unreadable.get(owner, ()))
        (unseen.stale if is_stale else unseen.gone).append(doc_id)
        (unseen.n_stale if is_stale else unseen.n_gone)[owner] += 1
        if not is_stale:
            gone[owner].append(doc_id)
    unseen.folders = {entry.number: _vacated(Path(root), entry, gone[entry.number]) for root, entry in roots}
    return unseen


def _vacated(root: Path, entry: SourceEntry, gone: Iterable[str]) -> list[Vacated]:
    """The folders of a source that had these documents, and are empty or gone; of nested ones the outermost."""
    if not root.is_dir() or beir_corpus(root) is not None:  # where ids are no paths
        return []
    found: dict[str, Vacated] = {}
    states: dict[str, str] = {}
    for doc_id in gone:
        folder = ""
        for part in doc_id.removeprefix(entry.prefix).split("/")[:-1]:
            folder += f"{part}/"
            state = states[folder] if folder in states else states.setdefault(folder, _state(root / folder))
            if state != _THERE:
                if state == _EMPTY or (state == _GONE and "#" not in part and not is_named_packed(part)):
                    name = f"{entry.prefix}{folder}"
                    found.setdefault(name, Vacated(name, state == _GONE)).n_documents += 1
                break
    return sorted(found.values(), key=lambda one: (-one.n_documents, one.name))


def _state(folder: Path) -> str:
    try:
        with os.scandir(folder) as entries:
            return _THERE if any(entries) else _EMPTY
    except FileNotFoundError:
        return _GONE
    except (OSError, ValueError) as fault:  # a record of a file, or a member
        check_machine(fault, str(folder))
        return _UNKNOWN


def check_folders(folders: Iterable[Vacated], n_before: int, where: str | Path, *, n_new: int = 0) -> None:
    """Whether a build may remove all documents of these folders; one that is not mounted looks the same.

    Args:
        folders: folders of a source, or of several.
        n_before: documents that the index had of them.
        where: the index, for the message.
        n_new: documents that are new: a folder of as many that is gone was moved.

    Raises:
        SpecError: a folder of ten documents or more is empty, or one that had a quarter of all is gone.
    """

    def is_asked_about(one: Vacated) -> bool:
        may_be_meant = one.is_gone and (one.n_documents < _GUARDED_SHARE * n_before or one.n_documents <= n_new)
        return one.n_documents >= _GUARDED_FROM and not may_be_meant

    lost = [one for one in folders if is_asked_about(one)]
    if lost:
        more = f", and of {len(lost) - 1:,} more" if len(lost) > 1 else ""
        raise SpecError(
            f"this build would remove all {lost[0].n_documents:,} documents of the folder "
            f"{printable(lost[0].name)}, which is {'gone' if lost[0].is_gone else 'empty'}{more}",
            "mount it or bring it back, or give `allow_removal=True` if they are really gone",
            where=str(where),
        )


def _live_ids(store: Store, wanted: Digests) -> Iterator[str]:
    """The ids of live documents with these digests, each once."""
    seen = set[str]()
    for _, batch in store.batches(["doc_id"]):
        names = [name for name in pc.unique(batch.column(0)).to_pylist() if name not in seen]
        there = np.isin(as_digests([digest(name) for name in names]), wanted)
        found = [names[place] for place in np.flatnonzero(there)]
        seen.update(found)
        yield from found


def is_unreadable(where: str, reason: str, reading: str) -> bool:
    """Whether a skip, while a file is being read, says that all of it or a folder could not be read this time."""
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


def deleted_ids(data: bytes | None) -> dict[int, set[str]]:
    """The ids in a `deleted.json`, by the number of their source; rows of precomputed vectors have 0.

    Raises:
        IndexFormatError: it is no such list.
    """
    try:
        found = {int(owner): names for owner, names in (json.loads(data) if data else {}).items()}
    except (ValueError, AttributeError) as fault:
        raise IndexFormatError(f"{DELETED_FILE} is damaged: {fault}", _DAMAGED) from fault
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in found.values()):
        raise IndexFormatError(f"{DELETED_FILE} is damaged: it has no lists of ids", _DAMAGED)
    return {owner: set(names) for owner, names in found.items()}


def deleted_file(ids: Mapping[int, Collection[str]]) -> bytes:
    """The inverse of `deleted_ids`."""
    return json.dumps({owner: sorted(names) for owner, names in sorted(ids.items()) if names}).encode()


def note_deleted(
    blobs: MutableMapping[str, bytes], entries: Sequence[SourceEntry], gone: Iterable[tuple[str, int]]
) -> list[Json]:
    """Note in the files of an index which documents were deleted by hand, so that builds skip them.

    `gone` are ids and the numbers of their sources; documents of a program are gone for good, and are not noted.

    Returns:
        The sources with what they have now, for the notes of the manifest.
    """
    left = {entry.number: entry.n_documents for entry in entries}
    ids = deleted_ids(blobs.get(DELETED_FILE))
    for doc_id, owner in gone:
        if owner in left:
            left[owner] -= 1
            ids.setdefault(owner, set()).add(doc_id)
    if ids:
        blobs[DELETED_FILE] = deleted_file(ids)
    return [dataclasses.replace(one, n_documents=max(0, left[one.number])).to_json() for one in entries]


def check_none_is_stale(stale: Sequence[str]) -> None:
    """Whether no document is of a file that cannot be read.

    Raises:
        CorpusError: one is.
    """
    if stale:
        raise CorpusError(
            f"it cannot be read now, and {len(stale):,} document{'s' * (len(stale) > 1)} of the index would be lost",
            "make it readable, or delete what is lost: `ragidx delete`",
            where=printable(stale[0]),
        )


def take_deletions(live: Store, writer: StoreWriter) -> None:
    """What was deleted from an index leaves the one that is to take its place, too."""
    writer.blobs.pop(DELETED_FILE, None)
    if DELETED_FILE in live.manifest.files:
        writer.blobs[DELETED_FILE] = live.blob(DELETED_FILE)
    known, of_live = writer.known_documents(), Documents(live)
    for owner, names in deleted_ids(writer.blobs.get(DELETED_FILE)).items():
        for name in names:
            if known.owner(name) == owner:
                writer.delete_document(name)
    for document in () if writer.store is None else program_documents(writer.store):
        if of_live.owner(document.id) != PROGRAM:
            writer.delete_document(document.id)


_DAMAGED = "build again with `rebuild=True`"
