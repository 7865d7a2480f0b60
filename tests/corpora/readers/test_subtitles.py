"""Subtitles: running text without times, the lines of the file, speakers, and broken files."""

from __future__ import annotations

import pytest

from ragidx.corpora.records import Place

from ..conftest import ReadBytes

SRT = """1
00:00:01,000 --> 00:00:03,000
Lake Baikal is <i>deep</i>,
{\\an8}and it is cold.

2
00:00:03,500 --> 00:00:05,000
It freezes in winter.

3
00:01:00,000 --> 00:01:02,000
Tanganyika is long.
"""

VTT = """WEBVTT - lakes

NOTE a comment

STYLE
::cue { color: red }

intro
00:01.000 --> 00:03.000 align:start
<v Ada>It is &amp; was <00:02.000><c.x>deep</c>.

00:03.000 --> 00:04.000
<v Ada>It is &amp; was deep.

00:04.000 --> 00:05.000
<v Ben>How cold?
"""


def test_cues_become_running_text_and_a_pause_a_paragraph(read_bytes: ReadBytes) -> None:
    (document,) = read_bytes("a.srt", SRT).documents

    assert document.text == "Lake Baikal is deep,\nand it is cold.\nIt freezes in winter.\n\nTanganyika is long."
    assert document.places == (Place(0, line=3), Place(21, line=4), Place(37, line=8), Place(60, line=12))
    assert list(document.positions([0, 21, 60])) == [(3, None), (4, None), (12, None)]


def test_a_chunk_in_the_middle_has_the_line_of_its_cue(read_bytes: ReadBytes) -> None:
    cues = [f"{n}\n00:{n // 60:02}:{n % 60:02},000 --> 00:{n // 60:02}:{n % 60:02},900\nword{n}\n" for n in range(200)]

    (document,) = read_bytes("talk.srt", "\n".join(cues)).documents

    starts = [document.text.index(f"word{n}") for n in (0, 57, 199)]
    assert list(document.positions(starts)) == [(3, None), (4 * 57 + 3, None), (4 * 199 + 3, None)]
    assert "\n".join(cues).split("\n")[4 * 57 + 1].startswith("00:00:57,000")  # the time is in the line above


def test_speakers_are_named_and_repeated_lines_left_out(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.vtt", VTT)

    (document,) = found.documents
    assert document.text == "Ada: It is & was deep.\n\nBen: How cold?"
    assert [place.line for place in document.places] == [10, 16]
    assert found.kinds == {"repeated lines": 1, "words of comments in sources": 9}


def test_words_outside_of_cues_are_counted(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.srt", SRT.replace("{\\an8}", "\n") + "\nSubtitles by Ada\n")
    none = read_bytes("b.srt", "Lake Baikal is deep.\n")

    assert [(one.where, one.kind, one.count) for one in found.left] == [("a.srt:5", "words of unknown elements", 7)]
    assert "and it is cold" not in found.texts[0]
    assert (none.documents, none.kinds) == ([], {"words of unknown elements": 4})


@pytest.mark.slow
def test_marks_that_never_close_take_linear_time(read_bytes: ReadBytes) -> None:
    data = "00:01.000 --> 00:03.000\n" + "<v " * 100_000 + "<" * 100_000 + "{\\" * 100_000 + " " * 100_000

    assert len(read_bytes("a.vtt", data).texts[0]) > 100_000
