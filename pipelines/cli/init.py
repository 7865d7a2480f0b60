"""`ragidx init`."""

from __future__ import annotations

from pathlib import Path

import click

from ragidx.corpora.errors import RagidxError, SpecError
from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.config import NAME
from ragidx.pipelines.cli.help import GroupedCommand

_EXAMPLE = """\
# Settings of ragidx for this folder and those below it. The command line wins over this file.
# Paths are relative to this file.

[index]
path = "ragidx-index"
# Options of `ragidx build`, without the dashes in front:
# model = "mini"
# method = "echo"
# tau = 2
# chunk-size = 256
# stemmer = "english"

# One table a source; `ragidx build` brings all of them up to date.
# [[source]]
# path = "docs"
#
# [[source]]
# name = "papers"
# path = "../papers"
# exclude = ["drafts/"]

# Fields of structured files, where those that the values say are not the right ones; the first match counts.
# [[files]]
# match = "data/*.csv"
# text = ["description", "resolution"]
# id = "ticket_id"
# title = "product"
# context = ["product", "city"]
# metadata = ["opened", "cost_eur"]
#
# [[files]]
# match = "chat.jsonl"
# text = "messages[].content"
# speaker = "messages[].role"
#
# [[files]]
# match = "policies.json"
# records = "policies[]"
"""


@click.command("init", cls=GroupedCommand)
def command() -> None:
    """Write ragidx.toml with commented settings into this folder.

    \b
        ragidx init
    """
    path = Path(NAME)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_EXAMPLE)
    except FileExistsError as fault:
        raise SpecError("it is there already", "edit it, or remove it first", where=NAME) from fault
    except OSError as fault:
        raise RagidxError(f"cannot be written: {fault.strerror}", "choose another folder", where=NAME) from fault
    console.print_fields([("written", NAME)])
