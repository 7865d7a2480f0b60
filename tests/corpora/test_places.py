"""Each place of a file that can hold words: its word is read, whole and once, or counted under its kind.

The table in docs/formats.md is what is found. `python -m tests.corpora.test_places` writes it.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ragidx.corpora.left_out import GUESS, class_of

from .conftest import reading
from .markers.places import Places, word_of
from .markers.places_cells import odp, ods, odt, xlsx
from .markers.places_pages import epub, html, pdf
from .markers.places_text import csv, eml, markdown, notebook, outlook, rtf
from .markers.places_word import docx, pptx

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
BEGIN, END = "<!-- places -->", "<!-- /places -->"
FORMATS = {
    **{"docx": docx, "pptx": pptx, "xlsx": xlsx, "odt": odt, "ods": ods, "odp": odp, "pdf": pdf, "html": html},
    **{"epub": epub, "eml": eml, "msg": outlook, "rtf": rtf, "ipynb": notebook, "csv": csv, "md": markdown},
}
NEEDS = {"pdf": "pypdfium2", "msg": "oxmsg"}
NOT_COUNTED = {"pdf": ["alternative text"]}  # PDFium goes through the whole structure of a file for each page
HEAD = ["| format | in the text | metadata | counted, under its kind |", "| --- | --- | --- | --- |"]


@dataclass
class Found:
    """Where the words of a format's places are, in the order of the places.

    Attributes:
        text: those in the text.
        metadata: those in the metadata, or the id.
        counted: those that a kind counts, by kind.
        lost: those that are nowhere.
        wrong: those that come twice, or that two kinds count.
    """

    text: list[str] = field(default_factory=list)
    metadata: list[str] = field(default_factory=list)
    counted: dict[str, list[str]] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def row(self, ending: str) -> str:
        counted = "; ".join(f"`{kind}`: {', '.join(self.counted[kind])}" for kind in sorted(self.counted))
        counted += "".join(f"; not counted: {name}" for name in self.lost)
        return f"| `.{ending}` | {', '.join(self.text)} | {', '.join(self.metadata)} | {counted} |"


def read(ending: str, places: Places) -> tuple[str, str, Mapping[str, int]]:
    """The text, the metadata and the counts of a format's file."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"a.{ending}").write_bytes(FORMATS[ending](places))
        found = reading(folder)
    assert not found.skips, found.skips
    fields = [str(value) for each in found.documents for value in (each.id, *each.metadata, *each.metadata.values())]
    return "\n".join(found.texts), "\n".join(fields), found.kinds


@functools.cache
def places_of(ending: str) -> Found:
    """Read a file with all of its places, then without each."""
    places, found = Places(), Found()
    text, fields, kinds = read(ending, places)
    for name in places.names:
        whole = re.compile(rf"\b{word_of(name)}\b")
        n_times = len(whole.findall(text))
        without = read(ending, Places(name))[2]
        fewer = [kind for kind, count in kinds.items() if count > without.get(kind, 0)]
        if n_times:  # what is read may be counted beside that as a guess, and a heading replaces another title
            fewer = [kind for kind in fewer if class_of(kind) == GUESS]
        if n_times:
            found.text.append(name)
        if whole.search(fields):
            found.metadata.append(name)
        for kind in fewer:
            found.counted.setdefault(kind, []).append(name)
        if n_times > 1 or len(fewer) > 1:
            found.wrong.append(f"{name}: {n_times} times, {fewer}")
        if not (n_times or fewer or whole.search(fields)):
            found.lost.append(name)
    return found


def written(rows: Sequence[str]) -> str:
    """The page with a table of these rows."""
    page = PAGE.read_text("utf-8")
    table = "\n".join([BEGIN, "", *HEAD, *rows, "", END])
    return page[: page.index(BEGIN)] + table + page[page.index(END) + len(END) :]


@pytest.mark.parametrize("ending", FORMATS)
def test_every_place_is_read_or_counted_as_the_page_says(ending: str) -> None:
    if ending in NEEDS:
        pytest.importorskip(NEEDS[ending], reason="needs the extra 'docs'")

    found = places_of(ending)

    assert (found.lost, found.wrong) == (NOT_COUNTED.get(ending, []), [])
    assert found.row(ending) in PAGE.read_text("utf-8").split("\n"), "run `python -m tests.corpora.test_places`"


def test_the_page_has_a_row_of_each_format() -> None:
    rows = PAGE.read_text("utf-8").split(BEGIN)[1].split(END)[0].strip().split("\n")

    assert rows[:2] == HEAD
    assert [row.split("`")[1] for row in rows[2:]] == [f".{ending}" for ending in FORMATS]


def test_a_file_without_a_place_lacks_its_word_alone() -> None:
    places = Places()
    csv(places)

    for name in places.names:
        left = csv(Places(name)).decode()
        assert [each for each in places.names if word_of(each) not in left] == [name]


if __name__ == "__main__":
    PAGE.write_text(written([places_of(ending).row(ending) for ending in FORMATS]), "utf-8")
