"""Shared by tests of decoder encoders: texts, a case a method and pooling, and how vectors are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import SpecError
from ragidx.indexer.encoders.decoder import DecoderEncoder
from ragidx.indexer.encoders.load import load_encoder

from ...raising import message_of

Make = Callable[..., Path]
Vectors = NDArray[np.float32]

TEXTS = [
    "The river rises in the hills and flows past the old mill.",
    "a",
    "Ünïcödé café, 東京",
    "Who signed the lease?",
    'He said "hello" </s>',
]
# A name, and what makes the encoder; `layers` stands for the pooler's file.
CASES: dict[str, dict[str, Any]] = {
    "classical": {"method": "classical"},
    "classical, weighted mean": {"method": "classical", "pooling": "weighted_mean"},
    "classical, last": {"method": "classical", "pooling": "last"},
    "classical, eos": {"method": "classical", "pooling": "eos"},
    "classical, layer 1 and norm": {"method": "classical", "layer": 1, "layer_norm": True},
    "classical, both ways, bos": {"method": "classical", "attention": "bidirectional", "pooling": "bos"},
    "echo": {"method": "echo"},
    "echo, last": {"method": "echo", "pooling": "last"},
    "echo, no eos": {"method": "echo", "pool_eos": False},
    "echo, trained": {"method": "echo", "template": "echo-trained", "pooling": "last"},
    "echo, 3 copies": {"method": "echo", "copies": 3},
    "prompteol": {"method": "prompteol"},
    "aligned values": {"method": "aligned-values"},
    "aligned values, mean, layer 1": {
        "method": "aligned-values",
        "template": "classical",
        "pooling": "mean",
        "layer": 1,
    },
    "metaeol": {"method": "metaeol"},
    "metaeol, eos": {"method": "metaeol", "pooling": "eos"},
    "llm2vec": {"method": "llm2vec"},
    "llm2vec, weighted mean": {"method": "llm2vec", "pooling": "weighted_mean"},
    "llm2vec, eos": {"method": "llm2vec", "pooling": "eos"},
    "llm2vec, bos": {"method": "llm2vec", "pooling": "bos"},
    "reba, mean": {"method": "reba"},
    "reba, weighted mean": {"method": "reba", "pooling": "weighted_mean"},
    "reba, last": {"method": "reba", "pooling": "last"},
    "reba, 3 copies": {"method": "reba", "copies": 3},
    "reba, layer 1": {"method": "reba", "layer": 1},
    "trainable, last layer": {"method": "classical", "pooling": "trainable", "layers": None},
    "trainable, last layer, both ways": {"method": "llm2vec", "pooling": "trainable", "layers": None},
    "trainable, every layer": {"method": "classical", "pooling": "trainable", "layers": 2},
    "trainable, every layer, both ways": {"method": "llm2vec", "pooling": "trainable", "layers": 2},
    "trainable, metaeol": {"method": "metaeol", "pooling": "trainable", "layers": None},
}
LONG_ENOUGH = {"llama": {"max_position_embeddings": 256}, "gpt2": {"n_positions": 256}}


def load(folder: Path, **options: Any) -> DecoderEncoder:
    encoder = load_encoder(str(folder), device="cpu", dtype="float32", **options)
    assert isinstance(encoder, DecoderEncoder)
    # The limit of the tokenizer is that of a model of 128 positions; those with 256 read as much as they can.
    encoder.max_length = encoder.backbone.max_positions
    return encoder


def close(one: Vectors, other: Vectors) -> None:
    """Equal to 1e-5 of the vectors' scale, and vectors that differ from text to text."""
    scale = float(np.abs(other).max())
    assert scale > 1e-3
    np.testing.assert_allclose(one / scale, other / scale, atol=1e-5)


def told(make: Callable[[], object], kind: type[Exception] = SpecError) -> str:
    return message_of(kind, make)
