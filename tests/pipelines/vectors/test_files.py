"""Files of precomputed vectors: every kind of them, the same ones again, and changed ones."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from ragidx.corpora.vectors.npy import open_npy
from ragidx.indexer.store.verify import verify
from ragidx.pipelines.index import Index
from ragidx.pipelines.vectors import build_vectors
from ragidx.retriever import contents

from .conftest import AXES, content_of, table_of

# files


def test_an_array_that_python_2_wrote_is_read_without_a_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.float32(AXES[:2]))
    data = (tmp_path / "v.npy").read_bytes()
    (tmp_path / "old.npy").write_bytes(data.replace(b"(2, 4), }  ", b"(2L, 4L), }", 1))

    with open_npy(tmp_path / "old.npy", "old.npy") as matrix:
        assert (matrix.total, matrix.width) == (2, 4)


@pytest.mark.slow
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
    table = table_of(rows, kind, id=["a", "b", "c"], text=["one", "two", None])
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
    assert content_of(tmp_path / "index") == {
        "a": ("a", "one", {}, [1, 0, 0, 0]),
        "b": ("b", "two", {}, [0, 0.6, 0.8, 0]),
        "c": ("c", "", {}, [0, 0, 0, -1]),
    }


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_of_numpy_has_row_numbers_for_ids(dtype: str, order: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.asarray(np.diag([1, 2, 3]), dtype, order=order))

    build_vectors(tmp_path / "v.npy", tmp_path / "index")

    assert {name: row[3] for name, row in content_of(tmp_path / "index").items()} == {
        "0": [1, 0, 0],
        "1": [0, 1, 0],
        "2": [0, 0, 1],
    }


def test_a_folder_is_read_whole_and_rows_without_ids_have_the_files_name(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    write(table_of(AXES[:1]), "many/one.parquet")
    np.save(tmp_path / "many/two.npy", AXES[1:3])
    (tmp_path / "many/notes.txt").write_text("made by hand")

    report = build_vectors(tmp_path / "many", tmp_path / "many/index")
    again = build_vectors(tmp_path / "many", tmp_path / "many/index")

    assert list(content_of(tmp_path / "many/index")) == ["one.parquet#0", "two.npy#0", "two.npy#1"]
    assert report.skipped == {"not a file of vectors": 1}
    assert again.skipped == {"not a file of vectors": 1, "a ragidx index": 1}
    assert not again.committed


def test_a_packed_file_is_unpacked(write: Callable[..., Path], tmp_path: Path) -> None:
    packed = tmp_path / "v.parquet.gz"
    packed.write_bytes(gzip.compress(write(table_of()).read_bytes()))

    assert build_vectors(packed, tmp_path / "index").n_chunks == 4


def test_other_columns_are_metadata_and_documents_hold_rows(write: Callable[..., Path], tmp_path: Path) -> None:
    import datetime

    table = table_of(
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

    assert content_of(tmp_path / "index") == {
        "7": (
            "d",
            "x",
            {"day": "2020-01-02", "ok": True, "score": 0.5, "tags": ["a", "b"], "year": 1999},
            [1, 0, 0, 0],
        ),
        "8": ("d", "y", {"day": "2020-01-02", "ok": False}, [0, 1, 0, 0]),
        "9": ("9", "z", {"day": "2020-01-02", "year": 2001}, [0, 0, 1, 0]),
    }
    assert report.n_documents == 2
    assert report.skipped == {
        "column 'other'": 1,
        "the field 'score'": 1,
    }
    assert report.skipped_places["the field 'score'"] == ["vectors.parquet#2: not a finite number"]


def test_columns_can_be_named(write: Callable[..., Path], tmp_path: Path) -> None:
    table = table_of(name=["p", "q", "r", "s"], note=["1", "2", "3", "4"], second=[[float(n), 1.0] for n in range(4)])

    build_vectors(write(table), tmp_path / "index", vector_field="second", id_field="name", text_field="note")

    assert {name: row[1] for name, row in content_of(tmp_path / "index").items()} == dict(
        zip("pqrs", "1234", strict=True)
    )
    assert Index(tmp_path / "index").info().dim == 2


@pytest.mark.slow
def test_vectors_stream_in_bounded_batches(write: Callable[..., Path], tmp_path: Path) -> None:
    """More rows than a batch has, in row groups of another size: every row arrives once, in its place."""
    n = 9_000
    angles = np.linspace(0, 3, n)
    path = write(
        table_of(np.stack([np.cos(angles), np.sin(angles)], axis=1), pa.list_(pa.float64(), 2), n=list(range(n))),
        row_group_size=1_234,
    )
    told: list[float | None] = []

    build_vectors(path, tmp_path / "index", on_progress=lambda p: told.append(p.share))

    reader = Index(tmp_path / "index")
    assert reader.info().n_chunks == n
    for place in (0, 4_095, 4_096, 8_999):
        [row] = contents.rows(reader.searcher.store, [str(place)])
        assert row.metadata == {"n": place}
        assert reader.search_vectors([[np.cos(angles[place]), np.sin(angles[place])]], k=1)[0][0].score > 0.999
    assert told[-1] == 1.0
    assert verify(tmp_path / "index") == []


# again


def test_the_same_file_again_commits_nothing(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(table_of(text=["a", "b", "c", "d"], n=[1, 2, 3, None]))
    build_vectors(path, tmp_path / "index")

    again = build_vectors(path, tmp_path / "index")

    assert (again.committed, again.generation, again.n_unchanged, again.n_added) == (False, 1, 4, 0)


def test_what_changed_is_replaced_and_what_is_gone_is_deleted(write: Callable[..., Path], tmp_path: Path) -> None:
    build_vectors(write(table_of(id=["a", "b", "c", "d"], text=["1", "2", "3", "4"])), tmp_path / "index")

    report = build_vectors(
        write(table_of([AXES[0], AXES[3], AXES[2], AXES[1]], id=["a", "b", "c", "e"], text=["1", "2", "three", "5"])),
        tmp_path / "index",
    )

    assert (report.n_unchanged, report.n_changed, report.n_added, report.n_removed) == (1, 2, 1, 1)
    assert (report.committed, report.n_chunks, report.n_documents) == (True, 4, 4)
    assert content_of(tmp_path / "index") == {
        "a": ("a", "1", {}, [1, 0, 0, 0]),
        "b": ("b", "2", {}, [0, 0, 0, 1]),
        "c": ("c", "three", {}, [0, 0, 1, 0]),
        "e": ("e", "5", {}, [0, 1, 0, 0]),
    }


@pytest.mark.slow
def test_neither_building_nor_searching_loads_torch(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(table_of(text=["a", "b", "c", "d"]))
    code = (
        "import sys, numpy, ragidx\nfrom ragidx.pipelines.vectors import build_vectors\n"
        f"build_vectors({str(path)!r}, {str(tmp_path / 'index')!r})\n"
        f"print(len(ragidx.Index({str(tmp_path / 'index')!r}).search_vectors(numpy.eye(4), k=2)))\n"
        "print(sorted({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "4\n[]\n"
