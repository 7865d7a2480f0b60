"""`ragidx serve` and `ragidx mcp`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from ragidx.corpora.errors import missing_extra
from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.config import config_option
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.options import DEFAULT_INDEX, offline_option, path_option, together
from ragidx.pipelines.cli.vector_options import place_options
from ragidx.pipelines.serve.settings import Settings, token_from

_PACKAGES = ("starlette", "uvicorn", "mcp", "prometheus_client")
indexes_option = together(
    config_option,
    click.option(
        "--index",
        "indexes",
        multiple=True,
        metavar="[NAME=]DIR",
        help="An index, or NAME=TARGET of `ragidx export`; may be repeated [env var: RAGIDX_INDEX, which names one] "
        f"[default: {DEFAULT_INDEX}].",
    ),
)


@click.command("serve", cls=GroupedCommand)
@indexes_option
@keyword_options(Settings)
@path_option("--token-file", "FILE", "A token of 32 characters or more that each request must bear.")
@place_options
@offline_option
def command(
    indexes: tuple[str, ...],
    token_file: Path | None,
    model: str | None,
    device: str,
    dtype: str,
    endpoint: str | None,
    **options: Any,
) -> None:
    """Answer questions over HTTP: people on a page, programs, and agents by MCP.

    \b
        ragidx serve --index docs=index/ --index papers=papers-index/

    It listens on 127.0.0.1 alone, and reads only. Any other --host needs a token, as --writable does: from --token-file
    or RAGIDX_TOKEN. `ragidx query` of the same index asks it by itself, through a socket that only you can open. An
    index that changes is shown without a pause. The log is lines of JSON on stderr. docs/serve.md has the interface.
    """
    from ragidx.retriever.models import HERE, ModelPlace

    _check_installed("ragidx serve")
    place = ModelPlace(model=model, device=device, dtype=dtype, endpoint=endpoint)
    settings = Settings(token=token_from(token_file), **options)
    named = _indexes(indexes)
    if settings.writable and not all(isinstance(path, Path) for path in named.values()):
        raise click.UsageError("--writable is for indexes in folders: what an engine holds is changed by export")
    from ragidx.pipelines.serve.http_server import serve as run

    def started(address: str, sockets: list[str]) -> None:
        token = "bearer token" if settings.token else "none (loopback)"
        writable = "yes" if settings.writable else "no"
        console.note(f"{address}  indexes: {', '.join(named)}  auth: {token}  writable: {writable}")
        for name in named:
            if name not in sockets:
                why = "it runs the model in its own way" if place != HERE else "another service has its socket"
                console.note(f"`ragidx query` does not ask this service for {name}: {why}.")

    run(named, settings, place, on_start=started)


@click.command("mcp", cls=GroupedCommand)
@indexes_option
@place_options
@offline_option
def mcp(indexes: tuple[str, ...], model: str | None, device: str, dtype: str, endpoint: str | None) -> None:
    """Answer an agent on stdin and stdout, by the Model Context Protocol.

    \b
        ragidx mcp --index docs=index/
        claude mcp add docs -- ragidx mcp --index /data/index

    The tools are search, read and describe; all of them only read. docs/agents.md shows how to add it to the usual
    agents.
    """
    from ragidx.retriever.models import ModelPlace

    _check_installed("ragidx mcp")
    named = _indexes(indexes)
    from ragidx.pipelines.serve.agents import over_stdio

    asyncio.run(over_stdio(named, ModelPlace(model=model, device=device, dtype=dtype, endpoint=endpoint)))


def _indexes(texts: tuple[str, ...]) -> dict[str, Path | str]:
    """The folders and targets by name, each an index."""
    from ragidx.indexer.store.generations import committed
    from ragidx.pipelines.serve.settings import named

    of_file = (click.get_current_context().default_map or {}).get("index")
    found = named(texts or (os.environ.get("RAGIDX_INDEX") or of_file or DEFAULT_INDEX,))
    for path in found.values():
        if isinstance(path, Path):
            committed(path)
        else:
            from ragidx.pipelines.index import connect

            connect(path).close()
    return found


def _check_installed(what: str) -> None:
    """Whether the extra is installed."""
    from importlib.util import find_spec

    missing = [name.replace("_", "-") for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise missing_extra(f"`{what}` needs", missing, "serve")
