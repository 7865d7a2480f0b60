"""JSON Lines and JSON, in files, on standard input and in BEIR folders: a record is a document."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.limits import Limits, ReadOptions

from ..conftest import ReadBytes, Reading, reading

FIRST = {"id": "a", "title": "Lake", "year": 1996, "depth": 1.6, "deep": True, "none": None, "text": "One."}


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


# JSON Lines


def test_every_line_is_a_document_and_its_other_fields_are_metadata(read_bytes: ReadBytes) -> None:
    found = read_bytes(
        "a.jsonl", lines(FIRST, {"id": 7, "text": "Two.", "tags": ["x", 1], "of": {"a": None, "b": 1}, "e": []})
    )

    assert found.reasons == []
    assert found.ids == ["a.jsonl#a", "a.jsonl#7"]
    assert found.texts == ["One.", "Two."]
    assert [document.metadata for document in found.documents] == [
        {"title": "Lake", "year": 1996, "depth": 1.6, "deep": True},
        {"tags": '["x",1]', "of.b": 1},
    ]


def test_a_line_ends_at_a_newline_alone(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.jsonl", '{"text": "a\u2028b\u2029c\x85d"}\r\n\n{"text": "e"}')

    assert (found.texts, found.ids) == (["a\u2028b\u2029c\x85d", "e"], ["a.jsonl#1", "a.jsonl#2"])


def test_a_broken_record_in_the_middle_is_told_with_its_line_and_the_rest_is_read(read_bytes: ReadBytes) -> None:
    data = (
        b'\xef\xbb\xbf{"text": "first"}\n\n{"text": broken}\n[1, 2]\n{"text": "\xff"}\n'
        + b"["
        + b"9" * 5000
        + b"]\n"
        + b"[" * 100_000
        + b'\n{"text": "last"}\n'
    )

    found = read_bytes("a.jsonl", data)

    assert found.ids == ["a.jsonl#1", "a.jsonl#7"]
    assert found.reasons == [
        ("a.jsonl:3", "not valid JSON: Expecting value, column 10"),
        ("a.jsonl:4", "not a JSON object"),
        ("a.jsonl:5", "broken UTF-8: byte 10"),
        ("a.jsonl:6", "not valid JSON: a number of too many digits"),
        ("a.jsonl:7", "not valid JSON: nested too deep"),
    ]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"body": "x", "id": 1, "zone": 2}, "the field 'text' is missing (found: 'body', 'id', 'zone')"),
        (
            {f"f{i}": 1 for i in range(10)},
            "the field 'text' is missing (found: 'f0', 'f1', 'f2', 'f3', 'f4', 'f5', 'f6', 'f7' and 2 more)",
        ),
        ({}, "the field 'text' is missing (found: no field)"),
    ],
)
def test_a_record_without_text_names_the_fields_found(read_bytes: ReadBytes, record: object, reason: str) -> None:
    options = ReadOptions(text_field="text")

    found = read_bytes("a.jsonl", lines(record), options)

    assert found.reasons == [("a.jsonl:1", f"{reason}; say which one to read with `text_field`")]


def test_all_records_without_text_are_told_in_the_same_words(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.jsonl", lines({"a": 1}, {"b": 1}, {"c": 1}), ReadOptions(text_field="text"))

    reason = "the field 'text' is missing (found: 'a'); say which one to read with `text_field`"
    assert found.reasons == [(f"a.jsonl:{line}", reason) for line in (1, 2, 3)]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"text": None}, "empty text"),
        ({"text": " \n"}, "empty text"),
        ({"text": 5}, "the field 'text' is not text but a number"),
        ({"text": True}, "the field 'text' is not text but true or false"),
        ({"text": ["a"]}, "the field 'text' is not text but a list"),
        ({"text": {"a": 1}}, "the field 'text' is not text but an object"),
        ({"text": "a\0b"}, "NUL character in the text"),
        ({"text": "\ud800"}, "lone surrogate in the text"),
        ({"text": "x", "id": "\ud800"}, "lone surrogate in the id"),
    ],
)
def test_a_record_that_is_no_document_is_left_out(read_bytes: ReadBytes, record: object, reason: str) -> None:
    found = read_bytes("a.jsonl", lines(record, {"text": "good"}))

    assert found.reasons == [("a.jsonl:1", reason)]
    assert found.texts == ["good"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("NaN", "not a finite number"),
        ("-Infinity", "not a finite number"),
        ("1e999", "not a finite number"),
        ("[NaN]", "not a finite number"),
        ('"\\udc00"', "lone surrogate"),
        ('["\\udc00"]', "lone surrogate"),
        (f'["{"x" * 10_000}"]', "nested values of more than 10000 characters"),
    ],
)
def test_a_field_that_cannot_be_kept_is_told_and_the_document_stays(
    read_bytes: ReadBytes, value: str, reason: str
) -> None:
    found = read_bytes("a.jsonl", f'{{"text": "good", "v": {value}, "w": 1}}')

    assert found.documents[0].metadata == {"w": 1}
    assert found.reasons == [("a.jsonl:1", f"the field 'v': {reason}")]


def test_text_and_id_are_found_under_their_usual_names(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.jsonl", lines({"contents": "x", "docid": "d"}, {"_id": "e", "body": "y", "id": None}))

    assert (found.ids, found.texts) == (["a.jsonl#d", "a.jsonl#e"], ["x", "y"])


def test_text_and_id_are_read_from_the_fields_that_are_named(read_bytes: ReadBytes) -> None:
    options = ReadOptions(text_field="abstract", id_field="key")

    found = read_bytes("a.jsonl", lines({"abstract": "x", "key": "k", "text": "t", "id": 1}), options)

    assert (found.ids, found.texts) == (["a.jsonl#k"], ["x"])
    assert found.documents[0].metadata == {"text": "t", "id": 1}


def test_a_named_id_must_be_there(read_bytes: ReadBytes) -> None:
    options = ReadOptions(id_field="key")

    found = read_bytes("a.jsonl", lines({"text": "x"}, {"text": "x", "key": ""}, {"text": "x", "key": [1]}), options)

    assert found.reasons == [
        ("a.jsonl:1", "the field 'key' is missing (found: 'text'); say which one to read with `id_field`"),
        ("a.jsonl:2", "the field 'key' is not an id but empty"),
        ("a.jsonl:3", "the field 'key' is not an id but a list"),
    ]


def test_an_id_that_was_seen_before_is_left_out(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.jsonl", lines({"id": "café", "text": "a"}, {"id": "cafe\u0301", "text": "b"}))

    assert found.texts == ["a"]
    assert found.reasons == [("a.jsonl:2", "its id was seen before in this file: 'café'")]


@pytest.mark.slow
def test_many_ids_are_told_apart(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.jsonl", "".join(f'{{"id": {i % 12_000}, "text": "x"}}\n' for i in range(20_000)))

    assert len(found.documents) == 12_000
    assert len(found.skips) == 8_000


def test_a_line_that_is_too_long_is_left_out_and_the_rest_is_read(read_bytes: ReadBytes) -> None:
    options = ReadOptions(limits=Limits(line_bytes=1 << 10))
    long = {"text": "x" * 5000}

    for place, records in enumerate(
        ([long, {"text": "b"}], [{"text": "b"}, long], [{"text": "b"}, long, {"text": "c"}])
    ):
        found = read_bytes("a.jsonl", lines(*records), options)

        assert found.texts == ["b", "c"][: 2 if place == 2 else 1]
        assert found.reasons == [(f"a.jsonl:{records.index(long) + 1}", "a line of more than 1 KiB")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\n \n", "holds no document"),
        (bytes(100), "binary file"),
        ('{"text": "x"}'.encode("utf-16"), "JSON Lines in UTF-16: convert the file to UTF-8"),
    ],
)
def test_json_lines_that_are_none_are_left_out(read_bytes: ReadBytes, data: bytes, reason: str) -> None:
    assert read_bytes("a.jsonl", data).reasons == [("a.jsonl", reason)]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
    lambda text: not text.isspace()
)


@pytest.mark.slow
@settings(deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=8), ascii=st.booleans(), ending=st.sampled_from(["\n", "\r\n", "\n\n"])
)
def test_what_was_written_as_json_lines_comes_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], ascii: bool, ending: str
) -> None:
    path = tmp_path_factory.mktemp("round") / "a.jsonl"
    path.write_bytes("".join(json.dumps({"text": text}, ensure_ascii=ascii) + ending for text in texts).encode())

    assert reading(path).texts == texts


# JSON


@pytest.mark.parametrize("name", [None, "documents", "data", "records"])
def test_an_array_or_an_object_that_holds_one_is_read(read_bytes: ReadBytes, name: str | None) -> None:
    records = [FIRST, 3, {"text": "Two."}]

    found = read_bytes("a.json", json.dumps({"version": 1, name: records} if name else records, indent=1))

    assert found.ids == ["a.json#a", "a.json#3"]
    assert found.reasons == [("a.json#2", "not a JSON object")]


@pytest.mark.parametrize("indent", [None, 2])
def test_one_object_is_one_record(read_bytes: ReadBytes, indent: int | None) -> None:
    found = read_bytes("a.json", json.dumps({"text": "x", "data": [1]}, indent=indent))

    assert (found.ids, found.documents[0].metadata) == (["a.json#1"], {"data": "[1]"})


def test_json_lines_under_the_ending_json_are_seen(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.json", '{"text": "a"}\n\nbroken\n{"text": "b"}\n')

    assert found.texts == ["a", "b"]
    assert found.reasons == [("a.json:3", "not valid JSON: Expecting value, column 1")]


def test_json_in_utf16_is_read(read_bytes: ReadBytes) -> None:
    assert read_bytes("a.json", '[{"text": "schön"}]'.encode("utf-16")).texts == ["schön"]


@pytest.mark.parametrize(
    ("data", "where", "reason"),
    [
        ("[]", "a.json", "holds no document"),
        ('[{"text": "x"},\n{"text": }]', "a.json", "not valid JSON: Expecting value, line 2 column 10"),
        ("[" * 100_000, "a.json", "not valid JSON: nested too deep"),
        ("5", "a.json#1", "not a JSON object"),
        (bytes(10), "a.json", "binary file"),
    ],
)
def test_json_that_holds_no_records_is_left_out(read_bytes: ReadBytes, data: str, where: str, reason: str) -> None:
    assert read_bytes("a.json", data).reasons == [(where, reason)]


def test_json_beyond_its_limit_is_left_out(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.json", '[{"text": "x"}]', ReadOptions(limits=Limits(json_bytes=8)))

    assert found.reasons == [("a.json", "larger than 8 bytes")]


# Standard input


def test_json_lines_on_standard_input_are_records(read_stdin: Callable[[bytes], Reading]) -> None:
    found = read_stdin(b'\n{"id": "a", "text": "One."}\nbroken\n{"text": "Two."}\n')

    assert (found.ids, found.texts) == (["-#a", "-#3"], ["One.", "Two."])
    assert found.reasons == [("-:3", "not valid JSON: Expecting value, column 1")]


@pytest.mark.parametrize("text", ["Plain text.\n", "\n\n{not json\nat all}", '{\n"text": "x"}', "[1]"])
def test_anything_else_on_standard_input_is_one_text(read_stdin: Callable[[bytes], Reading], text: str) -> None:
    found = read_stdin(text.encode())

    assert (found.ids, found.texts, found.reasons) == (["-"], [text], [])


@pytest.mark.parametrize(("data", "reason"), [(b"", "empty text"), (bytes(9), "binary file")])
def test_standard_input_that_is_no_text_is_left_out(
    read_stdin: Callable[[bytes], Reading], data: bytes, reason: str
) -> None:
    assert read_stdin(data).reasons == [("-", reason)]


@pytest.mark.slow
def test_a_real_pipe_is_read() -> None:
    script = "from ragidx.corpora.readers import documents\nfor d in documents('-', on_skip=print): print(d.id, d.text)"

    done = subprocess.run([sys.executable, "-c", script], input=b'{"text": "x"}', capture_output=True, check=True)

    assert done.stdout == b"-#1 x\n"


# BEIR


def beir(folder: Path, name: str = "corpus.jsonl") -> Path:
    (folder / "qrels").mkdir()
    (folder / "queries.jsonl").write_text(lines({"_id": "q", "text": "?"}))
    (folder / name).write_text(
        lines({"_id": "d1", "title": "Title", "text": "text.", "metadata": {}}, {"_id": "d2", "title": "", "text": "b"})
    )
    return folder


def test_a_beir_folder_is_its_corpus_with_bare_ids_and_titles_in_front(tmp_path: Path) -> None:
    found = reading(beir(tmp_path))

    assert (found.ids, found.texts, found.reasons) == (["d1", "d2"], ["Title text.", "b"], [])
    assert [document.metadata for document in found.documents] == [{"title": "Title"}, {"title": ""}]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_folder_of_ir_datasets_is_its_documents_with_bare_ids(tmp_path: Path, ending: str) -> None:
    (tmp_path / "qrels").write_text("1 0 d1 1\n")
    text = lines({"doc_id": "d1", "title": "Title", "text": "text."}, {"doc_id": "d2", "title": "", "text": "b"})
    (tmp_path / f"docs.jsonl{ending}").write_bytes(gzip.compress(text.encode()) if ending else text.encode())

    found = reading(tmp_path)

    assert (found.ids, found.texts, found.reasons) == (["d1", "d2"], ["Title text.", "b"], [])


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_tabbed_documents_of_ir_datasets_have_no_header_and_no_quotes(tmp_path: Path, ending: str) -> None:
    (tmp_path / "qrels").write_text("1 0 d1 1\n")
    text = 'd1\t"Title\ttext.\n\nd2\tb\n\tno id\n'
    (tmp_path / f"docs.tsv{ending}").write_bytes(gzip.compress(text.encode()) if ending else text.encode())

    found = reading(tmp_path)

    assert (found.ids, found.texts) == (["d1", "d2", "4"], ['"Title text.', "b", "no id"])


@pytest.mark.parametrize("beside", ["queries.jsonl", "queries.tsv", "qrels.tsv", "qrels.txt"])
def test_tabbed_documents_with_a_header_are_records_with_bare_ids(tmp_path: Path, beside: str) -> None:
    (tmp_path / beside).write_text("")
    (tmp_path / "docs.tsv").write_text("doc_id\ttitle\ttext\nd1\tTitle\ttext.\n")

    found = reading(tmp_path)

    assert (found.ids, found.texts) == (["d1"], ["Title text."])


def test_a_corpus_file_by_itself_is_a_file_like_any_other(tmp_path: Path) -> None:
    found = reading(beir(tmp_path) / "corpus.jsonl")
    (tmp_path / "alone").mkdir()
    (tmp_path / "corpus.jsonl").rename(tmp_path / "alone" / "corpus.jsonl")

    assert (found.ids, found.texts) == (["corpus.jsonl#d1", "corpus.jsonl#d2"], ["text.", "b"])
    assert reading(tmp_path / "alone").ids == found.ids


@pytest.mark.parametrize(("name", "where"), [("a.jsonl", "a.jsonl:1"), ("a.json", "a.json")])
def test_a_key_that_is_given_twice_is_reported_and_its_last_value_counts(
    read_bytes: ReadBytes, name: str, where: str
) -> None:
    found = read_bytes(name, '{"text": "one", "of": {"a": 1, "a": 2}, "text": "two"}')

    assert found.texts == ["two"]
    assert found.documents[0].metadata == {"of.a": 2}
    assert found.reasons == [(where, "the key 'a' is given twice: the last value counts")]
