"""The commit: the last files of a new generation, and the manifest that makes them the committed state.

Order: small files of the spec and dead rows first, the numbered manifest next, `manifest.json` last. Each is written
under another name, synced and renamed, so that a reader sees the state before or after, never one between.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

import ragidx
from ragidx.indexer import atomic
from ragidx.indexer.ann.tuning import OnStage
from ragidx.indexer.arrays import Bools
from ragidx.indexer.atomic import FileEntry
from ragidx.indexer.store.deletions import SCHEMA
from ragidx.indexer.store.entries import SegmentEntry
from ragidx.indexer.store.files import MANIFEST, SEGMENTS, blob_path, deletions_path, numbered_path
from ragidx.indexer.store.lock import now
from ragidx.indexer.store.manifest import (
    CODES_ALONE,
    FIELD_KINDS,
    REPEATS,
    ZEROS,
    Manifest,
    file_entry,
    manifest_bytes,
    parse_manifest,
)
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.writing.lexical_files import MakePieces
from ragidx.indexer.writing.live_kinds import is_plain
from ragidx.indexer.writing.merging import SegmentState, derived

log = logging.getLogger("ragidx.indexer")


def write_blobs(folder: Path, blobs: Mapping[str, bytes], committed: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """Write the small files that belong to a spec, but those that are `committed` and were checked.

    Returns:
        Their manifest entries, by name.

    Raises:
        RagidxError: the disk is full or failed.
    """
    entries = {name: file_entry(data) for name, data in blobs.items()}
    for name, entry in entries.items():
        if committed.get(name) == entry:
            continue
        path = folder / blob_path(name, entry)
        atomic.make_folder(path.parent)
        atomic.write_file(path, blobs[name])  # an existing file is replaced: it may be damaged
    return entries


def write_deletions(
    folder: Path, generation: int, segments: Sequence[SegmentEntry], dead: Sequence[Bools | None]
) -> FileEntry | None:
    """Write the dead rows of each segment of a generation; None, and no file, where there are none."""
    if all(mask is None for mask in dead):
        return None
    path = folder / deletions_path(generation)
    atomic.make_folder(path.parent)

    def write(file: atomic.NewFile) -> None:
        options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
        with pa.ipc.new_file(file, SCHEMA, options=options) as writer:
            for segment, mask in zip(segments, dead, strict=True):
                if mask is not None:
                    rows = np.flatnonzero(mask)
                    columns = [pa.array([segment.id] * len(rows), pa.large_string()), pa.array(rows.astype(np.int32))]
                    writer.write_batch(pa.record_batch(columns, schema=SCHEMA))

    return atomic.write_file(path, write)


def publish(
    folder: Path,
    draft: Manifest,
    parts: Sequence[SegmentState],
    blobs: Mapping[str, bytes],
    on_stage: OnStage,
    make_pieces: MakePieces | None = None,
    opened: Sequence[Segment] = (),
) -> Manifest:
    """Write what some segments and their spec still lack, and commit them.

    Args:
        folder: folder of the index, its lock held.
        draft: the new state without its segments; `files` are those of the spec that are there and were checked, and
            `lexical` is what made the postings of segments that are not fresh.
        parts: segments of the new state.
        blobs: all small files that belong to the spec, by name.
        on_stage: called with the progress.
        make_pieces: function that makes the postings of a segment; None: they are made in this process.
        opened: segments that are open: of those that stay, no column is looked at again.

    Raises:
        SpecError: no index that fits into the memory reaches the recall.
        RagidxError: the disk is full or failed; the committed state is the old one or this one.
    """
    parts, lexical = derived(folder, parts, draft, on_stage, make_pieces, opened)
    segments = tuple(part.entry for part in parts)
    known = {(segment.entry.id, segment.entry.texts): segment for segment in opened}
    columns = (
        known.get((entry.id, entry.texts)) or Segment(folder / SEGMENTS / entry.id, entry, draft.dim, draft.schema)
        for entry in segments
    )
    repeat = [REPEATS] if any(entry.ann is not None and entry.ann.repeats for entry in segments) else []
    zeros = [ZEROS] if any(entry.zeros for entry in segments) else []
    alone = [CODES_ALONE] if draft.index.codes_only else []
    kinds = [] if is_plain(columns, draft.schema) else [FIELD_KINDS]
    manifest = dataclasses.replace(
        draft,
        created=now(),
        segments=segments,
        requires=(*draft.requires, *kinds, *repeat, *zeros, *alone),
        lexical=lexical,
        files=write_blobs(folder, blobs, draft.files),
        deletions=write_deletions(folder, draft.generation, segments, [part.dead for part in parts]),
        n_chunks=sum(part.n_live for part in parts),
        ragidx=ragidx.__version__,
    )
    commit(folder, manifest)
    return manifest


def commit(folder: Path, manifest: Manifest) -> None:
    """Make a manifest the committed state of an index. All files that it names must be on the disk.

    The names of the folders in the index last from the sync of the numbered manifest's, which is before the commit.
    That of the index itself is synced at its first commit: who made it may have been killed before.

    Raises:
        RagidxError: the disk is full or failed; the committed state is the old one or this one.
    """
    data = manifest_bytes(manifest)
    parse_manifest(data)  # a manifest that cannot be read back is never committed
    above = folder.absolute().parent
    if not (folder / MANIFEST).exists() and os.access(above, os.R_OK):  # else it cannot be synced
        atomic.sync_folder(above)
    atomic.write_file(folder / numbered_path(manifest.generation), data)
    atomic.write_file(folder / MANIFEST, data)
    log.debug(
        "%s: generation %d committed, %d chunks in %d segments",
        folder,
        manifest.generation,
        manifest.n_chunks,
        len(manifest.segments),
    )
