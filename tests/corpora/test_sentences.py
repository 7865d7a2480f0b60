"""Where sentences begin and end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.chunking.sentences import sentences


def _texts(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n ", []),
        ("One two. Three four! Five?", ["One two.", "Three four!", "Five?"]),
        ("He said “It is so.” Then he left.", ["He said “It is so.”", "Then he left."]),
        ("See Fig. 3, e.g. by Dr. Who et al. 1999. Next.", ["See Fig. 3, e.g. by Dr. Who et al. 1999.", "Next."]),
        ("It weighs approx. two tons. Ok.", ["It weighs approx. two tons.", "Ok."]),
        ("The word etc. goes on. New.", ["The word etc. goes on.", "New."]),
        ("all small. no capital here. yes.", ["all small.", "no capital here.", "yes."]),
        ("Tokenised text . it goes on . The end .", ["Tokenised text .", "it goes on .", "The end ."]),
        ("A heading\n\nIts text\ngoes on.\n \nMore", ["A heading", "Its text\ngoes on.", "More"]),
        ("Windows\r\n\r\nlines\r\nhere. End", ["Windows", "lines\r\nhere.", "End"]),
        ("One page\fTwo", ["One page", "Two"]),
        ("第一句。第二句！「第三句。」第四句", ["第一句。", "第二句！", "「第三句。」", "第四句"]),
    ],
)
def test_a_sentence_ends_behind_its_mark_or_at_a_blank_line(text: str, expected: list[str]) -> None:
    assert _texts(text) == expected


@given(st.text(alphabet="abAB.!。\n\f \t\"'"))
def test_every_character_but_white_space_is_in_one_sentence(text: str) -> None:
    spans = sentences(text)

    ends = [0, *(end for _, end in spans)]
    assert all(before <= start < end for before, (start, end) in zip(ends, spans, strict=False))
    assert "".join(text[start:end] for start, end in spans).split() == [] or spans
    outside = "".join(text[before:start] for before, (start, _) in zip(ends, [*spans, (len(text), 0)], strict=True))
    assert not outside.strip()
    assert all(text[start:end] == text[start:end].strip() for start, end in spans)
