"""Workbooks: every place of a sheet that can hold words, and what is counted instead."""

from __future__ import annotations

import datetime
import io
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.limits import Limits, ReadOptions
from ragidx.corpora.records import Place

from ..conftest import ReadBytes
from ..markers.sheets import DRAWN, related, sheet, shown_lines, workbook

ANY_FILE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)


def cell(place: str, inner: str, kind: str = "inlineStr", style: int = 0) -> str:
    return f'<c r="{place}" t="{kind}" s="{style}">{inner}</c>'


def text(place: str, words: str) -> str:
    return cell(place, f"<is><t>{words}</t></is>")


def row(number: int, *cells: str) -> str:
    return f'<row r="{number}">{"".join(cells)}</row>'


def test_cells_are_what_the_sheet_holds(read_bytes: ReadBytes) -> None:
    codes = ["General", "0%", '#,##0.00 "EUR"', "d/m/yy", "[h]:mm"]
    formats = "".join(
        f'<numFmt numFmtId="{170 + n}" formatCode="{c.replace(chr(34), "&quot;")}"/>' for n, c in enumerate(codes)
    )
    styles = "".join(f'<xf numFmtId="{170 + n}"/>' for n in range(len(codes)))
    cells = [
        *(text("A1", words) for words in ("01067", "NA", "NULL", "n/a", "1E5")),
        *(cell("A1", f"<v>{n}</v>", "s") for n in (0, 1, 7, "9" * 5000)),
        *(cell("A1", f"<v>{value}</v>", "n") for value in ("12", "12.0", "0.30000000000000004")),
        *(cell("A1", f"<v>{value}</v>", "n", n) for n, value in enumerate(("0.19", "1234567.5", "45964", "1.25"), 1)),
        *(cell("A1", f"<v>{value}</v>", "b") for value in (1, 0)),
        cell("A1", "<v>#N/A</v>", "e"),
        cell("A1", "<v>2026-08-21T00:00:00</v>", "d"),
        cell("A1", "<f>UPPER(B1)</f><v>kept</v>", "str"),
        cell("A1", "<f>SUM(B2:B3)</f><v></v>", "n"),
        cell("A1", '<f>""</f><v></v>', "str"),
        cell("A1", "<x:y><v>12</v></x:y>", "n"),
    ]
    strings = "<si><r><t>two </t></r><r><rPr><b/></rPr><t>ru</t></r><r><t>ns</t></r></si>"
    strings += "<si><t>漢字</t><rPh><t>kanji</t></rPh></si>"
    data = workbook(
        sheet("".join(row(n, each) for n, each in enumerate(cells, 1))),
        strings=strings,
        styles=f"<numFmts>{formats}</numFmts><cellXfs>{styles}</cellXfs>",
    )

    found = read_bytes("a.xlsx", data)

    assert shown_lines(found.texts[0])["S1"] == [
        *("01067", "NA", "NULL", "n/a", "1E5", "two runs", "漢字", "12", "12", "0.3"),
        *("19%", "1,234,567.50 EUR", "2025-11-03", "30:00", "TRUE", "FALSE", "#N/A", "2026-08-21"),
        *("kept", "=SUM(B2:B3)", "12"),
    ]
    assert found.kinds == {"ruby readings": 1, "formulas": 2, "formulas without a value": 1}


def test_days_may_count_from_1904(read_bytes: ReadBytes) -> None:
    data = workbook(
        sheet(row(1, cell("A1", "<v>0</v>", "n"))),
        styles='<cellXfs><xf numFmtId="14"/></cellXfs>',
        book='<workbookPr date1904="1"/>',
    )

    assert read_bytes("a.xlsx", data).texts == ["## S1\n1904-01-01"]


def test_small_gaps_keep_the_columns_and_far_cells_make_no_rectangle(read_bytes: ReadBytes) -> None:
    rows = [
        row(3, text("D3", "north"), text("E3", "south")),
        row(4, text("C4", "lamps"), text("E4", "7")),
        row(5),
        row(9, text("C9", "near"), text("CV9", "far")),
        row(1048576, text("XFD1048576", "last")),
        "<row><c><v>1</v></c><c/><c><v>3</v></c></row>",
    ]

    found = read_bytes("a.xlsx", workbook(sheet("".join(rows))))

    assert shown_lines(found.texts[0])["S1"] == [
        *(" |  |  | north | south", " |  | lamps |  | 7", " |  | near | far", "last", "1 |  | 3"),
    ]


COMMENTS = (
    '<x xmlns="x"><authors><author>Ada</author></authors>'
    '<comment ref="A1" authorId="0"><text><r><t>a note</t></r></text></comment>'
    '<comment ref="B7" authorId="0"><text><t>[Threaded comment] a thread</t></text></comment></x>'
)
THREADS = '<x xmlns="x"><threadedComment ref="B7" personId="{p}"><text>a thread</text></threadedComment></x>'
SHAPE = (
    '<xdr:sp><xdr:nvSpPr><xdr:cNvPr id="1" name="n" descr="a red lamp"/></xdr:nvSpPr>'
    "<xdr:txBody><a:p><a:r><a:t>bo</a:t></a:r><a:r><a:t>xed</a:t></a:r><a:br/><a:r><a:t>words</a:t></a:r></a:p></xdr:txBody></xdr:sp>"
)
DRAWING = (
    f"<xdr:wsDr {DRAWN}><xdr:twoCellAnchor><xdr:from><xdr:col>5</xdr:col></xdr:from><xdr:grpSp>{SHAPE}</xdr:grpSp>"
    "</xdr:twoCellAnchor><mc:AlternateContent><mc:Choice><a:p><a:t>first choice</a:t></a:p></mc:Choice><mc:Fallback>"
    "<a:p><a:t>for old programs</a:t></a:p></mc:Fallback></mc:AlternateContent>"
    '<x:y xmlns:x="x">unknown words</x:y></xdr:wsDr>'
)
SERIES = "<c:ser><c:cat><c:strRef><c:f>S1!A1</c:f><c:strCache><c:pt><c:v>May</c:v></c:pt><c:pt><c:v>June</c:v></c:pt>"
SERIES += "</c:strCache></c:strRef></c:cat><c:val><c:numCache><c:pt><c:v>5</c:v></c:pt></c:numCache></c:val></c:ser>"
CHART = f"<c:chartSpace {DRAWN}><c:title><a:p><a:t>Lamps lit</a:t></a:p></c:title>{SERIES * 2}</c:chartSpace>"
DIAGRAM = f"<dgm:dataModel {DRAWN}><a:p><a:t>a step</a:t></a:p></dgm:dataModel>"
LABELS = '<xml xmlns:v="v"><v:textbox style="x"><div>Press<br>me &amp; go</div></v:textbox></xml>'
AROUND = (
    '<dataValidations><dataValidation prompt="Choose one"><formula1>"lit,dark"</formula1></dataValidation>'
    "</dataValidations>"
    "<conditionalFormatting><cfRule><formula>A1&gt;3</formula></cfRule></conditionalFormatting>"
    '<hyperlinks><hyperlink ref="A1" r:id="r9"/></hyperlinks>'
    '<headerFooter><oddHeader>&amp;C&amp;"Arial,Bold"&amp;12Harbour &amp;&amp; sea</oddHeader>'
    "<oddFooter>&amp;LPage &amp;P of &amp;N</oddFooter></headerFooter><x:y>strange words here</x:y>"
)


def test_what_is_around_the_cells_is_read_or_counted(read_bytes: ReadBytes) -> None:
    data = workbook(
        sheet(row(1, text("A1", "one")) + row(2, text("A2", "two")), AROUND),
        names="<definedNames><definedName>S1!$A$1</definedName></definedNames>",
        **{
            "worksheets___rels__s1.xml.rels": related(
                ("comments", "../c.xml"),
                ("threadedComment", "../t.xml"),
                ("drawing", "../drawings/d.xml"),
                ("vmlDrawing", "../v.vml"),
                ("table", "../tables/t.xml"),
            ),
            "c.xml": COMMENTS,
            "t.xml": THREADS,
            "v.vml": LABELS,
            "tables__t.xml": '<x xmlns="x" name="T"><calculatedColumnFormula>A1*2</calculatedColumnFormula></x>',
            "drawings__d.xml": DRAWING,
            "drawings___rels__d.xml.rels": related(
                ("chart", "../c/c.xml"), ("diagramData", "../c/g.xml"), ("chart", "d.xml")
            ),
            "c__c.xml": CHART,
            "c__g.xml": DIAGRAM,
            "pivotCache__pivotCacheRecords1.xml": "<r><s>cached words</s></r>",
            "media__a.png": b"png",
            "embeddings__a.docx": b"docx",
            "vbaProject.bin": b"macros",
            "other__a.xml": "<a>nobody asked</a>",
        },
    )

    found = read_bytes("a.xlsx", data)

    assert shown_lines(found.texts[0])["S1"] == [
        *("one", "a note", "two", "a thread", "Harbour & sea", "Page of"),
        *("boxed words", "first choice", "unknown words", "Lamps lit", "May | June", "a step", "Press me & go"),
    ]
    assert found.kinds == {
        **{"authors of comments": 2, "words of notices": 2, "choices of forms": 2, "formulas": 4, "defined names": 2},
        **{
            "words of unknown parts": 5,
            "addresses of links": 1,
            "words of alternative texts": 3,
            "numbers of charts": 2,
        },
        **{"repeated lines": 1, "caches of data": 1, "pictures": 1, "embedded objects": 1, "scripts": 1},
    }


def test_sheets_are_pages(read_bytes: ReadBytes) -> None:
    one, two = (sheet(row(1, text("A1", words))) for words in ("first", "second"))
    data = workbook(one, two, sheet(""))

    (document,) = read_bytes("a.xlsx", data).documents

    assert document.text == "## S1\nfirst\n\n## S2\nsecond\n\n## S3"
    assert document.places == (Place(0, page=1), Place(13, page=2), Place(27, page=3))


def test_hidden_sheets_rows_and_columns_are_read(read_bytes: ReadBytes) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="needs openpyxl, of the extra 'test'")
    book = openpyxl.Workbook()
    for state in ("visible", "hidden", "veryHidden"):
        page = book.create_sheet(state)
        page.append([f"cell of {state}", "column"])
        page.sheet_state = state
    book["visible"].row_dimensions[1].hidden = book["visible"].column_dimensions["B"].hidden = True
    book.move_sheet("veryHidden", -3)
    sink = io.BytesIO()
    book.save(sink)

    found = read_bytes("a.xlsx", sink.getvalue())

    lines = shown_lines(found.texts[0])
    assert list(lines) == ["veryHidden", "Sheet", "visible", "hidden"]
    assert lines["visible"] == ["cell of visible | column"]
    assert lines["veryHidden"] == ["cell of veryHidden | column"]
    assert [(one.where, one.kind, one.count) for one in found.left] == [("a.xlsx#page=1", "hidden sheets", 2)]


def test_a_chart_sheet_has_the_words_of_its_chart(read_bytes: ReadBytes) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="needs openpyxl, of the extra 'test'")
    from openpyxl.chart import BarChart, Reference

    book = openpyxl.Workbook()
    book.active.append([1])
    chart = BarChart()
    chart.title = "Lamps by month"
    chart.add_data(Reference(book.active, min_col=1, min_row=1))
    book.create_chartsheet("Poster").add_chart(chart)
    sink = io.BytesIO()
    book.save(sink)

    assert shown_lines(read_bytes("a.xlsx", sink.getvalue()).texts[0])["Poster"] == ["Lamps by month"]


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(-1e12, 1e12).map(lambda value: float(format(value, ".15g"))),
    st.text("abcNA 019éß漢|#=-", min_size=1, max_size=9).filter(lambda words: words.strip() and words[0] != "="),
    st.dates(datetime.date(1900, 3, 1)),
    st.datetimes(datetime.datetime(1900, 3, 1), datetime.datetime(2999, 1, 1)).map(
        lambda time: time.replace(microsecond=0)
    ),
    st.times().map(lambda time: time.replace(microsecond=0)),
)


def seen(value: object) -> str:
    """What a person sees of a cell."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        shown = format(value, ".15g").upper()
        return shown.removeprefix("-") if shown == "-0" else shown
    return " ".join(("" if value is None else str(value)).split())


@pytest.mark.slow
@given(rows=st.lists(st.lists(VALUES, min_size=1, max_size=6), min_size=1, max_size=6))
@ANY_FILE
def test_tables_of_another_library_come_out_cell_for_cell(read_bytes: ReadBytes, rows: list[list[object]]) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="needs openpyxl, of the extra 'test'")
    book = openpyxl.Workbook()
    for number, values in enumerate(rows, 1):
        for column, value in enumerate(values, 1):
            one = book.active.cell(number, column)
            one.value = value
            if isinstance(value, str):
                one.data_type = "s"
    sink = io.BytesIO()
    book.save(sink)

    found = read_bytes("a.xlsx", sink.getvalue())

    shown = [[seen(value) for value in values] for values in rows]
    left = min((at for values in shown for at, value in enumerate(values) if value), default=0)
    expected = [" | ".join(values[left:]).rstrip(" |") for values in shown if any(values)]
    lines = [line.rstrip(" |") for line in found.texts[0].split("\n")[1:]]
    assert lines == expected


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@ANY_FILE
def test_every_word_of_a_sheet_is_read_or_counted(read_bytes: ReadBytes, seed: int) -> None:
    rng = random.Random(seed)
    words, counted, rows, strings, around = list[str](), 0, "", "", ""
    for number in range(1, rng.randint(2, 8)):
        cells = ""
        for column in "ABCDE"[: rng.randint(1, 5)]:
            word = f"w{rng.getrandbits(40):x}"
            wrapped = rng.choice(["{}", "<x:y>{}</x:y>", "<r><rPr/>{}</r>"]).format(f"<t>{word}</t>")
            words.append(word)
            match rng.choice(["shared", "inline", "str", "loose"]):
                case "shared":
                    cells += cell(f"{column}{number}", f"<v>{strings.count('<si>')}</v>", "s")
                    strings += f"<si>{wrapped}</si>"
                case "inline":
                    cells += cell(f"{column}{number}", f"<is>{wrapped}</is>")
                case "str":
                    cells += cell(f"{column}{number}", f"<v>{word}</v>", "str")
                case _:
                    cells += f"<x:y>{cell(f'{column}{number}', f'<x:y>{word}</x:y>')}</x:y>"
        rows += row(number, cells)
        if rng.random() < 0.3:
            around, counted = f"{around}<x:y><x:z>{'more words '}</x:z>loose</x:y>", counted + 3

    found = read_bytes("a.xlsx", workbook(sheet(rows, around), strings=strings))

    assert found.texts[0].replace("|", " ").split()[2:] == words
    assert found.kinds == ({"words of unknown parts": counted} if counted else {})


SMALL = ReadOptions(limits=Limits(office_text_bytes=1 << 16))
FAR = "".join(row(n, cell(f"A{n}", "<v>1</v>", "n"), cell(f"XFD{n}", "<v>2</v>", "n")) for n in range(1, 400))
SHARED = "".join(row(n, *[cell("", "<v>0</v>", "s")] * 9) for n in range(1, 99))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no archive", "cannot be converted: damaged, or of another format than its ending says"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "encrypted, or a file of Office 97"),
        (workbook(_=""), "empty text"),
        (workbook(sheet("<row>" * 300 + "</row>" * 300)), "nested deeper than 200 elements"),
        (workbook('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'), "a document type is declared"),
        (workbook(sheet("<row/>" * 20_000)), "has a part of more than 64 KiB"),
        (workbook(sheet(SHARED), strings=f"<si><t>{'a b ' * 1000}</t></si>"), "converts to more than 64 KiB of text"),
    ],
    ids=["no archive", "Office 97", "no sheet", "deep", "entities", "large", "a string many times"],
)
def test_a_hostile_workbook_is_one_line(read_bytes: ReadBytes, data: bytes, reason: str) -> None:
    assert read_bytes("a.xlsx", data, SMALL).reasons == [("a.xlsx", reason)]


def test_far_cells_and_all_columns_are_bounded(read_bytes: ReadBytes) -> None:
    wide = row(400, *["<c><v>1</v></c>"] * 16_384)

    (text,) = read_bytes("a.xlsx", workbook(sheet(FAR + wide))).texts

    assert text == "## S1\n" + "1 | 2\n" * 399 + " | ".join(["1"] * 16_384)


def test_a_damaged_sheet_is_read_up_to_the_damage_and_counted(read_bytes: ReadBytes) -> None:
    broken = sheet(row(1, text("A1", "above")) + "</damage>" + row(2, text("A2", "below")))

    found = read_bytes("a.xlsx", workbook(broken, sheet(row(1, text("A1", "whole")))))

    assert found.texts == ["## S1\nabove\n\n## S2\nwhole"]
    assert [(one.where, one.kind, one.count) for one in found.left] == [
        ("a.xlsx#xl/worksheets/s1.xml", "damaged parts", 1)
    ]


@pytest.mark.parametrize("ending", [".xlsm", ".xltx", ".xltm"])
def test_workbooks_with_macros_and_templates_are_workbooks(read_bytes: ReadBytes, ending: str) -> None:
    assert read_bytes(f"a{ending}", workbook(sheet(row(1, text("A1", "one"))))).texts == ["## S1\none"]
