"""Options that several commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ragidx.corpora.errors import lone_surrogate
from ragidx.indexer.ann.index_types import INDEX_TYPES, MIN_ROWS
from ragidx.indexer.encoders.methods import METHODS
from ragidx.indexer.specs import ATTENTIONS, FILTERS, POOLINGS

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_INDEX = "ragidx-index"


def index_option(function: F) -> F:
    """`--index DIR`, else $RAGIDX_INDEX, else ./ragidx-index."""
    return click.option(
        "--index",
        type=click.Path(path_type=Path),
        default=DEFAULT_INDEX,
        envvar="RAGIDX_INDEX",
        show_default=True,
        show_envvar=True,
        metavar="DIR",
        help="The index folder.",
    )(function)


def json_option(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")(function)


def ann_options(function: F) -> F:
    """Options of the search structure: its type, target recall and memory limit."""
    return _all(_ANN, function)


def device_option(function: F) -> F:
    """`--device`."""
    return click.option("--device", default="auto", show_default=True, metavar="D", help="auto, cuda, mps or cpu.")(
        function
    )


def dtype_option(function: F) -> F:
    """`--dtype`."""
    return click.option(
        "--dtype",
        default="auto",
        show_default=True,
        metavar="T",
        help="auto (measured), float32, mixed (linear layers in bfloat16), bfloat16, float16.",
    )(function)


def encoding_options(function: F) -> F:
    """`--device`, `--dtype` and `--attn`: how vectors are computed, for commands that encode documents."""
    return device_option(dtype_option(_attn_option(function)))


def _attn_option(function: F) -> F:
    return click.option(
        "--attn",
        default="auto",
        show_default=True,
        metavar="I",
        help="How a decoder's attention is computed: auto, sdpa, eager, flash_attention_2 ...",
    )(function)


def encoder_options(function: F) -> F:
    """How a text becomes a vector: one option for each field of `EncoderSpec` but the instruction."""
    return _all(_ENCODER, function)


def instruction_option(function: F) -> F:
    """`--instruction`."""
    return click.option(
        "--instruction", metavar="S", help="Default task sentence of queries, or task:NAME; '' for none."
    )(function)


def filter_options(function: F) -> F:
    """Which numbers of a vector are kept."""
    return _all(_FILTER, function)


def filter_topk_option(function: F) -> F:
    """`--filter-topk`."""
    return click.option(
        "--filter-topk",
        type=int,
        metavar="N",
        help="optimal: count the N most frequent tokens [default: 100].",
    )(function)


def chunk_options(function: F) -> F:
    """How documents are cut."""
    return _all(_CHUNK, function)


def corpus_options(function: F) -> F:
    """Which files of a corpus are read, and which of their fields."""
    return _all(_CORPUS, function)


def _all(options: Sequence[Callable[[F], F]], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function


_ENCODER = (
    click.option("--model", metavar="ID|PATH", help="mini (bundled, the default), a folder, or a hub id."),
    click.option("--revision", metavar="REV", help="Revision of a hub id."),
    click.option(
        "--adapter",
        "adapters",
        multiple=True,
        metavar="ID|PATH",
        callback=lambda ctx, param, value: value or None,
        help="A LoRA adapter to merge, a folder or a hub id; repeat for several, in order.",
    ),
    click.option("--method", metavar="M", help=f"{', '.join(METHODS)}."),
    click.option("--template", metavar="T", help="A template's name, or a string with {text}."),
    click.option("--copies", type=int, metavar="N", help="How often echo or reba repeats the text."),
    click.option("--pooling", metavar="P", help=f"{', '.join(POOLINGS)}."),
    click.option("--pooler", metavar="FILE", help="Weights of the trainable pooling, a safetensors file."),
    click.option("--attention", metavar="A", help=f"{', '.join(ATTENTIONS)}."),
    click.option("--layer", type=int, metavar="N", help="Hidden layer to pool: -1 the last, 0 the input embeddings."),
    click.option("--layer-norm/--no-layer-norm", default=None, help="Apply the final norm to an earlier layer too."),
    click.option("--pool-eos/--no-pool-eos", default=None, help="Pool a closing EOS or marker of the template."),
    click.option("--max-length", type=int, metavar="N", help="Read at most N tokens of a text."),
    click.option(
        "--compute-matched/--no-compute-matched",
        default=None,
        help="Apply --max-length to all copies of the text together.",
    ),
    click.option("--truncate", metavar="W", help="Where to cut a text that is too long: end, middle."),
)


_FILTER = (
    click.option("--tau", type=float, metavar="N", help="The filter keeps hidden width / N dimensions."),
    click.option("--dim", type=int, metavar="N", help="The filter keeps N dimensions."),
    click.option("--filter", "filter", metavar="F", help=f"{', '.join(FILTERS)} (the raw coordinates)."),
    click.option(
        "--filter-offset",
        type=int,
        metavar="N",
        help="embedfilter: first kept direction of the spectrum [default: the middle].",
    ),
    click.option("--filter-seed", type=int, metavar="N", help="Random seed of the filter [default: 0]."),
)


class Bytes(click.ParamType[int]):
    """A size: 500MB, 2GB, 1.5GiB, or a number of bytes."""

    name = "size"
    _UNITS = {"": 1, "b": 1} | {
        f"{letter}{suffix}": base ** (power + 1)
        for power, letter in enumerate("kmgt")
        for suffix, base in (("", 1000), ("b", 1000), ("ib", 1024))
    }

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)", value.strip())
        if found is None or found[2].lower() not in self._UNITS:
            self.fail(f"'{value}' is not a size; write 500MB, 2GB or 1.5GiB", param, ctx)
        return int(float(found[1]) * self._UNITS[found[2].lower()])


_ANN = (
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
        type=Bytes(),
        metavar="SIZE",
        help="Memory limit for a search, such as 2GB; segments of fewer than "
        f"{MIN_ROWS:,} vectors are always searched exactly.",
    ),
)


def offline_option(function: F) -> F:
    """`--offline`: no request to a hub."""
    return click.option(
        "--offline", is_flag=True, expose_value=False, callback=_go_offline, is_eager=True, help="Never use a network."
    )(function)


def _go_offline(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:  # read by the hub's client when it is imported, which no command has done yet
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["TRANSFORMERS_OFFLINE"] = "1"


class ChunkSize(click.ParamType[Any]):
    """A number of tokens, or `none` for whole documents."""

    name = "N|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """`none` itself, or the number."""
        if value == "none" or isinstance(value, int):
            return value
        try:
            return int(value)
        except ValueError:
            return self.fail(f"{value!r} is neither a number of tokens nor 'none'", param, ctx)


_CHUNK = (
    click.option(
        "--chunk-size", type=ChunkSize(), help="At most N tokens a chunk; none for whole documents [default: 256]."
    ),
    click.option(
        "--chunk-overlap", type=int, metavar="N", help="Neighbouring chunks share at most N tokens [default: 0]."
    ),
    click.option("--headings/--no-headings", default=None, help="Put the heading path in front of the encoded text."),
)

_CORPUS = (
    click.option("--include", multiple=True, metavar="GLOB", help="Only these files; may be repeated."),
    click.option("--exclude", multiple=True, metavar="GLOB", help="Not these files; may be repeated."),
    click.option("--text-field", metavar="F", help="Field of structured files that holds the text."),
    click.option("--id-field", metavar="F", help="Field of structured files that holds the id."),
)


class UnicodeText(click.ParamType[Any]):
    """Text in Unicode: Python turns bytes of other encodings into lone surrogates."""

    name = "TEXT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text itself."""
        at = lone_surrogate(value)
        if at is not None:
            self.fail(f"no Unicode text at character {at}: write it in UTF-8", param, ctx)
        return value
