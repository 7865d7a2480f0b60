"""Archives, tiny office files and a PDF, made by hand: what tests of readers read, and the fuzzer breaks."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence

XML = '<?xml version="1.0" encoding="UTF-8"?>'
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MAIN = "application/vnd.openxmlformats-officedocument"


def zipped(members: Mapping[str, str | bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return sink.getvalue()


def tarred(members: Mapping[str, str | bytes | tarfile.TarInfo], mode: str = "w") -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode=mode) as archive:
        for name, data in members.items():
            if isinstance(data, tarfile.TarInfo):
                archive.addfile(data)
                continue
            raw = data.encode() if isinstance(data, str) else data
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
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


FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
PICTURE = (
    b"<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /BitsPerComponent 8 /ColorSpace /DeviceGray /Length 1 >>"
    b"\nstream\n\x00\nendstream"
)


def pdf(
    pages: Sequence[Sequence[str]],
    *,
    info: str = "",
    outline: Sequence[tuple[str, int]] = (),
    pictures: Sequence[int] = (),
) -> bytes:
    """A PDF of pages of lines; `outline`: titles and pages from 0; `pictures`: pages from 0 that show one."""
    first, n = 7, len(pages)
    entries = first + 2 * n
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R" + (b" /Outlines 6 0 R" if outline else b"") + b" >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(b"%d 0 R" % (first + 2 * at) for at in range(n)), n),
        FONT,
        PICTURE,
        f"<< {info} >>".encode(),
        b"<< /First %d 0 R /Last %d 0 R /Count %d >>" % (entries, entries + len(outline) - 1, len(outline)),
    ]
    for at, lines in enumerate(pages):
        shown = [f"1 0 0 1 72 {720 - 20 * row} Tm ({line}) Tj" for row, line in enumerate(lines)]
        content = f"BT /F1 12 Tf {' '.join(shown)} ET {'/P Do' if at in pictures else ''}".encode()
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R" % (first + 2 * at + 1)
            + b" /Resources << /Font << /F1 3 0 R >> /XObject << /P 4 0 R >> >> >>",
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        ]
    for number, (title, page) in enumerate(outline):
        more = b" /Next %d 0 R" % (entries + number + 1) if number + 1 < len(outline) else b""
        objects.append(
            b"<< /Title (%s) /Parent 6 0 R /Dest [%d 0 R /Fit]%s >>" % (title.encode(), first + 2 * page, more)
        )
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return data + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R /Info 5 0 R >>\nstartxref\n%d\n%%%%EOF\n"
        % (len(objects) + 1, table, len(objects) + 1, len(data))
    )


def filled_pdf() -> bytes:
    """A PDF with a ruled table, an outline, a picture, fields and notes; PDFium mends its offsets."""
    rules = b"".join(
        b"60 %d m 400 %d l S %d 740 m %d 660 l S " % (y, y, x, x) for x, y in ((60, 740), (200, 700), (400, 660))
    )
    notes = (
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (star) /V (Vega) /Rect [1 1 9 9] >>"
        b"<< /Type /Annot /Subtype /Widget /FT /Ch /T (class) /V (A) /Opt [(A) (B)] /Rect [1 1 9 9] >>"
        b"<< /Type /Annot /Subtype /Text /Contents (It is bright.) /Rect [1 1 9 9] >>"
    )
    made = pdf([["A star.", "Vega"], ["A pulsar."]], outline=[("A star.", 0), ("A pulsar.", 1)], pictures=[1])
    made = made.replace(b"/Type /Catalog", b"/Type /Catalog /AcroForm << /Fields [] >>")
    return made.replace(b"/MediaBox", b"/Rotate 90 /Annots [" + notes + b"] /MediaBox").replace(
        b"\nBT /F1", b"\n" + rules + b"BT /F1"
    )
