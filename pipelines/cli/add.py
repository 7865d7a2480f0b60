"""`ragidx add`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import click

from ragidx.corpora.errors import CorpusError, printable
from ragidx.corpora.records import Document
from ragidx.pipelines.cli import console, describe, interrupts
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.options import index_option, json_option, quiet_option
from ragidx.retriever.keywords import PlanKeywords

_OWN = ("id", "text", "markdown", "heading")


@click.command("add", cls=GroupedCommand)
@click.argument("file", metavar="FILE", type=click.File(encoding="utf-8"))
@index_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds to wait for another writer.",
)
@keyword_options(PlanKeywords, only=["compact"])
@quiet_option
@json_option
def command(file: TextIO, index: Path, timeout: float, compact: bool, as_json: bool) -> None:
    """Add documents from FILE, or - for standard input, to an index by their ids; one commit for all of them.

    \b
        ragidx add faq.jsonl

    A line of FILE is a JSON object: "id" and "text", optional "markdown" (true or false) and "heading"; all other
    fields are metadata. A document whose id the index has is replaced, if it differs; one without a text is skipped and
    counted. Documents are stored whole: no file is needed to rebuild the index. `ragidx add-source` adds folders.

    \b
        echo '{"id": "faq-1", "text": "The lease ends in May.", "lang": "en"}' | ragidx add -
    """
    from ragidx.pipelines.index import Index

    lines: dict[str, int] = {}  # of documents, by their ids in messages
    with interrupts.reported(lambda: "nothing was added"), Index(index) as opened:
        try:
            with opened.batch(timeout=timeout, compact=compact) as batch:
                batch.add(_documents(file, lines))
        except CorpusError as fault:
            if fault.where not in lines:
                raise
            where = f"{file.name}:{lines[fault.where]}: {fault.where}"
            raise CorpusError(fault.message, fault.hint, where=where) from fault
        counts = {"added": batch.n_added, "changed": batch.n_changed, "unchanged": batch.n_unchanged}
        blank = [f"{file.name}:{lines[printable(name)]}" for name in batch.blank]
        generation, unknown, has_words = opened.generation, batch.unknown, opened.info().lexical is not None
    if as_json:
        named: dict[str, Any] = {f"n_{what}": number for what, number in counts.items()}
        named |= {"unknown": dict(unknown.most_common())} if unknown else {}
        console.print_json({"index": str(index), "generation": generation, **named, "blank": blank})
        return
    if blank:
        without = console.plural(len(blank), "document")
        console.note(f"Skipped: {without} without a text: {', '.join(blank[:3])}{' ...' if len(blank) > 3 else ''}")
    if unknown:
        console.note(f"Not known to the model: {describe.unknown(unknown, has_words=has_words)}.")
    console.note(", ".join(f"{number:,} {what}" for what, number in counts.items()) + f"; generation {generation}")


def _documents(file: TextIO, lines: dict[str, int]) -> Iterator[Document]:
    """The documents of JSON Lines; the line of each is put into `lines`.

    Raises:
        CorpusError: the file is not UTF-8, or a line is no document; with its place.
    """
    try:
        for number, line in enumerate(file, start=1):
            if line.strip():
                document = _document(line, f"{file.name}:{number}")
                lines[printable(document.id)] = number
                yield document
    except UnicodeDecodeError as fault:
        raise CorpusError("it is not UTF-8", "name a file of JSON Lines", where=file.name) from fault


def _document(line: str, where: str) -> Document:
    hint = 'write {"id": "faq-1", "text": "..."}'
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
    is_markdown, heading = record.get("markdown") is True, str(record.get("heading", ""))
    return Document(record["id"], record["text"], metadata, markdown=is_markdown, heading=heading)
