"""Output: tables on stdout, progress and messages on stderr, no control characters of a corpus.

Text of a corpus goes through `printable` before it is shown: escape sequences, other control characters and the marks
that reverse the direction of writing become a space, so that a document cannot move the cursor or rewrite the screen.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, Protocol, TypeVar

import click

from ragidx.retriever import printing


class Reported(Protocol):
    """A report of what was done."""

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON types."""
        ...


R = TypeVar("R", bound=Reported)

printable, printable_lines = printing.printable, printing.printable_lines

PLAIN_EVERY_S = 10.0  # between lines of progress, where there is no terminal to rewrite one on
QUIET = "ragidx.quiet"  # in the context of a command
PATIENCE_S = 2.0  # before something without progress is named
_WIDTH = 100  # columns, if the output is not a terminal


def width(stream: IO[str]) -> int:
    """Columns of the terminal; a fixed width for files and pipes."""
    return max(60, shutil.get_terminal_size().columns) if stream.isatty() else _WIDTH


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on a terminal what takes its time, from two seconds on; the line goes when it is over."""
    if not is_terminal():
        yield
        return
    shown = threading.Event()

    def show() -> None:
        shown.set()
        click.echo(f"{what} ...", err=True, nl=False)

    timer = threading.Timer(PATIENCE_S, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if shown.is_set():
            click.echo("\r\x1b[K", err=True, nl=False)


def print_json(data: Any) -> None:
    """One JSON document on stdout; only ASCII, so that no terminal or pipe can garble it."""
    from ragidx.corpora.records import json_text  # help needs none

    click.echo(json_text(data, indent=2))


def print_report(report: R, fields: Callable[[R], Iterable[tuple[str, str]]], *, as_json: bool) -> None:
    """What was done, on stdout: all of a report as JSON, or some fields of it for people."""
    if as_json:
        print_json(report.to_json())
    else:
        print_fields(fields(report))


def is_quiet() -> bool:
    """Whether the command has `--quiet`: reports, messages and progress are not printed; errors and JSON are."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def print_fields(rows: Iterable[tuple[str, str]]) -> None:
    """Two aligned columns on stdout: name and value."""
    if is_quiet():
        return
    pairs = [(name, printable(value)) for name, value in rows]
    left = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        click.echo(f"{click.style(name.ljust(left), bold=True)}  {value}")


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, bold: int | None = None) -> None:
    """An aligned table on stdout, its head and a row bold; wide characters take two columns, as terminals show them."""
    from rich.cells import cell_len, set_cell_size

    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(cell_len(cell) for cell in column) for column in zip(head, *cells, strict=True)]
    for number, row in enumerate([head, *cells]):
        line = "  ".join(set_cell_size(cell, size) for cell, size in zip(row, widths, strict=True)).rstrip()
        click.echo(click.style(line, bold=True) if number == 0 or number - 1 == bold else line)


def note(message: str) -> None:
    """A message on stderr."""
    if not is_quiet():
        error(message)


def error(message: str) -> None:
    """A message on stderr that `--quiet` does not hold back."""
    click.echo(printable_lines(message), err=True)


def n_bytes(count: int) -> str:
    """A size for people.

    >>> n_bytes(999), n_bytes(1536), n_bytes(3 << 30)
    ('999 B', '1.5 KiB', '3.0 GiB')
    """
    size, unit = float(count), 0
    while size >= 1000 and unit < 4:
        size, unit = size / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{size:.1f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def pace(n_chunks: int, seconds: float) -> str:
    """How fast chunks are encoded; of a slow model, how long each takes.

    >>> pace(2650, 1.0), pace(9, 4.0)
    ('2,650 chunks/s', '0.44 s a chunk')
    """
    rate = n_chunks / max(seconds, 1e-9)
    return f"{rate:,.0f} chunks/s" if rate >= 10 else f"{seconds / max(n_chunks, 1):.2g} s a chunk"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """A number of things; `nouns` where another s does not make the plural.

    >>> plural(1, "chunk"), plural(2_000, "chunk"), plural(2, "query", "queries")
    ('1 chunk', '2,000 chunks', '2 queries')
    """
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def is_terminal() -> bool:
    """Whether messages go to a person at a terminal, who wants them."""
    return sys.stderr.isatty() and not is_quiet()
