"""Help pages: options in groups, every option in one of them; the nearest command and option for a mistyped one."""

from __future__ import annotations

import re
from collections.abc import Callable

import click
import pytest

from ragidx.pipelines.cli.help import GROUPED_FROM, GROUPS, SHOWN, GroupedCommand
from ragidx.pipelines.cli.keywords import KeywordOption
from ragidx.pipelines.cli.main import every_command

from ..conftest import Done

Run = Callable[..., Done]


COMMANDS = every_command()


def _options(name: str) -> list[click.Option]:
    return [param for param in COMMANDS[name].params if isinstance(param, click.Option)]


@pytest.mark.wheel
@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_on_the_full_help_page_once_with_its_help(name: str, run: Run) -> None:
    status, out, err = run(*name.split(), "--help-all")

    shown = out.partition("ptions:\n")[2]
    assert isinstance(COMMANDS[name], GroupedCommand)
    assert (status, err) == (0, "")
    assert all(option.help for option in _options(name))
    assert all(
        len(re.findall(rf"^  {re.escape(option.opts[0])}(?![\w-])", shown, re.MULTILINE)) == 1
        for option in _options(name)
    )
    assert ("Run options:" in out) == (len(_options(name)) + 1 >= GROUPED_FROM)  # and --help
    assert ("\nOptions:" in out) == (len(_options(name)) + 1 < GROUPED_FROM)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_page_opens_with_an_example_and_shows_twenty_options_at_most(name: str, run: Run) -> None:
    status, out, err = run(*name.split(), "--help")
    names = {option.name for option in _options(name)}

    shown = re.findall(r"^  (?:-\w, )?(--?[\w-]+)", out.partition("ptions:\n")[2], re.MULTILINE)
    hidden = len(names) + 2 - len(shown)
    assert (status, err) == (0, "")
    assert re.match(rf"Usage: ragidx {name} .*\n\n(  [A-Z`].*\n(  \S.*\n)*)\n      ragidx (query|{name})\b", out)
    assert len(shown) <= 20
    assert set(SHOWN.get(name, "").split()) <= names
    assert (f"Show {hidden} more options and exit." in " ".join(out.split())) == (name in SHOWN)


def test_the_groups_of_a_build_are_in_order(run: Run) -> None:
    _, out, _ = run("build", "--help-all")

    assert re.findall(r"^(\w+) options:", out, re.MULTILINE) == [
        "Model",
        "Method",
        "Filter",
        "Chunk",
        "Index",
        "File",
        "Shard",
        "Run",
    ]


def test_no_group_names_an_option_that_there_is_not() -> None:
    by_hand = {one.name for name in COMMANDS for one in _options(name) if not isinstance(one, KeywordOption)}

    assert {name for names in GROUPS.values() for name in names.split()} <= by_hand


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("biuld", "No such command 'biuld'. (Did you mean 'build'?)"),
        ("serach", "No such command 'serach'. (Did you mean 'query'?)"),
        ("xyzzy", "No such command 'xyzzy'."),
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
    assert err.endswith("Error: No such option '--tua'. (Did you mean one of: '--stage', '--tau', '--truncate'?)\n")
