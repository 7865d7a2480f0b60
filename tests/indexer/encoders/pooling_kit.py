"""Shared by tests of trainable pooling: a small network, and rows for it."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ragidx.indexer.encoders.trained_pooling import TrainablePooling

HIDDEN, LAYERS = 6, 3


@functools.cache
def pooling(layers: int | None = None, hidden: int = HIDDEN) -> TrainablePooling:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = TrainablePooling(hidden, latents=5, heads=2, head_width=4, layers=layers)
        for parameter in net.parameters():
            if parameter.dim() == 1:  # norms and biases: fresh ones are 1 and 0, which hides where they belong
                torch.nn.init.normal_(parameter, mean=0.5)
        return net


def drawn(n_texts: int, n_rows: int, seed: int = 0) -> Tensor:
    return torch.randn(n_texts, n_rows, HIDDEN, generator=torch.Generator().manual_seed(seed))


def every(rows: Tensor) -> Tensor:
    return torch.ones(rows.shape[:2], dtype=torch.bool)
