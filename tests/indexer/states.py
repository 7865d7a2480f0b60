"""What an index tells, apart from how it lies on the disk: for tests of what changes only the latter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragidx.indexer.store import Store


@dataclass(frozen=True, slots=True)
class State:
    """Every chunk that is alive by its id, with its vector's bytes, and the first hits of some queries with scores."""

    chunks: Mapping[str, tuple[object, ...]]
    answers: tuple[tuple[tuple[str, float], ...], ...]


def state_of(index: Path) -> State:
    """The committed state, read through `Store` alone."""
    store = Store.open(index)
    chunks: dict[str, tuple[object, ...]] = {}
    for number, (segment, dead) in enumerate(zip(store.segments, store.dead, strict=True)):
        alive = np.arange(segment.entry.rows) if dead is None else np.flatnonzero(~dead)
        rows = store.rows([(number, int(row)) for row in alive])
        for row, vector in zip(rows, segment.vectors(alive), strict=True):
            assert row.chunk_id not in chunks
            where = (row.doc_id, row.start, row.end, row.text, row.heading)
            chunks[row.chunk_id] = (*where, row.text_hash, row.doc_hash, dict(row.metadata), vector.tobytes())
    found = store.search(np.eye(store.manifest.dim, dtype=np.float32)[:3], 10)
    answers = []
    for scores, places in zip(found.scores.tolist(), found.places, strict=True):
        ids = [row.chunk_id for row in store.rows(places)]
        answers.append(tuple(zip(ids, scores, strict=False)))
    return State(chunks, tuple(answers))


def texts_of(index: Path) -> list[str]:
    """The texts of all chunks that are alive, sorted."""
    return sorted(str(chunk[3]) for chunk in state_of(index).chunks.values())


def files_of(index: Path) -> dict[str, bytes]:
    """All files by their path in the index, but the lock, which says who wrote last."""
    paths = (file for file in index.rglob("*") if file.is_file() and file.name != "LOCK")
    return {str(file.relative_to(index)): file.read_bytes() for file in paths}
