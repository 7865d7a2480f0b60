"""The methods: which template, which attention and which pooling make a text one vector. A table; see docs/methods.md.

`resolve` makes a full `EncoderSpec` of the user's options: unset ones take the model's preset, then the method's
defaults, which follow the papers.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Unpack, cast

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.indexer.models.locate import SERVED, ModelFiles, locate
from ragidx.indexer.options import ENCODER_OPTIONS, EncoderOptions
from ragidx.indexer.prompts.forms import BETWEEN, forms_of
from ragidx.indexer.prompts.instructions import instruction
from ragidx.indexer.prompts.templates import Template, default_copies, template_of, template_of_model
from ragidx.indexer.specs import HEAD, POOLINGS, TOKEN_TABLE, EncoderSpec, FilterSpec

SENTENCE_TRANSFORMERS = "sentence-transformers"
ENDPOINT = "endpoint"
OWN_MODULES = (SENTENCE_TRANSFORMERS, ENDPOINT)  # methods of models that pool by themselves


class Method(NamedTuple):
    """Defaults of a method."""

    template: str
    attention: str
    pooling: str


METHODS = {
    # the text once; mean of its tokens
    "classical": Method("classical", "causal", "mean"),
    # the text twice; mean of the second copy, whose tokens have seen the whole text
    "echo": Method("echo", "causal", "mean"),
    # the text in a prompt that asks for one word; its last token
    "prompteol": Method("prompteol", "causal", "last"),
    # several such prompts, one a task; the mean of the vectors of their last tokens
    "metaeol": Method("metaeol", "causal", "last"),
    # the same prompt; what the attention of all layers adds to its last token
    "aligned-values": Method("prompteol", "causal", "last"),
    # attention both ways; mean of the text, without the instruction
    "llm2vec": Method("llm2vec", "bidirectional", "mean"),
    # the text repeated; each token takes the later states that attended to it back
    "reba": Method("reba", "causal", "mean"),
    # the model's own modules and prompts
    SENTENCE_TRANSFORMERS: Method("", "own", "own"),
    # a model of a server, by the protocol of OpenAI's embeddings
    ENDPOINT: Method("", "own", "own"),
}
# The options of models that pool by themselves; what such a model is, and what to do where another one is named.
_OWN_FIELDS = {
    SENTENCE_TRANSFORMERS: ("instruction", "max_length", "revision"),
    ENDPOINT: ("instruction", "max_length", "template", "tokenizer"),
}
_OWN_WORDS = {
    SENTENCE_TRANSFORMERS: ("a sentence-transformers model", "choose another `method`"),
    ENDPOINT: ("a model of a server", "name the model's folder or its hub id"),
}
DEFAULT_METHOD = "echo"
DEFAULT_TAU = 2.0
PCA_POWER = 0.3
"""The power of `pca` for encoders, as measured (docs/filters.md)."""

_OF_PRESET = ("template", "pooling", "attention", "layer", "instruction")


def located(model: str, options: EncoderOptions) -> ModelFiles:
    """The files of a model, with the adapters and the pooler that the options name; errors as of `locate`."""
    return locate(
        model,
        revision=options.get("revision"),
        adapters=options.get("adapters") or (),
        pooler=options.get("pooler"),
        served=True,
    )


def resolve(files: ModelFiles, **named: Unpack[EncoderOptions]) -> EncoderSpec:
    """The whole spec of an encoder, of the user's options; None: not set.

    Raises:
        SpecError: an unknown method or pooling, or options that the model's own modules do not have.
    """
    options: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if files.served:
        if options.get("method", ENDPOINT) != ENDPOINT:
            raise SpecError(
                f"the server runs '{files.name}', whatever its method is",
                "remove `method`, or name the model's folder or its hub id",
                where="`method`",
            )
        if "template_query" in options:  # a server's template has both sides
            document = options.get("template", "{text}").partition(BETWEEN)[0]
            options["template"] = f"{document}{BETWEEN}{options.pop('template_query')}"
        served = _own_modules(files, options, ENDPOINT)
        forms_of(served.template).filled("", served.instruction or "")
        return served
    preset = files.preset()
    default = SENTENCE_TRANSFORMERS if files.sentence_transformers else preset.get("method", DEFAULT_METHOD)
    method = options.get("method", default)
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if method == SENTENCE_TRANSFORMERS:
        if not files.sentence_transformers:
            raise SpecError(
                f"'{files.name}' has no modules.json, so it is not a sentence-transformers model",
                "choose a method for decoders, such as `method=echo`",
                where="`method`",
            )
        return _own_modules(files, options, method)
    if method == ENDPOINT:
        raise SpecError(f"'{files.name}' is no model of a server", f"name it as `model={SERVED}NAME`", where="`method`")
    spec: dict[str, Any] = METHODS[method]._asdict()
    spec["template"] = template_of_model(method, files.names) or spec["template"]
    if method == preset.get("method"):
        spec |= {name: preset[name] for name in _OF_PRESET if name in preset}
    if method == "echo" and "copies" in options:
        spec["template"] = "echo-copies"
    spec |= {"model": files.name, "method": method} | options
    if spec["pooling"] == "trainable" and files.pooler is not None:  # perhaps the model's own
        spec["pooler"] = options.get("pooler", str(files.pooler))
    if spec.get("copies") is None:
        spec["copies"] = default_copies(spec["template"])
    spec["instruction"] = instruction(spec.get("instruction"))
    spec["adapters"] = list(spec.get("adapters", ()))
    return _checked(EncoderSpec.from_json(spec), files, is_matched=bool(spec.get("compute_matched")))


def continued_options(old: EncoderSpec, named: EncoderOptions) -> EncoderOptions:
    """The user's options for `resolve`, where those that are not set are those of the index's encoder."""
    options: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if options.get("method", old.method) != old.method:
        return cast(EncoderOptions, options)
    continued = {name: getattr(old, name) for name in _OWN_FIELDS.get(old.method, ENCODER_OPTIONS)}
    for changed, follows in (("copies", "template"), ("template", "copies")):
        if changed in options and follows not in options:
            continued.pop(follows, None)
    return cast(EncoderOptions, continued | options)


def _checked(spec: EncoderSpec, files: ModelFiles, *, is_matched: bool) -> EncoderSpec:
    """The spec, if its options fit together; `is_matched`: whether `compute_matched` is asked for.

    Raises:
        SpecError: they do not; the message says which.
    """
    if spec.pooling not in POOLINGS:
        raise unknown_name("pooling", spec.pooling, POOLINGS)
    template = template_of(spec, files.family)
    template.side(spec.instruction)
    sides = (template.document, template.of("").query)
    n_copies = max(sum(piece.text.count("{text}") for piece in side) for side in sides)
    asks = {
        "`method`": spec.method != "classical",
        "`layer`": spec.layer != 0,
        "`pooling`": spec.pooling != "mean",
        "`attention`": spec.attention != "causal",
        "`layer_norm`": spec.layer_norm,
    }
    for wrong, message, hint, where in (
        (
            files.family == TOKEN_TABLE and any(asks.values()),
            f"'{files.name}' is a table of tokens: it has no layers",
            "take a decoder, such as `model=mini-decoder`, or remove the option",
            next((option for option, asked in asks.items() if asked), ""),
        ),
        (
            (spec.pooling == "trainable") != (spec.pooler is not None),
            "the trainable pooling and its weights belong together",
            "give `pooling=trainable` and `pooler=weights.safetensors`, or neither",
            "`pooler`",
        ),
        (
            spec.tokenizer is not None,
            "the model has a tokenizer of its own",
            "remove `tokenizer`, which is for a model of a server",
            "`tokenizer`",
        ),
        (
            spec.method == "reba" and spec.pooling not in ("mean", "weighted_mean", "last"),
            f"backward attention pools the first copy of the text, which {spec.pooling} pooling does not",
            "use `pooling=mean`, weighted_mean or last",
            "`pooling`",
        ),
        (
            spec.method == "reba" and default_copies(spec.template) is None,
            f"backward attention needs copies of the text side by side, and the template '{spec.template}' has none",
            "remove `template`",
            "`template`",
        ),
        (
            spec.method == "reba" and spec.template_query is not None,
            "backward attention needs copies of the text side by side, which a template of queries does not make",
            "remove `template_query`",
            "`template_query`",
        ),
        (
            spec.method == "aligned-values" and spec.pooling == "trainable",
            "the trainable pooling reads hidden states, which aligned-values does not",
            "use `pooling=last`, or another `method`",
            "`pooling`",
        ),
        (
            spec.method == "aligned-values" and spec.layer_norm,
            "the final norm belongs to hidden states, which aligned-values does not read",
            "remove `layer_norm`",
            "`layer_norm`",
        ),
        (
            spec.pooling == "bos" and spec.attention == "causal",
            "under causal attention the first token sees no other, so every text would have the same vector",
            "use `attention=bidirectional`, or another `pooling`",
            "`pooling`",
        ),
        (
            is_matched and n_copies < 2,
            f"the template '{spec.template}' holds the text once: it reads no more than classical does",
            "remove `compute_matched`",
            "`compute_matched`",
        ),
        (
            is_matched and spec.max_length is None,
            "the copies of a text share the tokens of `max_length`, which is not set",
            "give `max_length`, or remove `compute_matched`",
            "`compute_matched`",
        ),
        (
            template.span == "last" and spec.pooling in ("mean", "weighted_mean"),
            f"the template '{spec.template}' pools one token, so {spec.pooling} pooling would change nothing",
            "use `pooling=last`, which `method=prompteol` takes by itself",
            "`pooling`",
        ),
        (
            spec.layer == 0 and spec.attention == "bidirectional",
            "layer 0 is read before any attention, so both ways are the same",
            "give a layer from 1 on, or `attention=causal`",
            "`layer`",
        ),
        (
            spec.layer == 0 and _pools_a_constant(spec, template),
            "layer 0 knows no other token than its own, and the token that is pooled is the same for every text",
            "give a layer from 1 on, or pool the text's own tokens with `pooling=mean`",
            "`layer`",
        ),
    ):
        if wrong:
            raise SpecError(message, hint, where=where)
    return spec


def _pools_a_constant(spec: EncoderSpec, template: Template) -> bool:
    """Whether what is pooled is a token of the template and none of the text."""
    closing = template.document[-1]
    ends = spec.pooling == "last" and closing.pool == "eos" and spec.pool_eos
    return spec.pooling in ("eos", "bos") or template.span == "last" or ends


def default_filter(files: ModelFiles, spec: EncoderSpec) -> FilterSpec:
    """The default filter: the preset's; EmbedFilter at tau = 2 for a decoder; none for a model with
    its own modules, which has no unembedding matrix that its vectors were trained against.
    """
    if spec.method in OWN_MODULES:
        return FilterSpec(name="none")
    preset = files.preset()
    kept = FilterSpec.from_json(preset.get("filter", {}), where="preset.json")
    if spec.method == preset.get("method"):
        return kept
    # Where the useful part of a spectrum begins belongs to the model's head, for every method.
    return FilterSpec(tau=DEFAULT_TAU, offset=kept.offset)


def preset_weight(files: ModelFiles, spec: EncoderSpec) -> float | None:
    """The weight of the vectors in hybrid search that the preset of the method has; None: it has none."""
    preset = files.preset()
    weight: float | None = preset.get("weight") if spec.method == preset.get("method") else None
    return weight


def pca_power(files: ModelFiles, spec: EncoderSpec) -> float:
    """The power of `pca` where none is named: `PCA_POWER` of an encoder, 0 of a decoder."""
    return PCA_POWER if spec.method in OWN_MODULES or files.family == TOKEN_TABLE else 0.0


def filter_spec(
    files: ModelFiles, encoder: EncoderSpec, named: FilterSpec | None = None, stored: FilterSpec | None = None
) -> FilterSpec:
    """The whole spec of a filter: a field that the user did not name is that of the index, else the default filter's.

    Another filter than these keeps half of the width where neither tau nor dim is named.

    Raises:
        SpecError: values that exclude each other.
    """
    default = default_filter(files, encoder)
    base = stored or default
    if named is None:
        return base
    if "name" in named.given and named.name != base.name:
        offset = default.offset if named.name == "embedfilter" else None
        tau = None if named.name == "none" or named.name.startswith(HEAD) else DEFAULT_TAU
        power = pca_power(files, encoder) if named.name == "pca" else 0.0
        base = FilterSpec(named.name, tau=tau, offset=offset, power=power)
    if not {"tau", "dim"} & named.given:
        return named.over(base)
    width_free = dataclasses.replace(base, tau=None, dim=None, offset=None)
    return named.over(width_free).from_column(base.offset, files.hidden)


def _own_modules(files: ModelFiles, options: dict[str, Any], method: str) -> EncoderSpec:
    """The spec of a model that pools by itself, and takes few options."""
    names = _OWN_FIELDS[method]
    for name, value in options.items():
        if name not in (*names, "method") and value != () and (value is not False or name == "pool_eos"):
            field = f"`{name}=False`" if value is False else f"`{name}`"
            what, other = _OWN_WORDS[method]
            raise SpecError(
                f"{what} brings its own {name.replace('_', ' ')}", f"remove {field}, or {other}", where=field
            )
    spec: dict[str, Any] = {"template": "", "pooling": "own", "attention": "causal"}
    spec |= {name: options[name] for name in names if name in options}
    spec["instruction"] = instruction(spec.get("instruction"))
    return EncoderSpec(model=files.name, method=method, **spec)
