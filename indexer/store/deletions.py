"""Dead rows on disk: one immutable Arrow file for each generation that has dead rows.

    segment  large_string, an id in the same manifest        row  int32, a row of that segment

In memory: a mask of all rows of the index, (n_rows,), True for a dead row; None if there is none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.arrays import Bools, compute, numbers_of
from ragidx.indexer.damage import reading
from ragidx.indexer.store.entries import SegmentEntry
from ragidx.indexer.store.files import deletions_path
from ragidx.indexer.store.manifest import Manifest, read_regular
from ragidx.indexer.store.rows import true_places

SCHEMA = pa.schema(
    [pa.field("segment", pa.large_string(), nullable=False), pa.field("row", pa.int32(), nullable=False)]
)


def read_deletions(folder: Path, manifest: Manifest) -> Bools | None:
    """Which rows of a manifest's segments are dead, (n_rows,); None: none is.

    Raises:
        IndexFormatError: the file is missing or damaged, or does not fit the manifest.
    """
    dead = None
    if manifest.deletions is not None:
        path = folder / deletions_path(manifest.generation)
        with reading(path):
            data = read_regular(path, manifest.deletions.bytes)
            if hashlib.sha256(data).hexdigest() != manifest.deletions.sha256:
                raise ValueError("its checksum differs from the manifest's")
            dead = _read(data, manifest)
    alive = sum(segment.rows for segment in manifest.segments) - (0 if dead is None else int(dead.sum()))
    if alive != manifest.n_chunks:
        raise IndexFormatError(
            f"the manifest counts {manifest.n_chunks:,} chunks, its segments and deletions {alive:,}",
            "build again with `rebuild=True`",
            where=str(folder),
        )
    return dead


def by_segment(dead: Bools | None, segments: Sequence[SegmentEntry]) -> list[Bools | None]:
    """The part of each segment, (rows,); None where no row of it is dead."""
    if dead is None or not segments:
        return [None] * len(segments)
    ends = np.cumsum([segment.rows for segment in segments])
    return [part if part.any() else None for part in np.split(dead, ends[:-1])]


def _read(data: bytes, manifest: Manifest) -> Bools:
    ends = np.cumsum([segment.rows for segment in manifest.segments]).tolist()
    places = {segment.id: (end - segment.rows, end) for segment, end in zip(manifest.segments, ends, strict=True)}
    reader = pa.ipc.open_file(pa.BufferReader(data))
    if reader.schema != SCHEMA:
        raise ValueError("its columns are not segment and row")
    dead = np.zeros(ends[-1] if ends else 0, np.bool_)
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        batch.validate(full=True)
        names, rows = batch.column(0), numbers_of(batch.column(1), "<i4")
        for name in names.unique():
            if name.as_py() not in places:
                raise ValueError(f"it names the segment {name.as_py()!a}, which the manifest does not")
            first, end = places[name.as_py()]
            chosen = rows[true_places(compute("equal", names, name))]
            if chosen.min() < 0 or chosen.max() >= end - first:
                raise ValueError(f"it names a row that the segment {name.as_py()} does not have")
            dead[first + chosen.astype(np.int64)] = True
    return dead
