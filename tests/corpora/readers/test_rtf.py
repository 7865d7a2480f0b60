r"""RTF: every place that can hold words gives them or counts them, in their code pages, within bounds."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from ragidx.corpora.limits import Limits
from ragidx.corpora.readers.office.rtf import convert

from ..conftest import ReadBytes

HEAD = (
    rb"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fswiss Arial;}{\f1\fnil\fcharset204{\*\panose 02}Arial Cyr;}"
    rb"{\f2\fcharset128 Gothic;}{\f3\cpg1253 Greek;}}{\stylesheet{\s1 heading 1;}}"
)


def rtf(body: bytes) -> bytes:
    return HEAD + body + b"}"


def test_what_a_file_says_of_itself_is_cut(read_bytes: ReadBytes) -> None:
    long = b"x" * 9999

    (document,) = read_bytes(
        "a.rtf", rtf(b"{\\info{\\title %b}{\\author %b}{\\subject %b}}Deep." % (long, long, long))
    ).documents

    assert {name: len(str(text)) for name, text in document.metadata.items()} == dict.fromkeys(document.metadata, 1000)
    assert [*document.metadata] == ["subject", "title", "author"]


def test_words_title_and_author(read_bytes: ReadBytes) -> None:
    found = read_bytes(
        "a.rtf",
        rtf(
            rb"{\info{\title Lakes}{\author Ada Byron}{\subject Depth}{\keywords deep, cold}{\doccomm Draft}}"
            rb"\pard\b Baikal\b0  is 1642\'a0m deep \u8212? \u-10179?\u-8704?{\*\generator x}.\par {\pict\bin4 }}}}}"
            rb"Tanganyika\line is {\i long}\'e4h \{x\}{\footnote  now}.\par"
        ),
    )

    assert found.texts == ["Baikal is 1642\u00a0m deep \u2014 \U0001f600.\n\nTanganyika\nis longäh {x}.\n\nnow"]
    assert found.documents[0].metadata == {
        "title": "Lakes",
        "author": "Ada Byron",
        "subject": "Depth",
        "keywords": "deep, cold",
        "comments": "Draft",
    }
    assert found.kinds == {"pictures": 1}


@pytest.mark.parametrize(
    ("body", "text", "kinds"),
    [
        (rb"{\header North}{\footer Page}{\headerf First}One\par", "North\n\nPage\n\nFirst\n\nOne", {}),
        (rb"{\header North\par}One\sect{\header North}Two", "North\n\nOne\n\nTwo", {"repeated lines": 1}),
        (rb"One{\*\annotation Two}{\*\atnauthor Ada B} three\par Four", "One three\n\nTwo\n\nFour",
         {"authors of comments": 2}),
        (rb"{\field{\*\fldinst HYPERLINK b}{\fldrslt Shown}}", "Shown", {"field codes": 2}),
        (rb"a{\v one two}b{\deleted three} {\deleted\plain c}", "ab c", {"hidden words": 2, "deleted words": 1}),
        (rb"\v one\v0  two \deleted x\deleted0 y", "two y", {"hidden words": 1, "deleted words": 1}),
        (rb"{\shp{\*\shpinst{\sp{\sn fShape}{\sv 1}}{\shptxt Box\par}}}{\shprslt Old}x", "x\n\nBox", {}),
        (rb"{\*\shpinst{\sp{\sn wzDescription}{\sv a mill}}}x", "x", {"words of alternative texts": 2}),
        (rb"{\object\objemb{\*\objdata 00ff}{\result Shown}}", "Shown", {"embedded objects": 1}),
        (rb"{\*\neverheardof one two}x", "x", {"words of unknown parts": 2}),
        (rb"{\upr{ansi one}{\*\ud{wide}}} x", "wide x", {}),
        (rb"{\listtext\tab 1.}One\par{\pntext\f3\'b7\tab}Two", "1. One\n\n- Two", {}),
        (rb"\trowd\intbl A\par B\cell C\cell\row\intbl D\cell E\cell\row\pard F", "A B | C\nD | E\nF", {}),
        (rb"\pard\outlinelevel1 Depth\par\pard Cold", "## Depth\n\nCold", {}),
        (b"One\\\nTwo", "One\n\nTwo", {}),
        (rb"\~a\_b\-c\emdash d\bullet", "a-bc\u2014d\u2022", {}),
    ],
)  # fmt: skip
def test_each_place_gives_its_words_or_counts_them(
    read_bytes: ReadBytes, body: bytes, text: str, kinds: dict[str, int]
) -> None:
    found = read_bytes("a.rtf", rtf(body))

    assert (found.texts, found.kinds) == ([text], kinds)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rb"\'fc {\f1 \'ef\'ee\'f0\'f2} \'fc", "ü порт ü"),
        (rb"{\f1 \'ef\plain\'fc}", "пü"),
        (rb"{\f2 \'93\'fa\'96\{}", "日本"),  # the second byte of the second is a brace
        (rb"{\f3 \'e1}", "α"),
        (b"{\\f1 \xef\xee}", "по"),
        (rb"\uc2\u1055??x \uc0\u1056 y{\uc1\u1057?z}", "Пx РyСz"),
        (rb"\u1055\'cfx", "Пx"),
        (rb"\u1114112?x\u-10179?y", "xy"),
    ],
)  # fmt: skip
def test_bytes_are_decoded_by_the_code_page_of_their_font(read_bytes: ReadBytes, body: bytes, text: str) -> None:
    assert read_bytes("a.rtf", rtf(body)).texts == [text]


WORD = re.compile(r"\bw[a-h][0-9]+")
FRAMES = ["{{{}}}", "{{\\b {}}}", "{{\\footnote {}}}", "{{\\*\\zz {}}}", "{{\\header {}}}", "{{\\zz {}}}"]
FRAMES += ["{{\\deleted {}}}"]
FRAMES += ["{{\\*\\fldinst {}}}", "{{\\*\\shpinst {{\\shptxt {}}}}}", "\\intbl {}\\cell\\row\\pard ", "{{\\v {}}}"]


def tree(dice: random.Random, depth: int = 0) -> str:
    """Words in frames in frames."""
    if depth > 3 or dice.random() < 0.3:
        return " ".join(f"w{dice.choice('abcdefgh')}{dice.randrange(99)}" for _ in range(dice.randint(1, 3)))
    inside = " ".join(tree(dice, depth + 1) for _ in range(dice.randint(1, 3)))
    return f" {dice.choice(FRAMES).format(inside)} "


@pytest.mark.parametrize("seed", range(8))
def test_every_word_is_in_the_text_or_counted(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    for _ in range(40):
        check_conservation(tree(dice), tmp_path / "a.rtf")


def check_conservation(body: str, path: Path) -> None:
    words = WORD.findall(body)
    path.write_bytes(rtf(f"begin {body}".encode()))

    found = convert(path, ".rtf", Limits())

    repeated = len(found.left.pop("repeated lines", ""))
    counted = sum(count for count, _ in found.left.values())
    assert len(WORD.findall(found.text)) + counted == len(words) or repeated


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"plain", "not an RTF file"),
        (b"{\\rtf1 " + b"{" * 20_000, "groups inside one another, 1,000 deep"),
        (rb"{\rtf1\u1114112?}", "empty text"),
        (rb"{\rtf1\bin9999999999 words}", "empty text"),
        (b"{\\rtf1" + b"}" * 100_000, "empty text"),
    ],
)
def test_a_broken_rtf_is_skipped(read_bytes: ReadBytes, data: bytes, reason: str) -> None:
    assert read_bytes("a.rtf", data).reasons == [("a.rtf", reason)]


def test_binary_data_beyond_the_end_are_counted(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.rtf", rb"{\rtf1 One {\pict\bin99999 words}")

    assert (found.texts, found.kinds) == (["One"], {"pictures": 1, "damaged parts": 1})
