"""`dtype="auto"` on a CPU is measured once, on the first call with 256 documents or more; a named dtype stays.

Which format is faster depends on the machine, so the clock is set: products in bfloat16 take half the time here.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ragidx import load_encoder
from ragidx.indexer.encoders import precision
from ragidx.indexer.encoders.precision import MixedLinear
from ragidx.indexer.encoders.protocol import TUNE_FROM
from ragidx.indexer.encoders.torch_encoder import BatchEncoder

from ...conftest import SENTENCES
from ...fork_kit import run_forking

TEXTS = [f"{SENTENCES[number % 3]} {number}" for number in range(TUNE_FROM)]


class Timed:
    """An encoder, and how often the clock was asked about it."""

    def __init__(self, encoder: Any, fast: str = "mixed") -> None:
        assert isinstance(encoder, BatchEncoder)
        self.encoder, self.n_asked, self._fast = encoder, 0, fast

    def seconds(self, forward: Callable[[], Tensor], clock: object = None) -> float:
        forward()
        self.n_asked += 1
        return 0.5 if self.runs == self._fast else 1.0

    @property
    def runs(self) -> str:
        """The number format that is switched on."""
        kinds = {weights.dtype for weights in self.encoder.module().parameters()}
        return "mixed" if self.is_mixed else str(*kinds).removeprefix("torch.")

    @property
    def is_mixed(self) -> bool:
        return any(isinstance(part, MixedLinear) for part in self.encoder.module().modules())


@pytest.fixture
def timed(tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Timed]:
    """`timed(dtype)`: a tiny decoder, on a machine where one format is twice as fast and nothing is remembered."""
    monkeypatch.setenv("RAGIDX_CACHE", str(tmp_path / ".cache/ragidx"))

    def make(dtype: str = "auto", fast: str = "mixed") -> Timed:
        made = Timed(load_encoder(str(tiny_model("llama")), method="classical", device="cpu", dtype=dtype), fast)
        monkeypatch.setattr(precision, "_seconds", made.seconds)
        return made

    return make


@pytest.mark.slow
@pytest.mark.parametrize("fast", ["mixed", "bfloat16"])
def test_the_first_large_call_takes_the_fastest_format_and_stays_near_float32(
    timed: Callable[..., Timed], fast: str
) -> None:
    exact = timed("float32").encoder.encode_document(TEXTS)
    auto = timed(fast=fast)

    found = auto.encoder.encode_document(TEXTS)

    cosines = (exact * found).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(found, axis=1)
    assert (auto.encoder.dtype, auto.runs) == (fast, fast)
    assert not np.array_equal(exact, found)
    assert cosines.min() > 0.999


@pytest.mark.slow
def test_it_is_measured_once(timed: Callable[..., Timed]) -> None:
    auto = timed()
    auto.encoder.encode_document(TEXTS)
    asked = auto.n_asked

    auto.encoder.encode_document(TEXTS[::-1])

    assert asked > 0
    assert auto.n_asked == asked


@pytest.mark.slow
def test_what_was_measured_before_is_not_measured_again_for_the_same_weights_whatever_the_load(
    timed: Callable[..., Timed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = timed(), timed(fast="none")
    monkeypatch.setattr(precision, "best_threads", lambda forward: 2)
    first.encoder.encode_document(TEXTS)  # its clock is the other's
    kept = [path.read_text() for path in (tmp_path / ".cache" / "ragidx" / "formats").iterdir()]
    again = timed("auto", "mixed")
    monkeypatch.setattr(precision, "best_threads", lambda forward: 1)  # where other work holds a core

    found = again.encoder.encode_document(TEXTS)

    assert kept == ["float32"] == [again.encoder.dtype]
    np.testing.assert_array_equal(found, other.encoder.encode_document(TEXTS))


@pytest.mark.slow
def test_fewer_texts_queries_and_whoever_wants_the_same_numbers_again_measure_nothing(
    timed: Callable[..., Timed],
) -> None:
    auto = timed()

    auto.encoder.encode_document(TEXTS[:-1])
    auto.encoder.encode_query(TEXTS)
    list(auto.encoder.batches(TEXTS, tune=False))

    assert (auto.n_asked, auto.encoder.dtype, auto.is_mixed) == (0, "float32", False)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "mixed"])
def test_a_named_dtype_never_changes(timed: Callable[..., Timed], dtype: str) -> None:
    named = timed(dtype)

    named.encoder.encode_document(TEXTS)

    assert named.n_asked > 0  # threads and batches
    assert (named.encoder.dtype, named.is_mixed) == (dtype, dtype == "mixed")


@pytest.mark.slow
def test_a_query_beside_the_measurements_gets_the_vector_of_the_format_that_stays(
    timed: Callable[..., Timed], monkeypatch: pytest.MonkeyPatch
) -> None:
    auto, asked = timed(), []
    exact = auto.encoder.encode_query(["why?"])

    def seconds(forward: Callable[[], Tensor], clock: object = None) -> float:
        if auto.is_mixed and not asked:
            asked.append(pool.submit(auto.encoder.encode_query, ["why?"]))
            wait(asked, timeout=0.5)
        return 1.0

    monkeypatch.setattr(precision, "_seconds", seconds)

    with ThreadPoolExecutor(1) as pool:
        auto.encoder.tune(TEXTS[:8])
        found = asked[0].result()

    assert not auto.is_mixed
    np.testing.assert_array_equal(found, exact)


FORKED = """
from ragidx.indexer.encoders.torch_encoder import _Gate
gate = _Gate()

def alone():
    with gate.passing():
        pass
    with gate.alone():
        return True

with gate.passing():
    print(in_child(alone))
with gate.alone():
    print(in_child(alone))
"""


@pytest.mark.slow
def test_a_child_that_is_forked_beside_a_forward_pass_or_a_measurement_waits_for_neither(tmp_path: Path) -> None:
    assert run_forking(FORKED, tmp_path).split() == ["same", "same"]


@pytest.mark.parametrize(
    ("takes", "best", "rounds"),  # milliseconds on eight threads, on four and on one, round by round
    [
        ([(10, 20, 40)] * 3, 8, 3),
        ([(40, 30, 20)] * 3, 1, 3),
        ([(90, 20, 40), (10, 20, 40), (10, 20, 40)], 8, 3),  # other work met one run of the fastest
        ([(10, 20, 40), (90, 20, 40), (10, 20, 40)], 8, 3),
        ([(90, 20, 40), (90, 20, 40), (1, 20, 40)], 4, 3),  # the fastest run does not decide, either
        ([(10, 10, 10)] * 3, 8, 3),  # of equals, most
        ([(30, 10, 500)], 4, 1),  # a long run is not repeated
        ([(500, 20, 10)], 1, 1),
    ],
)
def test_the_threads_are_those_of_the_best_median_of_three_rounds(
    takes: list[tuple[int, int, int]], best: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def seconds(forward: Callable[[], Tensor]) -> float:
        count = torch.get_num_threads()
        asked.append(count)
        return takes[(len(asked) - 1) // 3][(8, 4, 1).index(count)] / 1000

    monkeypatch.setattr(precision, "_seconds", seconds)

    with precision.threads(8):
        found = precision.best_threads(lambda: torch.zeros(1))
        left = torch.get_num_threads()

    assert (found, left) == (best, 8)
    assert asked == [8, 4, 1] * rounds  # in turns: what other work takes meets each of them
