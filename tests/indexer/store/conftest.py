"""Fixtures shared by tests of the store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ragidx.indexer.ann import index_types
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.store.store import Store


@pytest.fixture(scope="session")
def pristine(kit, tmp_path_factory) -> Path:
    """An index with every kind of file: two segments, a graph each, deletions, a blob."""
    path = tmp_path_factory.mktemp("pristine") / "index"
    blobs = {"filter.safetensors": b"the matrix"}
    first = {f"d{n}": [f"t{n} {part}" for part in range(3)] for n in range(100)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_types, "MIN_ROWS", 2)
        index = IndexOptions(
            "hnsw", target_recall=0.01, lexical="off"
        )  # nearly all rows of so few ask, with their links cut
        kit.build(path, first, index=index, blobs=blobs)
        kit.build(path, first | {"d0": ["changed", "twice"]}, index=index, blobs=blobs)
    assert [entry.ann is not None for entry in Store.open(path).manifest.segments] == [True, True]
    return path


@pytest.fixture
def index(pristine, tmp_path) -> Path:
    shutil.copytree(pristine, tmp_path / "index")
    return tmp_path / "index"
