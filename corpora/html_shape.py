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
        UnreadableError: its elements nest too deep, or a list of choices is too long.
    """
    html = _without_unread(html)
    if html.count("<") > min(MAX_DEPTH, MAX_OPTIONS):
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
        # A comment may be as short as <!-->, so its end is looked for from within its start.
        end = re.compile(rf"</{name}[^>]*>", re.IGNORECASE).search(html, start.end()) if name else None
        close = end.end() if end else (0 if name else html.find("-->", start.end() - 2) + 3)
        if close < start.end():
            endless.add(name)
            continue
        parts.append(html[after : start.start()])
        after = close
    return "".join([*parts, html[after:]])


def _check(html: str) -> None:
    depth = options = 0
    for closing, tag in _TAG.findall(html):
        name = tag.lower()
        options += name == "option"
        if name not in _UNNESTED:
            depth = max(0, depth - 1) if closing else depth + 1
        if depth > MAX_DEPTH:
            raise UnreadableError(f"nested deeper than {MAX_DEPTH} elements")
        if options > 2 * MAX_OPTIONS:  # each is seen twice, where it ends
            raise UnreadableError(f"a list of more than {MAX_OPTIONS} options")
