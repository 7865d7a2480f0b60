"""The scripts that made mini, on made-up data; and the model that ships."""

import json
import logging
import warnings
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
import zstandard
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from ragidx.corpora.errors import CorpusError, ModelError
from ragidx.pipelines.train.mini import checkpoint, layers
from ragidx.pipelines.train.mini.bag import BagSpec, train_bag, weighted_start
from ragidx.pipelines.train.mini.export import PRESET, export
from ragidx.pipelines.train.mini.export import main as export_command
from ragidx.pipelines.train.mini.layers import RunSpec, adam, held_out_loss, train, trainable
from ragidx.pipelines.train.mini.loss import candidates, full_loss, sampled_loss
from ragidx.pipelines.train.mini.packing import Windows, packed
from ragidx.pipelines.train.mini.shape import unit_table
from ragidx.pipelines.train.mini.stack import GAIN, StackSpec, decoder_config, identity_decoder
from ragidx.pipelines.train.mini.texts import HELD_OUT, held_out_documents, json_lines, training_documents
from ragidx.pipelines.train.mini.tokens import decoder_tokenizer, ragged, token_ids

VOCABULARY, WIDTH = 60, 16
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{n}" for n in range(VOCABULARY - 4))]


def quiet(_: str) -> None:
    """Progress nobody reads."""


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = Tokenizer(WordPiece({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(WORDS[:4])
    tokenizer.enable_truncation(5)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    vectors = np.random.default_rng(0).standard_normal((VOCABULARY, 24)).astype("f4")
    return unit_table(vectors * np.linspace(0.05, 1, VOCABULARY, dtype="f4")[:, None] + 0.3, WIDTH)


@pytest.fixture
def decoder(table: np.ndarray) -> LlamaForCausalLM:
    stack = StackSpec(n_layers=2, n_heads=2, intermediate=24, max_length=64)
    return identity_decoder(table, decoder_config(VOCABULARY, WIDTH, stack, 2, 3, 0))


@pytest.fixture
def windows() -> Windows:
    stream = np.tile(np.arange(4, 20, dtype=np.uint16), 40)
    return Windows(stream, length=8, batch=4, seed=0)


def steps(n: int) -> RunSpec:
    return RunSpec(steps=n, sample=10, peak=1e-2, warm_up=0.1)


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

    lengths = np.linalg.norm(weighted_start(static, counts, BagSpec(width=4)), axis=1)

    assert lengths[0] < 0.01 * lengths[1:].min()


@pytest.mark.slow
def test_the_bag_learns_its_teacher() -> None:
    draw = np.random.default_rng(0)
    truth = draw.standard_normal((VOCABULARY, 6)).astype("f4")
    rows = [draw.integers(0, VOCABULARY, draw.integers(1, 9)).astype(np.uint16) for _ in range(400)]
    targets = np.stack([truth[row].mean(axis=0) for row in rows])
    spec = BagSpec(width=6, epochs=30, batch=50, rate=5e-2)

    learned = train_bag(0.1 * draw.standard_normal((VOCABULARY, 6)).astype("f4"), *ragged(rows), targets, spec, quiet)

    bags = np.stack([learned[row].mean(axis=0) for row in rows])
    cosines = (bags * targets).sum(axis=1) / np.linalg.norm(bags, axis=1) / np.linalg.norm(targets, axis=1)
    assert cosines.mean() > 0.95


# --- texts and tokens


def test_the_held_out_documents_are_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for shard in range(2):
        lines = "".join(json.dumps({"id": str(n), "text": f"{shard}:{n}"}) + "\n" for n in range(HELD_OUT + 2))
        path = tmp_path / "text" / f"shard-0{shard}.jsonl.zst"
        path.write_bytes(zstandard.compress(lines.encode()))

    trained, kept = list(training_documents(tmp_path)), held_out_documents(tmp_path)

    assert trained[-2:] == ["1:0", "1:1"]
    assert len(kept) == HELD_OUT
    assert not set(trained) & set(kept)


def test_a_missing_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError) as caught:
        next(json_lines(tmp_path / "text.jsonl.zst"))

    told = "the file is not there\n  hint: give the folder that holds text/, pairs/ and teacher/"
    assert str(caught.value) == f"{tmp_path / 'text.jsonl.zst'}: {told}"


def test_the_tokenizer_puts_bos_in_front_and_cuts_nothing(tokenizer_folder: Path) -> None:
    tokenizer = decoder_tokenizer(64, tokenizer_folder)

    assert tokenizer("w0 w1 w2 w3 w4 w5 w6")["input_ids"] == [2, 4, 5, 6, 7, 8, 9, 10]
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("[CLS]", "[SEP]", "[PAD]")
    assert tokenizer.model_max_length == 64


def test_documents_are_packed_between_bos_and_eos(tokenizer_folder: Path) -> None:
    tokenizer = decoder_tokenizer(64, tokenizer_folder).backend_tokenizer

    assert packed(tokenizer, ["w0 w1", "w2"]).tolist() == [2, 4, 5, 3, 2, 6, 3]
    assert [row.tolist() for row in token_ids(tokenizer, ["w0 w1 w2"], limit=2)] == [[4, 5]]


def test_a_window_is_followed_by_its_next_token(windows: Windows) -> None:
    inputs, targets = windows(0)

    assert inputs.shape == (4, 8)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(inputs, windows(0)[0])
    assert not torch.equal(inputs, windows(windows.per_epoch)[0])


def test_too_few_tokens_for_a_batch_are_refused() -> None:
    with pytest.raises(ValueError, match=r"10 tokens are fewer than one batch of 4 x 8 \+ 1"):
        Windows(np.zeros(10, np.uint16), length=8, batch=4, seed=0)


# --- the layers


def test_a_fresh_stack_is_the_identity(decoder: LlamaForCausalLM, table: np.ndarray) -> None:
    ids = torch.arange(VOCABULARY)[None, :40]

    with torch.inference_mode():
        states = decoder.model(input_ids=ids, output_hidden_states=True).hidden_states

    for layer in states[:-1]:
        np.testing.assert_array_equal(layer[0].numpy(), table[:40])
    np.testing.assert_allclose(states[-1][0].numpy(), GAIN * WIDTH**0.5 * table[:40], rtol=1e-4)


@pytest.mark.slow
def test_a_few_steps_lower_the_loss_and_leave_the_table(
    decoder: LlamaForCausalLM, windows: Windows, table: np.ndarray, tmp_path: Path
) -> None:
    before = held_out_loss(decoder, windows.stream, 8)

    progress = train(decoder, windows, tmp_path, steps(40), quiet)

    assert (progress.step, progress.tokens) == (40, 40 * 32)
    assert held_out_loss(decoder, windows.stream, 8) < before - 0.5
    np.testing.assert_array_equal(decoder.model.embed_tokens.weight.numpy(), table)


@pytest.mark.slow
def test_a_resumed_run_ends_where_an_unbroken_one_does(table: np.ndarray, windows: Windows, tmp_path: Path) -> None:
    stack = StackSpec(n_layers=1, n_heads=2, intermediate=24, max_length=64)

    def fresh() -> LlamaForCausalLM:
        return identity_decoder(table, decoder_config(VOCABULARY, WIDTH, stack, 2, 3, 0))

    spec = RunSpec(steps=8, sample=10, save_every_s=0.0)
    unbroken, broken = fresh(), fresh()
    train(unbroken, windows, tmp_path / "unbroken", spec, quiet)

    class Power(Exception):
        """It failed."""

    class FailingWindows(Windows):
        def __call__(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
            if step == 5:
                raise Power
            return super().__call__(step)

    with pytest.raises(Power):
        train(broken, FailingWindows(windows.stream, 8, 4, 0), tmp_path / "broken", spec, quiet)
    resumed = fresh()
    progress = train(resumed, windows, tmp_path / "broken", spec, quiet)

    assert progress.step == 8
    for name, weight in unbroken.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], weight, rtol=0, atol=0, msg=name)


def test_a_checkpoint_gives_back_weights_moments_and_counters(
    decoder: LlamaForCausalLM, windows: Windows, tmp_path: Path
) -> None:
    train(decoder, windows, tmp_path, steps(3), quiet)
    path, parameters = tmp_path / "checkpoint.safetensors", trainable(decoder)
    optimizer = adam(parameters, steps(3))

    progress = checkpoint.load(path, parameters, optimizer)

    assert (progress.step, progress.tokens) == (3, 96)
    assert sorted(checkpoint.weights(path)) == sorted(parameters)
    assert all(optimizer.state[p]["exp_avg"].abs().sum() > 0 for p in parameters.values())
    assert list(tmp_path.iterdir()) == [path]


def test_the_learning_rate_warms_up_and_falls() -> None:
    spec = RunSpec(peak=1.0, warm_up=0.1)

    rates = [layers.learning_rate(spec, share) for share in (0.0, 0.05, 0.1, 0.55, 1.0)]

    np.testing.assert_allclose(rates, [0.001, 0.5, 1.0, 0.51, 0.02], atol=1e-3)
    assert layers.share_done(RunSpec(minutes=2), checkpoint.Progress(elapsed_s=60)) == 0.5


def test_the_sampled_loss_is_the_whole_one_where_all_is_sampled() -> None:
    draw = torch.Generator().manual_seed(0)
    states, targets = torch.randn(30, 8, generator=draw), torch.randint(0, 50, (30,), generator=draw)
    weights = torch.randn(50, 8, generator=draw)

    whole = full_loss(states, weights, targets) / 30
    ids, _ = candidates(targets, 50, 50, draw)

    assert sorted(ids.tolist()) == list(range(50))
    assert float(sampled_loss(states, weights, targets, 50, draw)) == pytest.approx(whole, rel=1e-2)  # bfloat16


def test_the_unigram_loss_of_even_text_is_the_logarithm_of_its_vocabulary() -> None:
    stream = np.repeat(np.arange(4, dtype=np.uint16), 100)

    assert layers.unigram_loss(stream, stream, 4) == pytest.approx(np.log(4))


# --- the folder that ships


def test_an_export_is_tied_and_in_float16(decoder: LlamaForCausalLM, tokenizer_folder: Path, tmp_path: Path) -> None:
    export(decoder, decoder_tokenizer(64, tokenizer_folder), tmp_path, PRESET)

    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)

    assert loaded.dtype == torch.float16
    assert decoder.dtype == torch.float32
    assert loaded.lm_head.weight.data_ptr() == loaded.model.embed_tokens.weight.data_ptr()
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    assert AutoTokenizer.from_pretrained(tmp_path)("w0")["input_ids"] == [2, 4]
    assert json.loads((tmp_path / "preset.json").read_text()) == PRESET
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_checkpoint_of_another_model_is_refused(
    decoder: LlamaForCausalLM, tokenizer_folder: Path, tmp_path: Path
) -> None:
    export(decoder, decoder_tokenizer(64, tokenizer_folder), tmp_path / "start", PRESET)
    stray = tmp_path / "checkpoint.safetensors"
    save_file({"weight/model.norm.weight": np.ones(WIDTH, "f4")}, stray)

    with pytest.raises(ModelError) as caught:
        export_command.callback(tmp_path / "start", stray, tmp_path / "out")

    assert caught.value.where == str(stray)
    assert caught.value.message.startswith("no weights for ['model.layers.0.input_layernorm.weight', ")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def shipped() -> Path:
    return Path(str(resources.files("ragidx.indexer"))) / "models" / "mini"


def test_the_shipped_model_is_under_24_megabytes(shipped: Path) -> None:
    assert sum(path.stat().st_size for path in shipped.rglob("*")) < 24_000_000


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
