"""Words: which tokens of a text spell which of its words."""

from __future__ import annotations

from collections.abc import Sequence


def positions_of_words(spans: Sequence[tuple[int, int]], words: Sequence[str]) -> list[list[int]]:
    """The tokens of each word of a text that is the words with single spaces between them.

    A token belongs to the word of its last character, a space between words left out of account; one that spells
    such a space alone, to the word after it.

    Args:
        spans: the characters [start, end) of each token of the text.
        words: the words.

    >>> positions_of_words([(0, 3), (3, 6), (6, 8)], ["The", "capital"])
    [[0], [1, 2]]
    """
    owner: list[int] = []
    spaces: set[int] = set()
    for number, word in enumerate(words):
        if number:
            spaces.add(len(owner))
        owner += [number] * (len(word) + (number > 0))
    found: list[list[int]] = [[] for _ in words]
    for place, (start, end) in enumerate(spans):
        at = max(start, end - 1)
        if at in spaces and at > start:
            at -= 1
        if at < len(owner):
            found[owner[at]].append(place)
    return found
