"""What the tests of several commands share: texts, options, indexes of precomputed vectors, and how output is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragidx.indexer.ann import index_types, tuning
from ragidx.pipelines.index import Index
from ragidx.pipelines.vectors import RowWriter

from ..conftest import Done

INDEX = Path("ragidx-index")
QUESTION = "who signed the lease of the house?"
ANSWER = "The lease of the house by the lake was signed by Ada Lovelace in 1840."
TINY = ("--model", "tiny", "--method", "classical", "--tau", "2", "--device", "cpu", "--dtype", "float32")


@pytest.fixture(autouse=True)
def no_plain_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: no line of progress after ten seconds; tests of these lines set their own."""
    monkeypatch.setattr("ragidx.pipelines.cli.console.PLAIN_EVERY_S", 600.0)


def hits_of(done: Done) -> list[dict[str, Any]]:
    assert (done.status, done.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.out)["hits"]
    return found


def json_of(done: Done) -> dict[str, Any]:
    assert (done.status, done.err) == (0, "")
    assert done.out.isascii()
    data: dict[str, Any] = json.loads(done.out)
    return data


@pytest.fixture
def vectors(folder: Path) -> Path:
    """Four axes with texts and years, as `vectors.parquet`."""
    table = pa.table(
        {
            "id": ["a", "b", "c", "d"],
            "embedding": pa.array(np.eye(4).tolist(), pa.list_(pa.float32())),
            "text": ["The lease was signed.", "The mill stands.", "Bees dance.", ""],
            "year": [1840, 1790, 1946, None],
        }
    )
    pq.write_table(table, folder / "vectors.parquet")
    return folder / "vectors.parquet"


@pytest.fixture
def given(folder: Path) -> None:
    """`ragidx-index`, of given vectors of 16 dimensions: 300, 100 of which 20 are dead, and 50."""
    raw = np.random.default_rng(0).standard_normal((450, 16)).astype(np.float32)
    for first, end in ((0, 300), (300, 400)):
        with RowWriter(INDEX, dim=16, made_by="mine") as writer:
            writer.add_vectors([f"v{n}" for n in range(first, end)], raw[first:end])
            writer.commit()
    with Index(INDEX).batch() as batch:
        batch.add_vectors([f"v{n}" for n in range(400, 450)], raw[400:])
        batch.delete([f"v{n}" for n in range(300, 320)])


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of 200 rows are large."""
    for module in (index_types, tuning):
        monkeypatch.setattr(module, "MIN_ROWS", 200)


def fields(done: Done) -> dict[str, str]:
    """Name and value of each line of a report; sizes are not the same everywhere."""
    assert (done.status, done.err) == (0, "")
    pairs = (re.fullmatch(r"(\S+) +(.*)", line) for line in done.out.splitlines())
    found = {pair[1]: pair[2] for pair in pairs if pair}
    found.pop("folder", None)
    if "size" in found:
        assert re.fullmatch(
            r"[\d.]+ (B|KiB|MiB)(, before [\d.]+ (B|KiB|MiB)|, [\d,]+ bytes a (chunk|row))?", found.pop("size")
        )
    return found
