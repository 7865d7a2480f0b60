"""Sentences of a text, by the marks that end them, as chunking knows them.

text -> spans (start, end) in characters, end excluded, in order: every character but white space is in one. A
sentence ends behind a mark that is no abbreviation's and before no small letter, or at a blank line; in scripts
without spaces behind 。！？. In a text without capitals, and behind a mark that stands alone (tokenised text), a small
letter says nothing.
"""

from __future__ import annotations

import re
from itertools import pairwise

from ragidx.corpora.chunking.pieces import SENTENCE, kind_of

_CLOSING = "」』）"
_WORD = re.compile(rf"\S+?[。！？]+[\"'”’»)\]*_{_CLOSING}]*|\S+")
_BREAK = re.compile(r"\n[^\S\n]*\r?\n|\f")


def sentences(text: str) -> list[tuple[int, int]]:
    """The spans of the sentences of a text; what has no mark, such as a heading, is one up to the next blank line.

    >>> text = "Dr. No sank, e.g. at 3.5 m! It is over. 終わった。次。"
    >>> [text[start:end] for start, end in sentences(text)]
    ['Dr. No sank, e.g. at 3.5 m!', 'It is over.', '終わった。', '次。']
    """
    found: list[tuple[int, int]] = []
    has_case, start = text != text.lower(), -1
    for word, following in pairwise([*_WORD.finditer(text), None]):
        assert word is not None
        if start < 0:
            start = word.start()
        if following is None or _BREAK.search(text, word.end(), following.start()):
            ends = True
        else:
            goes_on = has_case and len(word[0]) > 1 and following[0][0].islower()
            ends = kind_of(word[0].rstrip(_CLOSING)) == SENTENCE and not goes_on
        if ends:
            found.append((start, word.end()))
            start = -1
    return found
