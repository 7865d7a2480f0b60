"""Encoders on tiny real models: exact in any batch, in the direction asked for, clear when they cannot be loaded."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.devices import choose_device
from ragidx.indexer.encoders.batching import Budget, run
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.models.fingerprint import weights_fingerprint
from ragidx.indexer.models.locate import locate
from ragidx.indexer.prompts.rendering import Rendered

from ...raising import message_of

TEXTS = [
    "The river rises in the hills and flows past the old mill before it reaches the sea.",
    "a",
    "Ünïcödé naïve café, 東京タワー",
    "Who signed the lease?",
]
METHODS = ["classical", "echo", "prompteol", "llm2vec"]
FAMILIES = ["llama", "mistral", "qwen2", "gpt2", "opt", "gpt_neox", "gemma", "phi3"]


@pytest.mark.slow
def test_a_layer_is_what_transformers_calls_that_hidden_state(tiny_model: Callable[..., Path]) -> None:
    from transformers import AutoModel

    folder = tiny_model("llama")
    model = AutoModel.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([[0, 9, 8, 7]])
    states = model(ids, output_hidden_states=True).hidden_states

    for layer in (0, 1, 2, -1, -2):
        encoder = load_encoder(str(folder), method="classical", layer=layer, device="cpu", attn="sdpa")
        ours = encoder.backbone.states(ids, None)  # type: ignore[attr-defined]

        assert torch.allclose(ours, states[layer], atol=1e-5), layer


def test_layers_behind_the_one_asked_for_are_dropped(tiny_model: Callable[..., Path]) -> None:
    encoder = load_encoder(str(tiny_model("llama")), method="classical", layer=0, device="cpu", attn="sdpa")

    assert len(encoder.backbone.model.layers) == 1  # type: ignore[attr-defined]


@pytest.mark.slow
def test_an_encoder_asked_to_be_causal_is_an_error_at_load(tiny_sentence_transformer: Path) -> None:
    with pytest.raises(ModelError) as fault:
        load_encoder(str(tiny_sentence_transformer), method="echo", device="cpu")

    assert "was asked for causal attention and attends both ways in a batch without padding" in str(fault.value)
    assert fault.value.hint.startswith("it is not a decoder: use it as a sentence-transformers model")


def test_the_specs_own_instruction_is_the_default(tiny_model: Callable[..., Path]) -> None:
    folder = str(tiny_model("llama"))
    with_own = load_encoder(folder, method="classical", instruction="Find mills", device="cpu")
    without = load_encoder(folder, method="classical", device="cpu")

    assert np.allclose(with_own.encode_query(["x"]), without.encode_query(["x"], instruction="Find mills"))
    assert not np.allclose(with_own.encode_query(["x"]), without.encode_query(["x"]), atol=1e-3)


def test_what_is_longer_than_the_model_reads_is_cut_and_told(
    tiny_model: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    encoder = load_encoder(str(tiny_model("llama")), method="echo", device="cpu")
    limit = encoder.text_limit()
    assert limit is not None

    with caplog.at_level(logging.WARNING, "ragidx"):
        vectors = encoder.encode_document(["word " * 500, "short"])

    assert np.isfinite(vectors).all()
    assert caplog.messages == ["1 of 2 texts are longer than the model reads and were cut"]
    assert len(encoder.tokenizer.ids(["word " * 500])[0]) > limit


def test_a_sentence_transformers_model_gives_its_own_vectors(tiny_sentence_transformer: Path) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(tiny_sentence_transformer), device="cpu")
    ours = load_encoder(str(tiny_sentence_transformer), device="cpu", dtype="float32")
    texts = [*TEXTS, "word " * 100]

    np.testing.assert_allclose(
        ours.encode_document(texts), theirs.encode_document(texts, show_progress_bar=False), atol=1e-5
    )
    np.testing.assert_allclose(ours.encode_query(texts), theirs.encode_query(texts, show_progress_bar=False), atol=1e-5)
    assert ours.spec.method == "sentence-transformers"


def test_out_of_memory_halves_the_budget_and_goes_on() -> None:
    rows = [Rendered([1] * n, ((0, n),)) for n in (8, 4, 4, 2, 2, 2, 2)]
    budget, sizes = Budget(16), []

    def forward(ids: torch.Tensor, mask: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
        if ids.numel() > 8:
            raise torch.OutOfMemoryError("CUDA out of memory")
        sizes.append(tuple(ids.shape))
        return ids.sum(dim=1, keepdim=True).to(torch.float32)

    batches = list(run(rows, forward, budget=budget, pad=0, device=torch.device("cpu")))

    assert budget.tokens == 8
    assert sizes == [(1, 8), (2, 4), (4, 2)]
    assert {row: float(v[0]) for b in batches for row, v in zip(b.rows, b.vectors, strict=True)} == {
        0: 8.0, 1: 4.0, 2: 4.0, 3: 2.0, 4: 2.0, 5: 2.0, 6: 2.0,
    }  # fmt: skip


def test_one_text_that_does_not_fit_is_an_error_that_says_what_to_do() -> None:
    def forward(ids: torch.Tensor, mask: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    with pytest.raises(ModelError) as fault:
        list(run([Rendered([1] * 9, ())], forward, budget=Budget(64), pad=0, device=torch.device("cpu")))

    assert str(fault.value) == (
        "one text of 9 tokens does not fit into the memory of 'cpu'\n"
        "  hint: use smaller chunks (`chunk_size`), a smaller `dtype`, or another `device`"
    )


def test_another_failure_of_the_network_is_not_taken_for_a_lack_of_memory() -> None:
    def forward(ids: torch.Tensor, mask: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("shape mismatch")

    with pytest.raises(RuntimeError, match="shape mismatch"):
        list(run([Rendered([1], ())], forward, budget=Budget(64), pad=0, device=torch.device("cpu")))


def test_the_fingerprint_follows_the_weights(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(tiny_model("llama"), folder)
    original = weights_fingerprint(locate(str(tiny_model("llama"))))

    assert weights_fingerprint(locate(str(folder))) == original
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert weights_fingerprint(locate(str(folder))) != original


def test_unknown_names_name_the_near_miss() -> None:
    assert message_of(ModelError, lambda: load_encoder("minni")) == (
        "`model`: no model 'minni': neither bundled, nor a GGUF file, a folder or an id of the form owner/name; "
        "did you mean 'mini'?\n  hint: `ragidx models` lists what is bundled and shows what else can be named"
    )
    assert message_of(SpecError, lambda: choose_device("gpu0")).startswith("unknown device 'gpu0'")
    assert message_of(SpecError, lambda: load_encoder("mini", dtype="float31")).startswith(
        "unknown dtype 'float31'; did you mean 'float32'?"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_an_error() -> None:
    assert message_of(SpecError, lambda: choose_device("cuda")) == (
        "`device`: there is no cuda device on this machine\n  hint: use `device=auto` or `device=cpu`"
    )


def test_a_hub_id_without_a_network_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    assert message_of(ModelError, lambda: load_encoder("nobody/no-such-model")) == (
        "`model`: 'nobody/no-such-model' is not on this machine, and the hub cannot be reached\n"
        "  hint: name its folder with `model`, or run once with a network; the bundled model needs none: `model=mini`"
    )


def test_a_folder_without_weights_is_an_error(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    shutil.copytree(tiny_model("llama"), folder)
    (folder / "model.safetensors").unlink()

    assert message_of(ModelError, lambda: load_encoder(str(folder))) == (
        f"{folder}: the folder of '{folder}' has no weights (*.safetensors)\n  hint: download or copy them again"
    )


def test_a_folder_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    assert message_of(ModelError, lambda: load_encoder(str(tmp_path))) == (
        f"{tmp_path}: the folder of '{tmp_path}' has no config.json, so it holds no model\n"
        "  hint: name the folder that `save_pretrained` wrote"
    )


def test_a_broken_config_is_an_error(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(tiny_model("llama"), folder)
    (folder / "config.json").write_text("{")

    assert message_of(ModelError, lambda: load_encoder(str(folder))).startswith(
        f"{folder / 'config.json'}: not readable as JSON"
    )


def test_a_model_with_code_of_its_own_is_refused_and_the_code_is_not_run(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    shutil.copytree(tiny_model("llama"), folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")

    assert f"'{folder}' cannot be loaded: " in message_of(ModelError, lambda: load_encoder(str(folder)))
    assert not (tmp_path / "ran").exists()
