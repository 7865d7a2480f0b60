"""Methods: what is left out is the preset's or the method's own, and what does not go together is told."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from ragidx.corpora.errors import SpecError
from ragidx.indexer.encoders.methods import (
    ENCODER_OPTIONS,
    METHODS,
    SENTENCE_TRANSFORMERS,
    EncoderOptions,
    default_filter,
    filter_spec,
    gone_on_with,
    resolve,
)
from ragidx.indexer.models.locate import ModelFiles, locate
from ragidx.indexer.prompts.instructions import task_instructions
from ragidx.indexer.prompts.templates import template_names
from ragidx.indexer.specs import EncoderSpec, FilterSpec

from ...tiny_weights import write_pooler

Resolve = Callable[..., EncoderSpec]


@pytest.fixture(scope="module")
def llama(tiny_model: Callable[..., Path]) -> ModelFiles:
    return locate(str(tiny_model("llama")))


@pytest.fixture
def with_preset(tiny_model: Callable[..., Path], tmp_path: Path) -> Callable[..., ModelFiles]:
    """`with_preset(method="echo", layer=1)`: a model whose folder says that this is best for it."""

    def make(**preset: Any) -> ModelFiles:
        folder = shutil.copytree(tiny_model("llama"), tmp_path / "preset")
        (folder / "preset.json").write_text(json.dumps(preset))
        return locate(str(folder))

    return make


def told(files: ModelFiles, **asked: Any) -> str:
    with pytest.raises(SpecError) as fault:
        resolve(files, **asked)
    return str(fault.value)


# --- what is left out


@pytest.mark.parametrize(
    ("method", "template", "attention", "pooling", "copies"),
    [
        ("classical", "classical", "causal", "mean", None),
        ("echo", "echo", "causal", "mean", None),
        ("prompteol", "prompteol", "causal", "last", None),
        ("metaeol", "metaeol", "causal", "last", None),
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


def test_every_method_is_in_the_table_and_has_a_template() -> None:
    assert {method.template for method in METHODS.values()} - {""} <= set(template_names())
    assert len({method.about for method in METHODS.values()}) == len(METHODS)


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
    files = locate("mini")
    spec = resolve(files)

    assert (spec.method, spec.template, spec.pooling, spec.layer) == ("classical", "classical", "mean", 0)
    assert default_filter(files, spec) == FilterSpec(offset=1, dim=255)
    assert resolve(files, method="reba").layer == -1


def test_a_preset_gives_its_filter_to_its_method_and_its_offset_to_all(with_preset: Callable[..., ModelFiles]) -> None:
    files = with_preset(method="echo", filter={"tau": 4.0, "offset": 3})

    assert default_filter(files, resolve(files)) == FilterSpec(tau=4, offset=3)
    assert default_filter(files, resolve(files, copies=3)) == FilterSpec(tau=4, offset=3)
    assert default_filter(files, resolve(files, method="reba")) == FilterSpec(tau=2, offset=3)
    assert filter_spec(files, resolve(files), dim=31) == FilterSpec(dim=31, offset=1)  # as far as there is room


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


@pytest.mark.parametrize("method", ["echo", "reba"])
@pytest.mark.parametrize("copies", [0, -1])
def test_fewer_than_one_copy_are_refused(method: str, copies: int, llama: ModelFiles) -> None:
    assert told(llama, method=method, copies=copies) == (
        f"--copies: {copies} copies of a text hold nothing\n  hint: give 1 or more"
    )


@pytest.mark.parametrize(
    ("asked", "template"),
    [
        ({"method": "classical"}, "classical"),
        ({"method": "llm2vec"}, "llm2vec"),
        ({"method": "metaeol"}, "metaeol"),
        ({"method": "echo", "template": "echo-trained"}, "echo-trained"),
        ({"method": "echo", "template": "A {text} B {text}"}, "A {text} B {text}"),
    ],
)
def test_copies_where_the_template_does_not_repeat_are_refused(
    asked: dict[str, Any], template: str, llama: ModelFiles
) -> None:
    assert told(llama, copies=3, **asked) == (
        f"--copies: the template '{template}' does not repeat the text\n"
        "  hint: leave out --copies, or use --method reba or --method echo without a template"
    )


# --- what does not go together


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"method": "ecco"},
            "unknown method 'ecco'; did you mean 'echo'?\n"
            "  hint: known: classical, echo, llm2vec, metaeol, prompteol, reba, sentence-transformers",
        ),
        (
            {"pooling": "men"},
            "unknown pooling 'men'; did you mean 'mean'?\n"
            "  hint: known: bos, eos, last, mean, trainable, weighted_mean",
        ),
        (
            {"attention": "both"},
            "unknown attention 'both'\n  hint: known: causal, bidirectional",
        ),
        (
            {"truncate": "start"},
            "unknown way to truncate 'start'\n  hint: known: end, middle",
        ),
        (
            {"max_length": 0},
            "--max-length: a length of 0 tokens holds nothing\n  hint: give 1 or more",
        ),
        (
            {"pooling": "trainable"},
            "--pooler: the trainable pooling and its weights belong together\n"
            "  hint: give --pooling trainable and --pooler weights.safetensors, or neither",
        ),
        (
            {"pooler": "p.safetensors"},
            "--pooler: the trainable pooling and its weights belong together\n"
            "  hint: give --pooling trainable and --pooler weights.safetensors, or neither",
        ),
        (
            {"method": "reba", "pooling": "eos"},
            "--pooling: backward attention pools the first copy of the text, which eos pooling does not\n"
            "  hint: use --pooling mean, weighted_mean or last",
        ),
        (
            {"method": "reba", "pooling": "bos", "attention": "bidirectional"},
            "--pooling: backward attention pools the first copy of the text, which bos pooling does not\n"
            "  hint: use --pooling mean, weighted_mean or last",
        ),
        (
            {"method": "reba", "pooling": "trainable", "pooler": "p"},
            "--pooling: backward attention pools the first copy of the text, which trainable pooling does not\n"
            "  hint: use --pooling mean, weighted_mean or last",
        ),
        (
            {"method": "reba", "template": "echo"},
            "--template: backward attention needs copies of the text side by side, and the template 'echo' has none\n"
            "  hint: leave out --template",
        ),
        (
            {"method": "reba", "template": "{text} {text}"},
            "--template: backward attention needs copies of the text side by side, and the template '{text} {text}' "
            "has none\n  hint: leave out --template",
        ),
        (
            {"method": "classical", "pooling": "bos"},
            "--pooling: under causal attention the first token sees no other, so every text would have the same "
            "vector\n  hint: use --attention bidirectional, or another --pooling",
        ),
        (
            {"method": "classical", "compute_matched": True},
            "--compute-matched: the template 'classical' holds the text once: it reads no more than classical does\n"
            "  hint: leave out --compute-matched",
        ),
        (
            {"method": "reba", "copies": 1, "compute_matched": True},
            "--compute-matched: the template 'reba' holds the text once: it reads no more than classical does\n"
            "  hint: leave out --compute-matched",
        ),
        (
            {"method": "prompteol", "pooling": "mean"},
            "--pooling: the template 'prompteol' pools one token, so mean pooling would change nothing\n"
            "  hint: leave out --pooling",
        ),
        (
            {"method": "llm2vec", "layer": 0},
            "--layer: layer 0 is read before any attention, so both ways are the same\n"
            "  hint: give a layer from 1 on, or --attention causal",
        ),
        *(
            (
                asked | {"layer": 0},
                "--layer: layer 0 knows no other token than its own, and the token that is pooled is the same for "
                "every text\n  hint: give a layer from 1 on, or pool the text's own tokens with --pooling mean",
            )
            for asked in (
                {"method": "classical", "pooling": "eos"},
                {"method": "prompteol"},
                {"method": "echo", "pooling": "last"},
            )
        ),
        (
            {"method": "reba", "copies": 100},
            "--copies: 100 copies of a text are too many\n  hint: give at most 64",
        ),
        ({"max_length": 3.5}, "EncoderSpec.max_length is 3.5, which is no int or NoneType"),
        ({"layer": True}, "EncoderSpec.layer is True, which is no int"),
        (
            {"template": "P: {text}", "instruction": "Find it"},
            "--instruction: the template 'P: {text}' has no {instruction}, so the instruction would not be read\n"
            "  hint: say where it stands, such as '{instruction} {text}', or leave the instruction out",
        ),
        (
            {"instruction": "Find {text}"},
            "--instruction: the instruction holds the placeholder '{text}'\n  hint: write it otherwise",
        ),
        (
            {"instruction": "task:SciFakt"},
            "--instruction: unknown task 'SciFakt'; did you mean 'SciFact'?\n"
            "  hint: `ragidx models --tasks` lists the tasks with their instructions; or write the instruction itself",
        ),
    ],
)
def test_what_does_not_go_together_is_told(asked: dict[str, Any], message: str, llama: ModelFiles) -> None:
    assert told(llama, **asked) == message


@pytest.mark.parametrize(
    "asked",
    [
        {"method": "reba", "pooling": "mean"},
        {"method": "reba", "pooling": "weighted_mean"},
        {"method": "reba", "pooling": "last"},
        {"method": "reba", "copies": 1},
        {"method": "classical", "pooling": "trainable", "pooler": "p.safetensors"},
        {"method": "llm2vec", "pooling": "bos"},
        {"method": "classical", "pooling": "eos"},
        {"method": "echo", "compute_matched": True, "max_length": 8},
        {"method": "reba", "compute_matched": True, "max_length": 8},
        {"method": "echo", "copies": 3, "compute_matched": True},
        {"layer": 1, "layer_norm": True},
        {"layer": -2, "layer_norm": True},
        {"layer": 0, "layer_norm": True},
        {"instruction": ""},
        {"template": "P: {text}", "instruction": ""},
    ],
)
def test_what_goes_together_is_taken(asked: dict[str, Any], llama: ModelFiles) -> None:
    spec = resolve(llama, **asked)

    assert {name: getattr(spec, name) for name in asked} == asked


def test_a_tasks_name_stands_for_its_instruction(llama: ModelFiles) -> None:
    for files in (llama, locate("mini")):
        assert resolve(files, instruction="task:SciFact").instruction == task_instructions()["SciFact"][0]


# --- models with modules of their own


@pytest.fixture(scope="module")
def wrapped(tiny_sentence_transformer: Path) -> ModelFiles:
    return locate(str(tiny_sentence_transformer))


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


@pytest.mark.parametrize(
    ("asked", "option", "own"),
    [
        ({"template": "echo"}, "--template", "template"),
        ({"copies": 2}, "--copies", "copies"),
        ({"copies": 0}, "--copies", "copies"),
        ({"pooling": "mean"}, "--pooling", "pooling"),
        ({"pooler": "p.safetensors"}, "--pooler", "pooler"),
        ({"attention": "causal"}, "--attention", "attention"),
        ({"layer": -1}, "--layer", "layer"),
        ({"layer": 0}, "--layer", "layer"),
        ({"layer_norm": True}, "--layer-norm", "layer norm"),
        ({"pool_eos": True}, "--pool-eos", "pool eos"),
        ({"pool_eos": False}, "--no-pool-eos", "pool eos"),
        ({"compute_matched": True}, "--compute-matched", "compute matched"),
        ({"truncate": "middle"}, "--truncate", "truncate"),
        ({"adapters": ("a",)}, "--adapter", "adapters"),
    ],
)
def test_options_of_a_sentence_transformers_model_are_refused_by_the_name_that_was_typed(
    asked: dict[str, Any], option: str, own: str, wrapped: ModelFiles
) -> None:
    assert told(wrapped, **asked) == (
        f"{option}: a sentence-transformers model brings its own {own}\n"
        f"  hint: leave out {option}, or choose another --method"
    )


def test_its_weights_serve_another_method_as_a_plain_decoders_do(wrapped: ModelFiles) -> None:
    assert resolve(wrapped, method="llm2vec", layer=1).method == "llm2vec"


def test_a_decoder_has_no_modules_of_its_own(llama: ModelFiles) -> None:
    assert told(llama, method=SENTENCE_TRANSFORMERS) == (
        f"--method: '{llama.name}' has no modules.json, so it is no sentence-transformers model\n"
        "  hint: choose a method for decoders, such as --method echo"
    )


def test_a_poolers_file_is_part_of_the_spec(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    path = str(write_pooler(tmp_path / "p.safetensors"))
    files = locate(str(tiny_model("llama")), pooler=path)

    spec = resolve(files, pooling="trainable", pooler=path)

    assert (spec.pooling, spec.pooler) == ("trainable", path)
    assert EncoderSpec.parse(str(spec)) == spec


def test_what_is_left_out_stays_as_it_was_unless_the_method_is_another() -> None:
    old = EncoderSpec(model="m", method="echo", template="echo-copies", copies=3, layer=2, instruction="i")

    kept = gone_on_with(old, {"method": "echo", "layer": 1, "pooling": None})
    copies, template = gone_on_with(old, {"copies": 2}), gone_on_with(old, {"template": "echo"})

    assert {name: kept[name] for name in ("template", "copies", "layer", "pooling", "instruction")} == {
        "template": "echo-copies",
        "copies": 3,
        "layer": 1,
        "pooling": "mean",
        "instruction": "i",
    }
    assert ("template" in copies, copies["copies"]) == (False, 2)
    assert ("copies" in template, template["template"]) == (False, "echo")
    assert gone_on_with(old, {"method": "classical", "layer": None}) == {"method": "classical"}


def test_a_model_with_its_own_modules_keeps_the_little_that_can_be_said_of_it() -> None:
    old = EncoderSpec(model="m", method=SENTENCE_TRANSFORMERS, pooling="own", instruction="i", max_length=9)

    assert gone_on_with(old, {"max_length": 7}) == {"instruction": "i", "max_length": 7}
