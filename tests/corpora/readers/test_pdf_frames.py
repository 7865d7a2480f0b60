"""PDF: running heads and feet stay once, page numbers go, and what differs from page to page is content."""

from __future__ import annotations

import pypdf
import pytest

from ..conftest import ReadBytes
from ..markers.pdf_pages import page, plain, shown, written

pytest.importorskip("pypdfium2", reason="needs the extra 'docs'")

MONTHS = ["May", "June", "July", "August", "September"]
NUMBERED = range(1, 6)

CONTENT = {
    "invoices": [
        [
            f"Invoice No. {10022 + n}",
            f"Customer: {who}",
            "Payable within thirty days.",
            f"Total due: {93 + 7.5 * n} EUR",
        ]
        for n, who in enumerate(["Kingfisher", "Bulrush", "Sedge", "Fenland", "Teal"], start=1)
    ],
    "payslips": [[f"Payslip {n}/2026", f"Hours: {150 + n}", f"Net {4400 + 25 * n}.00 EUR"] for n in NUMBERED],
    "questions": [[f"Question {n}", f"Name the {m} tide.", f"Points: {2 * n}"] for n, m in enumerate(MONTHS, start=1)],
    "clauses": [[f"Clause {n}", f"The fee of {m}.", f"Article {n + 3}"] for n, m in enumerate(MONTHS, start=1)],
    "readings": [[f"Reading {n} May 2026", f"Tank {n}", f"Pressure {9 if n == 3 else n + 20} bar"] for n in NUMBERED],
}


@pytest.mark.parametrize("kind", CONTENT)
def test_lines_with_other_words_or_numbers_are_content(kind: str, read_bytes: ReadBytes) -> None:
    pages = CONTENT[kind]

    (text,) = read_bytes("a.pdf", plain(*pages)).texts

    lines = text.split("\n")
    assert [line for line in {line for lines in pages for line in lines} if line not in lines] == []


def test_the_name_on_every_page_and_a_reading_like_most_are_there_once(read_bytes: ReadBytes) -> None:
    pages = [["Harbour council", f"Minutes of {m}", "Pressure 4 bar"] for m in MONTHS]

    found = read_bytes("a.pdf", plain(*pages))

    assert found.texts == ["\n\n".join(["Harbour council\nMinutes of May\nPressure 4 bar", *(p[1] for p in pages[1:])])]
    assert [(one.where, one.kind, one.count) for one in found.left] == [("a.pdf#page=2", "repeated lines", 8)]


def test_of_three_pages_nothing_goes(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.pdf", plain(*[["Harbour council", f"Minutes of {m}", "1"] for m in MONTHS[:3]]))

    assert found.texts == ["\n\n".join(f"Harbour council\nMinutes of {m}\n1" for m in MONTHS[:3])]
    assert found.left == []


@pytest.mark.parametrize(
    "foot",
    ["{}", "- {} -", "{}/5", "Page {} of 5", "Seite {} von 5", "p. {}", "[{}]", "\u2013 {} \u2013"],
)
def test_numbers_of_pages_go_and_are_counted(foot: str, read_bytes: ReadBytes) -> None:
    foot = foot.replace("\u2013", "\\226")  # WinAnsiEncoding
    pages = [[f"Minutes of {m}", "The clerk reads.", foot.format(n)] for n, m in enumerate(MONTHS, start=1)]
    found = read_bytes("a.pdf", plain(*pages))

    assert "".join(found.texts).count("Minutes") == 5
    assert not any(character.isdecimal() for character in found.texts[0])
    assert found.kinds["page numbers"] == 5


@pytest.mark.parametrize("foot", ["5 | {}", "{}/2026", "Page {} of 70", "{} EUR", "No. {}"])
def test_other_numbers_that_count_up_are_content(foot: str, read_bytes: ReadBytes) -> None:
    pages = [[f"Minutes of {m}", "The clerk reads.", foot.format(n)] for n, m in enumerate(MONTHS, start=1)]

    (text,) = read_bytes("a.pdf", plain(*pages)).texts

    assert [n for n in range(1, 6) if foot.format(n) not in text.split("\n")] == []


def test_numbers_that_begin_later_go_and_others_that_stand_alone_stay(read_bytes: ReadBytes) -> None:
    pages = [[f"Minutes of {m}", "The clerk reads.", str(n + 11)] for n, m in enumerate(MONTHS)]
    prices = [[f"Fee of {m}", "in euro", str(price)] for m, price in zip(MONTHS, (40, 12, 7, 900, 31), strict=True)]

    assert read_bytes("a.pdf", plain(*pages)).kinds["page numbers"] == 5
    found = read_bytes("b.pdf", plain(*prices))
    assert [price for price in ("40", "12", "7", "900", "31") if price not in found.texts[0].split()] == []
    assert "page numbers" not in found.kinds


def test_a_number_apart_from_a_running_head_does_not_make_it_another_line(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    for n, month in enumerate(MONTHS, start=1):
        head = [shown("Annual report", 50, 800), shown(str(n), 500, 800)]
        page(writer, [*head, *(shown(f"{month} body {at}", 50, 760 - 16 * at) for at in range(4))])

    found = read_bytes("a.pdf", written(writer))

    assert found.texts[0].count("Annual report") == 1
    assert [text.split("\n")[0] for text in found.texts[0].split("\n\n")] == [
        "Annual report 1",
        *(f"{month} body 0" for month in MONTHS[1:]),
    ]
    assert found.kinds == {"repeated lines": 4}


def test_long_lines_are_no_running_heads(read_bytes: ReadBytes) -> None:
    long = "- " * 9_000 + "end"

    found = read_bytes("a.pdf", plain(*[[long, f"Minutes of {month}"] for month in MONTHS]))

    assert found.texts[0].count("end") == 5
    assert found.left == []
