"""For tests of fusion: small indexes of given vectors and texts, and the same search by plain numpy over all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.lexical.analyzer import Analyzer
from ragidx.indexer.store import Store
from ragidx.pipelines.index import Index
from ragidx.pipelines.vectors import RowWriter
from ragidx.retriever.fusion import Scored, rank_hybrid, rank_lexical
from ragidx.retriever.options import SearchOptions

WORDS = ["mill", "river", "lease", "tower", "bees", "lake"]


@dataclass
class Corpus:
    """Rows of an index: ids, vectors (n, d) and texts, and which of them are deleted."""

    ids: list[str]
    vectors: NDArray[np.float64]
    texts: list[str]
    dead: set[str] = field(default_factory=set)

    def commit(self, path: Path, cuts: Sequence[int] = (), **options: Any) -> Store:
        """An index of it, with a segment from each cut to the next; the dead rows are deleted by the last commit."""
        ends = [*cuts, len(self.ids)]
        for start, end in zip([0, *cuts], ends, strict=True):
            with RowWriter(path, self.vectors.shape[1], stemmer="none", **options) as writer:
                writer.add_vectors(self.ids[start:end], self.vectors[start:end], self.texts[start:end])
                writer.commit()
        if self.dead:
            Index(path).delete(sorted(self.dead), compact=False)
        return Store.open(path)

    def alive(self) -> Corpus:
        """The rows that are not deleted."""
        kept = [row for row, name in enumerate(self.ids) if name not in self.dead]
        return Corpus([self.ids[row] for row in kept], self.vectors[kept], [self.texts[row] for row in kept])


def any_corpus(seed: int, n: int = 60, dim: int = 8) -> Corpus:
    """Rows with vectors that lie near each other, as those of decoders do, and texts of none to six words."""
    chance = np.random.default_rng(seed)
    vectors = 1.5 * chance.standard_normal(dim) + chance.standard_normal((n, dim))
    texts = [" ".join(chance.choice(WORDS, size=chance.integers(0, 7))) for _ in range(n)]
    return Corpus([f"c{number:03}" for number in chance.permutation(n)], vectors, texts)


def unit(vector: Any) -> NDArray[np.float32]:
    raw = np.asarray(vector, np.float32)
    return raw / np.linalg.norm(raw, axis=-1, keepdims=True)


def named(store: Store, ranked: Sequence[Scored]) -> list[tuple[str, Scored]]:
    """Ranked chunks with their ids."""
    rows = store.rows([one.row for one in ranked])
    return [(row.chunk_id, one) for row, one in zip(rows, ranked, strict=True)]


def hybrid(
    store: Store,
    query: NDArray[np.float32],
    question: str,
    k: int = 10,
    *,
    allowed: set[str] | None = None,
    **options: Any,
) -> list[tuple[str, Scored]]:
    """Hybrid search, among the allowed ids alone."""
    mask = None if allowed is None else mask_of(store, allowed)
    [ranked] = rank_hybrid(store, query[None], [question], k, mask, SearchOptions(mode="hybrid", **options))
    return named(store, ranked)


def lexical(store: Store, question: str, k: int = 10) -> list[tuple[str, Scored]]:
    [ranked] = rank_lexical(store, [question], k, None)
    return named(store, ranked)


def mask_of(store: Store, allowed: set[str]) -> NDArray[np.bool_]:
    """Which rows have an id that is allowed."""
    return np.array([row.chunk_id in allowed for row in store.rows(range(store.n_rows))])


@dataclass
class Plain:
    """The scores of all live rows, by definition.

    Attributes:
        ids: of the rows.
        dense: cosines.
        bm25: 0 where a row has no word of the question.
    """

    ids: list[str]
    dense: NDArray[np.float64]
    bm25: NDArray[np.float64]

    @classmethod
    def of(cls, corpus: Corpus, query: NDArray[np.float32], question: str, width: int | None = None) -> Plain:
        live = corpus.alive()
        return cls(live.ids, cosines(live.vectors, query, width), bm25(live.texts, question))

    def fused(self, weight: float = 0.5, dense: NDArray[np.float64] | None = None) -> dict[str, float]:
        """The weighted sum of z-scores; of other cosines by the mean and deviation of these, where they are given."""
        compared = self.dense if dense is None else dense
        total = weight * z(compared, self.dense) + (1 - weight) * z(self.bm25, self.bm25)
        return dict(zip(self.ids, total.tolist(), strict=True))


def z(values: NDArray[np.float64], of: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many deviations values are above the mean of all; zeros where all are equal."""
    deviation = of.std()
    return np.zeros_like(values) if deviation < 1e-7 else (values - of.mean()) / deviation


def cosines(vectors: NDArray[np.float64], query: NDArray[np.float32], width: int | None = None) -> NDArray[np.float64]:
    """With rows rounded to float16 as they are stored, and again where fewer dimensions are compared."""
    stored = unit(vectors).astype(np.float16)
    if width is not None and width < len(query):
        stored, query = unit(stored[:, :width]).astype(np.float16), unit(query[:width])
    return np.clip(stored.astype(np.float64) @ query.astype(np.float64), -1, 1)


def is_stored_as_here(vectors: NDArray[np.float64], width: int | None) -> bool:
    """Whether `cosines` rounds to float16 as the store does; halfway between two numbers FAISS and NumPy differ."""

    def is_clear(rows: NDArray[np.float32]) -> bool:
        near = [(rows.astype(np.float64) * (1 + apart)).astype(np.float16) for apart in (-1.5e-7, 1.5e-7)]
        return bool((near[0] == near[1]).all())

    whole = unit(vectors)
    return is_clear(whole) and (width is None or is_clear(unit(whole.astype(np.float16)[:, :width])))


def bm25(texts: Sequence[str], question: str) -> NDArray[np.float64]:
    """BM25 with k1 1.2 and b 0.75."""
    analyze = Analyzer()
    rows = [analyze(text) for text in texts]
    mean = sum(map(len, rows)) / max(1, len(rows))
    total = np.zeros(len(rows))
    for term in analyze(question):
        df = sum(term in row for row in rows)
        idf = math.log(1 + (len(rows) - df + 0.5) / (df + 0.5))
        for number, row in enumerate(rows):
            if term in row:
                tf = row.count(term)
                total[number] += idf * tf / (tf + 1.2 * (0.25 + 0.75 * len(row) / mean))
    return total
