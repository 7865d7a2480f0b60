"""HTML before it is parsed: what no reader reads is cut out, and what would take minutes to parse is refused.

    HTML text -> the same without comments, scripts, styles, drawings and lists of choices

The parser walks up the open elements at each tag, and through all options of a list at each option: 200,000 of either
take minutes. This is a scan of the text in linear time, no parser; a page that it misreads loses no more than such a
part.
"""

from __future__ import annotations

import re

from ragidx.corpora.limits import UnreadableError

MAX_DEPTH = 2_000  # elements inside one another
MAX_OPTIONS = 10_000  # of lists that have no end
MAX_ATTRIBUTES = 5_000  # of one tag

_SMALL_CHARS = 3 * MAX_DEPTH  # no room for any of them

_UNREAD = re.compile(r"<!--|<(script|style|svg|math|select)(?=[\s/>])", re.IGNORECASE)
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)")
_UNNESTED_TAGS = """
    area base br col embed hr img input link meta source track wbr p li dt dd tr td th thead tbody tfoot option html
    head body
"""
_UNNESTED = frozenset(_UNNESTED_TAGS.split())  # without an end, or ended by the next of their kind


def parseable(html: str) -> str:
    """A page that the parser reads in bounded time, with all of its text.

    Raises:
        UnreadableError: its elements nest too deep, a list of choices or a tag is too long.
    """
    html = _without_unread(html)
    if len(html) > _SMALL_CHARS:
        _check(html)
    return html


def _without_unread(html: str) -> str:
    parts = []
    after = 0
    endless: set[str] = set()  # looked for once to the end of the page, and not again
    for start in _UNREAD.finditer(html):
        name = (start[1] or "").lower()
        if start.start() < after or name in endless:
            continue
        close = _end(html, start.end(), name)
        if close == 0:
            endless.add(name)
            continue
        parts.append(html[after : start.start()])
        after = close
    return "".join([*parts, html[after:]])


def _end(html: str, start: int, name: str) -> int:
    """Where an element, or a comment for an empty name, ends that was opened just before `start`; 0: nowhere."""
    if not name:  # a comment may be as short as <!-->: its end is looked for from within its start
        end = html.find("-->", start - 2)
        return end + 3 if end >= 0 else 0
    closing = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(html, start)
    return html.find(">", closing.end()) + 1 if closing else 0


def _check(html: str) -> None:
    depth = options = after = 0
    for tag in _TAG.finditer(html):
        name, closes = tag[2].lower(), bool(tag[1])
        options += name == "option" and not closes
        if name not in _UNNESTED:
            depth = max(0, depth - 1) if closes else depth + 1
        if depth > MAX_DEPTH:
            raise UnreadableError(f"nested deeper than {MAX_DEPTH} elements")
        if options > MAX_OPTIONS:
            raise UnreadableError(f"a list of more than {MAX_OPTIONS} options")
        if tag.start() >= after:
            after = html.find(">", tag.end()) + 1 or len(html)
            if after - tag.end() > MAX_ATTRIBUTES and len(html[tag.end() : after].split()) > MAX_ATTRIBUTES:
                raise UnreadableError(f"a tag of more than {MAX_ATTRIBUTES} attributes")
