"""Books: the reading order, names in it, what is said of the book, and what is counted."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.limits import Limits, ReadOptions
from ragidx.corpora.records import Place

from ..conftest import ReadBytes
from ..fuzz.office_files import zipped

CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OPS/package/book.opf"/></rootfiles></container>'
)
ABOUT = "<dc:title>Lakes</dc:title><dc:creator>Ada Byron</dc:creator>"


def page(body: str, head: str = "<title/>") -> str:
    return (
        f'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head>{head}</head><body>{body}</body></html>'
    )


def book(order: list[str], parts: dict[str, str], about: str = ABOUT, more: str = "") -> bytes:
    """A book of parts in `OPS/`; `order`: addresses from its package."""
    items = "".join(f'<item id="i{n}" href="{name}"/>' for n, name in enumerate(order))
    refs = "".join(f'<itemref idref="i{n}" linear="{"no" if n else "yes"}"/>' for n in range(len(order)))
    opf = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"{about}</metadata><manifest>{items}{more}</manifest><spine>{refs}</spine></package>"
    )
    names = {f"OPS/{name}": text for name, text in parts.items()}
    return zipped({"META-INF/container.xml": CONTAINER, "OPS/package/book.opf": opf, **names})


def test_the_reading_order_is_read_whatever_its_names(read_bytes: ReadBytes) -> None:
    names = {
        "../Text/ch1.xhtml": "Text/ch1.xhtml",
        "../Text/chapter%202.xhtml#top": "Text/chapter 2.xhtml",
        "caf%C3%A9.xhtml": "package/café.xhtml",
        "a%20b.xhtml": "package/a%20b.xhtml",
        "plate.svg": "package/plate.svg",
    }
    texts = {name: page(f'<a id="x"/><p>Chapter {n}.</p>') for n, name in enumerate(names.values(), start=1)}
    texts["package/plate.svg"] = '<svg xmlns="http://www.w3.org/2000/svg"><text>Plate.</text></svg>'

    (document,) = read_bytes("a.epub", book([*names, "../Text/ch1.xhtml"], texts)).documents

    assert document.text == "creator: Ada Byron\n\nChapter 1.\n\nChapter 2.\n\nChapter 3.\n\nChapter 4.\n\nPlate."
    assert document.metadata == {"title": "Lakes", "author": "Ada Byron"}
    starts = [0, *(document.text.index(words) for words in ("Chapter 2", "Chapter 3", "Chapter 4", "Plate"))]
    assert document.places == tuple(Place(start, page=n) for n, start in enumerate(starts, start=1))


def test_what_is_said_of_a_book_comes_in(read_bytes: ReadBytes) -> None:
    about = (
        f"{ABOUT}<dc:creator>Ben</dc:creator><dc:subject>water</dc:subject><dc:subject>depth</dc:subject>"
        "<dc:description>&lt;p&gt;About &lt;b&gt;lakes&lt;/b&gt;.&lt;/p&gt;</dc:description>"
    )

    (document,) = read_bytes("a.epub", book(["a.xhtml"], {"package/a.xhtml": page("<p>Deep.</p>")}, about)).documents

    assert document.text == (
        "creator: Ada Byron\ncreator: Ben\nsubject: water\nsubject: depth\ndescription: About lakes .\n\nDeep."
    )
    assert document.metadata["author"] == "Ada Byron; Ben"


def test_what_is_out_of_the_order_is_counted(read_bytes: ReadBytes) -> None:
    parts = {
        "package/a.xhtml": page(
            '<p>Deep.</p><nav hidden="hidden">One</nav><img src="p.png" alt="Two words"/>', "<title>x</title>"
        ),
        "package/nav.xhtml": page("<nav><ol><li>Three four</li></ol></nav>"),
        "package/toc.ncx": "<ncx><navLabel><text>Five</text></navLabel></ncx>",
        "package/loose.xhtml": page("<p>Six seven eight</p>", "<style>p {}</style>"),
        "package/p.png": "x",
        "package/a.css": "p {}",
        "notes.xml": "<a>nine ten</a>",
    }
    more = '<item id="nav" href="nav.xhtml" properties="nav"/>'

    found = read_bytes("a.epub", book(["a.xhtml", "gone.xhtml"], parts, "", more))

    assert found.texts == ["Deep."]
    assert found.kinds == {
        "damaged parts": 1,
        "words of navigation": 4,
        "words of alternative texts": 2,
        "words of unknown parts": 5,
        "titles in properties": 1,
        "pictures": 1,
    }


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (zipped({"a.txt": "x"}), "not a book: its container names no package"),
        (book(["a.xhtml"], {}), "empty text"),
        (book(["a.xhtml"], {"package/a.xhtml": page("<p>Lake</p>" * 200_000)}), "has a part of more than 1 MiB"),
        (book(["a.xhtml"], {"package/a.xhtml": "<!DOCTYPE x>"}, "<x>" * 300 + "</x>" * 300),
         "nested deeper than 200 elements"),
        (b"PK", "cannot be converted: damaged, or of another format than its ending says"),
    ],
    ids=["no book", "empty", "large", "deep", "no zip"],
)  # fmt: skip
def test_what_is_no_book_or_too_large_is_one_line(data: bytes, reason: str, read_bytes: ReadBytes) -> None:
    options = ReadOptions(limits=Limits(office_text_bytes=1 << 20))

    assert read_bytes("a.epub", data, options).reasons == [("a.epub", reason)]


def test_a_damaged_chapter_loses_no_other(read_bytes: ReadBytes) -> None:
    parts = {f"package/{name}.xhtml": page(f"<p>{name} {'lake ' * 50}</p>") for name in ("one", "two")}
    data = book(["one.xhtml", "two.xhtml"], parts)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        at = archive.getinfo("OPS/package/one.xhtml").header_offset + 30 + len("OPS/package/one.xhtml")
    found = read_bytes("a.epub", data[: at + 20] + bytes(8) + data[at + 28 :])

    assert "two lake" in found.texts[0]
    assert found.kinds == {"damaged parts": 1}


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(in_order=st.lists(st.booleans(), min_size=1, max_size=6), n_words=st.integers(1, 5))
def test_each_word_of_a_book_is_given_or_counted(in_order: list[bool], n_words: int, read_bytes: ReadBytes) -> None:
    names = [f"c{n}.xhtml" for n in range(len(in_order))]
    body = f"<x-unknown><p>{'word ' * n_words}</p><nav>{'word ' * n_words}</nav></x-unknown>"
    parts = {f"package/{name}": page(body) for name in names}

    order = [name for name, reads in zip(names, in_order, strict=True) if reads]
    found = read_bytes("a.epub", book(order, parts, "<dc:title>Lakes</dc:title>"))

    given_words = sum(text.count("word") for text in found.texts)
    assert given_words == n_words * len(order)
    if order:
        assert given_words + sum(found.kinds.values()) == 2 * n_words * len(names)
