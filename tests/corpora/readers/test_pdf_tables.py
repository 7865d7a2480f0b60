"""PDF: rows of tables, ruled and plain, are lines; prose, columns and contents are none."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pypdf
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reportlab.lib import colors
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Flowable, Paragraph, SimpleDocTemplate, Spacer, Table

from ragidx.corpora.limits import Limits

from ..conftest import ReadBytes
from ..markers.pdf_pages import page, shown, written

pytest.importorskip("pypdfium2", reason="needs the extra 'docs'")
from ragidx.corpora.readers.pdf.document import convert

STYLE = getSampleStyleSheet()["BodyText"]
GRID = [("GRID", (0, 0), (-1, -1), 0.5, colors.black)]
RULES = [("LINEABOVE", (0, 0), (-1, 0), 1, colors.black), ("LINEBELOW", (0, 0), (-1, 0), 0.5, colors.black)]
SHADED = [("BACKGROUND", (0, row), (-1, row), colors.lightgrey) for row in range(0, 6, 2)]
ROWS = [
    ["Lock", "Rise", "Keeper", "Toll"],
    *([f"Sluice {name}", f"{2.5 + n:.1f}", str(17 + 4 * n), f"{310 + 95 * n:,}.50"] for n, name in enumerate("abcde")),
]
SENTENCE = "The keeper opens the lower gate when the bell rings twice and the boats have made room"


def built(*parts: Flowable) -> bytes:
    out = io.BytesIO()
    SimpleDocTemplate(out, invariant=1).build(list(parts))
    return out.getvalue()


def table(rows: Sequence[Sequence[Any]], style: Sequence[Any], widths: Sequence[float] | None = None) -> Table:
    return Table(rows, colWidths=widths, style=[*style, ("VALIGN", (0, 0), (-1, -1), "MIDDLE")])


def lines(rows: Sequence[Sequence[str]]) -> list[str]:
    return [" | ".join(cell for cell in row if cell) for row in rows]


@pytest.mark.parametrize("style", [GRID, RULES, SHADED, [], [*RULES, ("ALIGN", (1, 0), (-1, -1), "RIGHT")]])
def test_rows_are_lines_between_the_text_around_them(style: list[Any], read_bytes: ReadBytes) -> None:
    before, after = "The tolls of the year.", "They are paid at noon."

    data = built(Paragraph(before, STYLE), table(ROWS, style, [110, 80, 80, 90]), Paragraph(after, STYLE))

    assert read_bytes("a.pdf", data).texts == ["\n".join([before, *lines(ROWS), after])]


@pytest.mark.parametrize("style", [GRID, SHADED])
def test_cells_of_several_lines_are_one_cell_where_lines_or_shades_are_drawn(
    style: list[Any], read_bytes: ReadBytes
) -> None:
    rows = [["Lock", "Rule", "Since"], *([f"Sluice {n}", f"{SENTENCE} of {n}", str(1890 + n)] for n in range(4))]
    flowing = [[one, Paragraph(two, STYLE), three] for one, two, three in rows]

    assert read_bytes("a.pdf", built(table(flowing, style, [100, 180, 60]))).texts == ["\n".join(lines(rows))]


def test_cells_without_text_and_cells_over_several_leave_the_others_in_their_row(read_bytes: ReadBytes) -> None:
    rows = [["Lock", "Water", "", "Toll"], *ROWS[1:3], ["Closed in winter", "", "", ""], ["Sluice x", "", "4", ""]]
    style = [*GRID, ("SPAN", (1, 0), (2, 0)), ("SPAN", (0, 3), (-1, 3))]

    assert read_bytes("a.pdf", built(table(rows, style))).texts == ["\n".join(lines(rows))]
    assert read_bytes("b.pdf", built(table(rows[1:3] + rows[4:], [], [110, 80, 80, 90]))).texts == [
        "\n".join(lines(rows[1:3] + rows[4:]))
    ]


def test_cells_closer_than_a_letter_are_parted_by_the_line_between_them(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    rules = [f"40 {y} m 140 {y} l S" for y in (780, 760, 740)] + [f"{x} 780 m {x} 740 l S" for x in (40, 80, 140)]
    rows = [("aaaaaa", "bbbb"), ("cccccc", "dddd")]
    texts = [shown(cell, 42 + 40 * n, 766 - 20 * at) for at, row in enumerate(rows) for n, cell in enumerate(row)]
    page(writer, [*rules, *texts])

    assert read_bytes("a.pdf", written(writer)).texts == ["aaaaaa | bbbb\ncccccc | dddd"]


def test_columns_of_prose_drawn_line_by_line_are_read_one_after_the_other(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    sides = [[f"the {side} keeper opens gate {n}" for n in "abcdef"] for side in ("left", "right")]
    page(writer, [shown(side[n], 50 + 270 * at, 800 - 14 * n) for n in range(6) for at, side in enumerate(sides)])

    assert read_bytes("a.pdf", written(writer)).texts == ["\n".join(sides[0] + sides[1])]


@pytest.mark.parametrize(
    "drawn",
    [
        lambda: [shown(f"{n}.", 50, 800 - 14 * n) + shown(f"{SENTENCE[:40]}", 80, 800 - 14 * n) for n in range(5)],
        lambda: [shown("\\225", 50, 800 - 14 * n) + shown(SENTENCE[:40], 80, 800 - 14 * n) for n in range(5)],
        lambda: [shown(f"Of gate {n}", 50, 800 - 14 * n) + shown(str(7 * n), 400, 800 - 14 * n) for n in range(5)],
        lambda: [shown("Gate . . . . .", 50, 800 - 14 * n) + shown(f"{9 - n}, 4", 400, 800 - 14 * n) for n in range(5)],
    ],
    ids=["numbers", "bullets", "contents", "dots"],
)
def test_lists_and_contents_are_no_tables(drawn: Callable[[], list[str]], read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    page(writer, drawn())

    (text,) = read_bytes("a.pdf", written(writer)).texts

    assert "|" not in text
    assert len(text.split("\n")) == 5


def test_prose_in_one_column_or_two_is_no_table(read_bytes: ReadBytes) -> None:
    prose = [Paragraph(f"{SENTENCE}. " * 6, STYLE) for _ in range(5)]
    rows = [[Paragraph(f"{SENTENCE} {n}", STYLE), Paragraph(f"{SENTENCE} {n}", STYLE)] for n in range(9)]

    for name, data in (("a.pdf", built(*prose)), ("b.pdf", built(table(rows, [], [200, 200])))):
        assert "|" not in read_bytes(name, data).texts[0]


WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=9)
PARAGRAPH = st.lists(WORD, min_size=1, max_size=60).map(" ".join)
CELLS = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(st.lists(WORD, max_size=3).map(" ".join), min_size=n, max_size=n), min_size=1)
)


@pytest.mark.slow
@example(parts=["0", "0"], style=[])  # of which PDFium makes one word
@given(
    parts=st.lists(PARAGRAPH | CELLS, min_size=1, max_size=8),
    style=st.sampled_from([GRID, RULES, SHADED[:1], []]),
)
def test_every_word_of_random_paragraphs_and_tables_comes_out_once(
    parts: list[str | list[list[str]]], style: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    flowing = [Paragraph(part, STYLE) if isinstance(part, str) else table(part, style) for part in parts]
    path = tmp_path_factory.getbasetemp() / "random.pdf"
    path.write_bytes(built(*(each for part in flowing for each in (part, Spacer(1, 20)))))
    words = Counter(
        word
        for part in parts
        for text in ([part] if isinstance(part, str) else [cell for row in part for cell in row])
        for word in text.split()
    )

    found = convert(path, ".pdf", Limits())

    assert Counter(re.findall(r"\w+", found.text)) == words
    assert found.left == {}
