"""Small files that expand far: how much is read of them, and how much memory that takes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.records.arrow_messages import declared_bytes
from ragidx.corpora.readers.records.expansion import expanded_bytes
from ragidx.corpora.readers.records.parquet_pages import declared_columns

from ..conftest import ReadBytes

TOO_FAR = "expands to more than 200 times its size"
LONG = "a" * (8 << 20)
SHARED = pa.DictionaryArray.from_arrays(pa.array(np.zeros(64, np.int32)), pa.array([LONG]))
LISTED = pa.ListArray.from_arrays(pa.array([0, 64], pa.int32()), SHARED)


def _parquet(table: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def _ipc(make: Callable[..., Any], packing: str | None = "zstd", *, old: bool = False) -> Callable[[Any], bytes]:
    def write(table: Any) -> bytes:
        sink = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=packing, use_legacy_format=old)
        with make(sink, table.schema, options=options) as file:
            file.write_table(table)
        return sink.getvalue()

    return write


WRITERS = {"a.parquet": _parquet, "a.arrow": _ipc(pa.ipc.new_file), "a.ipc": _ipc(pa.ipc.new_stream)}
BOMBS = {
    "a value shared by all rows": pa.table({"text": SHARED}),
    "a value shared in a list": pa.table({"text": ["x"], "of": LISTED}),
    "zeros": pa.table({"text": pa.array(["b" * (80 << 20)])}),
    "a list of equal numbers": pa.table({"text": ["x"], "of": [np.zeros(9 << 20, np.int64)]}),
}


_POOLS: list[pa.MemoryPool] = []


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """What Arrow allocates from here on, counted apart from all before."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    _POOLS.append(counted)  # what it has given may be freed later than the test ends
    pa.set_memory_pool(counted)
    yield counted
    pa.set_memory_pool(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_file_that_expands_too_far_is_reported_once_and_takes_bounded_memory(
    bomb: str, name: str, read_bytes: ReadBytes, pool: pa.MemoryPool
) -> None:
    data = WRITERS[name](BOMBS[bomb])
    assert len(data) < 30_000
    before = pool.max_memory()

    found = read_bytes(name, data)

    assert found.reasons == [(name, TOO_FAR)]
    assert sum(map(len, found.texts)) <= 64 << 20
    assert pool.max_memory() - before < 150 << 20


def test_rows_of_nothing_end(read_bytes: ReadBytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragidx.corpora.readers.records.expansion.RATIO_FROM_BYTES", 1 << 16)

    found = read_bytes("a.arrow", _ipc(pa.ipc.new_file)(pa.table({"text": pa.nulls(1 << 24)})))

    assert found.documents == []
    assert found.reasons[-1] == ("a.arrow", TOO_FAR)
    assert {reason for _, reason in found.reasons[:-1]} == {"empty text"}
    assert len(found.reasons) < 5_000


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_a_long_value_that_many_rows_share_is_read_for_each(name: str, read_bytes: ReadBytes) -> None:
    text = " ".join(map(str, range(300_000)))
    rows = pa.DictionaryArray.from_arrays(pa.array(np.zeros(9, np.int32)), pa.array([text]))

    found = read_bytes(name, WRITERS[name](pa.table({"text": rows})))

    assert found.texts == [text] * 9
    assert found.reasons == []


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("packing", [None, "lz4", "zstd"])
@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_an_arrow_file_says_what_its_batches_take(make: Callable[..., Any], packing: str | None, old: bool) -> None:
    table = pa.table({"a": pa.array(["x" * 1000, "y" * 500]).dictionary_encode(), "b": pa.array([1, 2], pa.int64())})
    data = _ipc(make, packing, old=old)(table)

    declared = declared_bytes(io.BytesIO(data), len(data))

    assert 1500 + 16 + 8 + 12 <= declared <= 1500 + 16 + 8 + 12 + 5 * 64  # and the padding of five buffers


def test_a_parquet_file_says_what_its_pages_hold() -> None:
    table = pa.table({"a": ["x" * 1000] * 9, "b": [[1, 2]] * 9})
    data = io.BytesIO(_parquet(table))

    shared, listed = declared_columns(data)

    assert shared.longest == 1004  # of the page that is its dictionary: a length and the string
    assert shared.unpacked > 1004
    assert (shared.values, listed.values) == (9, 18)


@pytest.mark.parametrize(
    ("array", "count"),
    [
        (SHARED, 64 * (len(LONG) + 4)),
        (LISTED, 4 + 4 + 64 * (len(LONG) + 4)),
        (pa.StructArray.from_arrays([SHARED.slice(3, 2)], ["a"]), 8 + 2 * (len(LONG) + 4)),
        (pa.array([[("key", 1)], [("other", 2)]], pa.map_(pa.string(), pa.int64())).slice(1), 4 + 5 + 4 + 8),
        (pa.array([1, 2, 3], pa.int64()).slice(1), 16),
        (pa.array(["a" * 40, "b"] * 2, pa.string_view()).slice(1), 3 * 4 + 42),
        (pa.array([["ab"], ["c" * 20]], pa.list_(pa.string_view())), 8 + 8 + 22),
    ],
)
def test_dictionaries_count_as_written_out(array: Any, count: int) -> None:
    assert expanded_bytes(array) == pytest.approx(count, abs=8)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_a_file_with_a_wrong_byte_is_read_or_reported(name: str, read_bytes: ReadBytes) -> None:
    good = WRITERS[name](pa.table({"text": ["one", "two"]}))

    for place in range(0, len(good), 7):
        bad = bytearray(good)
        bad[place] ^= 0xFF
        found = read_bytes(name, bytes(bad))

        assert found.texts or found.reasons
        assert not any("defect" in reason for _, reason in found.reasons)


def test_ten_thousand_columns_are_read_without_searching_for_names(read_bytes: ReadBytes) -> None:
    header = ",".join([*(f"c{number}" for number in range(9_999)), "text"])

    found = read_bytes("a.csv", f"{header}\n{'1,' * 9_999}hello\n")

    assert found.texts == ["hello"]
    assert len(found.documents[0].metadata) == 9_999


def test_a_footer_that_says_it_is_longer_than_its_file_is_damage(read_bytes: ReadBytes) -> None:
    good = WRITERS["a.arrow"](pa.table({"text": ["one"]}))
    length = (2**31 - 1).to_bytes(4, "little")

    found = read_bytes("a.arrow", good[:-10] + length + good[-6:])

    assert found.reasons == [("a.arrow", "damaged Arrow data: a header points out of the file")]


def test_a_reason_is_short_however_long_a_name_is(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.csv", "x" * 5000 + ",year\n1,2\n", ReadOptions(text_field=("text",)))

    start = "the field 'text' is missing (found: '"
    assert found.reasons == [("a.csv", f"{start}{'x' * (300 - len(start))}...")]
