"""What the service answers over HTTP: the same as the index itself, several indexes, vectors, documents, embeddings."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.pipelines.index import Index

from ..conftest import Done
from .conftest import TEXTS, Running, make_index, running, until


def test_it_is_what_the_command_prints(served: Running, index: Path, run: Any) -> None:
    done: Done = run("query", "the mill", "--index", str(index), "--json", "-k", "3")
    answer = served.search("the mill", k=3).body
    printed = json.loads(done.out)
    assert {name: answer[name] for name in printed} == printed
    assert answer["generation"] == Index(index).generation
    assert set(answer["took_ms"]) == {"encode", "search", "total"}
    assert served.search("the mill", k=3.0).body["hits"] == printed["hits"]


def test_an_answer_of_several_is_bounded(served: Running) -> None:
    answer = served.ask("POST", "/v1/search:batch", {"queries": ["bees"] * 21, "k": 1000})
    assert (answer.status, answer.body["error"]["where"]) == (422, "k")
    answer = served.ask("POST", "/v1/vector", {"vectors": [[0.5] * 255] * 21, "k": 1000})
    assert (answer.status, answer.body["error"]["where"]) == (422, "k")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"vectors": [[1.0, 2.0]]}, 422, "has 2 dimensions, those of the index have 255"),
        ({"vectors": [[0.0] * 255]}, 422, "zero"),
        ({"vectors": [[1.0] * 255, [1.0]]}, 422, "the vectors have several widths"),
        ({"vectors": [[1e300] + [1.0] * 254]}, 422, "finite"),
        ({"vectors": []}, 422, "at least 1 item"),
    ],
)
def test_a_vector_that_is_none(served: Running, body: Any, status: int, message: str) -> None:
    answer = served.ask("POST", "/v1/vector", body)
    assert answer.status == status
    assert message in answer.error


def test_several_indexes_by_name(index: Path, tmp_path: Path) -> None:
    other = make_index(tmp_path / "other")
    with Index(other) as opened:
        opened.delete(["bees"])
    with running({"docs": index, "other": other}) as served:
        assert served.search("bees", index="docs").body["hits"][0]["doc_id"] == "bees"
        assert "bees" not in {hit["doc_id"] for hit in served.search("bees", index="other").body["hits"]}
        answer = served.search("bees")
        assert answer.status == 422
        assert answer.body["error"]["hint"] == "name one of them: docs, other"
        assert served.search("bees", index="third").status == 404
        assert served.ask("GET", "/v1/documents/bees?index=other").status == 404
        assert [one["name"] for one in served.ask("GET", "/v1/info").body["indexes"]] == ["docs", "other"]


@pytest.mark.parametrize(
    ("body", "status", "where", "message"),
    [
        ({"query": ""}, 422, "query", "String should have at least 1 character"),
        ({"query": "   "}, 422, "", "the query is empty"),
        ({}, 422, "query", "Field required"),
        ({"query": "a", "kk": 3}, 422, "kk", "Extra inputs are not permitted"),
        ({"query": "a", "k": 0}, 422, "k", "greater than or equal to 1"),
        ({"query": "a", "k": 1000, "context": 10}, 422, "k", "an answer has at most 20,000 chunks"),
        ({"query": "a", "k": 1001}, 422, "k", "less than or equal to 1000"),
        ({"query": "a", "k": True}, 422, "k", "a number is expected"),
        ({"query": "a", "k": "3"}, 422, "k", "a number is expected"),
        ({"query": "a", "fold": 1}, 422, "fold", "valid boolean"),
        ({"query": "a\0b"}, 422, "query", "the text has a NUL"),
        ({"query": "a", "where": "subject == 'a\0'"}, 422, "where", "the text has a NUL"),
        ({"query": "a\ud83d"}, 400, "", "Invalid JSON"),
        ({"query": "a" * 10_001}, 422, "query", "String should have at most 10000 characters"),
        ({"query": "a", "where": "yaer == 1"}, 422, "condition", "yaer"),
        ({"query": "a", "where": "year == 1 and " * 2000}, 422, "where", "String should have at most 10000 characters"),
        ({"query": "a", "where": "(" * 9000}, 422, "condition", ""),
        ({"query": "a", "where": 'subject matches "(a+)+$"'}, 200, "", ""),
        ({"query": "a", "mode": "fast"}, 422, "mode", "'dense', 'lexical' or 'hybrid'"),
        ({"query": "a", "dim": 4000}, 422, "dim", ""),
        ({"query": "a", "mode": "lexical", "weight": 0.5}, 422, "weight", "hybrid search"),
        ({"query": "a", "rerank": True}, 422, "rerank", "the service has no reranker"),
        ({"query": "a", "instruction": "task:nothing"}, 422, "instruction", "nothing"),
        ({"query": "a", "model": "/etc/passwd"}, 422, "model", "Extra inputs are not permitted"),
    ],
)
def test_what_is_wrong_with_a_search(served: Running, body: Any, status: int, where: str, message: str) -> None:
    answer = served.ask("POST", "/v1/search", body)
    assert answer.status == status
    if status != 200:
        assert message in answer.error
        assert answer.body["error"]["where"].startswith(where)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000, b"nul"])
def test_a_body_that_is_no_json(served: Running, raw: bytes) -> None:
    answer = served.ask("POST", "/v1/search", raw=raw)
    assert answer.status in (400, 422)
    assert answer.error


def test_a_document(served: Running) -> None:
    text, metadata = TEXTS["mill"]
    answer = served.ask("GET", "/v1/documents/mill").body
    assert (answer["text"], answer["metadata"]) == (text, metadata)
    part = served.ask("GET", "/v1/documents/mill?start=4&end=12").body
    assert (part["text"], part["start"], part["end"], part["n_characters"]) == (text[4:12], 4, 12, len(text))
    assert served.ask("GET", "/v1/documents/mill?start=400&end=1").body["text"] == ""
    assert served.ask("GET", "/v1/documents/mill?start=-1").status == 422
    assert served.ask("GET", "/v1/documents/mill?start=x").status == 422


@pytest.mark.parametrize(
    "name", ["nothing", "../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "a%00b", "mill/", "/mill", "%25"]
)
def test_a_document_that_is_not_there(served: Running, name: str) -> None:
    answer = served.ask("GET", f"/v1/documents/{name}")
    assert answer.status == 404
    assert answer.error == "the index has no such document"


ADDRESSES = ["/v1/documents/{}", "/v1/documents/a{}/b", "/v1/documents/mill?index={}", "/?q={}", "/?q=mill&where={}"]
ADDRESSES += ["/results.json?q={}", "/document?id={}", "/document?id=mill&chunk={}", "/{}"]


@pytest.mark.parametrize("place", ADDRESSES)
@pytest.mark.parametrize("encoded", ["%FF", "%FE", "%C3", "%ED%A0%80", "%C0%80"])
def test_an_address_that_is_not_utf_8_names_nothing(served: Running, place: str, encoded: str) -> None:
    answer = served.ask("GET", place.format(encoded))
    assert (answer.status, answer.body["error"]) == (
        400,
        {
            "type": "RequestError",
            "message": "the address is not UTF-8",
            "hint": "percent-encode ids and questions as UTF-8",
            "where": "address",
        },
    )


def test_embeddings_are_the_vectors_of_the_index(served: Running, index: Path) -> None:
    embedder = Index(index).searcher.embedder
    texts = ["The old mill.", "bees", *(f"text {n}" for n in range(70))]
    answer = served.ask("POST", "/v1/embeddings", {"model": "docs", "input": texts}).body
    np.testing.assert_allclose([one["embedding"] for one in answer["data"]], embedder.embed_document(texts), atol=1e-6)
    asked = {"model": "docs:query", "input": "bees", "encoding_format": "base64", "dimensions": 32}
    [one] = served.ask("POST", "/v1/embeddings", asked).body["data"]
    vector = np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
    whole = embedder.embed_query(["bees"])[0, :32]
    np.testing.assert_allclose(vector, whole / np.linalg.norm(whole), atol=1e-6)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"model": "docs", "input": [1, 2, 3]}, 400, "ids of tokens"),
        ({"model": "docs", "input": [[1, 2], [3]]}, 400, "ids of tokens"),
        ({"model": "docs", "input": []}, 422, "at least 1 item"),
        ({"model": "docs", "input": ""}, 422, "at least 1 "),
        ({"model": "docs", "input": [""]}, 422, "at least 1 "),
        ({"model": "docs", "input": "\u3042\u0007"[1:]}, 422, "gives no vector for"),
        ({"model": "docs", "input": ["a"] * 40 + ["\u0007"]}, 422, "gives no vector for text 41"),
        ({"model": "other", "input": "a"}, 404, "no such index"),
        ({"model": "docs:document", "input": "a"}, 404, "NAME:query"),
        ({"model": "docs", "input": "a", "dimensions": 256}, 422, "255 dimensions"),
    ],
)
def test_what_is_wrong_with_texts_to_embed(served: Running, body: Any, status: int, message: str) -> None:
    answer = served.ask("POST", "/v1/embeddings", body)
    assert (answer.status, message in answer.error) == (status, True), answer


def test_the_client_of_openai(served: Running, index: Path) -> None:
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none")
    expected = Index(index).searcher.embedder.embed_document(["The old mill."])
    made = client.embeddings.create(model="docs", input=["The old mill."])  # the client asks for base64
    np.testing.assert_allclose([made.data[0].embedding], expected, atol=1e-6)


def test_another_ragidx_encodes_with_it(served: Running, index: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The old mill ground wheat.")
    built = ragidx.build(
        tmp_path / "docs",
        tmp_path / "index",
        model="openai:docs",
        endpoint=f"{served.url}/v1",
        chunks=ragidx.ChunkSpec(),
    )
    [batch] = built.to_batches(["vector"])
    vector = np.array(batch.column(0).to_pylist()[0], np.float32)
    own = Index(index).searcher.embedder.embed_document([built.chunks(document="a.md")[0].text])[0]
    assert float(vector @ own) > 0.999


def test_what_is_served(served: Running) -> None:
    [about] = served.ask("GET", "/v1/info").body["indexes"]
    assert (about["n_documents"], about["model"], about["mode"], about["ready"]) == (4, "mini", "hybrid", True)
    assert about["fields"]["year"] == "int"
    assert served.ask("GET", "/healthz").body["status"] == "ok"
    assert served.ask("GET", "/readyz").body == {"status": "ok", "indexes": {"docs": "ready"}}


def test_what_it_counts(served: Running) -> None:
    served.search("a secret question")
    counted = 'ragidx_requests_total{route="/v1/search",status="200"}'
    until(lambda: counted in served.ask("GET", "/metrics").body)  # a request is counted after its answer
    text = served.ask("GET", "/metrics").body
    assert 'ragidx_rows{index="docs"} 4.0' in text
    assert "ragidx_search_seconds_bucket" in text
    assert "secret" not in text


def test_a_place_that_is_not_there(served: Running) -> None:
    assert served.ask("GET", "/v1/nothing").status == 404
    answer = served.ask("DELETE", "/v1/search")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert served.ask("GET", "/mcp").status == 405
    assert served.ask("DELETE", "/mcp").status == 405


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400"])
def test_a_number_that_is_not_finite_is_refused_by_name_and_breaks_no_answer(writable: Running, number: str) -> None:
    body = b'{"text": "A comet.", "metadata": {"g": ' + number.encode() + b"}}"

    answer = writable.ask("PUT", "/v1/documents/comet", raw=body)

    assert (answer.status, answer.body["error"]["where"]) == (422, "metadata.g")
    assert writable.search("comet").status == 200
