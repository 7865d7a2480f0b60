"""From pieces to the whole corpus: counts a byte, by ending, with a range.

A count is a ratio estimate in each stratum: what its pieces hold, over their bytes, times all of its bytes. The range
holds 90 % of 400 resamples of the pieces (Efron 1979), drawn closer the more of the stratum was read; where one piece
stands for a stratum nothing tells how pieces differ, and the range is from half to twice. What was read whole is exact.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_DRAWS = 400
_SEED = 0
_RANGE = (5.0, 95.0)  # percentiles


@dataclass
class Tally:
    """What one piece holds.

    Attributes:
        ending: its stratum.
        n_bytes: of the corpus that it stands for.
        counts: by name: documents, chunks, tokens ...
        skipped: what was left out, by reason.
    """

    ending: str
    n_bytes: float
    counts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    skipped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Estimate:
    """A count with its range; all three are equal where everything was read."""

    value: int
    low: int
    high: int

    @property
    def exact(self) -> bool:
        """Whether it was counted, not estimated."""
        return self.low == self.value == self.high

    def to_json(self) -> dict[str, int]:
        """All fields."""
        return dataclasses.asdict(self)


class Extrapolation:
    """Tallies of pieces, extrapolated to the strata that they were drawn from.

    Args:
        tallies: one a piece.
        strata: bytes by ending; none where the tallies are of the whole corpus.

    >>> one, other = Tally(".md", 100), Tally(".md", 100)
    >>> one.counts["chunks"], other.counts["chunks"] = 4, 8
    >>> Extrapolation([one, other], {".md": 1000})["chunks"].value
    60
    """

    def __init__(self, tallies: Sequence[Tally], strata: Mapping[str, int]) -> None:
        self._tallies: dict[str, list[Tally]] = defaultdict(list)
        for tally in tallies:
            self._tallies[tally.ending].append(tally)
        self._strata = dict(strata)

    @property
    def is_whole(self) -> bool:
        """Whether the corpus was read, and not pieces of it."""
        return not self._strata

    @property
    def share(self) -> float:
        """How much of the corpus was read, by bytes."""
        if self.is_whole:
            return 1.0
        read = sum(tally.n_bytes for tallies in self._tallies.values() for tally in tallies)
        return min(1.0, read / max(1, sum(self._strata.values())))

    def __getitem__(self, name: str) -> Estimate:
        """One of the counts."""
        return self._estimate(lambda tally: tally.counts.get(name, 0.0))

    def skipped(self) -> dict[str, int]:
        """What is left out, by reason, the most frequent first."""
        reasons = {reason for tallies in self._tallies.values() for tally in tallies for reason in tally.skipped}
        found = {reason: self._estimate(lambda tally, r=reason: tally.skipped[r]).value for reason in reasons}  # type: ignore[misc]
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def _estimate(self, count: Callable[[Tally], float]) -> Estimate:
        if self.is_whole:
            total = round(sum(count(tally) for tallies in self._tallies.values() for tally in tallies))
            return Estimate(total, total, total)
        value, draws = 0.0, np.zeros(_DRAWS)
        for number, (ending, tallies) in enumerate(sorted(self._tallies.items())):
            counts = np.array([count(tally) for tally in tallies], float)
            sizes = np.array([tally.n_bytes for tally in tallies], float)
            total = max(self._strata[ending], 1)
            found = total * counts.sum() / max(sizes.sum(), 1.0)
            left = max(0.0, 1 - sizes.sum() / total)
            value += found
            draws += found + left**0.5 * (total * _resampled(counts, sizes, number) - found)
        low, high = np.percentile(draws, _RANGE)
        return Estimate(round(value), min(round(value), round(max(0.0, low))), max(round(value), round(high)))


def _resampled(counts: NDArray[np.float64], sizes: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """(_DRAWS,) counts a byte of resampled pieces; the same pieces for every count, so that counts vary together."""
    random = np.random.default_rng([_SEED, number])
    if len(counts) == 1:
        ratio: NDArray[np.float64] = counts[0] / max(sizes[0], 1.0) * 2.0 ** random.uniform(-1.1, 1.1, _DRAWS)
        return ratio
    places = random.integers(0, len(counts), (_DRAWS, len(counts)))
    ratios: NDArray[np.float64] = counts[places].sum(axis=1) / np.maximum(sizes[places].sum(axis=1), 1.0)
    return ratios
