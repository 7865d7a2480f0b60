"""Headings of a Markdown text, and the sections that they open.

text -> Section(start, body, path): offsets in characters, the path of titles from the outermost level to this one.
ATX (`## Title`) and setext (`===` or `---` below a paragraph) headings as in CommonMark 0.31, sections 4.2 and 4.3, at
the outermost level: text in fenced or indented code, a comment, a quotation, a list or the front matter is not a
heading. Titles are kept as written (inline markup included), cut to `TITLE_CHARS` characters. Linear time.

Of documents of any kind: what a title is on one line, and whether a text begins with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SEPARATOR = " > "
"""Between the levels of a heading path."""

TITLE_CHARS = 200
"""A title is cut here: a path is repeated for every chunk below it, and a line of 10 MB may begin with `#`."""

_TOP_CHARS = 1 << 16  # where a title is looked for
_MARKS_CHARS = 100  # in front of a title and in it, at most

_WORD = re.compile(r"\w+")
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)?")
_ATX = re.compile(r" {0,3}(#{1,6})(?![^ \t])")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*\Z")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_INDENTED = re.compile(r"(?: {4}| {0,3}\t)")
_CONTAINER = re.compile(r" {0,3}(?:[<>]|([-+*]|\d{1,9}[.)])(?:[ \t]|\Z))")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document, from one heading to the next."""

    start: int  # first character of the heading
    body: int  # first character after the heading's last line
    path: str  # "Title > Section"; empty before the first heading
    level: int = 0  # of the heading, 1 to 6; 0 before the first


def sections(text: str) -> list[Section]:
    r"""The sections of a Markdown text, in order; they tile it, and the first starts at 0.

    >>> [(section.start, section.path) for section in sections("intro\n# A\n## B #\ntext\n# C")]
    [(0, ''), (6, 'A'), (10, 'A > B'), (22, 'C')]
    """
    found = [Section(0, 0, "")]
    above: list[tuple[int, str]] = []
    for start, body, level, title in _headings(text):
        above = [(depth, name) for depth, name in above if depth < level]
        if title:
            above.append((level, title))
        if start == 0:
            found.clear()
        found.append(Section(start, body, SEPARATOR.join(name for _, name in above), level))
    return found


def first_heading(text: str) -> str:
    r"""The first title among the first 65,536 characters of a Markdown text; empty if there is none.

    >>> first_heading("intro\n\n## Lakes ##\n# Seas")
    'Lakes'
    """
    return next((title for *_, title in _headings(text[:_TOP_CHARS]) if title), "")


def one_line_title(text: str) -> str:
    """A title on one line, of at most `TITLE_CHARS` characters."""
    # A setext heading may be a paragraph of any length: only what can be kept is looked at.
    title = " ".join(text[: 4 * TITLE_CHARS].split())
    return title if len(title) <= TITLE_CHARS else title[: TITLE_CHARS - 1].rstrip() + "…"


def begins_with(text: str, title: str) -> bool:
    """Whether a text begins with the words of a title, whatever marks are around and between them.

    >>> begins_with("# **Sea** walls. They ...", "Sea walls"), begins_with("Seaside", "Sea"), begins_with("Sea", "?")
    (True, False, False)
    """
    words = _WORD.findall(title.casefold())
    if title.endswith("…"):  # the last word may be cut
        words = words[:-1]
    # Marks in front, such as those of a link, are no part of the title.
    found = _WORD.findall(text[: 2 * len(title) + _MARKS_CHARS].casefold())
    return bool(words) and found[: len(words)] == words


def _headings(text: str) -> Iterator[tuple[int, int, int, str]]:
    """(start, body, level, title) of every heading."""
    paragraph = -1  # where the open paragraph starts; -1: none is open
    in_container = False  # whether that paragraph belongs to a quotation, a list or HTML: `---` below it is a rule
    list_indent = 0  # columns before the text of the open list; 0: none is open
    for start, end, line in _open_lines(text):
        blank = not line.strip(" \t")
        in_list = 0 < list_indent <= len(line) - len(line.lstrip(" "))
        atx = _ATX.match(line)
        ends = blank or _RULE.match(line)
        container = _CONTAINER.match(line)
        underline = _UNDERLINE.match(line) if paragraph >= 0 and not in_container else None
        if not (blank or in_list) and (atx or ends or paragraph < 0):
            list_indent = 0  # text further left closes a list, except if it continues an open paragraph
        if atx:
            if not in_list:
                yield start, end, len(atx[1]), one_line_title(_without_closing(line[atx.end() :]))
            paragraph = -1
        elif underline:
            yield paragraph, end, 1 if "=" in underline[1] else 2, one_line_title(text[paragraph:start])
            paragraph = -1
        elif ends:
            paragraph = -1
        elif container:
            if not in_list:
                list_indent = container.end() if container[1] else 0
            paragraph, in_container = start, True
        elif paragraph < 0 and (in_list or not _INDENTED.match(line)):
            paragraph, in_container = start, in_list


def _open_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, line) of the lines that may be headings; each hidden line yields a blank one."""
    closing = _front_matter_end(text)
    fence = ""  # the mark that opened the current code block
    in_comment = False
    for match in _LINE.finditer(text, closing):
        start, end = match.span()
        line = text[start:end].rstrip("\r\n")
        opened = _FENCE.match(line)
        if in_comment:
            in_comment = "-->" not in line
        elif fence:
            if opened and opened[1].startswith(fence) and not line[opened.end() :].strip(" \t"):
                fence = ""
        elif opened and not (opened[1][0] == "`" and "`" in line[opened.end() :]):
            fence = opened[1]
        elif line.lstrip(" ").startswith("<!--"):
            in_comment = "-->" not in line
        else:
            yield start, end, line
            continue
        yield start, end, ""


def _front_matter_end(text: str) -> int:
    """Where the text starts after a `---` block at its top (YAML, not CommonMark); 0 if there is none."""
    opening = re.match(r"---[ \t]*\r?\n", text)
    closing = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?$", re.MULTILINE).search(text, opening.end()) if opening else None
    return closing.end() if closing else 0


def _without_closing(title: str) -> str:
    """`Title ##` without its closing hashes, which need white space before them."""
    title = title.strip(" \t")
    bare = title.rstrip("#")
    return title if bare and bare[-1] not in " \t" else bare
