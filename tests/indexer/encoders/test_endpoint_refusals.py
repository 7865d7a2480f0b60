"""A model of a server as an encoder: answers that are refused, options that it does not take, and another model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import IndexFormatError, RagidxError
from ragidx.indexer.encoders.endpoint import (
    canary_bytes,
    check_canary,
    vectors_of,
)
from ragidx.indexer.encoders.load import load_encoder

from ...embedding_server import EmbeddingServer, Reply, changed, status
from ...raising import message_of
from .endpoint_kit import error_of, opened


def bad(row: Any) -> Reply:
    """An answer with one other vector."""
    return changed(lambda data: [*data[:-1], data[-1] | {"embedding": row}])


TWO = ["first text", "second text"]
NO_VECTORS = [[], "AAAA", [[1.0]] * 16, ["0.1"] * 16, [True, *[0.5] * 15], [10**400] * 16, [{}] * 16]
OTHER_INDEXES = "the indexes of its vectors are not those of the texts"
NO_LIST = "the answer has no list of vectors, as the protocol of OpenAI's embeddings asks for"


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (bad([math.nan] * 16), "it gave a vector that is not finite for the text 'first text'"),
        (bad([1e300] * 16), "it gave a vector that is not finite for the text 'first text'"),
        (bad([1.0] * 8), "it gave vectors of 8 and 16 dimensions, and of 16 before"),
        *((bad(row), "its vectors are no lists of numbers") for row in NO_VECTORS),
        (changed(lambda data: data[:1]), "it gave 1 vectors for 2 texts"),
        (changed(lambda data: data * 2), "it gave 4 vectors for 2 texts"),
        (changed(lambda data: [data[0], data[0]]), OTHER_INDEXES),
        (changed(lambda data: [one | {"index": one["index"] + 1} for one in data]), OTHER_INDEXES),
        (changed(lambda data: [data[0], {"embedding": data[1]["embedding"]}]), OTHER_INDEXES),
        (changed(lambda data: "no list"), NO_LIST),
        (lambda handler, _: handler.send_json([1, 2]), NO_LIST),
        (lambda handler, _: handler.send_json({"error": "no such\nmodel"}), f"{NO_LIST}: 'no such\\nmodel'"),
    ],
)
def test_an_answer_that_is_not_right_is_refused(server: EmbeddingServer, reply: Reply, message: str) -> None:
    encoder = opened(server)
    server.replies.append(reply)

    fault = error_of(lambda: encoder.encode_document(TWO), server)

    assert fault.splitlines()[0].replace("'second text'", "'first text'") == f"URL: {message}"
    assert fault.splitlines()[1].startswith("  hint: look at the server and its model")


def test_a_key_in_an_answer_is_not_shown(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGIDX_API_KEY", "sk-s3cret")
    server.replies.append(lambda handler, _: handler.send_json({"error": {"message": "who is sk-s3cret?"}}))

    fault = error_of(lambda: opened(server), server)

    assert "who is ***?" in fault
    assert "s3cret" not in fault


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
    assert message_of(RagidxError, lambda: load_encoder(model, **options)) == message


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
        f"{head}a fixed text has a vector with a cosine of {cosine:.4f} to the kept one, below 0.999{hint}"
    )
    assert error_of(lambda: check_canary(narrow, kept, "index"), server) == (
        f"{head}its vectors have 8 dimensions now, and had 16{hint}"
    )


@pytest.mark.parametrize("kept", [b"", b"abc", np.zeros(16, "<f4").tobytes(), np.full(16, np.nan, "<f4").tobytes()])
def test_a_damaged_canary_is_told(server: EmbeddingServer, kept: bytes) -> None:
    said = message_of(IndexFormatError, lambda: check_canary(opened(server), kept, "index"))

    assert said == ("index: canary.f32 holds no vector\n  hint: build the index again with `rebuild=True`")


def test_rounding_is_no_other_model(server: EmbeddingServer) -> None:
    encoder = opened(server)
    rounded = np.frombuffer(canary_bytes(encoder), "<f4").astype(np.float16).astype("<f4")

    check_canary(encoder, rounded.tobytes(), "index")
