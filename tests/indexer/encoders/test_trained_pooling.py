"""Trainable pooling: a reference by hand, and what training changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from ragidx.indexer.encoders.trained_pooling import TrainablePooling

from .pooling_kit import HIDDEN, drawn, every, pooling

# --- what it computes


def by_hand(net: TrainablePooling, rows: np.ndarray) -> np.ndarray:
    """One text, in float64, latent by latent and head by head, as pooling.md writes it down."""
    at = {name: value.detach().double().numpy() for name, value in net.named_parameters()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean()
        return centred / np.sqrt((centred**2).mean() + 1e-5) * at[f"{name}.weight"] + at[f"{name}.bias"]

    if net.multi_layer:
        rows = rows + at["layer_vectors"][: len(rows)]
    width = len(at["to_queries.weight"]) // net.heads
    both = [at["to_keys_values.weight"] @ norm(row, "norm_rows") for row in rows]
    total = np.zeros(rows.shape[1])
    for latent in at["latents"]:
        query = at["to_queries.weight"] @ norm(latent, "norm_latents")
        heads = []
        for head in range(net.heads):
            part = slice(head * width, (head + 1) * width)
            weights = np.exp([query[part] @ kv[: len(query)][part] / math.sqrt(width) for kv in both])
            heads.append(weights / weights.sum() @ np.array([kv[len(query) :][part] for kv in both]))
        mixed = at["to_hidden.weight"] @ np.concatenate(heads) + latent
        wide = at["widen.weight"] @ norm(mixed, "norm_mixed") + at["widen.bias"]
        value, gate = np.split(wide, 2)
        gated = value * gate * 0.5 * np.array([1 + math.erf(g / math.sqrt(2)) for g in gate])
        total += at["narrow.weight"] @ gated + at["narrow.bias"] + mixed
    return total / len(at["latents"])


@pytest.mark.parametrize("layers", [None, 4])
def test_the_network_is_the_papers(layers: int | None) -> None:
    rows = drawn(2, 3)

    vectors = pooling(layers)(rows, every(rows))

    expected = np.stack([by_hand(pooling(layers), text.double().numpy()) for text in rows])
    np.testing.assert_allclose(vectors.detach().numpy(), expected, atol=1e-5)


@pytest.mark.slow
@given(length=st.integers(1, 6), padding=st.integers(0, 5), left=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_padding_changes_nothing(length: int, padding: int, left: bool, seed: int) -> None:
    rows = drawn(1, length + padding, seed)
    mask = torch.ones(1, length + padding, dtype=torch.bool)
    mask[:, slice(0, padding) if left else slice(length, None)] = False

    vectors = pooling()(rows, mask)

    alone = rows[mask].unsqueeze(0)
    torch.testing.assert_close(vectors, pooling()(alone, every(alone)), rtol=0, atol=1e-5)


@pytest.mark.slow
@given(n_texts=st.integers(2, 5), seed=st.integers(0, 2**32 - 1))
def test_a_text_alone_is_the_text_in_a_batch(n_texts: int, seed: int) -> None:
    rows = drawn(n_texts, 4, seed)
    mask = torch.rand(n_texts, 4, generator=torch.Generator().manual_seed(seed)) < 0.5

    together = pooling()(rows, mask)

    alone = torch.cat([pooling()(rows[i : i + 1], mask[i : i + 1]) for i in range(n_texts)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("layers", "matters"), [(None, False), (4, True)])
def test_the_order_of_rows_matters_where_rows_are_layers(layers: int | None, matters: bool) -> None:
    rows = drawn(1, 4)

    there, back = (pooling(layers)(r, every(r)) for r in (rows, rows.flip(1)))

    assert bool(torch.allclose(there, back, atol=1e-5)) != matters


def test_a_text_without_a_row_gives_the_zero_vector_and_sound_gradients() -> None:
    rows = drawn(2, 3).requires_grad_()
    mask = torch.tensor([[True, True, True], [False, False, False]])

    vectors = pooling()(rows, mask)
    (gradient,) = torch.autograd.grad(vectors.sum(), rows)

    assert torch.equal(vectors[1], torch.zeros(HIDDEN))
    assert vectors[0].abs().min() > 0
    assert gradient.isfinite().all()


def test_rows_in_half_precision_are_pooled_in_float32() -> None:
    rows = drawn(1, 3).to(torch.bfloat16)

    vectors = pooling()(rows, every(rows))

    assert vectors.dtype == torch.float32
    assert torch.equal(vectors, pooling()(rows.float(), every(rows)))


# --- training


def contrast(net: TrainablePooling, queries: Tensor, answers: Tensor) -> Tensor:
    left, right = (functional.normalize(net(rows, every(rows))) for rows in (queries, answers))
    return functional.cross_entropy(20 * left @ right.T, torch.arange(len(left)))


def fresh(layers: int | None) -> TrainablePooling:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return TrainablePooling(HIDDEN, latents=4, heads=2, head_width=4, layers=layers)


@pytest.mark.parametrize("layers", [None, 3])
def test_every_parameter_is_trained(layers: int | None) -> None:
    net = fresh(layers)

    contrast(net, drawn(8, 3, 0), drawn(8, 3, 1)).backward()

    still = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert still == []
