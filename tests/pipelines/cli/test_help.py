"""Help pages: options in groups, every option in one of them; the nearest command and option for a mistyped one."""

from __future__ import annotations

import re
from collections.abc import Callable

import click
import pytest

from ragidx.pipelines.cli.help import GROUPED_FROM, OTHERWISE, GroupedCommand, group_of, groups
from ragidx.pipelines.cli.main import COMMANDS, cli

from ..conftest import Done

Run = Callable[..., Done]


def _command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.wheel
@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_on_the_help_page_once(name: str, run: Run) -> None:
    status, out, _ = run(name, "--help")
    options = [param for param in _command(name).params if isinstance(param, click.Option)]

    shown = out.partition("ptions:\n")[2]
    assert status == 0
    assert all(
        len(re.findall(rf"^  {re.escape(option.opts[0])}(?![\w-])", shown, re.MULTILINE)) == 1 for option in options
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_many_options_are_in_groups_and_few_are_not(name: str, run: Run) -> None:
    _, out, _ = run(name, "--help")
    count = sum(isinstance(param, click.Option) for param in _command(name).params) + 1  # and --help

    assert isinstance(_command(name), GroupedCommand)
    assert ("Run options:" in out) == (count >= GROUPED_FROM)
    assert ("\nOptions:" in out) == (count < GROUPED_FROM)


def test_the_groups_of_a_build_are_in_order(run: Run) -> None:
    _, out, _ = run("build", "--help")

    assert re.findall(r"^(\w+) options:", out, re.MULTILINE) == [
        "Model",
        "Method",
        "Filter",
        "Chunk",
        "Index",
        "Word",
        "File",
        "Run",
    ]


def test_no_group_names_an_option_that_there_is_not() -> None:
    known = {param.name for name in COMMANDS for param in _command(name).params}

    assert {name for names in groups().values() for name in names} <= known
    for command, parameter in OTHERWISE:
        assert parameter in {param.name for param in _command(command).params}
        assert group_of(command, parameter) != group_of("", parameter)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("biuld", "No such command 'biuld'. (Did you mean 'build'?)"),
        ("serach", "No such command 'serach'."),
        ("roll-back", "No such command 'roll-back'. (Did you mean 'rollback'?)"),
    ],
)
def test_a_mistyped_command_names_the_nearest_one(typed: str, said: str, run: Run) -> None:
    assert run(typed) == (
        2,
        "",
        f"Usage: ragidx [OPTIONS] COMMAND [ARGS]...\nTry 'ragidx --help' for help.\n\nError: {said}\n",
    )


def test_a_mistyped_option_names_the_nearest_ones(run: Run) -> None:
    status, out, err = run("build", "corpus", "--tua", "2")

    assert (status, out) == (2, "")
    assert err.endswith("Error: No such option '--tua'. (Did you mean one of: '--tau', '--truncate'?)\n")
