"""What an option is, said once: the type of a keyword carries it, and each place where it can be given is made of it.

    dim: Annotated[int | None, Option("N", "Compare only the first N dimensions of the vectors.", "Ranking", least=1)]

Those of a model are here; those of a build and of a search are in `ragidx.retriever.keywords`.
"""  # annotations are objects here, not text: they are read

import functools
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Required, TypedDict, TypeVar, get_args, get_origin

from ragidx.indexer.specs import ATTENTIONS, POOLINGS

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """What there is to know of an option, wherever it is given; the type of its keyword carries it, in `Annotated`.

    The command line, its help and its settings file, HTTP, the tools of agents and `help()` are made from it.

    Args:
        metavar: a word for its value on the command line; None: it is a switch, or else no option there.
        about: a sentence on it; other options are `named` in it.
        group: the option's group on the help page.
        default: the value that stands for not given; None: false for a bool, and no texts for a list of them. Where the
            type is `Required` it is empty.
        least, most: bounds of a number; None: there is none.
        for_agents: whether the tool of agents takes it, too; each costs every conversation some tokens.
        typed: name of the option on the command line, where that is another; `no-` in front: it can only be switched
            off there.
        once: whether the option is about one call, and no setting of `ragidx.toml`.
        parts: a TypedDict of the options that the command line has in its place.
    """

    metavar: str | None
    about: str
    group: str
    default: Any = None
    least: float | None = None
    most: float | None = None
    for_agents: bool = False
    typed: str = ""
    once: bool = False
    parts: type | None = None


_model, _method = partial(Option, group="Model"), partial(Option, group="Method")


class StateOptions(TypedDict, total=False):
    """Options of an encoder that decide the states that a pooling reads; None: not set."""

    revision: Annotated[str | None, _model("REV", "Revision of a hub id.")]
    adapters: Annotated[
        Sequence[str] | None,
        _model("ID|PATH", "LoRA adapters to merge in this order, folders or hub ids.", typed="adapter"),
    ]
    method: Annotated[
        str | None,
        _method(
            "M", "classical, echo, prompteol, metaeol, aligned-values, llm2vec, reba, sentence-transformers, endpoint."
        ),
    ]
    template: Annotated[str | None, _method("T", "A template's name, or a string with {text}.")]
    template_query: Annotated[str | None, _method("T", "A string with {text} for queries alone.")]
    copies: Annotated[int | None, _method("N", "How often echo or reba repeats the text.")]
    attention: Annotated[str | None, _method("A", f"{', '.join(ATTENTIONS)}.")]
    layer: Annotated[int | None, _method("N", "Hidden layer to pool: -1 the last, 0 the input embeddings.")]
    layer_norm: Annotated[bool | None, _method(None, "Apply the final norm to an earlier layer too.")]
    pool_eos: Annotated[bool | None, _method(None, "Pool a closing EOS or marker of the template.")]
    max_length: Annotated[int | None, _method("N", "Read at most N tokens of a text.")]
    compute_matched: Annotated[bool | None, _method(None, "Apply `max_length` to all copies of the text together.")]
    truncate: Annotated[str | None, _method("W", "Where to cut a text that is too long: end, middle.")]
    instruction: Annotated[str | None, _method("S", "Default task sentence of queries, or task:NAME; '' for none.")]
    tokenizer: Annotated[
        str | None, _model("FILE", "Of openai:NAME: its tokenizer.json, to count chunk sizes [default: characters].")
    ]


class EncoderOptions(StateOptions, total=False):
    """Options of an encoder, the fields of `EncoderSpec` but the model; None: not set."""

    pooling: Annotated[str | None, _method("P", f"{', '.join(POOLINGS)}.")]
    pooler: Annotated[str | None, _method("FILE", "Weights of the trainable pooling, a safetensors file.")]


Device = Annotated[str, _model("D", "auto, cuda, mps or cpu.", default="auto")]
Dtype = Annotated[
    str, _model("T", "auto (measured), float32, mixed (linear layers in bfloat16), bfloat16, float16.", default="auto")
]
Endpoint = Annotated[
    str | None,
    _model(
        "URL",
        "The server of `model` openai:NAME, such as http://127.0.0.1:11434/v1 [env var: RAGIDX_ENDPOINT]; its key "
        "is in RAGIDX_API_KEY.",
        once=True,
    ),
]


class RunOptions(TypedDict, total=False):
    """Where a model runs and how it computes. Vectors should not depend on it."""

    device: Device
    dtype: Dtype
    attn: Annotated[
        str,
        _model("I", "How a decoder's attention is computed: auto, sdpa, eager, flash_attention_2 ...", default="auto"),
    ]
    endpoint: Endpoint


ENCODER_OPTIONS = tuple(EncoderOptions.__annotations__)


def options_of(keywords: type) -> dict[str, tuple[Any, Option]]:
    """The type and the option of each keyword of a TypedDict, or field of a dataclass, that carries one; a default that
    is not said is there.
    """
    found = {}
    for name, hint in keywords.__annotations__.items():
        if hasattr(hint, "__metadata__"):
            kind, [option] = hint.__origin__, hint.__metadata__
            unsaid = vars(keywords).get(name, _UNSAID.get(kind)) if option.default is None else option.default
            if get_origin(kind) is Required:
                [kind], unsaid = get_args(kind), inspect.Parameter.empty
            found[name] = kind, replace(option, default=unsaid)
    return found


_UNSAID = {bool: False, Sequence[str]: ()}


def written_out(function: F) -> F:
    """Show each option of `**options: Unpack[A TypedDict]`, for `help()` and completion.

    All are in the signature, of a class that of its `__init__`, and in the docstring behind the other arguments, where
    it has any.
    """
    called: Any = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    own = inspect.signature(called)
    *named, rest = own.parameters.values()
    listed = options_of(called.__globals__[str(rest.annotation).removeprefix("Unpack[").removesuffix("]")])
    options = [
        inspect.Parameter(name, rest.KEYWORD_ONLY, default=option.default, annotation=kind)
        for name, (kind, option) in listed.items()
    ]
    called.__signature__ = own.replace(parameters=[*named, *options])
    head, args, rest_of = (function.__doc__ or "").partition("Args:\n")
    if args:
        written, _, tail = rest_of.partition("\n\n")
        indent = " " * (len(written) - len(written.lstrip()))
        more = (_argument(name, option, indent) for name, (_, option) in listed.items())
        function.__doc__ = "\n".join([f"{head}{args}{written}", *more, "", tail])
    return function


def described(value: type[T]) -> type[T]:
    """Show the option of each field of a frozen value, for `help()` and completion."""
    listed = options_of(value)
    value.__init__.__annotations__.update({name: kind for name, (kind, _) in listed.items()})
    about = (_argument(name, option, "    ") for name, (_, option) in listed.items())
    value.__doc__ = "\n".join([inspect.cleandoc(value.__doc__ or ""), "", "Attributes:", *about])
    return value


@functools.cache
def _argument(name: str, option: Option, indent: str) -> str:
    text = f"{name}{'=False' if option.typed.startswith('no-') else ''}: {option.about}"
    return textwrap.fill(text, 120, initial_indent=indent, subsequent_indent=f"{indent}    ")
