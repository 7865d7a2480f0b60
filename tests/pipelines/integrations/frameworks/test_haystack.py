"""The retriever for Haystack, over an index of files: what documents carry, pipelines, and mistakes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # before the import, which reads it
pytest.importorskip("haystack", reason="the extra 'haystack' is not installed")

import haystack.telemetry
from haystack import Pipeline
from haystack.core.errors import DeserializationError
from haystack.document_stores.types import FilterPolicy
from haystack.errors import FilterError

import ragidx
from ragidx.frameworks.haystack import RagidxRetriever

ROOT = Path(__file__).resolve().parents[4]
HISTORY = {"field": "meta.subject", "operator": "==", "value": "history"}


def test_a_field_of_the_documents_own_is_the_one_in_meta(tmp_path: Path) -> None:
    with ragidx.Index.create(tmp_path / "index") as index:
        index.add(
            [ragidx.Document("a", "the mill", {"source": "mine", "heading": "own"}), ragidx.Document("b", "mill")]
        )
        documents = RagidxRetriever(index).run("mill")["documents"]
        mine = {"field": "meta.source", "operator": "==", "value": "mine"}
        found = RagidxRetriever(index).run("mill", mine)["documents"]

    assert {one.id[0]: one.meta for one in documents} == {"a": {"source": "mine", "heading": "own"}, "b": {}}
    assert [one.id[0] for one in found] == ["a"]


def test_filters_and_options_hold_for_every_call_or_for_one(facts_index: Path) -> None:
    early = {"field": "meta.year", "operator": "<", "value": 1900}
    retriever = RagidxRetriever(facts_index, where="year is not null", filters=early, filter_policy=FilterPolicy.MERGE)

    def years(**options: object) -> list[int]:
        return sorted(one.meta["year"] for one in retriever.run("type", **options)["documents"])

    assert years() == [1377, 1790, 1840, 1846]
    assert years(filters=HISTORY) == [1377, 1790]
    assert len(years(top_k=1)) == 1
    assert len(RagidxRetriever(facts_index, top_k=9, filters=early).run("type", HISTORY)["documents"]) == 2


async def test_it_works_asynchronously(facts_index: Path) -> None:
    pipeline = Pipeline()
    pipeline.add_component("retriever", RagidxRetriever(facts_index))

    found = await pipeline.run_async({"retriever": {"query": "type", "filters": HISTORY}})

    assert {one.meta["year"] for one in found["retriever"]["documents"]} == {1377, 1790}


def test_filters_are_asked_of_the_fields_of_the_state_that_is_shown(tmp_path: Path) -> None:
    writer = ragidx.Index.create(tmp_path / "index")
    new, old = RagidxRetriever(tmp_path / "index"), RagidxRetriever(tmp_path / "index", refresh=None)
    writer.add([ragidx.Document("a", "the mill", {"n": 1})])
    one = {"field": "meta.n", "operator": "==", "value": 1}

    assert [document.content for document in new.run("mill", one)["documents"]] == ["the mill"]
    with pytest.raises(FilterError, match="no field 'n'"):
        old.run("mill", one)


def test_a_pipeline_is_written_and_read_with_all_options(facts_index: Path) -> None:
    rerank = ragidx.Rerank("a model", top=5)
    opened = ragidx.Index(facts_index, device="cpu")
    retriever = RagidxRetriever(opened, filters=HISTORY, top_k=3, refresh=None, per_document=1, mode="dense")
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever)

    text = pipeline.dumps()
    again = Pipeline.loads(text, allowed_modules=["ragidx.*"])

    assert again.dumps() == text
    assert "type: ragidx.frameworks.haystack.RagidxRetriever" in text
    data = again.get_component("retriever").to_dict()["init_parameters"]
    assert data == {
        "index": str(facts_index),
        "filters": HISTORY,
        "top_k": 3,
        "filter_policy": "replace",
        "refresh": None,
        "opened": {"device": "cpu"},
        "per_document": 1,
        "mode": "dense",
    }
    assert again.run({"retriever": {"query": "type"}}) == pipeline.run({"retriever": {"query": "type"}})
    written = RagidxRetriever(facts_index, rerank=rerank).to_dict()
    assert RagidxRetriever.from_dict(written).options == {"rerank": rerank}
    written = RagidxRetriever(facts_index, where=ragidx.field("year") < 1900).to_dict()
    read = RagidxRetriever.from_dict(written)
    assert read.options == {"where": "year < 1900"}
    found = read.run("type", HISTORY)["documents"]
    assert {document.meta["year"] < 1900 and document.meta["subject"] == "history" for document in found} == {True}
    with pytest.raises(DeserializationError):  # as the page says
        Pipeline.loads(text)


def test_mistakes_are_errors_when_the_retriever_is_made(facts_index: Path) -> None:
    with pytest.raises(TypeError, match="k= is no option here"):
        RagidxRetriever(facts_index, k=3)
    with pytest.raises(ValueError, match="top_k is True"):
        RagidxRetriever(facts_index, top_k=True)
    with pytest.raises(ragidx.SpecError, match="refresh is 'never'\n  hint: give \"auto\" or None"):
        RagidxRetriever(facts_index, refresh="never")  # type: ignore[arg-type]  # as it was called here before
    with pytest.raises(TypeError, match="this index is open"):
        RagidxRetriever(ragidx.Index(facts_index), opened={"device": "cpu"})


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        ({"field": "meta.yaer", "operator": ">", "value": 3}, "no field 'yaer' that a filter can ask for; there are"),
        ({"field": "meta.line", "operator": "==", "value": 2}, "no field 'line'"),
        ({"field": "content", "operator": "!=", "value": None}, "no field 'content'"),
        ({"field": "meta.year", "operator": ">", "value": "1900-01-01"}, "cannot compare 'year', which is of type int"),
        ({"operator": "AND"}, "'conditions' key missing"),
    ],
)
def test_filters_that_ask_for_what_is_not_there_are_refused_by_name(
    facts_index: Path, filters: dict[str, object], why: str
) -> None:
    with pytest.raises(FilterError, match=why):
        RagidxRetriever(facts_index).run("type", filters)


@pytest.mark.slow
def test_the_programs_of_the_page_run_and_the_first_ends_in_an_answer_with_its_places(tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "haystack.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "corpora").symlink_to(ROOT / "corpora")
    path = os.pathsep.join([str(Path(ragidx.__file__).resolve().parents[1]), *filter(None, sys.path)])
    env = os.environ | {"PYTHONPATH": path}
    env.pop("HAYSTACK_TELEMETRY_ENABLED")

    done = [
        subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        for program in programs
    ]

    assert [one.returncode for one in done] == [0, 0], "".join(one.stderr for one in done)
    answer, *places = done[0].stdout.splitlines()
    assert answer.startswith("[1] # The Rosetta Stone")
    assert [re.fullmatch(r"\[\d\] history/[\w-]+\.md, line \d+", place) is not None for place in places] == [True] * 3
    assert done[1].stdout == "The mill is by the river. {'year': 1790} 0.973\n"


def test_nothing_is_sent_from_these_tests() -> None:
    assert haystack.telemetry._telemetry.telemetry is None
