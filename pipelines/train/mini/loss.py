"""Causal language modelling loss over a tied table: sampled for training, whole for held-out text.

The full softmax over 30,522 tokens is more work than the layers below it. `sampled_loss` sums over the targets of the
batch and a uniform sample of the rest, whose logits carry log(rest / sample): the partition sum stays right on
average (Bengio and Senecal 2008).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def candidates(targets: Tensor, vocabulary: int, sample: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Token ids the softmax runs over, the targets first, and (n,) what is added to their logits."""
    mine = torch.unique(targets)
    rest = torch.ones(vocabulary, dtype=torch.bool)
    rest[mine] = False
    others = rest.nonzero().squeeze(1)
    drawn = others[torch.randperm(len(others), generator=generator)[:sample]]
    shift = torch.zeros(len(mine) + len(drawn))
    if len(drawn):
        shift[len(mine) :] = torch.log(torch.tensor(len(others) / len(drawn)))
    return torch.cat([mine, drawn]), shift


def sampled_loss(states: Tensor, table: Tensor, targets: Tensor, sample: int, generator: torch.Generator) -> Tensor:
    """Mean cross-entropy of (n, d) final states against (n,) targets, in nats."""
    ids, shift = candidates(targets, len(table), sample, generator)
    place_of = torch.zeros(len(table), dtype=torch.long)
    place_of[ids] = torch.arange(len(ids))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = functional.linear(states, table[ids])
    return functional.cross_entropy(logits.float() + shift, place_of[targets])


@torch.inference_mode()
def full_loss(states: Tensor, table: Tensor, targets: Tensor, rows: int = 1024) -> float:
    """Sum of the exact cross-entropy of (n, d) final states, float32, `rows` at a time."""
    total = 0.0
    for first in range(0, len(states), rows):
        logits = states[first : first + rows].float() @ table.T
        total += float(functional.cross_entropy(logits, targets[first : first + rows], reduction="sum"))
    return total
