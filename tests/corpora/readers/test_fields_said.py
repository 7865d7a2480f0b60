"""What a user says of the title, the speaker, the context and the metadata of records."""

from __future__ import annotations

import json

import pytest

from ragidx.corpora.limits import ReadOptions

from ..conftest import ReadBytes

CSV = "id,text,product,city,opened\n1,It will not start.,Mower  X,Oslo,2024\n2,It smokes.,,Rome,\n3,Hot.,,,\n"
CHAT = {
    "text": "Help with the mower",
    "owner": "Ada",
    "messages": [
        {"role": "user", "by": {"name": "Ben"}, "content": "It will not start."},
        {"role": "bot", "by": {}, "content": "Is there fuel?"},
    ],
}
TURNS = "messages[].content"


def said(**fields: str) -> ReadOptions:
    return ReadOptions(text_field=f"*.json={TURNS}", fields=fields)


def test_a_title_is_the_heading_of_its_record_and_stays_metadata(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.csv", CSV, said(title="product"))

    assert [document.heading for document in found.documents] == ["Mower X", "", ""]
    assert found.texts == ["It will not start.", "It smokes.", "Hot."]
    assert found.documents[0].metadata["product"] == "Mower  X"
    assert found.reasons == []


def test_a_title_may_be_of_several_fields_a_number_or_in_a_list(read_bytes: ReadBytes) -> None:
    record = json.dumps({"text": "It smokes.", "no": 7, "of": {"name": "Rome"}, "tags": ["a", "b"], "bad": "\ud800"})

    assert read_bytes("a.jsonl", record, said(title="no+of.name+tags[]")).documents[0].heading == "7 Rome a, b"
    assert read_bytes("a.jsonl", record, said(title="bad")).documents[0].heading == ""


def test_context_is_one_line_in_front_of_the_text(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.csv", CSV, said(context="product+city"))

    assert found.texts == ["product: Mower X; city: Oslo\nIt will not start.", "city: Rome\nIt smokes.", "Hot."]
    assert found.documents[1].metadata == {"city": "Rome"}
    assert found.reasons == []


def test_a_record_without_text_is_skipped_also_with_a_context(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.csv", "text,city\n,Oslo\nHot.,Rome\n", said(context="city"))

    assert (found.texts, found.reasons) == (["city: Rome\nHot."], [("a.csv:2", "empty text")])


def test_a_context_that_is_no_text_skips_its_record(read_bytes: ReadBytes) -> None:
    record = json.dumps({"text": "Hot.", "city": "\ud800"})

    reasons = read_bytes("a.jsonl", record, said(context="city")).reasons

    assert reasons == [("a.jsonl:1", "lone surrogate in the text")]


@pytest.mark.parametrize(
    ("speaker", "text"),
    [
        ("messages[].by.name", "Ben: It will not start.\n\nIs there fuel?"),
        ("messages[].role", "user: It will not start.\n\nbot: Is there fuel?"),
        ("owner", "Ada: user: It will not start.\n\nbot: Is there fuel?"),
    ],
)
def test_a_speaker_is_named_before_what_he_says(read_bytes: ReadBytes, speaker: str, text: str) -> None:
    found = read_bytes("a.json", json.dumps(CHAT), said(speaker=speaker))

    assert (found.texts, found.reasons) == ([text], [])


def test_a_record_may_be_one_turn(read_bytes: ReadBytes) -> None:
    turns = [{"from": "Ada", "text": "Hello."}, {"from": "Ben", "text": " "}, {"text": "Who is there?"}]

    found = read_bytes("a.jsonl", "\n".join(map(json.dumps, turns)), said(speaker="from"))

    assert found.texts == ["Ada: Hello.", "Who is there?"]
    assert found.reasons == [("a.jsonl:2", "empty text")]


def test_metadata_are_the_named_fields_alone(read_bytes: ReadBytes) -> None:
    record = {"id": 5, "text": "Hot.", "meta": {"team": {"name": "core"}, "no": 3}, "tags": ["a"], "rest": 1}
    data = json.dumps(record | {"none": None, "items": [{"key": "x", "n": 1}, {"key": "y"}]})

    found = read_bytes("a.jsonl", data, said(metadata="meta+tags+items[].key+text+none"))

    assert found.documents[0].metadata == {
        "meta.team.name": "core",
        "meta.no": 3,
        "tags": ["a"],
        "items.key": ["x", "y"],
        "text": "Hot.",
    }
    assert found.documents[0].id == "a.jsonl#5"
    assert found.reasons == []


def test_metadata_are_said_also_where_every_field_is_text(read_bytes: ReadBytes) -> None:
    config = json.dumps({"name": "x", "deep": {"size": 3}})

    assert read_bytes("a.json", config, ReadOptions()).documents[0].metadata == {"name": "x"}
    found = read_bytes("a.json", config, ReadOptions(fields={"metadata": "deep.size"}))
    assert (found.texts, found.documents[0].metadata) == (["name: x\ndeep.size: 3"], {"deep.size": 3})


@pytest.mark.parametrize("name", ["title", "context", "metadata", "speaker"])
@pytest.mark.parametrize("file", ["a.csv", "a.jsonl"])
def test_a_field_that_no_record_has_is_reported_once(read_bytes: ReadBytes, name: str, file: str) -> None:
    records = [{"text": "Hot.", "city": "Rome"}, {"text": "Cold.", "city": "Oslo"}]
    data = "text,city\nHot.,Rome\nCold.,Oslo\n" if file == "a.csv" else "\n".join(map(json.dumps, records))

    found = read_bytes(file, data, said(**{name: "town"}))

    reason = f"the field 'town' is missing (found: 'city', 'text'); say which one to read with `{name}`"
    assert (found.texts, found.reasons) == (["Hot.", "Cold."], [(file, reason)])


def test_a_field_that_some_record_has_is_not_reported(read_bytes: ReadBytes) -> None:
    records = [{"text": "Hot."}, {"text": "Cold.", "city": "Oslo"}]

    found = read_bytes("a.jsonl", "\n".join(map(json.dumps, records)), said(title="city", context="city"))

    assert (found.texts, found.reasons) == (["Hot.", "city: Oslo\nCold."], [])


def test_settings_are_about_the_files_of_their_globs(read_bytes: ReadBytes) -> None:
    options = ReadOptions(fields={"context": ("*.jsonl=city", "b.csv=product"), "title": ("*.csv=city",)})

    (first, *_) = read_bytes("a.csv", CSV, options).documents
    assert (first.text, first.heading) == ("It will not start.", "Oslo")
    (first, *_) = read_bytes("b.csv", CSV, options).documents
    assert first.text == "product: Mower X\nIt will not start."
