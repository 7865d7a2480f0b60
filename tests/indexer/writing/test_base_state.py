"""An index that is gone on with under another recall or memory: tuned again as it stands, or refused at once."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_operations import tree_of

from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.store.rows import Row
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import StoreWriter

ROWS, DIM = 10_000, 16
OPTIONS = {
    "graph": IndexOptions("hnsw", target_recall=0.5),
    "coarse": IndexOptions("IVF4,PQ1", target_recall=0.3),
    "codes": IndexOptions("auto", max_memory=280_000),  # exact search takes 320,000
    "exact": IndexOptions("auto"),
}


def writer(index: Path, options: IndexOptions) -> StoreWriter:
    return StoreWriter(index, spec={}, fingerprint="f" * 64, dim=DIM, index=options, journal=False)


def commit(index: Path, options: IndexOptions) -> Manifest:
    """What a build does that finds nothing new."""
    with writer(index, options) as one:
        return one.commit({}, ROWS)


@pytest.fixture(scope="module")
def made(ann_kit: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`made(name)`: an index of 10,000 rows under these options, made once."""
    folder = tmp_path_factory.mktemp("made")
    rows = [Row(f"{n}", f"{n}", 0, 0, "", "", n.to_bytes(16), n.to_bytes(16), {}) for n in range(ROWS)]
    vectors = ann_kit.clustered(ROWS, DIM)

    def of(name: str) -> Path:
        if not (folder / name).exists():
            with writer(folder / name, OPTIONS[name]) as one:
                one.add_rows(rows, vectors)
                one.commit({}, ROWS)
        return folder / name

    return of


@pytest.fixture
def copy(made: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """`copy(name)`: a copy of it, `index`."""

    def of(name: str) -> Path:
        shutil.copytree(made(name), tmp_path / "index")
        return tmp_path / "index"

    return of


@pytest.mark.slow
def test_a_higher_recall_is_a_commit_and_the_segments_are_tuned_for_it(copy: Any, ann_kit: Any) -> None:
    index = copy("graph")
    (before,) = Store.open(index).manifest.segments
    queries = ann_kit.clustered(50, DIM, seed=1)

    manifest = commit(index, dataclasses.replace(OPTIONS["graph"], target_recall=0.99))

    (after,) = manifest.segments
    assert (manifest.generation, manifest.index.target_recall) == (2, 0.99)
    assert before.ann.recall < 0.99 <= after.ann.recall
    assert after.ann.effort.beam > before.ann.effort.beam
    assert (after.id, after.files, after.ann.recipe) == (before.id, before.files, before.ann.recipe)
    store = Store.open(index)
    exact = np.sort(queries @ store.segments[0].codes.astype(np.float32).T)
    assert np.mean(store.search(queries, 10).scores >= exact[:, -10:-9] - 1e-6) >= 0.99
    assert verify(store.path) == []


@pytest.mark.slow
def test_a_lower_recall_is_searched_with_less_again(copy: Any) -> None:
    index = copy("graph")
    high = commit(index, dataclasses.replace(OPTIONS["graph"], target_recall=0.99))

    low = commit(index, OPTIONS["graph"])

    assert low.generation == 3
    assert low.segments[0].ann.effort.beam < high.segments[0].ann.effort.beam


@pytest.mark.slow
@pytest.mark.parametrize("name", ["graph", "codes", "exact"])
def test_the_same_options_again_commit_nothing(copy: Any, name: str) -> None:
    index = copy(name)
    before = tree_of(index)

    assert commit(index, OPTIONS[name]).generation == 1
    assert tree_of(index) == before


@pytest.mark.slow
def test_vectors_that_are_compared_whole_reach_every_recall(copy: Any) -> None:
    manifest = commit(copy("exact"), IndexOptions("auto", target_recall=1))

    assert (manifest.generation, manifest.index.target_recall, manifest.segments[0].ann) == (2, 1, None)


@pytest.mark.slow
def test_a_limit_that_the_index_keeps_is_a_commit(copy: Any) -> None:
    index = copy("exact")
    (before,) = Store.open(index).manifest.segments

    manifest = commit(index, IndexOptions("auto", max_memory=400_000))

    assert (manifest.generation, manifest.index.max_memory, manifest.segments) == (2, 400_000, (before,))


REFUSED = {
    "too rough": (
        "coarse",
        {"target_recall": 0.999},
        r"`target_recall`: the index IVF4,PQ1 reaches a recall of 0\.9\d\d, not the 0\.999 asked for"
        r"\n  hint: '{reindex} --index-type auto --target-recall 0\.999' {makes}; or ask for less",
    ),
    "not exact": (
        "codes",
        {"target_recall": 1},
        r"`target_recall`: a recall of 1 compares every vector, and PQ\d+x4fs was made of them"
        r"\n  hint: '{reindex} --target-recall 1' {makes}; or ask for less",
    ),
    "too large": (
        "exact",
        {"max_memory": 1000},
        r"`max_memory`: the index takes 1 MB as it was made, more than `max_memory` allows"
        r"\n  hint: '{reindex} --max-memory 1000' {makes}; or allow that much",
    ),
    "too large a graph": (
        "graph",
        {"max_memory": 1_000_000},
        r"`max_memory`: the index takes 2 MB as it was made, more than `max_memory` allows"
        r"\n  hint: '{reindex} --index-type auto --max-memory 1000000' {makes}; or allow that much",
    ),
}


@pytest.mark.parametrize("case", [pytest.param("too rough", marks=pytest.mark.slow), *list(REFUSED)[1:]])
@pytest.mark.slow
def test_what_the_index_cannot_do_is_refused_at_once_with_what_can(copy: Any, case: str) -> None:
    name, change, told = REFUSED[case]
    index = copy(name)
    before = tree_of(index)

    with pytest.raises(SpecError) as caught:
        writer(index, dataclasses.replace(OPTIONS[name], **change))

    told = told.replace("{reindex}", f"ragidx reindex DIR --index {re.escape(str(index))}")
    assert re.fullmatch(told.replace("{makes}", "makes another beside it, and encodes nothing"), str(caught.value))
    assert tree_of(index) == before
    writer(index, OPTIONS[name]).close()  # the lock is free


def test_a_small_index_keeps_no_limit_as_a_new_one_does_not(tmp_path: Path, kit: Any) -> None:
    kit.build(tmp_path / "index", {"a": ["one"]})

    manifest, _ = kit.build(tmp_path / "index", {"a": ["one"]}, index=IndexOptions("flat", max_memory=1))

    assert (manifest.generation, manifest.index.max_memory) == (2, 1)
