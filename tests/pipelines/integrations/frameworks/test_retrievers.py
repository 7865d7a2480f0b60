"""What the retrievers of LangChain, LlamaIndex and Haystack do alike, over an index and over a table of an engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ragidx

from .adapters import RETRIEVERS, Retriever
from .conftest import FACTS

ASKED = "who signed the lease?"


@pytest.fixture(params=RETRIEVERS)
def kind(request: pytest.FixtureRequest) -> Retriever:
    return RETRIEVERS[request.param]


def test_a_hit_carries_its_id_text_score_metadata_and_place(kind: Retriever, facts_index: Path) -> None:
    [found] = kind.ask(ASKED, facts_index, 1)

    [hit] = ragidx.Index(facts_index).search(ASKED, k=1)
    assert (found.id, found.text, found.score) == (hit.chunk_id, FACTS[0][1], hit.score)
    expected = {"year": 1840, "subject": "law", "line": 2, "source": hit.doc_id, "file.path": "facts.csv"}
    assert found.metadata.items() >= expected.items()
    assert not {"page", "heading", "context", "also"} & found.metadata.keys()


async def test_options_of_a_search_hold_also_asynchronously(kind: Retriever, facts_index: Path) -> None:
    history = 'subject == "history"'

    assert {one.metadata["year"] for one in kind.ask(ASKED, facts_index, where=history)} == {1377, 1790}
    assert len(kind.ask("type", facts_index, 1, where=history)) == 1
    assert kind.ask("type", facts_index, mode="dense", min_score=1.0) == []
    found = await kind.aask("type", facts_index, where='subject in ("law", "biology")')
    assert {one.metadata["subject"] for one in found} == {"law", "biology"}
    [noon] = await kind.aask("when were they seen?", facts_index, where='heading == "Of bees"', context=1)
    assert (noon.metadata["heading"], noon.metadata["line"]) == ("Of bees", 1)
    assert "noon" in noon.metadata["context"]


async def test_the_newest_state_is_shown_where_it_is_to_be(kind: Retriever, tmp_path: Path) -> None:
    index = ragidx.Index.create(tmp_path / "index")
    new, old = kind.make(tmp_path / "index", 9), kind.make(tmp_path / "index", 9, refresh=None)

    index.add([ragidx.Document("a", "the mill", {"n": 1})])

    assert [one.text for one in kind.found(getattr(new, kind.members[0])("mill"))] == ["the mill"]
    assert kind.found(getattr(old, kind.members[0])("mill")) == []
    index.delete(["a"])
    assert kind.found(await getattr(new, kind.members[1])("mill")) == []


def test_a_mistake_is_an_error_when_the_retriever_is_made(kind: Retriever, facts_index: Path, tmp_path: Path) -> None:
    with pytest.raises(ragidx.IndexFormatError, match="there is no such folder"):
        kind.make(tmp_path / "none", 9)
    with pytest.raises(TypeError, match="unexpected keyword argument 'wehre'"):
        kind.make(facts_index, 9, wehre="year > 3")
    with pytest.raises((ragidx.SpecError, ValueError), match="refresh"):
        kind.make(facts_index, 9, refresh="daily")
    with pytest.raises(ragidx.QueryError, match="unknown field 'yaer'; did you mean 'year'"):
        kind.ask("x", facts_index, where="yaer > 3")


def test_a_question_that_the_model_does_not_know_is_answered_by_its_words(kind: Retriever, tmp_path: Path) -> None:
    texts = {"lamp": "ผู้ดูแลประภาคาร จุดตะเกียงทุกคืน", "rice": "ชาวนาปลูกข้าวในฤดูฝน", "mill": "the mill"}
    ragidx.Index.create(tmp_path / "index").add([ragidx.Document(name, text) for name, text in texts.items()])

    assert [one.text for one in kind.ask("ประภาคาร", tmp_path / "index", 2)][:1] == [texts["lamp"]]
    assert kind.ask("ประภาคาร", tmp_path / "index", 2, mode="dense") == []
    assert [one.text for one in kind.ask("mill", tmp_path / "index", 2, mode="dense")] == ["the mill"]


@pytest.fixture(scope="module")
def remote(facts_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ragidx.RemoteIndex]:
    pytest.importorskip("lancedb", reason="needs lancedb, of the extra 'test'")
    target = f"lancedb:{tmp_path_factory.mktemp('lance')}#chunks"
    ragidx.Index(facts_index).export(target)
    with ragidx.connect(target) as opened:
        yield opened


def test_over_a_table_of_an_engine_a_retriever_answers_as_over_the_index(
    kind: Retriever, facts_index: Path, remote: ragidx.RemoteIndex
) -> None:
    there, here = (kind.ask(ASKED, one, 2, mode="dense", where="year < 1900") for one in (remote, facts_index))

    assert [one[:2] for one in there] == [one[:2] for one in here]
    assert [one.score for one in there] == pytest.approx([one.score for one in here], abs=1e-6)
    assert {one.metadata["year"] < 1900 for one in there} == {True}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "needed", "packages"),
    [
        ("LangChain", "langchain-core", ("langchain_core", "pydantic")),
        ("LlamaIndex", "llama-index-core", ("llama_index",)),
        ("Haystack", "haystack-ai", ("haystack",)),
    ],
)
def test_without_the_framework_the_message_names_the_extra(
    framework: str, needed: str, packages: tuple[str, ...], without: Callable[..., dict[str, str]]
) -> None:
    command = [sys.executable, "-c", f"import ragidx.frameworks.{framework.lower()}"]
    done = subprocess.run(command, env=without(*packages), capture_output=True, text=True, check=False)

    assert done.stderr.endswith(
        f"RagidxError: the {framework} adapter needs {needed}, which is not installed\n"
        f"  hint: pip install '.[{framework.lower()}]' in a checkout of ragidx\n"
    )
