"""Index: snapshots, search by vectors, and rows by id."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import IndexFormatError, ModelError, QueryError, SpecError
from ragidx.pipelines.index import Index
from ragidx.pipelines.maintain.rewrite import shrink
from ragidx.pipelines.vectors import RowWriter
from ragidx.retriever import contents

from ..raising import message_of

AXES = np.eye(4, dtype=np.float32)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Four axes of four dimensions: `a`, `b` of one document, `c`, `d` of another; `n` is their number."""
    path = tmp_path / "index"
    with RowWriter(path, 4, made_by="hand") as writer:
        writer.add_vectors(
            ["a", "b", "c", "d"], AXES, ["one", "two", None, "four"], [{"n": n} for n in range(4)], ["x", "x", "y", "y"]
        )
        writer.commit()
    return path


@pytest.fixture
def reader(index: Path) -> Index:
    return Index(index)


def test_a_vector_finds_its_neighbours_by_cosine(reader: Index) -> None:
    [hits] = reader.search_vectors([[3.0, 4.0, 0.0, 0.0]], k=2)

    assert [(hit.rank, hit.chunk_id, hit.text, hit.doc_id, hit.metadata) for hit in hits] == [
        (1, "b", "two", "x", {"n": 1}),
        (2, "a", "one", "x", {"n": 0}),
    ]
    assert [hit.score for hit in hits] == pytest.approx([0.8, 0.6], abs=1e-6)


def test_several_vectors_have_an_answer_each(reader: Index) -> None:
    answers = reader.search_vectors(AXES[::-1], k=1)

    assert [hits[0].chunk_id for hits in answers] == ["d", "c", "b", "a"]
    assert reader.search_vectors(np.zeros((0, 4)), k=1) == []


def test_a_condition_holds_for_vectors_too(reader: Index) -> None:
    [hits] = reader.search_vectors([[1, 0, 0, 0]], k=9, where='n >= 2 and doc_id == "y"')

    assert [hit.chunk_id for hit in hits] == ["c", "d"]
    assert reader.schema == {"doc_id": "string", "n": "int"}


def test_a_field_called_heading_is_one_like_any_other_where_there_are_no_headings(tmp_path: Path) -> None:
    with RowWriter(tmp_path / "index", 2) as writer:
        metadata = [{"heading": "h", "doc_id": "m"}, {"heading": "i", "doc_id": "n"}]
        writer.add_vectors(["a", "b"], np.eye(2), metadata=metadata, doc_ids=["x", "y"])
        writer.commit()
    reader = Index(tmp_path / "index")

    def found(where: str) -> list[str]:
        return [hit.chunk_id for hit in reader.search_vectors([[1.0, 1.0]], where=where)[0]]

    assert reader.schema == {"doc_id": "string", "metadata.doc_id": "string", "heading": "string"}
    assert (found('heading == "h"'), found('doc_id == "y"'), found('metadata.doc_id == "m"')) == (["a"], ["b"], ["a"])
    assert reader.search_vectors([[1.0, 0.0]], k=1)[0][0].metadata == {"heading": "h", "doc_id": "m"}


def test_of_a_corpus_the_built_in_names_mean_what_they_mean_in_a_hit(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "corpus").mkdir()
    fields = "---\nheading: own\nmetadata.heading: odd\n---\n"
    (tmp_path / "corpus" / "a.md").write_text(f"{fields}# Top\n\nWhat is told.\n")
    ragidx.build(tmp_path / "corpus", tmp_path / "index", model=str(tiny_model("llama")), method="classical")
    reader = Index(tmp_path / "index")
    [[hit]] = reader.search_vectors(np.ones((1, reader.info().dim)))

    def matches(where: str) -> bool:
        return len(reader.search_vectors(np.ones((1, reader.info().dim)), where=where)[0]) == 1

    assert (hit.heading, hit.metadata["heading"], hit.metadata["metadata.heading"]) == ("Top", "own", "odd")
    assert matches('heading == "Top" and metadata.heading == "odd" and metadata.metadata.heading == "own"')
    assert not matches('heading == "own"')


@pytest.mark.parametrize("seed", range(3))
def test_wide_query_vectors_are_cut_as_the_vectors_were_when_the_index_was_shrunk(seed: int, tmp_path: Path) -> None:
    chance = np.random.default_rng(seed)
    vectors, queries = chance.standard_normal((40, 12)), chance.standard_normal((5, 12))
    for name, width in (("wide", 12), ("cut", 5)):
        with RowWriter(tmp_path / name, width) as writer:
            writer.add_vectors(range(40), vectors[:, :width])
            writer.commit()
    shrink(tmp_path / "wide", dim=5)
    reader, other = Index(tmp_path / "wide"), Index(tmp_path / "cut")

    cut, narrow, made_so = (
        [[(hit.chunk_id, hit.score) for hit in hits] for hits in found]
        for found in (
            reader.search_vectors(queries, 9),
            reader.search_vectors(queries[:, :5], 9),
            other.search_vectors(queries[:, :5], 9),
        )
    )
    for one, same, near in zip(cut, narrow, made_so, strict=True):
        assert [name for name, _ in one] == [name for name, _ in same]
        assert [score for _, score in one] == pytest.approx([score for _, score in same], abs=1e-6)
        assert [score for _, score in one] == pytest.approx([score for _, score in near], abs=2e-3)  # rounded twice
    assert [len(found) for found in reader.rank_documents(vectors=queries, k=2)] == [2] * 5


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1.0], "the query's vector has 1 dimensions, those of the index have 2, and had 4 before they were cut"),
        ([0.0, 0.0, 1.0, 0.0], "the first 2 of 4 dimensions of the query's vector are zero"),
        ([0.0] * 4, "the query's vector is zero"),
        ([0.0, 1.0, np.inf, 0.0], "the query's vector holds a number that is not finite"),
    ],
)
def test_a_wide_query_vector_that_cannot_be_cut_is_an_error(vector: list[float], message: str, index: Path) -> None:
    Index(index).delete(["c", "d"])
    shrink(index, dim=2)

    with pytest.raises(QueryError, match=f"{message}\n"):
        Index(index).search_vectors([vector])


def test_documents_count_by_their_best_chunk(reader: Index) -> None:
    [found] = reader.rank_documents(vectors=[[0.6, 0.8, 0.0, 0.0]], k=2)

    assert found == [("x", pytest.approx(0.8, abs=1e-6)), ("y", 0.0)]


def test_a_width_compares_the_first_numbers_alone(index: Path) -> None:
    with RowWriter(index, 4) as writer:
        writer.add_vectors(["near"], [[0.1, 0.0, 0.0, 0.9]])
        writer.commit()
    reader = Index(index)

    [hits] = reader.search_vectors([[1.0, 0.0, 0.0, 0.0]], k=2, dim=2)
    [again] = reader.search_vectors([[1.0, 0.0, 0.0, 0.0]], k=2, dim=2, rerank_dim=4)

    assert {hit.chunk_id for hit in hits} == {"a", "near"}
    assert [hit.score for hit in hits] == pytest.approx([1, 1], abs=1e-3)
    assert [(hit.chunk_id, round(hit.score, 2)) for hit in again] == [("a", 1.0), ("near", 0.11)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_query_vectors_of_any_length_and_type_are_taken(dtype: type, reader: Index) -> None:
    [hits] = reader.search_vectors(np.array([[0, 50, 0, 0]], dtype), k=1)

    assert (hits[0].chunk_id, hits[0].score) == ("b", 1.0)


@pytest.mark.parametrize(
    ("vectors", "fault", "message"),
    [
        ([[0, 0, 0, 0]], QueryError, "the query's vector is zero\n  hint: give another vector"),
        (
            [[1, 0, 0, 0], [1, np.nan, 0, 0]],
            QueryError,
            "query 2: the query's vector holds a number that is not finite\n  hint: give another vector",
        ),
        (
            [[1.0, 0.0, 0.0]],
            QueryError,
            "{index}: the query's vector has 3 dimensions, those of the index have 4\n"
            "  hint: make it as the vectors of the index were made",
        ),
        ([1.0, 0.0, 0.0, 0.0], ValueError, "query vectors have the shape (4,) and hold float64, not (q, 4)"),
        ([["a", "b", "c", "d"]], ValueError, "query vectors have the shape (1, 4) and hold <U1, not (q, 4)"),
        (
            np.ma.array([[1, 1, 1, 1]], mask=[[0, 0, 0, 1]]),
            ValueError,
            "some of the query vectors are masked: leave them out, or fill them",
        ),
    ],
)
def test_what_is_no_query_vector_is_an_error(vectors: Any, fault: type[Exception], message: str, reader: Index) -> None:
    expected = message.format(index=reader.path)

    assert message_of(fault, lambda: reader.search_vectors(vectors)) == expected
    assert message_of(fault, lambda: reader.rank_documents(vectors=vectors)) == expected
    if np.ma.isMaskedArray(vectors):
        assert message_of(fault, lambda: reader.search(vector=vectors[0])) == expected


def test_an_instruction_for_a_vector_and_neither_question_nor_vector_are_mistakes(reader: Index) -> None:
    encoded = "an instruction is for a question that is encoded, and there is a vector"
    for ask, message in (
        (lambda: reader.search("who?", vector=AXES[0], instruction="Find it"), encoded),
        (lambda: reader.rank_documents(vectors=AXES, instruction="Find it"), encoded),
        (reader.search, "give a question, or a vector"),
        (reader.rank_documents, "give a question, or a vector"),
    ):
        assert message_of(TypeError, ask) == message


def test_a_question_may_come_with_its_vector_where_no_model_encodes_it(reader: Index) -> None:
    axis = AXES[0]
    by_words, by_vector = reader.search("four"), reader.search(vector=axis)
    assert [hit.text for hit in by_words] == ["four"]

    assert reader.search("four", vector=axis) == reader.search("four", vector=axis, mode="hybrid")
    assert reader.search("four", vector=axis, mode="dense") == by_vector
    for weight, first in ((0, by_words), (1, by_vector)):
        assert reader.search("four", vector=axis, weight=weight)[0].chunk_id == first[0].chunk_id
    [hit] = reader.search("four", vector=axis, mode="lexical")
    assert (hit.score, hit.dense) == (by_words[0].score, reader.search(vector=axis, where="doc_id == 'y'")[0].score)
    with pytest.raises(QueryError, match="the query is empty"):
        reader.search(" ", vector=axis)
    with pytest.raises(ValueError, match="4 vectors for 1 questions"):
        reader.rank_documents(["four"], vectors=AXES)


def test_documents_of_given_vectors_have_the_texts_of_their_rows_wherever_these_are(index: Path) -> None:
    reader = Index(index)
    with reader.batch() as batch:
        batch.add_vectors(["a"], AXES[:1], texts=["a changed text"], doc_ids=["x"])

    assert [(one.id, one.text) for one in reader.documents()] == [("x", "two\na changed text"), ("y", "four")]
    assert reader.get(["x"])[0].text == "two\na changed text"


def test_an_index_opens_on_a_device_and_is_refused_on_one_that_there_is_not(index: Path) -> None:
    for device in ("cpu", "auto", "mps"):
        assert Index(index, device=device).info().segments
    with pytest.raises(SpecError, match="unknown device 'gpu'"):
        Index(index, device="gpu")


def test_rows_come_by_id_in_the_order_asked_for(reader: Index) -> None:
    assert [(row.chunk_id, row.text) for row in contents.rows(reader.searcher.store, ["d", "a", "d"])] == [
        ("d", "four"),
        ("a", "one"),
        ("d", "four"),
    ]
    assert [row.chunk_id for row in contents.rows(reader.searcher.store, document="x")] == ["a", "b"]
    assert contents.rows(reader.searcher.store, []) == []


def test_an_id_that_the_index_does_not_have_is_an_error(reader: Index) -> None:
    hint = "ids are those that queries show"
    store = reader.searcher.store

    assert message_of(QueryError, lambda: contents.rows(store, ["a", "z", "zz"])) == (
        f"the index has no chunk 'z', and 1 more\n  hint: {hint}"
    )
    assert message_of(QueryError, lambda: contents.rows(store, document="a")) == (
        f"the index has no document 'a'\n  hint: {hint}"
    )
    with pytest.raises(TypeError, match="give ids of chunks, or a document's id"):
        reader.chunks(["a"], document="x")
    assert [chunk.text for chunk in reader.chunks()] == ["one", "two", "", "four"]
    with pytest.raises(TypeError, match="got one string"):
        contents.rows(reader.searcher.store, "a")


def test_a_reader_is_a_snapshot_and_refresh_gives_the_newest(index: Path) -> None:
    old, new = Index(index), Index(index)
    assert not old.refresh()
    with Index(index).batch() as batch:
        batch.delete(["a"])
        batch.add_vectors(["e"], [[1, 1, 0, 0]])

    assert new.refresh()

    assert (old.generation, old.info().n_chunks, old.search_vectors(AXES[:1], k=1)[0][0].chunk_id) == (1, 4, "a")
    assert (new.generation, new.info().n_chunks, new.search_vectors(AXES[:1], k=1)[0][0].chunk_id) == (2, 4, "e")
    with pytest.raises(QueryError, match="no chunk 'a'"):
        new.chunks(["a"])
    assert old.chunks(["a"])[0].text == "one"


def test_refresh_sees_an_index_that_was_made_anew_with_the_same_number(index: Path, tmp_path: Path) -> None:
    old = Index(index)
    index.rename(tmp_path / "away")
    with pytest.raises(IndexFormatError, match="there is no such folder"):
        old.refresh()
    with RowWriter(index, 2) as writer:
        writer.add_vectors(["only"], [[1, 1]])
        writer.commit()

    assert (old.generation, old.info().dim) == (1, 4)
    assert old.refresh()
    assert (old.generation, old.info().dim) == (1, 2)


def test_a_question_that_has_to_be_encoded_is_an_error_that_names_the_way(index: Path) -> None:
    assert message_of(ModelError, lambda: Index(index).search("who?", mode="dense")) == (
        f"{index}: the index holds precomputed vectors by 'hand': it has no model that encodes a text "
        "question\n"
        "  hint: ask it with a vector: ragidx query --vector, or Index.search_vectors; or name the model that made "
        "them when it is built: ragidx build --vectors FILE --model M --rebuild"
    )


@pytest.mark.slow
def test_a_retriever_finds_what_a_reader_finds_for_its_vectors(small_corpus: Path, tmp_path: Path) -> None:
    ragidx.build(small_corpus, tmp_path / "mini")
    retriever = Index(tmp_path / "mini")

    hits = Index(tmp_path / "mini").search_vectors(retriever.searcher.encode(["the old mill"]), k=6)

    assert hits == [retriever.search("the old mill", k=6, mode="dense")]
