"""An open index in a forked child: it answers as in its parent."""

from __future__ import annotations

from pathlib import Path

import pytest

import ragidx

from ..fork_kit import run_forking

SEARCH = """
import ragidx

retriever = ragidx.Index("index")
questions = ["who decoded an ancient script?", "how do bees find their way?", "what is a lease?"]
answers = lambda: [[(hit.doc_id, hit.score, hit.text) for hit in hits] for hits in retriever.search_batch(questions)]
before = answers()
print(in_child(lambda: answers() == before))
"""

WITH_TORCH = """
import numpy as np
import torch
from ragidx.indexer.encoders import precision
from ragidx.indexer.encoders.load import load_encoder

encoder = load_encoder("mini-decoder", method="echo", device="cpu", dtype="float32")
texts = ["The lease was signed by Ada. " * 10] * 4
before = encoder.encode_document(texts)

def after():
    with precision.threads(2):  # as a build has measured
        return np.allclose(encoder.encode_document(texts), before, atol=1e-6)

print(torch.get_num_threads(), in_child(after))
"""


@pytest.mark.slow
def test_a_forked_child_answers_questions_in_words_as_its_parent(small_corpus: Path, tmp_path: Path) -> None:
    ragidx.build(small_corpus, tmp_path / "index")

    assert run_forking(SEARCH, tmp_path) == "same\n"


@pytest.mark.slow
def test_a_forked_child_encodes_with_torch_as_its_parent(tmp_path: Path) -> None:
    assert run_forking(WITH_TORCH, tmp_path) == "2 same\n"
