"""A store of a framework without a folder is in memory."""

from __future__ import annotations

import pickle

import pytest

import ragidx

OWNED = {"owner": {"name": "Ada"}}


@pytest.mark.parametrize("with_embedding", [True, False])
def test_of_langchain(with_embedding: bool) -> None:
    pytest.importorskip("langchain_core", reason="needs the extra 'langchain'")
    from ragidx.frameworks.langchain import RagidxEmbeddings, RagidxVectorStore

    embedding = RagidxEmbeddings() if with_embedding else None
    store = RagidxVectorStore.from_texts(["one mill", "two lakes"], embedding, [OWNED, {}], ids=["a", "b"])

    [found] = store.similarity_search("mill", k=9, filter={"owner.name": "Ada"})

    assert (found.id, found.metadata) == ("a", OWNED)
    assert RagidxVectorStore(embedding=embedding).similarity_search("mill") == []
    with pytest.raises(ragidx.SpecError, match="an index in memory is one process's"):
        pickle.dumps(store)


def test_of_llamaindex() -> None:
    pytest.importorskip("llama_index.core", reason="needs the extra 'llamaindex'")
    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores.types import VectorStoreQuery

    from ragidx.frameworks.llamaindex import RagidxVectorStore

    store = RagidxVectorStore()
    assert store.query(VectorStoreQuery(query_embedding=[1.0, 2.0])).ids == []

    store.add([TextNode(id_="a", text="The mill.", metadata=OWNED, embedding=[1.0, 2.0])])

    assert [found.metadata for found in store.get_nodes(["a"])] == [OWNED]
    assert RagidxVectorStore.from_dict(store.to_dict()).get_nodes() == []
    with pytest.raises(ragidx.SpecError, match="an index in memory is one process's"):
        pickle.dumps(store)


def test_of_haystack() -> None:
    pytest.importorskip("haystack", reason="needs the extra 'haystack'")
    from haystack import Document

    from ragidx.frameworks.haystack import RagidxDocumentStore

    store = RagidxDocumentStore()
    assert store.count_documents() == 0

    store.write_documents([Document(id="a", content="The mill.", meta=OWNED, embedding=[1.0, 2.0])])

    assert [found.meta for found in store.filter_documents()] == [OWNED]
    assert RagidxDocumentStore.from_dict(store.to_dict()).count_documents() == 0
