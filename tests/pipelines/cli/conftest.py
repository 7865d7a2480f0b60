"""What the tests of several commands share: texts, options, indexes of precomputed vectors, and how output is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ..conftest import Done

QUESTION = "who signed the lease of the house?"
ANSWER = "The lease of the house by the lake was signed by Ada Lovelace in 1840."
TINY = ("--model", "tiny", "--method", "classical", "--tau", "2", "--device", "cpu", "--dtype", "float32")


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
