"""Decoder encoders: a text has one vector, whatever padding and texts are beside it."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.indexer.encoders.batching import Budget, collate, run
from ragidx.indexer.encoders.decoder import DecoderEncoder
from ragidx.indexer.prompts.rendering import Rendered

from .decoder_kit import CASES, TEXTS, Make, close, load

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_text_has_one_vector_alone_in_any_batch_and_in_any_order(
    family: str, case: str, encoder_for: Callable[[str, str], DecoderEncoder]
) -> None:
    encoder = encoder_for(family, case)
    alone = np.concatenate([encoder.encode_document([text]) for text in TEXTS])

    for budget, step in ((40, 1), (100_000, -1)):
        encoder.budget = Budget(budget)
        together = encoder.encode_document(TEXTS[::step])[::step]

        assert together.shape == (len(TEXTS), 32)
        assert together.dtype == np.float32
        close(together, alone)
    assert float(np.abs(alone[0] - alone[3]).max()) > 1e-2 * float(np.abs(alone).max())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_text_has_the_same_vector_with_padding_before_it(
    family: str, case: str, encoder_for: Callable[[str, str], DecoderEncoder]
) -> None:
    encoder = encoder_for(family, case)
    encoder.budget = Budget(100_000)
    rows = encoder.rendered(TEXTS, None)
    assert len({row.longest for row in rows}) > 1

    close(encoder.forward(*padded_left(rows, encoder.tokenizer.pad), None).numpy(), encoder.encode_document(TEXTS))


def padded_left(rows: Sequence[Rendered], pad: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As `collate`, with the padding in front, and two more tokens of it than needed."""
    ids, mask, pooled = collate(rows, pad, torch.device("cpu"))
    assert mask is not None
    n_behind = (mask == 0).sum(dim=1).tolist()
    ids, mask, pooled = (
        torch.stack([torch.nn.functional.pad(row.roll(n), (2, 0)) for row, n in zip(part, n_behind, strict=True)])
        for part in (ids, mask, pooled)
    )
    return ids, mask, pooled


def test_what_the_padding_holds_plays_no_part(encoder_for: Callable[[str, str], DecoderEncoder]) -> None:
    for case in ("classical", "llm2vec", "reba, mean", "trainable, last layer"):
        encoder = encoder_for("llama", case)
        rows = encoder.rendered(TEXTS, None)

        one, other = (encoder.forward(*collate(rows, pad, torch.device("cpu")), None).numpy() for pad in (2, 77))

        close(one, other)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts=st.lists(st.text(max_size=20), min_size=1, max_size=6), case=st.sampled_from(sorted(CASES)))
def test_any_texts_have_the_vectors_that_they_have_alone(
    texts: list[str], case: str, encoder_for: Callable[[str, str], DecoderEncoder]
) -> None:
    encoder = encoder_for("llama", case)

    together = encoder.encode_document(texts)

    alone = np.concatenate([encoder.encode_document([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5 * max(1.0, float(np.abs(alone).max())))


def test_a_text_without_tokens_has_no_vector_and_spoils_no_other(tiny_model: Make, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("gpt2"), tmp_path / "no-bos")
    told = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(told | {"post_processor": None}))
    for method in ("classical", "llm2vec", "reba"):
        for attn in ("auto",) if method == "reba" else ("sdpa", "eager"):
            encoder = load(folder, method=method, attn=attn)
            assert encoder.rendered([""], None)[0].ids == []

            empty, full = encoder.encode_document(["", "a mill"])

            assert not empty.any()
            close(full[None], encoder.encode_document(["a mill"]))
            assert not encoder.encode_document([""]).any()


@pytest.mark.parametrize("case", ["reba, mean", "aligned values", "trainable, last layer", "trainable, every layer"])
def test_two_threads_share_an_encoder(case: str, encoder_for: Callable[[str, str], DecoderEncoder]) -> None:
    encoder = encoder_for("llama", case)
    texts = [TEXTS[:1] * 3, TEXTS[3:4] * 2]
    expected = [encoder.encode_document(own) for own in texts]
    meet, wrong = threading.Barrier(2), []

    def work(number: int) -> None:
        meet.wait()
        for _ in range(12):
            try:
                close(encoder.encode_document(texts[number]), expected[number])
            except Exception as fault:  # noqa: BLE001 - told below
                wrong.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_a_model_with_two_sets_of_positions_reads_each_text_with_its_own(tiny_model: Make) -> None:
    long, short = "The river rises in the hills and flows past the old mill.", "a mill"
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "long_factor": [4.0] * 4, "short_factor": [1.0] * 4}
    folder = tiny_model(
        "phi3", original_max_position_embeddings=16, rope_scaling=rope | {"original_max_position_embeddings": 16}
    )
    for method in ("classical", "reba", "metaeol"):
        encoder = load(folder, method=method, template='A "{text}":\nB "{text}":' if method == "metaeol" else None)
        assert encoder.apart == 16
        n_long, n_short = (row.longest for row in encoder.rendered([long, short], None))
        assert n_long > 16 >= n_short

        together = encoder.encode_document([short, long, short, long])

        alone = np.concatenate([encoder.encode_document([text]) for text in (short, long)])
        close(together, alone[[0, 1, 0, 1]])
    words = load(folder, method="classical").encode_words([long.split(), short.split()])
    close(words[1], load(folder, method="classical").encode_words([short.split()])[0])


def test_rows_on_both_sides_of_a_length_share_no_batch() -> None:
    rows = [Rendered([1] * n, ((0, n),)) for n in (3, 9, 8, 4, 7, 2)]
    sizes: list[list[int]] = []

    def forward(ids: torch.Tensor, mask: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
        sizes.append(sorted(pooled.sum(dim=1).tolist(), reverse=True))
        return ids.sum(dim=1, keepdim=True).to(torch.float32)

    batches = list(run(rows, forward, budget=Budget(1000), pad=0, device=torch.device("cpu"), apart=7))

    assert sizes == [[9, 8], [7, 4, 3, 2]]
    assert {row: float(v[0]) for b in batches for row, v in zip(b.rows, b.vectors, strict=True)} == {
        0: 3.0, 1: 9.0, 2: 8.0, 3: 4.0, 4: 7.0, 5: 2.0,
    }  # fmt: skip
