"""What the tests of a sweep share: a BEIR corpus, indexes of given rows, and queries as vectors."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from ragidx.pipelines.experiments.evaluate.report import EvaluationReport
from ragidx.pipelines.vectors import build_vectors

from ....measuring import evaluated

SUBJECTS = ["river", "mill", "lease", "tower", "bees", "planet", "printing", "bread", "music", "bridge", "medicine"]


sweep = functools.partial(evaluated, costs=True)


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """Eleven documents, two of the queries judged; a judged query that is not there."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    texts = {f"d{n}": f"The {word} and the story of its {word}." for n, word in enumerate(SUBJECTS)}
    write_lines(folder / "corpus.jsonl", [{"_id": name, "title": "", "text": text} for name, text in texts.items()])
    asked = {"q1": "the story of the bees", "q2": "music", "q3": "nobody judged this"}
    write_lines(folder / "queries.jsonl", [{"_id": name, "text": text} for name, text in asked.items()])
    lines = ["query-id\tcorpus-id\tscore", "q1\td4\t1", "q2\td8\t1", "q9\td0\t1"]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def given_index(tmp_path: Path) -> Callable[[Sequence[Sequence[float]]], Path]:
    """An index of precomputed vectors, which needs no model."""

    def make(vectors: Sequence[Sequence[float]]) -> Path:
        np.save(tmp_path / "given.npy", np.array(vectors, "f4"))
        build_vectors(tmp_path / "given.npy", tmp_path / "given", index_type="flat")
        return tmp_path / "given"

    return make


def write_lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def random_rows(rows: int, dim: int, seed: int = 0) -> list[list[float]]:
    found: list[list[float]] = np.random.default_rng(seed).standard_normal((rows, dim)).tolist()
    return found


def rows_of(report: EvaluationReport) -> list[tuple[str | None, int | None, str | None]]:
    """Filter, width and index type of each row of vectors alone."""
    return [
        (row.configuration.filter, row.configuration.dim, row.configuration.index_type) for row in report.tasks[0].rows
    ]


def widths_of(report: EvaluationReport, name: str) -> list[int | None]:
    """Of a filter, without exact search at full width."""
    return [dim for filter_name, dim, index_type in rows_of(report) if filter_name == name and index_type != "exact"]


def means_of(report: EvaluationReport, measure: str) -> list[float]:
    """Of the rows of vectors alone."""
    return [row.means[measure] for row in report.tasks[0].rows]


@pytest.fixture
def asked(tmp_path: Path) -> dict[str, Path]:
    """Two queries, the second of which is judged, and their vectors of 4 dimensions."""
    files = {"queries": tmp_path / "q.jsonl", "qrels": tmp_path / "qrels.tsv", "vectors": tmp_path / "q.npy"}
    write_lines(files["queries"], [{"_id": "first", "text": "any"}, {"_id": "second", "text": "other"}])
    files["qrels"].write_text("query-id\tcorpus-id\tscore\nsecond\t2\t1\n")
    np.save(files["vectors"], np.array([[1, 0, 0, 0], [0, 0, 9, 1]], "f4"))
    return files
