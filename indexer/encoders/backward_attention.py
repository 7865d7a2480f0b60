"""The strongest attention between every two tokens, over all layers and heads, for backward attention (ReBA).

M (b, t, t) = max over layers and heads of (A + A^T) / 2, A the attention after the softmax. The model runs with an
attention function of ours that goes head by head and keeps one running maximum: memory O(b * t^2), never a layer's
heads or all layers' maps. Sources: the ReBA paper, algorithms 1 to 3; transformers' AttentionInterface.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from ragidx.corpora.errors import ModelError

_NAME = "ragidx_strongest"


class _Running:
    """The running maximum of one forward pass."""

    def __init__(self) -> None:
        self.strongest: Tensor | None = None

    def take(self, weights: Tensor) -> None:
        """One head's attention (b, t, t)."""
        both = (weights + weights.transpose(1, 2)).mul_(0.5)
        self.strongest = both if self.strongest is None else torch.maximum(self.strongest, both, out=self.strongest)


_running: ContextVar[_Running | None] = ContextVar("running", default=None)


def use_strongest(model: Any, name: str) -> None:
    """Let a model run with the attention that is watched here.

    Raises:
        ModelError: its family computes attention by itself, out of reach.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    if not getattr(model, "_supports_attention_backend", False):
        raise ModelError(
            f"'{name}' cannot be used with backward attention: its family '{model.config.model_type}' does not let its "
            "attention be read in this version of transformers",
            "choose another `method`, such as `method=echo`",
        )
    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, eager_mask)
    model.set_attn_implementation(_NAME)


@contextlib.contextmanager
def watched() -> Iterator[_Running]:
    """A forward pass inside fills `strongest` of what this gives."""
    running = _Running()
    token = _running.set(running)
    try:
        yield running
    finally:
        _running.reset(token)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers' eager functions compute it, one head at a time.

    query (b, h, t, c), key and value (b, h / groups, t, c), mask (b, 1, t, t) added -> (b, t, h, c). What else a model
    passes plays no part without dropout and cache: the mask holds windows and direction.
    """
    if s_aux is not None or position_bias is not None:
        raise NotImplementedError("attention with sinks or position biases is not watched")
    running = _running.get()
    heads = query.shape[1]
    group = heads // key.shape[1]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = torch.empty(*query.shape[:-1], value.shape[-1], dtype=value.dtype, device=value.device)
    for head in range(heads):
        scores = torch.matmul(query[:, head], key[:, head // group].transpose(1, 2)) * scale
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        if attention_mask is not None:
            scores = scores + attention_mask[:, 0]
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32)
        if running is not None:
            running.take(weights)
        out[:, head] = torch.matmul(weights.to(value.dtype), value[:, head // group])
    return out.transpose(1, 2).contiguous(), None
