"""Words: which tokens spell which word; worked by hand, then for any cut of any words."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.indexer.prompts.words import positions_of_words


@pytest.mark.parametrize(
    ("spans", "words", "expected"),
    [
        (
            [(0, 3), (3, 6), (6, 8)],
            ["The", "capital"],
            [[0], [1, 2]],
        ),  # "The", " ca", "pi": the space goes with its word
        ([(0, 3), (3, 4), (4, 11)], ["The", "capital"], [[0], [1, 2]]),  # a space alone belongs to the word after it
        ([(0, 4), (4, 11)], ["The", "capital"], [[0], [1]]),  # nor does a space at the end of "The " move it
        ([(0, 11)], ["The", "capital"], [[], [0]]),  # one token over both: the word of its last character
        ([(0, 1), (0, 1), (0, 1)], ["\u6771"], [[0, 1, 2]]),  # three tokens of one character
        ([(0, 0), (0, 3)], ["The"], [[0, 1]]),  # a word-start mark of its own spells no character
        ([(0, 3), (3, 4)], ["The"], [[0]]),  # what stands behind the last word is no word's
        ([(0, 1), (1, 2)], ["", "a"], [[], [0, 1]]),  # an empty word has no token
        ([], ["a", "b"], [[], []]),
        ([], [], []),
        ([(0, 1)], [], []),
        ([(0, 1), (1, 3), (3, 4)], [(0, 2), (2, 4)], [[0, 1], [1, 2]]),  # a token in two words belongs to both
        ([(0, 2), (2, 4), (4, 6)], [(0, 2), (4, 6)], [[0], [2]]),  # what is between spans is no word's
        ([(0, 1), (0, 1), (0, 1), (1, 2)], [(0, 1), (1, 2)], [[0, 1, 2], [3]]),  # three tokens of one character
        ([(0, 0), (0, 2), (2, 2)], [(0, 2)], [[0, 1]]),  # a word-start mark that spells no character
        ([(0, 1)], [(1, 2)], [[]]),
    ],
)
def test_known_words(
    spans: list[tuple[int, int]], words: list[str] | list[tuple[int, int]], expected: list[list[int]]
) -> None:
    assert positions_of_words(spans, words) == expected


@pytest.mark.slow
@given(
    words=st.lists(st.text(st.characters(exclude_characters=" "), min_size=1, max_size=6), max_size=6), data=st.data()
)
def test_every_token_belongs_to_one_word_in_order(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1))))) if len(text) > 1 else []
    spans = list(itertools.pairwise([0, *cuts, len(text)])) if text else []

    found = positions_of_words(spans, words)

    assert [place for places in found for place in places] == list(range(len(spans)))


@pytest.mark.slow
@given(words=st.lists(st.text(st.characters(exclude_characters=" "), min_size=1, max_size=6), min_size=1, max_size=6))
def test_tokens_of_one_character_are_their_words_with_the_space_before(words: list[str]) -> None:
    text = " ".join(words)

    found = positions_of_words([(i, i + 1) for i in range(len(text))], words)

    spelt = ["".join(text[i] for i in places) for places in found]
    assert spelt == [words[0], *(f" {word}" for word in words[1:])]
