"""Logit spectroscopy: known values by hand, then what must hold for every head. tests/golden has the authors'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from ragidx.indexer.filters.logits import (
    average_of_log_p,
    delta,
    head_rows,
    log_frequencies,
    logits,
    token_coordinates,
    top_logits,
    top_tokens,
)
from ragidx.indexer.filters.unembedding import Spectrum, decompose
from ragidx.indexer.models.checkpoint import StoredTensor

LARGE = 9000  # rows: three blocks of a head

Made = Callable[..., tuple[StoredTensor, Spectrum]]
SHAPES = {"rows": st.integers(3, 40), "width": st.integers(1, 6), "seed": st.integers(0, 2**32 - 1)}


_KINDS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


@pytest.fixture(scope="session")
def head_of(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """`head_of(matrix)`: a head file that holds it, and its spectrum."""
    path = tmp_path_factory.mktemp("head") / "model.safetensors"

    def make(matrix: Any, dtype: torch.dtype = torch.float64) -> tuple[StoredTensor, Spectrum]:
        stored = torch.as_tensor(np.asarray(matrix)).to(dtype).contiguous()
        save_file({"lm_head.weight": stored}, path)
        exact = stored.to(torch.float64).numpy()
        head = StoredTensor(path, "lm_head.weight", _KINDS[dtype], (exact.shape[0], exact.shape[1]))
        return head, decompose(exact.T @ exact)

    return make


# known values


def test_by_hand_two_tokens_and_two_directions(head_of: Made) -> None:
    head, spectrum = head_of([[2.0, 0.0], [0.0, 1.0]])

    average = average_of_log_p(head, spectrum, np.array([-1.0, -2.0]))

    assert average == pytest.approx([-0.5, -2.0])  # its logits are log p itself
    assert delta(head, spectrum, average, [0]) == pytest.approx([-1.0, 0.0])  # direction 0 alone writes token 0
    assert delta(head, spectrum, average, [0, 1]) == pytest.approx([-1 / 3, -2 / 3])
    assert delta(head, spectrum, average, [1, 1]) == pytest.approx([0.0, -1.0])


def test_counts_become_the_logarithms_of_their_shares_after_one_was_added_to_each() -> None:
    assert np.exp(log_frequencies(np.array([3, 0, 1]), 3)) == pytest.approx([4 / 7, 1 / 7, 2 / 7])
    assert np.exp(log_frequencies(np.array([3, 0]), 4)) == pytest.approx([4 / 7, 1 / 7, 1 / 7, 1 / 7])


def test_of_equal_logits_and_of_equal_counts_the_smaller_id_comes_first(head_of: Made) -> None:
    matrix = np.zeros((LARGE, 2))
    matrix[[8999, 4096, 4095, 7], 0] = 1.0
    head, _ = head_of(matrix)

    ids, values = top_logits(head, [[2.0, 0.0]], 6)

    assert ids.tolist() == [[7, 4095, 4096, 8999, 0, 1]]
    assert values.tolist() == [[2.0, 2.0, 2.0, 2.0, 0.0, 0.0]]
    assert top_tokens(np.array([5, 7, 5, 7, 0]), 4).tolist() == [1, 3, 0, 2]


def test_a_head_of_16_bits_is_read_as_the_numbers_it_holds(head_of: Made) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        head, _ = head_of([[1.5, -0.25], [3.0, 8.0]], dtype)

        assert head_rows(head, [1, 0]).tolist() == [[3.0, 8.0], [1.5, -0.25]]
        assert logits(head, [[1.0, 2.0]]).tolist() == [[1.0, 19.0]]


# what holds for every head


@pytest.mark.slow
@settings(deadline=None)
@given(**SHAPES)
def test_the_average_token_is_the_least_squares_solution_of_least_length(
    head_of: Made, rows: int, width: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((rows, width))
    matrix[:, -1] = matrix[:, 0]  # a direction without a singular value, unless there is but one
    head, spectrum = head_of(matrix)
    counts = rng.integers(0, 1000, rows)

    average = average_of_log_p(head, spectrum, log_frequencies(counts, rows))

    wanted = np.linalg.pinv(matrix, rcond=1e-10) @ log_frequencies(counts, rows)
    np.testing.assert_allclose(average, wanted, atol=1e-6 * (1 + abs(wanted).max()))


@pytest.mark.slow
@settings(deadline=None)
@given(**SHAPES)
def test_delta_is_the_change_of_the_summed_logits_when_a_direction_is_left_out(
    head_of: Made, rows: int, width: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((rows, width))
    head, spectrum = head_of(matrix, torch.float32)
    average = rng.standard_normal(width)
    tokens = rng.choice(rows, 3, replace=False)
    before = logits(head, [average])[0, tokens].sum()

    found = delta(head, spectrum, average, tokens)

    for number, direction in enumerate(spectrum.directions.T):
        without = average - direction * (direction @ average)
        change = (logits(head, [without])[0, tokens].sum() - before) / before
        assert found[number] == pytest.approx(change, abs=1e-5 * (1 + abs(1 / before)))
    assert found.sum() == pytest.approx(-1.0, abs=1e-6 * (1 + abs(1 / before)))


@pytest.mark.slow
@settings(deadline=None)
@given(rows=st.integers(8, 40), width=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_token_coordinates_keep_inner_products(head_of: Made, rows: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    head, spectrum = head_of(rng.standard_normal((rows, width)))
    vectors = rng.standard_normal((3, width))

    coordinates = token_coordinates(head, spectrum, vectors)

    assert coordinates.shape == (3, rows)
    np.testing.assert_allclose(coordinates @ coordinates.T, vectors @ vectors.T, atol=1e-6 * (1 + spectrum.values[0]))


def test_token_coordinates_lose_what_lies_where_the_head_has_nothing(head_of: Made) -> None:
    head, spectrum = head_of([[1.0, 0.0], [2.0, 0.0], [2.0, 0.0]])

    found = token_coordinates(head, spectrum, [[3.0, 4.0]])

    assert found[0] == pytest.approx([1.0, 2.0, 2.0])


@pytest.mark.parametrize("k", [1, 5, 5000])
def test_the_top_logits_are_those_of_the_whole_product_over_all_blocks(head_of: Made, k: int) -> None:
    rng = np.random.default_rng(k)
    head, _ = head_of(rng.standard_normal((LARGE, 4)), torch.float32)
    vectors = rng.standard_normal((3, 4)).astype(np.float32)

    ids, values = top_logits(head, vectors, k)

    whole = logits(head, vectors)
    assert ids.tolist() == np.argsort(-whole, axis=1)[:, :k].tolist()
    np.testing.assert_array_equal(values, np.take_along_axis(whole, ids, axis=1))


def test_a_small_head_gives_all_its_tokens_and_no_more(head_of: Made) -> None:
    head, _ = head_of([[1.0], [3.0], [2.0]])

    assert top_logits(head, [[1.0]], 9)[0].tolist() == [[1, 2, 0]]
    assert top_tokens(np.array([1, 3, 2]), 9).tolist() == [1, 2, 0]


def test_rows_come_in_the_order_asked_for_from_every_block(head_of: Made) -> None:
    head, _ = head_of(np.arange(LARGE, dtype=np.float64)[:, None])

    assert head_rows(head, [8999, 0, 4096, 4095, 0]).ravel().tolist() == [8999, 0, 4096, 4095, 0]


# a programmer's mistakes


@pytest.mark.parametrize("ids", [[], [-1], [3], [[0]]])
def test_ids_that_are_no_rows_are_refused(head_of: Made, ids: list[Any]) -> None:
    head, _ = head_of(np.ones((3, 2)))

    with pytest.raises(ValueError, match="expected one or more ids from 0 to 2, got"):
        head_rows(head, ids)


def test_logits_that_cancel_have_no_delta(head_of: Made) -> None:
    head, spectrum = head_of([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])

    with pytest.raises(ValueError, match="the logits of the tokens add up to 0, so no change of them has a size"):
        delta(head, spectrum, [1.0, 1.0], [0, 1])
