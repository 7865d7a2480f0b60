"""The words of a sweep's rows: BM25 alone, and hybrid search at every width, through the search that indexes have.

texts and vectors of a source -> a real index in a temporary folder -> rows. Without texts, or without questions in
words that are judged, there are none. Times are of ranking, without encoding the question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ragidx.indexer.ann.index_types import FLAT, IndexOptions, padded
from ragidx.indexer.arrays import Doubles, Floats
from ragidx.indexer.lexical.blocks import blocks
from ragidx.indexer.lexical.postings_writer import write_postings
from ragidx.indexer.store.rows import Row
from ragidx.indexer.store.store import Store
from ragidx.indexer.widening import until_enough
from ragidx.indexer.writing.writer import StoreWriter
from ragidx.pipelines.evaluate.significance import K, difference, interval, ndcg
from ragidx.pipelines.sweep.measure import temporary_room, timed_singly
from ragidx.pipelines.sweep.report import WordRow
from ragidx.pipelines.sweep.series import Series
from ragidx.pipelines.sweep.source import Questions, SweepSource
from ragidx.retriever.fusion import Scored, rank_hybrid, rank_lexical
from ragidx.retriever.options import SearchOptions

_BLOCK_ROWS = 4096

Rank = Callable[[Sequence[int], int], list[list[Scored]]]
"""The k best chunks for some of the questions, by their numbers."""


class Words:
    """The rows of one sweep that search by words.

    Args:
        source: with texts.
        questions: in words, judged.
        folder: temporary.
        stemmer: the option of an index.
    """

    def __init__(self, source: SweepSource, questions: Questions, folder: Path, stemmer: str) -> None:
        assert questions.texts is not None
        assert questions.judged is not None
        self._source, self._folder, self._stemmer = source, folder, stemmer
        self._texts: Sequence[str] = questions.texts
        self._judged: Sequence[Mapping[str, int]] = questions.judged
        self._vectors = questions.vectors
        self._doc_ids = source.doc_ids()
        self._lexical: Doubles | None = None
        self._hybrids: list[Doubles] = []  # nDCG@10 by question, of each row of hybrid search

    def compared(self, rows: Sequence[WordRow]) -> list[WordRow]:
        """All rows of the sweep, those of hybrid search with their difference from the best of them."""
        best = max(self._hybrids, key=lambda values: float(values.mean()), default=None)
        found = iter(self._hybrids)
        return [
            row if best is None or row.mode != "hybrid" else replace(row, against_best=difference(next(found), best))
            for row in rows
        ]

    def rows(self, series: Series) -> Iterator[WordRow]:
        """BM25, once for a sweep; then hybrid search at the widths of a series, the widest first."""
        store = self._index(series)
        if store.lexical is None:
            return
        sizes = [part.files[part.lexical].bytes for part in store.manifest.segments if part.lexical is not None]
        if self._lexical is None:
            yield self._lexical_row(store, sum(sizes))
        assert self._lexical is not None
        queries = series.narrow(self._vectors, series.widths[0])
        for width in series.widths:
            rank = self._hybrid(store, queries, None if width == series.widths[0] else width)
            values = self._ndcg(rank)
            self._hybrids.append(values)
            vectors = 2 * padded(width) * self._source.n_rows
            yield WordRow(
                mode="hybrid",
                filter=series.name,
                dim=width,
                bytes_per_chunk=(vectors + sum(sizes)) / self._source.n_rows,
                disk_bytes=vectors + sum(sizes),
                single=timed_singly(rank, len(self._texts), K),
                ndcg=interval(values),
                against_lexical=difference(values, self._lexical),
            )

    def _hybrid(self, store: Store, queries: Floats, dim: int | None) -> Rank:
        def rank(numbers: Sequence[int], k: int) -> list[list[Scored]]:
            texts = [self._texts[number] for number in numbers]
            return list(rank_hybrid(store, queries[list(numbers)], texts, k, None, SearchOptions(dim=dim)))

        return rank

    def _lexical_row(self, store: Store, n_bytes: int) -> WordRow:
        def rank(numbers: Sequence[int], k: int) -> list[list[Scored]]:
            return list(rank_lexical(store, [self._texts[number] for number in numbers], k, None))

        assert store.lexical is not None
        self._lexical = self._ndcg(rank)
        path = self._folder / "words.arrow"
        started = time.perf_counter()
        with temporary_room(path):
            write_postings(path, blocks(((text, "") for text in self._source.texts()), store.lexical.analyzer))
        return WordRow(
            mode="lexical",
            bytes_per_chunk=n_bytes / self._source.n_rows,
            disk_bytes=n_bytes,
            build_seconds=time.perf_counter() - started,
            single=timed_singly(rank, len(self._texts), K),
            ndcg=interval(self._lexical),
        )

    def _index(self, series: Series) -> Store:
        """A real index of the source's texts, and of its vectors at the widest width of a series."""
        path, width = self._folder / f"words-{series.name}", series.widths[0]
        options = IndexOptions(FLAT, lexical=self._stemmer)
        texts, doc_ids, number = iter(self._source.texts()), iter(self._doc_ids), 0
        with (
            temporary_room(path),
            StoreWriter(path, spec={}, fingerprint="0" * 64, dim=width, index=options, journal=False) as writer,
        ):
            for block in self._source.blocks():
                for start in range(0, len(block), _BLOCK_ROWS):
                    vectors = series.narrow(block[start : start + _BLOCK_ROWS], width)
                    vectors[~vectors.any(axis=1), 0] = 1  # a filter may leave nothing of one; a row needs a length
                    rows = [
                        Row(f"{number + n:012d}", next(doc_ids), 0, 0, next(texts), "", bytes(16), bytes(16))
                        for n in range(len(vectors))
                    ]
                    writer.add_rows(rows, vectors)
                    number += len(rows)
            writer.commit({}, self._source.n_documents)
        return Store.open(path)

    def _ndcg(self, rank: Rank) -> Doubles:
        """nDCG@10 of each question, a document by its best chunk."""

        def ask(questions: Sequence[int], wide: int) -> list[tuple[list[str], int]]:
            ranked = rank(questions, wide)
            return [(list(dict.fromkeys(self._doc_ids[one.row] for one in found)), len(found)) for found in ranked]

        answers = until_enough(
            ask(range(len(self._texts)), K), K, ask, lambda answer, wide: len(answer[0]) < K and answer[1] == wide
        )
        pairs = zip(answers, self._judged, strict=True)
        return np.array([ndcg(documents[:K], judged) for (documents, _), judged in pairs])
