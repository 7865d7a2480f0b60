"""What the tests of precomputed vectors share: tables, files of them, a model of questions, and what an index holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.pipelines.index import Index
from ragidx.pipelines.vectors import build_vectors

AXES = np.eye(4, dtype=np.float32)
INDEX = "ragidx-index"
TEXTS = [
    "The lease of the house by the lake was signed by Ada Lovelace.",
    "The old mill stands where the river reaches the sea.",
    "The tower in Tokyo is painted orange and white.",
    "Bees dance to tell where the flowers are.",
    "Neptune was found with a pencil before a telescope.",
    "Movable metal type was cast in Korea before Gutenberg.",
]
WITHOUT = "or remove `model`: then the index is asked with vectors"


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
    store, found = Index(index).searcher.store, {}
    for row, vector in zip(store.rows(range(store.n_rows)), store.vectors(range(store.n_rows)), strict=True):
        assert row.chunk_id not in found
        found[row.chunk_id] = row.doc_id, row.text, dict(row.metadata), [round(float(x), 3) for x in vector]
    return found


@pytest.fixture
def write_texts(folder: Path) -> Callable[..., str]:
    """`write_texts(vectors)`: `v.parquet` with them beside `TEXTS`, or other texts."""

    def call(vectors: Any, texts: list[str | None] | None = None, name: str = "v.parquet") -> str:
        rows = [list(row) for row in np.asarray(vectors, np.float32)]
        columns: dict[str, Any] = {"id": [f"d{n}" for n in range(len(rows))], "vector": rows}
        if texts != []:
            columns["text"] = texts or TEXTS
        pq.write_table(pa.table(columns), folder / name)
        return name

    return call


@pytest.fixture
def encode(model: Path) -> Callable[..., Any]:
    """`encode(texts, method=...)`: raw vectors of `tiny`, a model 32 wide; classical where nothing else is said."""

    def call(texts: list[str], **options: Any) -> Any:
        asked = {"method": "classical", "dtype": "float32"} | options  # 256 texts or more would measure a format
        return ragidx.load_encoder(str(model), **asked).encode_document(texts)

    return call


@pytest.fixture
def v(write_texts: Callable[..., str], encode: Callable[..., Any]) -> str:
    """`v.parquet`: what `tiny` makes of `TEXTS`, by the method classical."""
    return write_texts(encode(TEXTS))


def build_with_tiny(vectors: str = "v.parquet", **options: Any) -> Any:
    return build_vectors(vectors, INDEX, **({"model": "tiny", "method": "classical"} | options))


def first_hit(question: str, index: str = INDEX) -> tuple[str, float]:
    """The nearest row, and its cosine."""
    hit = ragidx.Index(index).search(question, k=1, mode="dense")[0]
    return hit.chunk_id, round(hit.score, 3)
