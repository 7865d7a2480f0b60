"""Broken rows and columns in files of vectors: left out and counted, or an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ragidx.corpora.errors import CorpusError
from ragidx.pipelines.ingest.report import StrictError
from ragidx.pipelines.vectors import build_vectors

from ...raising import message_of
from .conftest import AXES, content_of, table_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "reason", "detail"),
    [
        ([[1, 0], [0, 0]], "the vector is zero", "'b'"),
        ([[1, 0], [1, float("nan")]], "the vector holds a number that is not finite", "'b'"),
        ([[1, 0], [1, float("inf")]], "the vector holds a number that is not finite", "'b'"),
        ([[1, 0], None], "the vector is missing", ""),
        ([[1, 0], [1, None]], "a number of the vector is missing", ""),
        ([[1, 0], [1, 2, 3]], "the vector has another width", "3 dimensions, not 2"),
        ([[1, 0], []], "the vector has another width", "0 dimensions, not 2"),
    ],
)
def test_a_broken_vector_is_left_out_and_counted_and_ends_a_strict_build(
    rows: list[Any], reason: str, detail: str, write: Callable[..., Path], tmp_path: Path
) -> None:
    path = write(table_of([*rows, [0, 1]], id=["a", "b", "c"]))

    with pytest.raises(StrictError) as fault:
        build_vectors(path, tmp_path / "index", strict=True)
    report = build_vectors(path, tmp_path / "index")

    whole = f"{reason}: {detail}" if detail else reason
    hint = "repair or exclude it, or build without `strict=True`"
    assert str(fault.value) == f"vectors.parquet#1: skipped: {whole}\n  hint: {hint}"
    assert (report.n_chunks, report.skipped) == (2, {reason: 1})
    assert report.skipped_places == {reason: [f"vectors.parquet#1: {detail}" if detail else "vectors.parquet#1"]}
    assert {name: row[3] for name, row in content_of(tmp_path / "index").items()} == {"a": [1, 0], "c": [0, 1]}


def test_holes_in_lists_of_fixed_size_are_found(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(table_of([[1, 0], None, [None, 1], [0, 1]], pa.list_(pa.float32(), 2)))

    report = build_vectors(path, tmp_path / "index")

    assert report.skipped == {"the vector is missing": 1, "a number of the vector is missing": 1}
    assert {name: row[3] for name, row in content_of(tmp_path / "index").items()} == {"0": [1, 0], "3": [0, 1]}


def test_ids_that_are_missing_or_repeated_are_left_out(write: Callable[..., Path], tmp_path: Path) -> None:
    vectors = np.ones((6, 2))
    report = build_vectors(write(table_of(vectors, id=["a", None, "", "a", "b", "b"])), tmp_path / "index")

    assert report.skipped == {"the id is missing": 2, "the id was seen before": 2}
    assert report.skipped_places["the id was seen before"] == ["vectors.parquet#3: 'a'", "vectors.parquet#5: 'b'"]


def test_text_that_is_not_utf8_is_damage(write: Callable[..., Path], tmp_path: Path) -> None:
    offsets, data = np.array([0, 4, 8, 12], "<i4"), b"goodcaf\xe9good"
    bad = pa.StringArray.from_buffers(3, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data))

    with pytest.raises(CorpusError, match=r"vectors\.parquet: damaged Parquet data: .*Invalid UTF8"):
        build_vectors(write(table_of(AXES[:3], text=bad)), tmp_path / "index")


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
            "'y' list<element: double>\n  hint: say which one to read with `vector_field`",
        ),
        (
            table_of(np.zeros((0, 2))),
            "{path}: there is no vector that can be read (1 x holds no row; first: vectors.parquet)\n"
            "  hint: repair the file, or name another",
        ),
        (
            table_of([None, [0.0, 0.0]]),
            "{path}: there is no vector that can be read (1 x the vector is missing; 1 x the vector is zero; "
            "first: vectors.parquet#0)\n"
            "  hint: repair the file, or name another",
        ),
        (
            table_of([[], []]),
            "vectors.parquet: the column 'vector' holds vectors of 0 dimensions\n  hint: give vectors of 1 to 65,536",
        ),
        (
            table_of([[1.0] * 65_537]),
            "vectors.parquet: the column 'vector' holds vectors of 65,537 dimensions\n"
            "  hint: give vectors of 1 to 65,536",
        ),
    ],
)
def test_a_file_without_vectors_is_an_error(
    table: pa.Table, message: str, write: Callable[..., Path], tmp_path: Path
) -> None:
    path = write(table)

    assert message_of(CorpusError, lambda: build_vectors(path, tmp_path / "index")) == message.format(path=path)


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
        build_vectors(write(table_of(id=["a", "b", "c", "d"])), tmp_path / "index", **options)

    found = " (found: 'vector' list<element: float>, 'id' string)"
    assert (fault.value.message, fault.value.where) == (message + found, "vectors.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 3)])
def test_vectors_of_another_width_throughout_are_an_error_at_once(
    kind: Any, write: Callable[..., Path], tmp_path: Path
) -> None:
    build_vectors(write(table_of()), tmp_path / "index")

    assert message_of(CorpusError, lambda: build_vectors(write(table_of(AXES[:, :3], kind)), tmp_path / "index")) == (
        "vectors.parquet: the column 'vector' holds vectors of 3 dimensions; those of the index, or of the files "
        "before, have 4\n  hint: vectors of two models do not mix: choose another `index`, or replace this one with "
        "`rebuild=True`"
    )
    assert build_vectors(write(table_of(AXES[:3, :3], kind)), tmp_path / "index", rebuild=True).dim == 3
