"""A document of Word and a presentation with a word in every place."""

from __future__ import annotations

from ..fuzz.office_files import PACKAGE, XML
from .office import (
    box,
    chart,
    drawn,
    nested,
    para,
    part,
    plain,
    related,
    row,
    run,
    shape,
    slide_file,
    table,
    word_file,
)
from .places import Places

_DC = "http://purl.org/dc/elements/1.1/"
_CODES = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
_BEGIN, _THEN, _END = (_CODES.replace("{}", kind) for kind in ("begin", "separate", "end"))
_LIST = '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>'
_POINT = nested("dgm:ptLst dgm:pt dgm:t", drawn("{}"))
_PICTURE = '<wp:docPr id="7" name="p"@/>'


def properties(at: Places) -> dict[str, str | bytes]:
    """The parts of the properties of a package."""
    core = "".join(
        at(f"{name} in the properties", f"<{tag}>{{}}</{tag}>")
        for name, tag in (
            ("title", "dc:title"),
            ("author", "dc:creator"),
            ("subject", "dc:subject"),
            ("keywords", "cp:keywords"),
            ("description", "dc:description"),
            ("category", "cp:category"),
        )
    )
    company = at("company in the properties", "<Company>{}</Company>")
    custom = at("custom property", '<property pid="2" name="Client"><vt:lpwstr>{}</vt:lpwstr></property>')
    types = "http://schemas.openxmlformats.org/officeDocument/2006"
    return {
        "docProps/core.xml": f'{XML}<cp:coreProperties xmlns:cp="{PACKAGE}/metadata/core-properties" xmlns:dc="{_DC}">'
        f"{core}</cp:coreProperties>",
        "docProps/app.xml": f'{XML}<Properties xmlns="{types}/extended-properties">{company}</Properties>',
        "docProps/custom.xml": f'{XML}<Properties xmlns="{types}/custom-properties" xmlns:vt="{types}/docPropsVTypes">'
        f"{custom}</Properties>",
    }


def _notes(at: Places, kind: str) -> str:
    return part(f"w:{kind}s", at(kind, f'<w:{kind} w:id="2">{plain("{}")}</w:{kind}>'))


def _control(inner: str, look: str = "") -> str:
    return f"<w:sdt><w:sdtPr>{look}</w:sdtPr><w:sdtContent>{inner}</w:sdtContent></w:sdt>"


def _form(inner: str) -> str:
    return nested("w:r w:fldChar w:ffData", inner)


def _paragraphs(at: Places) -> list[str]:
    half = nested(
        "mc:AlternateContent", nested("mc:Choice", box(plain("{}"))) + nested("mc:Fallback", box(plain("{}")))
    )
    tip = at("tooltip of a link", ' w:tooltip="{}"')
    return [
        at("heading", plain("{}", '<w:pStyle w:val="H1"/>')),
        at("paragraph", plain("{}")),
        at("list item", plain("{}", _LIST)),
        para(
            nested("w:hyperlink", at("text of a link", run("{} "))).replace(">", f' r:id="link"{tip}>', 1),
            at("simple field", f'<w:fldSimple w:instr="SEQ">{run("{}")}</w:fldSimple>'),
            _BEGIN,
            at("field code", "<w:r><w:instrText> {} </w:instrText></w:r>"),
            _THEN,
            at("field result", run(" {}")),
            _END,
        ),
        para(
            at("inserted", nested("w:ins", run("{} "))),
            at("deleted", nested("w:del w:r w:delText", "{}")),
            at("moved to", nested("w:moveTo", run("{} "))),
            at("moved from", nested("w:moveFrom", run("{}"))),
            at("hidden", run("{}", "<w:vanish/>")),
            at("right-to-left run", nested("w:bdo", run("{} "))),
            at("ruby base", nested("w:r w:ruby w:rubyBase", run("{} "))),
            at("ruby reading", nested("w:r w:ruby w:rt", run("{}"))),
            at("smart tag", nested("w:smartTag", run("{} "))),
            at("custom XML", nested("w:customXml", run("{} "))),
            at("content control", _control(run("{} "))),
            at("unknown element", nested("x:new", run("{}"))),
            at("words outside of runs", "<x:other>{}</x:other>"),
        ),
        para(
            _control(
                at("choice taken in a list", run("{} ")),
                at("title of a content control", '<w:alias w:val="{}"/>')
                + at(
                    "other choice of a list",
                    '<w:dropDownList><w:listItem w:displayText="{}" w:value="1"/></w:dropDownList>',
                ),
            ),
            _form(at("default of a form field", '<w:textInput><w:default w:val="{}"/></w:textInput>')),
            _form(at("help of a form field", '<w:helpText w:type="text" w:val="{}"/>')),
            _form(at("chosen in a form field", '<w:ddList><w:listEntry w:val="{}"/></w:ddList>')),
        ),
        para(
            run("notes"),
            '<w:r><w:footnoteReference w:id="2"/><w:endnoteReference w:id="2"/><w:commentReference w:id="2"/></w:r>',
        ),
        table(
            at("alternative text of a table", '<w:tblPr><w:tblDescription w:val="{}"/></w:tblPr>'),
            row(at("table cell", plain("{}")) or plain(""), plain("x")),
            row(at("nested table", table(row(plain("{}")))) + plain(""), at("second cell", plain("{}")) or "<w:p/>"),
        ),
        para(at("text box", nested("w:r", half))),
        para(at("text box of old programs", nested("w:r w:pict v:shape v:textbox w:txbxContent", plain("{}")))),
        para(at("word art", '<w:r><w:pict><v:shape><v:textpath string="{}"/></v:shape></w:pict></w:r>')),
        para(at("formula", nested("m:oMath m:r m:t", "{}"))),
        para(
            nested("w:r w:drawing wp:inline", _PICTURE.replace("@", at("alternative text", ' descr="{}"'))),
            nested("w:r w:drawing wp:inline", _PICTURE.replace("@", at("title of a picture", ' title="{}"'))),
        ),
        para(nested("w:r w:drawing wp:inline a:graphic a:graphicData", '<c:chart r:id="chart"/>')),
        para(nested("w:r w:drawing wp:inline a:graphic a:graphicData", '<dgm:relIds r:dm="diagram"/>')),
        '<w:altChunk r:id="chunk"/>',
    ]  # fmt: skip


def docx(at: Places) -> bytes:
    """A document of Word."""
    body = "".join(_paragraphs(at))
    author = at("author of a comment", ' w:author="{}"')
    series = {at("series of a chart"): {at("category of a chart"): 7.0}}
    label = at("label of a list", "{} ")
    link = at("address of a link", "https://example.org/{}")
    parts: dict[str, str | bytes] = {
        "styles.xml": part(
            "w:styles",
            '<w:style w:type="paragraph" w:styleId="H1"><w:name w:val="heading 1"/></w:style>',
        ),
        "numbering.xml": part(
            "w:numbering",
            '<w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/>'
            f'<w:lvlText w:val="{label}%1"/></w:lvl></w:abstractNum>'
            '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>',
        ),
        "footnotes.xml": _notes(at, "footnote"),
        "endnotes.xml": _notes(at, "endnote"),
        "comments.xml": part("w:comments", f'<w:comment w:id="2"{author}>{at("comment", plain("{}"))}</w:comment>'),
        "header1.xml": part("w:hdr", at("header", plain("{}"))),
        "header2.xml": part("w:hdr", at("header of the first page", table(row(plain("{}"))))),
        "footer1.xml": part("w:ftr", at("footer", plain("{}"))),
        "charts/chart1.xml": chart(at("title of a chart"), series),
        "diagrams/data1.xml": part("dgm:dataModel", at("diagram", _POINT)),
    }  # fmt: skip
    if chunk := at("page put in", "<html><body><p>{}</p></body></html>"):
        parts["chunk.html"] = chunk
    if embedded := at("embedded file"):
        parts["embeddings/a.bin"] = embedded.encode()
    if glossary := at("building block", nested("w:docParts w:docPart w:docPartBody", plain("{}"))):
        parts["glossary/document.xml"] = part("w:glossaryDocument", glossary)
    if unknown := at("unknown part", "<x:y>{}</x:y>"):
        parts["unknown.xml"] = part("x:z", unknown)
    relations = [
        *((name, name.rstrip("12"), f"{name}.xml") for name in ("header1", "header2", "footer1")),
        *((name, name, f"{name}.xml") for name in ("styles", "numbering", "footnotes", "endnotes", "comments")),
        *([("link", "hyperlink", link)] if link else []),
        ("chart", "chart", "charts/chart1.xml"),
        ("diagram", "diagramData", "diagrams/data1.xml"),
        ("chunk", "aFChunk", "chunk.html"),
        ("ole", "oleObject", "embeddings/a.bin"),
    ]
    named = {f"word/{name}": data for name, data in parts.items()}
    return word_file(body, *relations, parts=named | properties(at))


def _graphic(inner: str) -> str:
    return nested("p:graphicFrame a:graphic a:graphicData", inner)


def _shapes(at: Places) -> list[str]:
    cells = at("table cell", f"<a:tc><a:txBody>{drawn('{}')}</a:txBody></a:tc>")
    alternatives = nested("mc:Choice", shape("{}")) + nested("mc:Fallback", shape("{}"))
    tip = at("tooltip of a link", ' tooltip="{}"')
    return [
        at("title", shape("{}", holder="title")),
        at("subtitle", shape("{}", holder="subTitle")),
        at("text box", shape("{}")),
        at("shape in a group", nested("p:grpSp", shape("{}"))),
        shape(
            nested(
                "a:p a:r", f'<a:rPr><a:hlinkClick r:id="link"{tip}/></a:rPr>' + at("text of a link", "<a:t>{}</a:t>")
            )
        ),
        at("field", shape(nested("a:p a:fld a:t", "{}"))),
        at("formula", shape(nested("a:p x:m m:oMath m:r m:t", "{}"))),
        at("shape with a fallback", nested("mc:AlternateContent", alternatives)),
        at("shape in an unknown element", nested("x:new", shape("{}"))),
        at("words outside of shapes", "<x:other>{}</x:other>"),
        at("footer of a slide", shape("{}", holder="ftr")),
        _graphic(nested("a:tbl a:tr", cells)),
        _graphic('<c:chart r:id="chart"/>') + _graphic('<dgm:relIds r:dm="diagram"/>'),
        shape("x", alt=at("alternative text")),
    ]


def pptx(at: Places) -> bytes:
    """A presentation."""
    shapes = "".join(_shapes(at))
    series = {at("series of a chart"): {at("category of a chart"): 7.0}}
    link = at("address of a link", "https://example.org/{}")
    author = at("author of a comment", '<p:cmAuthor id="0" name="{}"/>')
    threads = (
        at("comment", "<p:cm><p:text>{}</p:text></p:cm>")
        + ('<p:cm authorId="0">' if author else "<p:cm>")
        + at("reply to a comment", nested("p:replyLst p:reply p:txBody", drawn("{}")))
        + "<p:txBody/></p:cm>"
    )  # fmt: skip
    parts: dict[str, str | bytes] = {
        "slides/_rels/slide0.xml.rels": related(
            *([("link", "hyperlink", link)] if link else []),
            ("chart", "chart", "../charts/chart1.xml"),
            ("diagram", "diagramData", "../diagrams/data1.xml"),
            ("notes", "notesSlide", "../notesSlides/notesSlide1.xml"),
            ("comments", "comments", "../comments/comment1.xml"),
        ),
        "charts/chart1.xml": chart(at("title of a chart"), series),
        "diagrams/data1.xml": part("dgm:dataModel", at("diagram", _POINT)),
        "notesSlides/notesSlide1.xml": part(
            "p:notes", nested("p:cSld p:spTree", at("notes of the speaker", shape("{}", holder="body")))
        ),
        "comments/comment1.xml": part("p:cmLst", threads),
        "commentAuthors.xml": part("p:cmAuthorLst", author),
        "slideMasters/slideMaster1.xml": part("p:sldMaster", at("text of the master", shape("{}"))),
        "slideLayouts/slideLayout1.xml": part("p:sldLayout", at("text of a layout", shape("{}"))),
    }
    if hidden := at("hidden slide", nested("p:cSld p:spTree", shape("{}"))):
        parts["slides/slide1.xml"] = part("p:sld", hidden).replace("<p:sld ", '<p:sld show="0" ', 1)
    if workbook := at("workbook of a chart"):
        parts["embeddings/a.xlsx"] = workbook.encode()
        parts["charts/_rels/chart1.xml.rels"] = related(("w", "package", "../embeddings/a.xlsx"))
    if embedded := at("embedded file"):
        parts["embeddings/b.bin"] = embedded.encode()
    if unknown := at("unknown part", "<x:y>{}</x:y>"):
        parts["unknown.xml"] = part("x:z", unknown)
    section = at("name of a section", '<p:extLst><x:section name="{}"/></p:extLst>')
    ids = "".join(f'<p:sldId id="{300 + n}" r:id="s{n}"/>' for n in range(2))
    parts["presentation.xml"] = part("p:presentation", f"<p:sldIdLst>{ids}</p:sldIdLst>{section}")
    named = {f"ppt/{name}": data for name, data in parts.items()}
    return slide_file(shapes, "", parts=named | properties(at))
