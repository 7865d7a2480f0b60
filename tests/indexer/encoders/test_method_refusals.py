"""Methods: what does not go together is refused, and what goes together is taken."""

from __future__ import annotations

from typing import Any

import pytest

from ragidx.corpora.errors import SpecError
from ragidx.indexer.encoders.methods import SENTENCE_TRANSFORMERS, resolve
from ragidx.indexer.models.locate import ModelFiles

from ...raising import message_of


def told(files: ModelFiles, **asked: Any) -> str:
    return message_of(SpecError, lambda: resolve(files, **asked))


# --- what does not go together


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"method": "ecco"},
            "unknown method 'ecco'; did you mean 'echo'?\n"
            "  hint: known: aligned-values, classical, echo, endpoint, llm2vec, metaeol, prompteol, reba, "
            "sentence-transformers",
        ),
        (
            {"pooling": "men"},
            "unknown pooling 'men'; did you mean 'mean'?\n"
            "  hint: known: bos, eos, last, mean, trainable, weighted_mean",
        ),
        (
            {"attention": "both"},
            "unknown attention 'both'\n  hint: known: bidirectional, causal",
        ),
        (
            {"truncate": "start"},
            "unknown way to truncate 'start'\n  hint: known: end, middle",
        ),
        (
            {"max_length": 0},
            "`max_length`: a length of 0 tokens holds nothing\n  hint: give 1 or more",
        ),
        (
            {"pooling": "trainable"},
            "`pooler`: the trainable pooling and its weights belong together\n"
            "  hint: give `pooling=trainable` and `pooler=weights.safetensors`, or neither",
        ),
        (
            {"pooler": "p.safetensors"},
            "`pooler`: the trainable pooling and its weights belong together\n"
            "  hint: give `pooling=trainable` and `pooler=weights.safetensors`, or neither",
        ),
        (
            {"method": "reba", "pooling": "eos"},
            "`pooling`: backward attention pools the first copy of the text, which eos pooling does not\n"
            "  hint: use `pooling=mean`, weighted_mean or last",
        ),
        (
            {"method": "reba", "template": "echo"},
            "`template`: backward attention needs copies of the text side by side, and the template 'echo' has none\n"
            "  hint: remove `template`",
        ),
        (
            {"method": "reba", "template": "{text} {text}"},
            "`template`: backward attention needs copies of the text side by side, and the template '{text} {text}' "
            "has none\n  hint: remove `template`",
        ),
        (
            {"method": "aligned-values", "pooling": "trainable", "pooler": "p.safetensors"},
            "`pooling`: the trainable pooling reads hidden states, which aligned-values does not\n"
            "  hint: use `pooling=last`, or another `method`",
        ),
        (
            {"method": "aligned-values", "layer": 1, "layer_norm": True},
            "`layer_norm`: the final norm belongs to hidden states, which aligned-values does not read\n"
            "  hint: remove `layer_norm`",
        ),
        (
            {"method": "classical", "pooling": "bos"},
            "`pooling`: under causal attention the first token sees no other, so every text would have the same "
            "vector\n  hint: use `attention=bidirectional`, or another `pooling`",
        ),
        (
            {"method": "classical", "compute_matched": True},
            "`compute_matched`: the template 'classical' holds the text once: it reads no more than classical does\n"
            "  hint: remove `compute_matched`",
        ),
        (
            {"method": "reba", "copies": 1, "compute_matched": True},
            "`compute_matched`: the template 'reba' holds the text once: it reads no more than classical does\n"
            "  hint: remove `compute_matched`",
        ),
        (
            {"method": "echo", "compute_matched": True},
            "`compute_matched`: the copies of a text share the tokens of `max_length`, which is not set\n"
            "  hint: give `max_length`, or remove `compute_matched`",
        ),
        (
            {"method": "reba", "template_query": "Query: {text}"},
            "`template_query`: backward attention needs copies of the text side by side, which a template of queries "
            "does not make\n  hint: remove `template_query`",
        ),
        (
            {"template_query": "Query:"},
            "`template_query`: the template has no {text}\n  hint: say where the text goes, such as 'Passage: {text}'",
        ),
        (
            {"template_query": "Query: {text}", "instruction": "Find it"},
            "`instruction`: the template 'Query: {text}' has no {instruction}, so the instruction would not be read\n"
            "  hint: say where it goes, such as '{instruction} {text}', or remove the instruction",
        ),
        (
            {"method": "prompteol", "pooling": "mean"},
            "`pooling`: the template 'prompteol' pools one token, so mean pooling would change nothing\n"
            "  hint: use `pooling=last`, which `method=prompteol` takes by itself",
        ),
        (
            {"method": "echo", "template": "pretended-cot"},  # of a decoder without a preset, nobody has said mean
            "`pooling`: the template 'pretended-cot' pools one token, so mean pooling would change nothing\n"
            "  hint: use `pooling=last`, which `method=prompteol` takes by itself",
        ),
        (
            {"method": "llm2vec", "layer": 0},
            "`layer`: layer 0 is read before any attention, so both ways are the same\n"
            "  hint: give a layer from 1 on, or `attention=causal`",
        ),
        *(
            (
                asked | {"layer": 0},
                "`layer`: layer 0 knows no other token than its own, and the token that is pooled is the same for "
                "every text\n  hint: give a layer from 1 on, or pool the text's own tokens with `pooling=mean`",
            )
            for asked in (
                {"method": "classical", "pooling": "eos"},
                {"method": "prompteol"},
                {"method": "echo", "pooling": "last"},
            )
        ),
        ({"method": "echo", "copies": 0}, "`copies`: a text cannot be read 0 times\n  hint: give 1 to 64"),
        ({"method": "reba", "copies": 100}, "`copies`: a text cannot be read 100 times\n  hint: give 1 to 64"),
        ({"max_length": 3.5}, "EncoderSpec.max_length is 3.5, not int or NoneType"),
        ({"layer": True}, "EncoderSpec.layer is True, not int"),
        (
            {"instruction": "Find {text}"},
            "`instruction`: the instruction holds the placeholder '{text}'\n  hint: remove it",
        ),
        (
            {"instruction": "task:SciFakt"},
            "`instruction`: unknown task 'SciFakt'; did you mean 'SciFact'?\n"
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
        {"method": "echo", "copies": 3, "compute_matched": True, "max_length": 8},
        {"method": "classical", "compute_matched": True, "max_length": 8, "template_query": "{text} {text}"},
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


# --- models with modules of their own


@pytest.mark.parametrize(
    ("asked", "field", "own"),
    [
        ({"template": "echo"}, "template", "template"),
        ({"template_query": "q: {text}"}, "template_query", "template query"),
        ({"copies": 2}, "copies", "copies"),
        ({"pooling": "mean"}, "pooling", "pooling"),
        ({"pooler": "p.safetensors"}, "pooler", "pooler"),
        ({"attention": "causal"}, "attention", "attention"),
        ({"layer": 0}, "layer", "layer"),
        ({"layer_norm": True}, "layer_norm", "layer norm"),
        ({"pool_eos": True}, "pool_eos", "pool eos"),
        ({"pool_eos": False}, "pool_eos=False", "pool eos"),
        ({"compute_matched": True}, "compute_matched", "compute matched"),
        ({"truncate": "middle"}, "truncate", "truncate"),
        ({"adapters": ("a",)}, "adapters", "adapters"),
    ],
)
def test_options_of_a_sentence_transformers_model_are_refused_by_the_name_that_was_typed(
    asked: dict[str, Any], field: str, own: str, wrapped: ModelFiles
) -> None:
    assert told(wrapped, **asked) == (
        f"`{field}`: a sentence-transformers model brings its own {own}\n"
        f"  hint: remove `{field}`, or choose another `method`"
    )


def test_a_decoder_has_no_modules_of_its_own(llama: ModelFiles) -> None:
    assert told(llama, method=SENTENCE_TRANSFORMERS) == (
        f"`method`: '{llama.name}' has no modules.json, so it is not a sentence-transformers model\n"
        "  hint: choose a method for decoders, such as `method=echo`"
    )
