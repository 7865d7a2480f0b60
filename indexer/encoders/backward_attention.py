"""The strongest attention between every two tokens, over all layers and heads, for backward attention (ReBA).

M (b, t, t) = max over layers and heads of (A + A^T) / 2, A the attention after the softmax. The model runs with an
attention function of ours that goes head by head and keeps one running maximum: memory O(b * t^2), never a layer's
heads or all layers' maps. A family with attention code of its own computes eagerly, and the maps of each layer are read
as they pass: memory O(b * h * t^2). Sources: ReBA (Duan et al. 2025), algorithms 1 to 3; transformers'
AttentionInterface.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from ragidx.corpora.errors import ModelError

_NAME = "ragidx_strongest"


# The running maximum of this thread's forward pass, in a list of at most one; None: nothing is watched.
_maximum: ContextVar[list[Tensor] | None] = ContextVar("maximum", default=None)


def use_strongest(model: Any, name: str) -> None:
    """Let a model run with attention that is watched here.

    Raises:
        ModelError: the attention of a layer is out of reach.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    if not getattr(model, "_supports_attention_backend", False):
        model.config._attn_implementation = "eager"
        found = [module for module in model.modules() if type(module).__name__.endswith("Attention")]
        if len(found) == model.config.num_hidden_layers:
            for module in found:
                module.register_forward_hook(_note)
            return
        raise ModelError(
            f"'{name}' cannot be used with backward attention: its family '{model.config.model_type}' does not let its "
            "attention be read in this version of transformers",
            "choose another `method`, such as `method=echo`",
        )
    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, eager_mask)
    model.set_attn_implementation(_NAME)


def watched(forward: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """What a forward pass gives, and the strongest attention (b, t, t) of the layers that it runs."""
    maximum: list[Tensor] = []
    token = _maximum.set(maximum)
    try:
        return forward(), maximum[0]
    finally:
        _maximum.reset(token)


def _note(module: nn.Module, args: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep what a layer's own attention shows: what it adds to the states, and its weights (b, h, t, t)."""
    for head in output[1].unbind(1):
        _keep(head.to(torch.float32))


def _keep(weights: Tensor) -> None:
    """Add the attention of a head, (b, t, t) float32, to the running maximum."""
    maximum = _maximum.get()
    if maximum is not None:
        both = (weights + weights.transpose(1, 2)).mul_(0.5)
        maximum[:] = [torch.maximum(maximum[0], both, out=maximum[0]) if maximum else both]


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
        _keep(weights)
        out[:, head] = torch.matmul(weights.to(value.dtype), value[:, head // group])
    return out.transpose(1, 2).contiguous(), None
