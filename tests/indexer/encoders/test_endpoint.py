"""A model of a server as an encoder: vectors in the order of the texts, what is refused, and what is reported."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import IndexFormatError, ModelError, RagidxError
from ragidx.indexer.encoders.endpoint import (
    AT_ONCE,
    CANARY,
    REQUEST_TEXTS,
    REQUEST_TOKENS,
    EndpointEncoder,
    canary_bytes,
    characters,
    check_canary,
    groups,
    n_cut_texts,
    vectors_of,
)
from ragidx.indexer.encoders.load import load_encoder

from ...embedding_server import EmbeddingServer, Handler, Reply, after, changed, status, vector_of, vectors

WORDS = [f"word{number}" for number in range(300)]


def opened(server: EmbeddingServer, **options: Any) -> EndpointEncoder:
    encoder = load_encoder("openai:m", endpoint=server.url, **options)
    assert isinstance(encoder, EndpointEncoder)
    return encoder


def error_of(call: Callable[[], object], server: EmbeddingServer) -> str:
    with pytest.raises(RagidxError) as fault:
        call()
    return str(fault.value).replace(f"{server.url}/embeddings", "URL")


def some_texts(count: int) -> list[str]:
    rng = random.Random(5)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 60))) for _ in range(count)]


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


@given(st.lists(st.integers(0, 2 * REQUEST_TOKENS), max_size=200))
def test_each_text_is_in_one_request_and_requests_are_bounded(lengths: list[int]) -> None:
    found = groups(lengths)

    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    for rows in found:
        assert len(rows) == 1 or sum(lengths[row] for row in rows) <= REQUEST_TOKENS
        assert len(rows) <= REQUEST_TEXTS


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


def bad(row: Any) -> Reply:
    """An answer with one other vector."""
    return changed(lambda data: [*data[:-1], data[-1] | {"embedding": row}])


TWO = ["first text", "second text"]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (bad([math.nan] * 16), "it gave a vector that is not finite for the text 'first text'"),
        (bad([1e300] * 16), "it gave a vector that is not finite for the text 'first text'"),
        (bad([1.0] * 8), "it gave vectors of 8 and 16 numbers, and of 16 before"),
        (bad([]), "its vectors are no lists of numbers"),
        (bad("AAAA"), "its vectors are no lists of numbers"),
        (bad([[1.0]] * 16), "its vectors are no lists of numbers"),
        (bad([{}] * 16), "its vectors are no lists of numbers"),
        (changed(lambda data: data[:1]), "it gave 1 vectors for 2 texts"),
        (changed(lambda data: data * 2), "it gave 4 vectors for 2 texts"),
        (
            changed(lambda data: [data[0], data[0]]),
            "the indexes of its vectors are not those of the texts",
        ),
        (
            changed(lambda data: [one | {"index": one["index"] + 1} for one in data]),
            "the indexes of its vectors are not those of the texts",
        ),
        (
            changed(lambda data: [data[0], {"embedding": data[1]["embedding"]}]),
            "the indexes of its vectors are not those of the texts",
        ),
        (
            changed(lambda data: "no list"),
            "the answer has no list of vectors, as the protocol of OpenAI's embeddings asks for",
        ),
        (
            lambda handler, _: handler.send_json([1, 2]),
            "the answer has no list of vectors, as the protocol of OpenAI's embeddings asks for",
        ),
        (
            lambda handler, _: handler.send_json({"error": "no such\nmodel"}),
            "the answer has no list of vectors, as the protocol of OpenAI's embeddings asks for: 'no such\\nmodel'",
        ),
    ],
)
def test_an_answer_that_is_not_right_is_refused(server: EmbeddingServer, reply: Reply, message: str) -> None:
    encoder = opened(server)
    server.replies.append(reply)

    fault = error_of(lambda: encoder.encode_document(TWO), server)

    assert fault.splitlines()[0].replace("'second text'", "'first text'") == f"URL: {message}"
    assert fault.splitlines()[1].startswith("  hint: look at the server and its model")


LEAVES = st.none() | st.booleans() | st.floats() | st.text(max_size=3)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | inner.map(lambda one: {"data": one, "embedding": one, "index": one})


@given(st.recursive(LEAVES, _nested, max_leaves=6))
def test_whatever_an_answer_is_it_is_vectors_or_an_error(answer: Any) -> None:
    try:
        found = vectors_of(answer, 1)
    except ValueError:
        return
    assert found.shape[0] == 1


def test_a_zero_vector_is_a_text_of_which_the_model_makes_nothing(server: EmbeddingServer) -> None:
    encoder = opened(server)

    assert not encoder.encode_document(["  "]).any()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (
            changed(lambda data: [data[0] | {"embedding": [0.0] * 16}]),
            "URL: it gave a vector that is zero\n  hint: name a model that makes embeddings",
        ),
        (
            status(400, b'{"error": {"message": "\\"m\\" does not support embeddings"}}'),
            'URL: it refuses the request: status 400: "m" does not support embeddings\n'
            "  hint: check the name of the model, and that it makes embeddings",
        ),
    ],
)
def test_a_model_that_makes_no_embeddings_is_refused(server: EmbeddingServer, reply: Reply, message: str) -> None:
    server.replies.append(reply)

    assert error_of(lambda: opened(server), server) == message


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
    assert (usage.url, usage.n_requests, usage.n_again) == (f"{server.url}/embeddings", 2, 1)
    assert usage.n_tokens == len(CANARY.split()) + 3
    assert (usage.n_cut, usage.counted_by) == (None, "")


@pytest.fixture(scope="module")
def words_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer as the server counts: a word is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    backend = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    backend.save(str(path))
    return path


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cpu"}, "`device=cpu`: the server runs 'openai:m'\n  hint: remove `device`"),
        ({"dtype": "float32"}, "`dtype=float32`: the server runs 'openai:m'\n  hint: remove `dtype`"),
        (
            {"pooling": "mean"},
            "`pooling`: a model of a server brings its own pooling\n"
            "  hint: remove `pooling`, or name the model's folder or its hub id",
        ),
        (
            {"method": "echo"},
            "`method`: the server runs 'openai:m', whatever its method is\n"
            "  hint: remove `method`, or name the model's folder or its hub id",
        ),
        (
            {"template": "q: {text}", "instruction": "Find it"},
            "`instruction`: the template 'q: {text}' has no {instruction}, so the instruction would not be read\n"
            "  hint: say where it goes, such as '{instruction} {text}', or remove the instruction",
        ),
    ],
)
def test_what_a_server_decides_cannot_be_asked_for(
    server: EmbeddingServer, options: dict[str, Any], message: str
) -> None:
    assert error_of(lambda: opened(server, **options), server) == message
    assert not server.messages


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            "mini",
            {"endpoint": "http://127.0.0.1:1"},
            "`endpoint`: 'mini' is no model of a server\n  hint: name it as `model=openai:NAME`, or remove `endpoint`",
        ),
        (
            "mini",
            {"tokenizer": "t.json"},
            "`tokenizer`: the model has a tokenizer of its own\n"
            "  hint: remove `tokenizer`, which is for a model of a server",
        ),
        (
            "mini",
            {"method": "endpoint"},
            "`method`: 'mini' is no model of a server\n  hint: name it as `model=openai:NAME`",
        ),
        (
            "openai:m",
            {},
            "`endpoint`: 'openai:m' is a model of a server, and no server is named\n"
            "  hint: name it, such as `endpoint=http://127.0.0.1:11434/v1`",
        ),
        (
            "openai: ",
            {},
            "`model`: 'openai: ' names no model of a server\n  hint: write `model=openai:NAME`, by its name there",
        ),
    ],
)
def test_servers_and_their_models_belong_together(model: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RagidxError) as fault:
        load_encoder(model, **options)

    assert str(fault.value) == message


def test_the_canary_tells_another_model(server: EmbeddingServer) -> None:
    encoder = opened(server)
    kept = canary_bytes(encoder)
    check_canary(encoder, kept, "index")
    server.seed = 1
    other = opened(server)
    server.width = 8
    narrow = opened(server)

    cosine = float(np.frombuffer(kept, "<f4") @ np.frombuffer(canary_bytes(other), "<f4"))
    head = "index: the model 'openai:m' of URL is not the one this index was made with: "
    hint = "\n  hint: name the right server with `endpoint`, or build the index again with `rebuild=True`"
    assert error_of(lambda: check_canary(other, kept, "index"), server) == (
        f"{head}a fixed text has a vector with a cosine of {cosine:.4f} to the one kept, and 0.999 is asked for{hint}"
    )
    assert error_of(lambda: check_canary(narrow, kept, "index"), server) == (
        f"{head}its vectors have 8 numbers now, and had 16{hint}"
    )


@pytest.mark.parametrize("kept", [b"", b"abc", np.zeros(16, "<f4").tobytes(), np.full(16, np.nan, "<f4").tobytes()])
def test_a_damaged_canary_is_told(server: EmbeddingServer, kept: bytes) -> None:
    with pytest.raises(IndexFormatError) as fault:
        check_canary(opened(server), kept, "index")

    assert str(fault.value) == ("index: canary.f32 holds no vector\n  hint: build the index again with `rebuild=True`")


def test_rounding_is_no_other_model(server: EmbeddingServer) -> None:
    encoder = opened(server)
    rounded = np.frombuffer(canary_bytes(encoder), "<f4").astype(np.float16).astype("<f4")

    check_canary(encoder, rounded.tobytes(), "index")
