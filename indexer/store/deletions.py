"""Dead rows on disk: one immutable Arrow file for each generation that has dead rows.

    segment  large_string, an id in the same manifest        row  int32, a row of that segment

In memory: one mask for each segment, bool (rows,), True for a dead row; None if the segment has none.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragidx.corpora.errors import IndexFormatError, check_machine, first_line
from ragidx.indexer.arrays import numbers_of
from ragidx.indexer.damage import damaged
from ragidx.indexer.store.files import deletions_path
from ragidx.indexer.store.manifest import Manifest, read_regular
from ragidx.indexer.store.rows import true_places

Masks: TypeAlias = list[NDArray[np.bool_] | None]

SCHEMA = pa.schema(
    [pa.field("segment", pa.large_string(), nullable=False), pa.field("row", pa.int32(), nullable=False)]
)


def read_deletions(folder: Path, manifest: Manifest) -> Masks:
    """The masks of a manifest's segments.

    Raises:
        IndexFormatError: the file is missing or damaged, or does not fit the manifest.
    """
    dead: Masks = [None] * len(manifest.segments)
    if manifest.deletions is not None:
        path = folder / deletions_path(manifest.generation)
        try:
            data = read_regular(path, manifest.deletions.bytes)
            if hashlib.sha256(data).hexdigest() != manifest.deletions.sha256:
                raise ValueError("its checksum differs from the manifest's")
            _read_masks(data, manifest, dead)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as fault:  # MemoryError: a forged length
            check_machine(fault, path)
            missing = isinstance(fault, FileNotFoundError)
            raise damaged(path, "it is missing" if missing else first_line(fault)) from fault
    alive = sum(segment.rows for segment in manifest.segments) - sum(
        int(mask.sum()) for mask in dead if mask is not None
    )
    if alive != manifest.n_chunks:
        raise IndexFormatError(
            f"the manifest counts {manifest.n_chunks:,} chunks, its segments and deletions {alive:,}",
            "build again with `rebuild=True`",
            where=str(folder),
        )
    return dead


def _read_masks(data: bytes, manifest: Manifest, dead: Masks) -> None:
    numbers = {segment.id: number for number, segment in enumerate(manifest.segments)}
    reader = pa.ipc.open_file(pa.BufferReader(data))
    if reader.schema != SCHEMA:
        raise ValueError("its columns are not segment and row")
    for part in range(reader.num_record_batches):
        batch = reader.get_batch(part)
        batch.validate(full=True)
        names, rows = batch.column(0), numbers_of(batch.column(1), "<i4")
        for one in names.unique():
            name = one.as_py()
            if name not in numbers:
                raise ValueError(f"it names the segment {name!a}, which the manifest does not")
            number = numbers[name]
            chosen = rows[true_places(pc.equal(names, one))]
            _mark(dead, number, manifest.segments[number].rows, chosen)


def _mark(dead: Masks, number: int, n_rows: int, rows: NDArray[np.int32]) -> None:
    if rows.min() < 0 or rows.max() >= n_rows:
        raise ValueError(f"it names a row that segment {number} of {n_rows:,} rows does not have")
    mask = dead[number]
    if mask is None:
        mask = dead[number] = np.zeros(n_rows, np.bool_)
    mask[rows] = True
