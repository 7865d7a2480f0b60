"""PDF: text by pages, headings from the outline, running headers, scanned and damaged pages, passwords."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from ragidx.corpora.limits import MIB, Limits, ReadOptions
from ragidx.corpora.records import Document, Place

from ..conftest import ReadBytes, reading
from ..fuzz.office_files import pdf

pytest.importorskip("pypdfium2", reason="needs the extra 'docs'")


def pages_of(document: Document) -> list[tuple[int | None, str]]:
    """The text from each place to the next."""
    ends = [place.offset for place in document.places[1:]] + [len(document.text)]
    return [
        (place.page, document.text[place.offset : end].strip())
        for place, end in zip(document.places, ends, strict=True)
    ]


@pytest.mark.wheel
def test_pages_are_joined_by_a_blank_line_and_known_by_their_offsets(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.pdf", pdf([["Baikal", "is deep."], ["Tanganyika is long."]]))

    (document,) = found.documents
    assert document.text == "Baikal\nis deep.\n\nTanganyika is long."
    assert document.places == (Place(0, page=1), Place(17, page=2))
    assert found.reasons == []


@pytest.mark.slow
def test_title_and_author_are_those_of_the_file_unless_a_program_made_them_up(tmp_path: Path) -> None:
    told = "/Title (Lakes) /Author (Ada Byron) /Subject (Water) /Keywords (deep, cold)"
    (tmp_path / "a.pdf").write_bytes(pdf([["Deep."]], info=told))
    (tmp_path / "b.pdf").write_bytes(pdf([["Deep."]], info="/Title (Microsoft Word - lakes.doc)"))

    found = reading(tmp_path)

    of_a = {"title": "Lakes", "author": "Ada Byron", "subject": "Water", "keywords": "deep, cold"}
    assert [document.metadata for document in found.documents] == [of_a, {}]


@pytest.mark.slow
def test_lines_at_the_top_and_foot_of_most_pages_stay_once_and_numbers_of_pages_go(read_bytes: ReadBytes) -> None:
    pages = [["Lakes of the world", f"Body {word}.", f"page {n} of 4"] for n, word in enumerate("abcd", start=1)]

    found = read_bytes("a.pdf", pdf(pages))

    bodies = [(n, f"Body {word}.") for n, word in enumerate("bcd", start=2)]
    assert pages_of(found.documents[0]) == [(1, "Lakes of the world\nBody a."), *bodies]
    assert [(one.where, one.kind, one.count) for one in found.left] == [
        ("a.pdf#page=2", "repeated lines", 3),
        ("a.pdf#page=1", "page numbers", 4),
    ]


@pytest.mark.slow
def test_rows_of_numbers_that_look_alike_are_kept(read_bytes: ReadBytes) -> None:
    pages = [[f"{n} 20 30", f"{n}1 21 31"] for n in range(1, 6)]

    (document,) = read_bytes("a.pdf", pdf(pages)).documents

    assert pages_of(document) == [(n, f"{n} 20 30\n{n}1 21 31") for n in range(1, 6)]


@pytest.mark.slow
def test_lines_that_the_outline_names_become_headings_and_no_others(read_bytes: ReadBytes) -> None:
    pages = [["1. Baikal", "# is deep."], ["Tanganyika", "is long."]]

    (document,) = read_bytes("a.pdf", pdf(pages, outline=[("Baikal", 0), ("Tanganyika", 1), ("Gone", 9)])).documents

    assert document.markdown
    assert pages_of(document) == [(1, "# 1. Baikal\n\\# is deep."), (2, "# Tanganyika\nis long.")]


def test_an_outline_that_goes_in_a_circle_is_counted_and_nothing_is_printed(
    read_bytes: ReadBytes, capfd: pytest.CaptureFixture[str]
) -> None:
    data = pdf([["Baikal", "is deep."]], outline=[("Baikal", 0), ("Depth", 0)])
    circle = data.replace(b"/Dest [7 0 R /Fit] >>\nendobj\nxref", b"/Dest [7 0 R /Fit] /Next 9 0 R >>\nendobj\nxref")
    assert circle != data

    found = read_bytes("a.pdf", circle)

    assert found.texts == ["# Baikal\nis deep."]
    assert found.kinds == {"damaged parts": 1, "words of navigation": 1}
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_scanned_pages_are_counted_and_the_others_read(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.pdf", pdf([["One."], [], [], ["Four."], [], []], pictures=[1, 2, 4]))

    assert pages_of(found.documents[0]) == [(1, "One."), (4, "Four.")]
    assert found.reasons == []
    assert [(one.where, one.kind, one.count) for one in found.left] == [("a.pdf#page=2", "scanned pages", 3)]
    alone = read_bytes("b.pdf", pdf([[]], pictures=[0]))
    assert (alone.documents, alone.reasons) == ([], [])
    assert [(one.where, one.kind, one.count) for one in alone.left] == [("b.pdf#page=1", "scanned pages", 1)]


@pytest.mark.slow
def test_a_damaged_page_is_named_and_the_others_read(read_bytes: ReadBytes) -> None:
    broken = pdf([["One."], ["Two."], ["Three."]]).replace(b"/Kids [7 0 R 9 0 R", b"/Kids [7 0 R 3 0 R")

    found = read_bytes("a.pdf", broken)

    assert pages_of(found.documents[0]) == [(1, "One."), (3, "Three.")]
    assert found.reasons == [("a.pdf#page=2", "damaged pages")]


@pytest.mark.slow
def test_a_file_cut_anywhere_never_ends_the_reading(tmp_path: Path) -> None:
    whole = pdf([["Baikal"], ["Tanganyika"]], outline=[("Baikal", 0)])
    for number in range(0, len(whole), 97):
        (tmp_path / f"{number:05}.pdf").write_bytes(whole[:number])
    (tmp_path / "zz.pdf").write_bytes(whole)

    found = reading(tmp_path)

    assert found.ids[-1] == "zz.pdf"
    assert {where.partition("#")[0] for where, _ in found.reasons} | set(found.ids) == {
        path.name for path in tmp_path.iterdir()
    }


@pytest.mark.slow
def test_a_page_that_expands_beyond_the_memory_takes_one_file_along(tmp_path: Path) -> None:
    stream = zlib.compress(b" " * 600 * MIB)
    one = pdf([["Baikal"]])
    plain = re.search(rb"<< /Length \d+ >>\nstream\n.*?\nendstream", one, re.DOTALL)
    assert plain is not None
    packed = b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(stream), stream)
    (tmp_path / "a.pdf").write_bytes(one.replace(plain[0], packed))
    (tmp_path / "b.pdf").write_bytes(one)

    found = reading(tmp_path, ReadOptions(limits=Limits(worker_memory_bytes=512 * MIB)))

    assert found.texts == ["Baikal"]
    assert [where for where, _ in found.reasons] == ["a.pdf"]
