"""The retriever for Haystack, over an index of files: what documents carry, pipelines, and mistakes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # before the import, which reads it
pytest.importorskip("haystack", reason="the extra 'haystack' is not installed")

import haystack.telemetry
from haystack import Document, Pipeline
from haystack.core.errors import DeserializationError
from haystack.document_stores.types import FilterPolicy
from haystack.errors import FilterError

import ragidx
from ragidx.frameworks.haystack import RagidxRetriever

ROOT = Path(__file__).resolve().parents[4]
FACTS = [
    ("The lease of the house by the lake was signed by Ada Lovelace.", 1840, "law"),
    ("The old mill is where the river reaches the sea.", 1790, "history"),
    ("The tower in Tokyo is painted orange and white.", 1958, "architecture"),
    ("Bees dance to tell where the flowers are.", 1946, "biology"),
]
HISTORY = {"field": "meta.subject", "operator": "==", "value": "history"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("facts")
    lines = ["text,year,subject", *(f'"{text}",{year},{subject}' for text, year, subject in FACTS)]
    (folder / "facts.csv").write_text("\n".join(lines) + "\n")
    (folder / "note.md").write_text("# Of bees\n\nThey were seen at noon.\n")
    ragidx.build([folder / "facts.csv", folder / "note.md"], folder / "index")
    return folder / "index"


def test_a_document_carries_its_id_score_metadata_and_place(folder: Path) -> None:
    document = RagidxRetriever(folder, top_k=1).run("who signed the lease?")["documents"][0]

    [hit] = ragidx.Index(folder).search("who signed the lease?", k=1)
    assert isinstance(document, Document)
    assert (document.id, document.content, document.score) == (hit.chunk_id, FACTS[0][0], hit.score)
    assert document.meta.items() >= {"year": 1840, "subject": "law", "line": 2, "source": hit.doc_id}.items()
    assert not {"page", "heading", "context", "also"} & document.meta.keys()


def test_a_document_carries_heading_and_context_where_there_are_some(folder: Path) -> None:
    noon = {"field": "heading", "operator": "==", "value": "Of bees"}

    [document] = RagidxRetriever(folder, context=1).run("when were they seen?", noon)["documents"]

    assert document.meta["heading"] == "Of bees"
    assert document.meta["line"] == 1
    assert document.content is not None
    assert "noon" in document.meta["context"]


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


def test_filters_and_options_hold_for_every_call_or_for_one(folder: Path) -> None:
    early = {"field": "meta.year", "operator": "<", "value": 1900}
    retriever = RagidxRetriever(folder, where="year is not null", filters=early, filter_policy=FilterPolicy.MERGE)

    def years(**options: object) -> list[int]:
        return sorted(one.meta["year"] for one in retriever.run("type", **options)["documents"])

    assert years() == [1790, 1840]
    assert years(filters=HISTORY) == [1790]
    assert len(years(top_k=1)) == 1
    assert len(RagidxRetriever(folder, top_k=9, filters=early).run("type", HISTORY)["documents"]) == 1
    assert len(RagidxRetriever(folder, top_k=9, min_score=1.0).run("type")["documents"]) == 0


async def test_it_works_asynchronously(folder: Path) -> None:
    pipeline = Pipeline()
    pipeline.add_component("retriever", RagidxRetriever(folder))

    found = await pipeline.run_async({"retriever": {"query": "type", "filters": HISTORY}})

    assert [one.meta["year"] for one in found["retriever"]["documents"]] == [1790]


def test_a_call_shows_the_newest_state_unless_it_is_not_to(tmp_path: Path) -> None:
    writer = ragidx.Index.create(tmp_path / "index")
    new, old = RagidxRetriever(tmp_path / "index"), RagidxRetriever(tmp_path / "index", refresh="never")
    writer.add([ragidx.Document("a", "the mill", {"n": 1})])
    one = {"field": "meta.n", "operator": "==", "value": 1}

    assert [document.content for document in new.run("mill", one)["documents"]] == ["the mill"]
    assert old.run("mill")["documents"] == []
    with pytest.raises(FilterError, match="no field 'n'"):
        old.run("mill", one)


def test_a_pipeline_is_written_and_read_with_all_options(folder: Path) -> None:
    rerank = ragidx.Rerank("a model", top=5)
    opened = ragidx.Index(folder, device="cpu")
    retriever = RagidxRetriever(opened, filters=HISTORY, top_k=3, refresh="never", per_document=1, mode="dense")
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever)

    text = pipeline.dumps()
    again = Pipeline.loads(text, allowed_modules=["ragidx.*"])

    assert again.dumps() == text
    assert "type: ragidx.frameworks.haystack.RagidxRetriever" in text
    data = again.get_component("retriever").to_dict()["init_parameters"]
    assert data == {
        "index": str(folder),
        "filters": HISTORY,
        "top_k": 3,
        "filter_policy": "replace",
        "refresh": "never",
        "opened": {"device": "cpu"},
        "per_document": 1,
        "mode": "dense",
    }
    assert again.run({"retriever": {"query": "type"}}) == pipeline.run({"retriever": {"query": "type"}})
    written = RagidxRetriever(folder, rerank=rerank).to_dict()
    assert RagidxRetriever.from_dict(written).options == {"rerank": rerank}
    written = RagidxRetriever(folder, where=ragidx.field("year") < 1900).to_dict()
    read = RagidxRetriever.from_dict(written)
    assert read.options == {"where": "year < 1900"}
    found = read.run("type", HISTORY)["documents"]
    assert {document.meta["year"] < 1900 and document.meta["subject"] == "history" for document in found} == {True}
    with pytest.raises(DeserializationError):  # as the page says
        Pipeline.loads(text)


def test_mistakes_are_errors_when_the_retriever_is_made(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ragidx.IndexFormatError, match="there is no such folder"):
        RagidxRetriever(tmp_path / "none")
    with pytest.raises(TypeError, match="unexpected keyword argument 'wehre'"):
        RagidxRetriever(folder, wehre="year > 3")
    with pytest.raises(TypeError, match="k= is no option here"):
        RagidxRetriever(folder, k=3)
    with pytest.raises(ValueError, match="top_k is True"):
        RagidxRetriever(folder, top_k=True)
    with pytest.raises(ValueError, match="refresh='daily' is neither"):
        RagidxRetriever(folder, refresh="daily")
    with pytest.raises(TypeError, match="this index is open"):
        RagidxRetriever(ragidx.Index(folder), opened={"device": "cpu"})


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
    folder: Path, filters: dict[str, object], why: str
) -> None:
    with pytest.raises(FilterError, match=why):
        RagidxRetriever(folder).run("type", filters)


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


@pytest.mark.slow
def test_without_haystack_the_message_names_the_extra(without: Callable[..., dict[str, str]]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import ragidx.frameworks.haystack"],
        env=without("haystack"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr.endswith(
        "RagidxError: the Haystack adapter needs haystack-ai, which is not installed\n"
        "  hint: pip install '.[haystack]' in a checkout of ragidx\n"
    )
