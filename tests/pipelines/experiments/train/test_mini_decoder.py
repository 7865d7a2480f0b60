"""The scripts that made mini-decoder, on made-up data; and the model that ships."""

import json
import logging
import warnings
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
import zstandard
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace
from torch.nn import functional
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from ragidx.benchmarks.recipes.mini_decoder import layers
from ragidx.benchmarks.recipes.mini_decoder.layers import candidates, packed, sampled_loss, train, windows
from ragidx.benchmarks.recipes.mini_decoder.network import GAIN, PRESET, decoder_config, export, identity_decoder
from ragidx.benchmarks.recipes.mini_decoder.shape import unit_table
from ragidx.benchmarks.recipes.mini_decoder.table import train_bag, weighted_start
from ragidx.benchmarks.recipes.mini_decoder.texts import HELD_OUT, SHARDS, training_documents
from ragidx.benchmarks.recipes.mini_decoder.tokens import mini_tokenizer, token_ids

VOCABULARY, WIDTH = 60, 16
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{n}" for n in range(VOCABULARY - 4))]
STREAM = np.tile(np.arange(4, 20, dtype=np.uint16), 40)


def quiet(_: str) -> None:
    """Progress nobody reads."""


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    """A tokenizer like mini's, of few words."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = Tokenizer(WordPiece({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(WORDS[:4])
    tokenizer.enable_truncation(5)
    tokenizer.save(str(folder / "tokenizer.json"))
    return mini_tokenizer(folder)


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    vectors = np.random.default_rng(0).standard_normal((VOCABULARY, 24)).astype("f4")
    return unit_table(vectors * np.linspace(0.05, 1, VOCABULARY, dtype="f4")[:, None] + 0.3, WIDTH)


@pytest.fixture
def decoder(table: np.ndarray, mini: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    return identity_decoder(table, decoder_config(mini, WIDTH, n_layers=2, n_heads=2, intermediate=24))


# --- the table


def test_rows_have_norm_one(table: np.ndarray) -> None:
    assert table.shape == (VOCABULARY, WIDTH)
    np.testing.assert_allclose(np.linalg.norm(table, axis=1), 1, atol=1e-6)


def test_the_constant_coordinate_is_the_top_singular_direction(table: np.ndarray) -> None:
    _, sizes, directions = np.linalg.svd(table.astype("f8"), full_matrices=False)

    assert directions[0, 0] ** 2 > 1 - 1e-6
    assert sizes[0] > 1.5 * sizes[1]
    assert np.all(table[:, 0] > 0)


def test_the_other_coordinates_are_the_spectrum_in_its_order(table: np.ndarray) -> None:
    gram = table[:, 1:].T @ table[:, 1:]

    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-4)
    assert np.all(np.diff(np.diag(gram)) <= 1e-6)


def test_frequent_tokens_start_short() -> None:
    static = np.random.default_rng(0).standard_normal((10, 8)).astype("f4")
    counts = np.array([1_000_000] + [1] * 9)

    lengths = np.linalg.norm(weighted_start(static, counts, width=4), axis=1)

    assert lengths[0] < 0.01 * lengths[1:].min()


@pytest.mark.slow
def test_the_bag_learns_its_teacher() -> None:
    draw = np.random.default_rng(0)
    truth = draw.standard_normal((VOCABULARY, 6)).astype("f4")
    rows = [draw.integers(0, VOCABULARY, draw.integers(1, 9)).astype(np.uint16) for _ in range(400)]
    targets = np.stack([truth[row].mean(axis=0) for row in rows])
    start = 0.1 * draw.standard_normal((VOCABULARY, 6)).astype("f4")

    learned = train_bag(start, rows, targets, quiet, epochs=30, batch=50, rate=5e-2)

    bags = np.stack([learned[row].mean(axis=0) for row in rows])
    cosines = (bags * targets).sum(axis=1) / np.linalg.norm(bags, axis=1) / np.linalg.norm(targets, axis=1)
    assert cosines.mean() > 0.95


# --- texts and tokens


def test_the_held_out_documents_are_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for shard in range(SHARDS):
        lines = "".join(json.dumps({"id": str(n), "text": f"{shard}:{n}"}) + "\n" for n in range(HELD_OUT + 2))
        path = tmp_path / "text" / f"shard-0{shard}.jsonl.zst"
        path.write_bytes(zstandard.compress(lines.encode()))

    trained = list(training_documents(tmp_path))

    assert trained[-3:] == [f"{SHARDS - 2}:{HELD_OUT + 1}", f"{SHARDS - 1}:0", f"{SHARDS - 1}:1"]


def test_the_tokenizer_puts_bos_in_front_and_cuts_nothing(mini: PreTrainedTokenizerFast) -> None:
    assert mini("w0 w1 w2 w3 w4 w5 w6")["input_ids"] == [2, 4, 5, 6, 7, 8, 9, 10]
    assert (mini.bos_token, mini.eos_token, mini.pad_token) == ("[CLS]", "[SEP]", "[PAD]")


def test_documents_are_packed_between_bos_and_eos(mini: PreTrainedTokenizerFast) -> None:
    assert packed(mini, ["w0 w1", "w2"]).tolist() == [2, 4, 5, 3, 2, 6, 3]
    assert [row.tolist() for row in token_ids(mini, ["w0 w1 w2"])] == [[4, 5, 6]]


def test_a_window_is_followed_by_its_next_token_and_each_epoch_has_its_order() -> None:
    batches = windows(STREAM, length=8, batch=4)
    per_epoch = (len(STREAM) - 1) // 8 // 4

    epochs = [[next(batches) for _ in range(per_epoch)] for _ in range(2)]

    inputs, targets = epochs[0][0]
    assert inputs.shape == (4, 8)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(inputs, next(windows(STREAM, length=8, batch=4))[0])
    assert not torch.equal(inputs, epochs[1][0][0])


# --- the layers


def test_a_fresh_stack_is_the_identity(decoder: LlamaForCausalLM, table: np.ndarray) -> None:
    ids = torch.arange(VOCABULARY)[None, :40]

    with torch.inference_mode():
        states = decoder.model(input_ids=ids, output_hidden_states=True).hidden_states

    for layer in states[:-1]:
        np.testing.assert_array_equal(layer[0].numpy(), table[:40])
    np.testing.assert_allclose(states[-1][0].numpy(), GAIN * WIDTH**0.5 * table[:40], rtol=1e-4)


@pytest.mark.slow
def test_a_few_steps_lower_the_loss_and_leave_the_table(decoder: LlamaForCausalLM, table: np.ndarray) -> None:
    inputs, targets = next(windows(STREAM, 8, 64))

    def loss() -> float:
        with torch.inference_mode():
            logits = decoder(input_ids=inputs).logits
        return float(functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))

    before = loss()

    train(decoder, windows(STREAM, 8, 4), 40, quiet, sample=10, peak=1e-2)

    assert loss() < before - 0.5
    np.testing.assert_array_equal(decoder.model.embed_tokens.weight.numpy(), table)


def test_the_learning_rate_warms_up_and_falls() -> None:
    rates = [layers.learning_rate(1.0, share) for share in (0.0, 0.01, 0.02, 0.51, 1.0)]

    np.testing.assert_allclose(rates, [0.005, 0.5, 1.0, 0.51, 0.02], atol=1e-3)


def test_the_sampled_loss_is_the_whole_one_where_all_is_sampled() -> None:
    draw = torch.Generator().manual_seed(0)
    states, targets = torch.randn(30, 8, generator=draw), torch.randint(0, 50, (30,), generator=draw)
    weights = torch.randn(50, 8, generator=draw)

    whole = float(functional.cross_entropy(states @ weights.T, targets))
    ids, _ = candidates(targets, 50, 50, draw)

    assert sorted(ids.tolist()) == list(range(50))
    assert float(sampled_loss(states, weights, targets, 50, draw)) == pytest.approx(whole, rel=1e-2)  # bfloat16


# --- the folder that ships


def test_an_export_is_tied_and_in_float16(
    decoder: LlamaForCausalLM, mini: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    export(decoder, mini, tmp_path)

    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)

    assert loaded.dtype == torch.float16
    assert loaded.lm_head.weight.data_ptr() == loaded.model.embed_tokens.weight.data_ptr()
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    assert AutoTokenizer.from_pretrained(tmp_path)("w0")["input_ids"] == [2, 4]
    assert json.loads((tmp_path / "preset.json").read_text()) == PRESET
    shipped = {path.name for path in (resources.files("ragidx.indexer") / "models" / "mini-decoder").iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == shipped - {"README.md"}


@pytest.fixture(scope="module")
def shipped() -> Path:
    return Path(str(resources.files("ragidx.indexer"))) / "models" / "mini-decoder"


def test_the_shipped_model_loads_without_a_warning(
    shipped: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        backbone = AutoModel.from_pretrained(shipped)
        decoder = AutoModelForCausalLM.from_pretrained(shipped)
        tokenizer = AutoTokenizer.from_pretrained(shipped)

    assert not caplog.records
    assert "warning" not in capfd.readouterr().err.lower()
    assert backbone.dtype == decoder.dtype == torch.float16
    assert decoder.config.tie_word_embeddings
    assert tokenizer.model_max_length == decoder.config.max_position_embeddings == 2048
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (
        decoder.config.bos_token_id,
        decoder.config.eos_token_id,
    )


def test_all_weights_of_the_shipped_model_are_finite_float16(shipped: Path) -> None:
    weights = load_file(shipped / "model.safetensors")

    assert {str(weight.dtype) for weight in weights.values()} == {"float16"}
    assert all(np.isfinite(weight).all() for weight in weights.values())


@pytest.mark.slow
def test_the_top_direction_of_the_shipped_table_is_its_constant_coordinate(shipped: Path) -> None:
    table = load_file(shipped / "model.safetensors")["model.embed_tokens.weight"].astype("f8")

    sizes, directions = np.linalg.eigh(table.T @ table)

    assert directions[0, -1] ** 2 > 0.9999
    assert sizes[-1] > 10 * sizes[-2]
    np.testing.assert_allclose(np.linalg.norm(table, axis=1), 1, atol=1e-3)


def test_layer_0_of_the_shipped_model_is_its_table(shipped: Path) -> None:
    model = AutoModel.from_pretrained(shipped, dtype=torch.float32)
    ids = torch.tensor([[101, 7592, 2088, 1012]])

    with torch.inference_mode():
        states = model(input_ids=ids, output_hidden_states=True).hidden_states

    assert torch.equal(states[0], model.embed_tokens.weight[ids])
    assert len(states) == model.config.num_hidden_layers + 1
