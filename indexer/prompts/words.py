"""Words of a text: which of its tokens spell them, for vectors of words in their context.

A text is the list of its words, which are read with single spaces between them, or itself with the spans of its words:
characters [start, end), for languages that are written without spaces. Templates and models are not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

from ragidx.corpora.errors import SpecError

Spans: TypeAlias = "Sequence[tuple[int, int]]"
Words: TypeAlias = "Sequence[str] | tuple[str, Spans]"


def are_spans(words: Words) -> bool:
    """Whether they are a text and the spans of its words, and not a list of words."""
    return len(words) == 2 and not isinstance(words[1], str)


def split_words(words: Words, where: str) -> tuple[str, Sequence[str] | Spans]:
    """The whole text, and its words as they are, or their spans once they are checked; `where` names it in messages.

    Raises:
        SpecError: a span is empty, lies outside of the text, or begins before the one before it ends.

    >>> split_words(["a", "mill"], "text 0"), split_words(("这是句子", [(0, 2), (2, 4)]), "text 0")
    (('a mill', ['a', 'mill']), ('这是句子', [(0, 2), (2, 4)]))
    """
    if not are_spans(words):
        return " ".join(cast("Sequence[str]", words)), cast("Sequence[str]", words)
    text, spans = cast("tuple[str, Spans]", words)
    behind = 0
    for start, end in spans:
        for wrong, what in (
            (end <= start, "is empty"),
            (start < 0 or end > len(text), f"lies outside of its {len(text):,} characters"),
            (start < behind, f"begins before the span before it ends, at {behind}"),
        ):
            if wrong:
                hint = "give the spans of words in their order, each from its first character to the one behind it"
                raise SpecError(f"the span ({start}, {end}) {what}", hint, where=where)
        behind = end
    return text, spans


def positions_of_words(tokens: Spans, words: Sequence[str] | Spans) -> list[list[int]]:
    """The tokens of each word of a text, as `split_words` gives it.

    Of words with single spaces between them, a token belongs to the word of its last character, not counting a space
    between words; one that spells such a space alone, to the word after it. Of spans, a token belongs to every word
    that it overlaps, and so to two where it spells the end of one and the start of the next.

    Args:
        tokens: the characters [start, end) of each token of the text.
        words: the words of the text, or the characters of each.

    >>> positions_of_words([(0, 3), (3, 6), (6, 8)], ["The", "capital"])
    [[0], [1, 2]]
    >>> positions_of_words([(0, 1), (1, 3), (3, 4)], [(0, 2), (2, 4)])
    [[0, 1], [1, 2]]
    """
    if words and not isinstance(words[0], str):  # a mark that spells no character is of the word that it stands in
        return [
            [place for place, (at, to) in enumerate(tokens) if at < end and start < max(to, at + 1)]
            for start, end in cast("Spans", words)
        ]
    owner: list[int] = []
    spaces: set[int] = set()
    for number, word in enumerate(cast("Sequence[str]", words)):
        if number:
            spaces.add(len(owner))
        owner += [number] * (len(word) + (number > 0))
    places_of: list[list[int]] = [[] for _ in words]
    for place, (start, end) in enumerate(tokens):
        at = max(start, end - 1)
        if at in spaces and at > start:
            at -= 1
        if at < len(owner):
            places_of[owner[at]].append(place)
    return places_of
