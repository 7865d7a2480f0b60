"""Options of a command that are keywords in Python: made of the types of those keywords."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin

import click

if TYPE_CHECKING:
    from ragidx.indexer.options import Option

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
WHOLE = "none"  # a chunk size: whole documents; or no cache
GONE = {"headings": "the title is in front of chunks that lack it: see --titles"}
"""Options that were, and what took their place."""


class KeywordOption(click.Option):
    """An option that is a keyword, and what that says of it."""

    def __init__(self, *args: Any, said: Option, **named: Any) -> None:
        super().__init__(*args, **named)
        self.said = said


def keyword_options(
    *keywords: type,
    only: Collection[str] | None = None,
    but: Collection[str] = (),
    notes: Mapping[str, str] | None = None,
) -> Callable[[F], F]:
    """The options of TypedDicts or values, in their order but those first that have to be given, as one decorator.

    Args:
        keywords: each of their types carries an `Option`.
        only: names; None: all.
        but: names that the command does not have, or in another form.
        notes: what the command alone does with an option, behind its help, by name.
    """
    options = [
        (name, kind, option)
        for each in keywords
        for name, kind, option in typed_options_of(each)
        if name not in but and (only is None or name in only)
    ]
    options.sort(key=lambda one: one[2].default is not inspect.Parameter.empty)

    def decorate(function: F) -> F:
        for name, kind, option in reversed(options):
            function = _option(name, kind, option, (notes or {}).get(name, ""))(function)
        return function

    return decorate


def value_of(kind: type[T], options: dict[str, Any]) -> T:
    """A value of the options that are its fields, which are taken out."""
    return kind(**{name: options.pop(name) for name in kind.__annotations__ if name in options})


def typed_options_of(keywords: type) -> Iterator[tuple[str, Any, Option]]:
    """Name, type and option of what the command line has for a TypedDict or value: in place of some, their parts."""
    from ragidx.indexer.options import options_of  # the list of commands needs none

    for name, (kind, option) in options_of(keywords).items():
        if option.parts is not None:
            yield from typed_options_of(option.parts)
        elif option.metavar is not None or bool in _kinds(kind):
            yield name, kind, option


def _kinds(kind: Any) -> set[Any]:
    """Those that a type is one of, but None."""
    return {*get_args(kind)} - {types.NoneType} if get_origin(kind) in (types.UnionType, Union) else {kind}


def option_name(name: str, option: Option | None = None) -> str:
    """How an option is typed: `--chunk-size`."""
    typed = (option and option.typed) or name.replace("_", "-")
    return f"-{typed}" if len(typed) == 1 else f"--{typed}"


def _or_nothing(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...] | None:
    """None where an option that may be repeated was not typed."""
    return value or None


class _ChunkSize(click.ParamType[Any]):
    """A number of tokens, or the word for whole documents."""

    name = f"N|{WHOLE}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word itself, or the number."""
        try:
            if "_" in str(value):  # 1_0 is 10 to Python
                raise ValueError(value)
            return value if value == WHOLE else int(value)
        except ValueError:
            return self.fail(f"{value!r} is neither a number of tokens nor '{WHOLE}'", param, ctx)


class _Layer(click.types.IntParamType):
    """A whole number, with a word on what once stood for one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        if value == "auto":
            self.fail("no build chooses a layer: name one that `ragidx tune CORPUS` proposes", param, ctx)
        return super().convert(value, param, ctx)


class _Cache(click.ParamType[Any]):
    """A folder, or the word for none."""

    name = f"DIR|{WHOLE}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The folder; "": the user's; None: no cache."""
        return None if value == WHOLE else value


_OWN_TYPES = {"layer": _Layer(), "chunk_size": _ChunkSize(), "cache": _Cache()}


def _option(name: str, kind: Any, option: Option, note: str) -> Callable[[F], F]:
    """Of click, by the type: a switch, one that may be repeated, a number, or a text."""
    kinds, typed = _kinds(kind), option_name(name, option)
    about = re.sub(r"`([a-z_]+)`", lambda found: found[0] if found[1] == name else option_name(found[1]), option.about)
    named: dict[str, Any] = {"cls": KeywordOption, "said": option, "default": option.default}
    every = next((get_args(one)[0] for one in kinds if get_origin(one) is Sequence), None)
    if every is None and bool in kinds:
        named["is_flag"] = True
        if option.typed:
            named["flag_value"] = False
        elif option.default is not False:
            note = note if option.default is None else f" [default: {typed[2:]}]"
            typed = f"{typed}/--no-{typed[2:]}"
    elif every is not None:
        each = every if every in (int, float, bool) else str
        named |= {"multiple": True, "metavar": option.metavar, "default": None, "type": _OWN_TYPES.get(name, each)}
        named |= {"callback": None if option.default == () else _or_nothing}
        note += "; may be repeated"
    else:
        bounds: Any = option.least, option.most
        numbers = {int: int if bounds == (None, None) else click.IntRange(*bounds), float: float}
        text = click.Path() if Path in kinds else str
        named["type"] = _OWN_TYPES.get(name) or next((numbers[one] for one in numbers if kinds == {one}), text)
        named["metavar"] = None if len(name) == 1 else option.metavar
        named["show_default"] = option.default not in (None, "")
    if option.default is inspect.Parameter.empty:
        named |= {"required": True, "default": None, "callback": None}
    if note:
        about = f"{about.removesuffix('.')}{note}."
    return click.option(typed, name, help=about, **named)
