"""What is given twice where values are compared: an axis, a list, or refused; nothing takes the last one in silence."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest

from ragidx.pipelines.cli.main import every_command
from ragidx.pipelines.experiments.evaluate.options import Grid

from ..conftest import Done

COMMANDS = {name: every_command()[name] for name in ("evaluate", "tune", "sweep")}
LISTS = {"adapters", "include", "exclude", "text_field", "id_field", "records"}
"""Options of which each value counts, and none is an axis."""
OPTIONS = [
    pytest.param(name, param, id=f"{name} {param.opts[0]}")
    for name, command in COMMANDS.items()
    for param in command.params
    if isinstance(param, click.Option)
]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_each_option_is_an_axis_a_list_or_refused(name: str, option: click.Option) -> None:
    names = [option.opts[0], (option.secondary_opts or option.opts)[0]]
    typed = [word for one in names for word in ([one] if option.is_flag else [one, "1"])]
    if option.multiple:
        assert option.name in {*Grid.__annotations__, *LISTS}
        assert option.nargs == 1
        return

    with pytest.raises(click.UsageError) as raised:
        COMMANDS[name].make_context(name, ["source", *typed])

    assert raised.value.message == f"{option.opts[0]} is given twice, and has one value: give it once"


def test_a_command_that_compares_nothing_takes_the_last(run: Callable[..., Done]) -> None:
    done = run("query", "a question", "--index", "one", "--index", "two", "-k", "3", "-k", "4")

    assert "is given twice" not in done.err


def test_grids_are_whole_in_evaluate() -> None:
    found = {param.name for param in COMMANDS["evaluate"].params if isinstance(param, click.Option) and param.multiple}

    assert found == {*Grid.__annotations__, *LISTS}
