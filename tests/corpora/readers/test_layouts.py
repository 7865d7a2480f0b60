"""Structured files without configuration: which fields become the text, and what becomes of all others."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragidx.corpora.field_settings import FieldSettings
from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.layouts import Layout, Layouts
from ragidx.corpora.readers.registry import documents, said_of_fields
from ragidx.corpora.records import Document, Skip
from ragidx.corpora.sources import Source

WORDS = "the printer on our floor stops after a page and shows an error that nobody understands today".split()  # noqa: SIM905  # prose
CITIES = ["Oslo", "Bergen", "New York"]


def sentence(seed: int, count: int = 9) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count)).capitalize() + "."


TICKETS = [
    {
        "ticket_id": f"T-{n}",
        "opened": f"2024-03-{1 + n % 28:02d}",
        "product": ["router", "printer"][n % 2],
        "city": CITIES[n % 3],
        "description": sentence(n),
        "resolution": sentence(n + 1000, 6),
        "priority": n % 3,
        "cost_eur": 12.5,
    }
    for n in range(60)
]
EVENTS = [
    {
        "id": n,
        "title": f"Outage {n}",
        "meta": {"severity": n % 3, "owner": {"team": "core"}},
        "tags": ["tls", "net"],
        "body": {"summary": sentence(n), "actions": [{"name": "restart"}, {"name": "call"}]},
    }
    for n in range(60)
]
TICKETS_LAYOUT = Layout(("description", "resolution"), id="ticket_id")
CHATS = [
    {
        "conversation_id": f"c{n}",
        "messages": [
            {"role": "user", "content": sentence(n)},
            {"role": "assistant", "content": [{"type": "text", "text": sentence(n + 500)}]},
        ],
    }
    for n in range(5)
]
POLICIES = {"company": "Acme", "policies": [{"name": f"Rule {n}", "clause": sentence(n, 30)} for n in range(4)]}


class Read:
    """A file as a corpus: its documents, skips and layouts."""

    def __init__(self, path: Path, options: ReadOptions, known: Mapping[str, Layout]) -> None:
        self.layouts, self.skips = Layouts(known), list[Skip]()
        self.documents: list[Document] = list(documents(path, options, on_skip=self.skips.append, layouts=self.layouts))

    @property
    def texts(self) -> list[str]:
        return [document.text for document in self.documents]

    @property
    def layout(self) -> Layout:
        (found,) = self.layouts.used.values()
        return found


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Read]:
    def write_and_read(name: str, data: object, known: Mapping[str, Layout] | None = None, **options: object) -> Read:
        path = tmp_path / name
        if name.endswith(".parquet"):
            pq.write_table(pa.Table.from_pylist(data), path)
        else:
            path.write_text(data if isinstance(data, str) else written(name, data))
        return Read(path, ReadOptions(**options), known or {})

    return write_and_read


def written(name: str, data: object) -> str:
    if name.endswith(".jsonl"):
        assert isinstance(data, list)
        return "".join(json.dumps(one) + "\n" for one in data)
    if name.endswith(".csv"):
        assert isinstance(data, list)
        return table(data)
    return json.dumps(data, indent=1)


def table(rows: Sequence[Mapping[str, object]]) -> str:
    return "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n"


@pytest.mark.parametrize(
    ("name", "data", "layout"),
    [
        ("tickets.csv", TICKETS, TICKETS_LAYOUT),
        ("tickets.parquet", TICKETS, TICKETS_LAYOUT),
        ("events.jsonl", EVENTS, Layout(("body.summary",), "title")),
        ("chat.jsonl", CHATS, Layout(("messages[].content",), id="conversation_id")),
        ("policies.json", POLICIES, Layout(("clause",), "name")),
        ("limits.csv", [{"name": f"max_{n}", "value": n, "unit": "bytes"} for n in range(20)], Layout()),
        ("urls.csv", [{"url": f"https://a.org/{n}?q=a%20b", "mail": f"a{n}@b.org"} for n in range(20)], Layout()),
        ("one.json", {"name": "tool", "file": "src/main/tool/entry.js", "about": "It does what it says."}, Layout()),
        ("registry.json", {f"K{n}": [{"why": sentence(n), "how": sentence(n + 1)}] for n in range(9)}, Layout()),
        ("story.json", {"headline": "Rain", "story": sentence(1, 80)}, Layout(("story",))),
        ("log.jsonl", [{"ts": "2024-01-01T00:00:01Z", "level": "INFO", "msg": sentence(n, 6)} for n in range(9)],
         Layout(("msg",), times=("ts",))),
        ("same.csv", [{"id": n, "licence": "All rights are reserved by the author."} for n in range(60)], Layout()),
        ("cjk.jsonl", [{"question": "東京タワーはどこにありますか。", "n": 1}], Layout(("question",))),
        ("mime.jsonl", [{"content": "image/png", "note": sentence(n)} for n in range(9)], Layout(("note",))),
        ("body.jsonl", [{"body": {"a": 1}, "note": sentence(n)} for n in range(9)], Layout(("note",))),
        ("list.jsonl", [{"paragraphs": [sentence(n), sentence(n + 1)]} for n in range(9)],
         Layout(("paragraphs[]",))),
    ],
)  # fmt: skip
def test_the_fields_with_words_become_the_text(
    read: Callable[..., Read], name: str, data: object, layout: Layout
) -> None:
    found = read(name, data)

    assert found.layout == layout
    assert found.skips == []


@pytest.mark.parametrize("record", [{"text": "x"}, {"contents": "two words"}, {"passage": "Ünïcödé, ja."}])
def test_a_usual_name_that_holds_words_needs_no_layout(read: Callable[..., Read], record: dict[str, str]) -> None:
    found = read("a.jsonl", [record | {"note": sentence(1)}])

    assert (found.texts, found.layout) == ([*record.values()], Layout(None))


def test_several_fields_are_paragraphs_and_the_rest_is_metadata(read: Callable[..., Read]) -> None:
    first = read("tickets.csv", TICKETS).documents[0]

    one = TICKETS[0]
    assert first.text == f"description: {one['description']}\n\nresolution: {one['resolution']}"
    assert first.metadata == {
        name: one[name] for name in ("ticket_id", "opened", "product", "city", "priority", "cost_eur")
    }
    assert first.heading == ""


def test_nested_objects_are_dotted_fields_lists_are_lists_and_a_title_is_the_heading(read: Callable[..., Read]) -> None:
    first = read("events.jsonl", EVENTS).documents[0]

    assert (first.text, first.heading) == (EVENTS[0]["body"]["summary"], "Outage 0")  # type: ignore[index]  # of objects
    assert first.metadata == {
        "title": "Outage 0",
        "meta.severity": 0,
        "meta.owner.team": "core",
        "tags": ["tls", "net"],
        "body.actions": '[{"name":"restart"},{"name":"call"}]',
    }


def test_a_chat_is_one_document_of_turns(read: Callable[..., Read]) -> None:
    found = read("chat.jsonl", CHATS)

    assert found.texts[0] == f"user: {sentence(0)}\n\nassistant: {sentence(500)}"
    assert found.documents[0].metadata == {"conversation_id": "c0"}
    assert len(found.documents) == 5
    assert read("chat.json", CHATS[0]).texts == found.texts[:1]


def test_what_is_around_the_records_belongs_to_each(read: Callable[..., Read]) -> None:
    found = read("policies.json", POLICIES)

    assert [document.metadata for document in found.documents] == [
        {"company": "Acme", "name": f"Rule {n}"} for n in range(4)
    ]
    assert [document.id for document in found.documents] == [f"policies.json#{n}" for n in range(1, 5)]


def test_without_text_every_field_is_a_line_and_data_are_left_out(read: Callable[..., Read]) -> None:
    record = {
        "name": "tool",
        "on": True,
        "keys": ["a", "b"],
        "deps": [{"id": "x"}, {"id": "y"}],
        "shape": {"points": list(range(50)), "size": [1, 2]},
        "icon": "A" * 600,
        "none": None,
    }

    found = read("tool.json", record)

    lines = "name: tool\non: true\nkeys: a, b\ndeps[].id: x\ndeps[].id: y\nshape.size: 1, 2"
    assert found.texts == [lines]
    assert found.documents[0].metadata == {"name": "tool", "on": True, "keys": ["a", "b"], "icon": "A" * 600}
    assert found.skips == []


def test_of_a_large_configuration_only_the_outer_fields_are_metadata(read: Callable[..., Read]) -> None:
    one = {"name": "tool", "packages": {f"p{n}": {"version": f"1.{n}"} for n in range(100)}}

    found = read("lock.jsonl", [one, one])

    assert [document.metadata for document in found.documents] == [{"name": "tool"}] * 2
    assert "packages.p99.version: 1.99" in found.texts[0]
    assert read("small.json", {"name": "tool", "of": {"a": 1}}).documents[0].metadata == {"name": "tool"}


def test_a_layout_is_kept_whatever_comes_later(read: Callable[..., Read]) -> None:
    known = {"tickets.csv": Layout(("description",))}

    found = read("tickets.csv", TICKETS, known)

    assert found.layout == Layout(("description",))
    assert found.layouts.new == {}
    assert found.texts[0] == TICKETS[0]["description"]


def test_a_layout_that_finds_nothing_any_more_is_decided_anew(read: Callable[..., Read]) -> None:
    found = read("tickets.csv", TICKETS, {"tickets.csv": Layout(("gone",))})

    assert found.layouts.new == {"tickets.csv": TICKETS_LAYOUT}


def test_layouts_come_back_from_the_notes_of_a_manifest(read: Callable[..., Read]) -> None:
    found = read("events.jsonl", EVENTS).layouts

    again = Layouts.from_json(json.loads(json.dumps(found.to_json())))

    assert again.known == {"events.jsonl": Layout(("body.summary",), "title")}
    assert read("story.json", {"story": sentence(1, 80)}).layouts.to_json() == {}  # of one record


def test_the_layouts_of_files_that_are_not_read_now_are_kept(read: Callable[..., Read]) -> None:
    known = {"papers/a.csv": Layout(("note",)), "chat.jsonl": Layout(("gone",)), "a.jsonl": Layout(("gone",))}

    found = read("chat.jsonl", CHATS, known).layouts.to_json()
    named = read("a.jsonl", [{"text": "Words."}], known).layouts.to_json()

    chat = {"text": ["messages[].content"], "title": None, "id": "conversation_id", "times": [], "n_records": 5}
    assert found["papers/a.csv"] == Layout(("note",)).to_json()
    assert found["chat.jsonl"] == chat
    assert sorted(named) == ["chat.jsonl", "papers/a.csv"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.csv", str(tuple(FieldSettings("title")))),
        ("b.jsonl.gz", str(tuple(FieldSettings("body")))),
        ("a.md", ""),
        ("a.txt", "(('a.csv=title', 'body'), None, None)"),  # it may be a mail, with attachments
        ("a.zip", "(('a.csv=title', 'body'), None, None)"),
    ],
)
def test_settings_are_about_files_with_records_and_those_that_hold_files(name: str, said: str) -> None:
    options = ReadOptions(text_field=("a.csv=title", "body"))

    assert said_of_fields(Source(Path(name), name, 1), options) == said
    assert said_of_fields(Source(Path(name), name, 1), ReadOptions()) == ""


@pytest.mark.parametrize("data", [None, 3, {"a": 3, "b": {"text": [1]}, "c": {"text": [], "times": "x"}, "d": {"": 1}}])
def test_notes_that_are_no_layouts_are_left_out(data: object) -> None:
    assert Layouts.from_json(data).known == {}


ROWS = [{"uuid": f"u{n}", "user_id": n % 3, "day": n, "text": "Words."} for n in range(6)]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.jsonl"])
def test_a_field_that_is_named_like_an_id_and_unique_gives_the_ids(read: Callable[..., Read], name: str) -> None:
    found = read(name, ROWS)

    assert [document.id for document in found.documents] == [f"{name}#u{n}" for n in range(6)]
    assert found.documents[4].metadata == {"uuid": "u4", "user_id": 1, "day": 4}
    assert found.skips == []


@pytest.mark.parametrize(
    "rows",
    [
        [row | {"uuid": "same"} for row in ROWS],
        [row | {"uuid": row["uuid"] if n else None} for n, row in enumerate(ROWS)],
        [row | {"uuid": 0.5 + n} for n, row in enumerate(ROWS)],
        [row | {"uuid": f"two words {n}"} for n, row in enumerate(ROWS)],
        [{"paid": n, "text": "Words."} for n in range(6)],
        ROWS[:1],
    ],
)
def test_other_records_have_their_numbers_as_ids(read: Callable[..., Read], rows: list[dict[str, object]]) -> None:
    ids = [document.id for document in read("a.jsonl", rows).documents]

    assert ids == [f"a.jsonl#{number}" for number in range(1, len(rows) + 1)]
    assert read("b.jsonl", [row | {"id": f"i{n}"} for n, row in enumerate(rows)]).documents[0].id == "b.jsonl#i0"


def test_an_id_that_comes_again_later_is_reported_and_has_the_number_of_its_record(read: Callable[..., Read]) -> None:
    known = read("a.jsonl", ROWS).layouts.used

    found = read("a.jsonl", [*ROWS, ROWS[2], ROWS[2] | {"uuid": None}], known)

    assert [document.id for document in found.documents][5:] == ["a.jsonl#u5", "a.jsonl#u2~7", "a.jsonl#8"]
    assert found.skips == [Skip("a.jsonl:7", "its id was seen before in this file, and has its number now: 'u2'")]
    unasked = read("a.jsonl", ROWS, {"a.jsonl": Layout(None)})  # decided when it was not unique
    assert unasked.documents[0].id == "a.jsonl#1"


def test_times_with_a_zone_are_times_and_a_later_value_that_is_none_is_reported(read: Callable[..., Read]) -> None:
    rows = [
        {"at": "2024-05-05T23:30:00-05:00", "of": {"till": "2024-05-06 01:00Z"}, "day": "2024-05-05"},
        {"at": "2024-05-05T23:40:00+09:00", "of": {"till": None}, "day": "2024-05-05T10:00:00"},
    ]
    rows = [row | {"text": "Words."} for row in rows]

    first = read("a.jsonl", rows)
    later = read("a.jsonl", [*rows, rows[0] | {"at": "soon"}], first.layouts.used)

    at = [datetime(2024, 5, 6, 4, 30, tzinfo=UTC), datetime(2024, 5, 5, 14, 40, tzinfo=UTC)]
    assert [document.metadata["at"] for document in first.documents] == at
    assert first.documents[0].metadata["of.till"] == datetime(2024, 5, 6, 1, tzinfo=UTC)
    assert first.documents[1].metadata == {"at": at[1], "day": "2024-05-05T10:00:00"}
    assert "at" not in later.documents[2].metadata
    assert later.skips == [Skip("a.jsonl:3", "the field 'at': not a time with a zone, as the values before")]
    assert Layouts.from_json(json.loads(json.dumps(later.layouts.to_json()))).known == later.layouts.used
