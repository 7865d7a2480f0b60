"""`ragidx build --vectors`, with and without a model for questions, and `ragidx info` of such an index."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ragidx

from ..conftest import Done

Run = Callable[..., Done]


@pytest.mark.wheel
@pytest.mark.usefixtures("vectors")
def test_a_build_from_vectors_tells_what_it_made(run: Run) -> None:
    done = run("build", "--vectors", "vectors.parquet")

    *lines, size, seconds = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    assert lines == [
        "index      ragidx-index (generation 1)",
        "vectors    4 dimensions, precomputed",
        "rows       4: 4 new, 0 changed, 0 unchanged",
        "documents  4",
        "words      BM25, not stemmed: no language is clear; --stemmer names one",
    ]
    assert re.fullmatch(r"size       \d+\.\d KiB", size)
    assert re.fullmatch(r"time       \d+\.\d s", seconds)  # four rows say nothing of a rate


def test_what_is_left_out_is_told_on_stderr_and_strict_ends_with_1(run: Run, folder: Path) -> None:
    np.save(folder / "v.npy", np.array([[1.0, 0], [0, 0], [0, 1]]))

    done = run("build", "--vectors", "v.npy")
    strict = run("build", "--vectors", "v.npy", "--strict", "--rebuild")

    assert (done.status, done.err) == (0, "Skipped: 1 x the vector is zero\n    v.npy#1: '1'\n")
    assert (strict.status, strict.out) == (1, "")
    assert strict.err == (
        "Error: v.npy#1: skipped: the vector is zero: '1'\n  hint: repair or exclude it, or build without --strict\n"
    )


@pytest.mark.usefixtures("vectors")
def test_a_build_for_machines_has_the_report_of_every_build(run: Run) -> None:
    done = run("build", "--vectors", "vectors.parquet", "--json")

    report = json.loads(done.out)
    steps = [json.loads(line)["progress"] for line in done.err.splitlines()]
    assert done.status == 0
    assert {name: report[name] for name in ("method", "dim", "n_documents", "n_chunks", "n_added", "n_encoded")} == {
        "method": "vectors",
        "dim": 4,
        "n_documents": 4,
        "n_chunks": 4,
        "n_added": 4,
        "n_encoded": 0,
    }
    assert (steps[-1]["last"], steps[-1]["n_bytes"]) == (True, steps[-1]["total_bytes"])


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give CORPUS or --vectors FILE"),
        (("corpus", "--vectors", "vectors.parquet"), "give CORPUS or --vectors FILE, not both"),
        (("corpus", "--vector-field", "v"), "--vector-field names a column of --vectors"),
        (
            ("--vectors", "vectors.parquet", "--method", "echo"),
            "--method is about the model that encodes questions: add --model, or remove --method",
        ),
        (
            ("--vectors", "vectors.parquet", "--chunk-size", "99"),
            "--chunk-size does not apply to precomputed vectors: remove it",
        ),
        (
            ("--vectors", "vectors.parquet", "--tau", "2"),
            "--tau is about the model that encodes questions: add --model, or remove --tau",
        ),
    ],
)
def test_arguments_that_do_not_go_together_are_named(args: tuple[str, ...], message: str, run: Run) -> None:
    done = run("build", *args)

    assert (done.status, done.out) == (2, "")
    assert done.err.splitlines()[-1] == f"Error: {message}"


def test_vectors_that_take_more_memory_than_was_allowed_are_reported(run: Run, folder: Path) -> None:
    np.save(folder / "v.npy", np.random.default_rng(0).standard_normal((600, 1024), np.float32))

    over, within = (
        run("build", "--vectors", "v.npy", "--rebuild", "--max-memory", most, "--json") for most in ("900", "1MB")
    )

    found = json.loads(over.out)["over_memory"]
    assert found == {"search_bytes": pytest.approx(600 * 2 * 1024, rel=0.01), "max_memory": 900}
    assert "over_memory" not in json.loads(within.out)


@pytest.mark.usefixtures("vectors")
def test_info_says_in_words_that_the_vectors_were_made_elsewhere(run: Run) -> None:
    run("build", "--vectors", "vectors.parquet")

    lines = run("info").out.splitlines()

    assert {line for line in lines if line.startswith(("model", "encoder", "filter", "chunks", "metadata"))} == {
        "model        none: precomputed vectors",
        "encoder      none: no question is compared with the vectors but one that is a vector (--vector)",
        "filter       none: 4 raw coordinates",
        "chunks       one per row",
        "metadata     year (int)",
    }


@pytest.fixture
def encoded(folder: Path, model: Path) -> Path:
    """What `tiny` makes of three texts, as `encoded.parquet`; the same without texts as `encoded.npy`."""
    texts = ["The lease was signed.", "The mill stands.", "Bees dance."]
    rows = ragidx.load_encoder(str(model), method="classical").encode_document(texts)
    pq.write_table(pa.table({"id": ["a", "b", "c"], "vector": list(rows), "text": texts}), folder / "encoded.parquet")
    np.save(folder / "encoded.npy", rows)
    return folder / "encoded.parquet"


CLASSICAL = ("--model", "tiny", "--method", "classical")


@pytest.mark.slow
@pytest.mark.usefixtures("encoded")
def test_with_the_model_of_the_vectors_questions_in_words_are_answered(run: Run, folder: Path) -> None:
    built = run("build", "--vectors", "encoded.parquet", *CLASSICAL, "--device", "cpu", "--offline")
    again = run("build", "--vectors", "encoded.parquet")
    asked = run("query", "The mill stands.", "-k", "1", "--mode", "dense")
    (folder / "q.jsonl").write_text('{"_id": "q1", "text": "Bees dance."}\n')
    ran = run("query", "--queries", "q.jsonl", "--run", "out.trec", "-k", "1")

    assert (built.status, built.err) == (0, "")
    assert built.out.splitlines()[:5] == [
        "index      ragidx-index (generation 1)",
        "vectors    32 dimensions, precomputed",
        "questions  by tiny: 3 texts encoded again, cosine 1.0000 (median), 1.0000 (least)",
        "rows       3: 3 new, 0 changed, 0 unchanged",
        "documents  3",
    ]
    assert re.search(r"time       \d+\.\d s \(and \d+\.\d s for the model\)\n$", built.out)
    assert "questions  by tiny, unchanged\n" in again.out
    assert asked.out.splitlines()[1] == " 1  1.000  b"
    assert (ran.status, (folder / "out.trec").read_text().split()[:4]) == (0, ["q1", "Q0", "c", "1"])


@pytest.mark.usefixtures("encoded")
def test_info_names_the_model_of_questions_and_says_whose_the_vectors_are(run: Run) -> None:
    run("build", "--vectors", "encoded.npy", *CLASSICAL)

    lines = dict(line.split(maxsplit=1) for line in run("info").out.splitlines())

    assert re.fullmatch(r"tiny \(weights [0-9a-f]{12}\); precomputed vectors", lines["model"])
    assert lines["encoder"] == "classical, mean pooling, causal attention, last layer"
    assert lines["filter"] == "none: 32 raw coordinates"
    assert json.loads(run("info", "--json").out)["spec"]["encoder"]["method"] == "classical"
