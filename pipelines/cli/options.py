"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ragidx.indexer.models.offline import VARIABLES
from ragidx.pipelines.cli.config import config_option
from ragidx.pipelines.cli.console import QUIET

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_INDEX = "ragidx-index"


def typed_options() -> dict[str, str]:
    """The options that were typed for the running command, as they are named: `{"fold": "--no-fold"}`."""
    context = click.get_current_context()
    typed: dict[str, str] = {}
    for option in context.command.params:
        name = option.name or ""
        if isinstance(option, click.Option) and context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            negated = option.secondary_opts and context.params.get(name) is False
            typed[name] = (option.secondary_opts if negated else option.opts)[0]
    return typed


def together(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Several options as one decorator, in their order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _be_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta[QUIET] = value


def _go_offline(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:  # read by the hub's client when it is imported, which no command has done yet
        os.environ.update(dict.fromkeys(VARIABLES, "1"))


def path_option(name: str, metavar: str, about: str) -> Callable[[F], F]:
    """An option that names a file or a folder."""
    return click.option(name, type=click.Path(path_type=Path), metavar=metavar, help=about)


class _Folder(click.Path):
    """A folder, whole also in a variable of the environment."""

    envvar_list_splitter = "\0"  # which no variable holds


def _index_option(default: str | Sequence[str], about: str, *, multiple: bool = False) -> Callable[[F], F]:
    return together(
        config_option,
        click.option(
            "--index",
            type=_Folder(path_type=Path),
            default=default,
            multiple=multiple,
            envvar="RAGIDX_INDEX",
            show_default=True,
            show_envvar=True,
            metavar="DIR",
            help=about,
        ),
    )


index_option = _index_option(DEFAULT_INDEX, "The index folder.")
"""`--index DIR`, else $RAGIDX_INDEX, else that of `ragidx.toml`, else ./ragidx-index; and `--config`."""

indexes_option = _index_option([DEFAULT_INDEX], "The index folder; may be repeated.", multiple=True)
"""The same, for several."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
quiet_option = click.option(
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_be_quiet,
    help="Print errors only, for cron; the exit status says the rest. With --json, print the JSON too.",
)
offline_option = click.option(
    "--offline",
    is_flag=True,
    expose_value=False,
    callback=_go_offline,
    is_eager=True,
    help="Never use a network; of servers, ask this machine alone.",
)
run_options = together(offline_option, quiet_option, json_option)
"""What commands share that may take minutes."""
