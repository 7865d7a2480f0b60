"""Workbooks and OpenDocument files by code: a few parts as text, and what refers to them."""

from __future__ import annotations

from collections.abc import Mapping

from ..fuzz.office_files import OFFICE, PACKAGE, XML, zipped

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
DRAWN = " ".join(
    f'xmlns:{prefix}="{name}"'
    for prefix, name in {
        "xdr": "http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing",
        "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
        "c": "http://schemas.openxmlformats.org/drawingml/2006/chart",
        "dgm": "http://schemas.openxmlformats.org/drawingml/2006/diagram",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "r": OFFICE,
    }.items()
)
ODF = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for prefix, name in {
        **{name: name for name in ("office", "text", "table", "style", "presentation", "meta", "form", "chart")},
        **{"draw": "drawing", "svg": "svg-compatible"},
    }.items()
)
ODF += ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:x="urn:x"'


def related(*relations: tuple[str, str]) -> str:
    """A part of relations, (last word of the kind, target) each; ids are r1, r2, ..."""
    each = (
        f'<Relationship Id="r{number}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(relations, start=1)
    )
    return f'{XML}<Relationships xmlns="{PACKAGE}/relationships">{"".join(each)}</Relationships>'


def sheet(rows: str, around: str = "") -> str:
    """The part of a sheet."""
    inner = f"<sheetData>{rows}</sheetData>{around}"
    return f'{XML}<worksheet xmlns="{MAIN}" xmlns:r="{OFFICE}" xmlns:x="urn:x">{inner}</worksheet>'


def workbook(
    *sheets: str, strings: str = "", styles: str = "", book: str = "", names: str = "", **parts: str | bytes
) -> bytes:
    """An .xlsx of the parts of its sheets.

    Args:
        sheets: as `sheet` gives them.
        strings: the `si` of the shared strings.
        styles: what is in the part of styles.
        book: further elements of the workbook, before its sheets.
        names: further elements behind them.
        parts: more parts below xl/, with `__` for a slash: `worksheets___rels__s1.xml.rels`.
    """
    each = "".join(f'<sheet name="S{n}" sheetId="{n}" r:id="r{n}"/>' for n in range(1, len(sheets) + 1))
    inner = f"{book}<sheets>{each}</sheets>{names}"
    members: dict[str, str | bytes] = {
        "_rels/.rels": related(("officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f'{XML}<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}">{inner}</workbook>',
        "xl/_rels/workbook.xml.rels": related(
            *(("worksheet", f"worksheets/s{n}.xml") for n in range(1, len(sheets) + 1)),
            ("sharedStrings", "sharedStrings.xml"),
            ("styles", "styles.xml"),
        ),
        **{f"xl/worksheets/s{n}.xml": data for n, data in enumerate(sheets, start=1)},
        "xl/sharedStrings.xml": f'{XML}<sst xmlns="{MAIN}" xmlns:x="urn:x">{strings}</sst>',
        "xl/styles.xml": f'{XML}<styleSheet xmlns="{MAIN}">{styles}</styleSheet>',
    }
    return zipped(members | {f"xl/{name.replace('__', '/')}": data for name, data in parts.items()})


def opendocument(kind: str, body: str, styles: str = "", masters: str = "", **parts: str) -> bytes:
    """An .odt (text), .ods (spreadsheet) or .odp (presentation) of its body.

    Args:
        styles: automatic ones of the content.
        masters: master pages.
        parts: more parts: `meta="<dc:title>..."`, or the content of an object by the name of its folder.
    """
    members = {
        "content.xml": f"{XML}<office:document-content {ODF}>"
        f"<office:automatic-styles>{styles}</office:automatic-styles><office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>",
        "styles.xml": f"{XML}<office:document-styles {ODF}><office:master-styles>{masters}</office:master-styles>"
        "</office:document-styles>",
    }
    for name, inner in parts.items():
        if name == "meta":
            members["meta.xml"] = (
                f"{XML}<office:document-meta {ODF}><office:meta>{inner}</office:meta></office:document-meta>"
            )
        else:
            members[f"{name}/content.xml"] = inner
    return zipped(members)


def rows_of(*rows: tuple[str, ...]) -> str:
    """Rows of an OpenDocument table, of cells with a paragraph each."""
    return "".join(
        f"<table:table-row>{''.join(f'<table:table-cell><text:p>{cell}</text:p></table:table-cell>' for cell in row)}"
        "</table:table-row>"
        for row in rows
    )


def shown_lines(text: str) -> Mapping[str, list[str]]:
    """The lines that are not blank, by the heading of their sheet."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        if line.startswith("## "):
            found[line[3:]] = []
        elif line.strip():
            found[list(found)[-1]].append(line)
    return found
