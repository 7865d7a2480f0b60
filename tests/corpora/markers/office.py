"""Parts of Office documents by code: elements as text, and packages of parts with what refers to them."""

from __future__ import annotations

from collections.abc import Mapping

from ..fuzz.office_files import OFFICE, PACKAGE, XML, zipped

NAMES = " ".join(
    f'xmlns:{prefix}="{name}"'
    for prefix, name in {
        "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
        "p": "http://schemas.openxmlformats.org/presentationml/2006/main",
        "c": "http://schemas.openxmlformats.org/drawingml/2006/chart",
        "dgm": "http://schemas.openxmlformats.org/drawingml/2006/diagram",
        "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "wp": "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing",
        "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
        "v": "urn:schemas-microsoft-com:vml",
        "r": OFFICE,
        "x": "urn:what-nobody-knows",
    }.items()
)

Related = tuple[str, str, str]
"""Id, last word of the kind, target."""


def related(*relations: Related) -> str:
    """A part of relations; a target with a colon is outside of the package."""
    outside = {True: ' TargetMode="External"', False: ""}
    each = (
        f'<Relationship Id="{key}" Type="{OFFICE}/{kind}" Target="{target}"{outside[":" in target]}/>'
        for key, kind, target in relations
    )
    return f'{XML}<Relationships xmlns="{PACKAGE}/relationships">{"".join(each)}</Relationships>'


def part(tag: str, inner: str) -> str:
    """A part of one root; every prefix of `NAMES` may be used."""
    return f"{XML}<{tag} {NAMES}>{inner}</{tag}>"


def word_file(body: str, *relations: Related, parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """A .docx of a body, what it refers to, and more parts by name."""
    return zipped(
        {
            "_rels/.rels": related(("r1", "officeDocument", "word/document.xml")),
            "word/document.xml": part("w:document", f"<w:body>{body}</w:body>"),
            "word/_rels/document.xml.rels": related(*relations),
            **(parts or {}),
        }
    )


def slide_file(*slides: str, parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """A .pptx of slides, each the shapes in its tree, and more parts by name."""
    ids = "".join(f'<p:sldId id="{256 + at}" r:id="s{at}"/>' for at in range(len(slides)))
    shown = {
        f"ppt/slides/slide{at}.xml": part("p:sld", f"<p:cSld><p:spTree>{each}</p:spTree></p:cSld>")
        for at, each in enumerate(slides)
    }
    return zipped(
        {
            "_rels/.rels": related(("r1", "officeDocument", "ppt/presentation.xml")),
            "ppt/presentation.xml": part("p:presentation", f"<p:sldIdLst>{ids}</p:sldIdLst>"),
            "ppt/_rels/presentation.xml.rels": related(
                *((f"s{at}", "slide", f"slides/slide{at}.xml") for at in range(len(slides)))
            ),
            **shown,
            **(parts or {}),
        }
    )


def nested(names: str, inner: str) -> str:
    """Something inside of elements, the outermost first."""
    for name in reversed(names.split()):
        inner = f"<{name}>{inner}</{name}>"
    return inner


def run(text: str, look: str = "") -> str:
    """A run of a document."""
    return f'<w:r>{f"<w:rPr>{look}</w:rPr>" if look else ""}<w:t xml:space="preserve">{text}</w:t></w:r>'


def para(*inner: str, look: str = "") -> str:
    """A paragraph of a document."""
    return f"<w:p>{f'<w:pPr>{look}</w:pPr>' if look else ''}{''.join(inner)}</w:p>"


def plain(text: str, look: str = "") -> str:
    """A paragraph of one run."""
    return para(run(text), look=look)


def table(*rows: str) -> str:
    """A table of a document."""
    return f"<w:tbl><w:tblPr/><w:tblGrid/>{''.join(rows)}</w:tbl>"


def row(*cells: str) -> str:
    """A row of cells, each the paragraphs in it."""
    return f"<w:tr>{''.join(cell if cell.startswith('<w:tc>') else f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr>"


def box(inner: str) -> str:
    """A run with a text box."""
    return nested("w:r w:drawing wp:inline a:graphic a:graphicData wps:wsp wps:txbx w:txbxContent", inner)


def drawn(text: str) -> str:
    """A paragraph of DrawingML."""
    return f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p>"


def shape(*lines: str, holder: str = "", y: int | None = None, alt: str = "") -> str:
    """A shape of a slide with paragraphs; `holder`: for what it holds the place."""
    place = f'<p:ph type="{holder}"/>' if holder else ""
    off = "" if y is None else f'<a:xfrm><a:off x="0" y="{y}"/></a:xfrm>'
    body = "".join(line if line.startswith("<") else drawn(line) for line in lines)
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="1" name="n" descr="{alt}"/><p:cNvSpPr/><p:nvPr>{place}</p:nvPr></p:nvSpPr>'
        f"<p:spPr>{off}</p:spPr><p:txBody><a:bodyPr/>{body}</p:txBody></p:sp>"
    )


def chart(title: str, series: Mapping[str, Mapping[str, float]]) -> str:
    """A part of a chart: values by category, by series."""

    def cached(tag: str, texts: list[str], kind: str = "str") -> str:
        points = "".join(f'<c:pt idx="{at}"><c:v>{text}</c:v></c:pt>' for at, text in enumerate(texts))
        return f"<c:{tag}><c:{kind}Ref><c:f>S!A1</c:f><c:{kind}Cache>{points}</c:{kind}Cache></c:{kind}Ref></c:{tag}>"

    each = ""
    for name, values in series.items():
        numbers = cached("val", [str(value) for value in values.values()], "num")
        each += nested("c:ser", cached("tx", [name]) + cached("cat", [*values]) + numbers)
    heading = f"<c:title><c:tx><c:rich>{drawn(title)}</c:rich></c:tx></c:title>"
    return part("c:chartSpace", f"<c:chart>{heading}<c:plotArea><c:barChart>{each}</c:barChart></c:plotArea></c:chart>")


def diagram(*texts: str) -> str:
    """A part of the data of a diagram."""
    points = "".join(f"<dgm:pt><dgm:t>{drawn(text)}</dgm:t></dgm:pt>" for text in texts)
    return part("dgm:dataModel", f"<dgm:ptLst>{points}</dgm:ptLst>")
