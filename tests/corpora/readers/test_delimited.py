"""CSV and TSV: a row is a document, and its cells are typed values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.limits import Limits, ReadOptions
from ragidx.corpora.readers.fields import from_text

from ..conftest import ReadBytes

# CSV and TSV


def test_every_row_is_a_document_and_cells_are_typed(read_bytes: ReadBytes) -> None:
    found = read_bytes(
        "a.csv",
        'id,title,year,depth,deep,code,none,text\r\nbaikal,"Lake, big",1996,1.6,TRUE,007,,"One ""two""\r\nthree."\r\n',
    )

    assert found.reasons == []
    assert found.ids == ["a.csv#baikal"]
    assert found.texts == ['One "two"\r\nthree.']
    assert found.documents[0].metadata == {
        "title": "Lake, big",
        "year": 1996,
        "depth": 1.6,
        "deep": True,
        "code": "007",
    }


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ","), ("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t")])
def test_columns_are_told_apart_by_their_mark(read_bytes: ReadBytes, name: str, mark: str) -> None:
    found = read_bytes(name, f"id{mark}text\n01{mark}x\n\n02{mark}y\n")

    assert found.ids == [f"{name}#01", f"{name}#02"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_a_table_is_read_in_its_encoding(read_bytes: ReadBytes, encoding: str) -> None:
    text = "Die Straße führt über den Fluß nach München, schöne Grüße."

    assert read_bytes("a.csv", f'text\n"{text}"\n'.encode(encoding)).texts == [text]


def test_a_broken_row_is_told_with_its_line_and_the_rest_is_read(read_bytes: ReadBytes) -> None:
    data = 'id,text\n1,"a\nb"\n2\n3,c,d\n4,über\n'.encode() + b"5,\xff\n6,\n7,e\n7,f\n"

    found = read_bytes("a.csv", b"\n" + data)

    assert found.ids == ["a.csv#1", "a.csv#3", "a.csv#4", "a.csv#7"]
    assert found.texts[1] == "c,d"
    assert [(one.where, one.kind, one.count) for one in found.left] == [("a.csv:5", "ragged rows", 2)]
    assert found.reasons == [
        ("a.csv:8", "cannot be decoded as utf-8"),
        ("a.csv:5", "empty text"),
        ("a.csv:9", "empty text"),
        ("a.csv:11", "its id was seen before in this file: '7'"),
    ]


def test_columns_without_a_name_of_their_own_are_left_out(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.csv", ",text,a,a\n0,x,1,2\n")

    assert found.documents[0].metadata == {"a": 1}
    assert found.reasons == [
        ("a.csv", "column 1: it has no name"),
        ("a.csv", "column 4: there is another 'a'"),
    ]


def test_columns_without_a_name_and_without_a_cell_are_not_told(read_bytes: ReadBytes) -> None:
    assert read_bytes("a.csv", "id,text,,text\n1,One.,, \n2,Two.,\n").reasons == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"id,text\n", "holds no document"),
        (bytes(50), "binary file"),
        (b"c%d," * 10_000 % tuple(range(10_000)) + b"last\n1\n", "more than 10,000 columns"),
        ("text\nabc".encode("utf-16")[:-1], "cannot be decoded as utf-16: the rest of the file is skipped"),
    ],
)
def test_a_table_that_is_none_is_left_out_once(read_bytes: ReadBytes, data: bytes, reason: str) -> None:
    assert read_bytes("a.csv", data).reasons == [("a.csv", reason)]


def test_a_column_that_is_named_and_not_there_is_told_once(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.csv", b"a,b\n1,2\n3,4\n", ReadOptions(text_field="text"))

    reason = "the field 'text' is missing (found: 'a', 'b'); say which one to read with `text_field`"
    assert found.reasons == [("a.csv", reason)]


def test_a_cell_longer_than_the_csv_module_allows_by_itself_is_read(read_bytes: ReadBytes) -> None:
    assert read_bytes("a.csv", "text\n" + "x" * 300_000 + "\n").texts == ["x" * 300_000]


def test_a_line_of_a_table_that_is_too_long_ends_it(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.csv", "text\na\n" + "x" * 5000 + "\nb\n", ReadOptions(limits=Limits(line_bytes=1 << 10)))

    assert found.texts == ["a"]
    assert found.reasons == [("a.csv", "a line of more than 1 KiB: the rest of the file is skipped")]


@pytest.mark.slow
def test_a_quote_that_never_ends_costs_no_more_than_the_limit(read_bytes: ReadBytes) -> None:
    rows = 'text\na\n"open\n' + ("x" * 1_000_000 + "\n") * 70 + "b\n"

    found = read_bytes("a.csv", rows)

    assert (found.texts[0], found.texts[-1]) == ("a", "b")
    assert found.reasons == [("a.csv:3", "broken row: field larger than field limit (67108864)")]


# Values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-5", -5),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", "9223372036854775808"),
        ("007", "007"),
        ("+5", "+5"),
        ("1.5", 1.5),
        ("1.50", "1.50"),
        (".5", ".5"),
        ("-1e-3", "-1e-3"),
        ("1e-05", 1e-05),
        ("5E10", "5E10"),
        ("-0", "-0"),
        ("1e999", "1e999"),
        ("01.5", "01.5"),
        ("1,5", "1,5"),
        ("1_000", "1_000"),
        ("٣", "٣"),
        ("true", True),
        ("False", "False"),
        ("yes", "yes"),
        ("nan", "nan"),
        (" 5 ", 5),
        ("  ", None),
        (" a ", " a "),
    ],
)
def test_a_value_is_typed_where_its_text_comes_back(text: str, value: object) -> None:
    found = from_text(text)

    assert (found, type(found)) == (value, type(value))


@pytest.mark.slow
@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans())
def test_a_number_written_in_python_or_json_comes_back(value: float) -> None:
    found = from_text(json.dumps(value))

    assert found == value or (isinstance(value, int) and found == str(value))


def test_a_name_that_is_not_utf_8_can_be_reported(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.csv", b"\xef\xbb\xbfid,\xc7,\xc7,text\na,b,c,Deep.\n")

    assert found.texts == ["Deep."]
    assert found.reasons == [("a.csv", "column 3: there is another '?'"), ("a.csv:2", "the field '?': lone surrogate")]
