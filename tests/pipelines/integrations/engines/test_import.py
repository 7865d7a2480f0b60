"""Tables and files that are read back: the rows of an export as they were, and those that others wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.corpora.errors import CorpusError, IndexFormatError, SpecError
from ragidx.corpora.whole_documents import values_to_json
from ragidx.pipelines.index import Index
from ragidx.pipelines.integrations.engines.layout import AboutTable

from ...conftest import Done


def rows_of(index: Index) -> dict[str, tuple[Any, ...]]:
    """All that the index has of each row, by its id; vectors bit for bit."""
    store = index.searcher.store
    return {
        row.chunk_id: (
            row.doc_id,
            row.start,
            row.end,
            row.text,
            row.heading,
            row.line,
            row.page,
            json.dumps(values_to_json(row.metadata), sort_keys=True),
            v.tobytes(),
        )
        for row, v in zip(store.rows(range(store.n_rows)), store.vectors(range(store.n_rows)), strict=True)
    }


def test_an_export_comes_back_as_it_was(exported: tuple[Index, str], tmp_path: Path) -> None:
    index, to = exported
    back = ragidx.build(index=tmp_path / "back", vectors=to)
    assert rows_of(back) == rows_of(index)
    assert back.report is not None
    assert (back.report.n_chunks, back.report.skipped) == (6, {})
    assert (back.spec.encoder, back.spec.filter, back.spec.weights) == (
        index.spec.encoder,
        index.spec.filter,
        index.spec.weights,
    )
    for question in ("where do bees fly?", "an old mill"):
        told = [
            [(hit.chunk_id, hit.score, hit.dense) for hit in one.search(question, mode="dense")]
            for one in (back, index)
        ]
        assert told[0] == told[1]
    assert back.build(vectors=to).committed is False
    assert ragidx.build(index=tmp_path / "named", vectors=to, model="mini").spec == back.spec


def test_another_model_than_that_of_the_vectors_is_refused(
    exported: tuple[Index, str], tmp_path: Path, tiny_model: Any
) -> None:
    theirs = str(tiny_model())
    with pytest.raises(SpecError) as fault:
        ragidx.build(index=tmp_path / "back", vectors=exported[1], model=theirs)
    assert fault.value.message == f"the vectors say which model made them: 'mini', and not '{theirs}'"
    assert fault.value.hint == "remove `model`"
    given = Index.create(tmp_path / "given", dim=3)
    given.add_vectors(["a"], np.ones((1, 3), np.float32))
    given.export(str(tmp_path / "given.parquet"))
    with pytest.raises(SpecError, match="which model made them: no model for questions, and not 'mini'"):
        ragidx.build(index=tmp_path / "back", vectors=tmp_path / "given.parquet", model="mini")


def test_a_file_of_an_export_comes_back_too(index: Index, tmp_path: Path) -> None:
    file = tmp_path / "chunks.parquet"
    index.export(str(file))
    back = ragidx.build(index=tmp_path / "back", vectors=file)
    assert rows_of(back) == rows_of(index)
    other = Index.create(tmp_path / "other", filter="none")
    other.add([ragidx.Document("one", "One document.")])
    other.export(str(file), replace=True)
    with pytest.raises(CorpusError, match="384 dimensions"):
        back.build(vectors=file)
    assert rows_of(back) == rows_of(index)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("[]", "the row has metadata that are none: 'list' object has no attribute 'items'"),
        ('{"a":', "the row has Expecting value"),
        ('{"a":[NaN]}', "the field 'a': nan is not a finite number"),
    ],
)
def test_metadata_of_a_file_are_not_trusted(index: Index, tmp_path: Path, written: str, why: str) -> None:
    index.export(str(tmp_path / "chunks.parquet"))
    table = pq.read_table(tmp_path / "chunks.parquet")
    at = table.schema.get_field_index("_metadata")
    broken = table.set_column(at, table.schema.field(at), pa.array([written] * len(table), pa.large_string()))
    pq.write_table(broken, tmp_path / "chunks.parquet")

    with pytest.raises(CorpusError, match=re.escape(why)):
        ragidx.build(index=tmp_path / "back", vectors=tmp_path / "chunks.parquet")


def test_given_vectors_come_back(place: Callable[[str], str], tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", dim=3)
    vectors = np.array([[1, 0, 0], [0.6, 0.8, 0], [0, 0, 1]], np.float32)
    index.add_vectors(["a", "b", "c"], vectors, texts=["A.", None, "C."], metadata=[{"heading": "h"}, {}, {"end": 3}])
    index.export(place("given"))
    back = ragidx.build(index=tmp_path / "back", vectors=place("given"))
    found = [back.search(vector=vector, k=1)[0] for vector in vectors]
    assert [(hit.chunk_id, hit.text) for hit in found] == [("a", "A."), ("b", ""), ("c", "C.")]
    assert found[2].metadata == {"end": 3}
    assert back.spec.encoder is None


def test_a_table_that_is_not_there(place: Callable[[str], str], tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="there is no row of vectors"):
        ragidx.build(index=tmp_path / "back", vectors=place("nothing"))


def test_what_it_says_is_not_trusted(index: Index) -> None:
    about = AboutTable.of(index.searcher.store)
    data = about.to_bytes()
    for broken in (
        b"",
        b"{}",
        b"[]",
        data.replace(b'"dim": ', b'"dim": "x", "was": '),
        data.replace(b'"format": 1', b'"format": 2'),
    ):
        with pytest.raises(IndexFormatError, match="what it says of its vectors cannot be read"):
            AboutTable.from_bytes(broken, "here")
    earlier = {name: value for name, value in json.loads(data).items() if name != "has_metadata"}
    assert not AboutTable.from_bytes(json.dumps(earlier).encode(), "here").has_metadata
    outside = AboutTable(**{**vars(about), "files": {"../outside": b"x"}})
    with pytest.raises(IndexFormatError, match="cannot be read"):
        AboutTable.from_bytes(outside.to_bytes(), "here")


FOREIGN = {"id": ["a", "b", "c"], "text": ["A.", "B.", None], "year": [1, None, 3], "tag": ["x", "it's", None]}
VECTORS = np.array([[2, 0, 0], [0.6, 0.8, 0], [0, 0, 0.5]], np.float32)


def _lancedb(folder: Path) -> str:
    lancedb = pytest.importorskip("lancedb")
    table = pa.table(FOREIGN | {"vector": pa.array(VECTORS.tolist(), pa.list_(pa.float32(), 3))})
    lancedb.connect(str(folder)).create_table("foreign", table)
    return f"lancedb:{folder}#foreign"


def _qdrant(folder: Path) -> str:
    qdrant = pytest.importorskip("qdrant_client")
    client = qdrant.QdrantClient(path=str(folder))
    client.create_collection("foreign", qdrant.models.VectorParams(size=3, distance=qdrant.models.Distance.DOT))
    own = [{name: values[at] for name, values in FOREIGN.items() if name != "id"} for at in range(3)]
    client.upsert(
        "foreign", [qdrant.models.PointStruct(id=at, vector=VECTORS[at].tolist(), payload=own[at]) for at in range(3)]
    )
    client.close()
    return f"qdrant:{folder}#foreign"


def _chroma(folder: Path) -> str:
    chromadb = pytest.importorskip("chromadb")
    own = chromadb.config.Settings(anonymized_telemetry=False)
    collection = chromadb.PersistentClient(str(folder), own).create_collection("foreign", embedding_function=None)
    for at in range(3):
        own = {name: FOREIGN[name][at] for name in ("year", "tag") if FOREIGN[name][at] is not None}
        text = FOREIGN["text"][at]
        collection.add(FOREIGN["id"][at], VECTORS[at].tolist(), own, text)
    return f"chroma:{folder}#foreign"


@pytest.mark.parametrize("make", [_lancedb, _qdrant, _chroma])
def test_a_table_of_others_is_read(make: Callable[[Path], str], tmp_path: Path) -> None:
    back = ragidx.build(index=tmp_path / "back", vectors=make(tmp_path / "foreign"))
    assert back.report is not None
    assert (back.report.n_chunks, back.report.skipped) == (3, {})
    found = [back.search(vector=vector, k=1)[0] for vector in VECTORS]
    assert [(hit.text, dict(hit.metadata)) for hit in found] == [
        ("A.", {"year": 1, "tag": "x"}),
        ("B.", {"tag": "it's"}),
        ("", {"year": 3}),
    ]
    assert [hit.score for hit in found] == pytest.approx([1, 1, 1], abs=1e-3)
    assert back.count("year > 1") == 1


def test_a_postgresql_table_of_others_is_read(server: str, tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server, autocommit=True) as database:
        database.execute("CREATE EXTENSION IF NOT EXISTS vector")
        database.execute(
            "CREATE TABLE theirs (id text, body text, vector vector(3), year int, data jsonb, at timestamp)"
        )
        for name, vector in zip("abc", VECTORS.tolist(), strict=True):
            row = (name, name.upper(), str(vector), 7, '{"k": 1}', "2024-01-31")
            database.execute("INSERT INTO theirs VALUES (%s, %s, %s, %s, %s, %s)", row)
    back = ragidx.build(index=tmp_path / "back", vectors=f"{server}#theirs", text_field="body")
    [hit] = back.search(vector=VECTORS[1], k=1)
    assert (hit.chunk_id, hit.text, hit.metadata["year"], hit.metadata["data"]) == ("b", "B", 7, '{"k": 1}')
    assert back.count('at > "2024"') == 3


def test_a_field_of_others_that_is_called_id_stays(tmp_path: Path) -> None:
    qdrant = pytest.importorskip("qdrant_client", reason="needs qdrant-client, of the extra 'test'")
    chromadb = pytest.importorskip("chromadb", reason="needs chromadb, of the extra 'test'")
    client = qdrant.QdrantClient(path=str(tmp_path / "qdrant"))
    client.create_collection("theirs", qdrant.models.VectorParams(size=3, distance=qdrant.models.Distance.DOT))
    client.upsert("theirs", [qdrant.models.PointStruct(id=7, vector=VECTORS[0].tolist(), payload={"id": "mine"})])
    client.close()
    settings = chromadb.config.Settings(anonymized_telemetry=False)
    made = chromadb.PersistentClient(str(tmp_path / "chroma"), settings)
    made.create_collection("theirs", embedding_function=None).add("7", VECTORS[0].tolist(), {"id": "mine"})
    for engine in ("qdrant", "chroma"):
        target = f"{engine}:{tmp_path / engine}#theirs"
        with ragidx.build(index=tmp_path / f"from-{engine}", vectors=target) as back:
            [hit] = back.search(vector=VECTORS[0], k=1)
        assert (hit.chunk_id, hit.metadata["metadata.id"]) == ("7", "mine")


def test_points_of_qdrant_without_one_dense_vector_are_refused(tmp_path: Path) -> None:
    qdrant = pytest.importorskip("qdrant_client", reason="needs qdrant-client, of the extra 'test'")
    models = qdrant.models
    several = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
    dense = models.VectorParams(size=2, distance=models.Distance.DOT, multivector_config=several)
    client = qdrant.QdrantClient(path=str(tmp_path / "qdrant"))
    client.create_collection("multi", dense)
    client.upsert("multi", [models.PointStruct(id=1, vector=[[1, 2], [3, 4]])])
    client.create_collection("sparse", {}, sparse_vectors_config={"words": models.SparseVectorParams()})
    client.upsert("sparse", [models.PointStruct(id=1, vector={"words": models.SparseVector(indices=[1], values=[1])})])
    client.close()
    for name in ("multi", "sparse"):
        with pytest.raises(SpecError, match="it has points without one dense vector"):
            ragidx.build(index=tmp_path / "back", vectors=f"qdrant:{tmp_path / 'qdrant'}#{name}")


def test_what_chroma_has_not(tmp_path: Path) -> None:
    pytest.importorskip("chromadb")
    with pytest.raises(SpecError, match="there is no Chroma"):
        ragidx.build(index=tmp_path / "back", vectors=f"chroma:{tmp_path / 'nothing'}")
    _chroma(tmp_path / "chroma")
    with pytest.raises(SpecError, match="there is no such collection"):
        ragidx.build(index=tmp_path / "back", vectors=f"chroma:{tmp_path / 'chroma'}#other")
    with pytest.raises(SpecError, match="unknown engine 'chroma'"):
        ragidx.connect("chroma:somewhere")


def test_the_command(exported: tuple[Index, str], run: Callable[..., Done]) -> None:
    done = run("build", "--vectors", exported[1], "--quiet")
    assert (done.status, done.err) == (0, "")
    assert "bees" in run("query", "where do bees fly?").out


@pytest.mark.parametrize("numbers", [(2**53 + 1, 0.5, None), (2**53 + 1, 2, 3), (None, None, None), (0.5, True, None)])
def test_numbers_of_others_are_read_whatever_they_are(numbers: tuple[float | None, ...], tmp_path: Path) -> None:
    qdrant = pytest.importorskip("qdrant_client", reason="needs qdrant-client, of the extra 'test'")
    client = qdrant.QdrantClient(path=str(tmp_path / "qdrant"))
    client.create_collection("theirs", qdrant.models.VectorParams(size=3, distance=qdrant.models.Distance.DOT))
    point = qdrant.models.PointStruct
    client.upsert("theirs", [point(id=n, vector=VECTORS[n].tolist(), payload={"n": numbers[n]}) for n in range(3)])
    client.close()

    with ragidx.build(index=tmp_path / "back", vectors=f"qdrant:{tmp_path}/qdrant#theirs") as back:
        found = [back.search(vector=vector, k=1)[0].metadata.get("n") for vector in VECTORS]

    kinds = {type(number) for number in numbers if number is not None}
    as_read = {frozenset({int, float}): float, frozenset({float, bool}): json.dumps}.get(frozenset(kinds), lambda n: n)
    assert found == [None if number is None else as_read(number) for number in numbers]
