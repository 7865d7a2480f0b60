"""Documents are encoded on the threads and in the batches that were measured; questions, which are small, on one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ragidx import load_encoder
from ragidx.indexer.encoders import batching, precision
from ragidx.indexer.encoders.protocol import TUNE_FROM

from ...conftest import SENTENCES

pytestmark = pytest.mark.slow  # on a busy machine, where threads wait for each other

TEXTS = [" ".join(SENTENCES[: 1 + number % 3]) + f" {number}" for number in range(TUNE_FROM)]

Pass = tuple[int, int]  # threads, tokens


@pytest.fixture
def seen(
    tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], tuple[Any, list[Pass]]]]:
    """`seen(threads)`: an encoder that is fastest with so many, and the threads and tokens of each of its passes."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(batching, "CPU_BUDGETS", (256, 512))

    def make(threads: int) -> tuple[Any, list[Pass]]:
        encoder: Any = load_encoder(str(tiny_model("llama")), method="classical", device="cpu", dtype="float32")
        passes: list[Pass] = []
        forward = encoder.forward

        def seconds(run: Callable[[], Tensor], clock: object = None) -> float:
            run()
            return 1.0 if torch.get_num_threads() == threads else 2.0

        def noted(ids: Tensor, *rest: object) -> Tensor:
            passes.append((torch.get_num_threads(), ids.numel()))
            return forward(ids, *rest)

        monkeypatch.setattr(precision, "_seconds", seconds)
        monkeypatch.setattr(encoder, "forward", noted)
        return encoder, passes

    yield make
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [2, 1])
def test_what_runs_is_what_was_measured(seen: Callable[[int], tuple[Any, list[Pass]]], threads: int) -> None:
    encoder, passes = seen(threads)
    encoder.tune(TEXTS)
    measured, tokens = set(passes), encoder.budget.tokens
    passes.clear()

    encoder.encode_document(TEXTS)

    assert {one for one, _ in passes} == {threads} == {encoder.threads}
    full = [count for _, count in passes[:-1]]
    assert len(full) > 1
    assert all(tokens / 2 < count <= tokens for count in full)
    assert any(one == threads and tokens / 2 < count <= tokens for one, count in measured)


def test_before_anything_is_measured_small_batches_run_on_one_thread(
    seen: Callable[[int], tuple[Any, list[Pass]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that wait for each other take longest there."""
    encoder, passes = seen(2)
    monkeypatch.setattr(precision, "_SHARED_WORK", 400 * encoder._n_weights)

    encoder.encode_document(TEXTS[: TUNE_FROM - 1])

    assert {one for one, count in passes if count >= 400} == {2}
    assert {one for one, count in passes if count < 400} == {1}


def test_questions_run_on_one_thread_and_have_the_vectors_that_any_number_gives(
    seen: Callable[[int], tuple[Any, list[Pass]]],
) -> None:
    encoder, passes = seen(2)
    together = encoder.encode_document(TEXTS)
    passes.clear()

    encoder.encode_query(TEXTS[:40])

    assert {one for one, _ in passes} == {1}
    alone = np.concatenate([encoder.encode_document([text]) for text in TEXTS[:5]])
    np.testing.assert_allclose(alone, together[:5], atol=1e-5 * np.abs(together).max())
