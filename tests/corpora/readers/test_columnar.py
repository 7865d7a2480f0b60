from __future__ import annotations

import datetime
import decimal
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import zstandard

from ragidx.corpora.limits import ReadOptions

from ..conftest import ReadBytes, reading

WHEN = datetime.datetime(2020, 1, 2, 3, 4, 5)
TABLE = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "text": pa.array(["One.", "Two."], pa.large_string()),
        "year": pa.array([1996, None], pa.int16()),
        "deep": [True, None],
        "depth": pa.array([1.5, float("nan")], pa.float32()),
        "far": [1.0, float("inf")],
        "subject": pa.array(["a", "b"]).dictionary_encode(),
        "day": [datetime.date(2020, 1, 2), None],
        "time": pa.array([1_000_000_000, None], pa.time64("ns")),
        "when": pa.array([WHEN, None], pa.timestamp("ns")),
        "zoned": pa.array([WHEN, None], pa.timestamp("ms", "Mars/Olympus")),
        "price": pa.array([decimal.Decimal("1.25"), None], pa.decimal128(9, 2)),
        "tags": [["x", "y"], None],
        "of": [{"a": 1, "d": datetime.date(2020, 1, 2)}, None],
        "big": pa.array([2**64 - 1, 0], pa.uint64()),
        "never": pa.array([None, None], pa.null()),
        "bytes": [b"x", b"y"],
        "span": pa.array([1, 2], pa.duration("s")),
        "images": [[{"bytes": b"x"}], None],
    }
)
FIRST = {
    "year": 1996,
    "deep": True,
    "depth": 1.5,
    "far": 1.0,
    "subject": "a",
    "day": "2020-01-02",
    "time": "00:00:01",
    "when": WHEN,
    "zoned": WHEN.replace(tzinfo=datetime.UTC),
    "price": 1.25,
    "tags": ["x", "y"],
    "of.a": 1,
    "of.d": "2020-01-02",
    "big": "18446744073709551615",
}
LEFT_OUT = [
    "column 'bytes': type binary",
    "column 'span': type duration[s]",
    "column 'images': type list<item: struct<bytes: binary>>",
]


def written(table: Any, name: str) -> bytes:
    """A table as the file of a name."""
    sink = io.BytesIO()
    if name.endswith(".parquet"):
        pq.write_table(table, sink, row_group_size=1)
    elif name.endswith(".feather"):
        feather.write_feather(table, sink)
    else:
        writer = pa.ipc.new_stream if name == "stream.arrow" else pa.ipc.new_file
        with writer(sink, table.schema) as out:
            out.write_table(table)
    return sink.getvalue()


NAMES = ["a.parquet", "a.arrow", "stream.arrow", "a.ipc", "a.feather"]


@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_a_document_with_typed_metadata(read_bytes: ReadBytes, name: str) -> None:
    found = read_bytes(name, written(TABLE, name))

    assert found.ids == [f"{name}#1", f"{name}#2"]
    assert found.texts == ["One.", "Two."]
    assert found.documents[0].metadata == FIRST
    assert found.documents[1].metadata == {"subject": "b", "big": 0}
    told = [reason.replace("element:", "item:") for _, reason in found.reasons]
    assert told == [*LEFT_OUT, "the field 'far': not a finite number"]
    assert found.reasons[-1][0] == f"{name}#2"


@pytest.mark.parametrize("packing", ["gz", "zst"])
@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_packed_columns_are_read(read_bytes: ReadBytes, name: str, packing: str) -> None:
    pack = {"gz": gzip.compress, "zst": zstandard.compress}[packing]

    found = read_bytes(f"{name}.{packing}", pack(written(TABLE.select(["id", "text"]), name)))

    assert found.texts == ["One.", "Two."]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_thousand_rows_in_one_batch_are_read_in_order(read_bytes: ReadBytes, name: str) -> None:
    table = pa.table({"text": [f"text {i}" for i in range(1000)]})

    found = read_bytes(name, written(table, name))

    assert found.texts == [f"text {i}" for i in range(1000)]
    assert found.ids[-1] == f"{name}#1000"


@pytest.mark.parametrize("name", ["a.arrow", "stream.arrow", "a.parquet"])
def test_views_of_strings_are_strings_at_any_depth(read_bytes: ReadBytes, name: str) -> None:
    view = pa.string_view()
    kinds = {"text": view, "tags": pa.list_(view), "place": pa.struct([("name", view)])}
    row = {"text": "Baikal is deep.", "tags": ["ice", "i" * 20], "place": {"name": "Siberia"}}
    table = pa.Table.from_pylist([row], pa.schema(list(kinds.items())))

    found = read_bytes(name, written(table.select(["text"]) if name == "a.parquet" else table, name))

    assert (found.texts, found.reasons) == (["Baikal is deep."], [])
    metadata = {} if name == "a.parquet" else {"tags": ["ice", "i" * 20], "place.name": "Siberia"}
    assert found.documents[0].metadata == metadata


def test_a_date_that_python_has_no_room_for_is_told(read_bytes: ReadBytes) -> None:
    table = pa.table({"text": ["a", "b"], "day": pa.array([10**7, 0], pa.date32())})

    found = read_bytes("a.parquet", written(table, "a.parquet"))

    assert [document.metadata for document in found.documents] == [{}, {"day": "1970-01-01"}]
    assert found.reasons == [("a.parquet#1", "the field 'day': out of range")]


def test_a_column_name_that_stands_twice_is_left_out(read_bytes: ReadBytes) -> None:
    table = pa.Table.from_arrays([pa.array(["x"]), pa.array([1]), pa.array([2])], names=["text", "a", "a"])

    found = read_bytes("a.arrow", written(table, "a.arrow"))

    assert found.documents[0].metadata == {}
    assert found.reasons == [("a.arrow", "column 'a': 2 have this name")]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_table_without_the_named_column_is_told_once(read_bytes: ReadBytes, name: str) -> None:
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})

    found = read_bytes(name, written(table, name), ReadOptions(text_field="body"))

    reason = "the field 'body' is missing (found: 'a', 'b'); say which one to read with `text_field`"
    assert found.reasons == [(name, reason)]
    assert read_bytes(name, written(table, name)).texts == ["a: 1\nb: x", "a: 2\nb: y"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.parquet", "Parquet"), ("a.arrow", "Arrow"), ("stream.arrow", "Arrow"), ("a.feather", "Arrow")],
)
@pytest.mark.parametrize("fault", ["cut", "text", "zeros"])
def test_damaged_columns_are_one_report(read_bytes: ReadBytes, name: str, kind: str, fault: str) -> None:
    good = written(TABLE.select(["id", "text"]), name)
    data = {"cut": good[: len(good) // 2], "text": b"no table at all", "zeros": bytes(len(good))}[fault]

    found = read_bytes(name, data)

    assert found.documents == []
    assert len(found.reasons) == 1
    where, reason = found.reasons[0]
    assert where == name
    assert reason.startswith(f"damaged {kind} data: ") or (kind, reason) == ("Arrow", "holds no document")


def test_offsets_that_lie_do_not_reach_foreign_memory(read_bytes: ReadBytes) -> None:
    lying = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 2**30, 3], "i4")), pa.py_buffer(b"abc"))

    found = read_bytes("a.arrow", written(pa.table({"text": lying}), "a.arrow"))

    assert found.documents == []
    assert found.reasons[0][1].startswith("damaged Arrow data: ")


def test_a_feather_file_of_version_1_is_told(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.feather", b"FEA1" + bytes(20))

    assert found.reasons == [("a.feather", "Feather version 1: write it again as version 2")]


def test_an_extension_type_is_read_as_what_it_is_stored_as(tmp_path: Path) -> None:
    table = pa.table({"text": ["x"], "data": pa.array(['{"a": 1}'], pa.json_())})
    pq.write_table(table, tmp_path / "a.parquet")

    assert reading(tmp_path).documents[0].metadata == {"data": '{"a": 1}'}
