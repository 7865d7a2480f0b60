"""What encoders are trained on: known values, then properties; the authors' numbers are in tests/golden."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ragidx.pipelines.experiments.train.objectives import (
    NO_LABEL,
    Masking,
    blocks,
    contrastive_loss,
    mask_tokens,
    mntp_loss,
)

SEEDS = st.integers(0, 2**32 - 1)


# --- the contrastive loss


def test_the_contrastive_loss_of_a_hand_worked_batch() -> None:
    queries, positives = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    negatives = torch.tensor([[0.0, -4.0]])

    loss = contrastive_loss(queries, positives, negatives, scale=1.0)

    half = math.sqrt(0.5)  # the cosine of (0, 1) and (1, 1), and of (1, 0) and (1, 1)
    first = math.log(math.exp(1) + math.exp(half) + math.exp(0)) - 1
    second = math.log(math.exp(0) + math.exp(half) + math.exp(-1)) - half
    assert float(loss) == pytest.approx((first + second) / 2, abs=1e-6)


@pytest.mark.slow
@given(n=st.integers(1, 6), n_hard=st.integers(1, 6), longer=st.floats(0.1, 10), seed=SEEDS)
def test_lengths_and_the_order_of_negatives_play_no_part_and_negatives_only_add(
    n: int, n_hard: int, longer: float, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    queries, positives, negatives = (torch.randn(rows, 4, generator=draw) for rows in (n, n, n_hard))

    loss = contrastive_loss(queries, positives, negatives)

    torch.testing.assert_close(contrastive_loss(longer * queries, positives, negatives.flip(0)), loss)
    assert loss >= contrastive_loss(queries, positives) - 1e-5


def test_a_descent_on_the_contrastive_loss_pairs_queries_with_their_positives() -> None:
    draw = torch.Generator().manual_seed(0)
    queries, positives = (torch.randn(8, 4, generator=draw) for _ in range(2))
    queries.requires_grad_()
    optimizer = torch.optim.Adam([queries], lr=0.1)

    for _ in range(100):
        optimizer.zero_grad()
        contrastive_loss(queries, positives).backward()
        optimizer.step()

    nearest = torch.nn.functional.normalize(queries.detach(), dim=1) @ torch.nn.functional.normalize(positives, dim=1).T
    assert nearest.argmax(dim=1).tolist() == list(range(8))


# --- masked next-token prediction


def test_a_token_is_predicted_from_the_position_before_it() -> None:
    logits = torch.zeros(1, 3, 4)
    logits[0, 0] = torch.tensor([0.0, 0.0, math.log(5), 0.0])  # 5 / 8 for token 2
    labels = torch.tensor([[3, 2, NO_LABEL]])  # the token hidden at position 0 gives no loss

    assert float(mntp_loss(logits, labels)) == pytest.approx(math.log(8 / 5))


def test_a_batch_in_which_nothing_is_hidden_has_no_loss_and_a_gradient_of_zero() -> None:
    logits = torch.randn(2, 3, 5, requires_grad=True)
    labels = torch.full((2, 3), NO_LABEL)
    labels[:, 0] = 1

    loss = mntp_loss(logits, labels)
    loss.backward()

    assert float(loss.detach()) == 0
    assert torch.equal(logits.grad, torch.zeros(2, 3, 5))


@pytest.mark.slow
@given(probability=st.floats(0.05, 1.0), all_masked=st.booleans(), length=st.integers(1, 40), seed=SEEDS)
def test_only_what_is_labelled_changes_and_special_tokens_never_do(
    probability: float, all_masked: bool, length: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 20, (3, length), generator=draw)
    masking = Masking(
        probability=probability, mask_id=7, special_ids=frozenset({0, 1}), n_tokens=20, all_masked=all_masked
    )
    before = ids.clone()

    masked, labels = mask_tokens(ids, masking, draw)

    hidden = labels != NO_LABEL
    assert torch.equal(ids, before)
    assert torch.equal(labels[hidden], ids[hidden])
    assert torch.equal(masked[~hidden], ids[~hidden])
    assert not (hidden & (ids < 2)).any()
    if all_masked:
        assert (masked[hidden] == 7).all()
    if probability == 1:
        assert (hidden | (ids < 2)).all()


def test_one_seed_masks_alike() -> None:
    ids = torch.arange(2, 200).reshape(2, -1)
    masking = Masking(probability=0.5, mask_id=1, special_ids=frozenset({0}), n_tokens=300)

    first, again, other = (mask_tokens(ids, masking, torch.Generator().manual_seed(seed)) for seed in (4, 4, 5))

    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[1], other[1])


def test_of_the_hidden_tokens_eight_in_ten_are_masked_and_one_in_ten_is_random() -> None:
    ids = torch.full((100, 1000), 2)
    masking = Masking(probability=0.2, mask_id=1, special_ids=frozenset(), n_tokens=50_000)

    masked, labels = mask_tokens(ids, masking, torch.Generator().manual_seed(0))

    hidden = masked[labels != NO_LABEL]
    assert len(hidden) / ids.numel() == pytest.approx(0.2, abs=0.01)
    assert float((hidden == 1).float().mean()) == pytest.approx(0.8, abs=0.01)
    assert float((hidden == 2).float().mean()) == pytest.approx(0.1, abs=0.01)


@pytest.mark.slow
@given(texts=st.lists(st.lists(st.integers(0, 9), max_size=7), max_size=9), length=st.integers(2, 6))
def test_blocks_joined_are_the_beginning_of_all_texts_joined(texts: list[list[int]], length: int) -> None:
    cut = list(blocks(texts, length))

    stream = [number for text in texts for number in text]
    assert {len(block) for block in cut} <= {length}
    assert [number for block in cut for number in block.tolist()] == stream[: len(stream) // length * length]
