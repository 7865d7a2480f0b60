"""Text of a corpus as it is safe to show: without control characters and marks that reverse the direction of writing.

Each becomes a space, so that a document can neither move a terminal's cursor nor rewrite a screen or a line of a log.
"""

from __future__ import annotations

import re

# All of Unicode's categories Cc, Zl and Zp but the line end, and the marks of direction.
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """One line without control characters: runs of white space and of controls become one space.

    >>> printable("a\\x1b[31mred\\n\\n b\\u202e"), printable("s\\udcff")
    ('a [31mred b', 's?')
    """
    return " ".join(printable_lines(text).split())


def printable_lines(text: str) -> str:
    """As `printable`, with line breaks and indents kept."""
    text = text.encode("utf-8", "replace").decode()  # bytes of a path that are no UTF-8
    return _UNSAFE.sub(" ", text)
