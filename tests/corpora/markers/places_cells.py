"""A workbook, and a text, a sheet and slides of OpenDocument with a word in every place."""

from __future__ import annotations

from ..fuzz.office_files import OFFICE
from .places import Places, added
from .places_word import properties
from .sheets import DRAWN, MAIN, ODF, XML, opendocument, related, sheet, workbook


def _tag(name: str, inner: str, look: str = "") -> str:
    return f"<{name}{look}>{inner}</{name}>" if inner else ""


def _cell(place: str, inner: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is>{inner}</is></c>' if inner else ""


_LINKED = '<hyperlink ref="A2" r:id="r6"/>'


def xlsx(at: Places) -> bytes:
    """A workbook."""
    choices = at("choice of a cell", '<dataValidation type="list"><formula1>"{},no"</formula1></dataValidation>')
    prompt = at("prompt of a cell", '<dataValidation prompt="{}"/>')
    link = at("address of a link", "https://example.org/{}")
    tip = at("tooltip of a link", ' tooltip="{}"')
    first = [
        _cell("A1", at("cell", "<t>{}</t>")) + _cell("B1", at("rich text", "<r><t>{}</t></r>")),
        '<c r="A2" t="s"><v>0</v></c>',
        f'<c r="A3" t="str"><f>UPPER(B1)</f><v>x{at("result of a formula", " {}")}</v></c>',
        at("formula", '<c r="A4"><f>{}</f><v>1</v></c>'),
        at("formula without a result", '<c r="A5"><f>{}</f></c>'),
        _cell("D6", at("hidden column", "<t>{}</t>")),
    ]
    rows = "".join(f'<row r="{number}">{cells}</row>' for number, cells in enumerate(first, start=1))
    rows += at("hidden row", f'<row r="7" hidden="1">{_cell("A7", "<t>{}</t>")}</row>')
    heads = at("header", "<oddHeader>&amp;C{}</oddHeader>") + at("footer", "<oddFooter>&amp;L{}</oddFooter>")
    around = (
        f"<dataValidations>{choices}{prompt}</dataValidations>"
        + at(
            "formula of a format",
            "<conditionalFormatting><cfRule><formula>{}</formula></cfRule></conditionalFormatting>",
        )
        + f'<hyperlinks><hyperlink ref="A1" r:id="r5"{tip}/>{_LINKED if link else ""}</hyperlinks>'
        + f"<headerFooter>{heads}</headerFooter>"
        + at("unknown element", "<x:y>{}</x:y>")
    )
    alt = at("alternative text", ' descr="{}"')
    shape = (
        f'<xdr:sp><xdr:nvSpPr><xdr:cNvPr id="1" name="n"{alt}/></xdr:nvSpPr><xdr:txBody>'
        + at("text box", "<a:p><a:r><a:t>{}</a:t></a:r></a:p>")
        + "</xdr:txBody></xdr:sp>"
    )
    author = at("author of a comment")
    said = at("comment", "<text><t>{}</t></text>")
    by = ' authorId="0"' if author else ""
    thread = at("thread of comments", '<threadedComment ref="B7"><text>{}</text></threadedComment>')
    series = "".join(
        _tag(f"c:{tag}", at(name, "<c:strRef><c:strCache><c:pt><c:v>{}</c:v></c:pt></c:strCache></c:strRef>"))
        for tag, name in (("tx", "series of a chart"), ("cat", "category of a chart"))
    )
    title = _tag("c:title", at("title of a chart", "<a:p><a:r><a:t>{}</a:t></a:r></a:p>"))
    hidden = at("hidden sheet", '<row r="1"><c r="A1" t="inlineStr"><is><t>{}</t></is></c></row>')
    strings = at("shared string", "<t>{}</t>") + at("ruby reading", "<rPh><t>{}</t></rPh>")
    table = at("name of a table")
    named = at("name of cells", '<definedName name="{}">S1!$A$1</definedName>')
    parts: dict[str, str | bytes] = {
        "worksheets___rels__s1.xml.rels": related(
            ("comments", "../c.xml"),
            ("threadedComment", "../t.xml"),
            ("drawing", "../drawings/d.xml"),
            ("vmlDrawing", "../v.vml"),
            ("hyperlink", "https://example.org/"),
            *([("hyperlink", link)] if link else []),
            *([("table", "../tables/t.xml")] if table else []),
        ),
        "c.xml": f'{XML}<comments xmlns="{MAIN}"><authors><author>{author}</author></authors><commentList>'
        f'<comment ref="A1"{by}>{said}</comment></commentList></comments>',
        "t.xml": f'{XML}<ThreadedComments xmlns="t">{thread}</ThreadedComments>',
        "v.vml": at("label of a button", '<xml xmlns:v="v"><v:textbox><div>{}</div></v:textbox></xml>'),
        "drawings__d.xml": f"{XML}<xdr:wsDr {DRAWN}>{shape}</xdr:wsDr>",
        "drawings___rels__d.xml.rels": related(("chart", "../c/c.xml"), ("diagramData", "../c/g.xml")),
        "c__c.xml": f"{XML}<c:chartSpace {DRAWN}>{title}<c:ser>{series}</c:ser></c:chartSpace>",
        "c__g.xml": f"{XML}<dgm:dataModel {DRAWN}>{at('diagram', '<a:p><a:t>{}</a:t></a:p>')}</dgm:dataModel>",
    }
    if table:
        parts["tables__t.xml"] = f'{XML}<table xmlns="{MAIN}" displayName="{table}"/>'
    if cache := at("cache of a pivot table", "<x><s>{}</s></x>"):
        parts["pivotCache__p.xml"] = XML + cache
    if embedded := at("embedded file"):
        parts["embeddings__a.bin"] = embedded.encode()
    if unknown := at("unknown part", "<x><y>{}</y></x>"):
        parts["unknown.xml"] = XML + unknown
    name = at("name of a sheet") or "S"
    parts["workbook.xml"] = (
        f'{XML}<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets><sheet name="{name}" sheetId="1" r:id="r1"/>'
        + ('<sheet name="T" sheetId="2" state="hidden" r:id="r2"/>' if hidden else "")
        + f"</sheets><definedNames>{named}</definedNames></workbook>"
    )
    sheets = [sheet(rows, around), sheet(hidden)] if hidden else [sheet(rows, around)]
    return added(workbook(*sheets, strings=f"<si>{strings}</si>", **parts), properties(at))


def _p(inner: str) -> str:
    return f"<text:p>{inner}</text:p>" if inner else ""


_BOX = "<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
_SHAPE = "<draw:custom-shape><text:p>{}</text:p></draw:custom-shape>"
_CELL = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
_MASTER = "<style:master-page>{}</style:master-page>"


def _about(at: Places) -> str:
    return "".join(
        at(f"{name} in the properties", f"<{tag}>{{}}</{tag}>")
        for name, tag in (
            ("title", "dc:title"),
            ("author", "dc:creator"),
            ("subject", "dc:subject"),
            ("keyword", "meta:keyword"),
            ("description", "dc:description"),
        )
    ) + at("custom property", '<meta:user-defined meta:name="Client">{}</meta:user-defined>')


def _comment(at: Places) -> str:
    author = at("author of a comment", "<dc:creator>{}</dc:creator>")
    return f"<office:annotation>{author}{_p(at('comment'))}</office:annotation>"


def _chart(at: Places) -> str:
    title = at("title of a chart", "<chart:title><text:p>{}</text:p></chart:title>")
    series, category = at("series of a chart", _CELL), at("category of a chart", _CELL)
    number = _CELL.replace("{}", "5").replace(">", ' office:value-type="float">', 1)
    rows = f"<table:table-row><table:table-cell/>{series}</table:table-row><table:table-row>{category}{number}"
    inner = f"<chart:chart>{title}<table:table>{rows}</table:table-row></table:table></chart:chart>"
    return (
        f"{XML}<office:document-content {ODF}><office:body><office:chart>{inner}</office:chart></office:body>"
        "</office:document-content>"
    )


_OBJECT = "<draw:frame><draw:object xlink:href='./{}'/></draw:frame>"


def _pictures(at: Places) -> str:
    said = at("alternative text", "<svg:desc>{}</svg:desc>") + at("title of a picture", "<svg:title>{}</svg:title>")
    return f"<draw:frame><draw:image/>{said}</draw:frame>"


def odt(at: Places) -> bytes:
    """A text of OpenDocument."""
    tip = at("tooltip of a link", ' office:title="{}"')
    body = [
        at("heading", '<text:h text:outline-level="1">{}</text:h>'),
        _p(at("paragraph")),
        at("list item", "<text:list><text:list-item><text:p>{}</text:p></text:list-item></text:list>"),
        _p(f"<text:a{tip}>x {at('text of a link')}</text:a>"),
        at("address of a link", "<text:p><text:a xlink:href='https://example.org/{}'>x</text:a></text:p>"),
        at("footnote", '<text:p>x<text:note><text:note-body><text:p>{}</text:p></text:note-body></text:note></text:p>'),
        _p("x" + at("label of a footnote", "<text:note><text:note-citation>{}</text:note-citation></text:note>")),
        _p(f"x{_comment(at)}"),
        at(
            "deleted",
            "<text:tracked-changes><text:changed-region><text:deletion><text:p>{}</text:p></text:deletion>"
            "</text:changed-region></text:tracked-changes>",
        ),
        _p(at("inserted", "<text:change-start/>{}<text:change-end/>")),
        _p(at("field", "<text:user-defined>{}</text:user-defined>")),
        _p("x" + at("hidden", '<text:hidden-text text:string-value="{}"/>')),
        _p("x" + at("unused text of a condition", '<text:conditional-text text:string-value-if-false="{}"/>')),
        _p(at("placeholder", "<text:placeholder>{}</text:placeholder>")),
        _p("<text:ruby>" + at("ruby base", "<text:ruby-base>{}</text:ruby-base>")
           + at("ruby reading", "<text:ruby-text>{}</text:ruby-text>") + "</text:ruby>"),
        at("section", "<text:section><text:p>{}</text:p></text:section>"),
        at("hidden section", '<text:section text:display="none"><text:p>{}</text:p></text:section>'),
        at("table of contents", f"<text:table-of-content>{_p('{}')}</text:table-of-content>"),
        f"<table:table><table:table-row>{at('table cell', _CELL)}"
        + at("covered cell", "<table:covered-table-cell><text:p>{}</text:p></table:covered-table-cell>")
        + "</table:table-row></table:table>",
        _p(at("text box", _BOX)),
        _p(at("shape", _SHAPE) + at("shape in a group", f"<draw:g>{_SHAPE}</draw:g>")),
        _p("x" + _pictures(at)),
        _p("x" + _OBJECT.replace("{}", "Math") + _OBJECT.replace("{}", "Chart")),
        "<office:forms><form:form>"
        + at("typed into a form", '<form:text form:label="n" form:current-value="{}"/>')
        + "<form:listbox>" + at("chosen in a form", '<form:option form:label="{}" form:current-selected="true"/>')
        + at("other choice of a form", '<form:option form:label="{}"/>') + "</form:listbox></form:form></office:forms>",
        at("unknown element", "<x:y>{}</x:y>"),
    ]  # fmt: skip
    frames = "".join(
        at(name, f"<style:{tag}><text:p>{{}}</text:p></style:{tag}>")
        for name, tag in (("header", "header"), ("header of the first page", "header-first"), ("footer", "footer"))
    )
    formula = at("formula", "<mi>{}</mi>") + at("formula in another notation", "<annotation>{}</annotation>")
    parts = {
        "Math": f'<math xmlns="http://www.w3.org/1998/Math/MathML"><semantics>{formula}</semantics></math>',
        "Chart": _chart(at),
    }
    if unknown := at("unknown part", "<x>{}</x>"):
        parts["Object 9"] = unknown
    return opendocument("text", "".join(body), masters=_MASTER.replace("{}", frames), meta=_about(at), **parts)


def ods(at: Places) -> bytes:
    """A sheet of OpenDocument."""
    rows = [
        at("cell", _CELL) + at("covered cell", _CELL.replace("table-cell", "covered-table-cell")),
        at(
            "formula", '<table:table-cell table:formula="of:={}" office:value="2"><text:p>2</text:p></table:table-cell>'
        ),
        at("formula without a result", '<table:table-cell table:formula="of:={}"/>'),
        at("text of a value", '<table:table-cell office:value-type="string" office:string-value="{}"/>'),
        f"<table:table-cell>{_comment(at)}<text:p>x</text:p></table:table-cell>",
    ]
    each = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    each += at("hidden row", f'<table:table-row table:visibility="collapse">{_CELL}</table:table-row>')
    shapes = f"<table:shapes>{at('text box', _BOX)}{_pictures(at)}{_OBJECT.replace('{}', 'Chart')}</table:shapes>"
    hidden = at(
        "hidden sheet",
        f'<table:table table:name="H" table:style-name="h"><table:table-row>{_CELL}</table:table-row></table:table>',
    )
    names = at("name of cells", '<table:named-range table:name="{}"/>')
    choice = at(
        "choice of a cell",
        '<table:content-validation table:condition="of:cell-content-is-in-list(&quot;{}&quot;)"/>',
    )
    prompt = at(
        "prompt of a cell",
        "<table:content-validation><table:help-message><text:p>{}</text:p></table:help-message></table:content-validation>",
    )
    body = (
        f"<table:content-validations>{choice}{prompt}</table:content-validations>"
        f'<table:table table:name="{at("name of a sheet")}">{shapes}{each}</table:table>{hidden}'
        f"<table:named-expressions>{names}</table:named-expressions>"
    )
    style = '<style:style style:name="h"><style:table-properties table:display="false"/></style:style>'
    frames = at("header", "<style:header><text:p>{}</text:p></style:header>")
    frames += at("footer", "<style:footer><text:p>{}</text:p></style:footer>")
    return opendocument("spreadsheet", body, style, _MASTER.replace("{}", frames), meta=_about(at), Chart=_chart(at))


def odp(at: Places) -> bytes:
    """Slides of OpenDocument."""
    slide = [
        at("title", _BOX.replace("frame>", 'frame presentation:class="title">', 1)),
        at("text box", _BOX),
        at("shape", _SHAPE),
        at("shape in a group", f"<draw:g>{_SHAPE}</draw:g>"),
        at("label of a line", "<draw:connector><text:p>{}</text:p></draw:connector>"),
        f"<table:table><table:table-row>{at('table cell', _CELL)}</table:table-row></table:table>",
        _OBJECT.replace("{}", "Chart"),
        _pictures(at),
        _comment(at),
        at("notes of the speaker", f"<presentation:notes>{_BOX}</presentation:notes>"),
    ]  # fmt: skip
    use = ' presentation:use-footer-name="f" presentation:use-header-name="h"'
    footer = at("footer of a slide", '<presentation:footer-decl presentation:name="f">{}</presentation:footer-decl>')
    name = at("name of a slide", ' draw:name="{}"')
    hidden = at("hidden slide", f'<draw:page draw:style-name="h">{_BOX}</draw:page>')
    style = (
        '<style:style style:name="h"><style:drawing-page-properties presentation:visibility="hidden"/></style:style>'
    )
    body = f"{footer}<draw:page{use}{name}>{''.join(slide)}</draw:page>{hidden}"
    masters = _MASTER.replace("{}", at("text of the master", _BOX))
    return opendocument("presentation", body, style, masters, meta=_about(at), Chart=_chart(at))
