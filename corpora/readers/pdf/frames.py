"""Running heads and feet of the pages of a PDF: equal lines stay once, numbers of pages go.

    lines of all pages -> the same without lines that repeat at their top or foot; what goes is counted

A line with other words or numbers is content, as in invoices, one a page. What counts up with the page is its number
where it stands alone, or beside "page" and the like.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Sequence

from ragidx.corpora.left_out import Tally
from ragidx.corpora.readers.pdf.tables import APART, CELLS

_LINES = 2  # at the top and at the foot, where they are looked for
_CHARS = 300  # of a running line
_PAGES = 4  # of fewer, equal lines may be three letters, or three parts of a form
_WORDS = "pages?|pag|pp?|seiten?|s|página|pagina|pág|folio|fol|strona|str|sida|side|sivu|blatt|стр|страница|σελίδα|صفحة"
_COUNT = r"(?P<n>\d{1,6})(?:\s*(?:of|/|von|de|di|du|sur|van|av|af|z|ze|из|iz)\s*(?P<all>\d{1,6}))?"
_ALONE = re.compile(rf"\W*(?:(?:{_WORDS})\b\.?\s*)?{_COUNT}\W*", re.I)
_BEHIND = re.compile(rf"[\s\-–—|,·•(]*\b(?:{_WORDS})\b\.?\s*{_COUNT}\W*$", re.I)
_EAST = re.compile(r"\W*第?\s*(?P<n>\d{1,6})\s*(?:[页頁쪽]|ページ)(?P<all>)\W*")
_CUT = re.compile(f"{APART}|{re.escape(CELLS)}")


def drop_frames(pages: Sequence[list[str]], left: Tally) -> None:
    """Take the lines out of `pages` (a page of a scan has none)."""
    filled = [(number, lines) for number, lines in enumerate(pages, start=1) if any(lines)]
    if len(filled) < _PAGES:
        return
    ends = [(number, lines, foot) for number, lines in filled for foot in (False, True)]
    offsets = Counter(
        int(found["n"]) - number
        for number, lines, foot in ends
        for at in _places(lines, foot=foot)
        for part in _CUT.split(lines[at])
        if (found := _number(part)) is not None
    )
    offset, n_alike = max(offsets.items(), key=lambda each: (each[1], -abs(each[0])), default=(0, 0))
    offset = offset if 2 * n_alike > len(filled) else 0
    totals = {"", str(len(pages)), str(len(pages) + offset)}
    for foot in (False, True):
        keyed = [
            (number, lines, {at: _key(lines[at], number + offset, totals) for at in _places(lines, foot=foot)})
            for number, lines in filled
        ]
        counts = Counter(key for _, _, keys in keyed for key in set(keys.values()))
        seen: set[str] = set()
        for number, lines, keys in keyed:
            gone = {at for at, key in keys.items() if 2 * counts[key] > len(filled) and (key in seen or not key)}
            seen |= set(keys.values())
            place = f"#page={number}"
            left.leave("page numbers", sum(not keys[at] for at in gone), place)
            left.leave("repeated lines", sum(bool(keys[at]) for at in gone), place)
            lines[:] = [line for at, line in enumerate(lines) if at not in gone]


def _places(lines: Sequence[str], *, foot: bool) -> list[int]:
    """Where the first or the last lines of a page are that may be running ones: long ones are not."""
    places = [at for at, line in enumerate(lines) if line.strip()]
    return [at for at in (places[-_LINES:] if foot else places[:_LINES]) if len(lines[at]) <= _CHARS]


def _number(text: str) -> re.Match[str] | None:
    """A text that may be the number of a page."""
    return _ALONE.fullmatch(text) or _EAST.fullmatch(text)


def _key(line: str, number: int, totals: Container[str]) -> str:
    """What is compared of a line: without the number of its page, and that of all; empty where that is all."""

    def is_own(found: re.Match[str] | None) -> bool:
        return found is not None and int(found["n"]) == number and (found["all"] or "") in totals

    parts = []
    for part in _CUT.split(line):
        behind = _BEHIND.search(part)
        if not is_own(_number(part)):
            parts.append(part[: behind.start()] if behind is not None and is_own(behind) else part)
    key = " ".join(" ".join(parts).split())
    return key if not key or re.search(r"[^\W\d]", key) else line  # numbers without a word are a row of a table
