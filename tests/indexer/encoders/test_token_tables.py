"""Models that are a table of tokens, such as mini: what they encode, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragidx import load_embedder, load_encoder
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.encoders.static import StaticEncoder
from ragidx.indexer.specs import FilterSpec
from ragidx.indexer.token_table import TokenTable

from ...raising import message_of

TEXTS = ["Who signed the lease for the house by the lake?", "", "[SEP] a text that spells [CLS]", "東京", "river " * 90]


@pytest.fixture(scope="module")
def mini() -> StaticEncoder:
    found = load_encoder("mini")
    assert isinstance(found, StaticEncoder)
    return found


def test_a_vector_is_the_sum_of_the_rows_of_tokens_and_pairs_at_unit_length(mini: StaticEncoder) -> None:
    table = TokenTable.read((mini.files.folder / "model.safetensors").read_bytes(), mini.tokenizer.texts)
    assert (table.dim, len(table.pairs)) == (384, 30_000)

    found = mini.encode_document(TEXTS)

    np.testing.assert_allclose(found, table.vectors(TEXTS), atol=1e-6)
    assert np.allclose(np.linalg.norm(found, axis=1), [1, 0, 1, 1, 1])
    ids = mini.tokenizer.ids(["new york"])[0]
    alone = [table.scales[row] * table.rows[row] for row in (np.searchsorted(table.tokens, one) for one in ids)]
    pair = len(table.tokens) + np.searchsorted(table.pairs, (ids[0] << 32) | ids[1])
    added = alone[0] + alone[1] + table.scales[pair] * table.rows[pair]
    np.testing.assert_allclose(mini.encode_query(["New York"])[0], added / np.linalg.norm(added), atol=1e-5)


def test_a_vector_does_not_depend_on_the_texts_beside_it(mini: StaticEncoder) -> None:
    whole = mini.encode_document(TEXTS * 60)

    assert (whole[: len(TEXTS)] == np.concatenate([mini.encode_document([text]) for text in TEXTS])).all()


def test_an_index_stores_the_first_255_numbers(mini: StaticEncoder) -> None:
    stored = load_embedder("mini").embed_document(TEXTS[:1])[0]

    first = mini.encode_document(TEXTS[:1])[0, :255]
    np.testing.assert_allclose(stored, first / np.linalg.norm(first), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"method": "echo"}, "`method`"),
        ({"layer": 2}, "`layer`"),
        ({"pooling": "last"}, "`pooling`"),
        ({"layer_norm": True}, "`layer_norm`"),
        ({"attention": "bidirectional"}, "`attention`"),
    ],
)
def test_layers_and_attention_are_refused(options: dict[str, Any], where: str) -> None:
    assert message_of(SpecError, lambda: load_encoder("mini", **options)) == (
        f"{where}: 'mini' is a table of tokens: it has no layers\n"
        "  hint: take a decoder, such as `model=mini-decoder`, or remove the option"
    )


@pytest.mark.parametrize("option", ["device=cuda", "dtype=bfloat16", "attn=eager"])
def test_it_runs_on_the_cpu_alone(option: str) -> None:
    name, value = option.split("=")

    assert message_of(SpecError, lambda: load_encoder("mini", **{name: value})) == (
        f"`{option}`: 'mini' is a table of tokens: it runs on the CPU, in float32\n  hint: remove `{option}`"
    )


def test_it_has_no_unembedding_matrix() -> None:
    assert message_of(ModelError, lambda: load_embedder("mini", filter=FilterSpec("embedfilter", dim=8))) == (
        "`filter`: 'mini' is a table of tokens: it has no unembedding matrix\n"
        "  hint: use `filter=none`, or one that reads no head: truncation, random, whitening, pca; "
        "`model=mini-decoder` has one"
    )
