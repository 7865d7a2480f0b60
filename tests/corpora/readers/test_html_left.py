"""What of a page comes in, what is counted, and pages that would stop a parser."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.corpora.field_settings import check_fields
from ragidx.corpora.left_out import RULE, Tally, class_of
from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.html_page import page_text, parsed

from ...raising import message_of
from ..conftest import ReadBytes
from .page_samples import PAGES, Sample

FILLER = "Herons stand in the shallows of the weir and wait for eels. " * 8

PLACES = {
    "kept": """
        <h1>kpheading</h1> <p>kpparagraph <b>kpbold</b> kpsoft&shy;hyphen kpzero&#8203;width kpbro<wbr>ken</p>
        <aside class="caution"><p>kpaside</p></aside> <details><summary>kpsummary</summary>kpdetails</details>
        <div role="tabpanel" hidden>kppanel</div> <div aria-hidden="true">kparia</div> <dialog>kpdialog</dialog>
        <div class="informed-consent">kpconsent</div> <table class="share-price"><caption>kpcaption</caption>
        <tr><th>kphead</th><td><p>kpcell</p></td></tr><tfoot><tr><td>kpfoot</td><td>kplast</td></tr></tfoot></table>
        <dl><dt>kpterm</dt><dd>kpdefinition</dd></dl> <pre>kpcode
          kpindented</pre> <figure><figcaption>kpfigure</figcaption></figure>
        <math><mi>kpnumerator</mi><mi>kpdenominator</mi></math> <svg><text>kpdrawn</text><text>kpagain</text></svg>
        <form><label>kplabel</label><textarea>kparea</textarea><select><option>kpone<option>kptwo</select>
        <button>kpsend</button><button>kpcancel</button></form> <ruby>kpbase<rt>x</rt></ruby> <my-card>kpcard</my-card>
    """,
    "words of navigation": '<nav>one two</nav> <ul role="menu">three</ul> <div class="breadcrumbs">four</div>',
    "words of notices": '<div class="wide cookie-banner">one two</div> <ul id="share">three</ul>',
    "hidden words": '<p style="display:none">one two</p> <span class="sr-only">three</span>',
    "words of fallbacks": "<noscript><p>one two</p></noscript> <canvas>three</canvas> <video><p>four</p></video>",
    "ruby readings": "<ruby>base<rp>(</rp><rt>one</rt><rp>)</rp></ruby>",
    "words of tooltips": '<svg><title>one</title></svg> <abbr title="two three">base</abbr>',
    "words of alternative texts": '<img alt="one two three">',
    "words of form fields": '<input value="one two" placeholder="three"><input type="hidden" value="four">',
    "formulas in other notations": "<math><mi>base</mi><annotation>one</annotation></math>",
    "scripts": "<script>one()</script><style>two {}</style>",
    "templates": "<template><p>one</p></template>",
    "embedded objects": '<iframe srcdoc="one"></iframe>',
}
COUNTS = {
    "words of navigation": 4,
    "words of fallbacks": 4,
    "scripts": 2,
    "templates": 1,
    "embedded objects": 1,
    "formulas in other notations": 1,
}


def read(html: str, *, whole: bool = False) -> tuple[str, dict[str, int]]:
    left = Tally()
    text = page_text(parsed(html, left), left, whole=whole)
    return text, {kind: count for kind, (count, _) in left.items()}


def test_every_place_of_words_comes_in_whole() -> None:
    marks = re.findall(r"kp\w+", re.sub("&shy;|&#8203;|<wbr>", "", PLACES["kept"]))

    text, left = read(f"<main><p>{FILLER}{PLACES['kept']}</main>")

    assert [mark for mark in marks if not re.search(rf"\b{mark}\b", text)] == []
    assert "kphead | kpcell\nkpfoot | kplast" in text
    assert left == {"ruby readings": 1}


@pytest.mark.parametrize("kind", [kind for kind in PLACES if kind != "kept"])
def test_what_is_left_out_is_counted_by_kind(kind: str) -> None:
    text, left = read(f"<main><p>{FILLER}</p>{PLACES[kind]}</main>")

    assert left[kind] == COUNTS.get(kind, 5 if kind == "ruby readings" else 3) - 2 * (kind == "ruby readings")
    assert not re.search(r"\b(?:one|two|three|four)\b", text)


def test_a_whole_page_has_what_is_around_the_main_part(read_bytes: ReadBytes) -> None:
    page = f"<body><nav>Home</nav><main><p>{FILLER}</p></main><footer>Made by hand.</footer>"

    main = read_bytes("a.html", page)
    whole = read_bytes("a.html", page, ReadOptions(fields={"html": ("b*.html=main", "whole")}))

    assert main.texts == [f"{FILLER.strip()}\n"]
    assert main.kinds == {"words of navigation": 1, "words around the main part": 3}
    assert whole.texts == [f"Home\n\n{FILLER.strip()}\n\nMade by hand.\n"]
    assert whole.kinds == {}


def test_a_part_of_a_page_that_is_none_is_refused() -> None:
    assert check_fields({"html": ["old/*.html=whole", "main"]}) == {"html": ("old/*.html=whole", "main")}
    assert message_of(SpecError, lambda: check_fields({"html": "*.html=all"})) == (
        "`html`: unknown part of a page 'all'\n  hint: known: main, whole"
    )


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("<tr><td><p>a</p><td><div>b</div><br>c<td><ul><li>d<li>e</ul>", "a | b c | d e\n"),
        ("<tr><td><p>a</p><p>b</p>", "a\n\nb\n"),
        ("<tr><td>menu<td><h2>a</h2><p>b</p><p>c</p>", "menu\n\n## a\n\nb\n\nc\n"),
        ("<tr><td>a<td>b<table><tr><td>c<td>d</table>", "a | b\n\nc | d\n"),
    ],
)
def test_a_row_is_a_line_unless_its_cells_lay_out_a_page(table: str, text: str) -> None:
    assert read(f"<table>{table}</table>")[0] == text


TAGS = """
    div p b aside section table tr td li ul h2 nav footer header rt noscript unknown-card form label svg
"""
NODES = st.recursive(
    st.just("word"),
    lambda inner: st.tuples(
        st.sampled_from(TAGS.split()),
        st.sampled_from(["", " hidden", ' class="share-buttons"', ' style="display:none"', ' role="search"']),
        st.lists(inner, max_size=4),
    ),
    max_leaves=30,
)


def markup(node: object) -> str:
    if isinstance(node, str):
        return f" {node} "
    tag, attribute, inner = node  # type: ignore[misc]
    return f"<{tag}{attribute}>{''.join(map(markup, inner))}</{tag}>"


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
@given(nodes=st.lists(NODES, max_size=5), main=st.lists(NODES, max_size=5))
def test_each_word_of_a_page_is_given_or_counted(whole: bool, nodes: list[object], main: list[object]) -> None:
    page = f"<body>{''.join(map(markup, nodes))}<main>{''.join(map(markup, main))}</main>"

    text, left = read(page, whole=whole)

    assert len(re.findall(r"\bword\b", text)) + sum(left.values()) == len(re.findall(" word ", page))
    assert all(class_of(kind) == RULE for kind in left)


FLAT = {"pages without structure": 1}


@pytest.mark.parametrize(
    ("page", "left"),
    [
        ("<div></x>" * 200_000 + "word", FLAT),
        ("<table><tr><td>" * 20_000 + "word", FLAT),
        ("<p " + " ".join(f"a{n}=1" for n in range(300_000)) + ">word", FLAT),
        ("".join(f"<font id={n}>" for n in range(2_500)) + "<p>word" * 20_000, FLAT),
        ("<select>" + "<option>word" * 20_000, FLAT),
        ("<select><option>word</select>" * 20_000, {}),
        ("<!--" * 200_000, {}),
        ("<script>" * 200_000, {"scripts": 1}),
        ("<div class=cookies>" * 400 + "word " * 20_000, {}),
        ("<p>word<p>word" * 20_000, {}),
        ("<table>" + "<tr><td><font size=2>word" * 10_000, {}),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.slow
def test_a_page_that_would_stop_its_parser_gives_its_words(page: str, left: dict[str, int]) -> None:
    text, counted = read(f"<body>{page}")

    assert counted == left
    assert text.count("word") == page.count("word")


def test_a_page_without_structure_has_its_lines() -> None:
    page = "<p>One &amp; <b>two</b>.</p><script>no</script><!-- no --><textarea>a<b></textarea><p title='<x>'>3 < 4"

    text, left = read(page + "<i>" * 3_000)

    assert (text, left) == ("One & two.\na<b>\n3 < 4\n", FLAT)


@pytest.mark.parametrize("sample", PAGES, ids=lambda sample: sample.name)
def test_a_page_gives_its_content_and_little_of_its_frame(sample: Sample) -> None:
    text, _ = read(sample.html)

    assert sample.lost(text) == []
    assert len(sample.let_in(text)) <= sample.allowed
