"""Hits on a terminal: place, scores, and the part of the passage that is nearest to the question.

A passage keeps its lines, so that code and tables stand as they are; long lines are wrapped. The words of the question
are highlighted where the output is a terminal.
"""

from __future__ import annotations

import bisect
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from datetime import datetime

import click

from ragidx.corpora.records import Scalar
from ragidx.pipelines.cli import console
from ragidx.retriever.hit import Hit

Stem = Callable[[str], str]

_WORD = re.compile(r"\w+")
_SPACE = re.compile(r"\s+")
_START = re.compile(r"(?:^|(?<=[.!?]) +)(?=\S)", re.MULTILINE)
_LEADING_HEADINGS = re.compile(r"\A(?:#{1,6} [^\n]*\n+)+")  # the heading path is shown beside the source
_PASSAGE = 320  # characters
_PROSE, _PROSE_WORDS = 60, 8  # characters and spaces of a line that the next one continues, at least
_PLACES = 2  # of equal passages, that are named
_INDENT = 11
_STOP = frozenset(
    re.findall(
        r"\w+",
        """a about all an and any are as at be by can did do does for from had has have how i in into is it its make
        makes more most of on one or our so than that the their them then they this to was were what when where which
        who why will with you""",
    )
)


def simple_stem(word: str) -> str:
    """Lower case, without a plural s: enough to find the words of a question."""
    return word.lower().removesuffix("s")


def show_hits(
    hits: Sequence[Hit], query: str, stem: Stem = simple_stem, *, full: bool = False, fields: Sequence[str] = ()
) -> None:
    """A table on stdout: rank, scores and source; below it the passage, and where else it is.

    Args:
        hits: best first.
        query: the question; empty for vectors.
        stem: a word to its stem, as the index has it.
        full: the whole passage, not the part that is nearest to the question; a hit's context is always whole.
        fields: metadata to show.
    """
    from rich.cells import cell_len  # loaded where there are hits to show

    room = console.width(sys.stdout) - _INDENT
    cosine = any(hit.dense not in (None, hit.score) for hit in hits)
    bm25 = any(hit.bm25 not in (None, hit.score) for hit in hits)
    head = f" #  score{'  cosine' * cosine}{'   bm25' * bm25}  source"
    click.echo(click.style(head, bold=True))
    wanted = _stems(query, stem)
    for hit in hits:
        parts = _number(hit.dense, "6.3f") * cosine + _number(hit.bm25, "5.2f") * bm25
        whole = hit.text if full and hit.context is None else hit.context
        text, begin = nearest(hit.text, query, stem) if whole is None else (printable_text(whole).strip("\n"), 0)
        place, heading = _source(hit, begin), console.printable(hit.heading)
        head = f"{hit.rank:>2}  {hit.score:5.3f}{parts}  "
        fits = cell_len(f"{head}{place}  › {heading}") <= room + _INDENT
        click.echo(head + click.style(f"{place}  › {heading}" if heading and fits else place, fg="cyan"))
        if heading and not fits:
            click.echo(" " * _INDENT + click.style(f"› {heading}", fg="cyan"))
        shown = [f"{name}: {console.printable(_value(hit.metadata[name]))}" for name in fields if name in hit.metadata]
        if shown:
            click.echo(" " * _INDENT + click.style("  ".join(shown), dim=True))
        for line in wrapped(text, room) if text else ():
            click.echo((" " * _INDENT + highlighted(line, wanted, stem)).rstrip())
        if hit.also:
            click.echo(" " * _INDENT + click.style(_also(hit), dim=True))


def _number(value: float | None, form: str) -> str:
    """A number in its column, which is empty where there is none."""
    shown = format(value or 0, form)
    return "  " + (" " * len(shown) if value is None else shown)


def _value(value: Scalar) -> str:
    """A metadata value as it is read: a list with commas, a time in ISO form."""
    if isinstance(value, list):
        return ", ".join(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def nearest(text: str, query: str, stem: Stem = simple_stem, length: int = _PASSAGE) -> tuple[str, int]:
    """The part of a chunk that shares the most words with the query, about `length` characters, whole words.

    It begins with a line or a sentence, if any such part has a word of the query, and holds one whole if it fits.

    Returns:
        It, and where in the text it begins; 0 where all of the text is shown.
    """
    whole = printable_text(_LEADING_HEADINGS.sub("", text)).strip("\n")
    if len(whole) <= length:
        return whole, 0
    wanted = _stems(query, stem)
    stems = {word: stem(word.lower()) for word in set(_WORD.findall(whole))}
    matches = [(*match.span(), stems[match[0]]) for match in _WORD.finditer(whole) if stems[match[0]] in wanted]
    starts = [match.end() for match in _START.finditer(whole)] or [0]
    best = _best_start(starts, matches, length)
    end = best + length
    if matches and not any(best <= first and last <= end for first, last, _ in matches):  # in a long line or sentence
        first = matches[0][0]
        earliest = max(0, first - length // 2)
        best = next((match.end() for match in _SPACE.finditer(whole, earliest, first)), min(earliest, first))
        end = best + length
    if end >= len(whole):  # its end: from the first line or sentence that lets all of it be shown, else from a word
        end, earliest = len(whole), len(whole) - length
        nearest = min(best, earliest + length // 2)
        word = next((match.end() for match in _SPACE.finditer(whole, earliest, best)), earliest)
        best = next((start for start in starts if earliest <= start <= nearest), word)
    else:
        inside = [last for first, last, _ in matches if best <= first and last <= end]
        cut = max(whole.rfind(" ", best, end), whole.rfind("\n", best, end), *inside[-1:])
        end = cut if cut > best else end
    shown = f"{'… ' if best else ''}{whole[best:end].rstrip()}{' …' if end < len(whole) else ''}"
    return shown, _begin(text, sum(1 for _ in _WORD.finditer(whole, 0, best))) if best else 0


def _begin(text: str, n_words: int) -> int:
    """Where the word after so many begins; what is printed differs from the text between words alone."""
    headings = _LEADING_HEADINGS.match(text)
    words = _WORD.finditer(text, headings.end() if headings else 0)
    return next((word.start() for word in itertools.islice(words, n_words, None)), 0)


def printable_text(text: str) -> str:
    """The lines of a text without control characters and without runs of empty lines; tabs are four spaces.

    Lines of prose that were broken at a fixed width are joined to paragraphs.
    """
    kept: list[str] = []
    before = ""  # the line before, as the text has it
    for raw in text.splitlines():
        line = console.printable_lines(raw.expandtabs(4)).rstrip()
        if kept and _is_prose(before) and line[:1].isalnum():
            kept[-1] += f" {line}"
        elif line or (kept and kept[-1]):
            kept.append(line)
        before = line
    return "\n".join(kept)


def _is_prose(line: str) -> bool:
    """Whether a line is of running text that continues: long, of many words, not indented and no part of a table."""
    return len(line) >= _PROSE and line.count(" ") >= _PROSE_WORDS and line[0].isalpha() and "  " not in line


def wrapped(text: str, room: int) -> list[str]:
    """The lines of a text, each in as many as it needs."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line] if len(line) <= room else textwrap.wrap(line, room, break_on_hyphens=False) or [""]
    return lines


def highlighted(line: str, wanted: set[str], stem: Stem) -> str:
    """A line with the words that have one of these stems in bold; click removes it where there is no terminal."""
    return _WORD.sub(
        lambda found: click.style(found[0], bold=True) if stem(found[0].lower()) in wanted else found[0], line
    )


def _stems(query: str, stem: Stem) -> set[str]:
    """Of the words of a question that are not among the commonest."""
    return {stem(word) for word in map(str.lower, _WORD.findall(query)) if word not in _STOP}


def _source(hit: Hit, begin: int) -> str:
    """Document and place of what is shown of it; of precomputed vectors the row's own id, too."""
    source = console.printable(hit.doc_id)
    line, page = hit.position(begin)
    if page is not None:
        source += f"#page={page}"
    elif line is not None:
        source += f":{line}"
    elif hit.start:
        source += f"  {hit.start:,}-{hit.end:,}"
    if hit.chunk_id not in (hit.doc_id, f"{hit.doc_id}:{hit.start}-{hit.end}"):
        source += f"  row {console.printable(hit.chunk_id)}"
    return source


def _also(hit: Hit) -> str:
    """Where else the passage is."""
    named = list(dict.fromkeys(span.doc_id for span in hit.also if span.doc_id != hit.doc_id))
    if not named:
        return f"also {console.plural(len(hit.also), 'time')} more in this document"
    shown = ", ".join(console.printable(name) for name in named[:_PLACES])
    more = len(named) - _PLACES
    return f"also in {shown}" + (f" and {console.plural(more, 'more document')}" if more > 0 else "")


def _best_start(starts: Sequence[int], matches: Sequence[tuple[int, int, str]], length: int) -> int:
    """The first of the starts with the most letters of different words in the `length` characters from there.

    Args:
        starts: rising.
        matches: begins, ends and words, rising.
        length: of the window.
    """
    begins, ends = [begin for begin, _, _ in matches], [end for _, end, _ in matches]

    def letters(start: int) -> int:
        inside = matches[bisect.bisect_left(begins, start) : bisect.bisect_right(ends, start + length)]
        return sum(map(len, {word for _, _, word in inside}))

    return max(starts, key=letters)
