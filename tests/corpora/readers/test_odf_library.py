"""OpenDocument that odfpy writes: tables cell for cell, texts and slides in their order."""

from __future__ import annotations

import io
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..conftest import ReadBytes

pytest.importorskip("odf", reason="needs odf, of the extra 'test'")
from odf.draw import Frame, Page, TextBox
from odf.opendocument import OpenDocumentPresentation, OpenDocumentSpreadsheet, OpenDocumentText
from odf.presentation import Notes
from odf.style import MasterPage, PageLayout
from odf.table import Table, TableCell, TableRow
from odf.text import H, List, ListItem, Note, NoteBody, NoteCitation, P, Span

ANY_FILE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)


@pytest.mark.slow
@given(
    rows=st.lists(
        st.lists(st.text("abcNA 019éß漢#=", min_size=0, max_size=9).map(str.strip), min_size=1, max_size=6),
        min_size=1,
        max_size=6,
    )
)
@ANY_FILE
def test_tables_of_another_library_come_out_cell_for_cell(read_bytes: ReadBytes, rows: list[list[str]]) -> None:
    book = OpenDocumentSpreadsheet()
    table = Table(name="T")
    for values in rows:
        row = TableRow()
        for value in values:
            cell = TableCell(valuetype="string")
            cell.addElement(P(text=value))
            row.addElement(cell)
        table.addElement(row)
    book.spreadsheet.addElement(table)
    sink = io.BytesIO()
    book.write(sink)

    lines = read_bytes("a.ods", sink.getvalue()).texts[0].split("\n")[2:]

    expected = [" | ".join(" ".join(value.split()) for value in values).rstrip(" |") for values in rows if any(values)]
    assert lines == expected


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@ANY_FILE
def test_texts_of_another_library_come_out_in_their_order(read_bytes: ReadBytes, seed: int) -> None:
    rng = random.Random(seed)
    document, blocks = OpenDocumentText(), list[str]()
    for _ in range(rng.randint(1, 9)):
        first, second = (f"w{rng.getrandbits(40):x}" for _ in range(2))
        match rng.choice(["heading", "spans", "list", "table", "note"]):
            case "heading":
                level = rng.randint(1, 9)
                document.text.addElement(H(outlinelevel=level, text=first))
                blocks.append(f"{'#' * min(6, level)} {first}")
            case "spans":
                paragraph = P(text=first)
                paragraph.addElement(Span(text=second))
                document.text.addElement(paragraph)
                blocks.append(f"{first}{second}")
            case "list":
                items = List()
                for word in (first, second):
                    item = ListItem()
                    item.addElement(P(text=word))
                    items.addElement(item)
                document.text.addElement(items)
                blocks += [f"- {first}", f"- {second}"]
            case "table":
                table, row = Table(name="T"), TableRow()
                for word in (first, second):
                    cell = TableCell()
                    cell.addElement(P(text=word))
                    row.addElement(cell)
                table.addElement(row)
                document.text.addElement(table)
                blocks.append(f"{first} | {second}")
            case _:
                paragraph, note, body = P(text=first), Note(noteclass="footnote"), NoteBody()
                note.addElement(NoteCitation(text="1"))
                body.addElement(P(text=second))
                note.addElement(body)
                paragraph.addElement(note)
                document.text.addElement(paragraph)
                blocks += [first, second]
    sink = io.BytesIO()
    document.write(sink)

    assert read_bytes("a.odt", sink.getvalue()).texts[0].split("\n\n") == blocks


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@settings(ANY_FILE, max_examples=20)
def test_slides_of_another_library_come_out_in_their_order(read_bytes: ReadBytes, seed: int) -> None:
    rng = random.Random(seed)
    deck, blocks = OpenDocumentPresentation(), list[str]()
    deck.automaticstyles.addElement(PageLayout(name="L"))
    deck.masterstyles.addElement(MasterPage(name="M", pagelayoutname="L"))
    for _ in range(rng.randint(1, 4)):
        page = Page(masterpagename="M")
        for place in rng.sample(["title", "outline", "", "notes"], 3):
            word = f"w{rng.getrandbits(40):x}"
            box = TextBox()
            box.addElement(P(text=word))
            frame = Frame(**({"attributes": {"class": place}} if place in ("title", "outline") else {}))
            frame.addElement(box)
            holder = Notes() if place == "notes" else page
            holder.addElement(frame)
            if place == "notes":
                page.addElement(holder)
            at = len(blocks) - len(page.childNodes) + 1 if place == "title" else len(blocks)
            blocks.insert(at, f"# {word}" if place == "title" else word)
        deck.presentation.addElement(page)
    sink = io.BytesIO()
    deck.write(sink)

    found = read_bytes("a.odp", sink.getvalue())

    assert found.texts[0].split("\n\n") == blocks
    assert len(found.documents[0].places) == len(blocks) // 3
