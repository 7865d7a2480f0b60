"""Methods: what is left out is the preset's or the method's own."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from ragidx.indexer.encoders.methods import (
    ENCODER_OPTIONS,
    METHODS,
    SENTENCE_TRANSFORMERS,
    continued_options,
    default_filter,
    filter_spec,
    preset_weight,
    resolve,
)
from ragidx.indexer.models.locate import ModelFiles, locate
from ragidx.indexer.models.presets import published_presets
from ragidx.indexer.options import EncoderOptions, options_of
from ragidx.indexer.prompts.instructions import task_instructions
from ragidx.indexer.prompts.templates import load_template
from ragidx.indexer.specs import EncoderSpec, FilterSpec

from ...tiny_weights import write_pooler

Resolve = Callable[..., EncoderSpec]


@pytest.fixture
def with_preset(tiny_model: Callable[..., Path], tmp_path: Path) -> Callable[..., ModelFiles]:
    """`with_preset(method="echo", layer=1)`: a model whose folder says that this is best for it."""

    def make(**preset: Any) -> ModelFiles:
        folder = shutil.copytree(tiny_model("llama"), tmp_path / "preset")
        (folder / "preset.json").write_text(json.dumps(preset))
        return locate(str(folder))

    return make


# --- what is left out


@pytest.mark.parametrize(
    ("method", "template", "attention", "pooling", "copies"),
    [
        ("classical", "classical", "causal", "mean", None),
        ("echo", "echo", "causal", "mean", None),
        ("prompteol", "prompteol", "causal", "last", None),
        ("metaeol", "metaeol", "causal", "last", None),
        ("aligned-values", "prompteol", "causal", "last", None),
        ("llm2vec", "llm2vec", "bidirectional", "mean", None),
        ("reba", "reba", "causal", "mean", 2),
    ],
)
def test_a_method_does_what_its_paper_does(
    method: str, template: str, attention: str, pooling: str, copies: int | None, llama: ModelFiles
) -> None:
    spec = resolve(llama, method=method)

    assert spec == EncoderSpec(
        model=llama.name, method=method, template=template, attention=attention, pooling=pooling, copies=copies
    )
    assert (spec.layer, spec.layer_norm, spec.pool_eos, spec.truncate) == (-1, False, True, "end")
    assert (spec.instruction, spec.max_length, spec.compute_matched, spec.adapters) == (None, None, False, ())


def test_every_method_has_a_template() -> None:
    assert all(load_template(method.template).document for method in METHODS.values() if method.template)


def test_a_decoder_without_a_preset_echoes(llama: ModelFiles) -> None:
    assert resolve(llama) == resolve(llama, method="echo") == resolve(llama, method=None, pooling=None, copies=None)


def test_what_is_asked_for_comes_first(llama: ModelFiles) -> None:
    asked: dict[str, Any] = {
        "method": "classical",
        "template": "P: {instruction} {text}",
        "pooling": "weighted_mean",
        "attention": "bidirectional",
        "layer": 1,
        "layer_norm": True,
        "pool_eos": False,
        "instruction": "Find it",
        "max_length": 9,
        "truncate": "middle",
        "revision": "main",
        "adapters": ("a", "b"),
    }

    spec = resolve(llama, **asked)

    assert {name: getattr(spec, name) for name in asked} == asked


def test_the_options_are_the_fields_of_a_spec_but_the_model() -> None:
    assert options_of(EncoderOptions)["method"][1].about == f"{', '.join(METHODS)}."
    assert set(ENCODER_OPTIONS) == {field.name for field in dataclasses.fields(EncoderSpec)} - {"model"}
    assert all(type(None) in get_args(hint) for hint in get_type_hints(EncoderOptions).values())


# --- presets


def test_a_preset_chooses_the_method_and_its_parts(with_preset: Callable[..., ModelFiles]) -> None:
    files = with_preset(method="classical", pooling="last", layer=1, attention="bidirectional", template="echo-trained")

    for spec in (resolve(files), resolve(files, method="classical")):
        assert (spec.method, spec.pooling, spec.layer) == ("classical", "last", 1)
        assert (spec.attention, spec.template) == ("bidirectional", "echo-trained")
    assert resolve(files, pooling="mean", layer=-1) == resolve(
        files, method="classical", pooling="mean", layer=-1, attention="bidirectional", template="echo-trained"
    )


def test_a_preset_of_another_method_plays_no_part(with_preset: Callable[..., ModelFiles]) -> None:
    files = with_preset(method="classical", pooling="last", layer=1, attention="bidirectional", template="prompteol")

    assert resolve(files, method="echo") == EncoderSpec(
        model=files.name, method="echo", template="echo", pooling="mean", attention="causal"
    )


def test_copies_of_echo_replace_a_presets_template_and_nothing_else(with_preset: Callable[..., ModelFiles]) -> None:
    files = with_preset(method="echo", layer=1, pooling="last", template="echo-trained")

    spec = resolve(files, copies=3)

    assert (spec.template, spec.copies, spec.layer, spec.pooling) == ("echo-copies", 3, 1, "last")
    assert resolve(files).template == "echo-trained"


def test_the_bundled_models_preset_still_holds() -> None:
    files = locate("mini-decoder")
    spec = resolve(files)

    assert (spec.method, spec.template, spec.pooling, spec.layer) == ("classical", "classical", "mean", 0)
    assert default_filter(files, spec) == FilterSpec(offset=1, dim=255)
    assert resolve(files, method="reba").layer == -1


def test_a_preset_gives_its_filter_to_its_method_and_its_offset_to_all(with_preset: Callable[..., ModelFiles]) -> None:
    files = with_preset(method="echo", filter={"tau": 4.0, "offset": 3})

    assert default_filter(files, resolve(files)) == FilterSpec(tau=4, offset=3)
    assert default_filter(files, resolve(files, copies=3)) == FilterSpec(tau=4, offset=3)
    assert default_filter(files, resolve(files, method="reba")) == FilterSpec(tau=2, offset=3)
    assert filter_spec(files, resolve(files), FilterSpec(dim=31)) == FilterSpec(
        dim=31, offset=1
    )  # as far as there is room


def test_a_preset_has_a_weight_for_its_method_alone(with_preset: Callable[..., ModelFiles]) -> None:
    files = with_preset(method="echo", weight=0.7)

    assert preset_weight(files, resolve(files)) == 0.7
    assert preset_weight(files, resolve(files, method="reba")) is None
    assert published_presets()["sentence-transformers/all-MiniLM-L6-v2"]["weight"] == 0.6


def test_pca_of_an_encoder_has_a_power_unless_one_is_named_or_stored() -> None:
    files = locate("mini")
    spec, decoder = resolve(files), locate("mini-decoder")

    assert filter_spec(files, spec, FilterSpec("pca")) == FilterSpec("pca", tau=2, power=0.3)
    assert filter_spec(files, spec, FilterSpec("pca", power=0)).power == 0
    assert filter_spec(files, spec, FilterSpec(dim=8), FilterSpec("pca", tau=2)) == FilterSpec("pca", dim=8)
    assert filter_spec(decoder, resolve(decoder), FilterSpec("pca")).power == 0


# --- copies


@pytest.mark.parametrize("method", ["echo", "reba"])
@pytest.mark.parametrize("copies", [1, 2, 5])
def test_copies_are_those_asked_for(method: str, copies: int, llama: ModelFiles) -> None:
    spec = resolve(llama, method=method, copies=copies)

    assert spec.copies == copies
    assert spec.template == {"echo": "echo-copies", "reba": "reba"}[method]


def test_a_repeating_template_of_another_method_repeats_twice(llama: ModelFiles) -> None:
    assert resolve(llama, method="classical", template="echo-copies").copies == 2
    assert resolve(llama, method="echo", template="echo-copies").copies == 2


# --- instructions


def test_a_tasks_name_stands_for_its_instruction(llama: ModelFiles) -> None:
    for files in (llama, locate("mini")):
        assert resolve(files, instruction="task:SciFact").instruction == task_instructions()["SciFact"][0]


# --- models with modules of their own


def test_a_sentence_transformers_model_is_taken_as_it_is(wrapped: ModelFiles) -> None:
    spec = resolve(wrapped, instruction="task:SciFact", max_length=9, revision="main", layer_norm=False, adapters=())

    assert spec == EncoderSpec(
        model=wrapped.name,
        method=SENTENCE_TRANSFORMERS,
        template="",
        pooling="own",
        instruction=task_instructions()["SciFact"][0],
        max_length=9,
        revision="main",
    )
    assert resolve(wrapped, method=SENTENCE_TRANSFORMERS) == resolve(wrapped)
    assert default_filter(wrapped, spec) == FilterSpec(name="none")


def test_its_weights_serve_another_method_as_a_plain_decoders_do(wrapped: ModelFiles) -> None:
    assert resolve(wrapped, method="llm2vec", layer=1).method == "llm2vec"


def test_a_poolers_file_is_part_of_the_spec(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    path = str(write_pooler(tmp_path / "p.safetensors"))
    files = locate(str(tiny_model("llama")), pooler=path)

    spec = resolve(files, pooling="trainable", pooler=path)

    assert (spec.pooling, spec.pooler) == ("trainable", path)


def test_what_is_left_out_stays_as_it_was_unless_the_method_is_another() -> None:
    old = EncoderSpec(model="m", method="echo", template="echo-copies", copies=3, layer=2, instruction="i")

    kept = continued_options(old, {"method": "echo", "layer": 1, "pooling": None})
    copies, template = continued_options(old, {"copies": 2}), continued_options(old, {"template": "echo"})

    assert {name: kept[name] for name in ("template", "copies", "layer", "pooling", "instruction")} == {
        "template": "echo-copies",
        "copies": 3,
        "layer": 1,
        "pooling": "mean",
        "instruction": "i",
    }
    assert ("template" in copies, copies["copies"]) == (False, 2)
    assert ("copies" in template, template["template"]) == (False, "echo")
    assert continued_options(old, {"method": "classical", "layer": None}) == {"method": "classical"}


def test_a_model_with_its_own_modules_keeps_the_little_that_can_be_said_of_it() -> None:
    old = EncoderSpec(model="m", method=SENTENCE_TRANSFORMERS, pooling="own", instruction="i", max_length=9)

    assert continued_options(old, {"max_length": 7}) == {"instruction": "i", "max_length": 7, "revision": None}
