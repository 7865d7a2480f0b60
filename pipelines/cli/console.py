"""Output: tables on stdout, progress and messages on stderr, no control characters of a corpus.

Text of a corpus goes through `printable` before it is shown: escape sequences, other control characters and the marks
that reverse the direction of writing become a space, so that a document cannot move the cursor or rewrite the screen.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import IO, Any

import click

PLAIN_EVERY_S = 10.0  # between lines of progress, where there is no terminal to rewrite one on
_WIDTH = 100  # columns, if the output is not a terminal
_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_WORD = re.compile(r"\w+")
_PASSAGE = 320
_LEADING_HEADINGS = re.compile(r"\A(?:#{1,6} [^\n]*\n+)+")  # the heading path is shown beside the source
_STOP = frozenset(
    re.findall(
        r"\w+",
        """a about all an and any are as at be by can did do does for from had has have how i in into is it its make
        more most of on one or our so than that the their them then they thi to wa were what when where which who why
        will with you""",
    )
)


def printable(text: str) -> str:
    """One line without control characters: runs of white space and of controls become one space.

    >>> printable("a\\x1b[31mred\\n\\n b\\u202e")
    'a [31mred b'
    """
    return " ".join("".join(" " if _is_control(c) else c for c in text).split())


def printable_lines(text: str) -> str:
    """As `printable`, the line breaks and indents of our own messages kept."""
    return "\n".join("".join(" " if _is_control(c) else c for c in line) for line in text.split("\n"))


def _is_control(character: str) -> bool:
    return character in _DIRECTION or unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs")


def passage(text: str, query: str, length: int = _PASSAGE) -> str:
    """The part of a chunk that shares the most words with the query, about `length` characters, whole words."""
    line = printable(_LEADING_HEADINGS.sub("", text))
    if len(line) <= length:
        return line
    wanted = {_stem(word) for word in _WORD.findall(query)} - _STOP
    found = [(m.start(), stem) for m in _WORD.finditer(line) if (stem := _stem(m[0])) in wanted]
    best = _best_start([0] + [m.end() for m in re.finditer(r"[.!?] ", line)], found, length)
    end = best + length
    if end >= len(line):
        best, end = max(0, len(line) - length), len(line)
        best = line.find(" ", best) + 1 if best else 0
    else:
        end = line.rfind(" ", best, end)
    return f"{'… ' if best else ''}{line[best:end]}{' …' if end < len(line) else ''}"


def _best_start(starts: Sequence[int], found: Sequence[tuple[int, str]], length: int) -> int:
    """The first of the starts with the most letters of different words in the `length` characters from there.

    One pass, since a passage may have a hundred thousand sentences.

    Args:
        starts: rising.
        found: places and words, rising.
        length: of the window.
    """
    best, most, letters, first, last = starts[0], -1, 0, 0, 0
    inside = Counter[str]()
    for start in starts:
        while last < len(found) and found[last][0] < start + length:
            word = found[last][1]
            letters += 0 if inside[word] else len(word)
            inside[word] += 1
            last += 1
        while first < last and found[first][0] < start:
            word = found[first][1]
            inside[word] -= 1
            letters -= 0 if inside[word] else len(word)
            first += 1
        if letters > most:
            best, most = start, letters
    return best


def _stem(word: str) -> str:
    """Lower case, without a plural s: enough to find the words of a question."""
    return word.lower().removesuffix("s")


def width(stream: IO[str]) -> int:
    """Columns of the terminal; a fixed width for files and pipes."""
    return max(60, shutil.get_terminal_size().columns) if stream.isatty() else _WIDTH


def print_json(data: Any) -> None:
    """One JSON document on stdout; only ASCII, so that no terminal or pipe can garble it."""
    click.echo(json.dumps(data, ensure_ascii=True, allow_nan=False, indent=2))


def print_fields(rows: Iterable[tuple[str, str]]) -> None:
    """Two aligned columns on stdout: name and value."""
    pairs = [(name, printable(value)) for name, value in rows]
    left = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        click.echo(f"{click.style(name.ljust(left), bold=True)}  {value}")


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """An aligned table on stdout; wide characters take two columns, as terminals show them."""
    from rich.cells import cell_len, set_cell_size

    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(cell_len(cell) for cell in column) for column in zip(head, *cells, strict=True)]
    for number, row in enumerate([head, *cells]):
        line = "  ".join(set_cell_size(cell, size) for cell, size in zip(row, widths, strict=True)).rstrip()
        click.echo(click.style(line, bold=True) if number == 0 else line)


def note(message: str) -> None:
    """A message on stderr."""
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


def plural(count: int, noun: str, nouns: str = "") -> str:
    """A number of things; `nouns` where another s does not make the plural.

    >>> plural(1, "chunk"), plural(2_000, "chunk"), plural(2, "query", "queries")
    ('1 chunk', '2,000 chunks', '2 queries')
    """
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def is_terminal() -> bool:
    """Whether messages go to a person at a terminal."""
    return sys.stderr.isatty()
