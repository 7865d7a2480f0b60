"""What the tests of precomputed vectors share: tables, files of them, a model of questions, and what an index holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragidx.retriever.reader import IndexReader

AXES = np.eye(4, dtype=np.float32)


def table_of(vectors: Any = AXES, kind: Any = None, **columns: Any) -> pa.Table:
    rows = [None if row is None else list(row) for row in vectors]
    return pa.table({"vector": pa.array(rows, kind or pa.list_(pa.float32()))} | columns)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write(table)`: a parquet file of it, `vectors.parquet`."""

    def call(table: pa.Table, name: str = "vectors.parquet", **options: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path, **options)
        return path

    return call


def content_of(index: Path) -> dict[str, tuple[str, str, dict[str, Any], list[float]]]:
    """What an index holds, by chunk id."""
    reader, found = IndexReader.open(index), {}
    for number, segment in enumerate(reader.store.segments):
        dead = reader.store.dead[number]
        alive = [row for row in range(segment.entry.rows) if dead is None or not dead[row]]
        for row, vector in zip(segment.rows(alive), segment.vectors(alive), strict=True):
            assert row.chunk_id not in found
            found[row.chunk_id] = row.doc_id, row.text, dict(row.metadata), [round(float(x), 3) for x in vector]
    return found
