"""`ragidx models`."""

from __future__ import annotations

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.options import json_option


@click.command("models")
@json_option
def command(as_json: bool) -> None:
    """Show the bundled model, models with a preset, and what each needs."""
    from ragidx.indexer.presets import known_models

    rows = known_models()
    if as_json:
        console.print_json([row.to_json() for row in rows])
        return
    console.print_table(
        ["--model", "preset", "width", "memory (float32 / 16 bit)", "needs"],
        [[row.name, row.preset, str(row.width), row.memory, row.needs] for row in rows],
    )
    click.echo(
        "\nAny decoder that transformers loads works: a hub id (owner/name) or a folder; by default with echo and"
        " EmbedFilter at tau 2."
        "\nAny sentence-transformers model works with its own modules and prompts."
    )
