"""Query vectors of files and of standard input."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest

from ragidx.corpora.errors import QueryError
from ragidx.retriever.query_vectors import read_query_vectors

from ..raising import message_of


@pytest.mark.parametrize(
    ("data", "expected"),
    [("[1, 2.5]", [[1, 2.5]]), ("[[1, 2], [3, 4]]\n", [[1, 2], [3, 4]])],
)
def test_json_is_a_vector_or_a_list_of_them(data: str, expected: list[list[float]], tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text(data)

    assert read_query_vectors(tmp_path / "q.json").tolist() == expected


@pytest.mark.parametrize("array", [np.array([1, 2], "<f4"), np.array([[1, 2]], ">f8"), np.array([[1, 2]], "f2")])
def test_an_npy_file_is_one_too(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", array)

    assert read_query_vectors(tmp_path / "q.npy").tolist() == [[1, 2]]


def test_standard_input_is_either(monkeypatch: pytest.MonkeyPatch) -> None:
    npy = io.BytesIO()
    np.save(npy, np.array([1.0, 2.0]))
    for data in (npy.getvalue(), b"[1, 2]"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

        assert read_query_vectors("-").tolist() == [[1, 2]]


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "holds no vectors: Expecting value: line 1 column 1 (char 0)"),
        (b"{}", "holds no vectors: the JSON is not a list"),
        (b"[]", "holds an array of the shape (1, 0), not (queries, width)"),
        (b"[[1, 2], [3]]", "holds no vectors: vector 2 has 1 dimensions, the first 2"),
        (b'[1, "2"]', 'holds no vectors: vector 1 has at place 2 something that is not a number: "2"'),
        (b"[true]", "holds no vectors: vector 1 has at place 1 something that is not a number: true"),
        (b"[" * 100_000, "holds no vectors: maximum recursion depth exceeded while decoding a JSON array"),
        (f"[{10**400}]".encode(), "holds no vectors: int too large to convert to float"),
        (_npy(np.array(["a"])), "holds no vectors: the array holds <U1, not numbers of at most 64 bits"),
        (
            _npy(np.zeros((1, 2), np.longdouble)),
            "holds no vectors: the array holds float128, not numbers of at",
        ),
        (_npy(np.zeros((1, 1, 1))), "holds an array of the shape (1, 1, 1), not (queries, width)"),
        (_npy(np.array([object()])), "holds no vectors: Object arrays cannot be loaded when allow_pickle=False"),
        (_npy(np.zeros(9))[:90], "holds no vectors: EOF: reading array header"),
    ],
)
def test_what_holds_no_vectors_is_an_error(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.write_bytes(data)

    with pytest.raises(QueryError) as fault:
        read_query_vectors(path)

    assert fault.value.message.startswith(message)
    assert fault.value.where == str(path)
    assert fault.value.hint == "give an .npy array, or JSON: [0.1, 0.2], or a list of such lists"


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="cannot be opened: No such file or directory"):
        read_query_vectors(tmp_path / "none.npy")


@pytest.mark.parametrize("count", [2, 300])
def test_numbers_in_place_of_a_file_are_told_so(count: int) -> None:
    typed = f"[{', '.join(['0.1'] * count)}]"

    assert message_of(QueryError, lambda: read_query_vectors(typed)) == (
        f"{typed[:40]}: a file is expected, not the numbers themselves\n"
        "  hint: write them to a file, or to standard input, which is -"
    )
