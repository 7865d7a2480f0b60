"""What an option is, said once: the type of a keyword carries it, and each place where it can be given is made of it.

dim: Annotated[int | None, Option("N", "Compare only the first N numbers of the vectors.", "Ranking", least=1)]
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """What there is to know of an option, wherever it is given; the type of its keyword carries it, in `Annotated`.

    The command line, its help and its settings file, HTTP, the tools of agents and `help()` are made from it.

    Args:
        metavar: a word for its value on the command line; None: it is a switch.
        about: a sentence on it; other options are `named` in it.
        group: of the help page.
        default: that which stands for not given.
        least, most: bounds of a number; None: there is none.
        for_agents: whether the tool of agents takes it, too; each costs every conversation some tokens.
    """

    metavar: str | None
    about: str
    group: str
    default: Any = None
    least: float | None = None
    most: float | None = None
    for_agents: bool = False


def options_of(keywords: type) -> dict[str, tuple[Any, Option]]:
    """The type and the option of each keyword of a TypedDict that carries one."""
    hints = keywords.__annotations__.items()
    return {name: (hint.__origin__, hint.__metadata__[0]) for name, hint in hints if hasattr(hint, "__metadata__")}


def written_out(function: F) -> F:
    """Show each option of `**options: Unpack[A TypedDict]` in the signature, for `help()` and completion.

    One that says what it is, by an `Option`, is in the docstring behind the other arguments, too. One without a default
    has that of its type.
    """
    own = inspect.signature(function)
    *named, rest = own.parameters.values()
    listed = function.__globals__[str(rest.annotation).removeprefix("Unpack[").removesuffix("]")]
    about = {name: option for name, (_, option) in options_of(listed).items()}
    options = []
    for name, hint in listed.__annotations__.items():
        kind = getattr(hint, "__forward_arg__", None) or hint.__origin__
        default = about[name].default if name in about else _UNSAID.get(kind)
        options.append(inspect.Parameter(name, rest.KEYWORD_ONLY, default=default, annotation=kind))
    function.__signature__ = own.replace(parameters=[*named, *options])  # type: ignore[attr-defined]
    head, args, rest_of = (function.__doc__ or "").partition("Args:\n")
    if args and about:
        written, _, tail = rest_of.partition("\n\n")
        indent = " " * (len(written) - len(written.lstrip()))
        lines = (f"{name}: {option.about}" for name, option in about.items())
        more = (textwrap.fill(line, 120, initial_indent=indent, subsequent_indent=f"{indent}    ") for line in lines)
        function.__doc__ = "\n".join([f"{head}{args}{written}", *more, "", tail])
    return function


_UNSAID: dict[str, Any] = {"bool": False, "int": 0, "str": "auto", "Sequence[str]": ()}
