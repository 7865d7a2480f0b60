"""Decoder encoders: what the vectors of texts and of words are, with every method, pooling and layer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragidx.indexer.encoders.decoder import DecoderEncoder
from ragidx.indexer.encoders.load import load_encoder

from ...conftest import SENTENCES
from ...tiny_weights import write_adapter, write_pooler
from .decoder_kit import CASES, LONG_ENOUGH, TEXTS, Make, close, load, told

pytestmark = pytest.mark.slow


# --- what the vectors are


def by_hand(encoder: DecoderEncoder, text: str, template: str = "{}", copies: int = 1) -> tuple[torch.Tensor, int]:
    """(t, d) states of BOS and the copies of a text side by side, and how many tokens one has."""
    own = encoder.tokenizer.ids([template.format(text)])[0]
    return encoder.backbone.states(torch.tensor([[0, *own * copies]]), None)[0], len(own)


def test_classical_is_the_mean_over_the_text(encoder_for: Callable[[str, str], DecoderEncoder]) -> None:
    encoder = encoder_for("llama", "classical")
    states, n = by_hand(encoder, TEXTS[3])
    j = torch.arange(1, n + 1, dtype=torch.float32)

    close(encoder.encode_document(TEXTS[3:4])[0], states[1:].mean(dim=0).numpy())
    weighted = encoder_for("llama", "classical, weighted mean").encode_document(TEXTS[3:4])[0]
    close(weighted, ((states[1:] * j[:, None]).sum(dim=0) / j.sum()).numpy())
    close(encoder_for("llama", "classical, last").encode_document(TEXTS[3:4])[0], states[-1].numpy())


def test_copies_of_echo_are_pooled_from_the_second_on(encoder_for: Callable[[str, str], DecoderEncoder]) -> None:
    encoder = encoder_for("llama", "echo, 3 copies")
    states, n = by_hand(encoder, TEXTS[3], copies=3)

    close(encoder.encode_document(TEXTS[3:4])[0], states[1 + n :].mean(dim=0).numpy())


def test_one_copy_of_echo_is_classical(tiny_model: Make, encoder_for: Callable[[str, str], DecoderEncoder]) -> None:
    one = load(tiny_model("llama", **LONG_ENOUGH["llama"]), method="echo", copies=1)

    close(one.encode_document(TEXTS), encoder_for("llama", "classical").encode_document(TEXTS))


def test_eos_and_bos_are_the_states_of_these_tokens(encoder_for: Callable[[str, str], DecoderEncoder]) -> None:
    encoder = encoder_for("llama", "llm2vec, eos")
    ids = torch.tensor([[0, *encoder.tokenizer.ids(["a mill"])[0], 1]])

    close(encoder.encode_document(["a mill"])[0], encoder.backbone.states(ids, None)[0, -1].numpy())
    first = encoder_for("llama", "llm2vec, bos")
    close(first.encode_document(["a mill"])[0], first.backbone.states(ids[:, :-1], None)[0, 0].numpy())


def test_metaeol_is_the_mean_of_its_prompts(tiny_model: Make) -> None:
    folder = tiny_model("llama")
    both = load(folder, method="metaeol", template='One "{text}":"\nTwo "{text}":"')

    for kind in ("encode_document", "encode_query"):
        each = [
            getattr(load(folder, method="prompteol", template=template), kind)(TEXTS)
            for template in ('One "{text}":"', 'Two "{text}":"')
        ]
        close(getattr(both, kind)(TEXTS), (each[0] + each[1]) / 2)


def test_a_trained_pooling_of_several_prompts_is_the_mean_of_its_vectors(tiny_model: Make, tmp_path: Path) -> None:
    options = {"pooling": "trainable", "pooler": str(write_pooler(tmp_path / "p.safetensors"))}
    folder = tiny_model("llama")
    both = load(folder, method="metaeol", template='One "{text}":"\nTwo "{text}":"', **options)

    each = [
        load(folder, method="prompteol", template=template, **options).encode_document(TEXTS)
        for template in ('One "{text}":"', 'Two "{text}":"')
    ]

    close(both.encode_document(TEXTS), (each[0] + each[1]) / 2)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_reba_with_one_copy_and_last_pooling_is_classical_up_to_scale(family: str, tiny_model: Make) -> None:
    folder = tiny_model(family)
    reba = load(folder, method="reba", copies=1, pooling="last").encode_document(TEXTS)
    classical = load(folder, method="classical", pooling="last").encode_document(TEXTS)

    scales = (reba * classical).sum(axis=1) / (classical * classical).sum(axis=1)

    close(reba, scales[:, None] * classical)
    assert (scales > 0).all()  # the attention of the last token to itself
    assert (scales <= 1).all()
    assert not np.allclose(scales, 1, atol=1e-2)


@pytest.mark.parametrize("pooling", ["mean", "weighted_mean", "last"])
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_reba_is_the_sum_written_out(copies: int, pooling: str, tiny_model: Make) -> None:
    encoder = load(tiny_model("gpt2"), method="reba", copies=copies, pooling=pooling)
    own = encoder.tokenizer.ids(["a mill"])[0]
    n = len(own)
    states, strongest = encoder.backbone.states_and_attention(torch.tensor([[0, *own * copies]]), None)
    m, h = strongest[0].double(), states[0].double()
    vectors = []
    for i in range(1, n + 1):  # the BOS at 0 is no token of the text
        vectors.append(sum(m[i, j] * h[j] for j in range(i, copies * n + 1)))
    e = torch.stack(vectors)
    j = torch.arange(1, n + 1, dtype=torch.float64)
    expected = {"mean": e.mean(dim=0), "last": e[-1], "weighted_mean": (j[:, None] * e).sum(dim=0) / j.sum()}[pooling]

    close(encoder.encode_document(["a mill"])[0], expected.float().numpy())


def test_queries_of_every_method_carry_an_instruction_and_pool_none_of_it(
    encoder_for: Callable[[str, str], DecoderEncoder],
) -> None:
    for case in CASES:
        encoder = encoder_for("llama", case)
        bare, one, other = (encoder.encode_query(["a mill"], instruction=i) for i in ("", "Find it", "Sort it"))

        scale = float(np.abs(bare).max())
        assert float(np.abs(bare - one).max()) > 1e-3 * scale, case
        assert float(np.abs(other - one).max()) > 1e-3 * scale, case
        if encoder.spec.template != "echo-trained":  # its documents have words of their own
            close(bare, encoder.encode_document(["a mill"]))


# --- layers


def test_a_trained_pooling_of_every_layer_reads_one_row_a_layer(tiny_model: Make, tmp_path: Path) -> None:
    pooler = str(write_pooler(tmp_path / "p.safetensors", layers=2))
    for attention, reduce in (("causal", lambda h: h[-1]), ("bidirectional", lambda h: h.mean(dim=0))):
        encoder = load(tiny_model("llama"), method="classical", attention=attention, pooling="trainable", pooler=pooler)
        ids = torch.tensor([[0, *encoder.tokenizer.ids(["a mill"])[0], 1]])
        with torch.inference_mode():
            hidden = encoder.backbone.model(ids, output_hidden_states=True).hidden_states
            rows = torch.stack([reduce(states[0]) for states in hidden[1:]])
            assert encoder.pooler is not None
            expected = encoder.pooler(rows[None], torch.ones(1, 2, dtype=torch.bool))

        close(encoder.encode_document(["a mill"]), expected.numpy())


def test_the_final_norm_belongs_to_an_earlier_layer_only_on_demand(tiny_model: Make) -> None:
    folder = tiny_model("llama", num_hidden_layers=3)
    encoder = load(folder, method="classical")
    norm = encoder.backbone.model.norm

    for layer in (0, 1, 2, -2):
        options = {"method": "classical", "layer": layer, "attn": "sdpa"}
        plain, with_norm = (load(folder, **options, layer_norm=on) for on in (False, True))
        states, _ = by_hand(plain, "a mill")

        close(plain.encode_document(["a mill"])[0], states[1:].mean(dim=0).numpy())
        with torch.inference_mode():
            close(with_norm.encode_document(["a mill"])[0], norm(states)[1:].mean(dim=0).numpy())


# --- words


WORDS = [["The", "capital", "of", "Germany"], ["a"], [], ["東京", "</s>", "naïve"]]


@pytest.mark.parametrize("method", ["classical", "echo", "llm2vec", "reba"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_words_have_the_same_vectors_alone_and_in_a_batch(family: str, method: str, tiny_model: Make) -> None:
    encoder = load(tiny_model(family), method=method)

    together = encoder.encode_words(WORDS)

    assert [vectors.shape for vectors in together] == [(4, 32), (1, 32), (0, 32), (3, 32)]
    for words, vectors in zip(WORDS, together, strict=True):
        assert vectors.dtype == np.float32
        if words:
            assert np.abs(vectors).max(axis=1).min() > 0
            close(vectors, encoder.encode_words([words])[0])


def test_a_word_is_the_mean_of_its_tokens(tiny_model: Make) -> None:
    encoder = load(tiny_model("llama"), method="classical")
    tokens = encoder.tokenizer.ids(["river", " hills"])
    states, n = by_hand(encoder, "river hills")
    assert n == sum(map(len, tokens))
    cut = 1 + len(tokens[0])

    for previous in (False, True):
        vectors = encoder.encode_words([["river", "hills"]], previous=previous)[0]

        expected = [
            states[1 - previous : cut - previous].mean(dim=0),
            states[cut - previous : n + 1 - previous].mean(dim=0),
        ]
        close(vectors, torch.stack(expected).numpy())


def test_the_first_token_of_all_has_none_before_it_and_is_taken_itself(tiny_model: Make, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("gpt2"), tmp_path / "no-bos")
    stored = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(stored | {"post_processor": None}))
    encoder = load(folder, method="llm2vec")
    ids = encoder.tokenizer.ids(["ab"])[0]
    assert len(ids) == 2
    states = encoder.backbone.states(torch.tensor([ids]), None)[0]

    close(encoder.encode_words([["ab"]], previous=True)[0][0], states[0].numpy())  # both tokens: the first one's state


@pytest.mark.parametrize("copies", [None, 1, 2, 3])
def test_echo_takes_words_from_the_last_copy(copies: int | None, tiny_model: Make) -> None:
    encoder = load(tiny_model("llama"), method="echo", copies=copies)
    row = encoder.rendered(["river"], None)[0]
    states = encoder.backbone.states(torch.tensor([row.ids]), None)[0]
    end = len(row.ids) - (copies is None)  # the EOS is no word's
    start = end - len(encoder.tokenizer.ids(["river"])[0])

    close(encoder.encode_words([["river"]])[0][0], states[start:end].mean(dim=0).numpy())


CHINESE, SPANS = "我的世界很大", [(0, 2), (2, 4), (5, 6)]


@pytest.mark.parametrize("method", ["classical", "llm2vec", "echo"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_words_of_a_text_without_spaces_are_the_tokens_of_the_text_itself(
    family: str, method: str, tiny_model: Make
) -> None:
    encoder = load(tiny_model(family), method=method)
    row = encoder.rendered([CHINESE], None)[0]
    states = encoder.backbone.states(torch.tensor([row.ids]), None)[0]
    ids = encoder.tokenizer.ids([CHINESE])[0]
    start = max(at for at in range(len(row.ids)) if row.ids[at : at + len(ids)] == ids)
    bytes_before = [len(CHINESE[:at].encode()) for at in range(len(CHINESE) + 1)]
    assert len(ids) == bytes_before[-1]  # each token is a byte

    given = encoder.encode_words([["a", "mill"], (CHINESE, SPANS)])[1]

    by_hand = [states[start + bytes_before[at] : start + bytes_before[to]].mean(dim=0) for at, to in SPANS]
    close(given, torch.stack(by_hand).numpy())
    words = [CHINESE[at:to] for at, to in SPANS]
    assert not np.allclose(given, encoder.encode_words([words])[0], atol=1e-3)  # joined by spaces it is another text


def test_the_only_word_of_a_text_is_the_same_as_a_list_and_as_a_span(tiny_model: Make) -> None:
    encoder = load(tiny_model("llama"), method="classical")

    listed, spanned, none = encoder.encode_words([["river"], ("river", [(0, 5)]), ("river", [])])

    assert np.array_equal(listed, spanned)
    assert none.shape == (0, 32)


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(0, 2), (1, 3)], "the span (1, 3) begins before the span before it ends, at 2"),
        ([(2, 4), (0, 2)], "the span (0, 2) begins before the span before it ends, at 4"),
        ([(2, 2)], "the span (2, 2) is empty"),
        ([(3, 2)], "the span (3, 2) is empty"),
        ([(4, 7)], "the span (4, 7) lies outside of its 6 characters"),
        ([(-1, 2)], "the span (-1, 2) lies outside of its 6 characters"),
    ],
)
def test_spans_that_are_no_words_are_refused(spans: list[tuple[int, int]], message: str, tiny_model: Make) -> None:
    encoder = load(tiny_model("llama"), method="classical")

    assert told(lambda: encoder.encode_words([["a"], (CHINESE, spans)])) == (
        f"text 1: {message}\n"
        "  hint: give the spans of words in their order, each from its first character to the one behind it"
    )


def test_words_of_reba_are_its_tokens_vectors(tiny_model: Make) -> None:
    encoder = load(tiny_model("llama"), method="reba", pooling="mean")

    word, text = encoder.encode_words([["river"]])[0], encoder.encode_document(["river"])

    close(word, text)  # the mean over the tokens of the only word
    last = load(tiny_model("llama"), method="reba", pooling="last")
    close(last.encode_words([["river"]])[0], word)


def test_words_are_those_of_the_text_in_a_form_whose_space_merges(tiny_model: Make) -> None:
    encoder = load(tiny_model("llama"), method="llm2vec", template="[INST] {text} [/INST]")
    ids = encoder.rendered(["river hills"], None)[0].ids
    states = encoder.backbone.states(torch.tensor([ids]), None)[0]
    spelt = [encoder.tokenizer.pieces.decode([i]) for i in ids]
    start = next(i for i in range(len(ids)) if "".join(spelt[i:]).startswith(" river"))
    end = next(i for i in range(len(ids)) if "".join(spelt[i:]).startswith(" hills"))

    close(encoder.encode_words([["river", "hills"]])[0][0], states[start:end].mean(dim=0).numpy())


def test_models_after_mntp_take_the_position_before(tiny_model: Make, tmp_path: Path) -> None:
    adapter = (str(write_adapter(tmp_path / "mntp", None)),)
    folder = tiny_model("llama")

    for options, expected in (
        ({"method": "llm2vec", "adapters": adapter}, True),
        ({"method": "llm2vec"}, False),
        ({"method": "classical", "adapters": adapter}, False),
    ):
        encoder = load(folder, **options)
        default, asked, other = (encoder.encode_words(WORDS[:1], previous=p)[0] for p in (None, expected, not expected))

        assert np.array_equal(default, asked), options
        assert not np.allclose(default, other, atol=1e-3), options


@pytest.mark.parametrize(
    "options",
    [
        {"method": "prompteol"},
        {"method": "metaeol"},
        {"method": "aligned-values"},
        {"method": "classical", "pooler": "p"},
    ],
)
def test_methods_with_one_vector_a_text_have_none_for_words(
    options: dict[str, Any], tiny_model: Make, tmp_path: Path
) -> None:
    pooling = "last"
    if "pooler" in options:
        pooling = "trainable"
        options = options | {"pooling": pooling, "pooler": str(write_pooler(tmp_path / "p.safetensors"))}
    encoder = load(tiny_model("llama", **LONG_ENOUGH["llama"]), **options)

    assert told(lambda: encoder.encode_words(WORDS)) == (
        f"{options['method']} with {pooling} pooling has one vector a text and none for its words\n"
        "  hint: use `method=llm2vec`, reba or classical"
    )


def test_a_sentence_transformers_model_has_no_vectors_for_words(tiny_sentence_transformer: Path) -> None:
    encoder = load_encoder(str(tiny_sentence_transformer), device="cpu")

    assert told(lambda: encoder.encode_words(WORDS)) == (
        "sentence-transformers has one vector a text and none for its words\n"
        "  hint: use `method=llm2vec`, reba or classical"
    )


def test_words_that_are_too_many_are_refused_and_not_cut(tiny_model: Make) -> None:
    encoder = load(tiny_model("llama"), method="classical", max_length=3)
    text = ["a", "b", "c", "d"]
    assert len(encoder.tokenizer.ids([" ".join(text)])[0]) > 3

    assert told(lambda: encoder.encode_words([["a"], text])) == (
        f"text 1 has {len(encoder.tokenizer.ids([' '.join(text)])[0])} tokens, the model reads 3\n"
        "  hint: encode it in parts"
    )


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2", "gemma3_text"])
@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
def test_a_decoder_attends_in_the_other_direction_for_a_while(
    tiny_model: Callable[..., Path], family: str, attention: str
) -> None:
    options: dict[str, Any] = {"method": "classical", "device": "cpu", "dtype": "float32"}
    other = "causal" if attention == "bidirectional" else "bidirectional"
    encoder: Any = load_encoder(str(tiny_model(family)), attention=attention, **options)
    own, wanted = (
        load_encoder(str(tiny_model(family)), attention=one, **options).encode_document(SENTENCES)
        for one in (attention, other)
    )

    with encoder.backbone.other_direction():
        np.testing.assert_array_equal(encoder.encode_document(SENTENCES), wanted)
    np.testing.assert_array_equal(encoder.encode_document(SENTENCES), own)
    assert np.abs(own - wanted).max() > 1e-3


def test_tokens_of_every_layer_pool_to_the_vectors_of_the_layers(tiny_model: Callable[..., Path]) -> None:
    encoder: Any = load_encoder(str(tiny_model("llama")), method="echo", device="cpu", dtype="float32")

    tokens = encoder.encode_tokens(SENTENCES, every_layer=True)

    of_layers = np.stack([states.mean(axis=1) for states in tokens], axis=1)
    np.testing.assert_allclose(of_layers, encoder.encode_layers(SENTENCES), atol=1e-5)
    for states, last in zip(tokens, encoder.encode_tokens(SENTENCES), strict=True):
        np.testing.assert_array_equal(states[-1], last)
