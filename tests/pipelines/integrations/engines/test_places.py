"""The same answers from every place: an index in segments or in memory, several as one, a service, each engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import QueryError
from ragidx.pipelines.index import Index, Reader
from ragidx.retriever.hit import Hit

from ...serve.conftest import running
from ...test_whole_metadata import same
from .conftest import DOCUMENTS, PACKAGES, installed, made_in

QUESTIONS = ["where do bees fly?", "an old mill by the river", "räven"]


@pytest.fixture(scope="module", params=["segments", "memory", "several", "service", *sorted(PACKAGES)])
def engine(request: pytest.FixtureRequest) -> str:
    """Where the rows are."""
    return installed(request.param)


@pytest.fixture(scope="module")
def both(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Index, Any]]:
    """An index, and what answers as it does."""
    if engine in PACKAGES:
        index, to = request.getfixturevalue("exported")
        with ragidx.connect(to) as remote:
            yield index, remote
        return
    folder = tmp_path_factory.mktemp("places")
    index = made_in(folder / "index")
    if engine == "service":
        with running({"docs": index.path}) as served:
            yield index, ragidx.Client(served.url)
        return
    lexical = index.info().lexical
    assert lexical is not None
    made = [Index.create(folder / name, stemmer=lexical.stemmer) for name in "ab"]
    if engine == "memory":
        made[0] = Index(None, create={"stemmer": lexical.stemmer})
    for number, document in enumerate([*DOCUMENTS, ragidx.Document("gone", "What is deleted.")]):
        made[number % 2 if engine == "several" else 0].add([document])
    made[0].delete(["gone"])
    yield index, SimpleNamespace(search=partial(ragidx.search, made)) if engine == "several" else made[0]


def told(hits: list[Hit]) -> list[dict[str, Any]]:
    """All of a hit but its scores, which differ in the last digits, and its index."""
    but = ("score", "dense", "bm25", "index")
    return [{name: value for name, value in hit.to_json().items() if name not in but} for hit in hits]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"where": "year > 0"},
        {"where": ~(ragidx.field("alive") == True)},  # noqa: E712
        {"min_score": 0.2},
        {"per_document": 1, "fold": False},
        {"mmr": 0.5},
        {"context": 1},
        {"k": 2},
    ],
    ids=str,
)
def test_hits_are_those_of_the_index(both: tuple[Index, Any], options: dict[str, Any]) -> None:
    for question in QUESTIONS:
        expected, found = (one.search(question, **{"mode": "dense"} | options) for one in both)
        assert told(found) == told(expected)
        for name in ("score", "dense", "bm25"):
            values = [
                [getattr(hit, name) for hit in hits if getattr(hit, name) is not None] for hits in (found, expected)
            ]
            assert values[0] == pytest.approx(values[1], abs=1e-6)
        assert found.notes == expected.notes


@pytest.mark.parametrize("engine", ["segments", "memory", "several", "service"], indirect=True, scope="module")
@pytest.mark.parametrize(
    "options",
    [
        {"mode": "dense", "dim": 32, "rerank_dim": 255},
        {"mode": "dense", "instruction": ""},
        {"mode": "lexical"},
        {"mode": "hybrid", "weight": 0.9},
        {"mode": "hybrid", "where": "year > 0"},
        {"mode": "hybrid", "fusion": "rrf", "weight": 0.3, "min_score": 0.1},
        {"mode": "hybrid", "min_z": 0.5},
    ],
    ids=str,
)
def test_words_and_parts_of_vectors_are_those_of_the_index(both: tuple[Index, Any], options: dict[str, Any]) -> None:
    """An engine compares whole vectors, and has words of its own."""
    test_hits_are_those_of_the_index(both, options)


def test_vectors_and_batches(both: tuple[Index, Any]) -> None:
    index, asked = both
    vectors = index.searcher.encode(QUESTIONS)
    expected = [told(hits) for hits in index.search_vectors(vectors, 3)]
    if not isinstance(asked, ragidx.Client):
        assert told(asked.search(vector=vectors[0], k=3)) == expected[0]
        assert asked.search(QUESTIONS[0], vector=vectors[0]) == asked.search(QUESTIONS[0])
    if isinstance(asked, SimpleNamespace):
        return
    assert [told(hits) for hits in asked.search_batch(QUESTIONS, 3, mode="dense")] == expected
    assert asked.search_batch(QUESTIONS, 3) == [asked.search(one, 3) for one in QUESTIONS]
    assert [told(hits) for hits in asked.search_vectors((3 * vectors).tolist(), 3)] == expected
    with pytest.raises(QueryError, match="the query's vector has 3 dimensions"):
        asked.search_vectors(np.ones((1, 3)))
    if isinstance(asked, Reader):
        ranked = ([[name for name, _ in of] for of in one.rank_documents(QUESTIONS, 3, mode="dense")] for one in both)
        assert next(ranked) == next(ranked)


def test_what_it_holds_is_what_the_index_holds(both: tuple[Index, Any]) -> None:
    index, asked = both
    if isinstance(asked, ragidx.Client):
        assert [asked.document(one.id).text for one in DOCUMENTS] == [one.text for one in DOCUMENTS]
        with pytest.raises(QueryError, match="no such document"):
            asked.document("nothing")
    if not isinstance(asked, Reader):
        return
    assert (asked.schema, asked.spec) == (index.schema, index.spec)
    assert (asked.info().n_chunks, asked.info().n_documents) == (6, 6)
    assert sorted(asked.documents(), key=lambda one: one.id) == sorted(DOCUMENTS, key=lambda one: one.id)
    assert [one.id for one in asked.documents(where="year == 1790")] == ["mill"]
    assert asked.get(["bees", "mill"]) == [DOCUMENTS[2], DOCUMENTS[0]]
    assert asked.get(["bees", "nothing"], missing="skip") == [DOCUMENTS[2]]
    assert asked.chunks(document="mill") == index.chunks(document="mill")
    ids = [chunk.id for chunk in reversed(index.chunks())]
    stored = {row["chunk_id"]: row["vector"] for b in index.to_batches(["chunk_id", "vector"]) for row in b.to_pylist()}
    assert asked.vectors(ids).tolist() == [stored[name] for name in ids]
    assert asked.vectors([]).shape == (0, index.info().dim)
    with pytest.raises(QueryError, match="the index has no chunk 'nothing'"):
        asked.vectors([ids[0], "nothing"])
    assert (asked.count(), asked.count("year > 0")) == (6, 2)
    assert sorted(asked.values("text")) == [('[["a"],{}]', 1), ("a field", 1)]
    for field in ("year", "tags", "alive", "doc_id", "a.b", "when"):
        assert sorted(asked.values(field), key=str) == sorted(index.values(field), key=str)
    columns = ["chunk_id", "year", "metadata.text", "vector", "file.source"]
    rows = [sorted(str(row) for batch in one.to_batches(columns) for row in batch.to_pylist()) for one in both]
    assert rows[0] == rows[1]
    with pytest.raises(QueryError, match="unknown field 'nothing'"):
        asked.values("nothing")
    with pytest.raises(QueryError, match="the index has no document 'nothing'"):
        asked.get(["nothing"])


def test_metadata_come_back_as_they_were_given(both: tuple[Index, Any]) -> None:
    _, asked = both
    for document in DOCUMENTS:
        where = ragidx.field("doc_id") == document.id
        [expected], [found] = (one.search("a mill", mode="dense", where=where) for one in both)
        told = [json.dumps(hit.to_json()["metadata"], sort_keys=True) for hit in (expected, found)]  # 1 is no 1.0 there
        assert told[0] == told[1]
        read = [asked.get([document.id])[0].metadata] if isinstance(asked, Reader) else []
        for metadata in (expected.metadata, *([] if isinstance(asked, ragidx.Client) else [found.metadata]), *read):
            assert same(metadata, document.metadata)


@pytest.mark.parametrize(
    ("question", "options", "said"),
    [
        ("bees", {"where": "nothing == 1"}, "unknown field 'nothing'"),
        ("bees", {"where": "year == 1 2"}, "condition"),
        ("bees", {"mode": "dense", "weight": 0.5}, "it is for hybrid search"),
        (" ", {}, "the query is empty"),
    ],
)
def test_what_is_wrong_is_said_alike(
    both: tuple[Index, Any], question: str, options: dict[str, Any], said: str
) -> None:
    for one in both:
        with pytest.raises(QueryError, match=said):
            one.search(question, **options)
