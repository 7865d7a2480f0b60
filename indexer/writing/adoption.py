"""Adoption: the content of another index becomes the next generation of an index, in one commit.

The files of the other's segments are linked under names of the new generation, or copied where the file system has no
links: no vector is read. Readers see the state before or after it; `rollback` goes back. A process that is killed
leaves the old state, and files that the next writer removes.
"""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Mapping
from pathlib import Path

from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.store import Store
from ragidx.indexer.store.deletions import by_segment
from ragidx.indexer.store.entries import SegmentEntry
from ragidx.indexer.store.files import SEGMENTS, lexical_name, moments_name, segment_id
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.store.lock import now
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.writing.commit import commit, write_blobs, write_deletions
from ragidx.indexer.writing.vacuum import vacuum

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_BLOCK_BYTES = 1 << 20


def adopt(folder: Path, other: Store, notes: Mapping[str, Json]) -> Manifest:
    """Commit what `other` holds as the next generation of the index in `folder`, whose lock is held.

    Args:
        folder: folder of the index; where nothing is committed yet, it becomes a copy of the other.
        other: folder of the other index, on the same file system for links; nobody may write to it meanwhile.
        notes: notes for the manifest, beside those of `other`.

    Raises:
        IndexFormatError: one of the two is damaged.
        RagidxError: the folder cannot be written; the committed state is what it was.
    """
    before, base = committed_or_none(folder), other.manifest
    generation = 1 if before is None else before.generation + 1
    vacuum(folder)  # what a process that was killed here has left
    try:
        dead = by_segment(other.dead, base.segments)
        segments = [linked(other.path, folder, entry, generation, n) for n, entry in enumerate(base.segments)]
        if segments:
            atomic.sync_folder(folder / SEGMENTS)
        manifest = dataclasses.replace(
            base,
            generation=generation,
            created=now(),
            segments=tuple(segments),
            files=write_blobs(folder, {name: other.blob(name) for name in base.files}, {}),
            deletions=write_deletions(folder, generation, segments, dead),
            notes={**base.notes, **notes},
        )
        commit(folder, manifest)
        return manifest
    finally:
        vacuum(folder)


def linked(source: Path, target: Path, entry: SegmentEntry, generation: int, number: int) -> SegmentEntry:
    """A segment of the index `source` in the index `target`, under the names that a generation gives."""
    made = dataclasses.replace(entry, id=segment_id(generation, number))
    names = {entry.lexical: lexical_name(generation), entry.moments: moments_name(generation)}
    files = {name: names.get(name, name) for name in entry.files}
    old, new = source / SEGMENTS / entry.id, target / SEGMENTS / made.id
    atomic.make_folder(new.parent)
    with atomic.writing(new):
        new.mkdir()
    for name, named in files.items():
        _link(old / name, new / named)
    atomic.sync_folder(new)
    return dataclasses.replace(made, files={files[name]: file for name, file in entry.files.items()})


def _link(source: Path, target: Path) -> None:
    """A second name for a file, or a copy of it where the file system gives it none."""
    with atomic.writing(target):
        try:
            os.link(source, target)
            return
        except OSError as fault:
            if fault.errno not in _NO_LINKS:
                raise
    with source.open("rb") as read, atomic.create(target) as file:
        while block := read.read(_BLOCK_BYTES):
            file.write(block)
