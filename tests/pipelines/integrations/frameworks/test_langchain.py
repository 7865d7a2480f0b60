"""The framework adapter for LangChain: its own standard tests, and conditions, which they do not cover."""

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
from ragidx.corpora.errors import IndexFormatError, QueryError
from ragidx.corpora.records import FILE_FIELDS
from ragidx.frameworks.langchain import RagidxEmbeddings, RagidxRetriever

FACTS = [
    ("The lease of the house by the lake was signed by Ada Lovelace.", 1840, "law"),
    ("The old mill stands where the river reaches the sea.", 1790, "history"),
    ("The tower in Tokyo is painted orange and white.", 1958, "architecture"),
    ("Bees dance to tell where the flowers are.", 1946, "biology"),
    ("Neptune was found with a pencil before a telescope.", 1846, "astronomy"),
    ("Movable metal type was cast in Korea before Gutenberg.", 1377, "history"),
]


@pytest.fixture(scope="session")
def facts_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("facts")
    lines = ["text,year,subject", *(f'"{text}",{year},{subject}' for text, year, subject in FACTS)]
    (folder / "facts.csv").write_text("\n".join(lines) + "\n")
    ragidx.build(folder / "facts.csv", folder / "index")
    return folder / "index"


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
def test_a_condition_holds_for_every_call_or_for_one(facts_index: Path) -> None:
    history = RagidxRetriever(index=facts_index, k=6, where='subject == "history"')
    retriever = RagidxRetriever(index=facts_index, k=6)

    assert sorted(found.metadata["year"] for found in history.invoke("who signed the lease?")) == [1377, 1790]
    assert len(retriever.invoke("type", where="year < 1800")) == 2
    assert len(retriever.invoke("type")) == 6
    assert len(retriever.invoke("type", k=1)) == 1


@pytest.mark.slow
async def test_a_condition_works_asynchronously(facts_index: Path) -> None:
    retriever = RagidxRetriever(index=facts_index, k=6)

    found = await retriever.ainvoke("type", where='subject in ("law", "biology")')

    assert {document.metadata["subject"] for document in found} == {"law", "biology"}


@pytest.mark.slow
def test_a_document_carries_its_id_source_offsets_scores_and_metadata(facts_index: Path) -> None:
    document = RagidxRetriever(index=facts_index, k=1).invoke("who signed the lease?")[0]

    assert isinstance(document, Document)
    assert document.page_content == FACTS[0][0]
    assert document.id == f"facts.csv#1:0-{len(FACTS[0][0])}"
    score, dense, bm25 = (document.metadata.pop(name) for name in ("score", "dense", "bm25"))
    assert 0.3 < dense <= 1
    assert bm25 > 1
    assert score > 1  # the mean of two z-scores of the best of six
    assert {name: document.metadata.pop(name) for name in FILE_FIELDS}["file.path"] == "facts.csv"
    assert document.metadata == {
        "source": "facts.csv#1",
        "start": 0,
        "end": len(FACTS[0][0]),
        "line": 2,  # of the row in its file
        "year": 1840,
        "subject": "law",
    }


@pytest.mark.slow
def test_a_document_carries_its_heading(tmp_path: Path) -> None:
    (tmp_path / "mill.md").write_text("# The mill\n\nIt turned for nine years.\n")
    ragidx.build(tmp_path / "mill.md", tmp_path / "index")

    document = RagidxRetriever(index=tmp_path / "index", k=1).invoke("how long did it turn?")[0]

    assert document.metadata["heading"] == "The mill"


def test_mistakes_are_errors_of_ragidx_and_all_but_conditions_are_told_when_the_retriever_is_made(
    facts_index: Path, tmp_path: Path
) -> None:
    with pytest.raises(QueryError, match="unknown field 'yaer'; did you mean 'year'"):
        RagidxRetriever(index=facts_index, where="yaer > 3").invoke("x")
    with pytest.raises(IndexFormatError, match="there is no such folder"):
        RagidxRetriever(index=tmp_path / "none")
    with pytest.raises(TypeError, match="unexpected keyword argument 'wehre'"):
        RagidxRetriever(index=facts_index, wehre="year > 3")


@pytest.mark.slow
def test_embeddings_are_the_vectors_of_an_index(facts_index: Path) -> None:
    embeddings = RagidxEmbeddings()
    store = ragidx.Index(facts_index).searcher.store

    vectors = embeddings.embed_documents([text for text, _, _ in FACTS])

    stored = store.vectors(range(store.n_rows))
    assert len(vectors[0]) == stored.shape[1]
    assert abs(stored - vectors).max() < 1e-3


def test_embeddings_take_a_filter_and_a_method(tiny_model: Callable[..., Path]) -> None:
    embeddings = RagidxEmbeddings(str(tiny_model("llama")), method="echo", filter=ragidx.FilterSpec(tau=4))

    vector = embeddings.embed_query("who signed the lease?")

    assert len(vector) == 8
    assert sum(number * number for number in vector) == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_without_langchain_the_message_names_the_extra(without: Callable[..., dict[str, str]]) -> None:
    done = _python("import ragidx.frameworks.langchain", without("langchain_core", "pydantic"))

    assert done.stderr.endswith(
        "RagidxError: the LangChain adapter needs langchain-core, which is not installed\n"
        "  hint: pip install '.[langchain]' in a checkout of ragidx\n"
    )


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

    done = _python(code, without("torch", "transformers", "sentence_transformers"))

    assert (done.stdout, done.returncode) == ("2\n255 False\n", 0), done.stderr


def _python(code: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
