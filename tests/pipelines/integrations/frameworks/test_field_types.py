"""A field of a framework's store has another type when no document has a value of the old one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="the extra `langchain` is not installed")
pytest.importorskip("llama_index.core", reason="the extra `llamaindex` is not installed")

from langchain_core.embeddings import DeterministicFakeEmbedding
from llama_index.core.schema import TextNode

from ragidx.frameworks import langchain, llamaindex


@pytest.mark.parametrize("embedding", [None, DeterministicFakeEmbedding(size=8)])
def test_of_langchain(tmp_path: Path, embedding: Any) -> None:
    store = langchain.RagidxVectorStore(tmp_path / "store", embedding)
    store.add_texts(["The mill."], [{"y": "1990"}], ids=["a"])

    store.add_texts(["The mill."], [{"y": 1990}], ids=["a"])
    assert [one.metadata for one in store.similarity_search("mill", filter={"y": {"$gt": 1900}})] == [{"y": 1990}]
    store.delete(["a"])
    store.add_texts(["The lake."], [{"y": True}])

    assert store.index is not None
    assert store.index.schema["y"] == "bool"


def test_of_llamaindex(tmp_path: Path) -> None:
    def node(year: object) -> TextNode:
        return TextNode(id_="a", text="The mill.", metadata={"y": year}, embedding=[1.0, 2.0])

    store = llamaindex.RagidxVectorStore(index=tmp_path / "store")
    store.add([node("1990")])
    store.add([node(1990)])
    assert store.get_nodes(["a"])[0].metadata == {"y": 1990}
    store.clear()
    store.add([node(True)])

    assert store.client is not None
    assert store.client.schema["y"] == "bool"
