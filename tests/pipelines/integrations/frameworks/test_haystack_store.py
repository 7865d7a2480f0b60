"""The document store for Haystack: Haystack's own tests of stores, sync and async, and what they do not ask."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # before the import, which reads it
pytest.importorskip("haystack", reason="the extra 'haystack' is not installed")

from haystack import Document, Pipeline
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy
from haystack.testing import document_store as sync_tests
from haystack.testing import document_store_async as async_tests

import ragidx
from ragidx.frameworks.haystack import RagidxDocumentStore, RagidxEmbeddingRetriever, RagidxRetriever


def assert_equal(received: list[Document], expected: list[Document]) -> None:
    """In the same order, equal but for embeddings: half precision keeps their direction and length nearly."""
    assert len(received) == len(expected)
    for got, written in zip(received, expected, strict=True):
        assert got.to_dict(flatten=False) | {"embedding": None} == written.to_dict(flatten=False) | {"embedding": None}
        assert (got.embedding is None) == (written.embedding is None)
        if written.embedding is not None:
            difference = np.linalg.norm(np.subtract(got.embedding, written.embedding))
            assert difference < 2e-3 * np.linalg.norm(written.embedding)


class Nearly:
    """For Haystack's tests: documents are equal as `assert_equal` says."""

    @staticmethod
    def assert_documents_are_equal(received: list[Document], expected: list[Document]) -> None:
        assert_equal(received, expected)

    @pytest.fixture
    def document_store(self, tmp_path: Path) -> RagidxDocumentStore:
        return RagidxDocumentStore(tmp_path / "store", embedding_dim=768)


@pytest.mark.slow
class TestStore(
    Nearly,
    sync_tests.DocumentStoreBaseExtendedTests,
    sync_tests.CountDocumentsByFilterTest,
    sync_tests.CountUniqueMetadataByFilterTest,
    sync_tests.GetMetadataFieldsInfoTest,
    sync_tests.GetMetadataFieldMinMaxTest,
    sync_tests.GetMetadataFieldUniqueValuesTest,
):
    def test_write_documents(self, document_store: RagidxDocumentStore) -> None:  # type: ignore[override]
        """Without a policy an id that is there is an error; nothing of the call is written."""
        first, second = Document(content="one"), Document(content="two")
        assert document_store.write_documents([first]) == 1

        with pytest.raises(DuplicateDocumentError, match="already exists; nothing was written"):
            document_store.write_documents([second, first])

        assert_equal(document_store.filter_documents(), [first])


@pytest.mark.slow
class TestStoreAsync(
    Nearly,
    async_tests.CountDocumentsAsyncTest,
    async_tests.WriteDocumentsAsyncTest,
    async_tests.DeleteDocumentsAsyncTest,
    async_tests.DeleteAllAsyncTest,
    async_tests.DeleteByFilterAsyncTest,
    async_tests.UpdateByFilterAsyncTest,
    async_tests.FilterDocumentsAsyncTest,
    async_tests.CountDocumentsByFilterAsyncTest,
    async_tests.CountUniqueMetadataByFilterAsyncTest,
    async_tests.GetMetadataFieldsInfoAsyncTest,
    async_tests.GetMetadataFieldMinMaxAsyncTest,
    async_tests.GetMetadataFieldUniqueValuesAsyncTest,
):
    async def test_write_documents_async(self, document_store: RagidxDocumentStore) -> None:  # type: ignore[override]
        document = Document(content="one")
        assert await document_store.write_documents_async([document]) == 1

        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])


@pytest.fixture
def store(tmp_path: Path) -> RagidxDocumentStore:
    return RagidxDocumentStore(tmp_path / "store", embedding_dim=3)


HARD = Document(
    id='odd "id"\n',
    content="Ünï\n\ttext ",
    meta={
        "page": "100",
        "nothing": None,
        "when": datetime(2024, 1, 31, tzinfo=UTC),
        "bare time": datetime(2024, 1, 31),
        "_split_overlap": [{"doc_id": "a", "range": (0, 23)}],
        "empty": [],
        "tags": ["a", "b"],
        "dict": {"tuple": [1], "deep": {"x": None}},
        "big": 2**70,
        "infinite": float("inf"),
        "a.b": 1,
        "haystack.bare": "mine",
        "doc_id": "mine",
        "heading": "H",
        "": "no name",
        "`": 1,
    },
    score=0.25,
    embedding=[3.0, 0.0, 4.0],
)


@pytest.mark.slow
def test_documents_come_back_as_they_were(store: RagidxDocumentStore) -> None:
    others = [Document(content=""), Document(content=None, meta={"n": 1}), Document(id="c", meta={"n": "1"})]
    store.write_documents([HARD, *others])

    read = RagidxDocumentStore(store.index.path if store.index else "").filter_documents()

    assert_equal(read, [HARD, *others])
    assert read[0].meta["_split_overlap"][0]["range"] == (0, 23)
    assert type(read[2].meta["n"]) is int
    assert type(read[3].meta["n"]) is str
    assert read[0].embedding == pytest.approx([3, 0, 4], abs=5e-3)  # of its own length again


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (Document(id="a", blob=ByteStream(b"x"), embedding=[1, 0, 0]), "document has a blob, which an index cannot"),
        (Document(id="a", sparse_embedding=SparseEmbedding([1], [1.0])), "document has a sparse_embedding, which"),
        (Document(id="a", meta={"x": {1, 2}}), "has meta 'x' that cannot be kept: it holds a set"),
        (Document(id="a", meta={"x": {3: 4}}), "holds a dict with names that are no text"),
        (Document(id="a", meta={3: 4}), "has meta whose name 3 is no text"),
        (Document(id="a", embedding=[1, 0]), "has an embedding of 2 dimensions, and the store of 3"),
        (Document(id="a", embedding=[float("nan"), 0, 0]), "finite"),
    ],
)
def test_what_cannot_be_held_is_refused_by_name_and_nothing_is_written(
    store: RagidxDocumentStore, document: Document, why: str
) -> None:
    with pytest.raises(ragidx.CorpusError, match=why) as refused:
        store.write_documents([Document(id="b", embedding=[1, 0, 0]), document])

    assert "a" in str(refused.value.where)
    assert store.count_documents() == 0


def test_an_id_that_is_no_text_is_refused(store: RagidxDocumentStore) -> None:
    with pytest.raises(ragidx.CorpusError, match="has an id of type int"):
        store.write_documents([Document(id=5, embedding=[1, 0, 0])])  # type: ignore[arg-type]


def test_the_first_embedding_decides_the_width_where_none_is_said(tmp_path: Path) -> None:
    store = RagidxDocumentStore(tmp_path / "store")
    with pytest.raises(ragidx.SpecError, match="width is not known"):
        store.write_documents([Document(content="x")])
    assert store.index is None

    store.write_documents([Document(content="x"), Document(content="y", embedding=[1.0, 2.0])])

    assert store.index is not None
    assert store.index.info().dim == 2
    with pytest.raises(ragidx.SpecError, match="embedding_dim is 3, and the index holds embeddings of 2"):
        RagidxDocumentStore(tmp_path / "store", embedding_dim=3)


def test_an_index_with_several_rows_of_a_document_is_refused(tmp_path: Path) -> None:
    ragidx.Index.create(tmp_path / "rows", dim=2).add_vectors(["a", "b"], [[1, 0], [0, 1]], doc_ids=["d", "d"])

    with pytest.raises(ragidx.SpecError, match="several vectors"):
        RagidxDocumentStore(tmp_path / "rows")


def test_policies_count_what_they_write(store: RagidxDocumentStore) -> None:
    first, again, other = (Document(id=i, content=c, embedding=[1, 0, 0]) for i, c in ("ax", "ay", "bz"))
    assert store.write_documents([first], DuplicatePolicy.SKIP) == 1
    assert store.write_documents([again, other, other], DuplicatePolicy.SKIP) == 1
    assert [one.content for one in store.filter_documents()] == ["x", "z"]
    with pytest.raises(DuplicateDocumentError):
        store.write_documents([Document(id="c"), Document(id="c")], DuplicatePolicy.FAIL)

    assert store.write_documents([again], DuplicatePolicy.OVERWRITE) == 1

    assert {one.content for one in store.filter_documents()} == {"y", "z"}


def test_updates_keep_embeddings_to_the_bit_and_change_the_type_of_a_field(store: RagidxDocumentStore) -> None:
    store.write_documents([Document(id=i, meta={"n": 1}, embedding=e) for i, e in (("a", [3, 1, 4]), ("b", None))])
    before = store.filter_documents()

    assert store.update_by_filter({"field": "meta.n", "operator": "==", "value": 1}, {"n": "two", "new": [1]}) == 2

    after = store.filter_documents({"field": "meta.n", "operator": "==", "value": "two"})
    assert [one.meta for one in after] == [{"n": "two", "new": [1]}] * 2
    assert [one.embedding for one in after] == [one.embedding for one in before]


def test_a_search_passes_over_documents_without_embeddings_and_asks_by_filters(store: RagidxDocumentStore) -> None:
    vectors = {"a": [1.0, 0, 0], "b": [0, 2.0, 0], "c": [0.7, 0.7, 0], "none": None}
    store.write_documents([Document(id=i, meta={"n": {"m": i}, "k": i}, embedding=e) for i, e in vectors.items()])
    retriever = RagidxEmbeddingRetriever(store)
    first = {"field": "meta.k", "operator": "!=", "value": "a"}
    deep = {"field": "meta.n.m", "operator": "!=", "value": "a"}  # no condition says this

    found = retriever.run([1.0, 0.1, 0])["documents"]

    assert [one.id for one in found] == ["a", "c", "b"]
    assert found[0].score == pytest.approx(1 / 1.01**0.5, abs=1e-3)
    assert found[0].embedding is None
    for filters in (first, deep):
        some = store.embedding_retrieval([1.0, 0.1, 0], filters, 2, return_embedding=True)
        assert [one.id for one in some] == ["c", "b"]
        assert some[0].score == pytest.approx(found[1].score, abs=1e-3)
        assert some[1].embedding == pytest.approx([0, 2, 0], abs=4e-3)
    for vector in ([0, 0, 0], [1, 0]):
        with pytest.raises(ragidx.QueryError, match="not 3 finite numbers"):
            retriever.run(vector)
    with pytest.raises(ValueError, match="top_k is 0"):
        retriever.run([1, 0, 0], top_k=0)


def test_values_and_types_of_fields_whatever_they_are_called_and_hold(store: RagidxDocumentStore) -> None:
    one = {"text": "x", "n": 1, "tags": ["p", "q"], "share": 0.5}
    other = {"text": "y", "n": "1", "tags": ["p"], "of": {"m": 1}}
    store.write_documents([Document(content="c", meta=one), Document(content="c", meta=other)])

    found = {name: store.get_metadata_field_unique_values(name)[0] for name in ("text", "n", "tags", "meta.of", "no")}
    assert found == {"text": ["x", "y"], "n": [1, "1"], "tags": [["p", "q"], ["p"]], "meta.of": [{"m": 1}], "no": []}
    first = {"field": "meta.n", "operator": "==", "value": 1}
    assert store.count_unique_metadata_by_filter(first, ["text", "tags", "of"]) == {"text": 1, "tags": 1, "of": 0}
    types = {"text": "keyword", "n": "int", "tags": "keyword", "share": "float", "of": "keyword"}
    assert store.get_metadata_fields_info() == {name: {"type": kind} for name, kind in types.items()}


async def test_a_retriever_works_asynchronously(store: RagidxDocumentStore) -> None:
    await store.write_documents_async([Document(id="a", embedding=[1, 0, 0])])

    assert [one.id for one in (await RagidxEmbeddingRetriever(store).run_async([1, 0, 0]))["documents"]] == ["a"]


def test_the_words_of_a_store_are_found_by_the_other_retriever(store: RagidxDocumentStore, tmp_path: Path) -> None:
    store.write_documents([Document(id="b", content="the tower", meta={"n": 2})])

    found = RagidxRetriever(tmp_path / "store").run("tower", {"field": "meta.n", "operator": "==", "value": 2})

    assert [one.content for one in found["documents"]] == ["the tower"]


def test_an_embedding_of_zeros_comes_back_and_no_filter_or_update_trips_over_it(store: RagidxDocumentStore) -> None:
    store.write_documents([Document(id="a", embedding=[3.0, 4.0, 0.0]), Document(id="b", embedding=[0.0, 0.0, 0.0])])

    bare = {"field": "content", "operator": "!=", "value": "x"}  # asked of every document
    found = RagidxEmbeddingRetriever(store, top_k=9).run([1.0, 0.0, 0.0], filters=bare)["documents"]
    assert [one.id for one in found] == ["a"]
    assert store.update_by_filter({"field": "id", "operator": "==", "value": "b"}, {"n": 1}) == 1
    read = {one.id: one.embedding for one in store.filter_documents()}
    assert read == {"a": pytest.approx([3, 4, 0], abs=1e-2), "b": [0.0, 0.0, 0.0]}


@pytest.mark.slow
def test_a_pipeline_of_the_store_is_written_and_read(store: RagidxDocumentStore) -> None:
    store.write_documents([Document(id="a", content="mill", meta={"n": 1}, embedding=[1, 0, 0])])
    only = {"field": "meta.n", "operator": "==", "value": 1}
    pipeline = Pipeline()
    retriever = RagidxEmbeddingRetriever(store, filters=only, top_k=3, filter_policy=FilterPolicy.MERGE)
    pipeline.add_component("retriever", retriever)

    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["ragidx.*"])

    assert again.dumps() == pipeline.dumps()
    assert again.get_component("retriever").filter_policy is FilterPolicy.MERGE
    found = again.run({"retriever": {"query_embedding": [1.0, 0, 0]}})["retriever"]["documents"]
    assert [one.content for one in found] == ["mill"]
    with pytest.raises(TypeError, match="document_store is a str"):
        RagidxEmbeddingRetriever("store")  # type: ignore[arg-type]


def test_options_of_the_index_are_those_of_create(tmp_path: Path) -> None:
    store = RagidxDocumentStore(tmp_path / "store", index_options={"index_type": "hnsw"})
    store.write_documents([Document(id="a", embedding=[1, 0, 0])])

    assert store.index is not None
    assert store.index.info().index.index_type == "hnsw"
    assert RagidxDocumentStore.from_dict(store.to_dict()).count_documents() == 1
