"""How tables are written: marks between cells, lines above them, ragged rows, and the types of columns."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.records.cells import Columns
from ragidx.corpora.readers.records.dialect import Dialect, dialect_of

from ..conftest import ReadBytes, Reading

NAMES = ["id", "keeper", "site", "remark", "text"]
ROWS = [["1", "Ada", "mill", "new, dry", "The wheel turns."], ["2", "Bo", "lock; weir", "a|b", "The gate\tis shut."]]


def written(rows: list[list[str]], mark: str, newline: str = "\n", quoting: int = csv.QUOTE_MINIMAL) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=mark, lineterminator=newline, quoting=quoting).writerows(rows)
    return out.getvalue()


def cells(found: Reading) -> list[dict[str, object]]:
    own = ("id", "keeper", "site", "remark")
    return [
        {name: value for name, value in document.metadata.items() if name in own} | {"text": document.text}
        for document in found.documents
    ]


CELL = st.text(st.sampled_from('ab ü,;|\t"\n'), max_size=12).map(lambda text: f"w{text}w")


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize(("newline", "quoting"), [("\n", 0), ("\r\n", 1), ("\r", 0)], ids=["lf", "crlf quoted", "cr"])
@settings(max_examples=25)
@given(rows=st.lists(st.tuples(CELL, CELL, CELL, CELL), min_size=1, max_size=8))
def test_every_cell_of_any_dialect_comes_out(
    mark: str, newline: str, quoting: int, rows: list[tuple[str, ...]]
) -> None:
    table = [NAMES, *([str(number), *row] for number, row in enumerate(rows))]
    if newline == "\r":
        table = [[cell.replace("\n", " ") for cell in row] for row in table]
    lines = io.StringIO(written(table, mark, newline, quoting), newline="").readlines()

    found = dialect_of(lines, ".csv")

    assert list(csv.reader(lines, delimiter=found.mark)) == table
    assert found == Dialect(mark, 0, mark != ",")


@pytest.mark.slow
@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize(("newline", "quoting"), [("\n", 0), ("\r\n", 1), ("\r", 0)], ids=["lf", "crlf quoted", "cr"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(rows=st.lists(st.tuples(CELL, CELL, CELL, CELL), min_size=1, max_size=8))
def test_every_cell_of_any_dialect_is_read(
    mark: str, newline: str, quoting: int, rows: list[tuple[str, ...]], read_bytes: ReadBytes
) -> None:
    if newline == "\r":
        rows = [tuple(cell.replace("\n", " ") for cell in row) for row in rows]
    table = [NAMES, *([str(number), *row] for number, row in enumerate(rows))]

    found = read_bytes("a.csv", written(table, mark, newline, quoting))

    assert (found.skips, found.kinds) == ([], {} if mark == "," else {"guessed separators": 1})
    assert [tuple(row.values()) for row in cells(found)] == rows


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_mark_between_cells_is_found_and_another_than_usual_is_counted(
    read_bytes: ReadBytes, name: str, mark: str
) -> None:
    found = read_bytes(name, written([NAMES, *ROWS], mark))

    usual = {"a.csv": ",", "a.tsv": "\t"}[name]
    shown = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}[mark]
    assert [list(row.values()) for row in cells(found)] == [row[1:] for row in ROWS]
    assert found.skips == []
    assert [one.where for one in found.left] == ([] if mark == usual else [f"{name} ({shown})"])
    assert found.kinds == ({} if mark == usual else {"guessed separators": 1})


@pytest.mark.parametrize(
    ("above", "kinds", "line"),
    [
        ("sep=;\n", {}, 3),
        ('"sep=;"\r\n', {}, 3),
        ("Register of the mills\n\n", {"guessed separators": 1, "lines above a table": 1}, 4),
        ("# made by the office; v2; for; the; mills\n", {"guessed separators": 1, "lines above a table": 1}, 3),
        ("# made by the office, v2\n", {"guessed separators": 1, "lines above a table": 1}, 3),
        ("Register;;;;\n;;;;\n", {"guessed separators": 1, "lines above a table": 2}, 4),
        ("\n\n", {"guessed separators": 1}, 4),
    ],
)
def test_what_is_above_a_table_is_no_header(
    read_bytes: ReadBytes, above: str, kinds: dict[str, int], line: int
) -> None:
    found = read_bytes("a.csv", above + written([NAMES, *ROWS], ";"))

    assert [list(row.values()) for row in cells(found)] == [row[1:] for row in ROWS]
    assert found.kinds == kinds
    assert found.documents[0].parts[0].line == line


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (
            "text\nThe mill, old, turns.\nThe lock, new, is shut.\n",
            ["The mill, old, turns.", "The lock, new, is shut."],
        ),
        ("remark\nThe mill, old.\n\nThe weir; new, and dry.\n", ["The mill, old.", "The weir; new, and dry."]),
        ("text\nOne word\n", ["One word"]),
    ],
)
def test_a_table_of_one_column_is_not_cut(read_bytes: ReadBytes, data: str, texts: list[str]) -> None:
    assert read_bytes("a.csv", data, ReadOptions(text_field=data.partition("\n")[0])).texts == texts


def test_ragged_rows_are_kept_and_counted(read_bytes: ReadBytes) -> None:
    data = "id,city,text\n1,Oslo,The mill, old, turns.\n2,Bergen\n3,Troms\u00f8,Fine.,\n4,Bod\u00f8,Shut.\n"

    found = read_bytes("a.csv", data)

    assert found.texts == ["The mill, old, turns.", "Fine.", "Shut."]
    assert found.reasons == [("a.csv:3", "empty text")]
    assert [(one.where, one.kind, one.count) for one in found.left] == [("a.csv:2", "ragged rows", 2)]


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_quote_that_is_never_closed_is_counted_with_its_line(read_bytes: ReadBytes, end: str) -> None:
    found = read_bytes("a.csv", f'id,text\n1,One.\n2,"Two.\n3,Three.{end}')
    closed = read_bytes("b.csv", f'id,text\n1,"One."\n2,He said "two.\n3,"Three."{end}')
    header = read_bytes("c.csv", f'id,"text\n1,One.{end}')

    assert found.texts == ["One.", f"Two.\n3,Three.{end}"]
    assert [(one.where, one.kind, one.count) for one in found.left] == [("a.csv:3", "unclosed quotes", 1)]
    assert (closed.texts, closed.left) == (["One.", 'He said "two.', "Three."], [])
    assert (header.documents, header.reasons) == ([], [("c.csv", "holds no document")])


def test_cells_beyond_a_header_without_a_text_at_its_end_are_a_field(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.csv", "text,year\nThe mill.,1990,dry,cold\nThe lock.,1991\n")

    assert [document.metadata for document in found.documents] == [
        {"year": 1990, "more_cells": "dry,cold"},
        {"year": 1991},
    ]


def test_a_table_with_one_row_of_another_length_than_its_header_keeps_the_header(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.csv", "text,year,place\nThe mill.,1990\nThe lock.,1991\n")

    assert [document.metadata for document in found.documents] == [{"year": 1990}, {"year": 1991}]


# Types of columns


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (["7", "", "12"], [7, None, 12]),
        (["7", "1.5"], [7, 1.5]),
        (["12.50", "3.99", "0.10"], [12.5, 3.99, 0.1]),
        (["12.50", "3.9"], ["12.50", "3.9"]),
        (["1.10", "1.9.2", "1.1", "2"], ["1.10", "1.9.2", "1.1", "2"]),
        (["1.10", "1.20", "1.2"], ["1.10", "1.20", "1.2"]),
        (["5E10", "12E5", "7"], ["5E10", "12E5", "7"]),
        (["1234e5", "9999e2"], ["1234e5", "9999e2"]),
        (["True", "False"], [True, False]),
        (["true", "false"], [True, False]),
        (["TRUE", "false"], ["TRUE", "false"]),
        (["True", "False", "Not given"], ["True", "False", "Not given"]),
        (["1", "True"], ["1", "True"]),
        (["107", "007"], ["107", "007"]),
        (["7", "9223372036854775808"], ["7", "9223372036854775808"]),
        (["-0", "1"], ["-0", "1"]),
        (["0.1234567890123456789", "0.1000000000000000000"], ["0.1234567890123456789", "0.1000000000000000000"]),
        ([" 7", "8 "], [7, 8]),
        (["Oslo", "7"], ["Oslo", "7"]),
    ],
)
def test_a_column_has_a_type_where_every_text_comes_back(
    read_bytes: ReadBytes, column: list[str], values: list[object]
) -> None:
    found = read_bytes("a.csv", written([["v", "text"], *([cell, "The mill."] for cell in column)], ","))

    got = [document.metadata.get("v") for document in found.documents]
    assert (got, list(map(type, got))) == (values, list(map(type, values)))
    changed = type(values[0]) is str and column[0] not in ("5E10", "1234e5", "-0", "Oslo", "0.1234567890123456789")
    assert found.kinds == ({"columns of numbers and text": 1} if changed else {})


@settings(max_examples=200)
@given(st.lists(st.from_regex(r"-?[0-9]{1,3}(\.[0-9]{0,3})?(e[0-9])?|true|True|FALSE|a?", fullmatch=True), max_size=6))
def test_no_two_texts_of_a_column_become_one_value(column: list[str]) -> None:
    columns = Columns(["v"])
    for line, cell in enumerate(column):
        columns.add([cell], line)

    values = [columns.scalar("v", cell) for cell in column if cell]

    assert len({(type(value) is bool, value) for value in values}) == len({cell for cell in column if cell})


@pytest.mark.parametrize("packing", ["", ".gz", ".zip"])
def test_a_late_cell_decides_for_all_rows(read_bytes: ReadBytes, packing: str) -> None:
    rows = ["v,text", *(f"{number},The mill." for number in range(3000)), "007,The lock."]
    data = "\n".join(rows).encode()
    if packing == ".zip":
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as pack:
            pack.writestr("a.csv", data)
        data = out.getvalue()
    packed = gzip.compress(data) if packing == ".gz" else data

    found = read_bytes(f"a.csv{packing}" if packing != ".zip" else "a.zip", packed)

    assert [document.metadata["v"] for document in found.documents] == [*map(str, range(3000)), "007"]
    (left,) = found.left
    assert (left.kind, left.where.rpartition(":")[2]) == ("columns of numbers and text", "3002")


def test_values_in_lists_of_fields_and_pages_are_as_they_are_written(read_bytes: ReadBytes) -> None:
    rst = read_bytes("a.rst", "Mill\n====\n\n:version: 3.10\n:serial: 4E2\n:year: 1967\n\nThe mill.\n")
    page = read_bytes("a.html", '<meta name="version" content="3.10"><meta name="year" content="1967"><p>The mill.')

    assert rst.documents[0].metadata == {"title": "Mill", "version": "3.10", "serial": "4E2", "year": 1967}
    assert page.documents[0].metadata == {"version": "3.10", "year": 1967}


def test_a_header_of_millions_of_cells_is_looked_at_in_part() -> None:
    assert dialect_of(["," * 2_000_000, "1\n"], ".csv").mark == ","
