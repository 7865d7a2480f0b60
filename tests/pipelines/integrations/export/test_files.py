"""Export to Parquet and to a folder for `datasets`: what is there is what the index has, and what others have stays."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.corpora.errors import IndexFormatError, RagidxError, SpecError
from ragidx.pipelines.index import Index
from ragidx.pipelines.integrations.engines.layout import AboutTable

from ....indexer.faults import Disk, Failing
from ...conftest import Done

DOCUMENTS = [
    ragidx.Document("mill", "The old mill ground wheat by the river.", {"year": 1790, "tags": ["water", "work"]}),
    ragidx.Document("tower", "A concrete tower carries antennas.", {"year": 1958, "vector": "a field of this name"}),
    ragidx.Document(
        "bees",
        "Bees dance to tell where flowers are.",
        {"text": "another field", "deep": {"n": [1, None]}, "tags": []},
    ),
]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """Three documents; one more is deleted."""
    made = Index.create(tmp_path / "index")
    made.add([*DOCUMENTS, ragidx.Document("gone", "What is deleted.")])
    made.delete(["gone"])
    return made


def vectors_of(table: Any) -> Any:
    """(rows, dim) float16."""
    column = table["vector"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)


@pytest.mark.parametrize("kind", ["parquet", "datasets"])
def test_what_is_there_is_what_the_index_has(index: Index, tmp_path: Path, kind: str) -> None:
    to = f"{kind}:{tmp_path / 'out.parquet'}"
    report = index.export(to)
    assert (report.target, report.generation, report.n_rows, report.n_written) == (to, index.generation, 3, 3)
    path = tmp_path / "out.parquet"
    table = pq.read_table(path if kind == "parquet" else path / "data")
    expected = [row | {"_metadata": None} for batch in index.to_batches() for row in batch.to_pylist()]
    expected[2]["_metadata"] = '{"text":"another field","deep":{"n":[1,null]},"tags":[]}'
    assert table.drop_columns(["vector"]).to_pylist() == expected
    assert str(table.schema.field("vector").type) == f"fixed_size_list<element: halffloat>[{index.info().dim}]"
    stored = index.searcher.store
    assert np.array_equal(vectors_of(table).astype(np.float32), stored.vectors(range(stored.n_rows)))
    found = pq.read_schema(path if kind == "parquet" else next((path / "data").iterdir())).metadata[b"ragidx"]
    about = AboutTable.from_bytes(found, to)
    assert about == AboutTable.of(stored)
    assert (about.spec, about.fingerprint) == (dict(index.info().spec), index.info().fingerprint)


@pytest.mark.parametrize("where", [None, "even == true"])
@pytest.mark.parametrize("kind", ["parquet", "datasets"])
def test_the_first_ten_are_those_of_the_index(tmp_path: Path, kind: str, where: str | None) -> None:
    drawn = np.random.default_rng(3)
    words = ["mill", "river", "bee", "tower", "wheat", "flower", "stone", "engine", "ship", "letter"]
    path = tmp_path / "out"
    with Index.create(tmp_path / "index") as made:
        made.add(
            ragidx.Document(f"d{number}", " ".join(drawn.choice(words, 12)), {"even": number % 2 == 0})
            for number in range(200)
        )
        made.export(f"{kind}:{path}")
        table = pq.read_table(path if kind == "parquet" else path / "data")
        if where is not None:
            table = table.filter(table["even"])
        for question in made.searcher.encode(["a mill by the river", "bees and flowers"]):
            best = np.argsort(-(vectors_of(table).astype(np.float32) @ question), kind="stable")[:10]
            hits = made.search(vector=question, k=10, where=where, fold=False)
            assert table["chunk_id"].take(best).to_pylist() == [hit.chunk_id for hit in hits]


def test_a_file_may_be_named_alone(index: Index, tmp_path: Path) -> None:
    assert index.export(str(tmp_path / "out.parquet")).n_written == 3


def test_numbers_are_those_that_were_given_also_where_other_values_are_of_deleted_rows(
    index: Index, tmp_path: Path
) -> None:
    for name, number, gone in (("one", 1, True), ("half", 0.5, "text")):
        both = ragidx.Document(name, "A mill.", {"n": number}), ragidx.Document("gone", "A mill.", {"of gone": gone})
        index.add(both, compact=False)
        index.delete(["gone"], compact=False)
    assert index.searcher.store.mixed == {"n", "of gone"}
    index.export(str(tmp_path / "out.parquet"))

    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    found = {row["doc_id"]: (row["n"], row["_metadata"]) for row in rows if row["n"] is not None}
    assert found == {"one": (1.0, '{"n":1}'), "half": (0.5, None)}


def test_datasets_reads_it(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    index.export(f"datasets:{tmp_path / 'out'}")
    found = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache"))
    assert found["chunk_id"] == [row for batch in index.to_batches(["chunk_id"]) for row in batch.column(0).to_pylist()]
    assert found.features["vector"].length == index.info().dim


@pytest.mark.parametrize("kind", ["parquet", "datasets"])
def test_again_writes_what_changed_alone(index: Index, tmp_path: Path, kind: str) -> None:
    to = f"{kind}:{tmp_path / 'out'}"
    index.export(to)
    again = index.export(to)
    assert (again.n_rows, again.n_written) == (3, 0)
    index.add([ragidx.Document("lease", "The lease of the mill.")])
    later = index.export(to)
    assert (later.n_rows, later.n_written, later.generation) == (4, 4, index.generation)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "out"]


@pytest.mark.parametrize("kind", ["parquet", "datasets"])
def test_what_is_of_others_stays(index: Index, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    to = f"{kind}:{path}"
    with Index.create(tmp_path / "other", filter=ragidx.FilterSpec("truncation", dim=8)) as other:
        other.add(DOCUMENTS)
        other.export(to)
    with pytest.raises(SpecError, match="its vectors were made in another way"):
        index.export(to)
    assert index.export(to, replace=True).n_written == 3


@pytest.mark.parametrize("name", ["README.md", "data/train-00000-of-00001.parquet"])
def test_a_dataset_of_others_stays(index: Index, tmp_path: Path, name: str) -> None:
    file = tmp_path / "theirs" / name
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"text": ["theirs"]}), file)
    before = file.read_bytes()
    with pytest.raises(SpecError, match="it holds something else"):
        index.export(f"datasets:{tmp_path / 'theirs'}")
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("to", "content", "message"),
    [
        ("parquet:out", b"text", "it is no Parquet file"),
        ("datasets:out", b"text", "it holds something else"),
        ("parquet:folder", None, "it is no Parquet file|it holds something else"),
        ("datasets:folder", None, "it holds something else"),
        ("paquet:out", None, "unknown target 'paquet'; did you mean 'parquet'"),
        ("out", None, "unknown target 'out'"),
        ("parquet:", None, "unknown target"),
    ],
)
def test_a_target_that_cannot_be(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, content: bytes | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "note.txt").write_text("mine")
    if content is not None:
        (tmp_path / "out").write_bytes(content)
    with pytest.raises(SpecError, match=message):
        index.export(to)
    assert (tmp_path / "folder" / "note.txt").read_text() == "mine"


def test_an_index_without_rows(tmp_path: Path) -> None:
    with Index.create(tmp_path / "index") as index, pytest.raises(SpecError, match="the index has no rows to export"):
        index.export(f"parquet:{tmp_path / 'out'}")


def test_a_file_that_says_nothing_sound(index: Index, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    index.export(str(path))
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({b"ragidx": b'{"format": 9}'}), path)
    with pytest.raises(IndexFormatError, match="what it says of its vectors cannot be read"):
        index.export(str(path))
    assert index.export(str(path), replace=True).n_written == 3
    pq.write_table(table.replace_schema_metadata({}), path)
    with pytest.raises(SpecError, match="it holds something else"):
        index.export(str(path))
    assert index.export(str(path), replace=True).n_written == 3


@pytest.mark.parametrize("kind", ["parquet", "datasets"])
def test_a_disk_that_is_full(index: Index, tmp_path: Path, kind: str) -> None:
    """Whichever call fails, what was there is there, or what is new is; nothing else is left."""
    path = tmp_path / "out"
    to = f"{kind}:{path}"
    with Disk(tmp_path) as counted:
        index.export(to)
    index.add([ragidx.Document("lease", "The lease of the mill.")])
    for at in range(0, len(counted.steps) + 3, 3):
        try:
            with Failing(tmp_path, at=at, code=errno.ENOSPC):
                index.export(to)
        except RagidxError:
            assert pq.read_table(path if kind == "parquet" else path / "data").num_rows in (3, 4)
        assert {one.name for one in tmp_path.iterdir()} <= {"index", "out"}
    index.export(to)
    assert pq.read_table(path if kind == "parquet" else path / "data").num_rows == 4


def test_the_command(index: Index, folder: Path, run: Callable[..., Done]) -> None:
    first = run("export", "--index", "index", "--to", "parquet:out.parquet")
    assert first.status == 0
    assert first.out.startswith("target  parquet:out.parquet\nholds   3 rows (generation 3)\ntime    ")
    assert "holds   3 rows, there already" in run("export", "--index", "index", "--to", "parquet:out.parquet").out
    said = json.loads(run("export", "--index", "index", "--to", "datasets:out", "--json").out)
    assert (said["target"], said["n_written"]) == ("datasets:out", 3)
    refused = run("export", "--index", "index", "--to", "csv:out")
    assert (refused.status, refused.out) == (2, "")
    assert "name one as parquet:PATH, datasets:PATH" in refused.err
    refused = run("export", "--index", "index", "--to", "parquet:\udcff.parquet")
    assert refused.err == "Error: parquet:?.parquet: its name is not UTF-8\n  hint: name another target\n"
    assert "Missing option '--to'" in run("export", "--index", "index").err
