"""What of an HTML page is its text: navigation, notices and everything around the main part are dropped.

    body of a parsed page -> the element to read, and the elements in it to pass over

Elements are known by `mem_id`: comparing two nodes with `==` would write both out as HTML. How text is written is not
known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from selectolax.lexbor import LexborNode

_DROPPED = """
    script style nav aside noscript template head svg math iframe object canvas audio video button select input textarea
    [hidden] [aria-hidden="true"]
"""
_ROLES = "navigation banner contentinfo search complementary dialog menu toolbar"
_DROPPED_CSS = ", ".join([*_DROPPED.split(), *(f'[role="{role}"]' for role in _ROLES.split())])
_FRAMES = ("header", "footer")  # of the page; one of an article is text
_FRAMES_CSS = ", ".join(_FRAMES)
_KEPT_FRAMES_CSS = ", ".join(f"{outer} {frame}" for outer in ("main", "article", "section") for frame in _FRAMES)
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


def readable(body: LexborNode) -> tuple[LexborNode, Set[int]]:
    """The part of a page that is its text: an element, and what in it is none.

    An element whose class names a notice or navigation goes if it has few words, or at most 30 % of the page's. What is
    around the only main part goes if that has 25 % of the words.
    """
    dropped = _selected(body, _DROPPED_CSS)
    mains: dict[str, list[tuple[LexborNode, int]]] = {_MAIN: [], _ROLE_MAIN: [], _ARTICLE: []}
    notices: list[tuple[int, int]] = []
    before: list[tuple[int, int]] = []  # of each open element: words and main parts that came before it
    n_words = n_mains = n_code = 0
    for node, begins in walk(body, dropped):
        if node.is_text_node:
            n_words += len((node.text_content or "").split()) if begins else 0
        elif begins:
            before.append((n_words, n_mains))
            n_mains += bool(_kind_of_main(node))
            n_code += node.tag in _CODE
        else:
            words_before, mains_before = before.pop()
            n_code -= node.tag in _CODE
            if kind := _kind_of_main(node):
                mains[kind].append((node, n_words - words_before))
            elif n_mains == mains_before and not n_code and _is_notice(node):
                notices.append((node.mem_id, n_words - words_before))
    few = max(_FEW_WORDS - 1, _MOST_SHARE * n_words)
    dropped |= {mem_id for mem_id, count in notices if count <= few}
    dropped |= _selected(body, _FRAMES_CSS) - _selected(body, _KEPT_FRAMES_CSS)
    found = next((elements for elements in mains.values() if elements), [])
    is_main = len(found) == 1 and found[0][1] >= _LEAST_MAIN * n_words
    return found[0][0] if is_main else body, dropped


def walk(root: LexborNode, dropped: Set[int]) -> Iterator[tuple[LexborNode, bool]]:
    """Each node in an element where it begins, with True, and where it ends, with False."""
    node = root.first_child
    while node is not None:
        if node.mem_id not in dropped:
            yield node, True
            if node.first_child is not None:
                node = node.first_child
                continue
            yield node, False
        while node.next is None:
            node = node.parent
            if node is None or node.mem_id == root.mem_id:
                return
            yield node, False
        node = node.next


def _selected(body: LexborNode, css: str) -> set[int]:
    return {node.mem_id for node in body.css(css)}


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
