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
        number: number of the stage, from 1.
        total: number of all stages; 0 until it is known.
        name: name of the stage, for people.
        left_s: seconds until the last stage ends, at the pace so far; None: unknown.
    """

    number: int
    total: int
    name: str
    left_s: float | None = None


OnStage: TypeAlias = Callable[[Stage], None]


class Stages:
    """Counts stages; those of a part are known when its series are, and other parts are thought to be like it.

    Args:
        on_progress: called when a stage begins.
        parts: such as the models of a grid.
    """

    def __init__(self, on_progress: OnStage | None, parts: int = 1) -> None:
        self._on_progress, self.parts = on_progress, parts
        self._number = self._before = self._last = self._part = 0
        self._begun = self._started = time.perf_counter()
        self.total = 0

    def __call__(self, name: str) -> None:
        """A stage begins."""
        self._number += 1
        if self._on_progress is not None:
            done, left_s = self._number - 1 - self._before, None
            if self.total and done:
                now = time.perf_counter()
                here_s = (now - self._started) / done * max(0, self._last - self._number + 1)
                left_s = (now - self._begun + here_s) * self._share() - (now - self._begun)
            self._on_progress(Stage(self._number, self.total, name, left_s))

    def expect(self, more: int) -> None:
        """A part begins: so many stages of similar length are to come."""
        self._part += 1
        self._last = self._number + more
        self.total = round(self._last * self._share())
        self._before, self._started = self._number, time.perf_counter()

    def _share(self) -> float:
        """All parts / those that have begun."""
        return max(1, self.parts / self._part)
