"""What an index tells, read through `Store` alone: its content, and with the generation its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragidx.indexer.lexical.bm25 import Bm25
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store import Store

QUESTIONS = ("an ant and a cow", "text 1 of d1", "one bee, three cows")


@dataclass(frozen=True, slots=True)
class Content:
    """Every chunk that is alive by its id, with its vector's bytes, and the first hits of some queries with scores."""

    chunks: Mapping[str, tuple[object, ...]]
    answers: tuple[tuple[tuple[str, float], ...], ...]


@dataclass(frozen=True, slots=True)
class Words:
    """The lexical part: how many live rows and terms there are, and each live chunk's scores for some questions."""

    spec: LexicalSpec
    counts: tuple[int, int]
    scores: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class State:
    """A committed state: equal to another one if nobody can tell them apart, whatever lies on the disk."""

    generation: int
    content: Content
    words: Words | None


def state_of(index: Path) -> State:
    """The committed state."""
    store = Store.open(index)
    return State(store.manifest.generation, _content(store), words_of(store))


def words_of(store: Store, questions: Sequence[str] = QUESTIONS) -> Words | None:
    """The lexical part of the committed state; None if it has none."""
    spec = store.manifest.lexical
    if spec is None:
        return None
    bm25, analyzer = Bm25([view.postings for view in store.views]), spec.make_analyzer()
    none = np.zeros(store.n_rows, np.float32)
    answers = [bm25.scores(analyzer(question)) for question in questions]
    table = np.array([none if answer is None else answer for answer in answers]).T
    names = (row.chunk_id for row in store.rows(range(store.n_rows)))
    chunks = dict(zip(names, map(tuple, table.tolist()), strict=True))
    return Words(spec, (bm25.n_rows, bm25.n_terms), chunks)


def content_of(index: Path) -> Content:
    """What the committed state holds: for tests of what changes only how it lies on the disk."""
    return _content(Store.open(index))


def _content(store: Store) -> Content:
    chunks: dict[str, tuple[object, ...]] = {}
    for row, vector in zip(store.rows(range(store.n_rows)), store.vectors(range(store.n_rows)), strict=True):
        assert row.chunk_id not in chunks
        where = (row.doc_id, row.start, row.end, row.text, row.heading)
        chunks[row.chunk_id] = (*where, row.text_hash, row.doc_hash, dict(row.metadata), vector.tobytes())
    found = store.search(np.eye(store.manifest.dim, dtype=np.float32)[:3], 10)
    answers = []
    for best, rows in zip(found.scores.tolist(), found.rows, strict=True):
        ids = [row.chunk_id for row in store.rows(rows)]
        answers.append(tuple(zip(ids, best, strict=False)))
    return Content(chunks, tuple(answers))


def live_vectors(index: Path) -> dict[str, np.ndarray]:
    """The stored vector of every live chunk by its id."""
    store = Store.open(index)
    rows = range(store.n_rows)
    return dict(zip((row.chunk_id for row in store.rows(rows)), store.vectors(rows), strict=True))


def documents_of(store: Store) -> dict[str, list[str]]:
    """The texts of all documents that are alive in an open store, read from it now."""
    found: dict[str, list[str]] = {}
    for row in store.rows(range(store.n_rows)):
        found.setdefault(row.doc_id, []).append(row.text)
    return found


def texts_of(index: Path) -> list[str]:
    """The texts of all chunks that are alive, sorted."""
    return sorted(str(chunk[3]) for chunk in content_of(index).chunks.values())


def files_of(index: Path) -> dict[str, bytes]:
    """All files by their path in the index, but the lock, which says who wrote last."""
    paths = (file for file in index.rglob("*") if file.is_file() and file.name != "LOCK")
    return {str(file.relative_to(index)): file.read_bytes() for file in paths}
