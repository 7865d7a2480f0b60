"""--target-recall and --max-memory on an index that is there: taken, by a commit of their own if need be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.store.manifest import read_manifest
from ragidx.pipelines.vectors import RowWriter

ROWS, DIM = 10_000, 8


def options(index: Path) -> IndexOptions:
    return read_manifest(index).index


@pytest.mark.slow
def test_a_build_takes_what_is_said_and_keeps_what_is_not(index: Path) -> None:
    first = ragidx.build("corpus", target_recall=0.9).report
    assert (first.committed, first.generation, first.n_encoded) == (True, 2, 0)
    assert options(index) == IndexOptions("auto", 0.9)

    again, unsaid = ragidx.build("corpus", target_recall=0.9).report, ragidx.build("corpus").report
    assert (again.committed, unsaid.committed) == (False, False)

    more = ragidx.build("corpus", max_memory=1 << 30).report
    assert (more.committed, more.generation) == (True, 3)
    assert options(index) == IndexOptions("auto", 0.9, 1 << 30)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    vectors = np.random.default_rng(0).standard_normal((ROWS, DIM))
    with RowWriter(tmp_path / "graph", DIM, index_type="hnsw", target_recall=0.5) as writer:
        writer.add_vectors(range(ROWS), vectors)
        writer.commit()
    return tmp_path / "graph"


@pytest.mark.slow
def test_a_writer_of_vectors_tunes_the_index_for_what_is_said(graph: Path) -> None:
    with RowWriter(graph, DIM, target_recall=0.99) as writer:
        report = writer.commit()
    with RowWriter(graph, DIM) as writer:
        again = writer.commit()

    (segment,) = read_manifest(graph).segments
    assert (report.n_chunks, again) == (ROWS, report)
    assert segment.ann is not None
    assert segment.ann.recall is not None
    assert segment.ann.recall >= 0.99
    assert options(graph) == IndexOptions("hnsw", 0.99)


@pytest.mark.slow
def test_a_limit_that_the_index_does_not_keep_is_an_error_that_names_the_way(
    graph: Path, run: Callable[..., Any], folder: Path
) -> None:
    np.save(folder / "one.npy", np.eye(1, DIM))

    done = run("build", "--vectors", "one.npy", "--index", "graph", "--max-memory", "1MB")

    assert done == (
        2,
        "",
        "Error: --max-memory: the index takes 2 MB as it was made, more than --max-memory allows\n"
        "  hint: 'ragidx reindex DIR --index graph --index-type auto --max-memory 1000000' makes another "
        "beside it, and encodes nothing; or allow that much\n",
    )
    made = run("reindex", "other", "--index", "graph", "--index-type", "auto", "--max-memory", "1000000")
    assert (made.status, options(folder / "other")) == (0, IndexOptions("auto", 0.5, 1_000_000))


def test_a_type_that_does_not_suit_the_width_is_refused_before_a_text_is_encoded(
    small_corpus: Path, run: Callable[..., Any], folder: Path
) -> None:
    status, out, err = run("build", "corpus", "--index-type", "IVF64,PQ7")

    assert (status, out) == (2, "")
    assert "PQ7" in err
    assert not (folder / "ragidx-index").exists()
