"""Files of vectors that are damaged, missing, or written while they are read: one error that names the file."""

from __future__ import annotations

import gzip
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.vectors.files import vector_batches
from ragidx.pipelines.index import Index
from ragidx.pipelines.vectors import RowWriter, build_vectors
from ragidx.retriever import contents

from ...raising import message_of
from .conftest import AXES, table_of

# what is broken in a file


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


OTHER = "float16, float32 or float64"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("v.parquet", b"PAR1 and no more PAR1", "damaged Parquet data: "),
        ("v.arrow", b"ARROW1\0\0 and no more", "damaged Arrow data: "),
        ("v.feather", b"FEA1 and more FEA1", "Feather version 1: write it again as version 2"),
        ("v.npy", b"\x93NUMPY\x01\0 and no more", "damaged .npy data: "),
        ("v.npy", b"no magic at all", "damaged .npy data: "),
        ("v.npy", npy(AXES).replace(b"(4, 4), }", b"(4, 4),  "), "damaged .npy data: "),
        ("v.npy", npy(AXES)[:-1], "damaged .npy data: 63 bytes of numbers, not the 64 of the shape (4, 4)"),
        ("v.npy", npy(np.zeros(4)), "the array has the shape (4,), not (rows, width)"),
        ("v.npy", npy(np.zeros((2, 2), np.int64)), f"the array holds int64, not {OTHER}"),
        ("v.npy", npy(np.zeros((2, 2), np.complex64)), f"the array holds complex64, not {OTHER}"),
        ("v.npy", npy(np.array([[object()]])), f"the array holds object, not {OTHER}"),
        ("v.npy", npy(np.zeros((3, 0))), "the array holds vectors of 0 dimensions"),
        ("v.txt", b"1 2 3", "it is not a file of vectors"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(
    name: str, data: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)

    with pytest.raises(CorpusError) as fault:
        build_vectors(tmp_path / name, tmp_path / "index")

    assert fault.value.message.startswith(message)
    assert fault.value.where == name
    assert fault.value.hint


def test_an_array_has_no_columns(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", AXES)

    with pytest.raises(CorpusError, match=r"v\.npy: an .npy file has no columns"):
        build_vectors(tmp_path / "v.npy", tmp_path / "index", id_field="id")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere.npy", "nowhere.npy: cannot be opened: No such file or directory"),
        ("-", "-: vectors are not read from standard input"),
        ("empty", "empty: there is no file of vectors"),
    ],
)
def test_where_there_is_no_file_of_vectors_an_error_says_which_there_can_be(
    path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    forms = "give one of .parquet, .arrow, .feather, .ipc, .npy, or a folder of them"
    if path == "empty":
        forms = "name a parquet, arrow, feather or npy file, or a folder with such files"

    assert message_of(CorpusError, lambda: build_vectors(path, "index")) == f"{message}\n  hint: {forms}"


@pytest.mark.slow
def test_a_file_that_breaks_in_the_middle_leaves_the_index_as_it_was(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    path = write(table_of(id=["a", "b", "c", "d"]))
    build_vectors(path, tmp_path / "index")
    table = table_of(np.random.default_rng(0).standard_normal((20_000, 4)))
    write(table, row_group_size=5_000, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 2_000] = bytes(2_000)
    path.write_bytes(data)

    with pytest.raises(CorpusError, match="damaged Parquet data"):
        build_vectors(path, tmp_path / "index")

    assert Index(tmp_path / "index").generation == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of a sound file of each kind."""
    folder = tmp_path_factory.mktemp("whole")
    table = table_of(np.random.default_rng(0).standard_normal((30, 4)), id=list(range(30)), text=["caf\u00e9"] * 30)
    pq.write_table(table, folder / "v.parquet")
    for name, make in (("v.arrow", pa.ipc.new_file), ("v.ipc", pa.ipc.new_stream)):
        with make(folder / name, table.schema) as file:
            file.write_table(table)
    np.save(folder / "v.npy", np.ones((9, 4)))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
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
        pq.write_table(table_of(vectors), path, row_group_size=5_000)
    elif name == "v.feather":
        feather.write_feather(table_of(vectors), path, chunksize=5_000)
    else:
        table = table_of(vectors)
        with (pa.ipc.new_file if name == "v.arrow" else pa.ipc.new_stream)(path, table.schema) as file:
            file.write_table(table, max_chunksize=5_000)
    with RowWriter(tmp_path / "index", 8) as writer:
        writer.add_vectors(["kept"], np.ones((1, 8)))
        writer.commit()
    waiting = [CHANGES[change]]

    def on_progress(_: object) -> None:
        if waiting:
            waiting.pop()(path)

    os.utime(path, (1, 1))  # whatever is written now has another time
    said = message_of(CorpusError, lambda: build_vectors(path, tmp_path / "index", on_progress=on_progress))

    assert not waiting
    assert said == (
        f"{name}: the file changed while it was read\n"
        "  hint: wait until nothing writes it, and run the same command again"
    )
    reader = Index(tmp_path / "index")
    assert (reader.generation, reader.info().n_chunks) == (1, 1)
    assert contents.rows(reader.searcher.store, ["kept"])[0].chunk_id == "kept"
