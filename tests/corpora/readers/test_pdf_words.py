"""PDF: the words of a page and their order: turned pages, hyphens, words drawn twice, fonts without Unicode."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pypdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ..conftest import ReadBytes
from ..markers.pdf_pages import TURNS, entries, form, page, shown, stream, written

pytest.importorskip("pypdfium2", reason="needs the extra 'docs'")
pdfium = pytest.importorskip("pypdfium2", reason="needs the extra 'docs'")

from ragidx.corpora.readers.pdf.tables import page_lines, strokes  # noqa: E402
from ragidx.corpora.readers.pdf.text import characters, pieces  # noqa: E402


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_lines_end_where_they_end_however_the_page_and_its_text_are_turned(
    rotate: int, turn: int, read_bytes: ReadBytes
) -> None:
    lines = ["Second bittern line", "follows here", "Harbour Depth", "Last plover line"]
    place = {
        0: lambda at: (50, 800 - 16 * at),
        90: lambda at: (60 + 16 * at, 50),
        180: lambda at: (545, 50 + 16 * at),
        270: lambda at: (545 - 16 * at, 790),
    }[turn]
    writer = pypdf.PdfWriter()
    page(writer, [shown(line, *place(at), turn=turn) for at, line in enumerate(lines)], rotate=rotate)

    assert read_bytes("a.pdf", written(writer)).texts == ["\n".join(lines)]


def test_text_that_is_turned_otherwise_follows_that_of_the_page(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    page(writer, [shown("margin", 30, 300, turn=90), shown("upright one", 50, 800), shown("upright two", 50, 780)])

    assert read_bytes("a.pdf", written(writer)).texts == ["upright one\nupright two\nmargin"]


def test_a_page_is_read_in_the_order_in_which_it_is_drawn(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    page(writer, [shown(f"{side} {at}", x, 800 - 14 * at) for side, x in (("a", 50), ("b", 300)) for at in range(3)])

    assert read_bytes("a.pdf", written(writer)).texts == ["a 0\na 1\na 2\nb 0\nb 1\nb 2"]


def test_a_word_cut_by_a_hyphen_is_one_and_a_word_with_one_stays(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    page(writer, [shown("The well-known hydro-", 50, 800), shown("meter floats", 50, 786), shown("low.", 50, 772)])

    assert read_bytes("a.pdf", written(writer)).texts == ["The well-known hydrometer\nfloats\nlow."]


def test_what_is_drawn_twice_for_bold_is_there_once_and_a_word_elsewhere_stays(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    twice = ["bold heading", "plain"]
    page(
        writer,
        [
            *(shown(text, 50, 800 - 20 * at) for at, text in enumerate(twice)),
            *(shown(text, 50.4, 800 - 20 * at) for at, text in enumerate(twice)),
            shown("plain", 50, 700),
        ],
    )

    assert read_bytes("a.pdf", written(writer)).texts == ["bold heading\nplain\nplain"]


def test_what_is_drawn_by_a_form_or_beside_the_page_or_in_white_is_text(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    inner = form(writer, [shown("inside", 50, 700)])
    operators = [shown("plain", 50, 800), "/X Do", "1 g", shown("white", 50, 600), shown("beside", -400, 500)]
    page(writer, operators, XObject=entries(X=inner))

    assert sorted(read_bytes("a.pdf", written(writer)).texts[0].split()) == ["beside", "inside", "plain", "white"]


def unmapped(writer: pypdf.PdfWriter, operators: list[str]) -> None:
    names = ["/gone1", "/gone2", "/gone3"]
    encoding = entries(Type="/Encoding", Differences=[1, *names])
    font = entries(Type="/Font", Subtype="/Type1", BaseFont="/Helvetica", Encoding=encoding)
    page(writer, operators, fonts={"F2": font})


def test_a_page_whose_font_has_no_unicode_is_counted_and_not_indexed(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    page(writer, [shown("sound", 50, 800)])
    unmapped(writer, ["BT /F2 11 Tf 50 700 Td (\\001\\002 \\003\\001\\002) Tj ET", shown("ab", 50, 500)])
    unmapped(writer, ["BT /F2 11 Tf 50 700 Td (\\001) Tj ET", shown("mostly sound", 50, 500)])

    found = read_bytes("a.pdf", written(writer))

    assert found.texts == ["sound\n\nmostly sound"]
    assert [(one.where, one.kind, one.count) for one in found.left] == [("a.pdf#page=2", "pages without Unicode", 1)]


def test_letters_above_the_basic_plane_and_letters_from_right_to_left_are_whole(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    table = b"4 beginbfchar <41> <D835DC00> <42> <05D0> <43> <05D1> <44> <05D2> endbfchar"
    mapping = stream(writer, b"begincmap 1 begincodespacerange <00> <FF> endcodespacerange\n" + table + b"\nendcmap")
    font = entries(
        Type="/Font", Subtype="/Type1", BaseFont="/Helvetica", ToUnicode=mapping, Encoding="/WinAnsiEncoding"
    )
    hebrew = [f"BT /F2 11 Tf {x} 700 Td ({code}) Tj ET" for x, code in ((50, "B"), (58, "C"), (76, "D"), (84, "C"))]
    page(writer, [shown("a line", 50, 800), "BT /F2 11 Tf 50 750 Td (A) Tj ET", *hebrew], fonts={"F2": font})

    (text,) = read_bytes("a.pdf", written(writer)).texts

    assert text.split("\n")[:2] == ["a line", "\U0001d400"]
    assert Counter(text.split("\n")[2].replace(" ", "")) == Counter("\u05d0\u05d1\u05d2\u05d1")


def test_lines_of_very_many_words_and_of_very_many_pieces_are_whole(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    many = ["BT /F1 1 Tf 50 800 Td", *(f"(w{n} ) Tj" for n in range(10_000)), "ET"]
    apart = [shown(f"p{n}", 9 * (n % 1_000), 700 - 20 * (n // 1_000), size=2) for n in range(3_000)]
    page(writer, many)
    page(writer, apart)

    (text,) = read_bytes("a.pdf", written(writer)).texts

    words = [*(f"w{n}" for n in range(10_000)), *(f"p{n}" for n in range(3_000))]
    assert Counter(text.split()) == Counter(words)


@pytest.mark.slow
@given(
    places=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 24)), min_size=1, max_size=40, unique=True),
    shift=st.lists(st.floats(0, 9), min_size=40, max_size=40),
    turn=st.sampled_from(sorted(TURNS)),
    drawn=st.lists(st.tuples(*[st.integers(0, 50)] * 4, st.booleans()), max_size=12),
)
def test_each_word_of_a_page_comes_out_once_whatever_is_drawn_around_it(
    places: list[tuple[int, int]],
    shift: list[float],
    turn: int,
    drawn: list[tuple[int, int, int, int, bool]],
) -> None:
    writer = pypdf.PdfWriter()
    operators = [
        f"{12 * x} {16 * y} {12 * w} {16 * h} re S" if framed else f"{12 * x} {16 * y} m {12 * w} {16 * y} l S"
        for x, y, w, h, framed in drawn
    ]
    number = itertools.count()
    for (column, row), more in zip(places, shift, strict=False):
        x, y = (
            (50 + 100 * column + more, 60 + 30 * row + more)
            if turn in (0, 180)
            else (
                60 + 20 * row + more,
                100 + 130 * column + more,
            )
        )
        operators.append(shown(f"word{next(number)} of{next(number)}", x, y, size=8, turn=turn))
    page(writer, operators)

    with pdfium.PdfDocument(written(writer)) as document:
        textpage = document[0].get_textpage()
        given_words = re.findall(r"\w+", textpage.get_text_range())
        bars = strokes(document[0])
        lines = page_lines(pieces(textpage, characters(textpage), bars), bars)

    assert Counter(re.findall(r"\w+", "\n".join(lines))) == Counter(given_words)
    assert len(given_words) == 2 * len(places)
