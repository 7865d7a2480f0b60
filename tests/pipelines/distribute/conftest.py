"""Corpora that are divided, and what an index holds, to be compared with one built on one machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ragidx
from ragidx.indexer.store import Store
from ragidx.pipelines import distribute
from ragidx.pipelines.distribute import Division
from ragidx.pipelines.ingest.report import BuildReport

WORDS = ["mill", "river", "bees", "tower", "lease", "wheat", "radio", "spring", "flower", "dance", "antenna", "house"]


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """A corpus of these files."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def lines(records: Iterable[Any]) -> str:
    """JSON Lines."""
    return "".join(json.dumps(record) + "\n" for record in records)


def build_divided(corpus: Path | list[Path], n: int, stage: Path, index: Path, **options: Any) -> BuildReport:
    """Divide, build each shard, the last one first, and commit."""
    division = distribute.divide(corpus, n, stage, index, **options)
    for number in reversed(range(n)):
        distribute.build_shard(Division.open(stage), number)
    return distribute.commit(division)


def content(index: Path) -> list[tuple[Any, ...]]:
    """All that is alive in an index, in the order of chunk ids: rows, and their vectors bit for bit."""
    store = Store.open(index)
    alive = range(store.n_rows)
    found = [
        (row.chunk_id, row.doc_id, row.doc_hash, row.owner, row.text, row.heading, row.line, dict(row.metadata), vector)
        for row, vector in zip(store.rows(alive), (one.tobytes() for one in store.vectors(alive)), strict=True)
    ]
    return sorted(found, key=lambda row: (row[0], row[5]))


def answers(index: Path, **options: Any) -> list[tuple[str, float, float | None, float | None]]:
    """What some questions find, with scores."""
    opened = ragidx.Index(index)
    hits = [hit for query in ("old mill", "bees dance", "radio tower river") for hit in opened.search(query, **options)]
    return [(hit.chunk_id, hit.score, hit.dense, hit.bm25) for hit in hits]


def same(one: Path, other: Path) -> None:
    """Two indexes hold the same, and answer alike in every mode."""
    assert content(one) == content(other)
    for mode in ("dense", "lexical", "hybrid"):
        assert answers(one, mode=mode) == answers(other, mode=mode)
