"""How fast this machine encodes: a short measurement, on chunks of the corpus, in batches as a build makes them.

texts -> groups, through the encoder one after the other -> tokens a second, the median of groups. Groups grow until
one takes a tenth of a second, so that they are long enough to time and many enough to differ. On a processor the number
of threads is the faster of all and one, where tuning would take too long to choose it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragidx.pipelines.ingest.encode import WINDOW_CHUNKS

if TYPE_CHECKING:
    from ragidx.indexer.encoders.protocol import Encoder
    from ragidx.indexer.filters.filter import Filter

BUDGET_S = 3.0
_GROUPS = 25
_FEWEST = 3  # groups, where there is time: the texts are taken again if there are few
_GROUP_S = 0.1
_TUNE_TOKENS = 60_000  # that tuning reads, about
_TUNE_S = 15.0  # what tuning may take
_FIRST = 4  # chunks of the first group


@dataclass(frozen=True)
class Speed:
    """What was measured.

    Attributes:
        tokens_per_s: the median of the groups; tokens that the model reads, padding left out.
        low, high: the slowest and the fastest group.
        n_groups: how many groups.
        n_chunks: of how many different chunks.
        device, dtype: of the model.
        tuned: whether threads, batches and number format were chosen by measurement first, as a build does.
    """

    tokens_per_s: float
    low: float
    high: float
    n_groups: int
    n_chunks: int
    device: str
    dtype: str
    tuned: bool


def measure(encoder: Encoder, texts: Sequence[str], project: Filter | None, *, tune: bool) -> Speed:
    """The speed of encoding some texts.

    Args:
        encoder: of the build.
        texts: one or more chunks, in random order.
        project: the build's filter.
        tune: whether the build would tune. It is done where that takes seconds; where it would take longer, the
            build may turn out faster than what is measured here.
    """
    on_cpu = encoder.device == "cpu"
    rate, threads = _first_rate(encoder, texts[:1], project, None), None
    if on_cpu and (alone := _first_rate(encoder, texts[:1], project, 1)) > rate:
        rate, threads = alone, 1
    tuned = tune and on_cpu and _TUNE_TOKENS / rate <= _TUNE_S
    if tuned:
        encoder.tune(texts)
        threads = None  # it has its own
    with encoder.on_threads(threads):
        rates, n_chunks = _rates(encoder, texts, project)
    return Speed(
        statistics.median(rates),
        min(rates),
        max(rates),
        len(rates),
        min(n_chunks, len(texts)),
        encoder.device,
        encoder.dtype,
        tuned,
    )


def _rates(encoder: Encoder, texts: Sequence[str], project: Filter | None) -> tuple[list[float], int]:
    """Tokens a second of each group, and how many chunks they had together."""
    rates: list[float] = []
    n_chunks, at = 0, 0
    size, started = min(_FIRST, len(texts)), time.perf_counter()
    while len(rates) < _GROUPS and (not rates or time.perf_counter() - started < BUDGET_S):
        if at >= len(texts):
            if len(rates) >= _FEWEST:
                break
            at = 0
        group = texts[at : at + size]
        at += len(group)
        rate, seconds = _rate(encoder, group, project)
        if seconds < _GROUP_S and size < min(WINDOW_CHUNKS, len(texts)):  # too short to differ from noise
            size = min(2 * size, WINDOW_CHUNKS, len(texts))
            continue
        rates.append(rate)
        n_chunks += len(group)
    return rates, n_chunks


def _first_rate(encoder: Encoder, texts: Sequence[str], project: Filter | None, threads: int | None) -> float:
    """Tokens a second on so many threads; the second of two calls where they are quick: the first warms up."""
    with encoder.on_threads(threads):
        rate, seconds = _rate(encoder, texts, project)
        return rate if seconds > BUDGET_S / 4 else _rate(encoder, texts, project)[0]


def _rate(encoder: Encoder, texts: Sequence[str], project: Filter | None) -> tuple[float, float]:
    """Tokens a second, and the seconds."""
    started = time.perf_counter()
    n_tokens = sum(batch.n_tokens for batch in encoder.batches(texts, project=project, tune=False))
    seconds = max(time.perf_counter() - started, 1e-9)
    return max(1, n_tokens) / seconds, seconds
