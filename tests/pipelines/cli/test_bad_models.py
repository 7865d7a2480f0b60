"""Models that are missing, damaged or changed: an error that names the model and what to do."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.prompts.templates import Template

from ..conftest import Done
from .bad_input_kit import damage

Run = Callable[..., Done]

DEEP = "maximum recursion depth exceeded while decoding a JSON array from a unicode string"


class _Trap:
    """What a hostile pickle does: it runs a call when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("trapped",)


@pytest.mark.usefixtures("small_corpus")
def test_pickled_weights_are_refused_and_not_read(run: Run, model: Path) -> None:
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(_Trap()))

    done = run("build", "corpus", "--model", "tiny")

    assert done == (
        2,
        "",
        f"Error: {model}: 'tiny' has its weights in pickle files only (pytorch_model.bin), which can run code when "
        "they are read\n  hint: convert them to safetensors, once, where you trust them: "
        "AutoModelForCausalLM.from_pretrained(...).save_pretrained(folder)\n",
    )
    assert not Path("trapped").exists()


@pytest.mark.usefixtures("small_corpus")
def test_a_model_without_a_tokenizer_is_an_error(run: Run, model: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink()

    done = run("build", "corpus", "--model", "tiny", "--filter", "none", "--method", "echo")

    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(
        rf"Error: {re.escape(str(model))}[^\n]*: the tokenizer of 'tiny' cannot be loaded: .+\n"
        r"  hint: copy its tokenizer\.json and tokenizer_config\.json into the model's folder\n",
        done.err,
    )


@pytest.mark.usefixtures("small_corpus")
@pytest.mark.parametrize(
    ("preset", "message"),
    [
        ("null", "not a JSON object"),
        ('{"method": ["echo"]}', "'method' is ['echo'], not of the type str"),
        ('{"filter": null}', "'filter' is None, not of the type dict"),
        (
            "[" * 100_000,
            f"not readable as JSON: {DEEP}",
        ),
    ],
)
def test_a_preset_that_is_damaged_is_an_error(run: Run, model: Path, preset: str, message: str) -> None:
    (model / "preset.json").write_text(preset)

    done = run("build", "corpus", "--model", "tiny")

    assert done == (2, "", f"Error: {model}/preset.json: {message}\n  hint: download or copy the model again\n")


@pytest.mark.parametrize(
    "config", [{"hidden_size": "x"}, {"text_config": [1], "hidden_size": []}, {"hidden_size": None}]
)
def test_a_config_without_a_width_names_none(tmp_path: Path, config: dict[str, object]) -> None:
    assert ModelFiles("m", tmp_path, config, sentence_transformers=False).hidden is None


@pytest.mark.usefixtures("small_corpus")
def test_a_model_that_has_changed_since_the_build_is_refused(run: Run, model: Path) -> None:
    run("build", "corpus", "--model", "tiny", "--method", "echo")
    damage(model / "model.safetensors")

    assert run("query", "x") == (
        2,
        "",
        "Error: ragidx-index: 'tiny' is not the model this index was made with: its files have changed\n"
        "  hint: name the right folder with --model, or build the index again with --rebuild\n",
    )


@pytest.mark.usefixtures("small_corpus")
def test_an_index_whose_template_has_changed_is_built_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("build", "corpus")
    monkeypatch.setattr(Template, "content", lambda template: f"another {template.name}")

    assert run("query", "x") == (
        2,
        "",
        "Error: ragidx-index: the template 'classical' of this version is not the one this index was made with\n"
        "  hint: build the index again with --rebuild\n",
    )


@pytest.mark.slow
def test_a_model_of_the_hub_is_not_asked_for_offline(run_process: Run, small_corpus: Path, folder: Path) -> None:
    done = run_process("build", "corpus", "--model", "none/such", "--offline", env={"HF_HOME": str(folder / "hub")})

    assert done == (
        2,
        "",
        "Error: --model: 'none/such' is not on this machine, and the hub cannot be reached\n"
        "  hint: name its folder with --model, or run once with a network; "
        "the bundled model needs none: --model mini\n",
    )


@pytest.mark.usefixtures("small_corpus")
def test_a_name_in_backticks_is_shown_as_it_was_typed(run: Run) -> None:
    done = run("build", "corpus", "--model", "./`dim`")

    assert done.status == 2
    assert "`dim`" in done.err
    assert "--dim" not in done.err
