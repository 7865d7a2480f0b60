"""Token tables: sums of rows, pairs of neighbours, what is rounded, files."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from safetensors.numpy import load, save
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.token_table import TokenTable, pair_keys, plain, row_numbers, token_ids

from ..raising import message_of

WORDS = {"[UNK]": 0, "new": 1, "york": 2, "is": 3, "far": 4, "[SEP]": 5}
FAR = 1 << 17
"""An id that does not fit 16 bits."""


def tokenizer(**more: int) -> Tokenizer:
    made = Tokenizer(WordLevel({**WORDS, **more}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.add_special_tokens([AddedToken("[SEP]", special=True)])
    return plain(made)


def table(**more: int) -> TokenTable:
    """new (1, 0, 0), york (0, 1, 0), is (0, 0, 0), and together with new york (0, 0, 2)."""
    rows = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 2]], np.float32)
    return TokenTable.of(tokenizer(**more), np.array([1, 2, 3]), pair_keys(np.array([1, 2])), rows)


def test_a_vector_is_the_sum_of_the_rows_of_tokens_and_of_pairs_in_their_order() -> None:
    found = table().vectors(["new", "new york", "york new", "new new york", "is", "far", ""])

    known = [[1, 0, 0], [1, 1, 2], [1, 1, 0], [2, 1, 2], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    units = np.array([row / max(1, np.linalg.norm(row)) for row in np.array(known, np.float64)])
    np.testing.assert_allclose(found, units, atol=1e-6)
    assert found.dtype == np.float32


def test_a_special_token_in_a_text_is_text_and_nothing_is_cut() -> None:
    made = tokenizer()
    made.enable_truncation(2)
    made.enable_padding(length=4)
    assert [row.tolist() for row in token_ids(plain(made), ["new york is far", "[SEP]"])] == [[1, 2, 3, 4], [0, 0, 0]]


def test_pairs_of_large_ids_are_never_mixed_up() -> None:
    ids = np.array([1, FAR, 1, FAR + 1, FAR])
    keys = pair_keys(ids)
    assert len(set(keys.tolist())) == 4
    assert [(key >> 32, key & 0xFFFFFFFF) for key in keys.tolist()] == list(itertools.pairwise(ids))


def test_rows_are_those_of_known_tokens_and_pairs_alone() -> None:
    tokens, pairs = np.array([1, 4]), pair_keys(np.array([1, 2]))
    assert row_numbers(np.array([1, 2, 4, 1, 2]), tokens, pairs).tolist() == [0, 1, 0, 2, 2]
    assert row_numbers(np.array([2]), tokens, pairs).tolist() == []
    assert row_numbers(np.array([1]), tokens, np.zeros(0, np.int64)).tolist() == [0]


def test_a_row_is_rounded_by_at_most_half_a_step() -> None:
    drawn = np.random.default_rng(0)
    rows = (drawn.standard_normal((50, 16)) * 10 ** drawn.uniform(-4, 4, (50, 1))).astype(np.float32)
    rows[7] = 0
    made = TokenTable.of(tokenizer(), np.arange(50), np.zeros(0, np.int64), rows)
    steps = made.scales[:, None]
    assert (np.abs(made.rows * steps - rows) <= 0.5001 * steps).all()
    assert np.abs(made.rows[np.arange(50) != 7]).max(axis=1).tolist() == [127] * 49


def test_a_file_gives_the_same_vectors_and_a_narrower_table_their_first_numbers() -> None:
    texts, made = ["new york is far", "york"], table(alien=FAR)
    again = TokenTable.from_bytes(made.to_bytes(), "file")
    assert again.to_bytes() == made.to_bytes()
    assert (again.vectors(texts) == made.vectors(texts)).all()
    cut = again.vectors(texts)[:, :2]
    np.testing.assert_allclose(
        again.narrowed(2).vectors(texts), cut / np.linalg.norm(cut, axis=1, keepdims=True), atol=1e-6
    )


def _damaged(name: str, value: np.ndarray) -> bytes:
    return save({**load(table().to_bytes()), name: value})


DAMAGED = {
    "no safetensors": b"{}",
    "another tokenizer": _damaged("tokenizer", np.frombuffer(b"{}", np.uint8)),
    "another kind": _damaged("rows", np.zeros((4, 3), np.int16)),
    "too few rows": _damaged("rows", np.zeros((3, 3), np.int8)),
    "too few scales": _damaged("scales", np.ones(3, np.float32)),
    "not finite": _damaged("scales", np.array([1, np.nan, 1, 1], np.float32)),
    "not ascending": _damaged("tokens", np.array([1, 3, 2])),
    "one more": _damaged("more", np.zeros(1, np.int8)),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    message = message_of(IndexFormatError, lambda: TokenTable.from_bytes(data, "questions.safetensors"))
    assert message == (
        "questions.safetensors: the table of questions cannot be read\n  hint: make it again: `ragidx train questions`"
    )
