"""Progress of what goes in stages: which of how many, and the time left at the pace so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Stage:
    """What an evaluation is at.

    Attributes:
        number: of the stage.
        total: of all; 0 until it is known.
        name: for people.
        left_s: until the last one ends, at the pace so far; None: unknown.
    """

    number: int
    total: int
    name: str
    left_s: float | None = None


OnStage: TypeAlias = Callable[[Stage], None]


class Stages:
    """Counts stages; those that are to come are known when the series are."""

    def __init__(self, on_progress: OnStage | None) -> None:
        self._on_progress = on_progress
        self._number = self._before = 0
        self._started = time.perf_counter()
        self.total = 0

    def __call__(self, name: str) -> None:
        """A stage begins."""
        self._number += 1
        if self._on_progress is not None:
            done, left_s = self._number - 1 - self._before, None
            if self.total and done:
                taken = time.perf_counter() - self._started
                left_s = taken / done * (self.total - self._number + 1)
            self._on_progress(Stage(self._number, self.total, name, left_s))

    def expect(self, more: int) -> None:
        """So many stages of similar length are to come."""
        self.total = self._number + more
        self._before, self._started = self._number, time.perf_counter()
