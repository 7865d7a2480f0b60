"""Text recognition: order, rows and words of what was recognised; real pages, where the extra `ocr` is installed."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import Limits, ReadOptions
from ragidx.corpora.readers.ocr.engines import Recognised, _letters_in, _of_table, confidence
from ragidx.corpora.readers.ocr.pages import Scans, _in_order, _ruled
from ragidx.corpora.readers.pdf.text import Piece

from ..conftest import ReadBytes

AUTO = ReadOptions(fields={"ocr": ("auto",)})
HEAD = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext"
READABLE = ["The keeper climbed 168 steps", "every evening in winter", "and lit the lamp at dusk."]
FOREIGN = ["Договор аренды заключён на год", "и вступает в силу с первого мая."]


@pytest.fixture
def pillow() -> Any:
    pytest.importorskip("faster_paddle", reason="needs the extra 'ocr'")
    return pytest.importorskip("PIL.Image")


def drawn(*lines: str, kind: str = "PNG", more: Sequence[Sequence[str]] = (), ruled: bool = False) -> bytes:
    """A picture of lines of text; `more`: of further pages; cells between tabs are 220 pixels apart."""
    from matplotlib import get_data_path
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), 26)
    pages = []
    for page in (lines, *more):
        pages.append(Image.new("L", (700, 60 + 50 * len(page)), 255))
        pen = ImageDraw.Draw(pages[-1])
        for number, line in enumerate(page):
            for at, cell in enumerate(line.split("\t")):
                pen.text((40 + 220 * at, 30 + 50 * number), cell, fill=0, font=font)
                if ruled:
                    pen.rectangle((30 + 220 * at, 20 + 50 * number, 250 + 220 * at, 70 + 50 * number), outline=0)
    out = io.BytesIO()
    pages[0].save(out, kind, **({"save_all": True, "append_images": pages[1:]} if more else {}))
    return out.getvalue()


def png_of(wide: int, high: int) -> bytes:
    """The head of a picture, whose pixels are not there."""
    head = b"IHDR" + struct.pack(">IIBBBBB", wide, high, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head)) + b"\0\0\0\0IDAT"


def column(left: float, *texts: str, top: float = 0.0) -> list[Piece]:
    return [Piece(text, left, left + 200, top + 14 * n, top + 14 * n + 12) for n, text in enumerate(texts)]


def test_columns_of_prose_are_read_one_after_the_other_below_their_title() -> None:
    words = ["a lake of much water", "is deep and very cold", "in the month of May", "for all of its fish"]
    title = Piece("Lakes of the world, and what lives in them", 50, 420, -40, -26)

    found = list(_in_order([*column(240, *reversed(words), top=5), *column(0, *words), title]))

    assert [piece.text for piece in found] == [title.text, *words, *reversed(words)]


def test_cells_are_read_row_by_row() -> None:
    found = list(_in_order([*column(240, "250", "12", "7", "1"), *column(0, "bolt", "washer", "wrench", "box")]))

    assert " ".join(piece.text for piece in found) == "bolt 250 washer 12 wrench 7 box 1"


@pytest.mark.parametrize(("sure", "kind"), [(96, "pages read by OCR"), (41, "scanned pages, script not known")])
def test_a_page_of_which_tesseract_is_not_sure_is_of_another_script(sure: int, kind: str) -> None:
    image = pytest.importorskip("PIL.Image").new("L", (400, 90), 255)
    word = f"5\t1\t1\t1\t1\t1\t40\t30\t200\t30\t{sure}\tLeuchtturm"
    asked, left = [], Tally()
    scans = Scans("deu", Limits(), lambda pgm, names: asked.append((pgm[:14], len(pgm), names)) or f"{HEAD}\n{word}\n")

    lines = scans.lines(lambda: image, left, "#page=3")

    assert asked == [(b"P5 400 90 255\n", 14 + 400 * 90, "deu")]
    assert lines == ["Leuchtturm"] * (sure == 96)
    assert dict(left) == {kind: (1, "#page=3")}
    assert scans.fields == ({"file.ocr": 1, "file.ocr_confidence": 0.96} if sure == 96 else {})


@settings(max_examples=25)
@given(st.lists(st.tuples(*[st.integers(0, 600)] * 2, st.integers(1, 400), st.integers(1, 30)), max_size=40))
def test_every_piece_is_read_once(boxes: list[tuple[int, int, int, int]]) -> None:
    pieces = [Piece(f"{n} of these words", x, x + w, y, y + h) for n, (x, y, w, h) in enumerate(boxes)]

    assert sorted(piece.text for piece in _in_order(pieces)) == sorted(piece.text for piece in pieces)


def test_words_of_tesseract_are_lines_but_for_cells_and_thai_has_no_spaces() -> None:
    rows = [
        ("1", "1", "0", "0", "100", "20", "95", "red"),
        ("1", "2", "110", "0", "100", "20", "90.5", "lamp"),
        ("1", "3", "260", "0", "80", "20", "80", "7.50"),
        ("2", "1", "0", "40", "50", "20", "91", "ห้อง"),
        ("2", "2", "53", "40", "50", "20", "91", "พัก"),
        ("2", "3", "115", "40", "50", "20", "91", "มี"),
    ]
    cells = ("\t".join(("5", "1", "1", "1", line, n, *rest)) for line, n, *rest in rows)

    found = _of_table("\n".join([HEAD, "1\t1\t0\t0\t0\t0\t0\t0\t9\t9\t-1\t", *cells]))

    assert [one.text for one in found] == ["red lamp", "7.50", "ห้องพัก มี"]
    assert found[0].confidence == pytest.approx((0.95 * 3 + 0.905 * 4) / 7)
    assert (found[0].left, found[0].right, found[2].top) == (0, 210, 40)


def test_letters_below_a_line_count_by_what_they_share() -> None:
    line, half = Recognised("of a lake", 0.9, 0, 0, 100, 20), Recognised("abcdefghij", 0.9, 50, 1, 150, 19)

    assert _letters_in(line, [half, Recognised("below", 0.9, 0, 30, 100, 50)]) == 5.0
    assert confidence([]) == 0.0


def test_lines_that_are_drawn_are_found_in_points() -> None:
    pixels = np.full((300, 400), 255, np.uint8)
    pixels[100:103, 50:350] = pixels[20:200, 80] = 0
    pixels[10, :8] = 0  # of a letter

    class Picture(np.ndarray[Any, Any]):
        size = (400, 300)  # type: ignore[assignment]

    assert _ruled(pixels.view(Picture), 0.5) == [(25.0, -50.0, 175.0, -50.0), (40.0, -100.0, 40.0, -10.0)]


@pytest.mark.parametrize("ending", [".png", ".jpeg", ".tif", ".webp"])
def test_a_picture_is_skipped_unless_it_is_asked_for(read_bytes: ReadBytes, ending: str) -> None:
    assert read_bytes(f"a{ending}", b"x").reasons == [(f"a{ending}", "picture, not read without `ocr`")]
    options = ReadOptions(fields={"ocr": ("b/*=auto", "off")})
    assert read_bytes(f"a{ending}", b"x", options).reasons == [(f"a{ending}", "picture, not read without `ocr`")]


@pytest.mark.slow
def test_a_picture_is_its_text_whatever_its_ending(read_bytes: ReadBytes, pillow: Any) -> None:
    found = read_bytes("a.png", drawn(*READABLE, kind="JPEG"), AUTO)

    (document,) = found.documents
    assert document.text == "\n".join(READABLE)
    assert document.places == ()
    assert document.file["file.ocr"] == 1
    assert 0.95 < document.file["file.ocr_confidence"] <= 1  # type: ignore[operator]
    assert [(one.where, one.kind, one.count) for one in found.left] == [("a.png", "pages read by OCR", 1)]


@pytest.mark.slow
def test_pages_of_a_script_that_is_not_known_are_lost_and_not_indexed(read_bytes: ReadBytes, pillow: Any) -> None:
    found = read_bytes("a.tif", drawn(*FOREIGN, kind="TIFF", more=[READABLE]), AUTO)

    (document,) = found.documents
    assert document.text == "\n".join(READABLE)
    assert [place.page for place in document.places] == [2]
    assert document.file["file.ocr"] == 1
    assert [(one.where, one.kind, one.count) for one in found.left] == [
        ("a.tif#page=1", "scanned pages, script not known", 1),
        ("a.tif#page=2", "pages read by OCR", 1),
    ]


@pytest.mark.slow
def test_rows_between_lines_that_are_drawn_are_rows(read_bytes: ReadBytes, pillow: Any) -> None:
    rows = ["Part\tCount\tPrice", "Hex bolt\t250\t0.18", "Washer\t500\t0.02", "Wrench\t1\t89.00"]

    (document,) = read_bytes("a.png", drawn(*rows, ruled=True), AUTO).documents

    assert document.text == "\n".join(row.replace("\t", " | ") for row in rows)


@pytest.mark.slow
def test_scanned_pages_of_a_pdf_are_read_beside_those_of_text(read_bytes: ReadBytes, pillow: Any) -> None:
    from pypdf import PdfReader, PdfWriter

    from ..fuzz.office_files import pdf

    made, out = PdfWriter(), io.BytesIO()
    for data in (pdf([["Typed."]]), drawn(*READABLE, kind="PDF")):
        made.append(PdfReader(io.BytesIO(data)))
    made.write(out)

    (document,) = read_bytes("a.pdf", out.getvalue(), AUTO).documents

    assert document.text.split("\n\n")[0] == "Typed."
    assert "".join(document.text.split()) == "".join(["Typed.", *READABLE]).replace(" ", "")  # spaces may be missed
    assert [place.page for place in document.places] == [1, 2]
    assert document.file["file.ocr"] == 1
    off = read_bytes("a.pdf", out.getvalue())
    assert (off.texts, off.kinds) == (["Typed."], {"scanned pages": 1})


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.png", png_of(100_000, 100_000), "a picture of more than 100 million pixels: 100,000 x 100,000"),
        ("a.png", png_of(9, 9), "cannot be converted: OSError"),
        ("a.jpg", b"a text", "damaged, or no PNG, JPEG, TIFF or WebP"),
        ("a.webp", b"%PDF-1.4", "damaged, or no PNG, JPEG, TIFF or WebP"),
    ],
)
def test_a_picture_that_is_none_or_too_large_is_skipped_in_a_line(
    read_bytes: ReadBytes, pillow: Any, name: str, data: bytes, reason: str
) -> None:
    found = read_bytes(name, data, AUTO)

    assert [where for where, _ in found.reasons] == [name]
    assert found.reasons[0][1].startswith(reason)
    assert found.left == []


@pytest.mark.slow
def test_a_picture_without_text_is_skipped_and_pages_beyond_the_bound_are_told(
    read_bytes: ReadBytes, pillow: Any
) -> None:
    assert read_bytes("a.png", drawn(""), AUTO).reasons == [("a.png", "picture without text")]
    limits = Limits(ocr_pages=2)
    options = ReadOptions(fields=AUTO.fields, limits=limits)

    found = read_bytes("a.tiff", drawn(READABLE[0], kind="TIFF", more=[READABLE[:1]] * 4), options)

    assert [one.file["file.ocr"] for one in found.documents] == [2]
    assert found.kinds == {"pages read by OCR": 2, "scanned pages": 3}
