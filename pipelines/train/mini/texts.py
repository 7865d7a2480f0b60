"""The training corpora: documents, and the teacher's texts and vectors, laid out as in their README.

`text/shard-0N.jsonl.zst`, `pairs/*.jsonl.zst` (Zstandard, one JSON object a line) and `teacher/` (int8 vectors,
rows.parquet). The last HELD_OUT documents of the last shard are for held-out loss and never trained on.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import zstandard
from numpy.typing import NDArray

SHARDS = 4
HELD_OUT = 200


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a `.jsonl.zst` file, one a line."""
    with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
        for line in io.TextIOWrapper(stream, encoding="utf-8", newline="\n"):
            yield json.loads(line)


def training_documents(corpora: Path) -> Iterator[str]:
    """Texts of all documents but the held-out ones, shard by shard."""
    *full, last = (corpora / "text" / f"shard-{number:02}.jsonl.zst" for number in range(SHARDS))
    for path in full:
        yield from (document["text"] for document in json_lines(path))
    yield from [document["text"] for document in json_lines(last)][:-HELD_OUT]


def teacher_texts(corpora: Path) -> list[str]:
    """The text of every teacher vector, in the order of `rows.parquet`."""
    columns = pq.read_table(corpora / "teacher" / "rows.parquet").to_pydict()
    wanted: dict[str, list[int]] = defaultdict(list)
    for place, file in enumerate(columns["file"]):
        wanted[file].append(place)
    texts = [""] * len(columns["file"])
    for file, places in wanted.items():
        if file.startswith("text/"):
            bodies = {document["id"]: document["text"] for document in json_lines(corpora / file)}
            for place in places:
                texts[place] = bodies[columns["id"][place]][columns["start"][place] : columns["end"][place]]
        else:
            queries = [pair["query"] for pair in json_lines(corpora / file)]
            for place in places:
                texts[place] = queries[columns["row"][place]]
    return texts


def teacher_vectors(corpora: Path) -> NDArray[np.float32]:
    """(n, 384) teacher vectors, unit length, minus their mean."""
    raw = np.load(corpora / "teacher" / "vectors.i8.npy", allow_pickle=False).astype(np.float32)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    return np.asarray(unit - unit.mean(axis=0), dtype=np.float32)
