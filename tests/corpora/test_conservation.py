"""Words are conserved: what is put anywhere into a file of an archive's format is in its text, or counted.

Elements and parts that no reader knows are put into the files that have a word in each place.
"""

from __future__ import annotations

import functools
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from xml.parsers import expat

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import ReadBytes, Reading
from .markers.places import Places, added
from .test_places import FORMATS

ENDINGS = ["docx", "pptx", "xlsx", "odt", "ods", "odp", "epub"]
WITHOUT_WORDS = re.compile(  # parts of which the readers take names, numbers and forms
    r"(^|/)(_rels/|docProps/|META-INF/|\[Content_Types\]|styles|numbering|settings|presentation|workbook|meta|pivot"
    r"|sharedStrings|c\.xml|t\.xml|book|container|v\.vml|customXml)|\.rels$"
)
NOT_INSIDE = {"pPr", "rPr", "automatic-styles"}  # forms of text
NOT_INSIDE |= {"AlternateContent", "table-cell"}  # one of several alternatives is read; a chart's cell is a number
NOT_AROUND = {"v", "table", "spreadsheet"}  # numbers of shared strings and names of sheets are so where they belong

Span = tuple[int, int]


def spans(part: bytes) -> Iterator[tuple[Span, str]]:
    """Where each element is, below the outermost two, and its name."""
    parser, found, path = expat.ParserCreate(), list[tuple[Span, str]](), list[tuple[str, int]]()

    def begin(name: str, _: object) -> None:
        path.append((name.rpartition(":")[2], parser.CurrentByteIndex))

    def end(_: str) -> None:
        name, start = path.pop()
        behind = part.index(b">", parser.CurrentByteIndex) + 1
        if len(path) > 1 and not NOT_INSIDE & {each for each, _ in path}:
            found.append(((start, behind), name))

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.Parse(part, True)
    yield from found


@functools.cache
def parts_of(ending: str) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(FORMATS[ending](Places()))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def places(ending: str) -> list[tuple[str, Span, str]]:
    """Part, place and name of every element in the parts that hold words."""
    parts = {name: part for name, part in parts_of(ending).items() if re.search(r"\.(xml|xhtml)$", name)}
    return [
        (name, span, element)
        for name, part in parts.items()
        if not WITHOUT_WORDS.search(name)
        for span, element in spans(part)
    ]


def changed(ending: str, name: str, part: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for each, data in {**parts_of(ending), name: part}.items():
            archive.writestr(each, data)
    return sink.getvalue()


def words(found: Reading) -> Counter[str]:
    """The words of the texts and of the metadata."""
    fields = (str(value) for document in found.documents for value in document.metadata.values())
    return Counter(re.findall(r"\w+", " ".join([*found.texts, *fields])))


def n_more(found: Reading, before: Reading) -> int:
    """How much more is counted; what is counted less is what became text, or another form of it."""
    return sum(max(0, count - before.kinds.get(kind, 0)) for kind, count in found.kinds.items())


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_an_unknown_element_anywhere_is_read_or_counted(ending: str, read_bytes: ReadBytes) -> None:
    before, lost = read_bytes(f"a.{ending}", FORMATS[ending](Places())), []
    for name, (at, _), element in places(ending):
        part = parts_of(ending)[name]
        part = part[:at] + b'<x:zz xmlns:x="urn:x"> loosezz wordszz </x:zz>' + part[at:]

        found = read_bytes(f"a.{ending}", changed(ending, name, part))

        n_given = sum(count for word, count in words(found).items() if word.endswith("zz"))
        if found.skips or n_given + n_more(found, before) != 2:
            lost.append((name, at, element, n_given, n_more(found, before), found.skips))

    assert lost == []


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_what_an_unknown_element_holds_is_read_or_counted(ending: str, read_bytes: ReadBytes) -> None:
    before, lost = read_bytes(f"a.{ending}", FORMATS[ending](Places())), []
    for name, (at, end), element in places(ending):
        part = parts_of(ending)[name]
        if element in NOT_AROUND or not re.search(rb">\s*\w[^<>]*</", part[at:end]):
            continue
        part = part[:at] + b'<x:zz xmlns:x="urn:x">' + part[at:end] + b"</x:zz>" + part[end:]

        found = read_bytes(f"a.{ending}", changed(ending, name, part))

        if found.skips or (words(before) - words(found)).total() > n_more(found, before):
            lost.append((name, at, element, words(before) - words(found), found.skips))

    assert lost == []


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
@given(
    n_words=st.integers(0, 50), depth=st.integers(0, 3), folder=st.sampled_from(["", "word/", "xl/new/", "Pictures/"])
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=5)
def test_the_words_of_an_unknown_part_are_counted(
    ending: str, n_words: int, depth: int, folder: str, read_bytes: ReadBytes
) -> None:
    data = FORMATS[ending](Places())
    part = "<a><b>" * depth + "<c>word</c> word " * (n_words // 2) + "word" * (n_words % 2) + "</b></a>" * depth

    before = read_bytes(f"a.{ending}", data)
    found = read_bytes(f"a.{ending}", added(data, {f"{folder}zz.xml": f"<x>{part}</x>"}))

    assert found.texts == before.texts
    unknown = "words of unknown parts"
    assert found.kinds.pop(unknown, 0) - before.kinds.get(unknown, 0) == n_words
