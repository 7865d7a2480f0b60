"""Presentations: a word in every place is read, or counted under its kind."""

from __future__ import annotations

import io
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.records import Place

from ..conftest import ReadBytes
from ..markers.office import chart, diagram, drawn, nested, part, related, shape, slide_file

COMMENT = '<p:cm authorId="0"><p:text>an old one</p:text></p:cm>'
REPLY = '<p:reply authorId="2">' + nested("p:txBody", drawn("an answer")) + "</p:reply>"
THREAD = '<p:cm authorId="1">' + nested("p:replyLst", REPLY) + nested("p:txBody", drawn("a question")) + "</p:cm>"


def graphic(inner: str) -> str:
    return nested("p:graphicFrame a:graphic a:graphicData", inner)


def cell(text: str, more: str = "") -> str:
    return f"<a:tc{more}><a:txBody>{drawn(text)}</a:txBody></a:tc>"


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (shape("body") + shape("The title", "of two lines", holder="ctrTitle"), "# The title of two lines\n\nbody"),
        (shape("foot", holder="ftr") + shape("low", y=900_000) + shape("high", y=10_000), "high\n\nlow\n\nfoot"),
        (shape("one", "two"), "one\ntwo"),
        (shape("<a:p><a:r><a:t>a</a:t></a:r><a:br/><a:r><a:t>b</a:t></a:r></a:p>"), "a\nb"),
        (nested("p:grpSp", shape("a") + nested("p:grpSp", shape("b"))), "a\n\nb"),
        (shape(nested("a:p a:fld a:t", "5 May")), "5 May"),
        (shape(nested("a:p x:m m:oMath m:r m:t", "x=1")), "x=1"),
        (nested("mc:AlternateContent", nested("mc:Choice", shape("a")) + nested("mc:Fallback", shape("a"))), "a"),
        (nested("x:new", shape("later")), "later"),
        (graphic(nested("a:tbl a:tr", cell("a") + cell("b")) + nested("a:tbl a:tr", cell("c"))), "a | b\n\nc"),
        (graphic(nested("a:tbl a:tr", cell("a", ' gridSpan="2"') + cell("", ' hMerge="1"') + cell("c"))), "a |  | c"),
    ],
)
def test_every_place_of_a_slide_is_read(read_bytes: ReadBytes, shapes: str, text: str) -> None:
    assert read_bytes("a.pptx", slide_file(shapes)).texts == [text]


def test_slides_are_in_the_order_of_the_presentation_and_are_pages(read_bytes: ReadBytes) -> None:
    ids = '<p:sldId id="300" r:id="s1"/><p:sldId id="301" r:id="s2"/><p:sldId id="256" r:id="s0"/><p:sldId r:id="s1"/>'
    order = part("p:presentation", nested("p:sldIdLst", ids))

    found = read_bytes(
        "a.pptx",
        slide_file(shape("last"), shape("first"), shape(""), parts={"ppt/presentation.xml": order}),
    )

    assert found.texts == ["first\n\nlast"]
    assert found.documents[0].places == (Place(0, page=1), Place(7, page=3))


def test_what_hangs_on_a_slide_follows_it(read_bytes: ReadBytes) -> None:
    frames = graphic('<c:chart r:id="c"/>') + graphic('<dgm:relIds r:dm="d"/>')
    hangs = related(
        ("c", "chart", "../charts/chart1.xml"),
        ("d", "diagramData", "../diagrams/data1.xml"),
        ("n", "notesSlide", "../notesSlides/notesSlide1.xml"),
        ("o", "comments", "../comments/comment1.xml"),
        ("m", "comments", "../comments/modernComment_1.xml"),
        ("l", "slideLayout", "../slideLayouts/slideLayout1.xml"),
    )
    notes = shape("said", holder="body") + shape("7", holder="sldNum") + shape("head", holder="hdr") + shape("free")
    parts: dict[str, str | bytes] = {
        "slides/_rels/slide0.xml.rels": hangs,
        "charts/chart1.xml": chart("Depths", {"metres": {"Baikal": 1642}}),
        "charts/_rels/chart1.xml.rels": related(("w", "package", "../embeddings/w.xlsx")),
        "embeddings/w.xlsx": b"PK",
        "diagrams/data1.xml": diagram("plan", "do"),
        "notesSlides/notesSlide1.xml": part("p:notes", nested("p:cSld p:spTree", notes)),
        "comments/comment1.xml": part("p:cmLst", COMMENT),
        "comments/modernComment_1.xml": part("p:cmLst", THREAD),
        "slideLayouts/slideLayout1.xml": part("p:sldLayout", shape("Click here")),
        "slideMasters/slideMaster1.xml": part("p:sldMaster", shape("Kingfisher Ltd")),
        "media/a.mp4": b"x",
    }

    found = read_bytes(
        "a.pptx", slide_file(frames, shape("next"), parts={f"ppt/{name}": data for name, data in parts.items()})
    )

    assert found.texts[0].split("\n\n") == [
        *(
            "Depths\n| metres\nBaikal | 1642",
            "plan\ndo",
            "said",
            "free",
            "an old one",
            "a question",
            "an answer",
            "next",
        )
    ]
    assert found.kinds == {
        **{"page numbers": 1, "authors of comments": 3, "words of master pages": 5},
        **{"workbooks of charts": 1, "embedded objects": 1},
    }


def test_what_a_slide_repeats_or_hides_is_counted(read_bytes: ReadBytes) -> None:
    frame = shape("Kingfisher Ltd", holder="ftr") + shape("7", holder="sldNum")
    hidden = part("p:sld", nested("p:cSld p:spTree", shape("two") + frame + "<x:new>loose words</x:new>"))
    data = slide_file(
        shape("one", alt="a red boat") + frame,
        "",
        parts={"ppt/slides/slide1.xml": hidden.replace("<p:sld ", '<p:sld show="0" ', 1)},
    )

    found = read_bytes("a.pptx", data)

    assert found.texts == ["one\n\nKingfisher Ltd\n\ntwo"]
    assert {one.kind: (one.count, one.where) for one in found.left} == {
        "words of alternative texts": (3, "a.pptx#page=1"),
        "page numbers": (2, "a.pptx#page=1"),
        "repeated lines": (1, "a.pptx#page=2"),
        "hidden slides": (1, "a.pptx#page=2"),
        "words of unknown elements": (2, "a.pptx#page=2"),
    }


COUNTED = {
    "page numbers": '<a:p><a:fld type="slidenum"><a:t>{}</a:t></a:fld></a:p>',
    "words of unknown elements": "<a:p><x:loose>{}</x:loose></a:p>",
}


def shapes(rng: random.Random, depth: int) -> tuple[str, list[str], dict[str, int]]:
    """Random shapes, the words in them that are read, and how many are counted, by kind."""
    xml, words, counts = "", list[str](), dict[str, int]()
    for _ in range(rng.randint(1, 4)):
        word = f"w{rng.getrandbits(40):x}"
        kind = rng.choice([*COUNTED, "shape", "alone", "table", *["group"] * (2 * (depth > 0))])
        if kind in COUNTED:
            xml += shape(COUNTED[kind].format(word), holder=rng.choice(["", "body", "title"]))
            counts[kind] = counts.get(kind, 0) + 1
        elif kind == "group":
            inner, more, counted = shapes(rng, depth - 1)
            xml += nested(rng.choice(["p:grpSp", "x:unknown", "mc:AlternateContent mc:Choice", "p:grpSp x:a"]), inner)
            words += more
            counts = {name: counts.get(name, 0) + counted.get(name, 0) for name in {**counts, **counted}}
        else:
            table = graphic(nested(rng.choice(["a:tbl a:tr", "a:tbl x:a a:tr x:b"]), cell(word)))
            xml += {"shape": shape(word, y=rng.randrange(10**7)), "alone": drawn(word), "table": table}[kind]
            words.append(word)
    return xml, words, counts


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
def test_every_word_is_read_or_counted_wherever_it_is(read_bytes: ReadBytes, seed: int) -> None:
    xml, words, counts = shapes(random.Random(seed), 4)

    found = read_bytes("a.pptx", slide_file(shape("first") + xml))

    assert sorted(found.texts[0].replace("#", " ").split()) == sorted(["first", *words])
    assert found.kinds == counts


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=6)
def test_presentations_of_another_library_come_out_in_their_order(read_bytes: ReadBytes, seed: int) -> None:
    pptx = pytest.importorskip("pptx", reason="needs pptx, of the extra 'test'")
    rng = random.Random(seed)
    deck, texts = pptx.Presentation(), list[str]()
    for number in range(rng.randint(1, 5)):
        words = [f"a{number}b{rng.getrandbits(30):x}" for _ in range(6)]
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = words[0], f"{words[1]}\n{words[2]}"
        table = slide.shapes.add_table(1, 2, 100, 5_000_000, 100, 100).table
        for at in range(2):
            table.cell(0, at).text = words[3 + at]
        slide.notes_slide.notes_text_frame.text = words[5]
        texts += [f"# {words[0]}", f"{words[1]}\n{words[2]}", f"{words[3]} | {words[4]}", words[5]]
    sink = io.BytesIO()
    deck.save(sink)

    found = read_bytes("a.pptx", sink.getvalue())

    assert found.texts[0].split("\n\n") == texts
    assert {place.page for place in found.documents[0].places} == set(range(1, 1 + len(texts) // 4))
