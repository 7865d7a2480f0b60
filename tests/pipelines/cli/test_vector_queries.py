"""`ragidx query --vector`, and what can be asked of an index of precomputed vectors."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragidx.pipelines.vectors import RowWriter

from ..conftest import Done

Run = Callable[..., Done]


def test_a_row_of_a_document_is_named_beside_it(run: Run, folder: Path) -> None:
    pq.write_table(pa.table({"vector": [[1.0, 0], [0, 1.0]], "id": ["r1", "r2"], "doc_id": ["d", "d"]}), "v.parquet")
    run("build", "--vectors", "v.parquet")

    done = run("query", "--vector", "-", "-k", "1", stdin=b"[0, 1]")

    assert done.out == " #  score  source\n 1  1.000  d  row r2\n"
    assert run("delete", "--id", "r2").out.splitlines()[0] == "deleted  1 chunk: a part of 1 document"


@pytest.mark.usefixtures("vectors")
def test_a_question_in_words_is_answered_by_the_texts_of_vectors_without_a_model(run: Run) -> None:
    run("build", "--vectors", "vectors.parquet")

    done = run("query", "who signed the lease?", "-k", "1")
    answer = json.loads(run("query", "mill", "--json").out)
    dense = run("query", "mill", "--mode", "dense")

    assert (done.status, done.err) == (0, "")
    assert re.fullmatch(r" #  score  source\n 1  \d\.\d{3}  a\n           The lease was signed\.\n", done.out)
    assert answer["mode"] == "lexical"
    assert [(hit["chunk_id"], hit["dense"], hit["bm25"] == hit["score"]) for hit in answer["hits"]] == [
        ("b", None, True)
    ]
    assert dense.status == 2
    assert "the index holds precomputed vectors: it has no model that encodes a text" in dense.err


@pytest.mark.usefixtures("vectors")
def test_a_vector_is_asked_from_a_file_or_standard_input(run: Run, folder: Path) -> None:
    run("build", "--vectors", "vectors.parquet")
    (folder / "q.json").write_text("[3, 4, 0, 0]")
    npy = io.BytesIO()
    np.save(npy, np.array([3.0, 4, 0, 0]))

    done = run("query", "--vector", "q.json", "-k", "2")

    assert (done.status, done.err) == (0, "")
    assert done.out == (
        " #  score  source\n 1  0.800  b\n           The mill stands.\n 2  0.600  a\n           The lease was signed.\n"
    )
    assert run("query", "--vector", "-", "-k", "2", stdin=npy.getvalue()).out == done.out
    assert run("query", "--vector", "-", "-k", "2", stdin=b"[3, 4, 0, 0]").out == done.out


@pytest.mark.usefixtures("vectors")
def test_several_vectors_have_several_answers(run: Run, folder: Path) -> None:
    run("build", "--vectors", "vectors.parquet")
    np.save(folder / "q.npy", np.eye(4)[:2])

    done = run("query", "--vector", "q.npy", "-k", "1")
    found = json.loads(run("query", "--vector", "q.npy", "-k", "1", "--where", "year < 1800", "--json").out)

    assert done.out == (
        "query 1\n #  score  source\n 1  1.000  a\n           The lease was signed.\n"
        "\nquery 2\n #  score  source\n 1  1.000  b\n           The mill stands.\n"
    )
    assert {name: found[name] for name in ("vector", "where", "k", "mode")} == {
        "vector": "q.npy",
        "where": "year < 1800",
        "k": 1,
        "mode": "dense",
    }
    assert [[hit["chunk_id"] for hit in answer["hits"]] for answer in found["answers"]] == [["b"], ["b"]]
    assert found["answers"][1]["hits"][0] == {
        "rank": 1,
        "score": 1.0,
        "text": "The mill stands.",
        "doc_id": "b",
        "chunk_id": "b",
        "start": 0,
        "end": 16,
        "heading": "",
        "metadata": {"year": 1790},
        "dense": 1.0,
        "bm25": None,
        "line": None,
        "page": None,
        "context": None,
        "also": [],
    }


@pytest.mark.usefixtures("index")
def test_an_index_of_a_model_answers_vectors_and_shorter_ones_too(run: Run, folder: Path) -> None:
    dim = json.loads(run("info", "--json").out)["dim"]
    np.save(folder / "q.npy", np.ones(dim))

    whole = json.loads(run("query", "--vector", "q.npy", "-k", "6", "--json").out)
    short = json.loads(run("query", "--vector", "q.npy", "-k", "6", "--dim", "4", "--json").out)
    again = json.loads(
        run("query", "--vector", "q.npy", "-k", "6", "--dim", "4", "--rerank-dim", str(dim), "--json").out
    )
    words = json.loads(run("query", "the lease of the house", "-k", "6", "--dim", "4", "--json").out)

    assert len(whole["answers"][0]["hits"]) == len(words["hits"]) == 6
    assert [hit["score"] for hit in short["answers"][0]["hits"]] != [
        hit["score"] for hit in whole["answers"][0]["hits"]
    ]
    assert [hit["chunk_id"] for hit in again["answers"][0]["hits"]] == [
        hit["chunk_id"] for hit in whole["answers"][0]["hits"]
    ]


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give a question, or --vector FILE, or --queries FILE"),
        (("words", "--vector", "q.npy"), "a question and --vector exclude each other: remove all but one"),
        (
            ("--vector", "q.npy", "--instruction", "i"),
            "--instruction and --vector exclude each other: nothing is encoded",
        ),
        (("--vector", "q.npy", "--model", "m"), "--model and --vector exclude each other: nothing is encoded"),
        (("--vector", "q.npy", "--adapter", "m"), "--adapter and --vector exclude each other: nothing is encoded"),
        (("--vector", "q.npy", "--dtype", "float32"), "--dtype and --vector exclude each other: nothing is encoded"),
        (("--vector", "q.npy", "--pooler", "m"), "--pooler and --vector exclude each other: nothing is encoded"),
    ],
)
def test_what_a_query_cannot_have_beside_a_vector_is_named(args: tuple[str, ...], message: str, run: Run) -> None:
    done = run("query", *args)

    assert (done.status, done.err.splitlines()[-1]) == (2, f"Error: {message}")


@pytest.mark.usefixtures("vectors")
def test_fewer_hits_than_were_asked_for_are_told(run: Run) -> None:
    run("build", "--vectors", "vectors.parquet")

    done = run("query", "--vector", "-", "--where", "year > 1900", stdin=b"[1, 1, 1, 1]")

    assert (done.status, done.err) == (0, "1 hit, 10 were requested: no other chunk matches --where.\n")


def test_an_index_without_a_row_says_so(run: Run, folder: Path) -> None:
    with RowWriter(folder / "ragidx-index", 2) as writer:
        writer.commit()

    assert run("query", "--vector", "-", stdin=b"[1, 0]") == (0, "", "The index holds no chunk.\n")
