"""An index by a model of a server: built, asked, continued after a kill, and refused where the model is another."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx import Grid
from ragidx.corpora.errors import ModelError, RagidxError, SpecError
from ragidx.indexer.encoders.endpoint import CANARY, REQUEST_TEXTS
from ragidx.indexer.encoders.protocol import OtherModelError
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify
from ragidx.pipelines.ingest.report import StrictError
from ragidx.pipelines.plan.plan import plan
from ragidx.pipelines.vectors import RowWriter, build_vectors

from ...embedding_server import EmbeddingServer, Handler, after, status, vector_of, vectors, write_tokenizer
from ...raising import message_of

KEY = "sk-s3cret-0123456789"
ENDPOINT = "http://127.0.0.1:PORT/v1/embeddings"


def build(server: EmbeddingServer, corpus: Path, index: Path, **options: Any) -> Any:
    return ragidx.build(corpus, index, **{"model": "openai:m", "endpoint": server.url} | options).report


def error_of(server: EmbeddingServer, call: Any) -> str:
    return message_of(RagidxError, call).replace(f":{server.server_port}/", ":PORT/")


@pytest.fixture
def index(server: EmbeddingServer, small_corpus: Path, tmp_path: Path) -> Path:
    """Of the small corpus; what the server was asked for it is forgotten."""
    build(server, small_corpus, tmp_path / "index")
    server.messages.clear()
    server.headers.clear()
    return tmp_path / "index"


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A corpus of 300 short documents in one file."""
    path = tmp_path / "many.jsonl"
    lines = [json.dumps({"id": f"d{n}", "text": f"Document {n} is about item{n} and item{n * 7}."}) for n in range(300)]
    path.write_text("\n".join(lines) + "\n")
    return path


def stored(index: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The stored vectors by document."""
    (segment,) = Store.open(index).segments
    rows = np.arange(segment.entry.rows)
    names = segment.columns(["doc_id"]).column(0).to_pylist()
    return dict(zip(names, segment.vectors(rows), strict=True))


@pytest.mark.slow
def test_the_vectors_of_an_index_are_the_servers_with_length_1(
    server: EmbeddingServer, many: Path, tmp_path: Path
) -> None:
    report = build(server, many, tmp_path / "index")

    assert (report.n_encoded, report.dim, report.method, report.device) == (300, 16, "endpoint", server.url[7:-3])
    assert report.endpoint is not None
    assert report.endpoint.n_tokens == sum(len(text.split()) for text in server.asked)
    assert report.endpoint.n_requests == len(server.messages) == 2 + -(-300 // REQUEST_TEXTS)
    for doc_id, vector in stored(tmp_path / "index").items():
        text = next(text for text in server.asked if text.startswith(f"Document {doc_id.split('#d')[1]} "))
        np.testing.assert_allclose(vector, l2_normalize(vector_of(text)[None]).vectors[0], atol=1e-3)


def test_a_question_is_answered_by_vectors_and_words(server: EmbeddingServer, index: Path) -> None:
    retriever = ragidx.Index(index)

    dense = retriever.search("The old mill stands where the river reaches the sea.", k=1, mode="dense")
    both = retriever.search("Who signed the lease?", k=1)

    assert dense[0].doc_id == "mill.md"
    assert both[0].doc_id == "lease.txt"
    assert server.asked == [CANARY, "The old mill stands where the river reaches the sea.", "Who signed the lease?"]


def test_what_did_not_change_is_not_asked_again(server: EmbeddingServer, index: Path, small_corpus: Path) -> None:
    server.replies.extend([status(500)] * 9)  # not even the canary
    idle = ragidx.build(small_corpus, index).report
    server.replies.clear()
    (small_corpus / "new.txt").write_text("A new text.\n")

    report = ragidx.build(small_corpus, index).report

    assert not idle.committed
    assert idle.endpoint is None
    assert server.asked == [CANARY, "A new text.", CANARY]
    assert (report.n_encoded, report.n_added) == (1, 1)


def test_another_address_of_the_same_model_is_the_same_model(
    server: EmbeddingServer, index: Path, small_corpus: Path
) -> None:
    other = f"http://localhost:{server.server_port}/other"
    (small_corpus / "new.txt").write_text("A new text.\n")

    report = build(server, small_corpus, index, endpoint=other)

    assert report.n_encoded == 1
    assert Store.open(index).manifest.notes["endpoint"] == f"{other}/embeddings"
    assert ragidx.Index(index, endpoint=server.url).search("new", k=1)[0].doc_id == "new.txt"
    assert set(server.paths) == {"/v1/embeddings", "/other/embeddings"}


def test_a_model_of_another_name_is_another(server: EmbeddingServer, index: Path, small_corpus: Path) -> None:
    with pytest.raises(SpecError, match="`model` is 'openai:m' in the index, 'openai:other' now"):
        build(server, small_corpus, index, model="openai:other")
    asking = error_of(server, lambda: ragidx.Index(index, model="openai:other").search("x"))

    assert asking == (
        f"{index}: 'openai:other' is not the model this index was made with, which is 'openai:m'\n"
        "  hint: remove `model`, or build the index again with `rebuild=True`"
    )


def test_a_model_here_is_another(server: EmbeddingServer, index: Path, small_corpus: Path) -> None:
    mini = index.parent / "mini"
    ragidx.build(small_corpus, mini)

    for folder, options in ((mini, {"model": "openai:m", "endpoint": server.url}), (index, {"model": "mini"})):
        with pytest.raises(SpecError, match="the index was built with other options: `model` is '") as fault:
            ragidx.build(small_corpus, folder, **options)
        assert fault.value.where == str(folder)


def test_another_model_behind_the_same_name_is_noticed(
    server: EmbeddingServer, index: Path, small_corpus: Path
) -> None:
    server.seed = 1
    (small_corpus / "new.txt").write_text("A new text.\n")
    for ask in (lambda: ragidx.Index(index).search("x"), lambda: ragidx.build(small_corpus, index)):
        with pytest.raises(OtherModelError) as fault:
            ask()
        assert fault.value.where == str(index)
    assert server.asked == [CANARY, CANARY]  # no text was sent to it

    build(server, small_corpus, index, rebuild=True)
    assert ragidx.Index(index).search("A new text.", k=1, mode="dense")[0].doc_id == "new.txt"


@pytest.mark.slow
def test_a_build_that_failed_goes_on_without_asking_twice(server: EmbeddingServer, many: Path, tmp_path: Path) -> None:
    server.replies.extend([vectors, vectors, vectors, status(404)])
    with pytest.raises(ModelError, match="status 404"):
        build(server, many, tmp_path / "index")
    answered = {text for message in server.messages for text in message["input"]}
    n_failed = len(server.messages[3]["input"])

    report = build(server, many, tmp_path / "index")

    assert report.n_encoded < 300
    assert report.n_encoded + report.n_chunks_reused == 300
    asked = Counter(server.asked)
    del asked[CANARY]
    assert set(asked) >= answered - {CANARY}
    assert sum(asked.values()) == 300 + n_failed
    assert verify(tmp_path / "index") == []


def test_the_journal_of_another_model_is_not_gone_on_with(server: EmbeddingServer, many: Path, tmp_path: Path) -> None:
    server.replies.extend([vectors, vectors, vectors, status(404)])
    with pytest.raises(ModelError):
        build(server, many, tmp_path / "index")
    server.seed = 1
    vector, other = (l2_normalize(vector_of(CANARY, seed=seed)[None]).vectors[0] for seed in (0, 1))

    assert error_of(server, lambda: build(server, many, tmp_path / "index")) == (
        f"{tmp_path / 'index'}: the model 'openai:m' of {ENDPOINT} is not the one of the build that was interrupted: a "
        f"fixed text has a vector with a cosine of {vector @ other:.4f} to the kept one, below 0.999\n"
        f"  hint: name the right server with `endpoint`, or remove the folder {tmp_path / 'index' / 'journal'} and "
        "encode all again"
    )


@pytest.mark.slow
def test_a_build_that_was_killed_goes_on_without_asking_twice(
    server: EmbeddingServer, many: Path, tmp_path: Path
) -> None:
    held = threading.Event()

    def hold(handler: Handler, texts: list[str]) -> None:
        held.set()
        after(30)(handler, texts)

    server.replies.extend([vectors] * 5 + [hold] * 9)
    command = [sys.executable, "-m", "ragidx", "build", str(many), "--index", str(tmp_path / "index")]
    command += ["--model", "openai:m", "--endpoint", server.url]
    process = subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert held.wait(60)
    before = [message["input"] for message in server.messages]
    answered = {text for texts in before[:5] for text in texts} - {CANARY}
    kept = 64 + len(answered) * (16 + 2 * server.width + 4)  # bytes of a journal: its head, then the records
    while sum(path.stat().st_size for path in tmp_path.glob("index/journal/*.bin")) < kept:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.replies.clear()
    server.messages.clear()

    report = build(server, many, tmp_path / "index")

    assert answered
    assert not answered & set(server.asked)
    assert report.n_chunks_reused == len(answered)
    assert report.n_encoded == 300 - len(answered) == len(server.asked) - 2


def test_no_key_is_printed_or_stored(
    server: EmbeddingServer, small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    report = build(server, small_corpus, tmp_path / "index")

    assert {header["Authorization"] for header in server.headers} == {f"Bearer {KEY}"}
    assert KEY not in json.dumps(report.to_json())
    files = [path for path in (tmp_path / "index").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_question_without_an_address_asks_this_machine_and_sends_no_key(
    server: EmbeddingServer, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGIDX_API_KEY", KEY)

    ragidx.Index(index).search("x")
    ragidx.Index(index, endpoint=server.url).search("x")

    assert [header.get("Authorization") for header in server.headers] == [None, None, f"Bearer {KEY}", f"Bearer {KEY}"]


def test_an_index_sends_no_text_to_another_machine(server: EmbeddingServer, index: Path) -> None:
    retriever = ragidx.Index(index)
    far = "http://203.0.113.7/v1/embeddings"
    retriever.searcher.store.manifest = dataclasses.replace(retriever.searcher.store.manifest, notes={"endpoint": far})

    assert error_of(server, lambda: retriever.search("x")) == (
        f"`endpoint`: the index was made with the endpoint {far}, which is another machine\n"
        f"  hint: name it, if texts may go there: `endpoint={far}`"
    )
    assert not server.messages


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pca", "whitening", "truncation", "random"])
def test_filters_that_need_no_weights_work(server: EmbeddingServer, many: Path, tmp_path: Path, name: str) -> None:
    report = build(server, many, tmp_path / "index", filter=ragidx.FilterSpec(name, dim=8))

    assert report.dim == 8
    assert len(server.asked) == 302  # the sample of a fitted filter is encoded once; the canary twice
    assert ragidx.Index(tmp_path / "index").search("Document 7 is about item7", k=1)[0].doc_id == "many.jsonl#d7"


def test_embedfilter_needs_the_weights(server: EmbeddingServer, small_corpus: Path, tmp_path: Path) -> None:
    assert error_of(server, lambda: build(server, small_corpus, tmp_path / "index", filter="embedfilter")) == (
        "`filter`: this needs the weights of 'openai:m', and a server has them\n"
        "  hint: use `filter=none`, or one that reads no head: truncation, random, whitening, pca"
    )


@pytest.mark.slow
def test_a_sweep_asks_for_each_text_once(server: EmbeddingServer, many: Path, index: Path) -> None:
    swept = ragidx.evaluate(
        many, grid=Grid(dim=[4, 8], filter=["pca", "truncation"], model="openai:m"), costs=True, endpoint=server.url
    )
    of_index = ragidx.evaluate(index, grid=Grid(dim=[8]), costs=True, endpoint=server.url)

    assert {row.configuration.dim for row in swept.tasks[0].rows} == {4, 8, 16}
    assert (len(server.asked), len(set(server.asked))) == (302, 301)  # the canary twice, by each encoder that asks
    assert {row.tokens for row in swept.tasks[0].rows} == {None}  # the server's tokenizer is not here
    assert {row.configuration.filter for row in of_index.tasks[0].rows} == {
        "none",
        "truncation",
    }  # too few chunks for pca


@pytest.mark.slow
def test_a_plan_knows_the_width_and_builds_nothing(server: EmbeddingServer, many: Path, tmp_path: Path) -> None:
    found = plan(many, tmp_path / "index", model="openai:m", endpoint=server.url)

    assert (found.dim, found.n_to_encode, found.method) == (16, 300, "endpoint")
    assert found.speed is not None
    assert found.footprint.filter_bytes == 0  # the canary is none
    assert not (tmp_path / "index").exists()


@pytest.mark.slow
def test_under_strict_a_text_that_the_server_cuts_ends_the_build(
    server: EmbeddingServer, many: Path, tmp_path: Path
) -> None:
    server.limit = 5
    options = {"tokenizer": str(write_tokenizer(tmp_path))}

    report = build(server, many, tmp_path / "index", **options)
    with pytest.raises(StrictError) as fault:
        build(server, many, tmp_path / "other", strict=True, **options)

    assert report.endpoint is not None
    assert report.endpoint.n_cut == 300
    assert str(fault.value) == (
        f"{server.url}/embeddings: the endpoint cut 32 texts: its model reads fewer tokens\n"
        "  hint: use a smaller `chunk_size`, or build without `strict=True`"
    )


def test_a_tokenizer_that_moved_is_named_again(server: EmbeddingServer, small_corpus: Path, tmp_path: Path) -> None:
    from ragidx.indexer.encoders.endpoint import characters

    characters().texts.save(str(tmp_path / "one.json"))
    build(server, small_corpus, tmp_path / "index", tokenizer=str(tmp_path / "one.json"))
    (tmp_path / "one.json").rename(tmp_path / "two.json")
    (small_corpus / "new.txt").write_text("A new text.\n")

    missing = error_of(server, lambda: ragidx.build(small_corpus, tmp_path / "index"))
    asked = ragidx.Index(tmp_path / "index").search("lease", k=1)
    report = ragidx.build(small_corpus, tmp_path / "index", tokenizer=str(tmp_path / "two.json")).report

    assert missing == (
        f"`tokenizer={tmp_path / 'one.json'}`: there is no such file\n  hint: name the model's tokenizer.json"
    )
    assert asked[0].doc_id == "lease.txt"  # a question needs no tokenizer
    assert report.n_encoded == 1


@pytest.mark.slow
def test_precomputed_vectors_are_asked_by_the_model_that_made_them(server: EmbeddingServer, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"Text {number} is about item{number}." for number in range(40)]
    rows = {"id": [f"t{n}" for n in range(40)], "text": texts, "vector": [vector_of(text).tolist() for text in texts]}
    pq.write_table(pa.table(rows), tmp_path / "vectors.parquet")
    options: dict[str, Any] = {"model": "openai:m", "endpoint": server.url}

    report = build_vectors(tmp_path / "vectors.parquet", tmp_path / "index", **options)
    with RowWriter(tmp_path / "index", 16) as writer:
        writer.add_vectors(["more"], [vector_of("something else").tolist()], ["something else"])
        writer.commit()
    hits = ragidx.Index(tmp_path / "index").search("something else", k=1, mode="dense")
    server.seed = 1

    assert report.queries is not None
    assert report.queries.n_checked == 32
    assert hits[0].chunk_id == "more"
    with pytest.raises(ModelError, match="is not the one this index was made with"):
        ragidx.Index(tmp_path / "index").search("x")
    with pytest.raises(SpecError, match="did not make these vectors"):
        build_vectors(tmp_path / "vectors.parquet", tmp_path / "other", **options)


def test_what_keeps_an_index_as_it_is_keeps_its_model(server: EmbeddingServer, index: Path) -> None:
    from ragidx.pipelines.maintain.delete import delete
    from ragidx.pipelines.maintain.rewrite import compact, shrink

    delete(index, ids=["lease.txt"])
    compact(index)
    shrink(index, dim=8)

    assert ragidx.Index(index).search("Bees dance", k=1, mode="dense")[0].doc_id == "facts.jsonl#bees"
    assert server.asked == [CANARY, "Bees dance"]
