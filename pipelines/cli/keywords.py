"""Options of a command that are keywords in Python: made of the types of those keywords."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import click

from ragidx.indexer.options import Option, options_of
from ragidx.pipelines.cli.help import as_options

F = TypeVar("F", bound=Callable[..., Any])


def keyword_options(
    keywords: type, but: Collection[str] = (), notes: Mapping[str, str] | None = None
) -> Callable[[F], F]:
    """The options of a TypedDict, in its order, as one decorator.

    Args:
        keywords: each of its types carries an `Option`.
        but: names that the command has in another form.
        notes: what the command alone does with an option, behind its help, by name.
    """
    options = {name: one for name, one in options_of(keywords).items() if name not in but}

    def decorate(function: F) -> F:
        for name, (kind, option) in reversed(options.items()):
            function = _option(name, kind, option, (notes or {}).get(name, ""))(function)
        return function

    return decorate


def _option(name: str, kind: Any, option: Option, note: str) -> Callable[[F], F]:
    dashed = name.replace("_", "-")
    about = as_options(option.about)
    if note:
        about = f"{about.removesuffix('.')} {note}."
    if kind is bool:
        said = f"{about.removesuffix('.')} [default: {dashed if option.default else f'no-{dashed}'}]."
        return click.option(f"--{dashed}/--no-{dashed}", name, default=option.default, help=said)
    (plain,) = (one for one in get_args(kind) or (kind,) if one is not types.NoneType)
    number = click.IntRange(min=None if option.least is None else int(option.least))
    kinds = {int: number, float: float, str: str}
    return click.option(
        f"-{name}" if len(name) == 1 else f"--{dashed}",
        name,
        type=str if get_origin(plain) is Literal else kinds[plain],
        default=option.default,
        show_default=len(name) == 1,
        metavar=None if len(name) == 1 else option.metavar,
        help=about,
    )
