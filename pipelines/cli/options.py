"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

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


def offline_option(function: F) -> F:
    """`--offline`: no hub is asked, whatever the model is called."""
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
        """`none` as it is, a number as an int."""
        if value == "none" or isinstance(value, int):
            return value
        try:
            return int(value)
        except ValueError:
            return self.fail(f"{value!r} is neither a number of tokens nor 'none'", param, ctx)
