"""Vectors that somebody has already: files of them, the writer, what is broken in them; and torch plays no part."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import BusyError, CorpusError, IndexFormatError, SpecError
from ragidx.corpora.vectors.files import vector_batches
from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store.verify import verify
from ragidx.pipelines.build.build import build
from ragidx.pipelines.build.report import StrictError
from ragidx.pipelines.vectors.build import build_vectors
from ragidx.pipelines.vectors.writer import IndexWriter, WriteReport
from ragidx.retriever.reader import IndexReader

AXES = np.eye(4, dtype=np.float32)


def _table(vectors: Any = AXES, kind: Any = None, **columns: Any) -> pa.Table:
    rows = [None if row is None else list(row) for row in vectors]
    return pa.table({"vector": pa.array(rows, kind or pa.list_(pa.float32()))} | columns)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write(table)`: a parquet file of it, `vectors.parquet`."""

    def call(table: pa.Table, name: str = "vectors.parquet", **options: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path, **options)
        return path

    return call


def _content(index: Path) -> dict[str, tuple[str, str, dict[str, Any], list[float]]]:
    """What an index holds, by chunk id."""
    reader, found = IndexReader.open(index), {}
    for number, segment in enumerate(reader.store.segments):
        dead = reader.store.dead[number]
        alive = [row for row in range(segment.entry.rows) if dead is None or not dead[row]]
        for row, vector in zip(segment.rows(alive), segment.vectors(alive), strict=True):
            assert row.chunk_id not in found
            found[row.chunk_id] = row.doc_id, row.text, dict(row.metadata), [round(float(x), 3) for x in vector]
    return found


# files


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.list_(pa.float64()),
        pa.list_(pa.float16()),
        pa.large_list(pa.float32()),
        pa.list_(pa.float32(), 4),
        pa.list_(pa.float64(), 4),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["v.parquet", "v.arrow", "v.feather", "v.ipc"])
def test_every_kind_of_file_and_list_gives_the_same_rows(name: str, kind: Any, tmp_path: Path) -> None:
    rows = [list(row) for row in np.array([[2, 0, 0, 0], [0, 3, 4, 0], [0, 0, 0, -1]], np.float16)]
    table = _table(rows, kind, id=["a", "b", "c"], text=["one", "two", None])
    path = tmp_path / name
    if name == "v.parquet":
        pq.write_table(table, path)
    elif name == "v.feather":
        feather.write_feather(table, path)
    else:
        make = pa.ipc.new_file if name == "v.arrow" else pa.ipc.new_stream
        with make(path, table.schema) as file:
            file.write_table(table, max_chunksize=2)

    report = build_vectors(path, tmp_path / "index")

    assert (report.n_added, report.n_chunks, report.n_documents, report.dim, report.skipped) == (3, 3, 3, 4, {})
    assert _content(tmp_path / "index") == {
        "a": ("a", "one", {}, [1, 0, 0, 0]),
        "b": ("b", "two", {}, [0, 0.6, 0.8, 0]),
        "c": ("c", "", {}, [0, 0, 0, -1]),
    }


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_of_numpy_has_row_numbers_for_ids(dtype: str, order: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.asarray(np.diag([1, 2, 3]), dtype, order=order))

    build_vectors(tmp_path / "v.npy", tmp_path / "index")

    assert {name: row[3] for name, row in _content(tmp_path / "index").items()} == {
        "0": [1, 0, 0],
        "1": [0, 1, 0],
        "2": [0, 0, 1],
    }


def test_a_folder_is_read_whole_and_rows_without_ids_have_the_files_name(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    write(_table(AXES[:1]), "many/one.parquet")
    np.save(tmp_path / "many/two.npy", AXES[1:3])
    (tmp_path / "many/notes.txt").write_text("made by hand")

    report = build_vectors(tmp_path / "many", tmp_path / "many/index")
    again = build_vectors(tmp_path / "many", tmp_path / "many/index")

    assert list(_content(tmp_path / "many/index")) == ["one.parquet#0", "two.npy#0", "two.npy#1"]
    assert report.skipped == {"no file of vectors": 1}
    assert again.skipped == {"no file of vectors": 1, "a ragidx index": 1}
    assert not again.committed


def test_a_packed_file_is_unpacked(write: Callable[..., Path], tmp_path: Path) -> None:
    packed = tmp_path / "v.parquet.gz"
    packed.write_bytes(gzip.compress(write(_table()).read_bytes()))

    assert build_vectors(packed, tmp_path / "index").n_chunks == 4


def test_other_columns_are_metadata_and_documents_hold_rows(write: Callable[..., Path], tmp_path: Path) -> None:
    import datetime

    table = _table(
        AXES[:3],
        _id=[7, 8, 9],
        contents=pa.array(["x", "y", "z"]).dictionary_encode(),
        doc_id=["d", "d", None],
        year=[1999, None, 2001],
        score=[0.5, float("nan"), float("inf")],
        day=[datetime.date(2020, 1, 2)] * 3,
        ok=[True, False, None],
        tags=[["a", "b"], [], None],
        other=pa.array([[0.5]] * 3, pa.list_(pa.float32())),
    )

    report = build_vectors(write(table), tmp_path / "index")

    assert _content(tmp_path / "index") == {
        "7": (
            "d",
            "x",
            {"day": "2020-01-02", "ok": True, "score": 0.5, "tags": '["a","b"]', "year": 1999},
            [1, 0, 0, 0],
        ),
        "8": ("d", "y", {"day": "2020-01-02", "ok": False}, [0, 1, 0, 0]),
        "9": ("9", "z", {"day": "2020-01-02", "year": 2001}, [0, 0, 1, 0]),
    }
    assert report.n_documents == 2
    assert report.skipped == {
        "column 'other' is left out": 1,
        "the field 'score' is left out": 1,
    }
    assert report.skipped_places["the field 'score' is left out"] == ["vectors.parquet#2: not a finite number"]


def test_columns_can_be_named(write: Callable[..., Path], tmp_path: Path) -> None:
    table = _table(name=["p", "q", "r", "s"], note=["1", "2", "3", "4"], second=[[float(n), 1.0] for n in range(4)])

    build_vectors(write(table), tmp_path / "index", vector_field="second", id_field="name", text_field="note")

    assert {name: row[1] for name, row in _content(tmp_path / "index").items()} == dict(
        zip("pqrs", "1234", strict=True)
    )
    assert IndexReader.open(tmp_path / "index").dim == 2


def test_vectors_stream_in_bounded_batches(write: Callable[..., Path], tmp_path: Path) -> None:
    """More rows than a batch has, in row groups of another size: every row arrives once, in its place."""
    n = 9_000
    angles = np.linspace(0, 3, n)
    path = write(
        _table(np.stack([np.cos(angles), np.sin(angles)], axis=1), pa.list_(pa.float64(), 2), n=list(range(n))),
        row_group_size=1_234,
    )
    told: list[float | None] = []

    build_vectors(path, tmp_path / "index", on_progress=lambda p: told.append(p.share))

    reader = IndexReader.open(tmp_path / "index")
    assert len(reader) == n
    for place in (0, 4_095, 4_096, 8_999):
        [row] = reader.get([str(place)])
        assert row.metadata == {"n": place}
        assert reader.search([[np.cos(angles[place]), np.sin(angles[place])]], k=1)[0][0].score > 0.999
    assert told[-1] == 1.0
    assert verify(tmp_path / "index") == []


# again


def test_the_same_file_again_commits_nothing(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(_table(text=["a", "b", "c", "d"], n=[1, 2, 3, None]))
    build_vectors(path, tmp_path / "index")

    again = build_vectors(path, tmp_path / "index")

    assert (again.committed, again.generation, again.n_unchanged, again.n_added) == (False, 1, 4, 0)


def test_what_changed_is_replaced_and_what_is_gone_is_deleted(write: Callable[..., Path], tmp_path: Path) -> None:
    build_vectors(write(_table(id=["a", "b", "c", "d"], text=["1", "2", "3", "4"])), tmp_path / "index")

    report = build_vectors(
        write(_table([AXES[0], AXES[3], AXES[2], AXES[1]], id=["a", "b", "c", "e"], text=["1", "2", "three", "5"])),
        tmp_path / "index",
    )

    assert (report.n_unchanged, report.n_changed, report.n_added, report.n_removed) == (1, 2, 1, 1)
    assert (report.committed, report.n_chunks, report.n_documents) == (True, 4, 4)
    assert _content(tmp_path / "index") == {
        "a": ("a", "1", {}, [1, 0, 0, 0]),
        "b": ("b", "2", {}, [0, 0, 0, 1]),
        "c": ("c", "three", {}, [0, 0, 1, 0]),
        "e": ("e", "5", {}, [0, 1, 0, 0]),
    }


_ROWS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.tuples(st.sampled_from("xyz"), st.sampled_from(["", "t"]), st.integers(0, 2), st.sampled_from([None, 1, "s"])),
    max_size=6,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(states=st.lists(_ROWS, min_size=1, max_size=4))
def test_upserts_end_with_what_was_given_last(states: list[dict[str, Any]], tmp_path_factory: Any) -> None:
    index = tmp_path_factory.mktemp("upserts") / "index"
    expected: dict[str, Any] = {}
    for state in states:
        with IndexWriter(index, 4) as writer:
            writer.add(
                list(state),
                AXES[[axis for _, _, axis, _ in state.values()]] if state else np.zeros((0, 4)),
                [text for _, text, _, _ in state.values()],
                [{"m": value} for *_, value in state.values()],
                [document for document, *_ in state.values()],
            )
            report = writer.commit()
        expected |= state

        assert report.n_rows == len(expected)
        assert report.n_documents == len({document for document, *_ in expected.values()})
    found = {
        name: (document, text, vector.index(1), str(metadata.get("m")))  # ints and strings in one field are strings
        for name, (document, text, metadata, vector) in _content(index).items()
    }
    assert found == {name: (*row[:3], str(row[3])) for name, row in expected.items()}


# the writer


def test_nothing_changes_without_a_commit(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "index", 4) as writer:
        writer.add(["a"], AXES[:1])
    with pytest.raises(IndexFormatError, match="nothing was committed"):
        IndexReader.open(tmp_path / "index")
    with IndexWriter(tmp_path / "index", 4) as writer:
        writer.add(["a"], AXES[:1])
        assert writer.commit() == WriteReport(1, True, 1, 0, 0, 0, 1, 1)

    with IndexWriter(tmp_path / "index", 4) as writer:
        writer.delete(["a"])

    assert IndexReader.open(tmp_path / "index").get(["a"])[0].chunk_id == "a"


def test_rows_are_deleted_by_id_alone(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "index", 4) as writer:
        writer.add([1, 2, 3], AXES[:3], doc_ids=["d", "d", "d"])
        writer.commit()

    with IndexWriter(tmp_path / "index", 4) as writer:
        assert writer.delete(["2", "2", "nobody"]) == 1
        report = writer.commit()

    assert (report.n_removed, report.n_rows, report.n_documents) == (1, 2, 1)
    assert list(_content(tmp_path / "index")) == ["1", "3"]


def test_a_deleted_row_can_come_again_and_an_added_one_cannot_go(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "index", 4) as writer:
        writer.add(["a", "b"], AXES[:2])
        writer.commit()

    with IndexWriter(tmp_path / "index", 4) as writer:
        writer.delete(["a"])
        writer.add(["a"], AXES[:1])
        with pytest.raises(ValueError, match="the id 'a' was added by this writer; commit first"):
            writer.delete(["a"])
        writer.commit()

    assert sorted(_content(tmp_path / "index")) == ["a", "b"]


def test_others_are_deleted_where_the_rows_given_are_all_there_are(tmp_path: Path) -> None:
    for names in (["a", "b", "c"], ["b", "d"]):
        with IndexWriter(tmp_path / "index", 4) as writer:
            writer.add(names, AXES[: len(names)])
            gone = writer.delete_others()
            writer.commit()

    assert gone == 2
    assert sorted(_content(tmp_path / "index")) == ["b", "d"]


def test_replace_keeps_the_old_state_until_the_commit_and_takes_another_width(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "index", 4) as writer:
        writer.add(["a"], AXES[:1])
        writer.commit()

    with IndexWriter(tmp_path / "index", 2, replace=True) as writer:
        writer.add(["z"], [[1, 1]])
        assert IndexReader.open(tmp_path / "index").dim == 4
        writer.commit()

    assert IndexReader.open(tmp_path / "index").refresh().dim == 2


def test_an_index_can_become_empty(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "index", 4) as writer:
        writer.add(["a"], AXES[:1])
        writer.commit()
    with IndexWriter(tmp_path / "index", 4) as writer:
        writer.delete(["a"])
        writer.commit()

    reader = IndexReader.open(tmp_path / "index")

    assert (len(reader), reader.search(AXES, k=3)) == (0, [[], [], [], []])


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "index", 4), pytest.raises(BusyError):
        IndexWriter(tmp_path / "index", 4)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"vectors": [[0, 0, 0, 0]]}, "id 'b': the vector is zero"),
        ({"vectors": [[0, np.nan, 0, 0]]}, "id 'b': the vector holds a number that is not finite"),
        ({"vectors": [[0, 0, -np.inf, 0]]}, "id 'b': the vector holds a number that is not finite"),
        ({"ids": ["a"]}, "id 'a': the id was seen before"),
        ({"texts": ["\ud800"]}, "id 'b': the text is no Unicode text"),
        ({"ids": ["b\udc00"]}, "id 'b\\udc00': the id is no Unicode text"),
        ({"doc_ids": ["\udc00"]}, "id 'b': the document's id is no Unicode text"),
        ({"metadata": [{"m": float("inf")}]}, "id 'b': the field 'm' cannot be kept: not a finite number"),
        ({"metadata": [{"m": b"raw"}]}, "id 'b': the field 'm' cannot be kept: a value of type bytes"),
    ],
)
def test_a_broken_row_is_an_error_and_nothing_of_the_call_is_added(
    row: dict[str, Any], message: str, tmp_path: Path
) -> None:
    good = {"ids": ["b"], "vectors": [[1, 0, 0, 0]], "texts": ["t"], "metadata": [{}], "doc_ids": ["d"]}
    first = {"ids": ["x"], "vectors": [[1, 0, 0, 0]], "texts": ["t"], "metadata": [{}], "doc_ids": ["d"]}
    with IndexWriter(tmp_path / "index", 4) as writer:
        writer.add(["a"], AXES[:1])

        with pytest.raises(CorpusError) as fault:
            writer.add(**{name: [*first[name], *(good | row)[name]] for name in good})

        assert str(fault.value) == f"{message}\n  hint: mend it, or leave the row out; nothing of this call was added"
        assert writer.commit().n_rows == 1


def test_an_id_that_stands_twice_in_one_call_is_named(tmp_path: Path) -> None:
    with (
        IndexWriter(tmp_path / "index", 4) as writer,
        pytest.raises(CorpusError, match=r"^id 'q': the id was seen before"),
    ):
        writer.add(["p", "q", "r", "q"], AXES)


def test_columns_that_do_not_fit_are_a_programs_mistake(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "index", 4) as writer:
        with pytest.raises(
            ValueError, match=r"vectors have the shape \(4, 4\) and hold float32, not \(1, 4\) and numbers"
        ):
            writer.add(["a"], AXES)
        with pytest.raises(ValueError, match=r"vectors have the shape \(1, 3\)"):
            writer.add(["a"], [[1, 2, 3]])
        with pytest.raises(ValueError, match="2 texts for 1 ids"):
            writer.add(["a"], AXES[:1], ["t", "t"])
        with pytest.raises(ValueError, match="one of the ids is empty"):
            writer.add([""], AXES[:1])
        with pytest.raises(TypeError, match="expected a list of ids, got one string"):
            writer.add("a", AXES[:1])


# what is broken in a file


@pytest.mark.parametrize(
    ("rows", "reason", "detail"),
    [
        ([[1, 0], [0, 0]], "the vector is zero", "'b'"),
        ([[1, 0], [1, float("nan")]], "the vector holds a number that is not finite", "'b'"),
        ([[1, 0], [1, float("inf")]], "the vector holds a number that is not finite", "'b'"),
        ([[1, 0], None], "the vector is missing", ""),
        ([[1, 0], [1, None]], "a number of the vector is missing", ""),
        ([[1, 0], [1, 2, 3]], "the vector has another width", "3 numbers, not 2"),
        ([[1, 0], []], "the vector has another width", "0 numbers, not 2"),
    ],
)
def test_a_broken_vector_is_left_out_and_counted_and_ends_a_strict_build(
    rows: list[Any], reason: str, detail: str, write: Callable[..., Path], tmp_path: Path
) -> None:
    path = write(_table([*rows, [0, 1]], id=["a", "b", "c"]))

    with pytest.raises(StrictError) as fault:
        build_vectors(path, tmp_path / "index", strict=True)
    report = build_vectors(path, tmp_path / "index")

    whole = f"{reason}: {detail}" if detail else reason
    hint = "mend or exclude it, or build without --strict"
    assert str(fault.value) == f"vectors.parquet#1: left out: {whole}\n  hint: {hint}"
    assert (report.n_chunks, report.skipped) == (2, {reason: 1})
    assert report.skipped_places == {reason: [f"vectors.parquet#1: {detail}" if detail else "vectors.parquet#1"]}
    assert {name: row[3] for name, row in _content(tmp_path / "index").items()} == {"a": [1, 0], "c": [0, 1]}


def test_holes_in_lists_of_fixed_size_are_found(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(_table([[1, 0], None, [None, 1], [0, 1]], pa.list_(pa.float32(), 2)))

    report = build_vectors(path, tmp_path / "index")

    assert report.skipped == {"the vector is missing": 1, "a number of the vector is missing": 1}
    assert {name: row[3] for name, row in _content(tmp_path / "index").items()} == {"0": [1, 0], "3": [0, 1]}


def test_ids_that_are_missing_or_repeated_are_left_out(write: Callable[..., Path], tmp_path: Path) -> None:
    vectors = np.ones((6, 2))
    report = build_vectors(write(_table(vectors, id=["a", None, "", "a", "b", "b"])), tmp_path / "index")

    assert report.skipped == {"the id is missing": 2, "the id was seen before": 2}
    assert report.skipped_places["the id was seen before"] == ["vectors.parquet#3: 'a'", "vectors.parquet#5: 'b'"]


def _undecodable(values: Sequence[bytes]) -> pa.Array:
    offsets = np.cumsum([0, *map(len, values)]).astype("<i4")
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(values)))


def test_text_that_is_not_utf8_is_left_out_with_its_row(write: Callable[..., Path], tmp_path: Path) -> None:
    bad = _undecodable([b"good", b"caf\xe9", "\ud800".encode("utf-8", "surrogatepass")])
    good = pa.array(["a", "b", "c"])

    for column, reason in (("text", "the text is not UTF-8"), ("id", "the id is not UTF-8")):
        report = build_vectors(write(_table(AXES[:3], **{"id": good, column: bad})), tmp_path / column)
        assert report.skipped == {reason: 2}
        assert report.skipped_places == {reason: ["vectors.parquet#1", "vectors.parquet#2"]}
        assert report.n_chunks == 1
    report = build_vectors(write(_table(AXES[:3], id=good, note=bad)), tmp_path / "note")

    assert report.skipped == {"the field 'note' is left out": 2}
    assert [row[2] for row in _content(tmp_path / "note").values()] == [{"note": "good"}, {}, {}]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            pa.table({"id": ["a"], "n": [[1, 2]]}),
            "vectors.parquet: no column holds vectors (found: 'id' string, 'n' list<element: int64>)\n"
            "  hint: vectors are lists of float16, float32 or float64, of one length",
        ),
        (
            pa.table({"x": [[0.5]], "y": [[0.5]]}),
            "vectors.parquet: several columns hold lists of numbers: 'x' list<element: double>, "
            "'y' list<element: double>\n  hint: say which one to read with --vector-field",
        ),
        (
            _table(np.zeros((0, 2))),
            "{path}: there is no vector that can be read (1 x holds no row)\n  hint: mend the file, or name another",
        ),
        (
            _table([None, [0.0, 0.0]]),
            "{path}: there is no vector that can be read (1 x the vector is missing; 1 x the vector is zero)\n"
            "  hint: mend the file, or name another",
        ),
        (
            _table([[], []]),
            "vectors.parquet: the column 'vector' holds vectors of 0 numbers\n  hint: give vectors of 1 to 65,536",
        ),
        (
            _table([[1.0] * 65_537]),
            "vectors.parquet: the column 'vector' holds vectors of 65,537 numbers\n  hint: give vectors of 1 to 65,536",
        ),
    ],
)
def test_a_file_without_vectors_is_an_error(
    table: pa.Table, message: str, write: Callable[..., Path], tmp_path: Path
) -> None:
    path = write(table)

    with pytest.raises(CorpusError) as fault:
        build_vectors(path, tmp_path / "index")

    assert str(fault.value) == message.format(path=path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vector_field": "id"}, "the column 'id' is missing or holds no vectors"),
        ({"vector_field": "nobody"}, "the column 'nobody' is missing or holds no vectors"),
        ({"id_field": "vector"}, "the column 'vector' is missing or holds no ids"),
        ({"text_field": "nobody"}, "the column 'nobody' is missing or holds no texts"),
    ],
)
def test_a_column_that_was_named_and_is_not_there_is_an_error(
    options: dict[str, str], message: str, write: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(CorpusError) as fault:
        build_vectors(write(_table(id=["a", "b", "c", "d"])), tmp_path / "index", **options)

    found = " (found: 'vector' list<element: float>, 'id' string)"
    assert (fault.value.message, fault.value.where) == (message + found, "vectors.parquet")


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 3)])
def test_vectors_of_another_width_throughout_are_an_error_at_once(
    kind: Any, write: Callable[..., Path], tmp_path: Path
) -> None:
    build_vectors(write(_table()), tmp_path / "index")

    with pytest.raises(CorpusError) as fault:
        build_vectors(write(_table(AXES[:, :3], kind)), tmp_path / "index")

    assert str(fault.value) == (
        "vectors.parquet: the column 'vector' holds vectors of 3 numbers; those of the index, or of the files before, "
        "have 4\n  hint: vectors of two models do not stand together: choose another --index, or replace it with "
        "--rebuild"
    )
    assert build_vectors(write(_table(AXES[:3, :3], kind)), tmp_path / "index", rebuild=True).dim == 3


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("v.parquet", b"PAR1 and no more PAR1", "damaged Parquet data: "),
        ("v.arrow", b"ARROW1\0\0 and no more", "damaged Arrow data: "),
        ("v.feather", b"FEA1 and more FEA1", "Feather version 1: write it again as version 2"),
        ("v.npy", b"\x93NUMPY\x01\0 and no more", "damaged .npy data: "),
        ("v.npy", b"no magic at all", "damaged .npy data: "),
        ("v.txt", b"1 2 3", "it is no file of vectors"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)

    with pytest.raises(CorpusError) as fault:
        build_vectors(tmp_path / name, tmp_path / "index")

    assert fault.value.message.startswith(message)
    assert fault.value.where == name
    assert fault.value.hint


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(4), "the array has the shape (4,), not (rows, width)"),
        (np.zeros((2, 2), np.int64), "the array holds int64, not float16, float32 or float64"),
        (np.zeros((2, 2), np.complex64), "the array holds complex64, not float16, float32 or float64"),
        (np.array([[object()]]), "the array holds object, not float16, float32 or float64"),
        (np.zeros((3, 0)), "the array holds vectors of 0 numbers"),
    ],
)
def test_an_array_that_holds_no_vectors_is_an_error(array: np.ndarray, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", array, allow_pickle=True)

    with pytest.raises(CorpusError) as fault:
        build_vectors(tmp_path / "v.npy", tmp_path / "index")

    assert (fault.value.message, fault.value.where) == (message, "v.npy")


def test_an_array_has_no_columns(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", AXES)

    with pytest.raises(CorpusError, match=r"v\.npy: an .npy file has no columns"):
        build_vectors(tmp_path / "v.npy", tmp_path / "index", id_field="id")


def test_a_folder_without_files_of_vectors_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(CorpusError) as fault:
        build_vectors(tmp_path / "empty", tmp_path / "index")

    assert fault.value.message == "there is no file of vectors"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere.npy", "nowhere.npy: cannot be opened: No such file or directory"),
        ("-", "-: vectors are not read from standard input"),
    ],
)
def test_a_file_of_vectors_that_is_not_there_is_an_error_that_says_which_there_can_be(path: str, message: str) -> None:
    with pytest.raises(CorpusError) as fault:
        build_vectors(path, "index")

    forms = "give one of .parquet, .arrow, .feather, .ipc, .npy, or a folder of them"
    assert str(fault.value) == f"{message}\n  hint: {forms}"


def test_a_file_that_breaks_in_the_middle_leaves_the_index_as_it_was(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    path = write(_table(id=["a", "b", "c", "d"]))
    build_vectors(path, tmp_path / "index")
    table = _table(np.random.default_rng(0).standard_normal((20_000, 4)))
    write(table, row_group_size=5_000, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 2_000] = bytes(2_000)
    path.write_bytes(data)

    with pytest.raises(CorpusError, match="damaged Parquet data"):
        build_vectors(path, tmp_path / "index")

    assert IndexReader.open(tmp_path / "index").generation == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of a sound file of each kind."""
    folder = tmp_path_factory.mktemp("whole")
    table = _table(np.random.default_rng(0).standard_normal((30, 4)), id=list(range(30)), text=["caf\u00e9"] * 30)
    pq.write_table(table, folder / "v.parquet")
    for name, make in (("v.arrow", pa.ipc.new_file), ("v.ipc", pa.ipc.new_stream)):
        with make(folder / name, table.schema) as file:
            file.write_table(table)
    np.save(folder / "v.npy", np.ones((9, 4)))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["v.parquet", "v.arrow", "v.ipc", "v.npy"]), seed=st.integers(0, 2**32 - 1))
def test_a_file_with_wrong_bytes_is_read_or_is_one_error(
    name: str, seed: int, whole: dict[str, bytes], tmp_path: Path
) -> None:
    chance, data = np.random.default_rng(seed), bytearray(whole[name])
    for place in chance.integers(0, len(data), chance.integers(1, 5)).tolist():
        data[place] = int(chance.integers(0, 256))
    (tmp_path / name).write_bytes(data[: len(data) if chance.random() < 0.9 else int(chance.integers(0, len(data)))])

    told, shapes = name, list[tuple[int, ...]]()
    try:
        shapes = [batch.vectors.shape for batch in vector_batches(tmp_path / name, on_skip=lambda skip: None)]
    except CorpusError as fault:
        told = fault.where

    assert told == name
    assert all(len(shape) == 2 for shape in shapes)


def test_a_header_of_numpy_that_does_not_end_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", AXES)
    (tmp_path / "v.npy").write_bytes((tmp_path / "v.npy").read_bytes().replace(b"(4, 4), }", b"(4, 4),  "))

    with pytest.raises(CorpusError, match=r"v\.npy: damaged \.npy data: "):
        build_vectors(tmp_path / "v.npy", tmp_path / "index")


def test_an_array_that_is_shorter_than_its_header_says_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.ones((4, 4), np.float32))
    data = (tmp_path / "v.npy").read_bytes()
    (tmp_path / "v.npy").write_bytes(data[:-1])

    with pytest.raises(CorpusError) as fault:
        build_vectors(tmp_path / "v.npy", tmp_path / "index")

    assert fault.value.message == "damaged .npy data: 63 bytes of numbers, not the 64 of the shape (4, 4)"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_an_array_of_many_batches_is_read_as_numpy_reads_it(
    order: Any, version: tuple[int, int], tmp_path: Path
) -> None:
    matrix = np.asarray(np.random.default_rng(0).standard_normal((9_000, 7)), ">f4", order=order)
    with (tmp_path / "v.npy").open("wb") as file:
        np.lib.format.write_array(file, matrix, version=version)

    batches = list(vector_batches(tmp_path / "v.npy", on_skip=lambda skip: None))

    assert [len(batch.rows) for batch in batches] == [4096, 4096, 808]
    assert np.array_equal(np.concatenate([batch.vectors for batch in batches]), matrix)
    assert all(batch.vectors.dtype.isnative and batch.vectors.flags.c_contiguous for batch in batches)
    assert batches[-1].share == 1.0


# a file that is written while it is read

CHANGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path, path.stat().st_size // 3),
    "emptied": lambda path: os.truncate(path, 0),
    "appended to": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "overwritten in place": lambda path: path.write_bytes(path.read_bytes()),
    "replaced": lambda path: shutil.copy(path, path.with_suffix(".new")) and path.with_suffix(".new").replace(path),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["v.npy", "v.parquet", "v.arrow", "v.ipc", "v.feather", "v.npy.gz"])
def test_a_file_that_changes_while_it_is_read_ends_the_build_and_is_named(
    name: str, change: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    vectors = np.random.default_rng(0).standard_normal((40_000, 8)).astype(np.float32)
    if name.startswith("v.npy"):
        np.save(tmp_path / "v.npy", vectors)
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress((tmp_path / "v.npy").read_bytes(), 1))
    elif name == "v.parquet":
        pq.write_table(_table(vectors), path, row_group_size=5_000)
    elif name == "v.feather":
        feather.write_feather(_table(vectors), path, chunksize=5_000)
    else:
        table = _table(vectors)
        with (pa.ipc.new_file if name == "v.arrow" else pa.ipc.new_stream)(path, table.schema) as file:
            file.write_table(table, max_chunksize=5_000)
    with IndexWriter(tmp_path / "index", 8) as writer:
        writer.add(["kept"], np.ones((1, 8)))
        writer.commit()
    waiting = [CHANGES[change]]

    def on_progress(_: object) -> None:
        if waiting:
            waiting.pop()(path)

    os.utime(path, (1, 1))  # whatever is written now has another time
    with pytest.raises(CorpusError) as fault:
        build_vectors(path, tmp_path / "index", on_progress=on_progress)

    assert not waiting
    assert str(fault.value) == (
        f"{name}: the file changed while it was read\n"
        "  hint: wait until nothing writes it, and run the same command again"
    )
    reader = IndexReader.open(tmp_path / "index")
    assert (reader.generation, len(reader), reader.get(["kept"])[0].chunk_id) == (1, 1, "kept")


# what the index is


def test_the_spec_says_that_the_vectors_were_made_elsewhere(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", AXES)

    build_vectors(tmp_path / "v.npy", tmp_path / "index", made_by="my model")

    spec = IndexReader.open(tmp_path / "index").spec
    assert (spec.encoder.method, spec.encoder.model, spec.filter.name, spec.weights) == (
        "vectors",
        "my model",
        "none",
        "",
    )
    assert IndexReader.open(tmp_path / "index").store.manifest.fingerprint == spec.fingerprint()
    assert isinstance(spec, IndexSpec)


def test_another_model_name_is_an_error_and_none_is_the_indexs_own(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", AXES)
    build_vectors(tmp_path / "v.npy", tmp_path / "index", made_by="one")

    assert build_vectors(tmp_path / "v.npy", tmp_path / "index").model == "one"
    with pytest.raises(SpecError) as fault:
        build_vectors(tmp_path / "v.npy", tmp_path / "index", made_by="two")

    assert str(fault.value) == (
        f"{tmp_path / 'index'}: the index was made otherwise: made_by is 'one' in the index, 'two' now\n"
        "  hint: leave the option out to go on with the index, or replace it with --rebuild"
    )


def test_a_corpus_does_not_go_into_an_index_of_given_vectors(small_corpus: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", AXES)
    build_vectors(tmp_path / "v.npy", tmp_path / "index")

    with pytest.raises(SpecError) as fault:
        build(small_corpus, tmp_path / "index")

    assert str(fault.value) == (
        f"{tmp_path / 'index'}: the index was made otherwise: it holds vectors that were made elsewhere\n"
        "  hint: go on with it by --vectors, choose another --index, or replace it with --rebuild"
    )


def test_given_vectors_do_not_go_into_an_index_of_a_model(small_corpus: Path, tmp_path: Path) -> None:
    build(small_corpus, tmp_path / "index")
    np.save(tmp_path / "v.npy", AXES)

    with pytest.raises(SpecError) as fault:
        build_vectors(tmp_path / "v.npy", tmp_path / "index")

    assert str(fault.value) == (
        f"{tmp_path / 'index'}: the index was made otherwise: it holds what the model 'mini' encoded, not vectors that "
        "were made elsewhere\n  hint: choose another --index, or replace it with --rebuild"
    )


def test_a_writer_of_another_width_or_type_is_refused(tmp_path: Path) -> None:
    with IndexWriter(tmp_path / "index", 4, index_type="flat") as writer:
        writer.commit()

    with pytest.raises(SpecError, match="vectors have 4 numbers in the index, 3 now"):
        IndexWriter(tmp_path / "index", 3)
    with pytest.raises(SpecError) as fault:
        IndexWriter(tmp_path / "index", 4, index_type="hnsw")
    assert str(fault.value) == (
        f"{tmp_path / 'index'}: the index was made otherwise: index_type is 'flat' in the index, 'hnsw' now\n"
        "  hint: leave the option out to go on with the index, or replace it with --rebuild; "
        f"'ragidx reindex DIR --index {tmp_path / 'index'} --index-type hnsw' makes one of that type beside it, and "
        "encodes nothing"
    )
    with pytest.raises(SpecError, match="unknown index type 'hnws'; did you mean 'hnsw'"):
        IndexWriter(tmp_path / "other", 4, index_type="hnws")


@pytest.mark.parametrize("dim", ["x", "4", 4.0, None, True, 0, -1, 65_537], ids=repr)
def test_a_width_that_is_none_is_an_error_and_makes_no_folder(dim: Any, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as fault:
        IndexWriter(tmp_path / "index", dim)

    assert str(fault.value) == (
        f"dim is {dim!r}, no whole number from 1 to 65,536\n  hint: give the width of the vectors that are added"
    )
    assert not (tmp_path / "index").exists()
    with IndexWriter(tmp_path / "index", np.int64(4)) as writer:  # a number of numpy's is one
        writer.commit()


def test_an_option_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"build_vectors takes no such option: .*'chunk_size'"):
        build_vectors(tmp_path, tmp_path / "index", chunk_size=2)


def test_neither_building_nor_searching_loads_torch(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(_table(text=["a", "b", "c", "d"]))
    code = (
        "import sys, numpy, ragidx\n"
        f"ragidx.build_vectors({str(path)!r}, {str(tmp_path / 'index')!r})\n"
        f"print(len(ragidx.IndexReader.open({str(tmp_path / 'index')!r}).search(numpy.eye(4), k=2)))\n"
        "print(sorted({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "4\n[]\n"
