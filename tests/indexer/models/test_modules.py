"""The modules of a sentence-transformers model: data only, and all that decides a vector is in the fingerprint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ragidx.corpora.errors import ModelError
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.models.fingerprint import weights_fingerprint
from ragidx.indexer.models.locate import locate

from ...raising import message_of

DENSE = {
    "idx": 3,
    "name": "3",
    "path": "3_Dense",
    "type": "sentence_transformers.sentence_transformer.modules.Dense",
}


@pytest.fixture
def plain(tiny_sentence_transformer: Path, tmp_path: Path) -> Path:
    """A transformer, a pooling and a normalisation."""
    return shutil.copytree(tiny_sentence_transformer, tmp_path / "plain")


def with_dense(plain: Path, *, safe: bool) -> Path:
    """The same model with a linear layer behind it."""
    import torch
    from sentence_transformers.sentence_transformer.modules import Dense

    with torch.random.fork_rng():
        torch.manual_seed(3)
        dense = Dense(32, 8)
    place = plain / "3_Dense"
    place.mkdir()
    dense.save(str(place), safe_serialization=safe)
    modules = json.loads((plain / "modules.json").read_text())
    (plain / "modules.json").write_text(json.dumps([*modules, DENSE]))
    return plain


def refused(folder: Path) -> str:
    return message_of(ModelError, lambda: locate(str(folder)))


def test_pickled_weights_of_a_module_are_refused(plain: Path) -> None:
    folder = with_dense(plain, safe=False)

    assert refused(folder) == (
        f"{folder}: '{folder}' has pickled weights in 3_Dense/pytorch_model.bin, which can run code when "
        "they are read\n"
        "  hint: save it with safetensors, once, where you trust it: "
        "SentenceTransformer(...).save_pretrained(folder, safe_serialization=True)"
    )


def test_another_safetensors_file_beside_pickled_weights_changes_nothing(plain: Path) -> None:
    folder = with_dense(plain, safe=False)
    shutil.copy(folder / "model.safetensors", folder / "3_Dense" / "other.safetensors")

    assert "pickled weights in 3_Dense/pytorch_model.bin" in refused(folder)


def test_pickled_weights_inside_a_router_are_refused(plain: Path) -> None:
    folder = with_dense(plain, safe=True)
    (folder / "3_Dense" / "query_0_Dense").mkdir()
    (folder / "3_Dense" / "query_0_Dense" / "pytorch_model.bin").write_bytes(b"pickle")

    assert "pickled weights in 3_Dense/query_0_Dense/pytorch_model.bin" in refused(folder)


def test_pickled_weights_that_nothing_reads_are_no_obstacle(plain: Path) -> None:
    folder = with_dense(plain, safe=True)
    before = weights_fingerprint(locate(str(folder)))
    for place in (folder, folder / "3_Dense", folder / "checkpoint-1"):
        place.mkdir(exist_ok=True)
        (place / "pytorch_model.bin").write_bytes(b"pickle")

    assert weights_fingerprint(locate(str(folder))) == before


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ('{"path": ""}', "it is not a list of modules"),
        ("[1]", "it is not a list of modules"),
        ("not JSON", "not readable as JSON: Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_a_list_of_modules_that_is_none_is_refused(plain: Path, written: str, reason: str) -> None:
    (plain / "modules.json").write_text(written)

    assert refused(plain) == f"{plain / 'modules.json'}: {reason}\n  hint: download or copy the model again"


@pytest.mark.parametrize("path", ["../other", "/other"])
def test_a_module_outside_the_folder_is_refused(plain: Path, path: str) -> None:
    modules = json.loads((plain / "modules.json").read_text())
    (plain / "modules.json").write_text(json.dumps([*modules, DENSE | {"path": path}]))

    assert refused(plain) == (
        f"{plain / 'modules.json'}: the module '{path}' is not inside the model's folder\n  hint: copy it there"
    )


@pytest.mark.parametrize(
    "name",
    [
        "modules.json",
        "config_sentence_transformers.json",
        "sentence_bert_config.json",
        "config.json",
        "tokenizer.json",
        "vocab.txt",
        "model.safetensors",
        "1_Pooling/config.json",
        "3_Dense/config.json",
        "3_Dense/model.safetensors",
    ],
)
def test_each_file_that_decides_a_vector_is_in_the_fingerprint(plain: Path, name: str) -> None:
    folder = with_dense(plain, safe=True)
    (folder / "vocab.txt").write_text("[PAD]\nmill\n")
    files = locate(str(folder))
    before = weights_fingerprint(files)

    (folder / name).write_bytes((folder / name).read_bytes() + b" ")

    assert weights_fingerprint(files) != before


@pytest.mark.slow
def test_a_model_whose_library_puts_texts_into_a_chat_template_is_refused(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    decoder = shutil.copytree(tiny_model("llama"), tmp_path / "decoder")
    (decoder / "chat_template.jinja").write_text("Read: {{ messages[-1]['content'] }}")
    transformer = Transformer(str(decoder))
    SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension())]).save(str(tmp_path / "m"))
    file = tmp_path / "m" / "sentence_bert_config.json"

    assert message_of(ModelError, lambda: load_encoder(str(tmp_path / "m"))) == (
        f"{file}: sentence-transformers puts each text of '{tmp_path / 'm'}' into the chat template, which ragidx does "
        "not\n  hint: remove 'message' from 'modality_config' in that file if the model was trained on the text alone; "
        "else name the decoder itself, and its `method`"
    )

    settings = json.loads(file.read_text())
    del settings["modality_config"]["message"]
    file.write_text(json.dumps(settings))
    texts = ["the mill by the river", "a boat"]
    theirs = SentenceTransformer(str(tmp_path / "m"), device="cpu").encode(texts)
    np.testing.assert_allclose(
        load_encoder(str(tmp_path / "m"), device="cpu").encode_document(texts), theirs, atol=1e-5
    )
