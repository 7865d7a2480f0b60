"""The LangChain store: LangChain's own suite, what comes back, batches, threads, and folders opened as stores."""

from __future__ import annotations

import itertools
import math
import threading
from datetime import UTC, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("langchain_tests", reason="needs langchain-tests, of the extra 'test'")

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_tests.integration_tests import VectorStoreIntegrationTests

import ragidx
from ragidx.frameworks.langchain import RagidxVectorStore

EMBEDDING_24 = DeterministicFakeEmbedding(size=24)
EMBEDDING = DeterministicFakeEmbedding(size=6)
WORDS = ["mill", "river", "lease", "bees", "lake", "tower", "letter", "copper", "engine", "violin", "glacier", "senate"]


def store_in(folder: Path, with_embedding: bool = True) -> RagidxVectorStore:
    return RagidxVectorStore(folder / "index", EMBEDDING if with_embedding else None)


def opened(store: RagidxVectorStore) -> ragidx.Index:
    assert store.index is not None
    return store.index


class TestWithAnEmbedding(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> VectorStore:  # type: ignore[override]
        return RagidxVectorStore(tmp_path / "index", self.get_embeddings())


class TestWithTheModelOfTheIndex(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> VectorStore:  # type: ignore[override]
        return RagidxVectorStore(tmp_path / "index")


# -- what comes back -------------------------------------------------------------------------------------------------

TIMES = st.datetimes(timezones=st.sampled_from([None, UTC, timezone.max, timezone.min]))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "n": st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    "big": st.integers(2**63, 2**80),
    "text": TEXTS,
    "list": st.lists(TEXTS, max_size=3),
    "deep": st.lists(st.dictionaries(TEXTS, st.none() | st.lists(TEXTS, max_size=2)), min_size=1, max_size=2),
    "when": TIMES.filter(lambda time: 2 < time.year < 9998),
    "doc_id": TEXTS,
    "heading": TEXTS,
    "file.path": TEXTS,
    "source": TEXTS,
    "`a\\": TEXTS,
}
METADATA = st.fixed_dictionaries({}, optional={name: st.none() | values for name, values in VALUES.items()})


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, RagidxVectorStore]:
    return {with_one: store_in(tmp_path_factory.mktemp("kept"), with_one) for with_one in (True, False)}


@pytest.mark.slow
@pytest.mark.parametrize("with_embedding", [True, False])
@settings(max_examples=10, phases=[Phase.generate])
@given(st.lists(st.tuples(TEXTS, METADATA), min_size=1, max_size=4))
def test_what_is_added_comes_back_equal(
    with_embedding: bool, stores: dict[bool, RagidxVectorStore], added: list[tuple[str, dict[str, Any]]]
) -> None:
    store = stores[with_embedding]
    texts = [text if with_embedding else f"mill {text}" for text, _ in added]  # a text of white space has no chunk
    metadatas = [metadata for _, metadata in added]

    ids = store.add_texts(texts, metadatas)

    documents = [Document(id=i, page_content=t, metadata=m) for i, t, m in zip(ids, texts, metadatas, strict=True)]
    assert store.get_by_ids(ids) == documents
    for document, metadata in zip(store.get_by_ids(ids), metadatas, strict=True):
        assert {name: type(value) for name, value in document.metadata.items()} == {
            name: type(value) for name, value in metadata.items()
        }
    # By words, too: of characters that the model does not know there is no vector.
    mode = {} if with_embedding else {"mode": "hybrid"}
    found = store.similarity_search("mill", k=opened(store).count(), **mode)
    assert [document for document in found if document.id in ids] == sorted(documents, key=found.index)


@pytest.mark.slow
def test_a_text_longer_than_the_model_reads_is_found_by_its_end_and_comes_back_whole_and_once(tmp_path: Path) -> None:
    store = store_in(tmp_path, with_embedding=False)
    long = Document(id="long", page_content=f"  {'The mill by the river. ' * 2000}{'A zebra met a quagga. ' * 2000}")
    short = [Document(id=word, page_content=f"The {word}.") for word in WORDS]

    store.add_documents([long, *short])

    assert len(opened(store).chunks(document="long")) > 1
    assert [len(opened(store).chunks(document=word)) for word in WORDS] == [1] * len(WORDS)
    assert store.similarity_search("the zebra and the quagga", k=1) == [long]
    assert sorted(document.id or "" for document in store.similarity_search("a mill", k=13)) == sorted([*WORDS, "long"])
    assert store.similarity_search("a mill by the river", k=2)[0] == long


def test_documents_that_were_given_are_not_changed_and_ids_may_be_named_twice(tmp_path: Path) -> None:
    store, document = store_in(tmp_path), Document(page_content="one", metadata={"n": 1})

    ids = store.add_documents([document, Document(id="own", page_content="two")], ids=[None, "named"])  # type: ignore[list-item]
    store.add_documents([Document(id="own", page_content="three")], ids=None)
    twice = store.add_texts(["early", "late"], ids=["x", "x"])

    assert (document.id, document.metadata) == (None, {"n": 1})
    assert (len(ids[0]), ids[1], twice) == (36, "named", ["x", "x"])
    assert [one.page_content for one in store.get_by_ids([ids[0], "named", "own", "x", "none"])] == [
        "one",
        "two",
        "three",
        "late",
    ]


# -- the same answers as another store -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[RagidxVectorStore, InMemoryVectorStore]:
    """Ours and LangChain's own, with the same documents."""
    documents = [
        Document(id=f"{n}", page_content=f"{one} {other}", metadata={"n": n})
        for n, (one, other) in enumerate(itertools.product(WORDS, WORDS[:5]))
    ]
    ours = RagidxVectorStore(tmp_path_factory.mktemp("pair") / "index", EMBEDDING_24)
    theirs = InMemoryVectorStore(EMBEDDING_24)
    ours.add_documents(documents)
    theirs.add_documents(documents)
    return ours, theirs


def test_answers_and_cosines_are_those_of_langchains_own_store(
    pair: tuple[RagidxVectorStore, InMemoryVectorStore],
) -> None:
    ours, theirs = pair
    for query in WORDS:
        found, expected = ours.similarity_search_with_score(query, k=60), theirs.similarity_search_with_score(query, 60)
        cosines = {document.id: score for document, score in expected}
        assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-3)
        for (document, score), (other, _) in zip(found, expected, strict=True):
            assert score == pytest.approx(cosines[document.id], abs=1e-3)
            assert document == other or cosines[document.id] == pytest.approx(cosines[other.id], abs=1e-3)
        vector = EMBEDDING_24.embed_query(query)
        assert ours.similarity_search_by_vector(vector, k=5) == ours.similarity_search(query, k=5)
        assert ours.similarity_search_with_score_by_vector(vector, 3, filter={"n": {"$lt": 40}}) == (
            ours.similarity_search_with_score(query, 3, filter="n < 40")
        )


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 1.0])
def test_marginal_relevance_chooses_as_langchain_defines_it(
    pair: tuple[RagidxVectorStore, InMemoryVectorStore], weight: float
) -> None:
    ours, theirs = pair
    options: dict[str, Any] = {"k": 6, "fetch_k": 15, "lambda_mult": weight}

    for query in WORDS[:4]:
        found = ours.max_marginal_relevance_search(query, **options)
        asked = np.array(EMBEDDING_24.embed_query(query))
        assert found == ours.max_marginal_relevance_search_by_vector(asked.tolist(), **options)

        best = theirs.similarity_search(query, k=15)
        vectors = np.array(EMBEDDING_24.embed_documents([document.page_content for document in best]))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines, chosen = vectors @ asked / np.linalg.norm(asked), [best.index(document) for document in found]
        assert (len(set(chosen)), chosen[0]) == (6, 0)
        for place in range(1, 6):
            gains = weight * cosines - (1 - weight) * (vectors @ vectors[chosen[:place]].T).max(axis=1)
            assert gains[chosen[place]] >= np.delete(gains, chosen[:place]).max() - 2e-3  # of half precision


@pytest.mark.parametrize("search_type", ["similarity", "mmr", "similarity_score_threshold"])
async def test_a_filter_holds_in_every_search_of_a_retriever(
    pair: tuple[RagidxVectorStore, InMemoryVectorStore], search_type: str
) -> None:
    options: dict[str, Any] = {"k": 5, "filter": {"n": {"$gte": 50}}}
    if search_type == "similarity_score_threshold":
        options["score_threshold"] = 0.1
    retriever = pair[0].as_retriever(search_type=search_type, search_kwargs=options)

    found = retriever.invoke("mill")

    assert len(found) == 5
    assert min(document.metadata["n"] for document in found) >= 50
    assert await retriever.ainvoke("mill") == found
    assert pair[0].search("mill", search_type, **options) == found
    assert retriever.tags == ["RagidxVectorStore", "DeterministicFakeEmbedding"]


def test_relevance_is_of_the_cosine_and_a_threshold_cuts_by_it(
    pair: tuple[RagidxVectorStore, InMemoryVectorStore],
) -> None:
    store = pair[0]
    scored = store.similarity_search_with_score("river", k=60)

    relevant = store.similarity_search_with_relevance_scores("river", k=60)
    above = store.similarity_search_with_relevance_scores("river", k=60, score_threshold=0.5, filter={"n": {"$ne": 3}})

    assert [score for _, score in relevant] == pytest.approx([(1 + cosine) / 2 for _, cosine in scored])
    assert [one for one, _ in above] == [one for one, cosine in scored if cosine >= 0 and one.metadata["n"] != 3]
    same, score = store.similarity_search_with_relevance_scores("mill mill", k=1)[0]
    assert same.page_content == "mill mill"
    assert 0.999 < score <= 1


# -- changes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_embedding", [True, False])
def test_a_batch_is_one_commit_or_none(tmp_path: Path, with_embedding: bool) -> None:
    store = store_in(tmp_path, with_embedding)
    store.add_texts(["old", "other"], [{"n": 1}, {"n": 2}], ids=["old", "other"])
    before = opened(store).generation

    with store.batch() as batch:
        batch.add_texts(["one", "two"], ids=["1", "2"])
        batch.add_documents([Document(id="3", page_content="three", metadata={"n": 3})])
        batch.delete(["old", "2", "nothing"])
        batch.delete(filter={"n": {"$gte": 2}})
        assert [one.id for one in store.get_by_ids(["old", "1"])] == ["old"]
    with pytest.raises(RuntimeError, match="halt"), store.batch() as failed:  # noqa: PT012
        failed.add_texts(["four"], ids=["4"])
        raise RuntimeError("halt")
    with pytest.raises(ValueError, match="the batch has ended; begin another one"):
        batch.add_texts(["late"])

    assert opened(store).generation == before + 1
    assert [one.id for one in store.get_by_ids(["old", "other", "1", "2", "3", "4"])] == ["1", "3"]


@pytest.mark.slow
@pytest.mark.parametrize("with_embedding", [True, False])
def test_threads_that_add_at_once_lose_nothing(tmp_path: Path, with_embedding: bool) -> None:
    stores = [store_in(tmp_path, with_embedding) for _ in range(2)]
    faults: list[BaseException] = []

    def add(store: RagidxVectorStore, name: str) -> None:
        try:
            for number in range(3):
                store.add_texts(
                    [f"{name} {number}", f"{name} mill {number}"], ids=[f"{name}{number}a", f"{name}{number}b"]
                )
        except BaseException as fault:  # noqa: BLE001
            faults.append(fault)

    threads = [threading.Thread(target=add, args=(stores[n % 2], name)) for n, name in enumerate(("x", "y", "z"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    again = store_in(tmp_path, with_embedding)
    assert faults == []
    assert opened(again).count() == 18
    assert len(again.similarity_search("x 1", k=30)) == 18


async def test_an_embedding_that_is_asynchronous_is_awaited(tmp_path: Path) -> None:
    class Asynchronous(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise AssertionError

        def embed_query(self, text: str) -> list[float]:
            raise AssertionError

        async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
            assert len(texts) <= 2
            return EMBEDDING.embed_documents(texts)

        async def aembed_query(self, text: str) -> list[float]:
            return EMBEDDING.embed_query(text)

    documents = [Document(id=word, page_content=word) for word in WORDS[:5]]
    options: dict[str, Any] = {"index": tmp_path / "index", "batch_size": 2}

    store = await RagidxVectorStore.afrom_documents(documents, Asynchronous(), **options)
    await store.aadd_documents([Document(id="x", page_content="x")])

    assert (await store.asimilarity_search("lake", k=1)) == [documents[4]]
    [(found, score)] = await store.asimilarity_search_with_score("lake", k=1)
    assert (found.id, round(score, 2)) == ("lake", 1)
    assert len(await store.amax_marginal_relevance_search("lake", k=3)) == 3
    assert await store.adelete(["x"])
    assert await store.aget_by_ids(["x", "mill"]) == [documents[0]]


@pytest.mark.slow
def test_langchains_own_indexing_adds_skips_and_cleans_up(tmp_path: Path) -> None:
    store, records = store_in(tmp_path), InMemoryRecordManager(namespace="a")
    records.create_schema()
    documents = [Document(page_content=word, metadata={"source": word}) for word in WORDS]
    options: dict[str, Any] = {"source_id_key": "source", "key_encoder": "sha256"}

    added = index(documents, records, store, cleanup="full", batch_size=5, **options)
    again = index(documents[:4], records, store, cleanup="full", **options)

    assert (added["num_added"], again["num_skipped"], again["num_deleted"]) == (12, 4, 8)
    assert sorted(one.page_content for one in store.similarity_search("mill", k=99)) == sorted(WORDS[:4])


def test_from_documents_and_from_texts_make_a_store_or_add_to_one(tmp_path: Path) -> None:
    made = RagidxVectorStore.from_documents([Document(id="a", page_content="mill")], EMBEDDING, index=tmp_path / "i")
    RagidxVectorStore.from_texts(["lake"], EMBEDDING, [{"n": 1}], ids=["b"], index=opened(made))

    assert [one.id for one in made.get_by_ids(["a", "b"])] == ["a", "b"]
    assert math.isclose(made.similarity_search_with_score("lake", k=1)[0][1], 1, abs_tol=1e-3)
    assert made.embeddings is EMBEDDING


def test_a_title_in_the_metadata_finds_its_document_which_comes_back_as_it_was() -> None:
    titles = [{"title": "Owls"}, {"title": "Bees"}, {}]
    store = RagidxVectorStore.from_texts(["They hunt at night.", "They dance.", "They do."], metadatas=titles)

    (found,) = store.similarity_search("owls", k=1)

    assert (found.page_content, found.metadata["title"]) == ("They hunt at night.", "Owls")
    assert {chunk.heading for chunk in opened(store).chunks()} == {"Owls", "Bees", ""}
