"""Headings: they are where CommonMark finds them."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ragidx.corpora.headings import first_heading, sections


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("text", [(0, "")]),
        ("# A", [(0, "A")]),
        ("x\r\n# A #\r\n### C ##\r\ny\r\n## B", [(0, ""), (3, "A"), (10, "A > C"), (23, "A > B")]),
        ("#no\n#\tyes\n####### no", [(0, ""), (4, "yes")]),
        ("#", [(0, "")]),
        ("    # code\n\t# code\n   # A", [(0, ""), (19, "A")]),
        ("A\n b\n===\nB\n---\n", [(0, "A b"), (9, "A b > B")]),
        ("\n---\n- item\n---\n> quote\n---\n", [(0, "")]),
        ("~~~\n# no\n```\n~~~~\n# A\n``` a`b\n# B", [(0, ""), (18, "A"), (30, "B")]),
        ("```\n# never closed", [(0, "")]),
        ("<!--\n# no\n-->\n# A", [(0, ""), (14, "A")]),
        ("---\ntitle: x\n---\n# A", [(0, ""), (17, "A")]),
        ("# A\u2028# b", [(0, "A # b")]),
        ("# " + "long " * 100, [(0, "long " * 39 + "long…")]),
    ],
)
def test_headings_are_found_where_commonmark_finds_them(text: str, paths: list[tuple[int, str]]) -> None:
    assert [(section.start, section.path) for section in sections(text)] == paths


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("text\n\n## Deep ##\n# Two", "Deep"),
        ("A title\nin two\n===\n", "A title in two"),
        ("#\n# Real", "Real"),
        ("", ""),
    ],
)
def test_the_first_heading_with_a_title_is_found(text: str, title: str) -> None:
    assert first_heading(text) == title


LINES = [
    "# A",
    "## B ##",
    "#",
    "#c",
    "text",
    "  more",
    "===",
    "---",
    "",
    "```",
    "~~~~",
    "    code",
    "> q",
    "- i",
    "* * *",
]


@pytest.mark.slow
@given(lines=st.lists(st.sampled_from(LINES), max_size=12))
def test_headings_agree_with_a_commonmark_parser(lines: list[str]) -> None:
    assume(not ({"```", "~~~~"} & set(lines) and "- i" in lines))  # code in lists is not followed so far
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark")
    text = "\n" + "\n".join(lines)  # without front matter
    offsets = [0]
    for line in text.split("\n"):
        offsets.append(offsets[-1] + len(line) + 1)

    tokens = [token for token in parser.parse(text) if token.type == "heading_open" and token.level == 0]

    expected = [offsets[token.map[0]] for token in tokens]
    assert [section.start for section in sections(text) if section.body] == expected
