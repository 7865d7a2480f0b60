"""What a user says of fields, as it is typed: which file it is about, and what is no setting."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ragidx.corpora.errors import SpecError
from ragidx.corpora.field_settings import FieldSettings, check_settings, settings_of
from ragidx.corpora.limits import ReadOptions

from ..raising import message_of
from .conftest import ReadBytes

OPTIONS = ReadOptions(
    text_field=("data/*.csv=description+resolution", "chat.jsonl=messages[].content", "body"),
    id_field="*.csv=ticket_id",
    records=("policies.json=policies[]",),
)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("data/a.csv", FieldSettings("description+resolution", "ticket_id", None)),
        ("deep/chat.jsonl", FieldSettings("messages[].content", None, None)),
        ("policies.json", FieldSettings("body", None, "policies[]")),
    ],
)
def test_the_first_setting_that_fits_a_file_counts(name: str, said: FieldSettings) -> None:
    assert settings_of(OPTIONS, name) == said


@pytest.mark.parametrize(
    ("given", "option", "glob", "error"),
    [
        ("", "text_field", False, "`text_field`: '' is not [GLOB=]FIELD\n  hint: write it as description, or "
         "'data/*.csv=description+resolution'"),
        ("=cp1250", "encoding", False, "`encoding`: '=cp1250' is not [GLOB=]NAME\n  hint: write it as cp1250, or "
         "'notes/*.txt=cp1250'"),
        ("", "html", False, "`html`: '' is not [GLOB=]PART\n  hint: write it as whole, or 'intranet/*.html=whole'"),
        ("*.csv=", "id_field", False, "`id_field`: '*.csv=' is not [GLOB=]FIELD\n  hint: write it as ticket_id, or "
         "'data/*.csv=ticket_id'"),
        (["a=b", "policies[]"], "records", True, "`records`: 'policies[]' is not GLOB=PATH\n  hint: write it as "
         "'policies.json=policies[]'"),
        ("!=b", "text_field", False, "`text_field`: invalid git pattern: '!'\n  hint: write it as in a .gitignore "
         "file"),
    ],
)  # fmt: skip
def test_what_is_no_setting_is_refused(given: str, option: str, glob: bool, error: str) -> None:
    assert message_of(SpecError, lambda: check_settings(given, option, glob=glob)) == error


def test_a_glob_of_many_asterisks_is_matched_in_time_and_many_settings_are_refused() -> None:
    options = ReadOptions(text_field=(f"{'*a' * 14}b=body", "*.csv=notes"))

    assert settings_of(options, f"{'a' * 60}.csv").text == "notes"
    with pytest.raises(SpecError, match="`text_field`: 1,001 settings, and each is compared with each file"):
        check_settings(["a=b"] * 1_001, "text_field")


def test_settings_are_a_tuple_and_none_where_there_are_none() -> None:
    assert check_settings("a", "text_field") == ("a",)
    assert check_settings(["a", "b"], "text_field") == ("a", "b")
    assert (check_settings((), "text_field"), check_settings(None, "text_field")) == (None, None)


def test_several_fields_and_paths_are_read_as_they_are_named(read_bytes: ReadBytes) -> None:
    record = {"a": "One.", "b": {"c": "Two.", "d": 3}, "e": ["x"], "key": {"no": 7}}

    found = read_bytes("a.jsonl", json.dumps(record), ReadOptions(text_field="a+b.c+b.d", id_field="*.jsonl=key.no"))

    assert (found.ids, found.texts) == (["a.jsonl#7"], ["a: One.\n\nb.c: Two.\n\nb.d: 3"])
    assert found.documents[0].metadata == {"e": ["x"]}


@pytest.mark.parametrize(("name", "field"), [("parts", "parts[].words"), ("data", "name+note")])
def test_an_object_that_has_the_named_fields_is_one_record(read_bytes: ReadBytes, name: str, field: str) -> None:
    record = {"id": 7, "name": "Lake", "note": "Deep.", name: [{"words": "The river rises far in the north."}] * 2}
    options = ReadOptions(text_field=field)

    found = read_bytes("a.json", json.dumps(record), options)

    assert found.texts == read_bytes("a.jsonl", json.dumps(record), options).texts
    assert (found.ids, found.reasons) == (["a.json#7"], [])


def test_fields_of_which_the_records_of_an_object_have_one_are_theirs(read_bytes: ReadBytes) -> None:
    records = [{"name": "A", "note": "One."}, {"name": "B", "note": "Two."}]

    found = read_bytes("a.json", json.dumps({"name": "Lakes", "data": records}), ReadOptions(text_field="name+note"))

    assert found.texts == ["name: A\n\nnote: One.", "name: B\n\nnote: Two."]


def test_a_field_that_holds_a_plus_or_a_dot_is_one_field(read_bytes: ReadBytes) -> None:
    record = json.dumps({"a+b": "One.", "c.d": "Two."})

    assert read_bytes("a.jsonl", record, ReadOptions(text_field="a+b")).texts == ["One."]
    assert read_bytes("a.jsonl", record, ReadOptions(text_field="c.d")).texts == ["Two."]


@pytest.mark.parametrize("path", ["data.items[]", "data.items"])
def test_records_are_where_the_user_says(read_bytes: ReadBytes, path: str) -> None:
    value = {"text": "outer", "data": {"items": [{"id": "a", "text": "One."}, 3, {"text": "Two."}]}}
    options = ReadOptions(records=(f"*={path}",))

    found = read_bytes("a.json", json.dumps(value), options)
    lines = read_bytes("a.jsonl", (json.dumps(value) + "\n") * 2, options)

    assert (found.ids, found.texts) == (["a.json#a", "a.json#3"], ["One.", "Two."])
    assert found.reasons == [("a.json#2", "not a JSON object")]
    assert lines.ids == ["a.jsonl#a", "a.jsonl#3", "a.jsonl#6"]
    assert lines.reasons[-1] == ("a.jsonl:2", "its id was seen before in this file: 'a'") or len(lines.reasons) == 3


def test_a_place_without_records_is_reported(read_bytes: ReadBytes) -> None:
    options = ReadOptions(records=("*=data[]",))
    reason = "there is nothing at 'data[]'; say where the records are with `records`"

    assert read_bytes("a.json", '{"text": "x"}', options).reasons == [("a.json", reason)]
    assert read_bytes("a.jsonl", '{"text": "x"}\n{"data": [{"text": "y"}]}\n', options).reasons == [
        ("a.jsonl:1", reason)
    ]


def test_a_name_that_two_values_have_is_reported(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.jsonl", '{"text": "x", "a.b": 1, "a": {"b": 2}}')

    assert found.documents[0].metadata == {"a.b": 1}
    assert found.reasons == [("a.jsonl:1", "the field 'a.b': there is another")]


def test_objects_are_looked_into_to_a_bounded_depth(read_bytes: ReadBytes) -> None:
    deep = '{"a":' * 200 + "1" + "}" * 200

    found = read_bytes("a.jsonl", f'{{"text": "x", "v": {deep}}}')

    ((name, value),) = found.documents[0].metadata.items()
    assert name == "v" + ".a" * 32
    assert value == '{"a":' * 168 + "1" + "}" * 168


def test_standard_input_has_fields_too(read_stdin: Callable[[bytes], object]) -> None:
    found = read_stdin(b'{"note": "The river rises in the hills and flows past the mill.", "n": 1}\n')

    assert found.texts == ["The river rises in the hills and flows past the mill."]  # type: ignore[attr-defined]  # a Reading
