"""Documents of Word: a word in every place is read, or counted under its kind."""

from __future__ import annotations

import io
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.limits import Limits, ReadOptions

from ..conftest import ReadBytes
from ..markers.office import (
    box,
    chart,
    diagram,
    drawn,
    nested,
    para,
    part,
    plain,
    related,
    row,
    run,
    table,
    word_file,
)

ANY_FILE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)


def read(read_bytes: ReadBytes, body: str, *relations: tuple[str, str, str], **parts: str | bytes) -> str:
    """The text of a body; `parts`: those of the folder `word`, by the first part of their name."""
    named = {f"word/{name}.xml": data for name, data in parts.items()}
    (document,) = read_bytes("a.docx", word_file(body, *relations, parts=named)).documents
    return document.text


CHOICES = '<w:ddList><w:result w:val="1"/><w:listEntry w:val="no"/><w:listEntry w:val="yes"/></w:ddList>'
FRACTION = nested("m:f m:num m:r m:t", "a") + nested("m:den m:r m:t", "b")
ALTERNATIVES = nested("mc:Choice", box(plain("one"))) + nested("mc:Fallback w:pict v:shape v:textbox", plain("one"))
WIDE = '<w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr>' + plain("wide") + "</w:tc>"
BELOW = "<w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc>"


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (run("Bai", "<w:b/>") + run("kal"), "Baikal"),
        (run("left") + "<w:r><w:tab/></w:r>" + run("right"), "left\tright"),
        (run("above") + "<w:r><w:br/></w:r>" + run("below"), "above\nbelow"),
        ("<w:r><w:t>co</w:t><w:noBreakHyphen/><w:t>op</w:t><w:softHyphen/><w:t>ing</w:t></w:r>", "co-oping"),
        (run("2 ") + '<w:r><w:sym w:font="Symbol" w:char="F0B1"/></w:r>' + run(" 1"), "2 ± 1"),
        ('<w:fldSimple w:instr="SEQ Table">' + run("7") + "</w:fldSimple>", "7"),
        (nested("w:ins", run("put in")) + nested("w:moveTo", run(" moved")), "put in moved"),
        (nested("w:bdo", run("bdo ")) + nested("w:dir", run("dir ")) + nested("w:smartTag", run("tag")), "bdo dir tag"),
        (nested("w:r w:ruby w:rubyBase", run("base")), "base"),
        (nested("w:customXml w:sdt w:sdtContent x:new", run("held")), "held"),
        (run("box:") + box(plain("inside") + plain("twice")), "box:\n\ninside\n\ntwice"),
        (nested("w:r w:pict v:shape v:textbox w:txbxContent", plain("old box")), "old box"),
        ('<w:r><w:pict><v:shape><v:textpath string="DRAFT"/></v:shape></w:pict></w:r>', "DRAFT"),
        (nested("w:r mc:AlternateContent", ALTERNATIVES), "one"),
        (nested("m:oMath", FRACTION.replace("<m:f>", "").replace("</m:f>", "")), "a b"),
        (nested("w:r w:fldChar w:ffData", CHOICES), "yes"),
        (run("none") + nested("w:r w:fldChar w:ffData", CHOICES.replace('"1"', '"00005"')), "none"),
    ],
)
def test_every_place_of_a_paragraph_is_read(read_bytes: ReadBytes, inner: str, text: str) -> None:
    assert read(read_bytes, para(inner)) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (nested("w:sdt w:sdtContent w:customXml x:new", plain("held")), "held"),
        (nested("m:oMathPara m:oMath m:r m:t", "x=1") + plain("then"), "x=1\n\nthen"),
        (table(row(plain("a") + plain("b"), plain("c")), row(plain("d"), plain(""))), "a b | c\nd"),
        (table(row(plain("a") + table(row(plain("in"))), plain("b")), row(plain("c"))), "a | b\nin\nc"),
        (table(nested("w:sdt w:sdtContent", row(plain("a")))), "a"),
        (table(nested("w:tr w:customXml w:tc", plain("a"))), "a"),
        (table(row(WIDE, plain("c")), row(BELOW, plain("d"))), "wide |  | c\n| d"),
        (table(row(para(run("a"), box(plain("box"))), plain("b")), row(plain("c"))), "a | b\nbox\nc"),
    ],
)
def test_every_place_of_a_body_is_read(read_bytes: ReadBytes, body: str, text: str) -> None:
    assert read(read_bytes, body) == text


ALT = '<w:r><w:drawing><wp:inline><wp:docPr descr="a red boat" title="boat"/></wp:inline></w:drawing></w:r>'
LIST = '<w:sdt><w:sdtPr><w:dropDownList><w:listItem w:displayText="no"/></w:dropDownList></w:sdtPr></w:sdt>'


@pytest.mark.parametrize(
    ("inner", "kinds"),
    [
        (nested("w:del w:r w:delText", "two words") + nested("w:moveFrom", run("gone")), {"deleted words": 3}),
        ("<w:r><w:instrText> REF there </w:instrText></w:r>", {"field codes": 2}),
        (run("not seen", "<w:vanish/>"), {"hidden words": 2}),
        (nested("w:r w:ruby w:rt", run("over it")), {"ruby readings": 2}),
        (ALT, {"words of alternative texts": 4}),
        ('<w:r><w:pict><v:rect alt="a boat"/></w:pict></w:r>', {"words of alternative texts": 2}),
        (LIST, {"choices of forms": 1}),
        ('<w:r><w:sym w:font="Wingdings" w:char="F0FE"/></w:r>', {"symbols of fonts": 1}),
        ("<x:new>loose words</x:new>", {"words of unknown elements": 2}),
    ],
)
def test_what_is_not_read_is_counted(read_bytes: ReadBytes, inner: str, kinds: dict[str, int]) -> None:
    found = read_bytes("a.docx", word_file(para(run("kept"), inner)))

    assert (found.texts, found.kinds) == (["kept"], kinds)


def test_headers_stand_above_and_footers_below_each_text_once(read_bytes: ReadBytes) -> None:
    head = {name: part("w:hdr", plain(text)) for name, text in (("h1", "head"), ("h2", "first"), ("h3", "head"))}
    head["f1"] = part("w:ftr", table(row(plain("foot"), plain("two"))))

    found = read_bytes(
        "a.docx",
        word_file(
            plain("body"),
            *((name, "header" if name[0] == "h" else "footer", f"{name}.xml") for name in head),
            parts={f"word/{name}.xml": data for name, data in head.items()},
        ),
    )

    assert found.texts == ["head\n\nfirst\n\nbody\n\nfoot | two"]
    assert found.kinds == {"repeated lines": 1}


def test_a_header_that_is_the_document_itself_or_nothing_is_counted(read_bytes: ReadBytes) -> None:
    relations = [("h1", "header", "document.xml"), ("h2", "header", "gone.xml")]

    found = read_bytes("a.docx", word_file(plain("body"), *relations))

    assert (found.texts, found.kinds) == (["body"], {"damaged parts": 2})


def test_notes_and_comments_follow_the_paragraph_that_refers_to_them(read_bytes: ReadBytes) -> None:
    notes = {
        kind: part(
            f"w:{kind}s",
            f'<w:{kind} w:id="0" w:type="separator">{plain("")}</w:{kind}>'
            f'<w:{kind} w:id="1" w:author="Ada">{plain(f"{kind} one")}</w:{kind}>'
            f'<w:{kind} w:id="1">{plain(f"{kind} two")}</w:{kind}>',
        )
        for kind in ("footnote", "endnote", "comment")
    }
    refers = "".join(f'<w:r><w:{kind}Reference w:id="1"/></w:r>' for kind in notes)

    found = read_bytes(
        "a.docx",
        word_file(
            para(run("first"), refers) + table(row(para(run("cell"), refers))) + plain("last"),
            *((kind, f"{kind}s", f"{kind}s.xml") for kind in notes),
            parts={f"word/{kind}s.xml": data for kind, data in notes.items()},
        ),
    )

    assert found.texts[0].split("\n\n") == [
        *("first", "footnote one", "endnote one", "comment one", "cell", "last"),
        *("footnote two", "endnote two", "comment two"),
    ]
    assert found.kinds == {"authors of comments": 3}


def test_charts_diagrams_and_chunks_are_read_and_what_is_behind_them_is_counted(read_bytes: ReadBytes) -> None:
    series: dict[str, dict[str, float]] = {"metres": {"Baikal": 1642.0, "Como": 425.5}, "feet": {"Baikal": 5387}}
    shown = (
        '<w:r><w:drawing><c:chart r:id="c"/></w:drawing></w:r><w:r><w:drawing><dgm:relIds r:dm="d"/></w:drawing></w:r>'
    )
    parts: dict[str, str | bytes] = {
        "charts/chart1.xml": chart("Depths", series),
        "charts/_rels/chart1.xml.rels": related(
            ("w", "package", "../embeddings/w.xlsx"), ("u", "chartUserShapes", "u.xml")
        ),
        "charts/u.xml": part("c:userShapes", drawn("an arrow")),
        "embeddings/w.xlsx": b"PK",
        "embeddings/o.bin": b"x",
        "media/a.png": b"x",
        "diagrams/data1.xml": diagram("plan", "do"),
        "diagrams/drawing1.xml": diagram("plan", "do"),
        "chunk.html": b"<style>p {}</style><p>A chunk &amp; more</p>",
        "more.xml": part("w:more", "<w:t>words of nobody</w:t>"),
        "glossary/document.xml": part("w:glossaryDocument", plain("a template")),
    }

    found = read_bytes(
        "a.docx",
        word_file(
            para(run("see"), shown) + '<w:altChunk r:id="h"/>',
            ("c", "chart", "charts/chart1.xml"),
            ("d", "diagramData", "diagrams/data1.xml"),
            ("h", "aFChunk", "chunk.html"),
            ("l", "hyperlink", "https://example.org"),
            parts={f"word/{name}": data for name, data in parts.items()},
        ),
    )

    assert found.texts[0].split("\n\n") == [
        *("see", "Depths\n| metres\nBaikal | 1642\nComo | 425.5\n| feet\nBaikal | 5387"),
        *("an arrow", "plan\ndo", "A chunk & more"),
    ]
    assert found.kinds == {
        **{"workbooks of charts": 1, "embedded objects": 1, "pictures": 1, "addresses of links": 1},
        **{"words of unknown parts": 3, "words of master pages": 2},
    }
    assert {one.kind: one.where for one in found.left}["words of unknown parts"] == "a.docx#word/more.xml"


def test_a_document_says_its_subject_and_its_custom_properties(read_bytes: ReadBytes) -> None:
    core = {"title": "T", "creator": "Ada", "subject": "lakes", "keywords": "deep, cold", "description": " "}
    custom = {"Client": "Kingfisher", "title": "not this", "_x": "1", "MSIP_Label_x": "1"}
    data = word_file(
        plain("body"),
        parts={
            "docProps/core.xml": part("p:core", "".join(f"<x:{name}>{text}</x:{name}>" for name, text in core.items())),
            "docProps/custom.xml": part(
                "p:custom", "".join(f'<p:c name="{name}"><v>{text}</v></p:c>' for name, text in custom.items())
            ),
        },
    )

    (document,) = read_bytes("a.docx", data).documents

    assert document.metadata == {
        **{"title": "T", "author": "Ada", "subject": "lakes", "keywords": "deep, cold"},
        "Client": "Kingfisher",
    }


Piece = tuple[str, list[str], dict[str, int]]
"""XML, the words in it that are read, and how many are counted, by kind."""

COUNTED = {
    "deleted words": "<w:del><w:r><w:delText>{} </w:delText></w:r></w:del>",
    "field codes": "<w:r><w:instrText>{} </w:instrText></w:r>",
    "hidden words": "<w:r><w:rPr><w:vanish/></w:rPr><w:t>{} </w:t></w:r>",
    "words of unknown elements": "<x:loose>{} </x:loose>",
}
WRAPPERS = ["w:ins", "w:hyperlink", "w:smartTag", "x:unknown", "w:bdo"]


def pieces(rng: random.Random, depth: int, *, of_blocks: bool) -> Piece:
    """Random XML of paragraphs and tables, or of runs."""
    xml, words, counts = "", list[str](), dict[str, int]()
    for _ in range(rng.randint(1, 3)):
        word = f"w{rng.getrandbits(40):x}"
        kind = rng.choice(["wrapper", "p", "p", "tbl", "loose"] if of_blocks and depth else [*COUNTED, "run", "run"])
        if kind == "run":
            xml, words = xml + (plain(word) if of_blocks else run(f"{word} ")), [*words, word]
            continue
        if kind in COUNTED:
            inner: Piece = (COUNTED[kind].format(word), [], {kind: 1})
            xml += para(inner[0]) if of_blocks else inner[0]
        elif kind == "loose":
            inner = (word, [], {"words of unknown elements": 1})
            xml += f"<x:y>{word}</x:y>"
        else:
            inner = pieces(rng, depth - 1, of_blocks=kind != "p")
            wrapper = rng.choice(["w:sdt", "w:customXml", "x:unknown"])
            around = {"wrapper": wrapper, "p": f"w:p {rng.choice(WRAPPERS)}"}
            xml += nested(around.get(kind, f"w:tbl {wrapper} w:tr {wrapper} w:tc"), inner[0])
        words = [*words, *inner[1]]
        counts = {kind: counts.get(kind, 0) + inner[2].get(kind, 0) for kind in {**counts, **inner[2]}}
    return xml, words, counts


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@ANY_FILE
def test_every_word_is_read_or_counted_wherever_it_is(read_bytes: ReadBytes, seed: int) -> None:
    xml, words, counts = pieces(random.Random(seed), 4, of_blocks=True)

    found = read_bytes("a.docx", word_file(plain("first") + xml))

    assert sorted(found.texts[0].replace("|", " ").split()) == sorted(["first", *words])
    assert found.kinds == counts


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@settings(ANY_FILE, max_examples=8)
def test_documents_of_another_library_come_out_in_their_order(read_bytes: ReadBytes, seed: int) -> None:
    docx = pytest.importorskip("docx", reason="needs docx, of the extra 'test'")
    rng = random.Random(seed)
    document, lines = docx.Document(), list[str]()
    for number in range(rng.randint(1, 9)):
        words = [f"a{number}b{rng.getrandbits(30):x}" for _ in range(3)]
        kind = rng.choice(["heading", "item", "runs", "table"])
        if kind == "heading":
            level = rng.randint(1, 9)
            document.add_heading(" ".join(words), level)
            lines.append(f"{'#' * min(6, level)} {' '.join(words)}")
        elif kind == "item":
            document.add_paragraph(" ".join(words), style="List Bullet")
            lines.append(f"- {' '.join(words)}")
        elif kind == "runs":
            paragraph = document.add_paragraph()
            for word in words:
                paragraph.add_run(f"{word} ").bold = rng.random() < 0.5
            lines.append(" ".join(words))
        else:
            for cell, word in zip(document.add_table(1, 3).rows[0].cells, words, strict=True):
                cell.text = word
            lines.append(" | ".join(words))
    sink = io.BytesIO()
    document.save(sink)

    found = read_bytes("a.docx", sink.getvalue())

    assert found.texts[0].replace("\n\n", "\n").split("\n") == lines


ENTITY = '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
OUTSIDE = related(("r", "officeDocument", "../../etc/passwd"))
BOMB = ReadOptions(limits=Limits(office_text_bytes=1 << 16))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (word_file("<w:sdt>" * 300 + "</w:sdt>" * 300), "nested deeper than 200 elements"),
        (word_file(table(row("")) * 3000), "has a part of more than 64 KiB"),
        (word_file("", parts={"word/document.xml": ENTITY}), "a document type is declared"),
        (word_file("", parts={"word/document.xml": "no xml"}), "empty text"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "encrypted, or a file of Office 97"),
        (
            word_file("", parts={"_rels/.rels": OUTSIDE}),
            "cannot be converted: there is no word/document.xml in it",
        ),
    ],
)
def test_a_hostile_file_is_one_line(read_bytes: ReadBytes, data: bytes, reason: str) -> None:
    assert read_bytes("a.docx", data, BOMB).reasons == [("a.docx", reason)]


def test_a_damaged_part_is_read_up_to_the_damage_and_counted(read_bytes: ReadBytes) -> None:
    whole = part("w:document", f"<w:body>{plain('before')}{plain('behind')}</w:body>")
    cut = whole[: whole.index("behind")]

    found = read_bytes("a.docx", word_file("", parts={"word/document.xml": cut, "word/more.xml": "<a"}))

    assert (found.texts, found.kinds) == (["before"], {"damaged parts": 2})


def test_relations_to_itself_and_notes_in_notes_end(read_bytes: ReadBytes) -> None:
    refers = '<w:r><w:footnoteReference w:id="1"/></w:r>'
    note = part("w:footnotes", f'<w:footnote w:id="1">{para(run("note"), refers)}</w:footnote>')
    chart_run = '<w:r><w:drawing><c:chart r:id="c"/></w:drawing></w:r>'

    found = read_bytes(
        "a.docx",
        word_file(
            para(run("text"), refers, chart_run * 1000),
            ("f", "footnotes", "footnotes.xml"),
            ("c", "chart", "chart.xml"),
            parts={
                "word/footnotes.xml": note,
                "word/chart.xml": part("c:chartSpace", drawn("chart")),
                "word/_rels/chart.xml.rels": related(("u", "chartUserShapes", "chart.xml")),
            },
        ),
    )

    assert found.texts == ["text\n\nnote\n\nchart"]
