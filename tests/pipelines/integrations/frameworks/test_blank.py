"""An embedding of zeros, of a blank text, refuses no call: its document is kept, and searches by vectors skip it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # before the import, which reads it
pytest.importorskip("langchain_core", reason="the extra `langchain` is not installed")
pytest.importorskip("llama_index.core", reason="the extra `llamaindex` is not installed")
pytest.importorskip("haystack", reason="the extra `haystack` is not installed")

from haystack import Document
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from ragidx.frameworks import haystack, langchain, llamaindex


def test_of_langchain(tmp_path: Path) -> None:
    store = langchain.RagidxVectorStore(tmp_path / "store", langchain.RagidxEmbeddings("mini"))

    names = store.add_texts(["the mill", "", "the heron"], [{"n": 1}, {"n": 2}, {"n": 3}])

    assert [(one.page_content, one.metadata) for one in store.get_by_ids(names)] == [
        ("the mill", {"n": 1}),
        ("", {"n": 2}),
        ("the heron", {"n": 3}),
    ]
    assert {one.id for one in store.similarity_search("mill", k=9)} == {names[0], names[2]}
    assert [one.id for one in store.similarity_search("mill", k=9, filter={"n": {"$lt": 3}})] == [names[0]]
    store.add_texts(["the lake"], ids=[names[1]])
    assert len(store.similarity_search("mill", k=9)) == 3


def test_of_llamaindex(tmp_path: Path) -> None:
    model = llamaindex.RagidxEmbedding("mini")
    texts = ["the mill", "\u200b", "the heron"]
    nodes = [TextNode(id_=str(n), text=text, embedding=model.get_text_embedding(text)) for n, text in enumerate(texts)]
    store = llamaindex.RagidxVectorStore(index=tmp_path / "store")

    assert store.add(nodes) == ["0", "1", "2"]

    assert [node.get_content() for node in store.get_nodes(["1", "0"])] == ["\u200b", "the mill"]
    for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR):
        query = VectorStoreQuery(query_embedding=model.get_query_embedding("mill"), similarity_top_k=9, mode=mode)
        assert set(store.query(query).ids or ()) == {"0", "2"}


def test_of_haystack(tmp_path: Path) -> None:
    store = haystack.RagidxDocumentStore(tmp_path / "store")
    written = [Document(id="a", content="the mill", embedding=[3.0, 4.0]), Document(id="b", embedding=[0.0, 0.0])]

    assert store.write_documents(written) == 2

    read = store.filter_documents()
    assert [one.embedding for one in read] == [pytest.approx([3, 4], abs=1e-2), [0.0, 0.0]]
    assert len(store.filter_documents({"field": "meta.x", "operator": "==", "value": None})) == 2
    retriever = haystack.RagidxEmbeddingRetriever(store, top_k=9)
    assert [one.id for one in retriever.run([1.0, 0.0])["documents"]] == ["a"]
    bare = {"field": "content", "operator": "!=", "value": "x"}  # asked of every document
    assert [one.id for one in retriever.run([1.0, 0.0], filters=bare)["documents"]] == ["a"]
    assert store.update_by_filter({"field": "id", "operator": "==", "value": "b"}, {"n": 1}) == 1
    assert {one.id: one.embedding for one in store.filter_documents()}["b"] == [0.0, 0.0]
