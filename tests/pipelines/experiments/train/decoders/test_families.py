"""Decoders of other families, as they are trained and written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import CLIPVisionConfig, CLIPVisionModel

import ragidx
from ragidx.corpora.errors import RagidxError, SpecError
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.models.locate import locate
from ragidx.pipelines.experiments.train.decoders.inputs import resolved_of, steps_of
from ragidx.pipelines.experiments.train.decoders.model_with_head import check_whole
from ragidx.pipelines.experiments.train.decoders.network import Network
from ragidx.pipelines.experiments.train.keywords import StepKeywords

from .....gguf_kit import twin
from .....raising import message_of
from .conftest import moved

pytestmark = pytest.mark.slow

TEXTS = ["The lease was signed by Ada.", "bees", "Bread is baked in the mill by the river, as it was in 1840."]


def _written(model: Path, tmp_path: Path, **options: Any) -> tuple[Network, np.ndarray, np.ndarray]:
    """A network that has learnt something, its vectors, and those of the model that it writes."""
    resolved = resolved_of("train.contrastive", model, {"dtype": "float32", **options})
    network = moved(Network(resolved, steps_of("", StepKeywords, {"rank": 4})))
    network.save(tmp_path / "made")
    made = load_encoder(str(tmp_path / "made"), device="cpu", dtype="float32")
    return network, network.vectors(TEXTS, None, 64), made.encode_document(TEXTS)


@pytest.mark.parametrize("family", ["mixtral", "phi3", "opt", "gemma3"])
def test_a_written_model_of_any_family_makes_the_vectors_that_were_trained(
    family: str, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    network, trained, made = _written(tiny_model(family), tmp_path, method="prompteol")

    assert np.allclose(made, trained, atol=1e-4)
    names = [name for name, weight in network.named_parameters() if weight.requires_grad]
    assert names
    assert not any("expert" in name or "vision" in name for name in names)


def test_a_gguf_file_with_rope_factors_is_written_with_them(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    factors = np.array([1, 2, 4, 16], np.float32)
    file = twin(tiny_model("llama"), tmp_path / "twin.gguf", tensors={"rope_freqs.weight": factors})

    _, trained, made = _written(file, tmp_path, method="prompteol")

    assert np.allclose(made, trained, atol=1e-4)
    plain = load_encoder(str(tiny_model("llama")), method="prompteol", device="cpu", dtype="float32")
    of_file = load_encoder(str(file), method="prompteol", device="cpu", dtype="float32")
    assert not np.allclose(plain.encode_document(TEXTS), of_file.encode_document(TEXTS), atol=1e-3)  # they count


@pytest.mark.parametrize(
    ("family", "dropped"),
    [
        ("llama", {"LlamaAttention"}),
        ("phi3", {"Phi3Attention"}),
        ("opt", {"OPTAttention"}),
        ("gpt2", {"attn_dropout"}),
    ],
)
def test_attention_alone_drops(family: str, dropped: set[str], tiny_model: Callable[..., Path]) -> None:
    resolved = resolved_of("train.simcse", tiny_model(family), {"method": "classical"})

    network = Network(resolved, steps_of("", StepKeywords, {"rank": 4, "attention_dropout": 0.37}))

    found = set()
    for name, module in network.model.named_modules():
        if 0.37 in (getattr(module, "attention_dropout", None), getattr(module, "dropout", None)):
            found.add(type(module).__name__)
        if getattr(module, "p", None) == 0.37:
            found.add(name.rpartition(".")[2])
    assert found == dropped


def test_a_model_that_cannot_be_written_is_refused_before_it_is_trained(tiny_model: Callable[..., Path]) -> None:
    config = CLIPVisionConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=4, patch_size=2
    )
    files = locate(str(tiny_model()))

    assert message_of(SpecError, lambda: check_whole(files, CLIPVisionModel(config))) == (
        f"`model`: '{files.name}' reads more than text, or has another structure with its head: it cannot be written "
        "whole\n  hint: take a model of text alone"
    )


def test_an_adapter_is_trained_further_at_its_layer_alone(
    pairs: Path, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    ragidx.train.contrastive(
        tiny_model(), pairs=pairs, out=tmp_path / "one", method="prompteol", minutes=1e-6, rank=4, force=True
    )

    def train() -> None:
        ragidx.train.contrastive(tmp_path / "one", pairs=pairs, out=tmp_path / "two", layer=1)

    said = f"`layer`: the adapter of '{tmp_path / 'one'}' is trained further, and it is of another layer"
    assert message_of(SpecError, train) == f"{said}\n  hint: remove `layer`"


def test_an_export_that_reads_a_text_alone_otherwise_is_not_kept(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    """StableLM's layers do not pass on that attention runs both ways, which shows where nothing is padded."""
    options = {"method": "llm2vec", "template": "see this:{text}"}

    with pytest.raises(RagidxError, match="other vectors of documents alone"):
        ragidx.train.export(tiny_model("stablelm"), tmp_path / "out", **options)

    assert not (tmp_path / "out").exists()


def test_a_model_that_sees_pictures_is_not_exported(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a model that sees pictures, too"):
        ragidx.train.export(tiny_model("gemma3"), tmp_path / "out", method="prompteol")
