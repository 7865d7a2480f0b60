"""The retriever and embeddings for LangChain: its own standard tests, and what they and the others' do not ask."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_tests", reason="needs langchain-tests, of the extra 'test'")

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_tests.integration_tests import EmbeddingsIntegrationTests, RetrieversIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

import ragidx
from ragidx.corpora.records import FILE_FIELDS
from ragidx.frameworks.langchain import RagidxEmbeddings, RagidxRetriever

from .conftest import FACTS


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _index(self, facts_index: Path) -> None:
        type(self)._path = facts_index  # type: ignore[attr-defined]

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return RagidxRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"index": self._path}  # type: ignore[attr-defined]

    @property
    def retriever_query_example(self) -> str:
        return "who signed the lease?"


class TestEmbeddingsUnit(EmbeddingsUnitTests):
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return RagidxEmbeddings


class TestEmbeddings(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return RagidxEmbeddings


@pytest.mark.slow
def test_options_may_be_those_of_one_call(facts_index: Path) -> None:
    retriever = RagidxRetriever(index=facts_index, k=6)

    assert len(retriever.invoke("type", where="year < 1800")) == 2
    assert len(retriever.invoke("type")) == 6
    assert len(retriever.invoke("type", k=1)) == 1


@pytest.mark.slow
def test_a_document_carries_its_id_source_offsets_scores_and_metadata(facts_index: Path) -> None:
    document = RagidxRetriever(index=facts_index, k=1).invoke("who signed the lease?")[0]

    assert isinstance(document, Document)
    assert document.page_content == FACTS[0][1]
    assert document.id == f"facts.csv#lease:0-{len(FACTS[0][1])}"
    score, dense, bm25 = (document.metadata.pop(name) for name in ("score", "dense", "bm25"))
    assert 0.3 < dense <= 1
    assert bm25 > 1
    assert score > 1  # the mean of two z-scores of the best of seven
    assert {name: document.metadata.pop(name) for name in FILE_FIELDS}["file.path"] == "facts.csv"
    assert document.metadata == {
        "source": "facts.csv#lease",
        "start": 0,
        "end": len(FACTS[0][1]),
        "line": 2,  # of the row in its file
        "year": 1840,
        "subject": "law",
    }


@pytest.mark.slow
def test_embeddings_are_the_vectors_of_an_index(facts_index: Path) -> None:
    embeddings = RagidxEmbeddings()
    store = ragidx.Index(facts_index).searcher.store

    vectors = embeddings.embed_documents([text for _, text, _, _ in FACTS])

    stored = store.vectors(range(len(FACTS)))  # the note comes after them
    assert len(vectors[0]) == stored.shape[1]
    assert abs(stored - vectors).max() < 1e-3


def test_embeddings_take_a_filter_and_a_method(tiny_model: Callable[..., Path]) -> None:
    embeddings = RagidxEmbeddings(str(tiny_model("llama")), method="echo", filter=ragidx.FilterSpec(tau=4))

    vector = embeddings.embed_query("who signed the lease?")

    assert len(vector) == 8
    assert sum(number * number for number in vector) == pytest.approx(1, abs=1e-5)


@pytest.mark.wheel
@pytest.mark.slow
def test_the_bundled_model_needs_no_network_here_either(
    small_corpus: Path, tmp_path: Path, without: Callable[..., dict[str, str]]
) -> None:
    ragidx.build(small_corpus, tmp_path / "index")
    code = (
        "import sys\n"
        "from ragidx.frameworks.langchain import RagidxEmbeddings, RagidxRetriever\n"
        f"print(len(RagidxRetriever(index={str(tmp_path / 'index')!r}, k=2).invoke('a river')))\n"
        "print(len(RagidxEmbeddings().embed_query('a river')), 'torch' in sys.modules)\n"
    )

    environment = without("torch", "transformers", "sentence_transformers")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)

    assert (done.stdout, done.returncode) == ("2\n255 False\n", 0), done.stderr
