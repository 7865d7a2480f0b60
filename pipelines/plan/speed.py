"""How fast this machine encodes: a short measurement, on chunks of the corpus, in batches as a build makes them.

texts -> groups, each twice as large as the one before, through the encoder -> tokens a second of the last. On a
processor the number of threads is the faster of all and one, where tuning would take too long to choose it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragidx.indexer.encoders import Encoder
    from ragidx.indexer.filters.filter import Filter

TEXTS = 2048  # that the speed may be measured on
BUDGET_S = 2.0
_TUNE_TOKENS = 60_000  # that tuning reads, about
_TUNE_S = 15.0  # what tuning may take


@dataclass(frozen=True)
class Speed:
    """What was measured.

    Attributes:
        tokens_per_s: tokens that the model reads, without padding.
        n_chunks: number of chunks that were encoded for it.
        device, dtype: device and number format of the model.
        tuned: whether threads, batches and number format were chosen by measurement first, as a build does.
    """

    tokens_per_s: float
    n_chunks: int
    device: str
    dtype: str
    tuned: bool


def measure(encoder: Encoder, texts: Sequence[str], project: Filter | None, *, tune: bool) -> Speed:
    """The speed of encoding some texts, one or more.

    If the build would `tune`, that is done here where it takes seconds; where it would take longer, the build may turn
    out faster than what is measured here.
    """
    on_cpu, threads = encoder.device == "cpu", None
    _rate(encoder, texts[:1], project, None)  # the first call warms up
    rate = _rate(encoder, texts[:1], project, None)
    if on_cpu and (alone := _rate(encoder, texts[:1], project, 1)) > rate:
        rate, threads = alone, 1
    tuned = tune and on_cpu and _TUNE_TOKENS / rate <= _TUNE_S
    if tuned:
        encoder.tune(texts)
        threads = None  # it has its own
    size, started = 1, time.perf_counter()
    while size < len(texts) and 3 * (time.perf_counter() - started) < BUDGET_S:
        size = min(2 * size, len(texts))
        rate = _rate(encoder, texts[-size:], project, threads)
    return Speed(rate, size, encoder.device, encoder.dtype, tuned)


def _rate(encoder: Encoder, texts: Sequence[str], project: Filter | None, threads: int | None) -> float:
    """Tokens a second."""
    started = time.perf_counter()
    with encoder.on_threads(threads):
        n_tokens = sum(batch.n_tokens for batch in encoder.batches(texts, project=project, tune=False))
    return max(1, n_tokens) / max(time.perf_counter() - started, 1e-9)
