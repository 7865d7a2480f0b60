"""The retrievers of the frameworks over a table of an engine: they answer as over the index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ragidx

pytest.importorskip("lancedb", reason="needs lancedb, of the extra 'test'")

QUESTION = "where does the old mill stand?"
WHERE = "year < 1900"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ragidx.Index]:
    with ragidx.Index.create(tmp_path_factory.mktemp("index") / "index") as made:
        made.add(
            [
                ragidx.Document("mill", "The old mill stands where the river reaches the sea.", {"year": 1790}),
                ragidx.Document("tower", "The tower in Tokyo is painted orange and white.", {"year": 1958}),
                ragidx.Document("neptune", "Neptune was found with a pencil before a telescope.", {"year": 1846}),
            ]
        )
        yield made


@pytest.fixture(scope="module")
def remote(index: ragidx.Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ragidx.RemoteIndex]:
    target = f"lancedb:{Path(tmp_path_factory.mktemp('lance'))}#chunks"
    index.export(target)
    with ragidx.connect(target) as opened:
        yield opened


def test_langchain(index: ragidx.Index, remote: ragidx.RemoteIndex) -> None:
    pytest.importorskip("langchain_core")
    from ragidx.frameworks.langchain import RagidxRetriever

    found = [RagidxRetriever(index=one, k=2, mode="dense", where=WHERE).invoke(QUESTION) for one in (remote, index)]
    assert [document.page_content for document in found[0]] == [document.page_content for document in found[1]]
    assert [document.metadata["year"] for document in found[0]] == [1790, 1846]


def test_llamaindex(index: ragidx.Index, remote: ragidx.RemoteIndex) -> None:
    pytest.importorskip("llama_index.core")
    from ragidx.frameworks.llamaindex import RagidxRetriever

    found = [RagidxRetriever(one, k=2, mode="dense", where=WHERE).retrieve(QUESTION) for one in (remote, index)]
    assert [node.get_content() for node in found[0]] == [node.get_content() for node in found[1]]
    assert [node.score for node in found[0]] == pytest.approx([node.score for node in found[1]], abs=1e-6)


def test_haystack(index: ragidx.Index, remote: ragidx.RemoteIndex) -> None:
    pytest.importorskip("haystack")
    from ragidx.frameworks.haystack import RagidxRetriever

    condition = {"field": "meta.year", "operator": "<", "value": 1900}
    found = [
        RagidxRetriever(one, top_k=2, mode="dense", filters=condition).run(QUESTION)["documents"]
        for one in (remote, index)
    ]
    assert [document.content for document in found[0]] == [document.content for document in found[1]]
    assert len(found[0]) == 2
    with pytest.raises(TypeError, match="a pipeline with a RemoteIndex cannot be written"):
        RagidxRetriever(remote).to_dict()
