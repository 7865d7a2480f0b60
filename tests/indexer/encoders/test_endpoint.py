"""A model of a server as an encoder: vectors in the order of the texts, requests, lengths, and what is reported."""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import ModelError
from ragidx.indexer.encoders.endpoint import (
    AT_ONCE,
    CANARY,
    REQUEST_TEXTS,
    REQUEST_TOKENS,
    characters,
    groups,
    n_cut_texts,
)

from ...embedding_server import EmbeddingServer, Handler, after, changed, status, vector_of, vectors, write_tokenizer
from .endpoint_kit import error_of, opened, some_texts


def test_vectors_are_the_servers_in_the_order_of_the_texts(server: EmbeddingServer) -> None:
    texts = some_texts(300)
    encoder = opened(server)

    found = encoder.encode_document(texts)

    np.testing.assert_array_equal(found, np.stack([vector_of(text) for text in texts]))
    assert (encoder.hidden, encoder.device, encoder.dtype) == (16, server.url[7:-3], "float32")
    assert sorted(server.asked) == sorted([CANARY, *texts])
    assert all(message["model"] == "m" for message in server.messages)


@pytest.mark.slow
def test_answers_that_come_in_any_order_are_put_in_order(server: EmbeddingServer) -> None:
    texts, rng = some_texts(300), random.Random(9)
    encoder = opened(server)
    server.replies.extend(after(rng.random() / 20) for _ in range(10))

    np.testing.assert_array_equal(encoder.encode_document(texts), np.stack([vector_of(text) for text in texts]))


def test_vectors_of_one_answer_are_ordered_by_their_index(server: EmbeddingServer) -> None:
    texts = some_texts(20)
    encoder = opened(server)
    server.replies.append(changed(lambda data: data[::-1]))

    np.testing.assert_array_equal(encoder.encode_document(texts), np.stack([vector_of(text) for text in texts]))


def test_a_server_that_names_no_index_gives_them_in_order(server: EmbeddingServer) -> None:
    server.always = changed(lambda data: [{"embedding": one["embedding"]} for one in data])
    encoder = opened(server)

    np.testing.assert_array_equal(encoder.encode_document(["a", "b"]), np.stack([vector_of("a"), vector_of("b")]))
    assert encoder.usage.n_tokens is None


def test_some_requests_are_under_way_at_once(server: EmbeddingServer) -> None:
    encoder = opened(server)
    running, most = [0], [0]

    def counted(handler: Handler, texts: list[str]) -> None:
        with server.lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.02)
        with server.lock:
            running[0] -= 1
        vectors(handler, texts)

    server.always = counted
    encoder.encode_document(some_texts(AT_ONCE * REQUEST_TEXTS))

    assert 1 < most[0] <= AT_ONCE


@pytest.mark.slow
@given(st.lists(st.integers(0, 2 * REQUEST_TOKENS), max_size=200))
def test_each_text_is_in_one_request_and_requests_are_bounded(lengths: list[int]) -> None:
    found = groups(lengths)

    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    for rows in found:
        assert len(rows) == 1 or sum(lengths[row] for row in rows) <= REQUEST_TOKENS
        assert len(rows) <= REQUEST_TEXTS


@pytest.mark.parametrize("document", ["passage: {text}", "passage: {text}||other: {text}"])
def test_a_form_of_queries_can_stand_apart(document: str, server: EmbeddingServer) -> None:
    encoder = opened(server, template=document, template_query="query: {text}")
    alone = opened(server, template_query="query: {text}")

    assert encoder.spec.template == "passage: {text}||query: {text}"
    assert (alone.spec.template, alone.spec.template_query) == ("{text}||query: {text}", None)


def test_queries_have_their_form_and_documents_theirs(server: EmbeddingServer) -> None:
    encoder = opened(server, template="passage: {text}||query: {text}")

    encoder.encode_document(["a {text}"])
    encoder.encode_query(["b"])
    opened(server).encode_query(["c"], "Find it")

    assert server.asked == [CANARY, "passage: a {text}", "query: b", CANARY, "Instruct: Find it\nQuery: c"]


def test_texts_beyond_max_length_are_cut(server: EmbeddingServer) -> None:
    encoder = opened(server, max_length=3)

    batches = list(encoder.batches(["one two four five", "six"]))

    assert sorted(server.asked[1:]) == ["one two four", "six"]
    assert sum(batch.n_truncated for batch in batches) == 1
    assert [row.truncated for row in encoder.rendered(["one two four five", "six"], None)] == [True, False]
    assert encoder.text_limit() == 3


def test_a_request_with_too_many_texts_is_halved(server: EmbeddingServer) -> None:
    def few(handler: Handler, texts: list[str]) -> None:
        (vectors if len(texts) <= 8 else status(422, b"batch size > 8"))(handler, texts)

    server.always = few
    texts = some_texts(50)

    np.testing.assert_array_equal(opened(server).encode_document(texts), np.stack([vector_of(t) for t in texts]))


def test_a_text_that_is_refused_alone_is_named(server: EmbeddingServer) -> None:
    def short(handler: Handler, texts: list[str]) -> None:
        too_long = any(len(text) > 100 for text in texts)
        (status(400, b'{"error": "input length exceeds the context length"}') if too_long else vectors)(handler, texts)

    server.always = short

    fault = error_of(lambda: opened(server).encode_document(["a", "long " * 40, "b"]), server)

    assert fault == (
        f"URL: it refuses a text of 200 characters, {('long ' * 12)!r}: status 400: input length exceeds the context "
        "length\n  hint: use a smaller `chunk_size`, or give `max_length`; `tokenizer` counts as the model does"
    )


def test_what_was_under_way_is_kept_when_a_request_fails(server: EmbeddingServer) -> None:
    encoder = opened(server)
    texts = some_texts(REQUEST_TEXTS * 8)
    server.replies.extend([after(0.05), after(0.05), after(0.05), status(404)])
    found = []

    with pytest.raises(ModelError, match="status 404"):
        found.extend(batch for batch in encoder.batches(texts))

    assert len(found) == len(server.messages) - 2 >= 3  # less the canary's, and the one that failed
    assert len(server.messages) < 1 + 8


def test_an_encoder_counts_what_it_asked_for(server: EmbeddingServer) -> None:
    encoder = opened(server)
    server.replies.append(status(500))

    encoder.encode_document(["one two", "three"])

    usage = encoder.usage
    assert (usage.url, usage.n_requests, usage.n_retries) == (f"{server.url}/embeddings", 2, 1)
    assert usage.n_tokens == len(CANARY.split()) + 3
    assert (usage.n_cut, usage.counted_by) == (None, "")


@pytest.fixture(scope="module")
def words_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_texts_that_the_server_cut_are_counted(server: EmbeddingServer, words_file: Path) -> None:
    server.limit = 40
    texts = some_texts(200)
    encoder = opened(server, tokenizer=str(words_file))

    n_truncated = sum(batch.n_truncated for batch in encoder.batches(texts))

    assert n_truncated == encoder.usage.n_cut == sum(len(text.split()) > 40 for text in texts) > 0
    assert encoder.usage.counted_by == "tokenizer.json"


@given(
    lengths=st.lists(st.integers(0, 900), min_size=1, max_size=40),
    limit=st.integers(1, 1000),
    around=st.integers(0, 2),
)
def test_cut_texts_follow_from_the_tokens_that_were_read(lengths: list[int], limit: int, around: int) -> None:
    read = sum(min(length + around, limit) for length in lengths)
    n_cut = sum(length + around > limit for length in lengths)

    found = n_cut_texts(lengths, around, read)

    assert found == n_cut if read < sum(lengths) else found == 0  # special tokens alone are no proof


def test_without_a_tokenizer_characters_are_counted() -> None:
    def count(text: str) -> int:
        return len(characters().ids([text])[0])

    assert [count(text) for text in ("", " \n", "word", "wordy", "two words", "a, b", "東京タワー", "Привет")] == [
        *(0, 0, 1, 2, 3, 2, 5, 6)
    ]


def test_a_tokenizer_that_is_none_is_refused(server: EmbeddingServer, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")

    missing = error_of(lambda: opened(server, tokenizer="missing.json").tokenizer, server)
    other = error_of(lambda: opened(server, tokenizer=str(tmp_path / "other.json")).tokenizer, server)

    assert missing == "`tokenizer=missing.json`: there is no such file\n  hint: name the model's tokenizer.json"
    assert other.startswith(f"{tmp_path / 'other.json'}: it is no tokenizer: ")
