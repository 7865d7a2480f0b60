"""What of an HTML page is its text: the main part, without navigation, notices and what no browser shows.

    parsed page -> Rules: the main part, the elements to pass over, each with a kind of `left.KINDS`

A class names navigation or a notice by a whole known name, never by a word inside another: `share-price` is text.
Elements are known by `mem_id`: comparing two nodes with `==` would write both out as HTML. How text is written is not
known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode

from ragidx.corpora.left_out import Tally

NAVIGATION, NOTICES, AROUND = "words of navigation", "words of notices", "words around the main part"
_HIDDEN = "hidden words"

_ALWAYS = {
    "ruby readings": "rt, rp, rtc",
    "words of alternative texts": "svg desc, svg metadata",
    "words of tooltips": "svg title",
    "words of fallbacks": "noscript, canvas, video, audio, object, iframe, noembed, noframes",
    "formulas in other notations": "annotation, annotation-xml",
}
"""What goes of any page; scripts and templates do, too."""
_ANY_CSS = ", ".join(_ALWAYS.values())

_NAVIGATION_CSS = "nav, " + ", ".join(
    f'[role="{role}"]' for role in ("navigation", "menu", "menubar", "toolbar", "search")
)
_NAVIGATION_NAMES = """
    breadcrumb breadcrumbs headerlink anchor-link anchorjs-link main-menu nav nav-menu navbar navigation pager
    page-numbers pagination site-nav skip-link skip-links skip-nav skip-to-content skiplink sphinxsidebar toc
    table-of-contents tableofcontents
"""
_NOTICE_NAMES = """
    ad ads adsbygoogle advert advertisement cc-banner cc-window consent-banner consent-popup cookie-banner cookie-bar
    cookie-consent cookie-law-info-bar cookie-message cookie-notice cookie-popup cookiebanner cookies copybtn
    copy-button gdpr gdpr-banner newsletter newsletter-form newsletter-popup newsletter-signup promo related-articles
    related-links related-posts share share-bar share-buttons share-icons share-links sharedaddy sharing sidebar social
    social-icons social-links social-media social-share
"""
_HIDDEN_NAMES = "screen-reader-text sr-only visually-hidden visuallyhidden"
_BY_ID = ("div:not(.section)", "ul", "form")  # an id elsewhere is the place of a heading, made of its words
_NEVER = frozenset({"main", "article", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "code", "dt", "td", "th", "body"})
_INSIDE = "main, article, [role=main]"
_MOST_SHARE, _FEW_WORDS = 0.3, 40
_NOT_SHOWN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_MAINS = ("main", '[role="main"]', "article")  # in this order

_ATTRIBUTES = {
    "words of alternative texts": ("alt", "img, area, input"),
    "words of tooltips": ("title", "*"),
    "words of form fields": ("placeholder", "input, textarea"),
}
_LINKS_CSS = 'a[href]:not([href^="#"]), area[href]:not([href^="#"])'
_FILLED = 'input[value]:not([type="hidden"]):not([type="checkbox"]):not([type="radio"])'


def _by_names(names: str) -> str:
    each = names.split()
    return ", ".join([*(f".{name}" for name in each), *(f"{tag}#{name}" for tag in _BY_ID for name in each)])


_NAVIGATION_NAMES_CSS, _NOTICE_CSS, _HIDDEN_CSS = map(_by_names, (_NAVIGATION_NAMES, _NOTICE_NAMES, _HIDDEN_NAMES))


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one page, by `mem_id`."""

    dropped: Mapping[int, str]  # what goes, with its kind
    named: Mapping[int, str]  # what goes if it has few words
    few: float
    main: int  # what may be the main part; 0: nothing may


def rules_of(tree: LexborHTMLParser, body: LexborNode, left: Tally, *, whole: bool) -> Rules:
    """What of a page is not its text. Scripts are cut out of it.

    An element whose class names a notice or navigation goes if it has few words, or at most 30 % of the page's.

    Args:
        tree: the parsed page.
        body: the body of the page.
        left: tally of what is no element, or has no words.
        whole: navigation, notices and what is around the main part stay.
    """
    left.leave("scripts", len(tree.css("script, style")))
    tree.strip_tags(["script", "style"])
    left.leave("templates", len(body.css("template")))
    _count_attributes(body, left)
    dropped: dict[int, str] = {}
    if body.css_first(_ANY_CSS) is not None:  # each selection is read anew, which takes longer than a short page
        left.leave("embedded objects", len(body.css("iframe[srcdoc]")))
        dropped |= {node.mem_id: kind for kind, css in _ALWAYS.items() for node in body.css(css)}
    hidden = (node for node in body.css("[style]") if _NOT_SHOWN.search(node.attributes.get("style") or ""))
    dropped |= {node.mem_id: _HIDDEN for node in hidden}
    if whole:
        return Rules(dropped, {}, 0, 0)
    kinds = ((NAVIGATION, _NAVIGATION_NAMES_CSS), (NOTICES, _NOTICE_CSS), (_HIDDEN, _HIDDEN_CSS))
    named: dict[int, str] = {}
    if body.css_first("[class], [id]") is not None:
        named = {node.mem_id: kind for kind, css in kinds for node in body.css(css) if node.tag not in _NEVER}
    few = max(_FEW_WORDS - 1, _MOST_SHARE * n_words(body)) if named else 0
    dropped |= {node.mem_id: NAVIGATION for node in body.css(_NAVIGATION_CSS) if node.tag not in _NEVER}
    mains = next((found for css in _MAINS if (found := body.css(css))), [])
    return Rules(dropped, named, few, mains[0].mem_id if len(mains) == 1 else 0)


def is_notice(node: LexborNode, few: float) -> bool:
    """Whether an element that is named so is a notice or navigation: it has few words, and no main part."""
    return n_words(node) <= few and node.css_first(_INSIDE) is None


def n_words(node: LexborNode) -> int:
    """How many words are in the text nodes of an element."""
    return len(node.text(separator=" ").split())


def _count_attributes(body: LexborNode, left: Tally) -> None:
    """Count addresses of links, and the words in attributes that a page shows beside its text."""
    left.leave("addresses of links", len(body.css(_LINKS_CSS)))
    if body.css_first("[alt], [title], [placeholder], [value]") is None:
        return
    for kind, (name, tags) in _ATTRIBUTES.items():
        nodes = body.css(", ".join(f"{tag}[{name}]" for tag in tags.split(", ")))
        left.leave(kind, sum(len((node.attributes.get(name) or "").split()) for node in nodes))
    values = (node.attributes.get("value") or "" for node in body.css(_FILLED))
    left.leave("words of form fields", sum(len(value.split()) for value in values))
