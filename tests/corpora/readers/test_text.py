from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragidx.corpora
from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.decoding import decode
from ragidx.corpora.readers.front_matter import front_matter
from ragidx.corpora.readers.html_page import page_text, parsed
from ragidx.corpora.readers.registry import read_file
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.readers.text import docinfo
from ragidx.corpora.sources import sources

from ..conftest import ReadBytes, Reading, reading


def only(found: Reading) -> str:
    """The text of the one document, nothing having been left out."""
    assert found.reasons == []
    return found.texts[0]


# Plain text and encodings


def test_a_text_file_is_one_document(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.txt", "Title\n\nText.\n")

    assert found.ids == ["a.txt"]
    assert (found.texts, found.documents[0].metadata, found.documents[0].markdown) == (["Title\n\nText.\n"], {}, False)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("newlines.txt", b"a\r\nb\rc\nd\xe2\x80\xa8e", "a\nb\nc\nd\u2028e"),
        ("main.py", b"x = 1\n", "x = 1\n"),
        ("README", b"words\n", "words\n"),
        ("notes.weird", "café\n".encode(), "café\n"),
        ("A.TXT", b"x", "x"),
        ("control.txt", b"end of file\x1a", "end of file\x1a"),
    ],
)
def test_a_file_of_text_is_read_whatever_its_name(read_bytes: ReadBytes, name: str, data: bytes, text: str) -> None:
    assert only(read_bytes(name, data)) == text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_an_encoding_is_recognised(read_bytes: ReadBytes, encoding: str) -> None:
    text = "Die Straße führt über den Fluß nach München, schöne Grüße."

    assert only(read_bytes("a.txt", text.encode(encoding))) == text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Москва является столицей России и крупнейшим городом страны"),
        ("cp932", "日本語の文章です。これはテストです。"),
        ("gb18030", "中文文本，这是一个测试文件。北京是中国的首都"),
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy"),
        ("cp1253", "Η Αθήνα είναι η πρωτεύουσα της Ελλάδας"),
    ],
)
def test_an_encoding_without_a_mark_is_guessed(read_bytes: ReadBytes, encoding: str, text: str) -> None:
    assert only(read_bytes("a.txt", text.encode(encoding))) == text


def test_the_guess_is_made_where_the_text_stops_being_ascii(read_bytes: ReadBytes) -> None:
    text = "plain words\n" * 100_000 + "Die Straße führt über den Fluß nach München."

    assert only(read_bytes("a.txt", text.encode("cp1252"))) == text


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.txt", b"", "empty file"),
        ("a.txt", b" \n\t\n", "empty text"),
        ("nul.txt", bytes(1000), "binary file"),
        ("late.txt", b"x" * 100_000 + b"\0", "binary file"),
        ("controls.txt", bytes(range(1, 32)) * 9, "binary file"),
        ("image.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "picture, not read without `ocr`"),
        ("program", b"\x7fELF\x02\x01\x01\0", "binary file"),
        ("a.txt", "schön über ".encode() + b"\xff", "broken UTF-8: byte 13"),
        ("a.txt", b"\xff\xfea\0b", "cannot be decoded as utf-16: byte 4"),
    ],
)
def test_what_is_no_text_is_left_out_with_its_reason(
    read_bytes: ReadBytes, name: str, data: bytes, reason: str
) -> None:
    found = read_bytes(name, data)

    assert found.documents == []
    assert found.reasons == [(name, reason)]


@pytest.mark.parametrize(
    ("name", "swap", "reason"),
    [
        ("a.txt", lambda path: path.symlink_to("secret"), "cannot be read: Too many levels of symbolic links"),
        ("a.txt", os.mkfifo, "not a regular file"),
        ("a.parquet", lambda path: None, "cannot be read: No such file or directory"),
    ],
    ids=["link", "fifo", "nothing"],
)
def test_what_takes_the_place_of_a_file_after_the_walk_is_not_read(
    tmp_path: Path, name: str, swap: Callable[[Path], None], reason: str
) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / name).write_text("text")
    (source,) = sources(tmp_path / name, on_skip=pytest.fail)
    (tmp_path / name).unlink()
    swap(tmp_path / name)
    found = Reading()

    found.documents += read_file(SourceFile(source=source, options=ReadOptions(), on_skip=found.skips.append))

    assert (found.documents, found.reasons) == ([], [(name, reason)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.weird"])
def test_a_line_of_many_megabytes_is_read(read_bytes: ReadBytes, name: str) -> None:
    text = "word and " * ((10_000_000 if name == "a.html" else 100_000_000) // 9)  # HTML takes 0.1 s a MB

    found = read_bytes(name, text)

    assert len(found.texts[0].strip()) == len(text.strip())


@given(st.text())
def test_what_was_encoded_in_utf8_comes_back(text: str) -> None:
    clean = text.translate(dict.fromkeys(range(32))).replace("\ufeff", "")

    assert decode(clean.encode()) == clean


# Markdown


def test_front_matter_becomes_metadata_and_leaves_the_text(read_bytes: ReadBytes) -> None:
    found = read_bytes(
        "a.md",
        "---\ntitle: The discovery of pulsars\nyear: 1967\ndate: 1967-11-28\ntags: [star, radio]\n"
        "draft: false\nweight: 1.5\n3: three\nnone:\n---\n\n# Pulsars\n\nText.\n",
    )

    assert only(found) == "# Pulsars\n\nText.\n"
    assert found.documents[0].markdown
    assert found.documents[0].metadata == {
        "title": "The discovery of pulsars",
        "year": 1967,
        "date": "1967-11-28",
        "tags": ["star", "radio"],
        "draft": False,
        "weight": 1.5,
        "3": "three",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "---\njust a rule above\n---\ntext\n",
        "---\nNote: the mill: old\nis here.\n---\ntext\n",
        "+++\njust a rule above\n+++\ntext\n",
        "---\n" + "[" * 5000 + "\n---\ntext\n",
        f"---\n? !!int 0x{'f' * 6000}\n: 1\n---\n\n# Pulsars\n",
        "---\nno end\n",
        "--- \n",
    ],
)
def test_front_matter_that_is_none_stays_text(text: str) -> None:
    assert front_matter(text) == ({}, text, False)


@pytest.mark.parametrize(
    ("front", "fields"),
    [
        ("title: Notes: a colon\nauthor: Ann", {"title": "Notes: a colon", "author": "Ann"}),
        ("title:\tTabbed\nyear: 1967", {"title": "Tabbed", "year": 1967}),
        ("not: [valid\nversion: 3.10", {"not": "[valid", "version": "3.10"}),
        ("a: &x [1, 1]\nb: *x", {"a": "&x [1, 1]", "b": "*x"}),
        ("a: !!python/object/apply:os.system [ls]", {"a": "!!python/object/apply:os.system [ls]"}),
        ("x: !!int ''", {"x": "!!int ''"}),
        (
            "t: Re: a\n# comment\ntags:\n  - one\n- 'two'\nlong: b\n  more",
            {"t": "Re: a", "tags": ["one", "two"], "long": "b more"},
        ),
    ],
)
def test_front_matter_that_is_no_yaml_is_read_by_its_lines(
    front: str, fields: dict[str, object], read_bytes: ReadBytes
) -> None:
    found = read_bytes("a.md", f"---\n{front}\n---\n\nText.\n")

    assert (found.texts, found.documents[0].metadata) == (["Text.\n"], fields)
    assert found.kinds == {"front matter that is no YAML": 1}
    assert found.documents[0].line == front.count("\n") + 5


@pytest.mark.parametrize(
    ("front", "fields"),
    [
        ("time: 12:30\nyes: no\non: off", {"time": "12:30", "yes": "no", "on": "off"}),
        ("version: 3.10\nzip: 007\nsku: 5E10", {"version": "3.10", "zip": "007", "sku": "5E10"}),
        ("a: 0x1f\nb: 1_000\nc: 190:20:30\nd: +5", {"a": "0x1f", "b": "1_000", "c": "190:20:30", "d": "+5"}),
        ("a: -5\nb: 2.5\nc: true\nd: ~", {"a": -5, "b": 2.5, "c": True}),
        ("m: {v: 3.10, n: 2}", {"m": '{"v":"3.10","n":2}'}),
    ],
)
def test_values_of_yaml_are_those_of_version_1_2_and_as_they_are_written(
    front: str, fields: dict[str, object], read_bytes: ReadBytes
) -> None:
    found = read_bytes("a.md", f"---\n{front}\n---\n\nText.\n")

    assert (found.documents[0].metadata, found.left) == (fields, [])


def test_front_matter_of_toml_is_read(read_bytes: ReadBytes) -> None:
    front = (
        'title = "Re: pulsars"\nversion = 3.10\nweight = 1.5\ndate = 1967-11-28\ntags = ["a", "b"]\n'
        '[params]\nauthor = "Ann"'
    )

    found = read_bytes("a.md", f"+++\n{front}\n+++\n\nText.\n")
    broken = read_bytes("b.md", "+++\ntitle = pulsars\n+++\n\nText.\n")

    assert only(found) == "Text.\n"
    assert found.documents[0].metadata == {
        "title": "Re: pulsars",
        "version": "3.10",
        "weight": 1.5,
        "date": "1967-11-28",
        "tags": ["a", "b"],
        "params": '{"author":"Ann"}',
    }
    assert (broken.documents[0].metadata, broken.kinds) == ({"title": "pulsars"}, {"front matter that is no YAML": 1})


def test_a_day_that_no_calendar_has_is_text_and_the_other_fields_stay(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.md", "---\nday: 2026-02-30\nat: 2020-13-45\ntags: [a, b]\n---\n\nText.\n")

    assert found.documents[0].metadata == {"day": "2026-02-30", "at": "2020-13-45", "tags": ["a", "b"]}
    assert found.kinds == {}


@pytest.mark.parametrize(
    ("front", "reason"),
    [
        (r'"\uD800x": 1', "the field '?x': lone surrogate"),
        (r'k: "\uD800"', "the field 'k': lone surrogate"),
        (f"k: !!int 0x{'f' * 6000}", "the field 'k': a number of too many digits"),
        (f"k: [!!int 0x{'f' * 6000}]", "the field 'k': a number of too many digits"),
        ("k: .nan", "the field 'k': not a finite number"),
        ("k: !!binary aGk=", "the field 'k': a value of type bytes"),
    ],
)
def test_a_field_of_front_matter_that_no_file_can_hold_is_reported(
    front: str, reason: str, read_bytes: ReadBytes
) -> None:
    found = read_bytes("a.md", f"---\n{front}\nyear: 1967\n---\n\n# Pulsars\n")

    assert found.documents[0].metadata == {"year": 1967, "title": "Pulsars"}
    assert found.reasons == [("a.md", reason)]


@pytest.mark.slow
@given(st.text(st.sampled_from("-\n:a# [&*!'\"=`"), max_size=60))
def test_no_front_matter_breaks_the_reader(text: str) -> None:
    fields, body, _ = front_matter("---\n" + text)

    assert body == "---\n" + text if not fields else text.endswith(body)


# reStructuredText


def test_a_field_list_below_the_title_becomes_metadata(read_bytes: ReadBytes) -> None:
    found = read_bytes(
        "a.rst",
        "The Bessemer process\n====================\n\n"
        ":subject: engineering\n:year: 1856\n:note: goes\n   on\n\nSteel.\n",
    )

    assert only(found) == "The Bessemer process\n====================\n\nSteel.\n"
    assert found.documents[0].metadata == {
        "subject": "engineering",
        "year": 1856,
        "note": "goes on",
        "title": "The Bessemer process",
    }


@pytest.mark.parametrize(
    ("text", "title", "fields"),
    [
        (".. _label:\n\n=====\nTitle\n=====\n\n:a: b\n\nText\n", "Title", {"a": "b"}),
        (":a: b\n\nTitle\n-----\n\nText\n", "Title", {"a": "b"}),
        (".. note:: hidden\n   more\n\nTitle\n~~~~~\nText\n", "Title", {}),
        ("No title here.\n\n:a: b\n", "", {}),
        ("", "", {}),
    ],
)
def test_title_and_fields_are_found_at_the_top(text: str, title: str, fields: dict[str, str]) -> None:
    assert docinfo(text)[:2] == (title, fields)


@given(st.text(st.sampled_from(":a \n=-."), max_size=60))
def test_no_rst_breaks_the_reader(text: str) -> None:
    _, fields, body = docinfo(text)

    assert fields or body == text


# HTML


def test_a_page_becomes_markdown_without_its_frame(read_bytes: ReadBytes) -> None:
    found = read_bytes(
        "a.html",
        """<!DOCTYPE html><html><head><title> The
        page </title><style>p {}</style></head><body>
        <header>Site</header><nav><a href="/">Home</a></nav>
        <main><header><h1>A <b>title</b></h1></header>
        <p>One &amp; two,
           caf&eacute;.<br>Next line.</p>
        <ul><li>first<li>second</ul>
        <table><tr><th>a<th>b<tr><td>1<td>2</table>
        <pre>
 x
   # y
</pre><p style="display: none">no</p><aside>Mind the gap.</aside><script>no()</script><!-- no -->
        <section><h2>Part</h2>text <i>in</i>line</section></main>
        <footer>no</footer></body></html>""",
    )

    assert only(found) == (
        "# A title\n\nOne & two, café.\nNext line.\n\n- first\n- second\n\na | b\n1 | 2\n\n"
        "```\n x\n   # y\n```\n\nMind the gap.\n\n## Part\n\ntext inline\n"
    )
    assert found.documents[0].markdown
    assert found.documents[0].metadata == {"title": "The page"}


def test_meta_elements_that_tell_of_the_text_are_metadata(read_bytes: ReadBytes) -> None:
    found = read_bytes(
        "a.html",
        '<meta charset="utf-8"><meta name="viewport" content="x"><meta name="generator" content="x">'
        '<meta name="robots" content="x"><meta name="twitter:card" content="x"><meta name="csrf-token" content="x">'
        '<meta name="subject" content="biology"><meta name="year" content="1861"><meta name="empty" content="">'
        '<meta name="author" content="A"><meta name="author" content="B"><p>text',
    )

    assert found.documents[0].metadata == {"subject": "biology", "year": 1861, "author": "A; B"}


def test_a_declared_encoding_is_believed_after_utf8(read_bytes: ReadBytes) -> None:
    page = '<meta charset="{}"><p>caf\u00e9 \u2013 x'

    assert only(read_bytes("a.html", page.format("iso-8859-1").encode("cp1252"))) == "café – x\n"
    assert only(read_bytes("b.html", page.format("iso-8859-1").encode())) == "café – x\n"
    assert only(read_bytes("c.html", '<meta charset="windows-1251"><p>мир'.encode("cp1251"))) == "мир\n"


MARKUP = "<p> </p> <pre> </pre> <li> <ul> <b> <h1> </h1> <td> <table> <br> <!-- --> <select> <svg> </svg> < > word"


@pytest.mark.slow
@given(st.lists(st.sampled_from([*MARKUP.split(), " ", "\n"]), max_size=30).map("".join))
def test_no_markup_breaks_the_reader(markup: str) -> None:
    page = page_text(parsed(f"<body>{markup}"))

    assert "\n\n\n" not in page or "```" in page
    assert page == "" or page.endswith("\n")


def test_the_sample_corpus_is_read_whole() -> None:
    folder = Path(str(ragidx.corpora.__path__[0])) / "sample" / "documents"

    found = reading(folder)

    assert found.reasons == []
    assert all(document.text.strip() for document in found.documents)


@pytest.mark.parametrize(
    ("ending", "better"), [(".xls", ".xlsx"), (".xlsb", ".xlsx"), (".doc", ".docx"), (".key", ".pptx")]
)
def test_what_is_not_read_says_what_to_save_it_as(read_bytes: ReadBytes, ending: str, better: str) -> None:
    reasons = read_bytes(f"a{ending}", b"\xd0\xcf\x11\xe0" + bytes(99)).reasons

    assert reasons == [(f"a{ending}", f"{ending} files are not read: save it as {better}")]
