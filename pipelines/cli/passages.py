"""Hits on a terminal: place, scores, and the part of the passage that is nearest to the question.

A passage keeps its lines, so that code and tables stand as they are; long lines are wrapped. The words of the question
are highlighted where the output is a terminal.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence, Set
from datetime import datetime

import click

from ragidx.corpora.readers.records.paths import fields_of
from ragidx.corpora.records import json_text
from ragidx.pipelines.cli import console
from ragidx.retriever.hit import Hit, json_values, place_in
from ragidx.retriever.passages import WORD, Excerpt, Stem, passage, printable_text, simple_stem, stems_of

_PLACES = 2  # of equal passages, that are named
_INDENT = 11


def show_hits(
    hits: Sequence[Hit],
    query: str,
    stem: Stem = simple_stem,
    *,
    full: bool = False,
    fields: Sequence[str] = (),
    passages: Sequence[Excerpt] | None = None,
    words: str = "bm25",
) -> None:
    """A table on stdout: rank, scores and source; below it the passage, and where else it is.

    Args:
        hits: hits to print, best first.
        query: the question; empty for vectors.
        stem: a word to its stem, as the index has it.
        full: the whole passage, not the part that is nearest to the question; a hit's context is always whole.
        fields: metadata to show.
        passages: passages of the hits, where they were made by a service.
        words: what the scores of words are.
    """
    room = console.width(sys.stdout) - _INDENT
    cosine = any(hit.dense not in (None, hit.score) for hit in hits)
    bm25 = any(hit.bm25 not in (None, hit.score) for hit in hits)
    head = f" #  score{'  cosine' * cosine}{f'  {words:>5}' * bm25}  source"
    click.echo(click.style(head, bold=True))
    wanted, form = stems_of(query, stem), "5.2f" if words == "bm25" else f"{len(words)}.4f"
    for number, hit in enumerate(hits):
        parts = _number(hit.dense, "6.3f") * cosine + _number(hit.bm25, form) * bm25
        whole = hit.text if full and hit.context is None else hit.context
        if whole is not None:
            text, line, page = printable_text(whole).strip("\n"), hit.line, hit.page
        else:
            text, line, page = passages[number] if passages else passage(hit, query, stem)
        place, heading = _source(hit, line, page), console.printable(hit.heading)
        head = f"{hit.rank:>2}  {hit.score:5.3f}{parts}  "
        fits = len(head) + _cells(place + heading) + 4 <= room + _INDENT
        click.echo(head + click.style(f"{place}  › {heading}" if heading and fits else place, fg="cyan"))
        if heading and not fits:
            click.echo(" " * _INDENT + click.style(f"› {heading}", fg="cyan"))
        seen = {**fields_of(hit.metadata), **hit.metadata} if fields else {}
        shown = [f"{name}: {console.printable(_value(seen[name]))}" for name in fields if name in seen]
        if shown:
            click.echo(" " * _INDENT + click.style("  ".join(shown), dim=True))
        for row in wrapped(text, room) if text else ():
            click.echo((" " * _INDENT + highlighted(row, wanted, stem)).rstrip())
        if hit.also:
            click.echo(" " * _INDENT + click.style(_also(hit), dim=True))


def _cells(text: str) -> int:
    """Columns of a text on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # not loaded where it is not needed

    return cell_len(text)


def _number(value: float | None, form: str) -> str:
    """A number in its column, which is empty where there is none."""
    shown = format(value or 0, form)
    return "  " + (" " * len(shown) if value is None else shown)


def _value(value: object) -> str:
    """A metadata value as it is read: a list of texts with commas, a time in ISO form."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    if isinstance(value, list | dict):
        return json_text(json_values({"": value})[""], ascii_only=False)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def wrapped(text: str, room: int) -> list[str]:
    """The lines of a text, each in as many as it needs."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line] if len(line) <= room else textwrap.wrap(line, room, break_on_hyphens=False) or [""]
    return lines


def highlighted(line: str, wanted: Set[str], stem: Stem) -> str:
    """A line with the words that have one of these stems in bold; click removes it where there is no terminal."""
    return WORD.sub(
        lambda found: click.style(found[0], bold=True) if stem(found[0].lower()) in wanted else found[0], line
    )


def _source(hit: Hit, line: int | None, page: int | None) -> str:
    """Document and place of what is shown of it, and how sure OCR was; of precomputed vectors the row's own id, too."""
    place = place_in(hit.doc_id, line, page)
    source = console.printable(hit.doc_id) + place
    if not place and hit.start:
        source += f"  {hit.start:,}-{hit.end:,}"
    if "file.ocr" in hit.metadata:
        source += f"  OCR {hit.metadata.get('file.ocr_confidence', 0):.2f}"
    if hit.chunk_id not in (hit.doc_id, f"{hit.doc_id}:{hit.start}-{hit.end}"):
        source += f"  row {console.printable(hit.chunk_id)}"
    if hit.index is not None:
        source += f"  in {console.printable(hit.index)}"
    return source


def _also(hit: Hit) -> str:
    """Where else the passage is."""
    named = list(dict.fromkeys(span.doc_id for span in hit.also if span.doc_id != hit.doc_id))
    if not named:
        return f"also {console.plural(len(hit.also), 'time')} more in this document"
    shown = ", ".join(console.printable(name) for name in named[:_PLACES])
    more = len(named) - _PLACES
    return f"also in {shown}" + (f" and {console.plural(more, 'more document')}" if more > 0 else "")
