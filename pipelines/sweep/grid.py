"""The rows of a sweep: each width of each series, made into an index of every type, searched and compared.

source, questions and series -> SweepReport. Each row is measured on an index of its own, which is gone when it is done;
the reference has none. Where there are texts and judged text questions, BM25 alone and hybrid search at every width are
measured, too. Where vectors come from is `source`'s, what a width is `series`'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ragidx.corpora.errors import SpecError
from ragidx.indexer import atomic
from ragidx.indexer.ann.faiss_files import faiss
from ragidx.indexer.ann.index_types import AUTO, FLAT, MIN_ROWS, Effort, IndexOptions, padded
from ragidx.indexer.arrays import Doubles, Floats
from ragidx.indexer.store.files import ANN, VECTORS
from ragidx.indexer.store.store import Store
from ragidx.indexer.widening import until_enough
from ragidx.pipelines.evaluate.cells import (
    BATCH,
    exact_search,
    index_of,
    scores_of,
    share_found,
    timed,
    timed_singly,
)
from ragidx.pipelines.evaluate.grid import Stages
from ragidx.pipelines.evaluate.significance import K, difference, interval, ndcg
from ragidx.pipelines.evaluate.sources.series import FITTED_ON_UNIT, Series
from ragidx.pipelines.evaluate.sources.source import IndexSource, Questions, Source
from ragidx.pipelines.sweep.report import SweepReport, SweepRow, WordRow
from ragidx.retriever.fusion import Scored, rank_hybrid, rank_lexical
from ragidx.retriever.options import SearchOptions

_VECTOR_FILES = (VECTORS, ANN)

Ranked: TypeAlias = Callable[[Sequence[int], int], Iterable[Sequence[int]]]
"""Some of the questions, by their numbers, and k -> the k best rows for each."""


class Sweep:
    """One run of a sweep over an opened source; its state is what the rows share.

    Args:
        source: the vectors.
        questions: what is asked of them.
        series: filters and widths, without the reference.
        types: index types, each made at every width.
        folder: temporary.
        tell: called with each stage.
    """

    def __init__(
        self,
        source: Source,
        questions: Questions,
        series: Sequence[Series],
        types: Sequence[IndexOptions],
        folder: Path,
        tell: Stages,
    ) -> None:
        self._source, self._questions, self._types = source, questions, types
        self._full = Series(source.spec.filter.name, (source.dim,), None, source.is_unit)
        self._series = [self._full, *_without_full(series, self._full)]
        self._with_words = [one for one in series if one.widths] or [self._full]
        if questions.texts is None or questions.judged is None:
            self._with_words = []
        self._folder, self._tell = folder, tell
        self._k = min(K, source.n_rows)
        self._notes: list[str] = [*source.notes, *questions.notes, *(note for one in series for note in one.left_out)]
        self._doc_ids = source.doc_ids()
        self._n_documents = len(set(self._doc_ids))
        self._lexical: Doubles | None = None  # nDCG@10 by question, of words alone
        self._hybrids: list[Doubles] = []  # and of each row of hybrid search

    def run(self) -> SweepReport:
        """All rows.

        Raises:
            SpecError: no index type can be made at any width.
            RagidxError: the temporary folder has no room.
        """
        n_widths = sum(len(series.widths) for series in self._series)
        self._tell.expect(1 + len(self._types) * n_widths + len(self._with_words))
        self._tell("the exact answers at full width")
        self._queries = self._full.narrow(self._questions.vectors, self._source.dim)
        self._nearest, _ = exact_search(self._narrowed(self._full, self._source.dim), self._queries, self._k)
        self._values = self._quality(self._exactly)
        rows = [row for series in self._series for width in series.widths for row in self._rows(series, width)]
        if not rows:
            raise SpecError(
                "no index of any width could be made: " + " ".join(self._notes),
                "take another `index_type`, or a lower `target_recall`",
                where="`index_type`",
            )
        self._note_fits()
        words = [row for series in self._with_words for row in self._word_rows(series)]
        return self._report(rows, self._compared(words))

    def _narrowed(self, series: Series, width: int) -> Iterator[Floats]:
        """All vectors at a width of a series."""
        return (series.narrow(block, width) for block in self._source.blocks())

    def _exactly(self, numbers: Sequence[int], k: int) -> Iterable[Sequence[int]]:
        """The answers that everything is compared with."""
        vectors = self._narrowed(self._full, self._source.dim)
        return exact_search(vectors, self._queries[list(numbers)], k)[1].tolist()  # type: ignore[no-any-return]

    def _rows(self, series: Series, width: int) -> Iterator[SweepRow]:
        """One for each index type that can be made."""
        queries = series.narrow(self._questions.vectors, width)
        stored = (block.astype("<f2").astype(np.float32) for block in self._narrowed(series, width))
        exact = np.minimum(exact_search(stored, queries, self._k)[0], 1)  # as a search limits its cosines
        seen: set[str] = set()
        for options in self._types:
            self._tell(f"{series.name}, {width:,} dimensions, {options.index_type}")
            folder = self._folder / f"{series.name}-{width}"
            try:
                store, seconds = index_of(folder, self._narrowed(series, width), width, options)
            except SpecError as fault:
                self._note(f"{options.index_type} at {width:,} dimensions is skipped: {fault.message}.")
                continue
            finally:
                atomic.remove(folder)  # its mapping stays
            made = store.manifest.segments[0].ann
            if made is None and options.index_type not in (FLAT, AUTO):
                self._note(
                    f"{options.index_type} is measured as flat: {self._source.n_rows:,} chunks are fewer than the"
                    f" {MIN_ROWS:,} from which on an index is made."
                )
            index_type = FLAT if made is None else str(made.recipe)
            if index_type not in seen:
                seen.add(index_type)
                yield self._row(series, store, options, index_type, seconds, queries, exact)

    def _row(
        self,
        series: Series,
        store: Store,
        options: IndexOptions,
        index_type: str,
        seconds: float,
        queries: Floats,
        exact: Floats,
    ) -> SweepRow:
        def rank(numbers: Sequence[int], k: int) -> Iterable[Sequence[int]]:
            return (rows[rows >= 0].tolist() for rows in store.nearest(queries[list(numbers)], k)[1])

        segments, dim = store.manifest.segments, store.manifest.dim
        scores, rows = store.nearest(queries, self._k)
        at_full_width = scores_of(self._narrowed(self._full, self._source.dim), self._queries, rows)
        single, batch, rate = timed(lambda numbers, k: store.nearest(queries[numbers], k), len(queries), self._k)
        values = self._quality(rank)
        return SweepRow(
            filter=series.name,
            dim=dim,
            tau=self._source.hidden / dim,
            requested=options.index_type,
            index_type=index_type,
            effort=Effort() if segments[0].ann is None else segments[0].ann.effort,
            bytes_per_vector=2 * padded(dim),
            disk_bytes=sum(
                part.files[name].bytes for part in segments for name in (VECTORS, ANN) if name in part.files
            ),
            build_seconds=seconds,
            recall=share_found(scores, exact),
            overlap=share_found(at_full_width, self._nearest),
            single=single,
            batch=batch,
            queries_per_s=rate,
            ndcg=None if values is None else interval(values),
            against_full=None if values is None or self._values is None else difference(values, self._values),
        )

    def _word_rows(self, series: Series) -> Iterator[WordRow]:
        """BM25, once for a sweep; then hybrid search at the widths of a series, the widest first."""
        self._tell(f"{series.name} with words")
        widest, folder = series.widths[0], self._folder / "words"
        vectors = self._narrowed(series, widest)
        store, seconds = index_of(folder, vectors, widest, IndexOptions(FLAT), self._source.texts())
        atomic.remove(folder)
        if store.lexical is None:
            return
        postings = sum(part.files[part.lexical].bytes for part in store.manifest.segments if part.lexical is not None)
        texts, n_rows = self._questions.texts or [], self._source.n_rows

        def by_words(numbers: Sequence[int], k: int) -> list[list[Scored]]:
            return list(rank_lexical(store, [texts[number] for number in numbers], k, None))

        if self._lexical is None:
            self._lexical = self._chunk_quality(by_words)
            yield WordRow(
                mode="lexical",
                bytes_per_chunk=postings / n_rows,
                disk_bytes=postings,
                build_seconds=seconds,
                single=timed_singly(by_words, len(texts), K),
                ndcg=interval(self._lexical),
            )
        queries = series.narrow(self._questions.vectors, widest)
        for width in series.widths:
            options = SearchOptions(dim=None if width == widest else width)

            def by_both(numbers: Sequence[int], k: int, options: SearchOptions = options) -> list[list[Scored]]:
                words = [texts[number] for number in numbers]
                return list(rank_hybrid(store, queries[list(numbers)], words, k, None, options))

            values, n_bytes = self._chunk_quality(by_both), postings + 2 * padded(width) * n_rows
            self._hybrids.append(values)
            yield WordRow(
                mode="hybrid",
                filter=series.name,
                dim=width,
                bytes_per_chunk=n_bytes / n_rows,
                disk_bytes=n_bytes,
                single=timed_singly(by_both, len(texts), K),
                ndcg=interval(values),
                against_lexical=difference(values, self._lexical),
            )

    def _chunk_quality(self, rank: Callable[[Sequence[int], int], list[list[Scored]]]) -> Doubles:
        """nDCG@10 of each question, by chunks with their scores."""
        values = self._quality(lambda numbers, k: ([one.row for one in chunks] for chunks in rank(numbers, k)))
        assert values is not None
        return values

    def _compared(self, rows: Sequence[WordRow]) -> list[WordRow]:
        """All rows of search by words, those of hybrid search with their difference from the best of them."""
        best = max(self._hybrids, key=lambda values: float(values.mean()), default=None)
        found = iter(self._hybrids)
        return [
            row if best is None or row.mode != "hybrid" else replace(row, against_best=difference(next(found), best))
            for row in rows
        ]

    def _quality(self, rank: Ranked) -> Doubles | None:
        """nDCG@10 of each question, a document by its best chunk; None without qrels."""
        if self._questions.judged is None:
            return None

        def ask(numbers: Sequence[int], wide: int) -> list[tuple[list[str], int]]:
            """The documents, and the number of their chunks."""
            ranked = rank(numbers, wide)
            return [(list(dict.fromkeys(self._doc_ids[row] for row in rows)), len(rows)) for rows in ranked]

        most = min(K, self._n_documents)
        answers = until_enough(
            ask(range(len(self._questions.judged)), self._k),
            self._k,
            ask,
            lambda answer, wide: len(answer[0]) < most and answer[1] == wide,
        )
        pairs = zip(answers, self._questions.judged, strict=True)
        return np.array([ndcg(documents[:K], judged) for (documents, _), judged in pairs])

    def _report(self, rows: list[SweepRow], words: list[WordRow]) -> SweepReport:
        source, spec = self._source, self._source.spec
        kept = "the raw vectors" if source.is_raw else f"the index's vectors, after the filter '{spec.filter.name}'"
        return SweepReport(
            source=source.name,
            model=source.model,
            encoder=source.spec.encoder,
            hidden=source.hidden,
            reference=kept,
            reference_dim=source.dim,
            reference_ndcg=None if self._values is None else interval(self._values),
            n_documents=source.n_documents,
            n_chunks=source.n_rows,
            n_queries=len(self._questions.vectors),
            queries=self._questions.origin,
            threads=faiss().omp_get_max_threads(),
            batch=BATCH,
            rows=tuple(rows),
            words=tuple(words),
            notes=tuple(self._notes),
        )

    def _note(self, message: str) -> None:
        if message not in self._notes:
            self._notes.append(message)

    def _note_fits(self) -> None:
        fitted = [series.name for series in self._series if series.name in FITTED_ON_UNIT and series.map is not None]
        if fitted and isinstance(self._source, IndexSource):
            self._note(
                f"{' and '.join(fitted)}: fitted on vectors of unit length here, and on the model's own by a build;"
                " for a model that normalises these are the same."
            )


def _without_full(series: Sequence[Series], full: Series) -> Iterator[Series]:
    """What the rows of the reference do not show already: truncation to all coordinates is the reference."""
    for one in series:
        widths = tuple(width for width in one.widths if one.map is not None or width != full.widths[0])
        if widths:
            yield Series(one.name, widths, one.map, one.is_unit)
