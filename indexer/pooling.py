"""Pooling: hidden states and a mask become one vector a text.

states (b, t, d) float32, mask (b, t) bool, True on the pooled span -> (b, d) float32, not normalised.
A row without a pooled token gives the zero vector, as the authors of echo have it; the caller decides what that means.
weighted_mean: Muennighoff 2022 (SGPT), position-weighted mean. Templates and models are not known here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def mean(states: Tensor, mask: Tensor) -> Tensor:
    """Mean of the pooled span.

    >>> mean(torch.tensor([[[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]]]), torch.tensor([[True, True, False]]))
    tensor([[0.5000, 1.0000]])
    """
    return _weighted(states, mask.to(torch.float32))


def weighted_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Mean of the pooled span in which its j-th token (j = 1, 2, ...) weighs j.

    j counts inside the span, so an instruction before it changes nothing.

    >>> weighted_mean(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]]), torch.tensor([[True, True]]))
    tensor([[0.3333, 1.3333]])
    """
    return _weighted(states, mask.cumsum(dim=1) * mask.to(torch.float32))


def last(states: Tensor, mask: Tensor) -> Tensor:
    """The state of the last token of the pooled span, on whichever side the padding stands.

    >>> last(torch.tensor([[[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]]]), torch.tensor([[True, True, False]]))
    tensor([[0., 2.]])
    """
    positions = torch.arange(mask.shape[1], device=mask.device)
    index = torch.where(mask, positions, -1).amax(dim=1)
    rows = torch.arange(mask.shape[0], device=mask.device)
    picked = states[rows, index.clamp(min=0)].to(torch.float32)
    return picked * (index >= 0).unsqueeze(1)


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"mean": mean, "weighted_mean": weighted_mean, "last": last}


def _weighted(states: Tensor, weights: Tensor) -> Tensor:
    """Sum of w_i * states_i over sum of w_i, in float32; one batched matrix product, no copy of the states in fp32."""
    total = weights.sum(dim=1, keepdim=True)
    shares = weights / total.clamp(min=1e-9)
    return torch.bmm(shares.unsqueeze(1), states.to(torch.float32)).squeeze(1)
