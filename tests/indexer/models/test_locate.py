"""Models: what a name means, which adapters belong to it, and the fingerprint of all that its vectors depend on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragidx.corpora.errors import ModelError
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.models.fingerprint import weights_fingerprint
from ragidx.indexer.models.locate import locate

from ...raising import message_of
from ...tiny_weights import write_adapter, write_pooler

LLAMA3, LLAMA2 = "meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Llama-2-7b-chat-hf"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory without a hub, so that names are short."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


@pytest.fixture
def base(folder: Path, tiny_model: Callable[..., Path]) -> Path:
    """`base`, the folder of a tiny llama."""
    return shutil.copytree(tiny_model("llama"), folder / "base")


def told(model: str, **options: Any) -> str:
    return message_of(ModelError, lambda: locate(model, **options))


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


# --- an adapter alone


def test_an_adapters_folder_stands_for_the_base_beside_it_with_the_adapter(base: Path, folder: Path) -> None:
    write_adapter(folder / "mntp", "base")

    files = locate("mntp")

    assert (files.name, files.folder, files.adapters) == ("mntp", base, (folder / "mntp",))
    assert files.family == "llama"
    assert files.weight_files == [base / "model.safetensors"]


@pytest.mark.parametrize("told_base", ["owner/base", "/elsewhere/base", "../models/base", "base/", "~/base"])
def test_the_base_is_looked_for_beside_the_adapter_by_its_last_name(told_base: str, base: Path, folder: Path) -> None:
    write_adapter(folder / "mntp", told_base)

    assert locate("mntp").folder == base


@pytest.mark.slow
def test_an_adapters_folder_and_its_base_with_the_adapter_are_one_model(base: Path, folder: Path) -> None:
    write_adapter(folder / "mntp", "base")
    alone, together = locate("mntp"), locate("base", adapters=["mntp"])

    assert weights_fingerprint(alone) == weights_fingerprint(together) != weights_fingerprint(locate("base"))
    vectors = [
        load_encoder(model, method="llm2vec", template="llm2vec", adapters=adapters, device="cpu").encode_document(
            ["a mill"]
        )
        for model, adapters in (("mntp", ()), ("base", ("mntp",)), ("base", ()))
    ]
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert not np.allclose(vectors[0], vectors[2], atol=1e-2)


def test_a_base_that_is_not_there_is_named(folder: Path) -> None:
    write_adapter(folder / "mntp", "/models/gone")

    assert told("mntp") == (
        f"{folder / 'mntp'}: 'mntp' is an adapter, and its base model '/models/gone' is not beside it\n"
        "  hint: name the base with `model` and the adapter with `adapters`"
    )


def test_a_base_on_the_hub_that_cannot_be_reached_is_named(folder: Path) -> None:
    write_adapter(folder / "mntp", "owner/gone")

    assert told("mntp").startswith("`model`: 'owner/gone' is not on this machine, and the hub cannot be reached\n")


def test_an_adapter_alone_has_to_name_its_base(folder: Path) -> None:
    write_adapter(folder / "mntp", None)

    assert told("mntp") == (
        f"{folder / 'mntp'}: 'mntp' is an adapter, and its config names no base model\n"
        "  hint: name the base with `model` and the adapter with `adapters`"
    )


@pytest.mark.parametrize("name", ["..", ".", "/", "x/..", "../..", "./", "//", "~", "mntp", "../mntp", "\0", "x" * 400])
def test_a_name_in_a_file_leads_nowhere_but_beside_the_adapter(name: str, base: Path, folder: Path) -> None:
    inner = folder / "inner"
    write_adapter(inner / "mntp", name)
    for path in base.iterdir():  # were the name followed upwards, there would be a model
        shutil.copy(path, folder)
        shutil.copy(path, inner)

    assert told("inner/mntp") == (
        f"{inner / 'mntp'}: 'inner/mntp' is an adapter, and its base model '{name}' is not beside it\n"
        "  hint: name the base with `model` and the adapter with `adapters`"
    )


def test_a_folder_with_a_model_and_an_adapter_is_refused(base: Path, folder: Path) -> None:
    write_adapter(base, "owner/other")

    assert told("base") == (
        f"{base}: 'base' holds a model and an adapter, and it is not clear which is meant\n"
        "  hint: move adapter_config.json and adapter_model.safetensors to a folder of their own, and name it with "
        "`adapters`"
    )


# --- adapters of a model


@pytest.mark.parametrize(
    "model", ["base", "./base", "models/base"]
)  # a folder is no hub id, however many slashes its name has
def test_a_folder_takes_any_adapter_that_may_be_its_own(model: str, base: Path, folder: Path) -> None:
    shutil.copytree(base, folder / "models" / "base")
    for number, name in enumerate([LLAMA2, "/training/base", None]):
        write_adapter(folder / f"a{number}", name)

        assert locate(model, adapters=[f"a{number}"]).adapters == (folder / f"a{number}",)


def test_an_adapter_of_another_published_base_is_refused(base: Path, folder: Path) -> None:
    change(base / "config.json", _name_or_path=LLAMA3)
    write_adapter(folder / "mntp", LLAMA2)

    assert told("base", adapters=["mntp"]) == (
        f"`adapters`: the adapter 'mntp' belongs to '{LLAMA2}', the model is '{LLAMA3}'\n"
        f"  hint: use `model={LLAMA2}` with it"
    )
    write_adapter(folder / "mntp", LLAMA3)
    assert locate("base", adapters=["mntp"]).adapters


def test_a_local_copy_that_is_called_like_the_base_is_the_base(base: Path, folder: Path) -> None:
    copy = shutil.copytree(base, folder / "Llama-2-7b-chat-hf")
    change(copy / "config.json", _name_or_path="owner/what-it-was-tuned-from")
    write_adapter(folder / "mntp", LLAMA2)

    assert locate(str(copy), adapters=["mntp"]).folder == copy


def test_an_adapter_on_top_may_name_the_base_or_the_adapter_below(base: Path, folder: Path) -> None:
    change(base / "config.json", _name_or_path=LLAMA3)
    write_adapter(folder / "mntp", LLAMA3)
    change(folder / "mntp" / "adapter_config.json", base_model_name_or_path=LLAMA3)
    (folder / "mntp" / "config.json").write_text(json.dumps({"_name_or_path": "owner/mntp"}))

    for number, name in enumerate([LLAMA3, "owner/mntp"]):
        write_adapter(folder / f"task{number}", name)
        files = locate("base", adapters=["mntp", f"task{number}"])
        assert files.adapters == (folder / "mntp", folder / f"task{number}")
    write_adapter(folder / "other", "owner/other")
    assert "the adapter 'other' belongs to 'owner/other'" in told("base", adapters=["mntp", "other"])


def test_a_folder_that_is_no_adapter_is_refused(base: Path, folder: Path) -> None:
    (folder / "empty").mkdir()

    assert told("base", adapters=["empty"]) == (
        "`adapters`: 'empty' has no adapter_config.json, so it is not an adapter\n"
        "  hint: name the folder that `save_pretrained` of a PEFT model wrote"
    )


@pytest.mark.parametrize("name", ["gone", "a/b/c", "x" * 400, "~nobody-of-this-name/a"])
def test_an_adapter_that_is_not_there_is_refused(name: str, base: Path) -> None:
    assert told("base", adapters=[name]) == (
        f"`adapters`: no adapter '{name}': neither a folder, nor an id of the form owner/name\n"
        "  hint: name the folder that holds its adapter_config.json"
    )


def test_an_adapter_on_the_hub_that_cannot_be_reached_is_the_adapters_fault(base: Path) -> None:
    assert told("base", adapters=["owner/gone"]).startswith(
        "`adapters`: 'owner/gone' is not on this machine, and the hub cannot be reached\n"
    )


def test_a_sentence_transformers_model_takes_no_adapter(tiny_sentence_transformer: Path, folder: Path) -> None:
    write_adapter(folder / "mntp", None)

    assert told(str(tiny_sentence_transformer), adapters=["mntp"]) == (
        f"`adapters`: '{tiny_sentence_transformer}' is a sentence-transformers model, which takes no adapter\n"
        "  hint: merge the adapter into its weights, or name the plain decoder as `model`"
    )


@pytest.mark.parametrize("name", ["a/..", "../a", "my model/x", "a/b/c", "x" * 400, "~nobody-of-this-name/a", "a\0b"])
def test_a_name_that_can_be_no_model_is_refused(name: str, folder: Path) -> None:
    assert told(name) == (
        f"`model`: no model '{name}': neither bundled, nor a GGUF file, a folder or an id of the form owner/name\n"
        "  hint: `ragidx models` lists what is bundled and shows what else can be named"
    )


def test_an_id_that_the_hub_cannot_have_is_not_there(folder: Path) -> None:
    assert told("a--b/c") == (
        "`model`: no model 'a--b/c' on the hub\n  hint: check the spelling; private models need a token"
    )


# --- the pooler


def test_a_pooler_that_is_not_there_is_refused(base: Path) -> None:
    assert told("base", pooler="p.safetensors") == (
        "`pooler=p.safetensors`: there is no such file\n  hint: name the safetensors file of the pooling"
    )


def test_a_pooler_is_found_from_where_the_user_is(base: Path, folder: Path) -> None:
    write_pooler(folder / "p.safetensors")

    assert locate("base", pooler="p.safetensors").pooler == folder / "p.safetensors"


# --- what it is called


def test_a_model_is_called_what_user_config_and_adapters_call_it(base: Path, folder: Path) -> None:
    change(base / "config.json", _name_or_path="owner/tuned")
    write_adapter(folder / "mntp", "base")
    (folder / "mntp" / "config.json").write_text(json.dumps({"_name_or_path": LLAMA3}))
    write_adapter(folder / "task", LLAMA3)

    assert locate("base").names == ("base", "owner/tuned")
    assert locate("mntp").names == ("mntp", "owner/tuned", "base", LLAMA3)
    assert locate("mntp", adapters=["task"]).names == ("mntp", "owner/tuned", "base", LLAMA3, "task")


@pytest.mark.parametrize(("model", "adapters"), [("mntp", ()), ("base", ("named",)), ("base", ("plain", "named"))])
def test_the_base_that_an_adapter_names_chooses_the_chat_form(
    model: str, adapters: Sequence[str], base: Path, folder: Path
) -> None:
    for name, of in (("mntp", "base"), ("named", LLAMA3), ("plain", None)):
        write_adapter(folder / name, of)
    (folder / "mntp" / "config.json").write_text(json.dumps({"_name_or_path": LLAMA3}))

    encoder = load_encoder(model, adapters=tuple(adapters), method="llm2vec", device="cpu")

    assert encoder.spec.template == "llm2vec-llama3"


# --- the tokenizer


def test_the_tokenizer_is_the_last_adapters_that_brings_one(base: Path, folder: Path) -> None:
    write_adapter(folder / "plain", None)
    for name in ("one", "two"):
        write_adapter(folder / name, None)
        shutil.copy(base / "tokenizer.json", folder / name)

    assert locate("base", adapters=["plain"]).tokenizer_folder == base
    assert locate("base", adapters=["one", "two", "plain"]).tokenizer_folder == folder / "two"


# --- the fingerprint


def test_the_fingerprint_follows_adapters_their_order_and_the_pooler(base: Path, folder: Path) -> None:
    for seed, name in enumerate(["a", "b"]):
        write_adapter(folder / name, None, seed=seed)
    write_pooler(folder / "p.safetensors", seed=0)
    write_pooler(folder / "q.safetensors", seed=1)
    shutil.copytree(folder / "a", folder / "copy-of-a")
    shutil.copy(folder / "p.safetensors", folder / "copy-of-p.safetensors")

    prints = [
        weights_fingerprint(locate("base", adapters=adapters, pooler=pooler))
        for adapters, pooler in (
            ([], None),
            (["a"], None),
            (["b"], None),
            (["a", "b"], None),
            (["b", "a"], None),
            ([], "p.safetensors"),
            ([], "q.safetensors"),
            (["a"], "p.safetensors"),
        )
    ]

    assert len(set(prints)) == len(prints)
    assert weights_fingerprint(locate("base", adapters=["copy-of-a"], pooler="copy-of-p.safetensors")) == prints[-1]


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "README.md"])
def test_the_fingerprint_follows_every_file_of_an_adapter_that_decides(name: str, base: Path, folder: Path) -> None:
    write_adapter(folder / "a", None)
    before = weights_fingerprint(locate("base", adapters=["a"]))

    if name == "adapter_model.safetensors":
        write_adapter(folder / "a", None, seed=1)
    elif name == "adapter_config.json":
        change(folder / "a" / name, lora_alpha=16)
    else:
        shutil.copy(base / "tokenizer.json", folder / "a" / name)

    assert (weights_fingerprint(locate("base", adapters=["a"])) == before) == (name == "README.md")


def test_an_adapter_is_named_once(base: Path, folder: Path) -> None:
    write_adapter(folder / "a", None, seed=0)

    said = message_of(ModelError, lambda: locate("base", adapters=["a", "./a"]))

    assert said == "`adapters`: the adapter './a' is named twice\n  hint: name it once"
    with pytest.raises(TypeError, match="expected a list of adapters, got one string"):
        locate("base", adapters="a")


@pytest.mark.parametrize("name", ["model.safetensors", "sub/model.safetensors"])
def test_a_file_of_weights_is_no_model_and_its_folder_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / name).write_bytes(b"")

    said = message_of(ModelError, lambda: locate(name))

    assert said == (f"`model`: '{name}' is a file of weights alone\n  hint: name the folder that it is in")
