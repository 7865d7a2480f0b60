"""Options of how vectors are made and a corpus is read, which the commands share that encode documents."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import click

from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.ann.index_types import INDEX_TYPES, MIN_ROWS
from ragidx.indexer.specs import FILTERS, EncoderSpec, FilterSpec
from ragidx.pipelines.cli.options import (
    device_of,
    dtype_option,
    endpoint_option,
    json_option,
    offline_option,
    or_nothing,
    records_option,
    several,
    together,
)

F = TypeVar("F", bound=Callable[..., Any])
WHOLE = "none"  # a chunk size: whole documents

FILTER_OPTIONS = {"filter", "tau", "dim", "filter_offset", "filter_seed", "filter_sample", "filter_topk", "center"}
ENCODER_AXES = {"model", "method", "pooling", "attention", "layer", "copies"}
CHUNK_OPTIONS = {"chunk_size", "chunk_overlap", "headings"}


def with_values(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were typed, those of the filter and of chunks as the values that Python takes."""
    typed = with_chunks(options)
    filter_ = {name.removeprefix("filter_"): typed.pop(name) for name in FILTER_OPTIONS & typed.keys()}
    if "filter" in filter_:
        filter_["name"] = filter_.pop("filter")
    return typed | ({"filter": FilterSpec(**filter_)} if filter_ else {})


def with_chunks(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were typed, those of chunks as the value that Python takes."""
    typed = {name: value for name, value in options.items() if value is not None}
    chunks = {name.removeprefix("chunk_"): typed.pop(name) for name in CHUNK_OPTIONS & typed.keys()}
    if chunks.get("size") == WHOLE:
        chunks["size"] = None
    return typed | ({"chunks": ChunkSpec(**chunks)} if chunks else {})


class NumberOr(click.ParamType[Any]):
    """A whole number, or one word."""

    def __init__(self, word: str, name: str, number: str = "a number") -> None:
        self.name, self._word, self._number = name, word, number

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word itself, or the number."""
        try:
            if "_" in str(value):  # 1_0 is 10 to Python
                raise ValueError(value)
            return value if value == self._word else int(value)
        except ValueError:
            return self.fail(f"{value!r} is neither {self._number} nor '{self._word}'", param, ctx)


class _Layer(click.types.IntParamType):
    """A whole number, with a word on what once stood for one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        if value == "auto":
            self.fail("no build chooses a layer: name one that `ragidx tune CORPUS` proposes", param, ctx)
        return super().convert(value, param, ctx)


def _field_option(field: dataclasses.Field[Any]) -> Callable[[F], F]:
    """The option of a field: a switch, a number, a text, or one that may be repeated, by its type."""
    name, metavar, about = field.name, field.metadata["metavar"], field.metadata["about"]
    typed, kind = f"--{name.replace('_', '-')}", _TYPES[name]
    kinds = get_args(kind) or (kind,)
    if bool in kinds:
        return click.option(f"{typed}/--no-{typed[2:]}", default=None, help=about)
    if get_origin(kind) is tuple:
        singular = typed.removesuffix("s")
        return click.option(singular, name, multiple=True, metavar=metavar, callback=or_nothing, help=about)
    number: Any = _Layer() if name == "layer" else int
    return click.option(typed, type=number if int in kinds else str, metavar=metavar, help=about)


_TYPES = get_type_hints(EncoderSpec)
_ENCODER = {field.name: _field_option(field) for field in dataclasses.fields(EncoderSpec)}
filter_topk_option = click.option(
    "--filter-topk",
    type=int,
    metavar="N",
    help="optimal: count the N most frequent tokens [default: 100].",
)
encoding_options = together(
    device_of("; builds take several: cuda:0,cuda:1"),
    dtype_option,
    click.option(
        "--attn",
        default="auto",
        show_default=True,
        metavar="I",
        help="How a decoder's attention is computed: auto, sdpa, eager, flash_attention_2 ...",
    ),
    endpoint_option,
)
"""What computes vectors, for commands that encode documents."""

instruction_option = _ENCODER.pop("instruction")
encoder_options = together(*_ENCODER.values())
"""How a text becomes a vector: one option for each field of `EncoderSpec` but the instruction."""

method_options = together(*(option for name, option in _ENCODER.items() if name != "model"))
"""Those of `encoder_options` beside the model, where it is an argument."""

state_options = together(*(option for name, option in _ENCODER.items() if name not in ("model", "pooling", "pooler")))
"""Those of `method_options` that decide the states that a pooling reads."""

rest_of_encoder_options = together(*(option for name, option in _ENCODER.items() if name not in ENCODER_AXES))
"""Those of `encoder_options` of which an evaluation takes one value."""

filter_options = together(
    click.option("--tau", type=float, metavar="N", help="The filter keeps hidden width / N dimensions."),
    click.option("--dim", type=int, metavar="N", help="The filter keeps N dimensions."),
    click.option("--filter", "filter", metavar="F", help=f"{', '.join(FILTERS)} (the raw coordinates), head:FILE."),
    click.option(
        "--filter-offset",
        type=int,
        metavar="N",
        help="embedfilter: first kept direction of the spectrum [default: the middle].",
    ),
    click.option("--filter-seed", type=int, metavar="N", help="Random seed of the filter [default: 0]."),
    click.option(
        "--center/--no-center",
        default=None,
        help="Take the mean of documents off documents, and that of questions off questions [default: the index's own, "
        "else no].",
    ),
)
ann_options = together(
    click.option(
        "--index-type",
        metavar="T",
        help=f"{', '.join(INDEX_TYPES)}, or a factory string: IVF1024,SQ8 ... [default: the index's own, else auto].",
    ),
    click.option(
        "--target-recall",
        type=float,
        metavar="R",
        help="ann_recall@10 to tune an approximate index to [default: the index's own, else 0.95].",
    ),
    click.option(
        "--max-memory",
        metavar="SIZE",
        help="Memory limit for a search, such as 2GB; segments of fewer than "
        f"{MIN_ROWS:,} vectors are always searched exactly.",
    ),
)
lexical_options = together(
    click.option(
        "--stemmer",
        metavar="auto|none|LANG",
        help="Words are searched by their stems in this language [default: the index's own, else auto: guessed].",
    ),
    click.option(
        "--lexical/--no-lexical",
        default=None,
        help="Whether chunks can be searched by their words [default: the index's own, else yes].",
    ),
)
chunk_options = together(
    click.option(
        "--chunk-size",
        type=NumberOr(WHOLE, f"N|{WHOLE}", "a number of tokens"),
        help="At most N tokens a chunk; none for whole documents [default: 256].",
    ),
    click.option(
        "--chunk-overlap", type=int, metavar="N", help="Neighbouring chunks share at most N tokens [default: 0]."
    ),
    click.option("--headings/--no-headings", default=None, help="Put the heading path in front of the encoded text."),
)
corpus_options = together(
    click.option("--include", multiple=True, metavar="GLOB", help="Only these files; may be repeated."),
    click.option("--exclude", multiple=True, metavar="GLOB", help="Not these files; may be repeated."),
    several(
        "--text-field",
        "text_field",
        str,
        "[GLOB=]F[+F]",
        "Field of structured files that holds the text, such as 'data/*.csv=title+body' or 'messages[].content'; the "
        "first that fits a file counts [default: decided by the values, and kept]",
    ),
    several("--id-field", "id_field", str, "[GLOB=]F", "Field of structured files that holds the id"),
)
vector_options = together(
    encoder_options, instruction_option, filter_options, filter_topk_option, chunk_options, encoding_options
)
"""How vectors are made, and what computes them."""

measured_options = together(
    instruction_option, chunk_options, encoding_options, corpus_options, records_option, offline_option, json_option
)
"""What commands share that measure a corpus: how it is read, cut and encoded, and how the result is printed."""
