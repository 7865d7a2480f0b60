"""What an HTML page may cost its parser, judged before it sees the page.

    page -> None, or its text without structure

An end tag is compared with each open element, an attribute with those before it, and so is an option of a `select`:
that is quadratic where a page has very many. The elements that are open at each tag are counted here as a parser would
nest them. A page made to be miscounted is left to the limits of the process that reads it.
"""

from __future__ import annotations

import re
from collections import Counter

_VOID = """
    area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr html head body
"""
_IMPLIED = "p li dd dt option optgroup colgroup rt rp rb rtc"  # one ends where the next of its kind begins
VOID_TAGS = frozenset(_VOID.split())  # and those that a page has once
_UNCOUNTED = VOID_TAGS | frozenset(_IMPLIED.split())
_TABLE_PARTS = frozenset({"td", "th", "tr", "tbody", "thead", "tfoot", "caption"})
_WALLS = frozenset({"table", "td", "th", "caption", "applet", "marquee", "object", "template"})
"""No end tag crosses one of these."""
_BLOCKS = """
    address article aside blockquote button center details dialog dir div dl fieldset figcaption figure footer form h1
    h2 h3 h4 h5 h6 header hgroup li main menu nav ol pre search section select summary ul
"""
_BLOCK_TAGS = frozenset(_BLOCKS.split())
_ENDS_BLOCK = _BLOCK_TAGS | _WALLS | _TABLE_PARTS | {"p", "br", "dd", "dt", "option", "hr"}
_ATTRIBUTES = r"""(?:[^>=]++|=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z))?)*+>?"""
_TOKEN = re.compile(
    rf"<(?:!--(?:-?>|.*?(?:--!?>|\Z))"
    rf"|(?P<raw>script|style|textarea|title|xmp|iframe|noembed|noframes)(?=[\s/>]){_ATTRIBUTES}"
    r"(?P<inner>.*?)(?:(?=</(?P=raw)[\s/>])|\Z)"
    rf"|(?P<end>/?)(?P<name>[a-z][^\s/>]*+){_ATTRIBUTES})",
    re.IGNORECASE | re.DOTALL,
)
_NAME = re.compile(r"<(/?[a-z][^\s/>]*+)")
_PASSED_OVER = _UNCOUNTED | {f"/{name}" for name in _UNCOUNTED}
_SLOPPY = 500  # open elements
_LONG = re.compile(r"<[a-zA-Z][^<>]{1000}")
_QUOTED = re.compile(r"\"[^\"]*+\"|'[^']*+'")
_UNREAD = frozenset({"script", "style", "iframe", "noembed", "noframes"})

_LEAST_WORK, _WORK_OF_TAG = 2_000_000, 64  # open elements at all tags together; ordinary pages have 10 to 20 a tag
_LONG_TAG, _MOST_ATTRIBUTES = 1_000, 1_000
_MOST_OPTIONS = 10_000


def flattened(html: str) -> str | None:
    """A page of line breaks alone, in place of one that would take its parser long; None of any other."""
    return _flat(html) if (_looks_costly(html) and _is_costly(html)) or _has_long_choice(html) else None


def _has_long_choice(html: str) -> bool:
    """Whether a `select` has very many options: with each, the parser looks at all before it."""
    if html.count("<option") + html.count("<OPTION") <= _MOST_OPTIONS:
        return False
    return max(part.count("<option") for part in html.lower().split("</select")) > _MOST_OPTIONS


def _looks_costly(html: str) -> bool:
    """Whether a page is worth counting: elements that are not closed in their turn, or a long tag."""
    if _LONG.search(html):
        return True
    if html.count("<") <= _SLOPPY:
        return False
    stack: list[str] = []
    for name in _NAME.findall(html.lower()):
        if name in _PASSED_OVER:
            continue
        if stack and stack[-1] == name:
            del stack[-1]
        elif name[0] != "/":
            stack.append(f"/{name}")
            if len(stack) > _SLOPPY:
                return True
    return False


def _is_costly(html: str) -> bool:
    """Whether elements nest so deep, or a tag has so many attributes, that parsing is no longer linear."""
    stack: list[str] = []
    opened: Counter[str] = Counter()
    work = 0
    for n_tags, token in enumerate(_TOKEN.finditer(html)):
        begin, end = token.span()
        if token["name"] is None:
            continue
        if end - begin > _LONG_TAG and _n_attributes(token[0]) > _MOST_ATTRIBUTES:
            return True
        work += len(stack)
        if work > _LEAST_WORK + _WORK_OF_TAG * n_tags:
            return True
        name = token["name"].lower()
        if token["end"]:
            if opened[name]:
                _close(stack, opened, name)
        elif name not in _UNCOUNTED:
            if name in _TABLE_PARTS:
                _clear_to_table(stack, opened)
            if html[end - 2 : end] != "/>" or not (opened["svg"] or opened["math"]):
                stack.append(name)
                opened[name] += 1
    return False


def _close(stack: list[str], opened: Counter[str], name: str) -> None:
    """Take an element and what is open in it off the stack, where its end tag ends it."""
    at = len(stack) - 1
    # No end tag crosses a table; one of a span crosses no block.
    walls = _WALLS if name in _BLOCK_TAGS or name in _WALLS or name in _TABLE_PARTS else _WALLS | _BLOCK_TAGS
    while at >= 0 and stack[at] != name:
        if stack[at] in walls and not (name == "table" and stack[at] in _TABLE_PARTS):
            return
        at -= 1
    _cut(stack, opened, max(at, 0))


def _clear_to_table(stack: list[str], opened: Counter[str]) -> None:
    """End what is open in a table, since a row or a cell of it begins."""
    if opened["table"]:
        _cut(stack, opened, len(stack) - stack[::-1].index("table"))


def _cut(stack: list[str], opened: Counter[str], at: int) -> None:
    for name in stack[at:]:
        opened[name] -= 1
    del stack[at:]


def _n_attributes(tag: str) -> int:
    """At least the number of attributes of a tag."""
    bare = _QUOTED.sub("", tag)
    return max(len(bare.split()), bare.count("/"), bare.count("="))


def _flat(html: str) -> str:
    parts: list[str] = []
    at = 0
    for found in _TOKEN.finditer(html):
        parts.append(html[at : found.start()].replace("<", "&lt;"))
        at = found.end()
        raw, name = found["raw"], found["name"]
        if raw is not None and raw.lower() not in _UNREAD:
            parts.append(found["inner"].replace("<", "&lt;"))
        elif name is not None and name.lower() in _ENDS_BLOCK and parts[-1:] != ["<br>"]:
            parts.append("<br>")
    parts.append(html[at:].replace("<", "&lt;"))
    return f"<body>{''.join(parts)}"
