"""The title of a record that has a text: it is the heading of the document, whatever file it is in."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragidx.corpora.limits import ReadOptions

from ..conftest import ReadBytes

ROWS = [{"id": "m", "title": "Mooring  masts", "text": "The tower held the ship."}, {"id": "b", "text": "Bees dance."}]


def as_parquet(rows: list[dict[str, str]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


FILES = {
    "a.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "a.json": json.dumps(ROWS),
    "a.csv": "id,title,text\nm,Mooring  masts,The tower held the ship.\nb,,Bees dance.\n",
    "a.tsv": "id\ttitle\tbody\nm\tMooring  masts\tThe tower held the ship.\nb\t\tBees dance.\n",
    "a.parquet": as_parquet(ROWS),
}


@pytest.mark.parametrize("name", FILES)
def test_the_title_beside_a_text_is_the_heading_and_stays_metadata(read_bytes: ReadBytes, name: str) -> None:
    found = read_bytes(name, FILES[name])

    assert [document.heading for document in found.documents] == ["Mooring masts", ""]
    assert found.texts == ["The tower held the ship.", "Bees dance."]
    assert found.documents[0].metadata["title"] == "Mooring  masts"


@pytest.mark.parametrize(
    ("fields", "heading"),
    [
        ({"heading": "Owls"}, "Owls"),
        ({"heading": "Owls", "title": "Birds"}, "Birds"),
        ({"title": 1984}, "1984"),
        ({"title": ["Owls", "Bees"]}, "Owls, Bees"),
        *(({"title": value}, "") for value in (None, "", " ", [], True, {"en": "Owls"}, "\ud800")),
        *(({name: "Owls"}, "") for name in ("name", "subject", "question", "Title")),  # may be no title
    ],
)
def test_what_is_a_title(read_bytes: ReadBytes, fields: dict[str, object], heading: str) -> None:
    (document,) = read_bytes("a.jsonl", json.dumps({"text": "They hunt."} | fields)).documents

    assert (document.text, document.heading) == ("They hunt.", heading)


def test_a_title_that_is_part_of_the_text_is_no_heading_too(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.csv", FILES["a.csv"], ReadOptions(text_field="title+text"))

    assert [document.heading for document in found.documents] == ["", ""]


def test_a_title_of_100_000_characters_is_cut_and_counted(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.jsonl", json.dumps({"title": "word " * 20_000, "text": "They hunt."}) + "\n")

    assert found.documents[0].heading == ("word " * 40)[:199] + "…"
    assert [(left.kind, left.where, left.count) for left in found.left] == [("ends of long titles", "a.jsonl:1", 1)]
