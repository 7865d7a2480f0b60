"""Pooling: hidden states and a mask become one vector a text.

states (b, t, d), mask (b, t) bool, True on the pooled span -> (b, d) float32, not normalised. A pooling is a choice of
weights (b, t) over the span; its vector is the sum of weight times state. A row without a pooled token gives the zero
vector, as in the code of echo's authors; the caller decides what that means. Backward attention (ReBA, Duan
et al. 2025) spreads a span's weights over the tokens that look back on it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def mean(mask: Tensor) -> Tensor:
    """The same weight for every token of the span.

    >>> mean(torch.tensor([[True, True, False]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    return _shares(mask.to(torch.float32))


def weighted_mean(mask: Tensor) -> Tensor:
    """The j-th token of the span (j = 1, 2, ...) weighs j. Source: Muennighoff 2022 (SGPT).

    j counts inside the span, so an instruction before it changes nothing.

    >>> weighted_mean(torch.tensor([[False, True, True]]))
    tensor([[0.0000, 0.3333, 0.6667]])
    """
    return _shares(mask.cumsum(dim=1) * mask.to(torch.float32))


def last(mask: Tensor) -> Tensor:
    """The last token of the span alone, for left and right padding.

    >>> last(torch.tensor([[True, True, False]]))
    tensor([[0., 1., 0.]])
    """
    positions = torch.arange(1, mask.shape[1] + 1, device=mask.device) * mask
    return ((positions == positions.amax(dim=1, keepdim=True)) & mask).to(torch.float32)


# The span of `eos` and `bos` is that one token: rendering sees to it.
WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": mean,
    "weighted_mean": weighted_mean,
    "last": last,
    "eos": last,
    "bos": last,
}


def pooled(states: Tensor, weights: Tensor) -> Tensor:
    """Sum over positions of weight times state, in float32: (b, t, d), (b, t) -> (b, d).

    >>> pooled(torch.tensor([[[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]]]), torch.tensor([[0.5, 0.5, 0.0]]))
    tensor([[0.5000, 1.0000]])
    """
    return torch.bmm(weights.unsqueeze(1), states.to(torch.float32)).squeeze(1)


def look_back(strongest: Tensor, attention: Tensor | None) -> Tensor:
    """How much each token's vector takes of each later token's state: row i, column j >= i; 0 elsewhere.

    A token's ReBA vector is `e_i = sum over j >= i of M[i, j] * H[j]`; nothing is renormalised.

    Args:
        strongest: (b, t, t) M, the largest symmetrised attention over all layers and heads.
        attention: (b, t) 1 where there is a token, None without padding. Padding does not count as a later token.
    """
    upper = strongest.triu()
    return upper if attention is None else upper * attention.to(upper.dtype).unsqueeze(1)


def _shares(weights: Tensor) -> Tensor:
    return weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-9)
