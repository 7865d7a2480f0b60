"""OpenDocument: every place of texts, sheets and slides that can hold words, and what is counted instead."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.limits import Limits, ReadOptions
from ragidx.corpora.records import Place

from ..conftest import ReadBytes
from ..fuzz.office_files import zipped
from ..markers.sheets import ODF, XML, opendocument, rows_of, shown_lines

ANY_FILE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)

NOTE = "<text:note><text:note-citation>1</text:note-citation><text:note-body>{}</text:note-body></text:note>"
NOTE = NOTE.format("<text:p>a note</text:p>")
COMMENT = "<office:annotation><dc:creator>Ada</dc:creator><dc:date>2026</dc:date>{}</office:annotation>"
COMMENT = COMMENT.format("<text:p>a comment</text:p>")
BOX = "<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
PICTURE = "<draw:frame><draw:image/><svg:title>red</svg:title><svg:desc>a lamp</svg:desc></draw:frame>"
FORM = (
    "<office:forms><form:form><form:text form:label='Name' form:current-value='Ada'/>"
    "<form:checkbox form:label='Agreed' form:current-state='checked'/><form:listbox><form:option form:label='no'/>"
    "<form:option form:label='yes' form:current-selected='true'/></form:listbox></form:form></office:forms>"
)


def p(inner: str) -> str:
    return f"<text:p>{inner}</text:p>"


@pytest.mark.parametrize(
    ("body", "blocks", "kinds"),
    [
        ('<text:h text:outline-level="2">A <text:span>head</text:span>ing</text:h>', ["## A heading"], {}),
        (p("one<text:tab/>two<text:line-break/>three<text:s text:c='999999999'/>four"), ["one\ttwo\nthree four"], {}),
        (p("wrapped\n   in the file"), ["wrapped in the file"], {}),
        (p(f"text{NOTE} on"), ["text on", "a note"], {"labels of notes": 1}),
        (p(f"text{COMMENT}"), ["text", "a comment"], {"authors of comments": 1}),
        (p("<text:a xlink:href='https://a.b'>a link</text:a>"), ["a link"], {"addresses of links": 1}),
        (
            p("<text:ruby><text:ruby-base>漢</text:ruby-base><text:ruby-text>kan</text:ruby-text></text:ruby>"),
            ["漢"],
            {"ruby readings": 1},
        ),
        (p("a<text:hidden-text text:string-value='not seen'/>b"), ["ab"], {"hidden words": 2}),
        (
            p("<text:conditional-text text:string-value-if-true='yes it is'>yes</text:conditional-text>"),
            ["yes"],
            {"hidden words": 3},
        ),
        (p("page <text:page-number>3</text:page-number>"), ["page 3"], {}),
        (p(f"{PICTURE}under"), ["under"], {"words of alternative texts": 3}),
        (
            p(f"anchor{BOX.format('boxed')}<draw:g><draw:custom-shape>{p('shaped')}</draw:custom-shape></draw:g>"),
            ["anchor", "boxed", "shaped"],
            {},
        ),
        ("<text:section text:display='none'><text:p>not shown</text:p></text:section>", [], {"hidden words": 2}),
        ("<text:section><text:p>shown</text:p></text:section>", ["shown"], {}),
        (
            f"<text:tracked-changes><text:deletion>{p('it was')}</text:deletion></text:tracked-changes>",
            [],
            {"deleted words": 2},
        ),
        (f"<text:table-of-content>{p('Heading 3')}</text:table-of-content>", [], {"words of navigation": 2}),
        (
            f"<text:user-index><text:user-index-source>x</text:user-index-source>{p('Ada 1843')}</text:user-index>",
            ["Ada 1843"],
            {"words of navigation": 1},
        ),
        (
            FORM,
            ["Name: Ada", "Agreed: checked", "yes"],
            {"choices of forms": 1},
        ),
        (f"<x:y>loose{p('in a wrapper')}after</x:y>tail", ["loose", "in a wrapper", "after", "tail"], {}),
        (p("in <x:y>an <x:z>unknown</x:z> one</x:y>"), ["in an unknown one"], {}),
    ],
)
def test_the_words_of_a_text_are_read_or_counted(
    read_bytes: ReadBytes, body: str, blocks: list[str], kinds: dict[str, int]
) -> None:
    found = read_bytes("a.odt", opendocument("text", p("first") + body))

    assert found.texts[0].split("\n\n") == ["first", *blocks]
    assert found.kinds == kinds


def test_an_item_of_a_list_has_one_mark(read_bytes: ReadBytes) -> None:
    inner = f"<text:list><text:list-item>{p('inner')}</text:list-item></text:list>"
    body = (
        f"<text:list><text:list-header>{p('head')}</text:list-header><text:list-item>{p('one')}{p('more of it')}{inner}"
        f"</text:list-item><text:list-item><text:number>2.</text:number>{p('two')}</text:list-item>"
        "<text:list-item><text:h>Heading</text:h></text:list-item></text:list>"
    )

    assert read_bytes("a.odt", opendocument("text", body)).texts == [
        "head\n\n- one\n\nmore of it\n\n- inner\n\n2. two\n\n# Heading"
    ]


def test_a_table_is_rows_and_what_is_in_its_cells_follows_the_row(read_bytes: ReadBytes) -> None:
    cell = (
        f"<table:table-cell>{p('x')}<text:list><text:list-item>{p('y')}</text:list-item></text:list></table:table-cell>"
    )
    inner = f"<table:table-cell><table:table>{rows_of(('deep', 'deeper'))}</table:table></table:table-cell>"
    body = (
        f"<table:table><table:table-header-rows>{rows_of(('a', '', f'c{NOTE}'))}</table:table-header-rows>"
        f"<table:table-row>{cell}<table:covered-table-cell>{p('beneath')}</table:covered-table-cell>{cell}</table:table-row>"
        f"<table:table-row>{inner}</table:table-row></table:table>"
    )

    found = read_bytes("a.odt", opendocument("text", body))

    assert found.texts == ["a |  | c\na note\nx y |  | x y\ndeep | deeper"]
    assert found.kinds == {"labels of notes": 1, "hidden words": 1}


MASTER = (
    "<style:master-page><style:header><text:p>Harbour office</text:p></style:header>"
    "<style:header-left style:display='false'><text:p>not used</text:p></style:header-left>"
    "<style:footer><text:p>Page <text:page-number>1</text:page-number></text:p></style:footer></style:master-page>"
)


def test_headers_and_footers_come_once_and_placeholders_of_masters_are_counted(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.odt", opendocument("text", p("body"), masters=MASTER * 2))
    slide = f"<style:master-page>{BOX.format('Click to edit')}</style:master-page>"
    slides = read_bytes(
        "a.odp", opendocument("presentation", f"<draw:page>{BOX.format('words')}</draw:page>", masters=slide)
    )

    assert found.texts == ["Harbour office\n\nPage\n\nbody"]
    assert found.kinds == {"words of master pages": 4, "page numbers": 2}
    assert (slides.texts, slides.kinds) == (["words"], {"words of master pages": 3})


MATH = (
    '<math xmlns="http://www.w3.org/1998/Math/MathML"><semantics><mfrac><mi>a</mi><mi>b</mi></mfrac>'
    "<annotation>a over b</annotation></semantics></math>"
)
CHART = (
    f"{XML}<office:document-content {ODF}><office:body><office:chart><chart:chart>"
    f"<chart:title><text:p>Lamps lit</text:p></chart:title><table:table>{rows_of(('', 'North'))}"
    "<table:table-row><table:table-cell><text:p>May</text:p></table:table-cell>"
    '<table:table-cell office:value-type="float"><text:p>5</text:p></table:table-cell></table:table-row>'
    "</table:table></chart:chart></office:chart></office:body></office:document-content>"
)


def test_formulas_and_charts_are_read_where_they_are(read_bytes: ReadBytes) -> None:
    objects = "".join(
        f"<draw:frame><draw:object xlink:href='{href}'/></draw:frame>" for href in ("./O1", "./O2", "./O1", "../../etc")
    )

    found = read_bytes("a.odt", opendocument("text", p(f"see{objects}") + p("end"), O1=MATH, O2=CHART, O3=MATH))

    assert found.texts == ["see\n\na b\n\nLamps lit\n\n | North\nMay\n\nend"]
    assert found.kinds == {"embedded objects": 1, "field codes": 3, "numbers of charts": 1, "words of unknown parts": 5}


def test_cells_of_a_sheet_are_as_they_are_shown(read_bytes: ReadBytes) -> None:
    cells = [
        f"<table:table-cell office:value-type='float' office:value='41.5'>{p('41,5')}</table:table-cell>",
        "<table:table-cell office:value-type='date' office:date-value='2026-03-14'/>",
        "<table:table-cell office:value-type='string' office:string-value='01067'/>",
        f"<table:table-cell table:formula='of:=1+1' office:value='2'>{p('2')}</table:table-cell>",
        "<table:table-cell table:formula='of:=SUM([.B2:.B3];[Other.A1])'/>",
        f"<table:table-cell>{COMMENT}{p('one')}{p('two')}</table:table-cell>",
    ]
    rows = "".join(f"<table:table-row>{cell}</table:table-row>" for cell in cells)
    shapes = f"<table:shapes>{BOX.format('boxed')}</table:shapes>"
    names = "<table:named-expressions><table:named-range table:name='N'/></table:named-expressions>"
    hidden = f"<table:table table:name='H' table:style-name='h'>{rows_of(('kept',))}</table:table>"
    styles = "<style:style style:name='h'><style:table-properties table:display='false'/></style:style>"
    body = f"<table:table table:name='First'>{shapes}{rows}</table:table>{hidden}{names}"

    found = read_bytes("a.ods", opendocument("spreadsheet", body, styles))

    (document,) = found.documents
    assert shown_lines(document.text) == {
        "First": ["boxed", "41,5", "2026-03-14", "01067", "2", "=SUM(B2:B3;Other.A1)", "one two", "a comment"],
        "H": ["kept"],
    }
    assert document.places == (Place(0, page=1), Place(document.text.index("## H"), page=2))
    assert found.kinds == {
        **{"hidden sheets": 1, "formulas": 1, "formulas without a value": 1},
        **{"authors of comments": 1, "defined names": 1},
    }


def test_what_is_repeated_is_bounded(read_bytes: ReadBytes) -> None:
    def cell(words: str, times: int) -> str:
        return (
            f"<table:table-cell table:number-columns-repeated='{times}'>{p(words) if words else ''}</table:table-cell>"
        )

    rows = [
        (3, cell("a", 3) + cell("", 2) + cell("b", 1)),
        (1_048_576, cell("", 16_384)),
        (1, cell("c", 1) + cell("", 16_000) + cell("d", 16_384)),
    ]
    body = "".join(f"<table:table-row table:number-rows-repeated='{n}'>{cells}</table:table-row>" for n, cells in rows)

    found = read_bytes("a.ods", opendocument("spreadsheet", f"<table:table table:name='T'>{body}</table:table>"))

    assert shown_lines(found.texts[0])["T"] == ["a | a | a |  |  | b", " | ".join(["c", *["d"] * 64])]
    assert found.kinds == {"repeated rows and cells": 2 + 16_384 - 64}


def test_slides_are_pages_with_their_title_notes_and_comments(read_bytes: ReadBytes) -> None:
    title = f"<draw:frame presentation:class='title'><draw:text-box>{p('The')}{p('lamps')}</draw:text-box></draw:frame>"
    notes = f"<presentation:notes>{BOX.format('say this')}</presentation:notes>"
    table = f"<draw:frame><table:table>{rows_of(('a', 'b'))}</table:table></draw:frame>"
    body = (
        "<presentation:footer-decl presentation:name='f'>a footer</presentation:footer-decl>"
        f"<draw:page>{BOX.format('first')}{title}{table}{COMMENT}{notes}</draw:page>"
        f"<draw:page draw:style-name='h'>{BOX.format('second')}</draw:page><draw:page/>"
    )
    styles = (
        "<style:style style:name='h'><style:drawing-page-properties presentation:visibility='hidden'/></style:style>"
    )

    found = read_bytes("a.odp", opendocument("presentation", body, styles))

    (document,) = found.documents
    assert document.text == "a footer\n\n# The lamps\n\nfirst\n\na | b\n\na comment\n\nsay this\n\nsecond"
    assert document.places == (Place(10, page=1), Place(document.text.index("second"), page=2))
    assert [(one.where, one.kind) for one in found.left] == [
        ("a.odp", "authors of comments"),
        ("a.odp#page=2", "hidden slides"),
    ]


def test_a_document_says_what_it_is_about(read_bytes: ReadBytes) -> None:
    meta = (
        "<dc:title> Lamp\nlist </dc:title><meta:initial-creator>Ada</meta:initial-creator><dc:creator>Bob</dc:creator>"
        "<dc:subject>harbour</dc:subject><meta:keyword>red</meta:keyword><meta:keyword>green</meta:keyword>"
        "<dc:description>of 1843</dc:description><meta:user-defined meta:name='Client'>Kingfisher</meta:user-defined>"
    )

    (document,) = read_bytes("a.ods", opendocument("spreadsheet", "<table:table table:name='T'/>", meta=meta)).documents

    assert document.metadata == {
        **{"title": "Lamp list", "author": "Ada", "subject": "harbour", "keywords": "red, green"},
        **{"description": "of 1843", "Client": "Kingfisher"},
    }


COUNTED = {
    "ruby readings": "<text:ruby-text>{}</text:ruby-text>",
    "labels of notes": "<text:note-citation>{}</text:note-citation>",
    "words of alternative texts": "<svg:desc>{}</svg:desc>",
    "deleted words": "<text:tracked-changes><x:y>{}</x:y></text:tracked-changes>",
    "words of navigation": "<text:table-of-content><text:p>{}</text:p></text:table-of-content>",
}
WRAPPERS = (
    "x:y",
    "text:section",
    "text:list",
    "text:list-item",
    "text:list-header",
    "draw:frame",
    "draw:text-box",
    "table:table",
)
INSIDE = (
    "text:span",
    "text:a",
    "x:y",
    "draw:frame",
    "text:note",
    "text:note-body",
    "office:annotation",
    "text:bookmark-ref",
)


def pieces(rng: random.Random, depth: int, words: list[str], counts: dict[str, int], *, of_blocks: bool) -> str:
    """Random elements, with a word in each place that can hold some."""
    xml = ""
    for _ in range(rng.randint(1, 4)):
        word = f"w{rng.getrandbits(40):x}"
        kind = rng.choice(["word", "counted", "row", *["deeper"] * 3]) if depth else "word"
        if kind == "counted":
            name = rng.choice([*COUNTED])
            counts[name] = counts.get(name, 0) + 1
            xml += COUNTED[name].format(word)
        elif kind == "row" and of_blocks:
            inner = pieces(rng, depth - 1, words, counts, of_blocks=True)
            xml += f"<table:table-row><table:table-cell>{inner}</table:table-cell></table:table-row>"
        elif kind == "deeper":
            wrapper = rng.choice(["text:p", "text:h", *WRAPPERS]) if of_blocks else rng.choice(INSIDE)
            inner = pieces(rng, depth - 1, words, counts, of_blocks=of_blocks and wrapper not in ("text:p", "text:h"))
            xml += f"<{wrapper}>{inner}</{wrapper}>"
        else:
            words.append(word)
            xml += (
                p(word)
                if of_blocks and rng.random() < 0.7
                else f"{word} "
                if not of_blocks
                else f"<x:y>{word}</x:y>{''}"
            )
    return xml


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@ANY_FILE
def test_every_word_is_read_or_counted_wherever_it_is(read_bytes: ReadBytes, seed: int) -> None:
    words, counts = list[str](), dict[str, int]()
    body = pieces(random.Random(seed), 5, words, counts, of_blocks=True)

    for name, kind in (("a.odt", "text"), ("a.ods", "spreadsheet"), ("a.odp", "presentation")):
        found = read_bytes(name, opendocument(kind, p("first") + body))

        shown = found.texts[0].replace("|", " ").replace("#", " ").split()
        assert sorted(word for word in shown if word != "-") == sorted(["first", *words])
        assert {kind: n for kind, n in found.kinds.items() if kind != "addresses of links"} == counts


SMALL = ReadOptions(limits=Limits(office_text_bytes=1 << 16))
WIDE = f"<table:table-cell table:number-columns-repeated='99'>{p('many words')}</table:table-cell>"
WIDE = f"<table:table-row>{WIDE}</table:table-row>"


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.odt", b"no archive", "cannot be converted: damaged, or of another format than its ending says"),
        ("a.odt", zipped({"mimetype": "x"}), "has no body"),
        ("a.odt", zipped({"content.xml": "<a/>"}), "has no body"),
        ("a.odt", zipped({"content.xml": '<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'}), "a document type is declared"),
        ("a.odt", opendocument("text", "<x:y>" * 300 + "</x:y>" * 300), "nested deeper than 200 elements"),
        ("a.odt", opendocument("text", "<x:y>" * 9000), "nested deeper than 200 elements"),
        ("a.odt", opendocument("text", p("word") * 9000), "has a part of more than 64 KiB"),
        (
            "a.ods",
            opendocument("spreadsheet", f"<table:table>{WIDE * 300}</table:table>"),
            "converts to more than 64 KiB of text",
        ),
        ("a.odp", zipped({"content.xml": b"\0", "META-INF/manifest.xml": "<m><encryption-data/></m>"}), "encrypted"),
    ],
    ids=["no archive", "nothing", "no body", "entities", "deep", "never closed", "large", "repeated", "encrypted"],
)
def test_a_hostile_file_is_one_line(read_bytes: ReadBytes, name: str, data: bytes, reason: str) -> None:
    assert read_bytes(name, data, SMALL).reasons == [(name, reason)]


def test_a_damaged_text_is_read_up_to_the_damage_and_counted(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.odt", opendocument("text", p("above") + "</damage>" + p("below")))

    assert found.texts == ["above"]
    assert [(one.where, one.kind, one.count) for one in found.left] == [("a.odt#content.xml", "damaged parts", 1)]


@pytest.mark.parametrize(("ending", "kind"), [(".ott", "text"), (".otp", "presentation"), (".odg", "drawing")])
def test_templates_and_drawings_are_read_too(read_bytes: ReadBytes, ending: str, kind: str) -> None:
    assert read_bytes(f"a{ending}", opendocument(kind, p("words"))).texts == ["words"]


def levels(*forms: str, name: str = "text:list-level-style-number", **more: str) -> str:
    """Levels of a style, `1.` or `a` each, that show the numbers of all levels."""
    said = "".join(f" {key.replace('_', ':', 1).replace('_', '-')}='{value}'" for key, value in more.items())
    return "".join(
        f"<{name} text:level='{at}' style:num-format='{form[:1]}' style:num-suffix='{form[1:]}'"
        f" text:display-levels='{at}'{said}/>"
        for at, form in enumerate(forms, 1)
    )


def items(*inner: str, more: str = "") -> str:
    each = "".join(f"<text:list-item>{one if one.startswith('<') else p(one)}</text:list-item>" for one in inner)
    return f"<text:list {more}>{each}</text:list>"


def test_numbers_of_lists_and_headings_are_counted(read_bytes: ReadBytes) -> None:
    styles = f"<text:list-style style:name='L'>{levels('1.', '1.', 'a)')}</text:list-style>"
    styles += f"<text:list-style style:name='R'>{levels('I', text_start_value='3')}</text:list-style>"
    styles += f"<text:list-style style:name='T'>{levels('一.')}</text:list-style>"
    outline = f"<text:outline-style>{levels('1', '1', name='text:outline-level-style')}</text:outline-style>"
    named = "text:style-name='L'"
    heads = "".join(
        f"<text:h text:outline-level='{level}'>{name}</text:h>" for level, name in ((1, "A"), (2, "B"), (2, "C"))
    )
    body = (
        heads
        + items("one", p("two") + items("deep", p("deeper") + items("deepest")), "three", more=named)
        + items("four", items("only a list"), more=f"{named} text:continue-numbering='true'")
        + items("new", more=named)
        + items("Roman", "<text:h>Heading</text:h>", more="text:style-name='R'")
        + items("Chinese", more="text:style-name='T'")
        + items("bullet", more="text:style-name='unknown'")
        + "<text:h text:outline-level='1'>D</text:h>"
    )

    found = read_bytes("a.odt", opendocument("text", body, styles, outline))

    assert found.texts[0].split("\n\n") == [
        *("# 1 A", "## 1.1 B", "## 1.2 C"),
        *("1. one", "2. two", "2.1. deep", "2.2. deeper", "2.2.a) deepest", "3. three"),
        *("4. four", "4.1. only a list", "1. new", "III Roman", "# IV Heading", "1. Chinese", "- bullet", "# 2 D"),
    ]
    assert found.kinds == {"labels of unknown forms": 1}
