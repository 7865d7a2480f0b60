"""The framework adapter for LlamaIndex: the store's members, the retriever, embeddings, and LlamaIndex above them.

What filters find is in test_llamaindex_filters.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx

pytest.importorskip("llama_index.core", reason="needs the extra 'llamaindex'")

from llama_index.core import Document, QueryBundle, StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import (
    BaseNode,
    ImageNode,
    IndexNode,
    MediaResource,
    MetadataMode,
    Node,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from ragidx.frameworks.llamaindex import RagidxEmbedding, RagidxRetriever, RagidxVectorStore

FACTS = [
    ("lease", "The lease of the house by the lake was signed by Ada Lovelace.", {"year": 1840, "subject": "law"}),
    ("mill", "The old mill is where the river reaches the sea.", {"year": 1790, "subject": "history"}),
    ("bees", "Bees dance to tell where the flowers are.", {"year": 1946, "subject": "biology"}),
]


class Letters(BaseEmbedding):
    """A text's vector is how often it has each of the first eight letters."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return [1 + text.lower().count(letter) for letter in "abcdefgh"]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def node(name: str, document: str | None = None, *, vector: Any = (1.0, 2.0), **metadata: Any) -> TextNode:
    relationships = {} if document is None else {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)}
    return TextNode(
        id_=name, text=f"text of {name}", metadata=metadata, embedding=list(vector), relationships=relationships
    )


@pytest.fixture
def store(tmp_path: Path) -> RagidxVectorStore:
    """With two nodes of `d1`, one of `d2`, and one without a document."""
    store = RagidxVectorStore(index=tmp_path / "store")
    store.add([node("a", "d1", year=1), node("b", "d1", year=2), node("c", "d2"), node("d", vector=(2, 1))])
    return store


def held(store: RagidxVectorStore) -> list[str]:
    return sorted(found.node_id for found in store.get_nodes())


ALL_KINDS: list[BaseNode] = [
    TextNode(
        id_="text",
        text=" a\r\n\tb ",
        metadata={"year": 1, "x": 0.1, "ok": True, "none": None, "tags": ["q"], "empty": [], "n": -(2**63), "ü`\\": ""},
        relationships={
            NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d", metadata={"deep": {"a": [1]}}, hash="h"),
            NodeRelationship.NEXT: RelatedNodeInfo(node_id="other"),
            NodeRelationship.CHILD: [RelatedNodeInfo(node_id="one"), RelatedNodeInfo(node_id="two")],
        },
        start_char_idx=3,
        end_char_idx=9,
        mimetype="text/html",
        excluded_llm_metadata_keys=["x"],
        text_template="{content}",
    ),
    TextNode(id_="nested", text="x", metadata={"deep": {"a": [1, {"b": None}]}, "mixed": [1, "x"], "big": 2**63}),
    TextNode(id_="no text", text="", metadata={"text": "t", "vector": "v", "line": 1, "heading": "h", "chunk_id": 5}),
    IndexNode(id_="index", text="an index", index_id="i7", metadata={"x": 5}),
    ImageNode(id_="image", text="a picture", image_url="http://localhost/x.png"),
    Node(id_="media", text_resource=MediaResource(text="some", mimetype="text/plain", url="http://localhost/x")),
    Node(id_="no media"),
]


@pytest.mark.parametrize("original", ALL_KINDS, ids=lambda node: node.node_id)
def test_a_node_comes_back_equal(original: BaseNode, tmp_path: Path) -> None:
    store = RagidxVectorStore(index=tmp_path / "store")
    copy = original.model_copy(update={"embedding": [1.0, 2.0]})

    assert store.add([copy]) == [original.node_id]

    assert RagidxVectorStore(index=tmp_path / "store").get_nodes() == [original]
    result = store.query(VectorStoreQuery(query_embedding=[2.0, 1.0], similarity_top_k=3))
    assert result.nodes == [original]
    assert result.ids == [original.node_id]
    assert result.similarities == pytest.approx([0.8], abs=1e-3)


def test_a_node_may_be_given_twice_and_nodes_come_back_in_the_order_of_the_ids(store: RagidxVectorStore) -> None:
    assert store.add([node("a", "d9", year=5), node("e"), node("e", year=7)]) == ["a", "e", "e"]

    assert held(store) == ["a", "b", "c", "d", "e"]
    assert [(found.ref_doc_id, found.metadata) for found in store.get_nodes(["e", "none", "a"])] == [
        (None, {"year": 7}),
        ("d9", {"year": 5}),
    ]


def test_the_nodes_of_a_document_are_deleted_and_of_none_nothing(store: RagidxVectorStore) -> None:
    store.add([node("d1"), node("d3", "a")])  # a node that is called like a document, and one of a node
    for name in (None, "None", "nothing", "d"):
        store.delete(name)  # type: ignore[arg-type]
    assert held(store) == ["a", "b", "c", "d", "d1", "d3"]

    store.delete("d1")
    assert held(store) == ["c", "d", "d1", "d3"]
    store.delete("a")
    assert held(store) == ["c", "d", "d1"]


def test_nodes_are_deleted_by_id_and_all_of_them_only_by_clear(store: RagidxVectorStore) -> None:
    store.add([node("d1")])
    store.delete_nodes(["d1", "none"])  # and not the nodes of the document d1
    store.delete_nodes([])
    with pytest.raises(ValueError, match="call clear"):
        store.delete_nodes()
    with pytest.raises(ValueError, match="call clear"):
        store.delete_nodes(filters=MetadataFilters(filters=[]))
    assert held(store) == ["a", "b", "c", "d"]

    store.clear()
    assert held(store) == []
    assert store.query(VectorStoreQuery(query_embedding=[1.0, 1.0])).ids == []
    store.add([node("z")])
    assert held(store) == ["z"]


def test_options_are_those_of_the_index_that_the_first_add_makes(tmp_path: Path) -> None:
    store = RagidxVectorStore(index=tmp_path / "store", lexical=False)
    store.delete("d1")
    store.clear()
    assert not (tmp_path / "store").exists()

    store.add([node("a")])

    assert store.client is not None
    assert store.client.info().index.lexical == "off"


def test_a_store_is_written_down_and_made_again(store: RagidxVectorStore, tmp_path: Path) -> None:
    written = store.to_dict()
    store.persist(str(tmp_path / "elsewhere"))

    assert held(RagidxVectorStore.from_dict(written)) == held(store)
    assert held(RagidxVectorStore(index=ragidx.Index(tmp_path / "store"))) == held(store)
    assert not (tmp_path / "elsewhere").exists()


async def test_async_members_do_what_the_others_do_in_another_thread(
    store: RagidxVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[int]()
    refresh = ragidx.Index.refresh
    monkeypatch.setattr(
        ragidx.Index, "refresh", lambda index: (threads.append(threading.get_ident()), refresh(index))[1]
    )

    assert await store.async_add([node("e", "d5")]) == ["e"]
    assert [found.node_id for found in await store.aget_nodes(["e", "d"])] == ["e", "d"]
    assert (await store.aquery(VectorStoreQuery(query_embedding=[2.0, 1.0]))).ids == ["d"]
    await store.adelete("d5")
    await store.adelete_nodes(["d"])
    assert [found.node_id for found in await store.aget_nodes()] == ["a", "b", "c"]
    await store.aclear()
    assert await store.aget_nodes() == []
    assert threading.get_ident() not in threads
    assert len(threads) > 8


NAMED = {"mode": VectorStoreQueryMode.DEFAULT, "query_embedding": [1.0, 2.0], "query_str": "text"}


@pytest.mark.parametrize("mode", [*VectorStoreQueryMode], ids=lambda mode: mode.name)
def test_a_mode_is_served_or_refused_by_name(mode: VectorStoreQueryMode, store: RagidxVectorStore) -> None:
    query = VectorStoreQuery(**NAMED | {"mode": mode}, similarity_top_k=2)

    if mode.name in ("DEFAULT", "MMR", "HYBRID", "TEXT_SEARCH", "SPARSE"):
        assert len(store.query(query).ids or ()) == 2
    else:
        with pytest.raises(
            ValueError, match=f"no query mode {mode.name}: it has DEFAULT, MMR, HYBRID, TEXT_SEARCH, SPARSE"
        ):
            store.query(query)


@pytest.mark.parametrize("mode", [VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR])
def test_a_field_vector_hides_no_vectors(mode: VectorStoreQueryMode, store: RagidxVectorStore) -> None:
    made = node("e")
    made.metadata["vector"] = "v"
    store.add([made])

    assert "e" in (store.query(VectorStoreQuery(**NAMED | {"mode": mode}, similarity_top_k=9)).ids or ())


@pytest.mark.parametrize("mode", [VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.SPARSE])
def test_text_search_finds_words(mode: VectorStoreQueryMode, store: RagidxVectorStore) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key="year", value=9, operator="!=")])

    result = store.query(VectorStoreQuery(query_str="text of b", mode=mode, filters=filters))

    assert result.ids == ["b"]
    assert result.similarities is not None
    assert result.similarities[0] > 0
    assert len(store.query(VectorStoreQuery(query_str="text of b", mode=mode, sparse_top_k=3)).ids or ()) == 3


def test_hybrid_search_weighs_vectors_and_words(store: RagidxVectorStore) -> None:
    """That it is the index's own is in test_stores.py."""
    store.add([node("zeros", vector=(0, 0))])  # no search by vectors finds it

    def found(alpha: float | None = None, **options: Any) -> list[str]:
        asked = {"query_embedding": [2.0, 1.0], "query_str": "b", "mode": VectorStoreQueryMode.HYBRID, "alpha": alpha}
        return list(store.query(VectorStoreQuery(**asked | {"similarity_top_k": 9} | options)).ids or ())

    assert (found(0)[0], found(1)[0]) == ("b", "d")
    assert sorted(found()) == ["a", "b", "c", "d"]
    assert found(0, hybrid_top_k=1, sparse_top_k=1) == ["b"]
    assert found(1, doc_ids=["d1"], node_ids=["b", "c"]) == ["b"]
    assert found(1, filters=MetadataFilters(filters=[MetadataFilter(key="year", value=1)])) == ["a"]


@pytest.mark.parametrize(
    ("asked", "options", "message"),
    [
        ({"alpha": 0.5}, {}, "no use for alpha"),
        ({"output_fields": ["year"]}, {}, "no use for output_fields"),
        ({"query_embedding": None}, {}, "DEFAULT needs query_embedding"),
        ({"query_str": None, "mode": VectorStoreQueryMode.TEXT_SEARCH}, {}, "TEXT_SEARCH needs query_str"),
        ({"query_str": None, "mode": VectorStoreQueryMode.HYBRID}, {}, "HYBRID needs query_str"),
        ({"query_embedding": None, "mode": VectorStoreQueryMode.HYBRID}, {}, "HYBRID needs query_embedding"),
        ({"alpha": 2.0, "mode": VectorStoreQueryMode.HYBRID}, {}, "alpha is 2.0, and goes from 0, words alone, to 1"),
        ({"sparse_top_k": 5}, {}, "no use for sparse_top_k"),
        ({}, {"mmr_threshold": 0.5}, "mode DEFAULT has no option 'mmr_threshold'"),
        ({"mode": VectorStoreQueryMode.MMR}, {"prefetch": 5}, "mode MMR has no option 'prefetch'"),
        ({"query_embedding": [0.0, 0.0]}, {}, "zero"),
        ({"query_embedding": [1.0]}, {}, "1"),
        ({"similarity_top_k": 0}, {}, "k=0 asks for no hit"),
    ],
)
def test_what_a_query_cannot_have_is_refused(
    asked: dict[str, Any], options: dict[str, Any], message: str, store: RagidxVectorStore
) -> None:
    with pytest.raises((ValueError, TypeError, ragidx.QueryError), match=message):
        store.query(VectorStoreQuery(**NAMED | asked), **options)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"year": "1990"}, "'year' holds values of the type int in this index, and this is a string"),
        ({"year": True}, "and this is a bool"),
        ({"year": [1, 2]}, "and this is a string"),
        ({"_node_id": "x"}, "the store's own"),
        ({"x": float("nan")}, "not a finite number"),
        ({"x": [{"y": float("inf")}]}, "not a finite number"),
    ],
)
def test_metadata_that_filters_cannot_be_asked_of_are_refused_with_the_node(
    metadata: dict[str, Any], message: str, store: RagidxVectorStore
) -> None:
    with pytest.raises(ragidx.CorpusError, match=message) as fault:
        store.add([node("fine"), node("odd", **metadata)])

    assert "odd" in str(fault.value)
    assert held(store) == ["a", "b", "c", "d"]


def test_whole_numbers_and_others_go_together_in_one_call(store: RagidxVectorStore) -> None:
    store.add([node("e", year=2.5), node("f", year=2)])
    filters = MetadataFilters(filters=[MetadataFilter(key="year", value=2, operator=">=")])

    found = {one.node_id: one.metadata["year"] for one in store.get_nodes(filters=filters)}
    assert found == {"b": 2, "e": 2.5, "f": 2}


def test_mistakes_are_errors_that_say_what_to_do(store: RagidxVectorStore, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="embedding not set"):
        store.add([TextNode(text="x")])
    for call in (store.add, store.delete, store.delete_nodes):
        with pytest.raises(TypeError, match="no option 'batch'"):
            call([], batch=5)  # type: ignore[operator]
    with pytest.raises(TypeError, match="unexpected keyword argument 'lexikal'"):
        RagidxVectorStore(index=tmp_path / "new", lexikal=False)
    ragidx.Index.create(tmp_path / "own", dim=2).add_vectors(["x"], [[1, 2]])
    with pytest.raises(ragidx.SpecError, match="rows that no RagidxVectorStore wrote"):
        RagidxVectorStore(index=tmp_path / "own")
    ragidx.Index(tmp_path / "store").add_vectors(["x"], [[1, 2]])
    with pytest.raises(ragidx.IndexFormatError, match="a row that no RagidxVectorStore wrote"):
        store.get_nodes()


@pytest.mark.slow
@pytest.mark.parametrize("embed_model", [Letters, RagidxEmbedding], ids=lambda made: made.__name__)
def test_a_vector_store_index_is_filled_asked_and_changed(embed_model: Callable[[], Any], tmp_path: Path) -> None:
    documents = [Document(id_=name, text=text, metadata=metadata) for name, text, metadata in FACTS]
    store, model = RagidxVectorStore(index=tmp_path / "store"), embed_model()
    context = StorageContext.from_defaults(vector_store=store)
    index = VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=model, transformations=[])
    context.persist(str(tmp_path / "persisted"))

    opened = VectorStoreIndex.from_vector_store(RagidxVectorStore(index=tmp_path / "store"), embed_model=model)
    old = MetadataFilters(filters=[MetadataFilter(key="year", value=1850, operator="<")])
    for asked in (index, opened):
        [best] = asked.as_retriever(similarity_top_k=1).retrieve(FACTS[2][1])
        assert (best.node.get_content(), best.node.metadata["subject"]) == (FACTS[2][1], "biology")
        found = asked.as_retriever(similarity_top_k=9, filters=old).retrieve("a river")
        assert {one.node.ref_doc_id or one.node.node_id for one in found} == {"lease", "mill"}
    [found] = opened.as_retriever(vector_store_query_mode="text_search", similarity_top_k=1).retrieve("who signed?")
    assert found.node.metadata["subject"] == "law"
    opened.insert_nodes([TextNode(id_="new", text="A telescope found Neptune.")])
    opened.delete_nodes([best.node.node_id])
    assert len(store.get_nodes()) == 3
    answer = opened.as_query_engine(llm=MockLLM(max_tokens=3)).query("who found Neptune?")
    assert str(answer) == "text text text"
    assert len(asyncio.run(opened.as_retriever(similarity_top_k=9).aretrieve("Neptune"))) == 3


@pytest.mark.slow
async def test_embeddings_are_those_of_an_index() -> None:
    narrow = ragidx.FilterSpec(dim=64)
    embedding, embedder = RagidxEmbedding(embed_batch_size=2, filter=narrow), ragidx.load_embedder(filter=narrow)
    texts = [text for _, text, _ in FACTS]

    for found, expected in [
        (embedding.get_text_embedding_batch(texts), embedder.embed_document(texts)),
        (await embedding.aget_text_embedding_batch(texts), embedder.embed_document(texts)),
        ([embedding.get_text_embedding(texts[0])], embedder.embed_document(texts[:1])),
        ([await embedding.aget_text_embedding(texts[0])], embedder.embed_document(texts[:1])),
        ([embedding.get_query_embedding("who?")], embedder.embed_query(["who?"])),
        ([await embedding.aget_query_embedding("who?")], embedder.embed_query(["who?"])),
    ]:
        assert [pytest.approx(row, abs=1e-5) for row in expected.tolist()] == found
    again = RagidxEmbedding.from_dict(embedding.to_dict())
    assert again.get_text_embedding(texts[0]) == embedding.get_text_embedding(texts[0])
    with pytest.raises(ragidx.SpecError, match="no field 'embed_size'"):
        RagidxEmbedding(embed_size=5)


@pytest.mark.slow
async def test_a_retriever_gives_nodes_with_their_document_and_what_a_model_is_shown(facts_index: Path) -> None:
    retriever = RagidxRetriever(facts_index, k=1, verbose=True)

    [law] = retriever.retrieve("who signed the lease?")
    assert law.node.ref_doc_id == "facts.csv#lease"
    own = {name: value for name, value in law.node.metadata.items() if not name.startswith("file.")}
    assert own == {"source": "facts.csv#lease", "line": 2, "year": 1840, "subject": "law"}
    shown = law.node.get_content(MetadataMode.LLM)
    assert shown.startswith("source: facts.csv#lease\nline: 2\nsubject: law\nyear: 1840\n")
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM(max_tokens=2))
    assert (await engine.aquery("who signed?")).source_nodes[0].node.metadata["year"] == 1840


@pytest.mark.slow
def test_a_retriever_may_be_given_the_vector_of_a_question_and_no_texts_to_embed(facts_index: Path) -> None:
    index, retriever = ragidx.Index(facts_index), RagidxRetriever(facts_index)
    bundle = QueryBundle("bees", embedding=ragidx.load_embedder("mini").embed_query(["bees"])[0].tolist())

    best = index.search("bees", mode="dense")[0]
    assert retriever.retrieve(bundle)[0].score == pytest.approx(best.score, abs=1e-3)
    with pytest.raises(ValueError, match="custom_embedding_strs are texts to embed"):
        retriever.retrieve(QueryBundle("a question", custom_embedding_strs=["an answer"]))
