"""Shards of precomputed vectors, written by many tasks, are the index that one build of a file with all rows makes."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import ragidx
from ragidx.corpora.errors import CorpusError, IndexFormatError, SpecError
from ragidx.indexer.store import Store
from ragidx.pipelines import distribute
from ragidx.pipelines.distribute import Descriptor, Division
from ragidx.pipelines.ingest.report import BuildReport, StrictError

from .conftest import WORDS, content

DIM = 6


def table(numbers: Sequence[int], *, seed: int = 0, **columns: Any) -> pa.Table:
    """Rows of these numbers, whose vectors follow from number and seed."""
    vectors = [np.random.default_rng([seed, n]).standard_normal(DIM).astype("f4") for n in numbers]
    texts = [f"The {WORDS[n % len(WORDS)]} number {n}" for n in numbers]
    fields = {
        "id": [f"r{n}" for n in numbers],
        "vector": vectors,
        "text": texts,
        "doc_id": [f"d{n % 4}" for n in numbers],
    }
    return pa.table(fields | {name: pa.array(values) for name, values in columns.items()})


def written(tables: Sequence[pa.Table], stage: Path, index: Path, **options: Any) -> BuildReport:
    """Each table is the shard of a task; the last task ends first."""
    division = distribute.divide_vectors(stage, index, **options)
    made = [distribute.build_vector_shard(division, n, [one]) for n, one in reversed(list(enumerate(tables)))]
    return distribute.commit(division, made)


def of_file(tables: Sequence[pa.Table], folder: Path, index: Path, **options: Any) -> BuildReport:
    """One build of files with the same rows."""
    shutil.rmtree(folder / "vectors", ignore_errors=True)
    (folder / "vectors").mkdir()
    for number, one in enumerate(one for one in tables if one.num_rows):
        pq.write_table(one, folder / "vectors" / f"{number}.parquet")
    return ragidx.build(vectors=str(folder / "vectors"), index=index, **options).report


def same(one: Path, other: Path) -> None:
    assert content(one) == content(other)
    first, second = Store.open(one).manifest, Store.open(other).manifest
    assert (first.spec, first.fingerprint, first.schema) == (second.spec, second.fingerprint, second.schema)
    assert first.n_documents == second.n_documents
    for seed in range(3):
        vector = np.random.default_rng(seed).standard_normal(DIM)
        hits = [
            [(hit.chunk_id, hit.score) for hit in ragidx.Index(path).search(vector=vector, k=9)]
            for path in (one, other)
        ]
        assert hits[0] == hits[1]


def test_it_is_the_index_of_one_file(tmp_path: Path) -> None:
    """Rows of a document are in several tasks, and an id is in two; of it the first row stays, and it is reported."""
    tables = [table(range(10)), table(range(8, 20)), table([]), table([20, 21, 3])]
    expected = of_file(tables, tmp_path, tmp_path / "one")
    report = written(tables, tmp_path / "stage", tmp_path / "index")
    same(tmp_path / "one", tmp_path / "index")
    assert report.skipped == expected.skipped == {"the id was seen before": 3}
    assert report.skipped_places == {"the id was seen before": ["shard 1: 'r8'", "shard 1: 'r9'", "shard 3: 'r3'"]}
    for name in ("n_documents", "n_chunks", "n_added", "generation", "dim", "committed"):
        assert getattr(report, name) == getattr(expected, name), name
    assert sorted(path.name for path in (tmp_path / "stage").iterdir()) == ["LOCK", "committed.json"]
    index = ragidx.Index(tmp_path / "index")
    assert {hit.doc_id for hit in index.search(vector=np.ones(DIM), k=4, per_document=1)} == {"d0", "d1", "d2", "d3"}
    index.delete(["d1"])
    assert len(content(tmp_path / "index")) == 22 - 6


def test_types_of_fields_are_widened(tmp_path: Path) -> None:
    tables = [table([0, 1], value=[1, 2]), table([2, 3], value=[0.5, None]), table([4, 5], other=["a", "b"])]
    of_file(tables, tmp_path, tmp_path / "one")
    written(tables, tmp_path / "stage", tmp_path / "index")
    same(tmp_path / "one", tmp_path / "index")
    assert Store.open(tmp_path / "index").manifest.schema == {"value": "float", "other": "string"}


def test_an_index_is_brought_up_to_date(tmp_path: Path) -> None:
    """What did not change stays, what differs is replaced, what is gone leaves, and what was deleted stays out."""
    before, after = [table(range(12))], [table(range(6)), table(range(6, 9), seed=1), table(range(20, 23))]
    for name in ("one", "index"):
        of_file(before, tmp_path, tmp_path / name)
        ragidx.Index(tmp_path / name).delete(["r2"])
    expected = of_file(after, tmp_path, tmp_path / "one")
    report = written(after, tmp_path / "stage", tmp_path / "index")
    same(tmp_path / "one", tmp_path / "index")
    for name in ("n_added", "n_changed", "n_unchanged", "n_removed", "n_deleted_before", "generation"):
        assert getattr(report, name) == getattr(expected, name), name
    again = written(after, tmp_path / "stage", tmp_path / "index")
    assert (again.committed, again.n_unchanged, again.generation) == (False, 11, report.generation)
    restored = written(after, tmp_path / "stage", tmp_path / "index", restore=True)
    assert (restored.n_added, restored.n_deleted_before) == (1, 0)


def test_a_shrunk_index_takes_vectors_as_they_were(tmp_path: Path) -> None:
    tables = [table(range(4)), table(range(4, 8))]
    for name in ("one", "index"):
        of_file(tables[:1], tmp_path, tmp_path / name)
        ragidx.Index(tmp_path / name).shrink(4)
    of_file(tables, tmp_path, tmp_path / "one")
    report = written(tables, tmp_path / "stage", tmp_path / "index")
    assert content(tmp_path / "one") == content(tmp_path / "index")
    assert (report.dim, report.n_added, report.n_unchanged) == (4, 4, 4)


def test_a_task_that_is_run_again_counts_once(tmp_path: Path) -> None:
    """The first attempt's files stay behind until the commit; of them nothing is taken."""
    division = distribute.divide_vectors(tmp_path / "stage", tmp_path / "index")
    lost = distribute.build_vector_shard(division, 0, [table(range(50, 60))])
    kept = distribute.build_vector_shard(division, 0, [table(range(10))])
    assert lost.folder != kept.folder
    with pytest.raises(SpecError, match="two descriptors are of one shard"):
        distribute.commit(division, [lost, kept])
    assert distribute.commit(Division.open(tmp_path / "stage"), [kept]).n_chunks == 10
    assert {row[0] for row in content(tmp_path / "index")} == {f"r{n}" for n in range(10)}


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    division = distribute.divide_vectors(tmp_path / "stage", tmp_path / "index", strict=True)
    with pytest.raises(StrictError, match="the id was seen before"):
        distribute.build_vector_shard(division, 0, [table([1, 1])])
    assert list(division.shards.iterdir()) == []
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"vector": [[1.0, 2.0]]}, "shard 0: there is no column of ids \\(found: 'vector'\\)"),
        ({"id": ["a"], "text": ["b"]}, "shard 0: no column holds vectors"),
    ],
)
def test_columns_that_are_missing(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    division = distribute.divide_vectors(tmp_path / "stage", tmp_path / "index")
    with pytest.raises(CorpusError, match=message):
        distribute.build_vector_shard(division, 0, [pa.table(columns)])


def test_a_row_that_is_broken_is_reported(tmp_path: Path) -> None:
    rows = pa.table({"key": ["a", "b", ""], "numbers": [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]], "vector": [[1.0]] * 3})
    report = written([rows], tmp_path / "stage", tmp_path / "index", vector_field="numbers", id_field="key")
    assert (report.n_chunks, report.dim) == (1, 2)
    assert sum(report.skipped.values()) == 3
    assert "shard 0#2" in report.skipped_places["the id is missing"]


def test_widths_differ(tmp_path: Path) -> None:
    division = distribute.divide_vectors(tmp_path / "stage", tmp_path / "index")
    rows = pa.table({"id": ["a"], "vector": [[1.0, 2.0]]})
    made = [
        distribute.build_vector_shard(division, 0, [table([1])]),
        distribute.build_vector_shard(division, 1, [rows]),
    ]
    with pytest.raises(SpecError, match=r"the vectors have several widths: 2 in 00001-\w+, 6 in 00000-\w+"):
        distribute.commit(division, made)
    assert not (tmp_path / "index").exists()
    of_file([table([1])], tmp_path, tmp_path / "index")
    division = distribute.divide_vectors(tmp_path / "stage", tmp_path / "index")
    with pytest.raises(SpecError, match="vectors have 6 dimensions in the index, 2 now"):
        distribute.build_vector_shard(division, 0, [rows])


@pytest.fixture
def division(tmp_path: Path) -> Division:
    return distribute.divide_vectors(tmp_path / "stage", tmp_path / "index")


@pytest.fixture
def made(division: Division) -> list[Descriptor]:
    return [distribute.build_vector_shard(division, n, [table([n])]) for n in range(2)]


def test_descriptors_of_something_else(division: Division, made: list[Descriptor], tmp_path: Path) -> None:
    other = distribute.divide_vectors(tmp_path / "other-stage", tmp_path / "other", made_by="another")
    foreign = distribute.build_vector_shard(other, 1, [table([7])])
    for wrong in (foreign, dataclasses.replace(made[1], folder="../../seed")):
        with pytest.raises(SpecError, match="shard 1 is of another division"):
            distribute.commit(division, [made[0], wrong])
    with pytest.raises(IndexFormatError, match="shard 1 is not the one that was built"):
        distribute.commit(division, [made[0], dataclasses.replace(made[1], manifest="0" * 64)])
    with pytest.raises(SpecError, match="known by their descriptors alone"):
        distribute.commit(division)
    with pytest.raises(SpecError, match="the division is of precomputed vectors"):
        distribute.build_shard(division, 0)
    assert distribute.commit(division, made).n_chunks == 2


def test_a_shard_that_is_gone_or_damaged(division: Division, made: list[Descriptor], tmp_path: Path) -> None:
    path = next((division.shards / made[1].folder).rglob("vectors.faiss"))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(IndexFormatError, match="its checksum differs from the manifest's"):
        distribute.commit(division, made)
    shutil.rmtree(division.shards / made[1].folder)
    with pytest.raises(IndexFormatError, match="shard 1: ") as caught:
        distribute.commit(division, made)
    assert caught.value.hint == "write it again"
    assert not (tmp_path / "index" / "manifest.json").exists()


def test_nothing_was_written(division: Division, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no task has written a vector"):
        distribute.commit(division, [distribute.build_vector_shard(division, 0, [table([])])])
    with pytest.raises(CorpusError, match="no task has written a vector"):
        distribute.commit(division, [])
    assert not (tmp_path / "index").exists()


def test_an_index_that_cannot_be_continued(made: list[Descriptor], division: Division, tmp_path: Path) -> None:
    of_file([table(range(20))], tmp_path, tmp_path / "index")
    with pytest.raises(SpecError, match="the index has generation 1 now: another process wrote it"):
        distribute.commit(division, made)
    with pytest.raises(SpecError, match="this build would remove 18 of 20 rows"):
        written([table([0, 1])], tmp_path / "stage", tmp_path / "index")
    assert written([table([0, 1])], tmp_path / "stage", tmp_path / "index", rebuild=True).n_chunks == 2
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("A text.")
    ragidx.build(tmp_path / "docs", tmp_path / "encoded")
    with pytest.raises(SpecError, match="the index holds what the model 'mini' encoded"):
        distribute.divide_vectors(tmp_path / "s", tmp_path / "encoded")
    with pytest.raises(SpecError, match="divide_vectors takes no such option: 'model'"):
        distribute.divide_vectors(tmp_path / "s", tmp_path / "index", model="mini")
    division.write()
    with pytest.raises(SpecError, match="it has a division of the index"):
        distribute.divide_vectors(tmp_path / "stage", tmp_path / "other")


@pytest.mark.slow
@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(
    states=st.lists(st.lists(st.lists(st.integers(0, 12), max_size=8), min_size=1, max_size=3), min_size=1, max_size=3)
)
def test_any_rows_and_their_changes(tmp_path_factory: pytest.TempPathFactory, states: list[list[list[int]]]) -> None:
    folder = tmp_path_factory.mktemp("any")
    for seed, state in enumerate(states):
        tables = [table([99])] + [table(numbers, seed=min(seed, n)) for n, numbers in enumerate(state)]
        of_file(tables, folder, folder / "one", allow_removal=True)
        written(tables, folder / "stage", folder / "index", allow_removal=True)
        same(folder / "one", folder / "index")
