"""Fixtures shared by tests of the store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ragidx.indexer.ann import index_types
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.store import Store


@pytest.fixture(scope="session")
def pristine(kit, tmp_path_factory) -> Path:
    """An index with every kind of file: two segments, a graph each, deletions, a blob."""
    return _made(kit, tmp_path_factory.mktemp("pristine") / "index", "auto")


@pytest.fixture
def wordless(kit, tmp_path) -> Path:
    """The same without postings, which name the texts that they were made of, so that others are found at open."""
    return _made(kit, tmp_path / "index", "off")


def _made(kit, path: Path, lexical: str) -> Path:
    blobs = {"filter.safetensors": b"the matrix"}
    first = {f"d{n}": [f"t{n} {part}" for part in range(3)] for n in range(100)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_types, "MIN_ROWS", 2)
        # Of so few rows nearly all ask, with their links cut.
        index = IndexOptions("hnsw", target_recall=0.01, lexical=lexical)
        kit.build(path, first, index=index, blobs=blobs)
        kit.build(path, first | {"d0": ["changed", "twice"]}, index=index, blobs=blobs)
    assert [entry.ann is not None for entry in Store.open(path).manifest.segments] == [True, True]
    return path


@pytest.fixture
def index(pristine, tmp_path) -> Path:
    shutil.copytree(pristine, tmp_path / "index")
    return tmp_path / "index"
