"""The methods: which template, which attention and which pooling make a text one vector. A table; see docs/methods.md.

`resolve` turns what a user asked for into a whole `EncoderSpec`: names left out take the model's preset, then the
method's own defaults, which are what the papers do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.indexer.models import ModelFiles
from ragidx.indexer.specs import FILTERS, POOLINGS, EncoderSpec, FilterSpec

SENTENCE_TRANSFORMERS = "sentence-transformers"


@dataclass(frozen=True)
class Method:
    """Defaults of a method and what it is, in one line."""

    template: str
    attention: str
    pooling: str
    about: str


METHODS: dict[str, Method] = {
    "classical": Method("classical", "causal", "mean", "the text once; mean of its tokens"),
    "echo": Method(
        "echo", "causal", "mean", "the text twice; mean of the second copy, whose tokens have seen the whole text"
    ),
    "prompteol": Method("prompteol", "causal", "last", "the text in a prompt that asks for one word; its last token"),
    "llm2vec": Method(
        "llm2vec", "bidirectional", "mean", "attention both ways; mean of the text, the instruction left out"
    ),
    SENTENCE_TRANSFORMERS: Method("", "own", "own", "the model's own modules and prompts"),
}
DEFAULT_METHOD = "echo"


def resolve(files: ModelFiles, **asked: Any) -> EncoderSpec:
    """The whole spec of an encoder.

    Args:
        files: the model.
        asked: fields of `EncoderSpec`; None where the user said nothing.

    Raises:
        SpecError: an unknown method or pooling, or options that the model's own modules do not have.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    preset = files.preset()
    own = SENTENCE_TRANSFORMERS if files.sentence_transformers else preset.get("method", DEFAULT_METHOD)
    method = given.get("method", own)
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if method == SENTENCE_TRANSFORMERS:
        return _sentence_transformers(files, given)
    defaults = METHODS[method]
    spec: dict[str, Any] = {"template": defaults.template, "pooling": defaults.pooling, "attention": defaults.attention}
    if method == preset.get("method"):
        spec |= {name: preset[name] for name in ("template", "pooling", "attention", "layer") if name in preset}
    spec |= {"model": files.name, "method": method} | given
    if spec["pooling"] not in POOLINGS:
        raise unknown_name("pooling", spec["pooling"], POOLINGS)
    return EncoderSpec(**spec)


def default_filter(files: ModelFiles, spec: EncoderSpec) -> FilterSpec:
    """The filter where none is asked for: the preset's; EmbedFilter at tau = 2 for a decoder; none for a model with
    its own modules, which has no unembedding matrix that its vectors were trained against.
    """
    if spec.method == SENTENCE_TRANSFORMERS:
        return FilterSpec(name="none")
    preset = files.preset()
    kept = FilterSpec.from_json(preset.get("filter", {}), where="preset.json")
    if spec.method == preset.get("method"):
        return kept
    # Where the useful part of a spectrum begins belongs to the model's head, whatever the method.
    return FilterSpec(tau=2.0, offset=kept.offset)


def filter_spec(
    files: ModelFiles,
    encoder: EncoderSpec,
    *,
    name: str | None = None,
    tau: float | None = None,
    dim: int | None = None,
    offset: int | None = None,
) -> FilterSpec:
    """The filter that is asked for; where nothing is, the default.

    Raises:
        SpecError: an unknown filter, or values that exclude each other.
    """
    default = default_filter(files, encoder)
    if (name, tau, dim, offset) == (None, None, None, None):
        return default
    name = name or "embedfilter"
    if name not in FILTERS:
        raise unknown_name("filter", name, FILTERS)
    if name == "none" or offset is not None or default.offset is None:
        return FilterSpec(name=name, tau=tau, dim=dim, offset=offset)
    # A model whose preset starts at an offset keeps it at every width, as far as there is room.
    wanted = FilterSpec(name=name, tau=tau, dim=dim)
    hidden = files.hidden
    room = default.offset if hidden is None else hidden - wanted.width(hidden)
    return FilterSpec(name=name, tau=tau, dim=dim, offset=min(default.offset, room))


def _sentence_transformers(files: ModelFiles, given: dict[str, Any]) -> EncoderSpec:
    if not files.sentence_transformers:
        raise SpecError(
            f"'{files.name}' has no modules.json, so it is no sentence-transformers model",
            "choose a method for decoders, such as --method echo",
            where="--method",
        )
    for name in ("pooling", "template", "attention", "layer"):
        if name in given:
            raise SpecError(
                f"a sentence-transformers model brings its own {name}",
                f"leave out --{name}, or choose another --method",
                where=f"--{name}",
            )
    kept = {name: given[name] for name in ("instruction", "max_length", "revision") if name in given}
    return EncoderSpec(
        model=files.name, method=SENTENCE_TRANSFORMERS, template="", pooling="own", attention="causal", **kept
    )
