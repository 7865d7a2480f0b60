"""Encoders of a server of the tests, texts for it, and its errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ragidx.corpora.errors import RagidxError
from ragidx.indexer.encoders.endpoint import EndpointEncoder
from ragidx.indexer.encoders.load import load_encoder

from ...embedding_server import EmbeddingServer
from ...raising import message_of

WORDS = [f"word{number}" for number in range(300)]


def opened(server: EmbeddingServer, **options: Any) -> EndpointEncoder:
    encoder = load_encoder("openai:m", endpoint=server.url, **options)
    assert isinstance(encoder, EndpointEncoder)
    return encoder


def error_of(call: Callable[[], object], server: EmbeddingServer) -> str:
    return message_of(RagidxError, call).replace(f"{server.url}/embeddings", "URL")


def some_texts(count: int) -> list[str]:
    rng = random.Random(5)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 60))) for _ in range(count)]
