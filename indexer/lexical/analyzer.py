"""Texts and questions to terms.

text -> tokens (as written) -> terms (as indexed). The text is normalised (Unicode NFKC), without characters that nobody
sees. A token is a word: letters, digits, `_` and combining marks; words joined by single dots or hyphens are one token.
Terms are case-folded and stemmed, those with accents also without. A token with `_`, dots, hyphens or camelCase is
indexed whole and in parts. Scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) become overlapping
pairs of characters; so do Korean words, which are kept besides, for particles are written to them. No word is dropped:
a question of common words has an answer, too.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Sequence

from ragidx.indexer.lexical.scripts import HANGUL, cleaned, spellings

VERSION = 2  # of these rules: other rules make other terms
MAX_TOKEN = 255  # characters of a word that are kept: nobody asks for more, and a term is held in memory

_CACHED = 1 << 16  # tokens whose terms are kept
_CACHED_CHARS = 40  # of such a token

# In ASCII, all but letters, digits and these signs separates tokens; a table is ten times faster than a regex.
_SIGNS = "_.+#-"
_SEPARATED = bytes(code if chr(code).isalnum() or chr(code) in _SIGNS else 32 for code in range(128)) + bytes(128)
_NAME = re.compile(
    r"(?:(?<!\.)\.(?=[^\W\d_]))?"  # .NET
    r"[^.+#-]+(?:[.-][^.+#-]+)*"  # AR-7, v1.2.3, config.max_rows
    r"(?:\+\+|#(?![^.+#-]))?"  # C++, C#
)
_PARTS = re.compile(r"[._+#-]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINTS = re.compile(r"(?<!\d)[_-]+|[_-]+(?!\d)")  # 2026-07-01 keeps its own: it is no other way to write 20260701
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """a all an and any are as at be but by can de del der did die do du e ein el en for get had has he her him his
        how i if il in is it its la las le les los may me my no not of off on one or our out que she so than the to too
        two un up us use van von was we who why yet you""",
    )
)
_KEPT = 3  # syllables of a Korean word that is kept beside its pairs: longer ones cost a fifth more bytes
UNSPACED = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
    "\u0e01-\u0e2e\u0e30-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ecd\u0edc-\u0edf"
    "\u1000-\u103f\u1050-\u109d\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f\u1780-\u17d3\u17dc-\u17dd"
)
"""Inside the brackets of a pattern: letters and marks of Han and kana; Thai, Lao, Burmese and Khmer."""
_IS_UNSPACED, _IS_HANGUL = re.compile(f"[{UNSPACED}]"), re.compile(f"[{HANGUL}]")


class Analyzer:
    """Terms of texts, the same for documents and questions.

    Args:
        stem: a case-folded word to its stem; None: words are kept.
    """

    def __init__(self, stem: Callable[[str], str] | None = None) -> None:
        self._stem = stem or (lambda word: word)
        self._known: dict[str, tuple[str, ...]] = {}

    def __call__(self, text: str) -> list[str]:
        """The terms of a text.

        >>> Analyzer()("Read config.max_rows of HTTPServer")
        ['read', 'config.maxrows', 'config', 'max', 'rows', 'of', 'httpserver', 'http', 'server']
        """
        words = tokens(text)
        return [term for token in words + joined(words) for term in self.terms(token)]

    def terms(self, token: str) -> tuple[str, ...]:
        """What a token is indexed as: one term or more; none for signs alone.

        >>> Analyzer().terms("e.g."), Analyzer().terms("AR-7"), Analyzer().terms("...")
        (('e.g', 'e', 'g'), ('ar7', 'ar', '7'), ())
        """
        found = self._known.get(token)
        if found is None:
            found = self._terms(token)
            if len(token) <= _CACHED_CHARS:
                if len(self._known) >= _CACHED:
                    self._known.clear()
                self._known[token] = found
        return found

    def _terms(self, token: str) -> tuple[str, ...]:
        if token.isascii() and token.isalnum() and token[1:] == (lower := token.lower())[1:]:
            return (self._stem(lower[:MAX_TOKEN]),)  # most words; the rest would find the same
        if _IS_UNSPACED.match(token):
            return _pairs(token)
        if _IS_HANGUL.match(token):
            stem = self._stem(token[:MAX_TOKEN])
            run = stem if len(stem) > 1 and len(token) <= MAX_TOKEN else token
            return (*_pairs(run), *([stem] if len(stem) <= _KEPT else []))
        return tuple(term for name in _NAME.findall(token) for term in self._of_name(name))

    def _of_name(self, name: str) -> list[str]:
        """A name whole, if it has parts, and each of its words: neither `-`, `_` nor capitals make another name."""
        words = [word[:MAX_TOKEN] for word in _PARTS.split(name) if word]
        if words == [name]:
            pieces = _CAMEL.split(name) if not name.islower() else ()
            return [*self._spelled(name), *(term for piece in pieces[1:] and pieces for term in self._spelled(piece))]
        whole = _JOINTS.sub("", name)
        found = self._spelled(whole) if words and whole != words[0] and len(whole) <= MAX_TOKEN else []
        for word in words:
            found += self.terms(word)
        return found

    def _spelled(self, word: str) -> list[str]:
        """The stems of a word with and without its accents, each once; of a whole with dots or signs, itself."""
        stem = str if _PARTS.search(word) else self._stem
        if word.isascii():
            return [stem(word.lower())]
        lower = word.casefold().replace("i\u0307", "i")  # of a Turkish capital
        return list(dict.fromkeys(map(stem, spellings(lower))))


def tokens(text: str) -> list[str]:
    """The words of a text as they are written, after Unicode normalisation; those in ASCII first."""
    if text.isascii():
        return _ascii_tokens(text)
    pieces = cleaned(text).split()
    plain = [piece for piece in pieces if piece.isascii()]
    others = [piece for piece in pieces if not piece.isascii()]
    return _ascii_tokens(" ".join(plain)) + _unicode_tokens().findall(" ".join(others))


def joined(words: Sequence[str]) -> list[str]:
    """Short words in a row as one: `wi fi` is also `wifi`. None of common ones."""
    return [
        words[at - 1] + word
        for at, word in enumerate(words)
        if len(word) == 2 and word not in _COMMON and at and is_short(words[at - 1]) and is_short(word)
    ]


def is_short(word: str) -> bool:
    """Whether `joined` may take a word."""
    return len(word) <= 3 and word.isascii() and word.isalpha() and word.lower() not in _COMMON


def _ascii_tokens(text: str) -> list[str]:
    return text.encode("ascii").translate(_SEPARATED).decode("ascii").split()


def _pairs(run: str) -> tuple[str, ...]:
    return tuple(run[at : at + 2] for at in range(max(1, len(run) - 1)))


@functools.cache
def _unicode_tokens() -> re.Pattern[str]:
    """A run of an unspaced script or of Hangul, or a word of another, with its combining marks and signs."""
    marks = "".join(
        chr(code)
        for code in range(0x300, 0x1F000)
        if unicodedata.category(chr(code))[0] == "M" and not _IS_UNSPACED.match(chr(code))
    )
    return re.compile(rf"[{UNSPACED}]+|[{HANGUL}]+|(?:[^\W{UNSPACED}{HANGUL}]+|[{marks}.+#-]+)+")
