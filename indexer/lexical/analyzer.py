"""Texts and questions to terms.

text -> tokens (as written) -> terms (as indexed). The text is normalised (Unicode NFKC). A token is a word: letters,
digits, `_` and combining marks; words joined by single dots are one token. Terms are case-folded and stemmed. A token
with `_`, dots or camelCase is indexed whole and in parts. Scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer,
Burmese) become overlapping pairs of characters. No word is dropped: a question of common words has an answer, too.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable

VERSION = 1  # of these rules: other rules make other terms
MAX_TOKEN = 255  # characters of a token that are kept: nobody asks for more, and a term is held in memory

_CACHED = 1 << 16  # tokens whose terms are kept
_CACHED_CHARS = 40  # of such a token

# In ASCII, all but letters, digits, `_` and dots separates tokens; a table is ten times faster than a regex.
_SEPARATED = bytes(code if chr(code).isalnum() or chr(code) in "_." else 32 for code in range(128)) + bytes(128)
_PARTS = re.compile(r"[._]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
UNSPACED = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
    "\u0e01-\u0e2e\u0e30-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ecd\u0edc-\u0edf"
    "\u1000-\u103f\u1050-\u109d\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f\u1780-\u17d3\u17dc-\u17dd"
)
"""Inside the brackets of a pattern: letters and marks of Han and kana; Thai, Lao, Burmese and Khmer."""
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")


class Analyzer:
    """Terms of texts, the same for documents and questions.

    Args:
        stem: a word to its stem; None: words are kept.
    """

    def __init__(self, stem: Callable[[str], str] | None = None) -> None:
        self._stem = stem or (lambda word: word)
        self._known: dict[str, tuple[str, ...]] = {}

    def __call__(self, text: str) -> list[str]:
        """The terms of a text, in order.

        >>> Analyzer()("Read config.max_rows of HTTPServer")
        ['read', 'config.max_rows', 'config', 'max', 'rows', 'of', 'httpserver', 'http', 'server']
        """
        return [term for token in tokens(text) for term in self.terms(token)]

    def terms(self, token: str) -> tuple[str, ...]:
        """What a token is indexed as: one term or more; none for dots alone.

        >>> Analyzer().terms("e.g."), Analyzer().terms("...")
        (('e.g', 'e', 'g'), ())
        """
        found = self._known.get(token)
        if found is None:
            found = self._terms(token[:MAX_TOKEN].strip("."))
            if len(token) <= _CACHED_CHARS:
                if len(self._known) >= _CACHED:
                    self._known.clear()
                self._known[token] = found
        return found

    def _terms(self, token: str) -> tuple[str, ...]:
        if token.isascii() and token.isalnum() and token[1:] == (lower := token.lower())[1:]:
            return (self._stem(lower),)  # most words; the rest would find the same
        if _IS_UNSPACED.match(token):
            return tuple(token[at : at + 2] for at in range(max(1, len(token) - 1)))
        parts = [piece for part in _PARTS.split(token) if part for piece in _CAMEL.split(part)]
        folded = token.casefold()
        whole = folded if "_" in folded or "." in folded else self._stem(folded)
        if len(parts) < 2:
            return (whole,) if parts else ()
        return (whole, *(self._stem(part.casefold()) for part in parts))


def tokens(text: str) -> list[str]:
    """The words of a text as they are written, after Unicode normalisation; those in ASCII first."""
    if text.isascii():
        return _ascii_tokens(text)
    pieces = unicodedata.normalize("NFKC", text).split()
    plain = [piece for piece in pieces if piece.isascii()]
    others = [piece for piece in pieces if not piece.isascii()]
    return _ascii_tokens(" ".join(plain)) + _unicode_tokens().findall(" ".join(others))


def _ascii_tokens(text: str) -> list[str]:
    return text.encode("ascii").translate(_SEPARATED).decode("ascii").split()


@functools.cache
def _unicode_tokens() -> re.Pattern[str]:
    """A run of an unspaced script, or a word of another, with its combining marks."""
    marks = "".join(
        chr(code)
        for code in range(0x300, 0x1F000)
        if unicodedata.category(chr(code))[0] == "M" and not _IS_UNSPACED.match(chr(code))
    )
    letter = f"(?:[^\\W{UNSPACED}]|[{marks}])"
    return re.compile(f"[{UNSPACED}]+|{letter}+(?:\\.{letter}+)*")
