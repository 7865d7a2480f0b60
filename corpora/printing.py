"""Text of a corpus as it is safe to show: without control characters and marks that reverse the direction of writing.

Each becomes a space, so that a document can neither move a terminal's cursor nor rewrite a screen or a line of a log.
"""

from __future__ import annotations

import unicodedata

_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """One line without control characters: runs of white space and of controls become one space.

    >>> printable("a\\x1b[31mred\\n\\n b\\u202e"), printable("s\\udcff")
    ('a [31mred b', 's?')
    """
    return " ".join(printable_lines(text).split())


def printable_lines(text: str) -> str:
    """As `printable`, with line breaks and indents kept."""
    text = text.encode("utf-8", "replace").decode()  # bytes of a path that are no UTF-8
    return "\n".join("".join(" " if _is_control(c) else c for c in line) for line in text.split("\n"))


def _is_control(character: str) -> bool:
    return character in _DIRECTION or unicodedata.category(character) in ("Cc", "Zl", "Zp")
