"""AdamW for weights in bfloat16, with copies in float32 that take its small steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ragidx.corpora.errors import SpecError


class Masters(torch.optim.AdamW):
    """AdamW over float32 copies of weights, which the weights follow.

    In bfloat16, with 8 bits of fraction, a weight would not move by less than a 256th of itself; computing in it is
    what is fast. The copies belong to the state: a run that resumes has them to the last digit.
    """

    def __init__(self, weights: Iterable[nn.Parameter], **options: Any) -> None:
        self._weights = list(weights)
        self._copies = [nn.Parameter(weight.detach().float()) for weight in self._weights]
        super().__init__(self._copies, **options)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of the copies by the gradients of the weights, which then are the copies, rounded."""
        for weight, copy in zip(self._weights, self._copies, strict=True):
            copy.grad = None if weight.grad is None else weight.grad.float()
        loss = super().step(closure)
        self._follow()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients of the weights."""
        for weight in self._weights:
            weight.grad = None

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimizer, with the copies."""
        return {**super().state_dict(), "copies": [copy.detach() for copy in self._copies]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        copies: list[Tensor] = state_dict["copies"]
        super().load_state_dict({name: part for name, part in state_dict.items() if name != "copies"})
        with torch.no_grad():
            for copy, stored in zip(self._copies, copies, strict=True):
                copy.copy_(stored)
            self._follow()

    def _follow(self) -> None:
        for weight, copy in zip(self._weights, self._copies, strict=True):
            weight.copy_(copy)


def share_of_rate(step: int, steps: int, rising: int) -> float:
    """Share of the learning rate at a step, counted from 0: it rises over the first steps, falls, and is never 0.

    >>> [round(share_of_rate(step, 10, rising=1), 2) for step in range(10)]
    [0.5, 1.0, 0.89, 0.78, 0.67, 0.56, 0.44, 0.33, 0.22, 0.11]
    """
    return min((step + 1) / (rising + 1), (steps - step) / (steps - rising))


def steps_of_rise(warmup: float, steps: int) -> int:
    """In how many steps of a run the rate rises; `warmup` is their number, or below 1 their share of all.

    Raises:
        SpecError: it would rise in all of them.

    >>> steps_of_rise(300, 1_000), steps_of_rise(0.1, 25), steps_of_rise(0, 1)
    (300, 2, 0)
    """
    rising = round(min(warmup * steps, steps - 1) if warmup < 1 else warmup)
    if rising < steps:
        return rising
    hint = f"give fewer than {steps:,}, or a share such as 0.1"
    raise SpecError(f"the rate would rise for {rising:,} steps, and the run has {steps:,}", hint, where="`warmup`")
