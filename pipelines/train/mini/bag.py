"""The trained table: token vectors whose mean over a text agrees with the teacher's vector of it.

A bag of tokens (V, w) and a linear map (w, 384) under the cosine loss; the map is folded into the table at the end.
The start is the teacher's static vectors, centred, in their first w principal directions, each times a / (a + p) with
p the token's share of the text (Arora et al. 2017): frequent tokens start short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class BagSpec:
    """How the table is trained; Adam's rate falls linearly to 0."""

    width: int = 256
    epochs: int = 5
    batch: int = 1024
    rate: float = 1e-2
    token_weight: float = 1e-3
    seed: int = 0


def weighted_start(static: NDArray[np.float32], counts: NDArray[np.int64], spec: BagSpec) -> NDArray[np.float32]:
    """(V, width) first principal directions of the static vectors, each row times a / (a + p)."""
    centred = static - static.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    share = (counts + 1) / counts.sum()
    weight = spec.token_weight / (spec.token_weight + share)
    start: NDArray[np.float32] = (centred @ directions[:, ::-1][:, : spec.width] * weight[:, None]).astype(np.float32)
    return start


def train_bag(
    start: NDArray[np.float32],
    flat: NDArray[np.uint16],
    offsets: NDArray[np.int64],
    targets: NDArray[np.float32],
    spec: BagSpec,
    tell: Callable[[str], None],
) -> NDArray[np.float32]:
    """Train the bag, then fold its map into the table.

    Args:
        start: (V, width).
        flat: tokens of all texts, one text after the other.
        offsets: (n + 1,), text r is `flat[offsets[r] : offsets[r + 1]]`.
        targets: (n, w) teacher vectors, any length.
        spec: epochs, rate and seed.
        tell: called with a line of progress each epoch.

    Returns:
        (V, w) token vectors in the teacher's space, of rank `width`.
    """
    torch.manual_seed(spec.seed)
    draw = torch.Generator().manual_seed(spec.seed)
    table = torch.nn.Parameter(torch.from_numpy(start.copy()))
    to_teacher = torch.nn.Linear(start.shape[1], targets.shape[1], bias=False)
    optimizer = torch.optim.Adam([table, *to_teacher.parameters()], lr=spec.rate)
    ids, begins = torch.from_numpy(flat.astype(np.int64)), torch.from_numpy(offsets)
    wanted = functional.normalize(torch.from_numpy(targets), dim=1)
    batch = min(spec.batch, len(targets))
    per_epoch = len(targets) // batch
    for epoch in range(spec.epochs):
        losses = []
        order = torch.randperm(len(targets), generator=draw)
        for number in range(per_epoch):
            some = order[number * batch : (number + 1) * batch]
            bags = functional.embedding_bag(*_bags(ids, begins, some, table), mode="sum")
            loss = 1 - functional.cosine_similarity(to_teacher(bags), wanted[some]).mean()
            for group in optimizer.param_groups:
                group["lr"] = spec.rate * (1 - (epoch * per_epoch + number) / (spec.epochs * per_epoch))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimizer.step()
            losses.append(float(loss.detach()))
        tell(f"epoch {epoch + 1} of {spec.epochs}: cosine loss {np.mean(losses):.4f}")
    return (table @ to_teacher.weight.T).detach().numpy()


def _bags(ids: Tensor, begins: Tensor, some: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens of these texts, the table, and where each text begins in the tokens."""
    lengths = begins[some + 1] - begins[some]
    firsts = lengths.cumsum(0) - lengths
    places = torch.arange(int(lengths.sum())) + torch.repeat_interleave(begins[some] - firsts, lengths)
    return ids[places], table, firsts
