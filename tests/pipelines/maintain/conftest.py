"""What the tests of rewriting share: an index of precomputed vectors, and what an index holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store import Store
from ragidx.pipelines.vectors import RowWriter

INDEX = Path("ragidx-index")


def spec_of(index: Path) -> IndexSpec:
    return IndexSpec.from_json(dict(Store.open(index).manifest.spec), where=str(index))


def files(index: Path) -> dict[str, bytes]:
    paths = (path for path in index.rglob("*") if path.is_file() and path.name != "LOCK")
    return {str(path.relative_to(index)): path.read_bytes() for path in paths}


@pytest.fixture
def given(folder: Path) -> np.ndarray:
    """`ragidx-index`, of 400 given vectors of 16 dimensions in two segments; the same vectors, which have length 1."""
    raw = np.random.default_rng(0).standard_normal((400, 16)).astype(np.float32)
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    for part in (slice(0, 300), slice(300, 400)):
        with RowWriter(INDEX, dim=16) as writer:
            writer.add_vectors([f"v{n}" for n in range(400)][part], raw[part])
            writer.commit()
    return raw


def documents(index: str = "ragidx-index") -> list[str]:
    store = Store.open(index)
    return sorted({row.doc_id for row in store.rows(range(store.n_rows))})
