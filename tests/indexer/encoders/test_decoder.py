"""Decoder encoders: with every method and pooling a text has one vector, whatever padding and texts are beside it."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.encoders.batching import Budget, collate, run
from ragidx.indexer.encoders.decoder import DecoderEncoder
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.prompts.rendering import Rendered

from ...tiny_weights import write_adapter, write_pooler

Make = Callable[..., Path]
Vectors = NDArray[np.float32]

pytestmark = pytest.mark.slow

TEXTS = [
    "The river rises in the hills and flows past the old mill.",
    "a",
    "Ünïcödé café, 東京",
    "Who signed the lease?",
    'He said "hello" </s>',
]
# A name, and what makes the encoder; `layers` stands for the pooler's file.
CASES: dict[str, dict[str, Any]] = {
    "classical": {"method": "classical"},
    "classical, weighted mean": {"method": "classical", "pooling": "weighted_mean"},
    "classical, last": {"method": "classical", "pooling": "last"},
    "classical, eos": {"method": "classical", "pooling": "eos"},
    "classical, layer 1 and norm": {"method": "classical", "layer": 1, "layer_norm": True},
    "classical, both ways, bos": {"method": "classical", "attention": "bidirectional", "pooling": "bos"},
    "echo": {"method": "echo"},
    "echo, last": {"method": "echo", "pooling": "last"},
    "echo, no eos": {"method": "echo", "pool_eos": False},
    "echo, trained": {"method": "echo", "template": "echo-trained", "pooling": "last"},
    "echo, 3 copies": {"method": "echo", "copies": 3},
    "prompteol": {"method": "prompteol"},
    "metaeol": {"method": "metaeol"},
    "metaeol, eos": {"method": "metaeol", "pooling": "eos"},
    "llm2vec": {"method": "llm2vec"},
    "llm2vec, weighted mean": {"method": "llm2vec", "pooling": "weighted_mean"},
    "llm2vec, eos": {"method": "llm2vec", "pooling": "eos"},
    "llm2vec, bos": {"method": "llm2vec", "pooling": "bos"},
    "reba, mean": {"method": "reba"},
    "reba, weighted mean": {"method": "reba", "pooling": "weighted_mean"},
    "reba, last": {"method": "reba", "pooling": "last"},
    "reba, 3 copies": {"method": "reba", "copies": 3},
    "reba, layer 1": {"method": "reba", "layer": 1},
    "trainable, last layer": {"method": "classical", "pooling": "trainable", "layers": None},
    "trainable, last layer, both ways": {"method": "llm2vec", "pooling": "trainable", "layers": None},
    "trainable, every layer": {"method": "classical", "pooling": "trainable", "layers": 2},
    "trainable, every layer, both ways": {"method": "llm2vec", "pooling": "trainable", "layers": 2},
    "trainable, metaeol": {"method": "metaeol", "pooling": "trainable", "layers": None},
}
LONG_ENOUGH = {"llama": {"max_position_embeddings": 256}, "gpt2": {"n_positions": 256}}


@pytest.fixture(scope="module")
def encoder_for(tiny_model: Make, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], DecoderEncoder]:
    """`encoder_for("llama", "echo")`: one of CASES, loaded once."""
    made: dict[tuple[str, str], DecoderEncoder] = {}
    folder = tmp_path_factory.mktemp("poolers")

    def make(family: str, case: str) -> DecoderEncoder:
        if (family, case) not in made:
            options = dict(CASES[case])
            if "layers" in options:
                layers = options.pop("layers")
                options["pooler"] = str(write_pooler(folder / f"{layers}.safetensors", layers=layers))
            made[family, case] = load(tiny_model(family, **LONG_ENOUGH[family]), **options)
        return made[family, case]

    return make


def load(folder: Path, **options: Any) -> DecoderEncoder:
    encoder = load_encoder(str(folder), device="cpu", dtype="float32", **options)
    assert isinstance(encoder, DecoderEncoder)
    # The limit of the tokenizer is that of a model of 128 positions; those with 256 read as much as they can.
    encoder.prompts.max_length = encoder.backbone.max_positions
    return encoder


def close(one: Vectors, other: Vectors) -> None:
    """Equal to 1e-5 of the vectors' scale, and vectors that differ from text to text."""
    scale = float(np.abs(other).max())
    assert scale > 1e-3
    np.testing.assert_allclose(one / scale, other / scale, atol=1e-5)


def told(make: Callable[[], object], kind: type[Exception] = SpecError) -> str:
    with pytest.raises(kind) as fault:
        make()
    return str(fault.value)


# --- one vector a text


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_text_has_one_vector_alone_in_any_batch_and_in_any_order(
    family: str, case: str, encoder_for: Callable[[str, str], DecoderEncoder]
) -> None:
    encoder = encoder_for(family, case)
    alone = np.concatenate([encoder.encode_document([text]) for text in TEXTS])

    for budget, step in ((40, 1), (100_000, -1)):
        encoder.budget = Budget(budget)
        together = encoder.encode_document(TEXTS[::step])[::step]

        assert together.shape == (len(TEXTS), 32)
        assert together.dtype == np.float32
        close(together, alone)
    assert float(np.abs(alone[0] - alone[3]).max()) > 1e-2 * float(np.abs(alone).max())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_text_has_the_same_vector_with_padding_before_it(
    family: str, case: str, encoder_for: Callable[[str, str], DecoderEncoder]
) -> None:
    encoder = encoder_for(family, case)
    encoder.budget = Budget(100_000)
    rows = encoder.rendered(TEXTS, None)
    assert len({row.longest for row in rows}) > 1

    close(encoder.forward(*padded_left(rows, encoder.tokenizer.pad), None).numpy(), encoder.encode_document(TEXTS))


def padded_left(rows: Sequence[Rendered], pad: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As `collate`, with the padding in front, and two more tokens of it than needed."""
    ids, mask, pooled = collate(rows, pad, torch.device("cpu"))
    assert mask is not None
    n_behind = (mask == 0).sum(dim=1).tolist()
    ids, mask, pooled = (
        torch.stack([torch.nn.functional.pad(row.roll(n), (2, 0)) for row, n in zip(part, n_behind, strict=True)])
        for part in (ids, mask, pooled)
    )
    return ids, mask, pooled


def test_what_the_padding_holds_plays_no_part(encoder_for: Callable[[str, str], DecoderEncoder]) -> None:
    for case in ("classical", "llm2vec", "reba, mean", "trainable, last layer"):
        encoder = encoder_for("llama", case)
        rows = encoder.rendered(TEXTS, None)

        one, other = (encoder.forward(*collate(rows, pad, torch.device("cpu")), None).numpy() for pad in (2, 77))

        close(one, other)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts=st.lists(st.text(max_size=20), min_size=1, max_size=6), case=st.sampled_from(sorted(CASES)))
def test_any_texts_have_the_vectors_that_they_have_alone(
    texts: list[str], case: str, encoder_for: Callable[[str, str], DecoderEncoder]
) -> None:
    encoder = encoder_for("llama", case)

    together = encoder.encode_document(texts)

    alone = np.concatenate([encoder.encode_document([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5 * max(1.0, float(np.abs(alone).max())))


def test_a_text_without_tokens_has_no_vector_and_spoils_no_other(tiny_model: Make, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("gpt2"), tmp_path / "no-bos")
    told = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(told | {"post_processor": None}))
    for method in ("classical", "llm2vec", "reba"):
        for attn in ("auto",) if method == "reba" else ("sdpa", "eager"):
            encoder = load(folder, method=method, attn=attn)
            assert encoder.rendered([""], None)[0].ids == []

            empty, full = encoder.encode_document(["", "a mill"])

            assert not empty.any()
            close(full[None], encoder.encode_document(["a mill"]))
            assert not encoder.encode_document([""]).any()


@pytest.mark.parametrize("layers", [None, 2])
def test_two_threads_share_an_encoder(layers: int | None, tiny_model: Make, tmp_path: Path) -> None:
    pooler = str(write_pooler(tmp_path / "p.safetensors", layers=layers))
    encoder = load(tiny_model("llama"), method="classical", pooling="trainable", pooler=pooler)
    texts = [TEXTS[:1] * 3, TEXTS[3:4] * 2]
    expected = [encoder.encode_document(own) for own in texts]
    meet, wrong = threading.Barrier(2), []

    def work(number: int) -> None:
        meet.wait()
        for _ in range(12):
            try:
                close(encoder.encode_document(texts[number]), expected[number])
            except Exception as fault:  # noqa: BLE001 - told below
                wrong.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_a_model_with_two_sets_of_positions_reads_each_text_with_its_own(tiny_model: Make) -> None:
    long, short = "The river rises in the hills and flows past the old mill.", "a mill"
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "long_factor": [4.0] * 4, "short_factor": [1.0] * 4}
    folder = tiny_model(
        "phi3", original_max_position_embeddings=16, rope_scaling=rope | {"original_max_position_embeddings": 16}
    )
    for method in ("classical", "reba", "metaeol"):
        encoder = load(folder, method=method, template='A "{text}":\nB "{text}":' if method == "metaeol" else None)
        assert encoder.apart == 16
        n_long, n_short = (row.longest for row in encoder.rendered([long, short], None))
        assert n_long > 16 >= n_short

        together = encoder.encode_document([short, long, short, long])

        alone = np.concatenate([encoder.encode_document([text]) for text in (short, long)])
        close(together, alone[[0, 1, 0, 1]])
    words = load(folder, method="classical").encode_words([long.split(), short.split()])
    close(words[1], load(folder, method="classical").encode_words([short.split()])[0])


def test_rows_on_both_sides_of_a_length_share_no_batch() -> None:
    rows = [Rendered([1] * n, ((0, n),)) for n in (3, 9, 8, 4, 7, 2)]
    sizes: list[list[int]] = []

    def forward(ids: torch.Tensor, mask: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
        sizes.append(sorted(pooled.sum(dim=1).tolist(), reverse=True))
        return ids.sum(dim=1, keepdim=True).to(torch.float32)

    batches = list(run(rows, forward, budget=Budget(1000), pad=0, device=torch.device("cpu"), apart=7))

    assert sizes == [[9, 8], [7, 4, 3, 2]]
    assert {row: float(v[0]) for b in batches for row, v in zip(b.rows, b.vectors, strict=True)} == {
        0: 3.0, 1: 9.0, 2: 8.0, 3: 4.0, 4: 7.0, 5: 2.0,
    }  # fmt: skip


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


# --- lengths


def n_read(encoder: DecoderEncoder, text: str, instruction: str | None = None) -> int:
    return encoder.rendered([text], instruction)[0].longest


LONG = "mill " * 200


@pytest.mark.parametrize(("method", "options", "n_around"), [
    ("classical", {}, 1),
    ("echo", {"copies": 2}, 1),
    ("echo", {"copies": 3}, 1),
    ("reba", {"copies": 3}, 1),
])  # fmt: skip
def test_the_length_counts_tokens_of_a_text_in_each_copy_or_in_all_together(
    method: str, options: dict[str, Any], n_around: int, tiny_model: Make
) -> None:
    folder, copies = tiny_model("llama"), options.get("copies", 1)

    each = load(folder, method=method, max_length=9, **options)
    assert n_read(each, LONG) == n_around + 9 * copies
    assert each.text_limit() == 9
    if copies > 1:
        matched = load(folder, method=method, max_length=9, compute_matched=True, **options)
        assert matched.text_limit() == 9 // copies
        assert n_read(matched, LONG) == n_around + 9 // copies * copies <= n_around + 9


def test_compute_matched_echo_reads_as_many_tokens_of_text_as_classical(tiny_model: Make) -> None:
    folder = tiny_model("llama")
    classical = load(folder, method="classical", max_length=30)
    matched = load(folder, method="echo", max_length=30, compute_matched=True)
    around = n_read(matched, "")

    assert n_read(classical, LONG) == 1 + 30
    assert n_read(matched, LONG) == around + 30
    assert matched.text_limit() == 15
    assert n_read(matched, LONG, "Find it") - n_read(matched, "", "Find it") == 30
    assert n_read(load(folder, method="echo", max_length=1, compute_matched=True), LONG) == around + 2  # never nothing


def test_the_model_itself_limits_what_is_asked_for(tiny_model: Make) -> None:
    for method in ("classical", "echo", "prompteol", "llm2vec", "reba"):
        encoder = load(tiny_model("llama"), method=method, max_length=1000)

        assert n_read(encoder, LONG) <= 128
        assert n_read(encoder, LONG, "Find it among the many mills") <= 128
        assert np.isfinite(encoder.encode_query([LONG], instruction="Find it among the many mills")).all()


def test_the_tokenizers_limit_and_the_models_positions_both_hold(tiny_model: Make, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("llama"), tmp_path / "short")
    told = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(told | {"model_max_length": 20}))

    encoder = load_encoder(str(folder), method="classical", device="cpu")

    assert encoder.text_limit() == 19
    assert load_encoder(str(tiny_model("llama", max_position_embeddings=12)), method="classical").text_limit() == 11


@pytest.mark.parametrize("method", ["classical", "llm2vec", "reba"])
def test_what_is_cut_in_the_middle_keeps_both_ends(
    method: str, tiny_model: Make, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = load(tiny_model("llama"), method=method, max_length=20, truncate="middle")
    middles = [f"The river {'rises in the hills and ' * n}flows to the sea" for n in (20, 2000)]

    with caplog.at_level(logging.WARNING, "ragidx"):
        vectors = encoder.encode_document([*middles, middles[0][:-3] + "mill"])

    close(vectors[0], vectors[1])
    assert float(np.abs(vectors[0] - vectors[2]).max()) > 1e-3
    assert caplog.messages == ["3 of 3 texts are longer than the model reads and were cut"]
    ended = load(tiny_model("llama"), method=method, max_length=20)
    close(ended.encode_document([middles[0]]), ended.encode_document([middles[0][:-3] + "mill"]))


# --- loading


def test_a_trained_pooling_of_every_layer_reads_every_layer(tiny_model: Make, tmp_path: Path) -> None:
    pooler = str(write_pooler(tmp_path / "p.safetensors", layers=2))

    assert (
        told(
            lambda: load_encoder(
                str(tiny_model("llama")), method="classical", pooling="trainable", pooler=pooler, layer=1
            )
        )
        == "--layer: this pooling reads every layer\n  hint: leave out --layer"
    )


def test_a_trained_pooling_of_every_layer_reads_one_row_a_layer(tiny_model: Make, tmp_path: Path) -> None:
    pooler = str(write_pooler(tmp_path / "p.safetensors", layers=2))
    for attention, reduce in (("causal", lambda h: h[-1]), ("bidirectional", lambda h: h.mean(dim=0))):
        encoder = load(tiny_model("llama"), method="classical", attention=attention, pooling="trainable", pooler=pooler)
        ids = torch.tensor([[0, *encoder.tokenizer.ids(["a mill"])[0], 1]])
        with torch.inference_mode():
            hidden = encoder.backbone.model(ids, output_hidden_states=True).hidden_states
            rows = torch.stack([reduce(states[0]) for states in hidden[1:]])
            assert encoder._pooler is not None
            expected = encoder._pooler(rows[None], torch.ones(1, 2, dtype=torch.bool))

        close(encoder.encode_document(["a mill"]), expected.numpy())


@pytest.mark.parametrize(
    ("family", "attn"), [("llama", "nonsense"), ("llama", "flash_attention_2"), ("gemma2", "sdpa"), ("bloom", "sdpa")]
)
def test_an_attention_implementation_that_is_not_there_is_named(family: str, attn: str, tiny_model: Make) -> None:
    if attn == "flash_attention_2":
        from transformers.utils import is_flash_attn_2_available

        if is_flash_attn_2_available():
            pytest.skip("flash attention is here")
    folder = str(tiny_model(family))

    assert told(lambda: load_encoder(folder, method="classical", attn=attn, device="cpu"), ModelError) == (
        f"--attn: '{folder}' has no attention implementation '{attn}': its family '{family}' lacks it, or the package "
        "it needs is not installed\n  hint: leave it out, or use --attn eager"
    )


def test_attention_implementations_agree(tiny_model: Make) -> None:
    folder = tiny_model("llama")
    for method in ("classical", "llm2vec"):
        one, other = (load(folder, method=method, attn=attn).encode_document(TEXTS) for attn in ("sdpa", "eager"))

        close(one, other)


def test_a_sentence_transformers_model_computes_its_own_attention(tiny_sentence_transformer: Path) -> None:
    assert told(lambda: load_encoder(str(tiny_sentence_transformer), attn="eager", device="cpu")) == (
        "--attn: a sentence-transformers model brings its own attention\n"
        "  hint: leave out --attn, or choose another --method"
    )


@pytest.mark.parametrize("layer", [3, -4, 100])
@pytest.mark.parametrize("method", ["classical", "reba", "llm2vec"])
def test_a_layer_that_is_not_there_is_told(method: str, layer: int, tiny_model: Make) -> None:
    assert told(lambda: load_encoder(str(tiny_model("llama")), method=method, layer=layer, device="cpu")) == (
        f"--layer: the model has 2 layers, there is no layer {layer}\n"
        "  hint: give 0 (input embeddings) to 2, or -1 for the last"
    )


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


def test_a_padding_token_without_an_embedding_is_not_read(tiny_model: Make, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = tiny_model("llama")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(write_adapter(tmp_path / "adapter", None))
    assert tokenizer.pad_token_id == 300

    encoder = load(folder, method="llm2vec", adapters=(str(tmp_path / "adapter"),))

    close(encoder.encode_document(TEXTS), np.concatenate([encoder.encode_document([text]) for text in TEXTS]))


def test_a_tokenizer_of_another_model_is_refused(tiny_model: Make, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("llama", vocab_size=290), tmp_path / "smaller")

    assert told(lambda: load_encoder(str(folder), method="classical", device="cpu"), ModelError) == (
        f"the tokenizer of '{folder}' has 300 tokens, the model has embeddings for 290\n"
        "  hint: put the tokenizer that belongs to the weights beside them"
    )


def test_an_eos_needs_an_embedding(tiny_model: Make, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    for n_tokens in (300, 301):
        folder = shutil.copytree(tiny_model("llama", vocab_size=n_tokens), tmp_path / str(n_tokens))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.add_special_tokens({"eos_token": "[END]"})
        assert tokenizer.eos_token_id == 300
        tokenizer.save_pretrained(folder)

    assert load(tmp_path / "301", method="echo").encode_document(["a"]).any()
    assert told(lambda: load(tmp_path / "300", method="echo"), ModelError).startswith(
        f"the tokenizer of '{tmp_path / '300'}' has 301 tokens, the model has embeddings for 300\n"
    )


def test_adapters_add_up(tiny_model: Make, tmp_path: Path) -> None:
    folder = tiny_model("llama")
    names = [str(write_adapter(tmp_path / f"a{seed}", None, seed=seed)) for seed in range(2)]

    vectors = [
        load(folder, method="llm2vec", adapters=tuple(adapters)).encode_document(TEXTS)
        for adapters in ([], names[:1], names, names[::-1])
    ]

    close(vectors[2], vectors[3])  # sums of products: the order plays no part for the weights
    assert float(np.abs(vectors[0] - vectors[1]).max()) > 1e-2
    assert float(np.abs(vectors[1] - vectors[2]).max()) > 1e-2


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


def test_echo_takes_words_from_the_second_copy(tiny_model: Make) -> None:
    encoder = load(tiny_model("llama"), method="echo")
    row = encoder.rendered(["river"], None)[0]
    states = encoder.backbone.states(torch.tensor([row.ids]), None)[0]
    place = row.positions()[:-1]  # the EOS is no word's

    close(encoder.encode_words([["river"]])[0][0], states[place].mean(dim=0).numpy())


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
    "options", [{"method": "prompteol"}, {"method": "metaeol"}, {"method": "classical", "pooler": "p"}]
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
        "  hint: use --method llm2vec, reba or classical"
    )


def test_a_sentence_transformers_model_has_no_vectors_for_words(tiny_sentence_transformer: Path) -> None:
    encoder = load_encoder(str(tiny_sentence_transformer), device="cpu")

    assert told(lambda: encoder.encode_words(WORDS)) == (
        "sentence-transformers has one vector a text and none for its words\n"
        "  hint: use --method llm2vec, reba or classical"
    )


def test_words_that_are_too_many_are_refused_and_not_cut(tiny_model: Make) -> None:
    encoder = load(tiny_model("llama"), method="classical", max_length=3)
    text = ["a", "b", "c", "d"]
    assert len(encoder.tokenizer.ids([" ".join(text)])[0]) > 3

    assert told(lambda: encoder.encode_words([["a"], text])) == (
        f"text 1 has {len(encoder.tokenizer.ids([' '.join(text)])[0])} tokens, the model reads 3\n"
        "  hint: encode it in parts"
    )


@pytest.mark.parametrize("layer", [-1, 2])
def test_the_last_layer_has_gone_through_the_final_norm(layer: int, tiny_model: Callable[..., Path]) -> None:
    with pytest.raises(SpecError) as fault:
        load_encoder(str(tiny_model("llama")), layer=layer, layer_norm=True)

    assert str(fault.value) == (
        "--layer-norm: the last layer's states have gone through the final norm\n"
        "  hint: leave out --layer-norm, or give a --layer before the last"
    )


def test_a_checkpoint_that_lacks_weights_is_refused(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "holed"
    shutil.copytree(tiny_model("llama"), folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"], tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    with pytest.raises(ModelError) as fault:
        load_encoder(str(folder))

    assert str(fault.value) == (
        f"{folder}: the weights of '{folder}' lack 'layers.1.mlp.up_proj.weight' and 1 more\n"
        "  hint: download or copy the model again"
    )


def test_one_string_is_no_list_of_texts(tiny_model: Callable[..., Path]) -> None:
    encoder = load_encoder(str(tiny_model("llama")))

    for call in (encoder.encode_query, encoder.encode_document):
        with pytest.raises(TypeError, match="expected a list of texts, got one string"):
            call("who signed?")
        with pytest.raises(ValueError, match="text 1 is no Unicode text: half of a surrogate pair at character 2"):
            call(["fine", "no\ud800"])
    with pytest.raises(TypeError, match="expected a list of texts, got one string"):
        encoder.encode_words(["one string"])
