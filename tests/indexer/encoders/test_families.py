"""The families that people try: each runs every method exactly, or is refused with the reason; the filter is its own.

Random models of two layers with the family's own code from transformers; what differs between families (positions,
masks, windows, heads, names of tensors) is all there, what a trained model knows is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ragidx.corpora.errors import ModelError
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.filters.filter import EmbedFilter, kept_columns
from ragidx.indexer.models.locate import locate

from ...raising import message_of

TEXTS = ["The river rises in the hills.", "a", "Ünïcödé café", "Who signed the lease?"]
METHODS = ["echo", "prompteol", "aligned-values", "llm2vec", "reba"]
FAMILIES = [
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "gemma3", "phi", "phi3", "gpt2"),
    *("gpt_neox", "gptj", "opt", "bloom", "falcon", "smollm3", "granite", "olmo2", "mpt"),
]
CAUSAL_ONLY = {"mpt"}
WINDOWED = {"mistral", "gemma2", "gemma3_text", "phi3"}
REFUSED = {(family, "llm2vec") for family in CAUSAL_ONLY}
RUNS = [(family, method) for family in FAMILIES for method in METHODS if (family, method) not in REFUSED]
# transformers ties the head of gemma3 whatever its configuration says.
HEADS = [(family, tied) for family in FAMILIES for tied in (True, False) if (family, tied) != ("gemma3", False)]
QUICK = {"llama", "gpt2", "gemma2", "opt", "bloom"}  # one of each kind: rotary, absolute, windows, offsets, ALiBi
PADDINGS = [(0, 0), (0, 3), (3, 0)]  # tokens before and behind

Make = Callable[..., Path]


def _each(values: Iterable[Any]) -> list[Any]:
    """Parameters of a test whose first is a family; the quick suite runs one family of each kind."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=[] if row[0] in QUICK else [pytest.mark.slow]) for row in rows]


def _load(folder: Path, method: str, **options: Any) -> Any:
    return load_encoder(str(folder), method=method, device="cpu", dtype="float32", **options)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "method"), _each(RUNS))
def test_a_method_gives_a_text_one_vector_alone_and_in_a_batch(family: str, method: str, tiny_model: Make) -> None:
    encoder = _load(tiny_model(family), method)

    together = encoder.encode_document(TEXTS)
    alone = np.concatenate([encoder.encode_document([text]) for text in TEXTS])

    scale = np.abs(together).max()
    assert together.shape == (len(TEXTS), 32)
    assert np.isfinite(together).all()
    assert together.std(axis=0).min() > 1e-3 * scale  # in every coordinate the texts differ
    np.testing.assert_allclose(together, alone, atol=1e-5 * scale)


def _effect_on_earlier_tokens(backbone: Any, before: int, behind: int) -> Tensor:
    """How far each earlier token's state moves when the last token is another: (19,), relative to the largest state."""
    rows = torch.arange(5, 25).repeat(2, 1)
    rows[1, -1] = 99
    ids = torch.nn.functional.pad(rows, (before, behind), value=2)
    mask = torch.nn.functional.pad(torch.ones_like(rows), (before, behind)) if before + behind else None
    one, other = backbone.states(ids, mask)[:, before : before + 19]
    return (one - other).abs().amax(dim=-1) / one.abs().max()


@pytest.mark.parametrize("family", _each(family for family in FAMILIES if family not in CAUSAL_ONLY))
def test_attention_both_ways_lets_every_token_see_the_last_one(family: str, tiny_model: Make) -> None:
    window = {"sliding_window": 4} if family in WINDOWED else {}
    backbone = _load(tiny_model(family, **window), "llm2vec").backbone

    for before, behind in PADDINGS:
        assert float(_effect_on_earlier_tokens(backbone, before, behind).min()) > 1e-4, (before, behind)


@pytest.mark.parametrize("family", _each(FAMILIES))
def test_causal_attention_shows_no_token_what_comes_later(family: str, tiny_model: Make) -> None:
    backbone = _load(tiny_model(family), "classical").backbone

    for before, behind in PADDINGS:
        assert float(_effect_on_earlier_tokens(backbone, before, behind).max()) <= 1e-6, (before, behind)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "tied"), _each(HEADS))
def test_the_filter_spans_the_middle_of_the_heads_own_spectrum(family: str, tied: bool, tiny_model: Make) -> None:
    from transformers import AutoModelForCausalLM

    folder = tiny_model(family, tie_word_embeddings=tied)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    head = model.get_output_embeddings().weight.detach()
    assert tied == (head.data_ptr() == model.get_input_embeddings().weight.data_ptr())

    ours = EmbedFilter.from_encoder(SimpleNamespace(files=locate(str(folder)), hidden=32), tau=2).matrix

    directions = torch.linalg.svd(head.to(torch.float64), full_matrices=False).Vh.T.numpy()
    theirs = directions[:, np.sort(kept_columns(32, 16))]
    assert ours.shape == (32, 16)
    np.testing.assert_allclose(ours.T @ ours, np.eye(16), atol=1e-6)
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-6)


def _refusal(folder: Path, method: str) -> str:
    return message_of(ModelError, lambda: _load(folder, method))


def test_mpt_is_refused_where_attention_must_run_both_ways(tiny_model: Make) -> None:
    folder = tiny_model("mpt")

    assert _refusal(folder, "llm2vec") == (
        f"'{folder}' cannot run with this attention: AttributeError: 'NoneType' object has no attribute 'to'\n"
        "  hint: its family does not support it in this version of transformers; choose another `method`"
    )


@pytest.mark.slow
def test_a_family_without_attention_is_refused_where_it_must_be_read_or_run_both_ways(tiny_model: Make) -> None:
    folder = tiny_model("mamba")

    assert _refusal(folder, "reba") == (
        f"'{folder}' cannot be used with backward attention: its family 'mamba' does not let its attention be read in "
        "this version of transformers\n  hint: choose another `method`, such as `method=echo`"
    )
    assert _refusal(folder, "llm2vec") == (
        f"'{folder}' was asked for bidirectional attention and stays causal in a batch without padding\n"
        "  hint: choose a causal method for it, such as `method=echo`"
    )


@pytest.mark.slow
def test_a_family_that_reads_pictures_is_stopped_at_a_layer_of_its_text_model(tiny_model: Make) -> None:
    folder = tiny_model("gemma3")
    ids = torch.tensor([[0, 9, 8, 7]])

    last, first = (_load(folder, "classical", layer=layer).backbone for layer in (-1, 1))

    states = last.model(ids, output_hidden_states=True).hidden_states
    assert torch.allclose(last.states(ids, None), states[-1], atol=1e-5)
    assert torch.allclose(first.states(ids, None), states[1], atol=1e-5)


def test_a_model_whose_states_are_projected_at_the_end_has_the_width_of_what_comes_out(tiny_model: Make) -> None:
    folder = tiny_model("opt", word_embed_proj_dim=16)
    encoder = _load(folder, "echo")

    vectors = encoder.encode_document(TEXTS)
    kept = EmbedFilter.from_encoder(encoder, tau=2)

    assert encoder.hidden == 16
    assert vectors.shape == (len(TEXTS), 16)
    assert kept(vectors).shape == (len(TEXTS), 8)
