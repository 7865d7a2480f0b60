"""Pooling: known values, then that padding on either side changes nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.indexer.encoders.pooling import WEIGHTS, last, look_back, mean, pooled, weighted_mean

STATES = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]]])
MASK = torch.tensor([[True, True, False]])


def test_known_values() -> None:
    assert pooled(STATES, mean(MASK)).tolist() == [[0.5, 1.0]]
    assert pooled(STATES, weighted_mean(MASK))[0].tolist() == pytest.approx([1 / 3, 4 / 3])
    assert pooled(STATES, last(MASK)).tolist() == [[0.0, 2.0]]


def test_looking_back_takes_later_tokens_and_no_padding() -> None:
    strongest = torch.tensor([[[0.5, 0.1, 0.2], [0.1, 0.6, 0.3], [0.2, 0.3, 0.7]]])

    assert (
        look_back(strongest, None)[0].tolist() == torch.tensor([[0.5, 0.1, 0.2], [0, 0.6, 0.3], [0, 0, 0.7]]).tolist()
    )
    padded = look_back(strongest, torch.tensor([[1, 1, 0]]))[0]
    assert padded.tolist() == torch.tensor([[0.5, 0.1, 0], [0, 0.6, 0], [0, 0, 0]]).tolist()


def test_weights_count_inside_the_span_so_an_instruction_before_it_changes_nothing() -> None:
    longer = torch.cat([torch.full((1, 5, 2), 7.0), STATES], dim=1)
    mask = torch.cat([torch.zeros(1, 5, dtype=torch.bool), MASK], dim=1)

    assert torch.allclose(pooled(longer, weighted_mean(mask)), pooled(STATES, weighted_mean(MASK)))


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_row_without_a_pooled_token_is_zero(name: str) -> None:
    assert pooled(STATES, WEIGHTS[name](torch.zeros_like(MASK))).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("name", WEIGHTS)
def test_half_precision_states_are_pooled_in_float32(name: str) -> None:
    states = torch.randn(2, 300, 8).to(torch.bfloat16)
    mask = torch.ones(2, 300, dtype=torch.bool)

    vectors = pooled(states, WEIGHTS[name](mask))

    assert vectors.dtype == torch.float32
    assert torch.allclose(vectors, pooled(states.to(torch.float32), WEIGHTS[name](mask)))


@pytest.mark.slow
@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(WEIGHTS)),
    length=st.integers(1, 9),
    padding=st.integers(0, 9),
    left=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_padding_changes_nothing(name: str, length: int, padding: int, left: bool, seed: int) -> None:
    states = torch.randn(1, length, 4, generator=torch.Generator().manual_seed(seed))
    mask = torch.ones(1, length, dtype=torch.bool)
    rubbish, off = torch.full((1, padding, 4), 1e3), torch.zeros(1, padding, dtype=torch.bool)
    order = (lambda a, b: [b, a]) if left else (lambda a, b: [a, b])

    padded = pooled(torch.cat(order(states, rubbish), 1), WEIGHTS[name](torch.cat(order(mask, off), 1)))

    assert torch.allclose(padded, pooled(states, WEIGHTS[name](mask)), atol=1e-6)
