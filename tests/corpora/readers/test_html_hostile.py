"""Pages that would take a parser for ever, or all of the memory: they are read in bounded time, or refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers import html_page
from ragidx.corpora.readers.html_page import page_text, parseable

from ..conftest import ReadBytes

NAMES = """
    div span b i a p li ul table tr td section h1 button x object select dd em template
"""
TAGS = st.lists(st.tuples(st.sampled_from(["", "/"]), st.sampled_from(NAMES.split())), max_size=6)


def deepest_and_count(html: str) -> tuple[int, int]:
    """How deep the elements of a page are, and how many nodes it has."""
    root = LexborHTMLParser(html).root
    todo, deepest, count = [(root, 0)], 0, 0
    while todo:
        node, depth = todo.pop()
        deepest, count = max(deepest, depth), count + 1
        todo += [(child, depth + 1) for child in node.iter(include_text=True)]
    return deepest, count


@pytest.mark.slow
@given(once=TAGS, again=TAGS)
@example(once=[], again=[("", "dd"), ("", "li")])
@example(once=[], again=[("/", "object"), ("", "object"), ("", "select")])  # a select hides the object from its end
def test_what_is_let_through_is_not_nested_deeper_than_a_few_times_the_limit(
    once: list[tuple[str, str]], again: list[tuple[str, str]]
) -> None:
    html = "".join(f"<{close}{name}>x" for close, name in [*once, *again * 100])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html_page, "MAX_DEPTH", 20)
        patch.setattr(html_page, "_SMALL_CHARS", 0)
        try:
            html = parseable(html)
        except UnreadableError:
            return

    deepest, count = deepest_and_count(html)

    assert deepest <= 5 * 20 + 10  # a table cell is in a row, in a body, in a table; a row and a body are not counted
    assert count <= 20 * (len(html) + 10)


@pytest.mark.parametrize(
    "unit", ["<div></x>", "<span><div></span></div>", "<div><b></div></b><i>", "<table></div><div>", "<ul><li></ol>"]
)
def test_an_end_tag_that_ends_nothing_hides_no_nesting(unit: str, read_bytes: ReadBytes) -> None:
    found = read_bytes("a.html", unit * 20_000)

    assert found.reasons == [("a.html", "nested deeper than 2000 elements")]


def test_emphasis_without_an_end_is_not_repeated_in_every_paragraph() -> None:
    opened = "".join(f"<b id=n{number}>" for number in range(300))
    counts = [deepest_and_count(parseable(f"<p>{opened}" + "<p>x" * many))[1] for many in (1000, 2000)]

    assert counts[1] < 2.2 * counts[0]
    assert counts[1] < 6000


def test_emphasis_and_links_are_text_as_they_were() -> None:
    html = "<p>The <b>first</b> <A HREF='x'>link</A>, <em>then<i> code</em>: <code>a&lt;b</code>.</p>" + "<p>x" * 2000

    assert page_text(LexborHTMLParser(parseable(html))).startswith("The first link, then code: a<b.\n\nx\n\nx")


def test_every_name_of_a_formatting_element_is_replaced() -> None:
    names = ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"]

    html = parseable("".join(f"<{name} x=y>1</{name.upper()}>" for name in names))

    assert html == "".join(f"<x-{name} x=y>1</x-{name.upper()}>" for name in names)
    assert parseable("<base><br/><img><ins><article><bdo>") == "<base><br/><img><ins><article><bdo>"


@pytest.mark.slow
def test_a_page_of_many_closed_elements_is_read(read_bytes: ReadBytes) -> None:
    cells = itertools.chain.from_iterable(itertools.repeat(("<tr><td><span>a</span>", "<td><font>b</font>"), 3000))

    found = read_bytes("a.html", f"<div><table>{''.join(cells)}</table></div>")

    assert found.reasons == []
    assert found.texts[0].count("a | b") == 3000
