"""What is beside the hits wherever an index is asked: notes on the whole answer; null for what is no number in JSON."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import ragidx
from ragidx.corpora import whole_documents as whole
from ragidx.pipelines.index import Index
from ragidx.retriever.hit import NO_VECTOR, NOTHING_KNOWN, WORDS_ALONE

from ..conftest import Done
from .conftest import Running, running

NOTE = "No word of the question is in the index: only the vectors count."
UNKNOWN = "zzz qqq"


def strict(text: str) -> Any:
    """JSON as others read it: NaN is no number there."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def by_agent(served: Running, tool: str, **given: Any) -> Any:
    """What a tool answers."""
    mcp = pytest.importorskip("mcp", reason="the package mcp is not installed")
    from ragidx.pipelines.serve import agents

    async def work() -> Any:
        async with mcp.Client(agents.tools(served.service)) as client:
            return await client.call_tool(tool, given)

    return asyncio.run(work())


def test_a_question_without_a_known_word_has_a_note_wherever_it_is_asked(
    served: Running, index: Path, run: Any
) -> None:
    done: Done = run("query", UNKNOWN, "--index", str(index), "--json")
    assert strict(done.out)["notes"] == [NOTE]
    assert run("query", UNKNOWN, "-k", "2", "--index", str(index)).err == f"{NOTE}\n"
    assert served.search(UNKNOWN).body["notes"] == [NOTE]
    batch = served.ask("POST", "/v1/search:batch", {"queries": [UNKNOWN, "the mill"]}).body["answers"]
    assert [answer["notes"] for answer in batch] == [[NOTE], []]
    client = ragidx.Client(served.url)
    assert client.search(UNKNOWN).notes == [NOTE]
    assert [answer.notes for answer in client.search_batch([UNKNOWN, "the mill"])] == [[NOTE], []]
    with Index(index) as opened:
        assert opened.search(UNKNOWN).notes == [NOTE]
        assert [answer.notes for answer in opened.search_batch([UNKNOWN, "the mill"])] == [[NOTE], []]
        assert ragidx.search([opened], UNKNOWN).notes == [NOTE]
    for place in ("/", "/results.json"):
        assert NOTE in json.dumps(served.ask("GET", f"{place}?q=zzz+qqq").body)
    found = by_agent(served, "search", query=UNKNOWN)
    assert found.structured_content["notes"] == [NOTE]
    assert NOTE in found.content[0].text


def test_the_note_is_there_without_hits_too(served: Running, index: Path, run: Any) -> None:
    where = "year > 3000"
    asked = ("query", UNKNOWN, "--where", where, "--index", str(index))
    done: Done = run(*asked, "--json")
    assert (strict(done.out)["notes"], strict(done.out)["hits"]) == ([NOTE], [])
    assert run(*asked).err.splitlines()[:2] == [NOTE, "No chunk matches --where."]
    assert run(*asked, "--mode", "dense").err.splitlines()[0] == "No chunk matches --where."
    assert served.search(UNKNOWN, where=where).body["notes"] == [NOTE]
    assert served.search("mill", where=where).body["notes"] == []
    with Index(index) as opened:
        assert opened.search(UNKNOWN, min_score=1.0).notes == [NOTE]
        assert ragidx.search([opened], UNKNOWN, where=where).notes == [NOTE]
    assert NOTE in served.ask("GET", "/?q=zzz+qqq&where=year+%3E+3000").body
    found = by_agent(served, "search", query=UNKNOWN, where=where)
    assert found.structured_content["notes"] == [NOTE]
    assert found.content[0].text == f"No passage of docs was found.\n{NOTE}"


def test_a_question_that_the_model_does_not_know_has_one_too(served: Running) -> None:
    thai = "ประภาคาร"
    assert served.search(thai).body["notes"] == [NOTHING_KNOWN]
    assert (served.search(thai, mode="dense").status, served.search(thai, mode="dense").body["notes"]) == (
        200,
        [NO_VECTOR],
    )
    batch = served.ask("POST", "/v1/search:batch", {"queries": [f"mill {thai}", "the mill"]}).body["answers"]
    assert [answer["notes"] for answer in batch] == [[WORDS_ALONE], []]
    assert WORDS_ALONE in served.ask("GET", f"/?q=mill+{quote(thai)}").body
    found = by_agent(served, "search", query=f"mill {thai}")
    assert (found.structured_content["notes"], WORDS_ALONE in found.content[0].text) == ([WORDS_ALONE], True)
    refused = served.ask("POST", "/v1/embeddings", {"model": "docs", "input": thai})
    assert (refused.status, "gives no vector for text 1" in str(refused.body)) == (422, True)


def test_an_empty_index_has_no_note(tmp_path: Path) -> None:
    assert Index.create(tmp_path / "index").search(UNKNOWN).notes == []


def test_an_answer_that_needs_no_note_has_none(served: Running, index: Path, run: Any) -> None:
    for options in ({}, {"mode": "lexical"}, {"mode": "dense"}, {"fusion": "rrf"}):
        assert served.search("the mill", **options).body["notes"] == []
    for mode in ("dense", "lexical"):  # where words do not count, and where nothing is found
        assert served.search(UNKNOWN, mode=mode).body["notes"] == []
    assert NOTE not in served.ask("GET", "/?q=mill").body
    assert by_agent(served, "search", query="mill").structured_content["notes"] == []


def test_each_line_of_a_file_of_queries_has_its_notes(index: Path, run: Any, tmp_path: Path) -> None:
    queries = tmp_path / "queries.jsonl"
    queries.write_text(f'{{"_id": "1", "text": "{UNKNOWN}"}}\n{{"_id": "2", "text": "the mill"}}\n')
    lines = run("query", "--queries", str(queries), "--index", str(index)).out.splitlines()
    assert [strict(line)["notes"] for line in lines] == [[NOTE], []]


@pytest.fixture
def not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index that holds NaN and infinity, as no program can put them there any more."""
    path, stand_ins = tmp_path / "old", {"nan": 1234.5678, "inf": 8765.4321}
    values = {"nan": math.nan, "inf": math.inf}
    with monkeypatch.context() as patch, Index.create(path) as made:
        patch.setattr(whole, "values_to_json", lambda _: values)
        made.add([ragidx.Document("mill", "The old mill.", stand_ins)])
    [chunks] = path.rglob("chunks.arrow")
    for name, value in values.items():
        _exchange(path, chunks, struct.pack("<d", stand_ins[name]), struct.pack("<d", value))
    return path


def _exchange(index: Path, file: Path, before: bytes, after: bytes) -> None:
    """Exchange some bytes of a file of an index, and its checksum in all files that hold it."""
    old = file.read_bytes()
    assert before in old
    new = old.replace(before, after)
    if file.name == "manifest.json":
        about = json.loads(new)
        del about["checksum"]
        rest = json.dumps(about, sort_keys=True, separators=(",", ":"))
        about["checksum"] = hashlib.sha256(rest.encode()).hexdigest()
        new = json.dumps(about, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    file.write_bytes(new)
    sums = [hashlib.sha256(one).hexdigest().encode() for one in (old, new)]
    for other in (*sorted(index.rglob("*.arrow")), index / "manifest.json"):
        if sums[0] in other.read_bytes():
            _exchange(index, other, *sums)


def test_what_is_no_number_in_json_is_null(not_finite: Path, run: Any) -> None:
    expected: dict[str, object] = {}  # as of a document without these fields
    with Index(not_finite) as opened:
        assert opened.search("mill")[0].metadata == expected
    done: Done = run("query", "mill", "--index", str(not_finite), "--json")
    assert strict(done.out)["hits"][0]["metadata"] == expected
    with running({"old": not_finite}) as served:
        assert served.search("mill").body["hits"][0]["metadata"] == expected
        vectors = {"vectors": [[1.0] * served.service.indexes["old"].current.store.manifest.dim]}
        assert served.ask("POST", "/v1/vector", vectors).body["answers"][0]["hits"][0]["metadata"] == expected
        assert served.ask("GET", "/v1/documents/mill").body["metadata"] == {"nan": None, "inf": None}
        found = by_agent(served, "search", query="mill").structured_content
        assert found["hits"][0]["metadata"] == expected
        assert all(served.ask("GET", place).status == 200 for place in ("/?q=mill", "/results.json?q=mill"))
        document = served.ask("GET", "/document?id=mill")
        assert (document.status, "<dt>nan</dt>" in document.body) == (200, False)
