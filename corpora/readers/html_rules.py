"""What of an HTML page is its text: navigation, notices and everything around the main part are left out.

    root of a parsed page -> Readable(root, dropped), the element to read and the elements in it to pass over

Elements are known by `mem_id`. How text is written is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from selectolax.lexbor import LexborNode

_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "complementary", "dialog", "menu", "toolbar"})
_WORDS = """
    cookie consent gdpr newsletter share social breadcrumb sidebar related pagination skip[-_]?link headerlink toc menu
    nav navbar footer comment ad promo modal help[-_]popup help[-_]container sr[-_]only copybtn
"""
_NOTICE = re.compile(rf"(?:^|[\s_-])(?:{'|'.join(_WORDS.split())})s?(?:$|[\s_-])", re.IGNORECASE)
_CODE = ("pre", "code")  # in it a comment is one of the programmer
_NEVER = frozenset({"main", "article", "h1", "h2", "h3", "h4", "h5", "h6", *_CODE, "dt", "td", "th"})
_BY_ID = frozenset({"div", "ul", "form"})  # an id elsewhere is the place of a heading, made of its words
_MOST_SHARE, _FEW_WORDS = 0.3, 40
_LEAST_MAIN = 0.25
_MAIN, _ROLE_MAIN, _ARTICLE = "main", "role", "article"  # in this order


@dataclass(frozen=True, slots=True)
class Readable:
    """What is read of a page."""

    root: LexborNode
    dropped: frozenset[int]


@dataclass(slots=True)
class _Element:
    """An element on the way down, and what was counted in it."""

    node: LexborNode
    words: int = 0
    holds_main: bool = False


def readable(root: LexborNode, is_dropped: Callable[[LexborNode], bool]) -> Readable:
    """The part of a page that is its text.

    An element whose class names a notice or navigation goes if it has few words, or at most 30 % of the page's. What is
    around the only main part goes if that has 25 % of the words.

    Args:
        root: the body.
        is_dropped: whether an element is left out whatever it holds; it is not looked into.
    """
    notices: list[_Element] = []
    mains: dict[str, list[_Element]] = {_MAIN: [], _ROLE_MAIN: [], _ARTICLE: []}
    dropped: set[int] = set()
    path = [_Element(root)]
    node = root.first_child
    while True:
        if node is None:
            done = path.pop()
            if not path:
                break
            path[-1].words += done.words
            path[-1].holds_main |= done.holds_main
            node = done.node.next
        elif node.is_text_node:
            path[-1].words += len((node.text_content or "").split())
            node = node.next
        elif is_dropped(node) or _is_beside(node):
            dropped.add(node.mem_id)
            node = node.next
        else:
            element = _Element(node)
            kind = _kind_of_main(node)
            if kind:
                mains[kind].append(element)
                element.holds_main = True
            if _is_notice(node) and not any(above.node.tag in _CODE for above in path):
                notices.append(element)
            path.append(element)
            node = node.first_child
    total = done.words
    few = max(_FEW_WORDS - 1, _MOST_SHARE * total)
    dropped.update(element.node.mem_id for element in notices if element.words <= few and not element.holds_main)
    found = next((elements for elements in mains.values() if elements), [])
    is_main = len(found) == 1 and found[0].words >= _LEAST_MAIN * total
    return Readable(found[0].node if is_main else root, frozenset(dropped))


def _is_beside(node: LexborNode) -> bool:
    attributes = node.attributes
    return attributes.get("role") in _ROLES or attributes.get("aria-hidden") == "true"


def _kind_of_main(node: LexborNode) -> str:
    if node.tag in (_MAIN, _ARTICLE):
        return str(node.tag)
    return _ROLE_MAIN if node.attributes.get("role") == "main" else ""


def _is_notice(node: LexborNode) -> bool:
    attributes = node.attributes
    names = attributes.get("class") or ""
    if node.tag in _BY_ID and "section" not in names.split():
        names = f"{names} {attributes.get('id') or ''}"
    return node.tag not in _NEVER and _NOTICE.search(names) is not None
