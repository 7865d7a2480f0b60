"""`ragidx add`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.records import Document
from ragidx.pipelines.cli import console, interrupts
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.options import index_option, json_option, quiet_option

_OWN = ("id", "text", "markdown", "heading")


@click.command("add", cls=GroupedCommand)
@click.argument("file", metavar="FILE")
@index_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds to wait for another writer.",
)
@quiet_option
@json_option
def command(file: str, index: Path, timeout: float, as_json: bool) -> None:
    """Add documents from FILE, or - for standard input, to an index by their ids; one commit for all of them.

    \b
        ragidx add faq.jsonl

    A line of FILE is a JSON object: "id" and "text", optional "markdown" (true or false) and "heading"; all other
    fields are metadata. A document whose id the index has is replaced, if it differs. Documents are stored whole: no
    file is needed to rebuild the index. `ragidx add-source` adds folders.

    \b
        echo '{"id": "faq-1", "text": "The lease ends in May.", "lang": "en"}' | ragidx add -
    """
    from ragidx.pipelines.index import Index

    with interrupts.reported(lambda: "nothing was added"), Index(index) as opened:
        with opened.batch(timeout=timeout) as batch:
            if file == "-":
                batch.add(_documents(sys.stdin, "standard input"))
            else:
                batch.add(_documents_of(Path(file)))
        counts = {"added": batch.n_added, "changed": batch.n_changed, "unchanged": batch.n_unchanged}
        generation = opened.generation
    if as_json:
        named = {f"n_{what}": number for what, number in counts.items()}
        console.print_json({"index": str(index), "generation": generation, **named})
        return
    console.note(", ".join(f"{number:,} {what}" for what, number in counts.items()) + f"; generation {generation}")


def _documents_of(path: Path) -> Iterator[Document]:
    try:
        with path.open(encoding="utf-8") as lines:
            yield from _documents(lines, str(path))
    except (OSError, UnicodeDecodeError) as fault:
        why = getattr(fault, "strerror", None) or "it is not UTF-8"
        raise CorpusError(f"cannot be read: {why}", "name a file of JSON Lines", where=str(path)) from fault


def _documents(lines: Iterable[str], name: str) -> Iterator[Document]:
    """The documents of JSON Lines.

    Raises:
        CorpusError: a line is none; with its place.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where, hint = f"{name}:{number}", 'write {"id": "faq-1", "text": "..."}'
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as fault:
            raise CorpusError(f"is no JSON: {fault}", hint, where=where) from fault
        if not isinstance(record, dict):
            raise CorpusError("is no JSON object", hint, where=where)
        for field in ("id", "text"):
            if not isinstance(record.get(field), str):
                raise CorpusError(f"the field '{field}' is no text", hint, where=where)
        metadata = {key: value for key, value in record.items() if key not in _OWN}
        yield Document(
            record["id"],
            record["text"],
            metadata,
            markdown=record.get("markdown") is True,
            heading=str(record.get("heading", "")),
        )
