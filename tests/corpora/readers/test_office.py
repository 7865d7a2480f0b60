"""Real files, made by hand, through a real converter process."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from ragidx.corpora.limits import MIB, UnreadableError
from ragidx.corpora.readers.packed import office
from ragidx.corpora.readers.packed.office import OfficeConverter
from ragidx.corpora.readers.registry import Limits, ReadOptions, documents
from ragidx.corpora.records import Place

from ..conftest import ReadBytes, reading

pytest.importorskip("markitdown", reason="needs the extra 'docs'")

pytestmark = pytest.mark.slow

XML = '<?xml version="1.0" encoding="UTF-8"?>'
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MAIN = "application/vnd.openxmlformats-officedocument"


def zipped(members: dict[str, str]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return sink.getvalue()


def package(part: str, kind: str, body: str, **more: str) -> bytes:
    """An Office file whose main part is `body`; `more` parts by name, relationships among them."""
    types = "".join(
        f'<Override PartName="/{name}" ContentType="{MAIN}.{what}"/>'
        for name, what in {part: kind, **{n: t for n, t in SUBTYPES.items() if n in more}}.items()
    )
    return zipped(
        {
            "[Content_Types].xml": f'{XML}<Types xmlns="{PACKAGE}/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Default Extension="xml" ContentType="application/xml"/>{types}</Types>',
            "_rels/.rels": relationships(officeDocument=part),
            part: XML + body,
            **more,
        }
    )


SUBTYPES = {
    "xl/worksheets/sheet1.xml": "spreadsheetml.worksheet+xml",
    "ppt/slides/slide1.xml": "presentationml.slide+xml",
    "ppt/slideLayouts/slideLayout1.xml": "presentationml.slideLayout+xml",
    "ppt/slideMasters/slideMaster1.xml": "presentationml.slideMaster+xml",
}


def relationships(**targets: str) -> str:
    links = "".join(
        f'<Relationship Id="r{number}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets.items(), start=1)
    )
    return f'{XML}<Relationships xmlns="{PACKAGE}/relationships">{links}</Relationships>'


def docx(*paragraphs: str) -> bytes:
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    heading, *rest = paragraphs
    body = f'<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>{heading}</w:t></w:r></w:p>' + "".join(
        f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in rest
    )
    document = f'<w:document xmlns:w="{word}"><w:body>{body}</w:body></w:document>'
    return package("word/document.xml", "wordprocessingml.document.main+xml", document)


def xlsx() -> bytes:
    sheet = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    sheets = '<sheets><sheet name="Lakes" sheetId="1" r:id="r1"/></sheets>'
    book = f'<workbook xmlns="{sheet}" xmlns:r="{OFFICE}">{sheets}</workbook>'
    rows = (
        '<row r="1"><c r="A1" t="inlineStr"><is><t>name</t></is></c>'
        '<c r="B1" t="inlineStr"><is><t>depth</t></is></c></row>'
        '<row r="2"><c r="A2" t="inlineStr"><is><t>Baikal</t></is></c><c r="B2"><v>1642</v></c></row>'
    )
    return package(
        "xl/workbook.xml",
        "spreadsheetml.sheet.main+xml",
        book,
        **{
            "xl/_rels/workbook.xml.rels": relationships(worksheet="worksheets/sheet1.xml"),
            "xl/worksheets/sheet1.xml": f'{XML}<worksheet xmlns="{sheet}"><sheetData>{rows}</sheetData></worksheet>',
        },
    )


def pptx() -> bytes:
    show = "http://schemas.openxmlformats.org/presentationml/2006/main"
    draw = "http://schemas.openxmlformats.org/drawingml/2006/main"
    names = f'xmlns:p="{show}" xmlns:a="{draw}" xmlns:r="{OFFICE}"'
    group = '<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>'
    title = (
        '<p:sp><p:nvSpPr><p:cNvPr id="2" name="Title"/><p:cNvSpPr/><p:nvPr><p:ph type="title"/></p:nvPr></p:nvSpPr>'
        "<p:spPr/><p:txBody><a:bodyPr/><a:p><a:r><a:t>The deepest lakes</a:t></a:r></a:p></p:txBody></p:sp>"
    )
    tree = f"<p:cSld><p:spTree>{group}{{}}</p:spTree></p:cSld>"
    return package(
        "ppt/presentation.xml",
        "presentationml.presentation.main+xml",
        f'<p:presentation {names}><p:sldIdLst><p:sldId id="256" r:id="r1"/></p:sldIdLst></p:presentation>',
        **{
            "ppt/_rels/presentation.xml.rels": relationships(slide="slides/slide1.xml"),
            "ppt/slides/slide1.xml": f"{XML}<p:sld {names}>{tree.format(title)}</p:sld>",
            "ppt/slides/_rels/slide1.xml.rels": relationships(slideLayout="../slideLayouts/slideLayout1.xml"),
            "ppt/slideLayouts/slideLayout1.xml": f"{XML}<p:sldLayout {names}>{tree.format('')}</p:sldLayout>",
        },
    )


def epub(*more: str) -> bytes:
    """A book of one chapter, and of more of these texts."""
    items = "".join(f'<item id="c{n}" href="c{n}.xhtml" media-type="application/xhtml+xml"/>' for n in range(len(more)))
    refs = "".join(f'<itemref idref="c{n}"/>' for n in range(len(more)))
    page = '<html xmlns="http://www.w3.org/1999/xhtml"><body>{}</body></html>'
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": f'{XML}<container version="1.0"'
            ' xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
            "book.opf": f'{XML}<package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
            '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Lakes of the world</dc:title></metadata>'
            f'<manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/>{items}</manifest>'
            f'<spine><itemref idref="a"/>{refs}</spine></package>',
            "a.xhtml": page.format("<h1>Baikal</h1><p>It is deep.</p>"),
            **{f"c{n}.xhtml": page.format(text) for n, text in enumerate(more)},
        }
    )


def pdf(text: str) -> bytes:
    """One page with one line of text."""
    content = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    data = b"%PDF-1.4\n"
    places = []
    for number, body in enumerate(objects, start=1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return data + (
        b"xref\n0 6\n0000000000 65535 f \n%strailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
        % (table, len(data))
    )


def test_pdf_and_office_files_become_text(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf("Baikal is deep."))
    (tmp_path / "b.docx").write_bytes(docx("Lake Baikal", "It is deep."))
    (tmp_path / "c.pptx").write_bytes(pptx())
    (tmp_path / "d.xlsx").write_bytes(xlsx())
    (tmp_path / "e.epub").write_bytes(epub())
    (tmp_path / "f.pdf.gz").write_bytes(gzip.compress(pdf("Packed.")))

    found = reading(tmp_path)

    assert found.reasons == []
    assert [(document.id, document.text.strip(), document.metadata) for document in found.documents] == [
        ("a.pdf", "Baikal is deep.", {}),
        ("b.docx", "# Lake Baikal\n\nIt is deep.", {"title": "Lake Baikal"}),
        ("c.pptx", "<!-- Slide number: 1 -->\n# The deepest lakes", {}),
        ("d.xlsx", "## Lakes\n| name | depth |\n| --- | --- |\n| Baikal | 1642 |", {}),
        ("e.epub", "**Title:** Lakes of the world\n\n# Baikal\n\nIt is deep.", {"title": "Lakes of the world"}),
        ("f.pdf.gz", "Packed.", {}),
    ]
    assert {document.id for document in found.documents if document.markdown} == {
        "b.docx",
        "c.pptx",
        "d.xlsx",
        "e.epub",
    }
    assert {document.id: document.places for document in found.documents if document.places} == {
        name: (Place(0, page=1),) for name in ("a.pdf", "c.pptx", "d.xlsx", "f.pdf.gz")
    }


def test_the_chapters_of_a_book_are_pages(tmp_path: Path) -> None:
    (tmp_path / "a.epub").write_bytes(epub("<p></p>", "<h1>Baikal</h1><p>It is deep.</p>", "<p>Vostok \U0001f30a</p>"))
    (tmp_path / "b.epub").write_bytes(epub())

    book, short = reading(tmp_path).documents

    assert book.text == (
        "**Title:** Lakes of the world\n\n# Baikal\n\nIt is deep.\n\n\n\n# Baikal\n\nIt is deep.\n\nVostok \U0001f30a"
    )
    first, third = book.text.index("# Baikal"), book.text.rindex("# Baikal")
    starts = [0, first, third - 1, third, book.text.index("Vostok"), len(book.text) - 1]
    assert [page for _, page in book.positions(starts)] == [1, 1, 2, 3, 4, 4]
    assert list(short.positions([0, 40])) == [(None, 1), (None, 1)]
    assert (book.places, short.places) == ((), ())  # they are parts: no part of what the book is


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
    (tmp_path / "d.pdf").write_bytes(pdf(""))
    (tmp_path / "e.docx").write_bytes(docx("Good"))

    found = reading(tmp_path)

    assert found.ids == ["e.docx"]
    assert [where for where, _ in found.reasons] == ["a.pdf", "b.docx", "c.docx", "d.pdf"]
    reasons = [reason for _, reason in found.reasons]
    assert reasons[0] == "cannot be converted: PdfiumError: Failed to load document (PDFium: Data format error)."
    assert reasons[1] == "damaged .docx file: File is not a zip file"
    assert reasons[2].startswith("cannot be converted: ")
    assert reasons[3] == "empty text"


@pytest.mark.parametrize("ending", ["docx", "xlsx", "pptx", "epub"])
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(office_unpacked_bytes=MIB), "expands to more than 1 MiB"),
        (Limits(office_members=1), "an archive of more than 1 files"),
        (Limits(), "expands to more than 200 times its size"),
    ],
)
def test_an_archive_that_is_a_bomb_is_not_opened(
    read_bytes: ReadBytes, ending: str, limits: Limits, reason: str
) -> None:
    bomb = zipped({"word/document.xml": "x" * (80 * MIB if limits == Limits() else 2 * MIB), "b": ""})

    assert read_bytes(f"a.{ending}", bomb, ReadOptions(limits=limits)).reasons == [(f"a.{ending}", reason)]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(office_timeout_s=0.0), "conversion takes more than 0 s"),
        (Limits(office_text_bytes=3), "converts to more than 3 bytes of text"),
    ],
)
def test_a_conversion_beyond_its_limits_is_stopped(read_bytes: ReadBytes, limits: Limits, reason: str) -> None:
    assert read_bytes("a.pdf", pdf("Baikal"), ReadOptions(limits=limits)).reasons == [("a.pdf", reason)]


def test_a_converter_without_room_to_start_is_told(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.pdf", pdf("Baikal"), ReadOptions(limits=Limits(office_memory_bytes=16 * MIB)))

    assert found.documents == []
    assert found.reasons[0][1].startswith("the converter does not start: ")


def test_a_converter_that_dies_takes_one_file_along(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf("Baikal"))

    with OfficeConverter(Limits()) as converter:
        converter.convert(tmp_path / "a.pdf", ".pdf")
        child = converter._child
        assert child is not None
        os.kill(child.pid, signal.SIGSTOP)
        threading.Timer(0.2, os.kill, (child.pid, signal.SIGKILL)).start()
        with pytest.raises(UnreadableError) as caught:
            converter.convert(tmp_path / "a.pdf", ".pdf")
        again = converter.convert(tmp_path / "a.pdf", ".pdf")

    assert str(caught.value) == "the converter ended with status -9"
    assert again.text == "Baikal"


def test_a_converter_may_not_open_a_connection() -> None:
    script = (
        "import socket, runpy, sys\n"
        "refuse = runpy.run_path(sys.argv[1])['_refuse']\n"
        "sys.addaudithook(refuse)\n"
        "try:\n    socket.create_connection(('localhost', 9))\n"
        "except PermissionError as fault:\n    print(fault)\n"
    )
    path = Path(office.__file__).with_name("office_child.py")

    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, check=True)

    assert done.stdout == b"socket.getaddrinfo is not allowed in the converter\n"


def test_the_converter_ends_with_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(docx("One"))
    (tmp_path / "b.docx").write_bytes(docx("Two"))
    children: list[int] = []

    stream = documents(tmp_path, on_skip=pytest.fail)
    next(stream)
    children += [int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent(path) == os.getpid()]
    stream.close()

    assert children
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except FileNotFoundError:
        return 0


def test_without_the_extra_every_file_names_it(read_bytes: ReadBytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    found = read_bytes("a.pdf", pdf("Baikal"))

    assert found.reasons == [
        ("a.pdf", "needs the extra 'docs': pip install '.[docs]' in a checkout, or pip install 'ragidx[docs]'")
    ]


# Readers of third parties
