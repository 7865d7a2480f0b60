"""Documents that a program adds and deletes over HTTP, and what is refused of them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx import Client, Document
from ragidx.pipelines.index import Index

from .conftest import TEXTS, TOKEN, Running, running

NAMES = [
    "comet",
    "mill\n",
    "a\nb",
    "a/b",
    "a%2Fb",
    "100%",
    "caf\u00e9",
    "\u30c6 \U0001f600",
    "a?b#c",
    "a//b",
    "..",
    "x" * 4_000,
]


@pytest.mark.parametrize("name", NAMES)
def test_a_document_is_added_read_and_deleted(writable: Running, own_index: Path, name: str) -> None:
    from urllib.parse import quote

    place = f"/v1/documents/{quote(name, safe='')}"
    answer = writable.ask("PUT", place, {"text": "A comet with a tail.", "metadata": {"year": 1986, "tags": ["ice"]}})
    assert answer.status == 200
    assert answer.body["id"] == name
    assert writable.search("a comet").body["generation"] == answer.body["generation"]
    assert writable.ask("GET", place).body["metadata"] == {"year": 1986, "tags": ["ice"]}
    assert Index(own_index).get([name])[0].text == "A comet with a tail."
    assert writable.ask("DELETE", place).status == 200
    assert writable.ask("DELETE", place).status == 404
    assert writable.ask("GET", place).status == 404


def test_a_title_in_the_metadata_finds_its_document_and_is_no_part_of_its_text(writable: Running) -> None:
    given = {"text": "It has a tail.", "metadata": {"title": "Halley's comet"}}

    assert writable.ask("PUT", "/v1/documents/halley", given).status == 200

    (hit,) = writable.search("halley", mode="lexical").body["hits"]
    assert (hit["doc_id"], hit["heading"], hit["text"]) == ("halley", "Halley's comet", "It has a tail.")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"text": ""}, "String should have at least 1 character"),
        ({}, "Field required"),
        ({"text": "a", "metadata": {"x": {"y\0": 1}}}, "the text has a NUL"),
        ({"text": "a", "metadata": {"x": ["a", {"y": "b\0"}]}}, "the text has a NUL"),
        ({"text": "a\0"}, "the text has a NUL"),
        ({"text": "a", "metadata": {"year": "MCM"}}, "the field 'year' holds values of the type int"),
        ({"text": " \n "}, "the document has no text"),
        ({"text": "a", "source": "/etc"}, "Extra inputs"),
    ],
)
def test_a_document_that_is_refused(writable: Running, body: Any, message: str) -> None:
    answer = writable.ask("PUT", "/v1/documents/comet", body)
    assert answer.status == 422
    assert message in answer.error


def test_a_number_that_is_none_is_refused_by_its_field(writable: Running) -> None:
    for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b'[{"y": NaN}]'):
        body = b'{"text": "a", "metadata": {"x": %s}}' % number
        answer = writable.ask("PUT", "/v1/documents/comet", raw=body)
        assert (answer.status, answer.body["error"]["where"]) == (422, "metadata.x")
        assert answer.error == "NaN and infinity are no values: leave the field out"


def test_metadata_come_back_as_the_json_that_they_were(writable: Running, own_index: Path) -> None:
    inner = {"y": [1, None, {"z": 0.5}], "time": {"time": "now"}, "none": None, "": []}
    given = {
        "deep": inner,
        "big": 2**100,
        "most": -(2**63),
        "empty": {},
        "list": [],
        "mixed": ["a", 1, True],
        "n": None,
    }

    assert writable.ask("PUT", "/v1/documents/comet", {"text": "A comet.", "metadata": given}).status == 200

    assert writable.ask("GET", "/v1/documents/comet").body["metadata"] == given
    [hit] = writable.search("comet", k=1).body["hits"]
    assert hit["metadata"] == given
    assert writable.search("comet", where='deep.time.time == "now"').body["hits"][0]["doc_id"] == "comet"
    [document] = Index(own_index).get(["comet"])
    assert document.metadata == given
    remote = Client(writable.url, token=writable.token)
    assert remote.document("comet") == document
    assert remote.add(Document("comet", "A comet again.", {"deep": [inner]})) > 1
    assert remote.search("comet", k=1)[0].metadata == {"deep": [inner]}


def test_a_whole_number_that_is_too_long_is_refused(writable: Running) -> None:
    body = b'{"text": "a", "metadata": {"x": %s}}' % (b"1" + b"0" * 4_000)

    answer = writable.ask("PUT", "/v1/documents/comet", raw=body)

    assert (answer.status, answer.error) == (422, "the field 'x': a whole number of 13,288 bits")


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("%FF", 400, "the address is not UTF-8"),
        ("%FE", 400, "the address is not UTF-8"),
        ("a%00", 422, "the id has a NUL"),
        ("x" * 4_001, 422, "the id has more than 4,000 characters"),
    ],
)
def test_an_id_that_is_none(writable: Running, own_index: Path, name: str, status: int, message: str) -> None:
    answer = writable.ask("PUT", f"/v1/documents/{name}", {"text": "A comet."})
    assert (answer.status, answer.error) == (status, message)
    assert writable.ask("DELETE", f"/v1/documents/{name}").status == (400 if status == 400 else 404)
    assert Index(own_index).generation == writable.service.indexes["own"].current.store.manifest.generation
    assert {document.id for document in Index(own_index).documents()} == {*TEXTS}


@pytest.mark.parametrize("text", [b"\xff", b"\\ud83d"])
@pytest.mark.parametrize(
    "body", [b'{"text": "%s"}', b'{"text": "a", "metadata": {"x": "%s"}}', b'{"text": "a", "%s": 1}']
)
def test_a_body_that_is_not_unicode(writable: Running, body: bytes, text: bytes) -> None:
    answer = writable.ask("PUT", "/v1/documents/comet", raw=body % text)
    assert (answer.status, answer.error.partition(":")[0]) == (400, "Invalid JSON")


def test_changes_of_many_clients_are_few_commits(writable: Running, own_index: Path) -> None:
    before, statuses = Index(own_index).generation, dict[int, int]()

    def put(number: int) -> None:
        text = {"text": f"Number {number}."} if number % 8 else {"text": " "}  # some are refused, alone
        statuses[number] = writable.ask("PUT", f"/v1/documents/n{number}", text).status

    putting = [threading.Thread(target=put, args=(number,)) for number in range(24)]
    for thread in putting:
        thread.start()
    for thread in putting:
        thread.join()
    assert statuses == {number: 200 if number % 8 else 422 for number in range(24)}
    with Index(own_index) as opened:
        assert {document.id for document in opened.documents()} == {*TEXTS, *(f"n{n}" for n in range(24) if n % 8)}
        assert opened.generation - before < 24
        assert opened.verify() == []


def test_while_another_process_writes_changes_wait(
    writable: Running, own_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writable.service.writes["own"], "_wait_s", 0.2)
    with Index(own_index) as opened, opened.batch() as batch:
        batch.add([ragidx.Document("a", "A text.")])
        answer = writable.ask("PUT", "/v1/documents/comet", {"text": "A comet."})
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert writable.ask("PUT", "/v1/documents/comet", {"text": "A comet."}).status == 200


def test_a_document_of_a_file_is_not_replaced(small_corpus: Path, tmp_path: Path) -> None:
    built = ragidx.build(small_corpus, tmp_path / "index")
    name = next(built.documents()).id
    with running({"index": tmp_path / "index"}, writable=True, token=TOKEN) as served:
        answer = served.ask("PUT", f"/v1/documents/{name}", {"text": "Another."})
        assert answer.status == 422
        assert "the document is one of" in answer.error


def test_a_service_that_only_reads(served: Running) -> None:
    for method in ("PUT", "DELETE"):
        answer = served.ask(method, "/v1/documents/mill", {"text": "x"} if method == "PUT" else None)
        assert (answer.status, answer.error) == (403, "the service only reads")
