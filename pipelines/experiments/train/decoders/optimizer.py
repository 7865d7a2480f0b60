"""AdamW for weights in bfloat16, with copies in float32 that take its small steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Masters(torch.optim.AdamW):
    """AdamW over float32 copies of weights, which the weights follow.

    In bfloat16, with 8 bits of fraction, a weight would not move by less than a 256th of itself; computing in it is
    what is fast. The copies belong to the state: a run that goes on has them to the last digit.
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


def share_of_rate(step: int, steps: int) -> float:
    """Share of the learning rate at a step, counted from 0: it rises over a tenth of the steps, falls, and is never 0.

    >>> [round(share_of_rate(step, 10), 2) for step in range(10)]
    [0.5, 1.0, 0.89, 0.78, 0.67, 0.56, 0.44, 0.33, 0.22, 0.11]
    """
    rising = round(steps / 10)
    return min((step + 1) / (rising + 1), (steps - step) / (steps - rising))
