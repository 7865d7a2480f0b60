"""Real files, made by hand, through the real converters."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from ragidx.corpora.limits import Limits, ReadOptions
from ragidx.corpora.records import Place

from ..conftest import ReadBytes, reading
from ..fuzz.office_files import docx, epub, pdf, pptx, xlsx, zipped

pytest.importorskip("pypdfium2", reason="needs the extra 'docs'")

pytestmark = pytest.mark.slow


@pytest.mark.wheel
def test_pdf_and_office_files_become_text(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf([["Baikal is deep."]]))
    (tmp_path / "b.docx").write_bytes(docx("Lake Baikal", "It is deep."))
    (tmp_path / "c.pptx").write_bytes(pptx())
    (tmp_path / "d.xlsx").write_bytes(xlsx())
    (tmp_path / "e.epub").write_bytes(epub())
    (tmp_path / "f.pdf.gz").write_bytes(gzip.compress(pdf([["Packed."]])))

    found = reading(tmp_path)

    assert found.reasons == []
    assert [(document.id, document.text.strip(), document.metadata) for document in found.documents] == [
        ("a.pdf", "Baikal is deep.", {}),
        ("b.docx", "# Lake Baikal\n\nIt is deep.", {"title": "Lake Baikal"}),
        ("c.pptx", "# The deepest lakes", {}),
        ("d.xlsx", "## Lakes\nname | depth\nBaikal | 1642", {}),
        ("e.epub", "# Baikal\n\nIt is deep.", {"title": "Lakes of the world"}),
        ("f.pdf.gz", "Packed.", {}),
    ]
    assert {document.id for document in found.documents if document.markdown} == {
        "b.docx",
        "c.pptx",
        "d.xlsx",
        "e.epub",
    }
    assert {document.id: document.places for document in found.documents if document.places} == {
        name: (Place(0, page=1),) for name in ("a.pdf", "c.pptx", "d.xlsx", "e.epub", "f.pdf.gz")
    }


def test_the_chapters_of_a_book_are_pages(tmp_path: Path) -> None:
    (tmp_path / "a.epub").write_bytes(epub("<p></p>", "<h1>Baikal</h1><p>It is deep.</p>", "<p>Vostok \U0001f30a</p>"))
    (tmp_path / "b.epub").write_bytes(epub())

    book, short = reading(tmp_path).documents

    assert book.text == ("# Baikal\n\nIt is deep.\n\n# Baikal\n\nIt is deep.\n\nVostok \U0001f30a")
    first, third = book.text.index("# Baikal"), book.text.rindex("# Baikal")
    starts = [0, first, third - 1, third, book.text.index("Vostok"), len(book.text) - 1]
    assert [page for _, page in book.positions(starts)] == [1, 1, 1, 3, 4, 4]
    assert list(short.positions([0, 15])) == [(None, 1), (None, 1)]


def test_office_files_name_their_title_and_author(tmp_path: Path) -> None:
    core = (
        '<cp:coreProperties xmlns:cp="x" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<dc:title>Lakes &amp; seas</dc:title><dc:creator>Ada Byron</dc:creator></cp:coreProperties>"
    )
    for name, data in {"a.docx": docx("Heading"), "b.pptx": pptx(), "c.xlsx": xlsx()}.items():
        (tmp_path / name).write_bytes(data)
        with zipfile.ZipFile(tmp_path / name, "a") as archive:
            archive.writestr("docProps/core.xml", core)

    found = reading(tmp_path)

    assert [document.metadata for document in found.documents] == [
        {"title": title, "author": "Ada Byron"} for title in ("Heading", "Lakes & seas", "Lakes & seas")
    ]


def test_a_broken_file_is_told_and_the_next_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4 and then nothing of the kind")
    (tmp_path / "b.docx").write_bytes(b"no archive")
    (tmp_path / "c.docx").write_bytes(zipped({"hello.txt": "no document"}))
    (tmp_path / "d.pdf").write_bytes(pdf([[""]]))
    (tmp_path / "e.docx").write_bytes(docx("Good"))

    found = reading(tmp_path)

    assert found.ids == ["e.docx"]
    assert [where for where, _ in found.reasons] == ["a.pdf", "b.docx", "c.docx", "d.pdf"]
    reasons = [reason for _, reason in found.reasons]
    assert reasons[0] == "cannot be converted: damaged, or of another format than its ending says"
    assert reasons[1] == "cannot be converted: damaged, or of another format than its ending says"
    assert reasons[2].startswith("cannot be converted: ")
    assert reasons[3] == "empty text"


def test_more_text_than_the_limit_is_not_taken(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.pdf", pdf([["Baikal"]]), ReadOptions(limits=Limits(office_text_bytes=3)))

    assert found.reasons == [("a.pdf", "converts to more than 3 bytes of text")]


def test_without_the_extra_every_file_names_it(read_bytes: ReadBytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    found = read_bytes("a.pdf", pdf([["Baikal"]]))

    assert found.reasons == [("a.pdf", "needs the extra 'docs': pip install '.[docs]' in a checkout of ragidx")]
