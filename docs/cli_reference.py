"""Write docs/cli.md: the `--help` of every command. `make docs` runs it; tests/test_docs.py compares."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.pipelines.cli.help import SHOWS_ALL
from ragidx.pipelines.cli.main import cli, every_command

PAGE = Path(__file__).with_name("cli.md")
HEAD = """# Command reference

The `--help-all` of every command; `--help` shows the options that most people need.
`python docs/cli_reference.py` writes this page.

Results go to stdout; progress and messages go to stderr. Exit status: 0 done; 1 done, but `--strict`, `verify` or
`doctor` found something; 2 bad input or usage; 130 interrupted by Ctrl-C, 143 by SIGTERM. `RAGIDX_INDEX` names the
index where `--index` does not; `RAGIDX_DEBUG=1` shows tracebacks.
"""


def reference() -> str:
    """The whole page."""
    group = click.Context(cli, info_name="ragidx", terminal_width=80, **cli.context_settings)
    parts = [HEAD, f"```text\n{cli.get_help(group)}\n```\n"]
    for name, command in every_command().items():
        parent = group
        for word in name.split()[:-1]:
            parent = click.Context(click.Group(word), info_name=word, parent=parent)
        context = click.Context(command, info_name=name.split()[-1], parent=parent, terminal_width=80)
        context.meta[SHOWS_ALL] = True
        parts.append(f"## ragidx {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
