"""The rows of a sweep: each width of each series, laid out, made into every index type, searched and compared.

source, questions and series -> SweepReport. Each row is measured on files of its own, which are gone when it is done;
the reference has none. Where vectors come from is `source`'s, what a width is `series`'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann.faiss_files import faiss
from ragidx.indexer.ann.index_types import AUTO, FLAT, MIN_ROWS, IndexOptions, padded
from ragidx.indexer.arrays import Floats
from ragidx.pipelines.evaluate.significance import K, difference, interval, ndcg
from ragidx.pipelines.sweep.measure import BATCH, Exact, Laid, Made, Search, lay, make, share_found, timed
from ragidx.pipelines.sweep.report import SweepReport, SweepRow, WordRow
from ragidx.pipelines.sweep.series import FITTED_ON_UNIT, Series
from ragidx.pipelines.sweep.source import IndexSource, Questions, SweepSource
from ragidx.pipelines.sweep.words import Words


@dataclass(frozen=True, slots=True)
class Stage:
    """What a sweep is at: stage `number` of `total`; the total is 0 until it is known."""

    number: int
    total: int
    name: str


OnStage: TypeAlias = Callable[[Stage], None]


class Stages:
    """Counts stages; those that are to come are known when the series are."""

    def __init__(self, on_progress: OnStage | None) -> None:
        self._on_progress = on_progress
        self._number = 0
        self.total = 0

    def __call__(self, name: str) -> None:
        """A stage begins."""
        self._number += 1
        if self._on_progress is not None:
            self._on_progress(Stage(self._number, self.total, name))

    def expect(self, more: int) -> None:
        """So many stages are to come."""
        self.total = self._number + more


class Sweep:
    """One run of a sweep over an opened source; its state is what the rows share.

    Args:
        source: the vectors.
        questions: what is asked of them.
        series: filters and widths, without the reference.
        types: index types, each made at every width.
        folder: temporary.
        tell: called with each stage.
        stemmer: of search by words, the option of an index; off: it is not measured.
    """

    def __init__(
        self,
        source: SweepSource,
        questions: Questions,
        series: Sequence[Series],
        types: Sequence[IndexOptions],
        folder: Path,
        tell: Stages,
        stemmer: str = "auto",
    ) -> None:
        self._stemmer = stemmer
        self._source, self._questions, self._types = source, questions, types
        self._full = Series(source.spec.filter.name, (source.dim,), None, source.is_unit)
        self._series = [self._full, *_without_full(series, self._full)]
        self._with_words = [one for one in series if one.widths] or [self._full]
        self._folder, self._tell = folder, tell
        self._k = min(K, source.n_rows)
        self._notes: list[str] = [*source.notes, *questions.notes, *(note for one in series for note in one.left_out)]
        doc_ids = source.doc_ids()
        self._doc_ids = list(dict.fromkeys(doc_ids))
        numbers = {doc_id: number for number, doc_id in enumerate(self._doc_ids)}
        self._document = np.array([numbers[doc_id] for doc_id in doc_ids], np.int64)

    def run(self) -> SweepReport:
        """All rows.

        Raises:
            SpecError: no index type can be made at any width.
            RagidxError: the temporary folder has no room.
        """
        with_words = self._questions.texts is not None and self._questions.judged is not None
        n_widths = sum(len(series.widths) for series in self._series)
        self._tell.expect(1 + len(self._types) * n_widths + len(self._with_words) * with_words)
        self._tell("the exact answers at full width")
        self._reference = Exact(self._source)
        self._nearest, _ = self._reference.search(self._questions.vectors, self._k)
        self._values = self._ndcg(self._reference.search, self._questions.vectors)
        rows = [row for series in self._series for width in series.widths for row in self._rows(series, width)]
        if not rows:
            raise SpecError(
                "no index of any width could be made: " + " ".join(self._notes),
                "take another `index_type`, or a lower `target_recall`",
                where="`index_type`",
            )
        self._note_fits()
        return self._report(rows, self._words())

    def _words(self) -> list[WordRow]:
        """Search by words, where there are texts and judged questions."""
        if self._questions.texts is None or self._questions.judged is None:
            return []
        if not any(text.strip() for text in self._source.texts()):
            return []
        words = Words(self._source, self._questions, self._folder, self._stemmer)
        found: list[WordRow] = []
        for series in self._with_words:
            self._tell(f"{series.name} with words")
            found += words.rows(series)
        return words.compared(found)

    def _rows(self, series: Series, width: int) -> Iterator[SweepRow]:
        """One for each index type that can be made."""
        laid = self._lay(series, width, f"{series.name}-{width}")
        queries = series.narrow(self._questions.vectors, width)
        exact, _ = laid.search(queries, self._k)
        seen: set[str] = set()
        for options in self._types:
            self._tell(f"{series.name}, {width:,} dimensions, {options.index_type}")
            try:
                made = make(laid, options)
            except SpecError as fault:
                self._note(f"{options.index_type} at {width:,} dimensions is skipped: {fault.message}.")
                continue
            if made.index_type == FLAT and options.index_type not in (FLAT, AUTO):
                self._note(
                    f"{options.index_type} is measured as flat: {self._source.n_rows:,} chunks are fewer than the"
                    f" {MIN_ROWS:,} from which on an index is made."
                )
            if made.index_type not in seen:
                seen.add(made.index_type)
                yield self._row(series, laid, made, options, queries, exact)
        laid.remove()

    def _row(
        self, series: Series, laid: Laid, made: Made, options: IndexOptions, queries: Floats, exact: Floats
    ) -> SweepRow:
        scores, rows = made.search(queries, self._k)
        single, batch, rate = timed(made.search, queries, self._k)
        values = self._ndcg(made.search, queries)
        return SweepRow(
            filter=series.name,
            dim=laid.dim,
            tau=self._source.hidden / laid.dim,
            asked=options.index_type,
            index_type=made.index_type,
            effort=made.effort,
            bytes_per_vector=2 * padded(laid.dim),
            disk_bytes=made.disk_bytes,
            build_seconds=made.seconds,
            recall=share_found(scores, exact),
            overlap=share_found(self._reference.scores(self._questions.vectors, rows), self._nearest),
            single=single,
            batch=batch,
            queries_per_s=rate,
            ndcg=None if values is None else interval(values),
            against=None if values is None or self._values is None else difference(values, self._values),
        )

    def _lay(self, series: Series, width: int, name: str) -> Laid:
        blocks = (series.narrow(block, width) for block in self._source.blocks())
        return lay(self._folder / name, width, self._source.n_rows, blocks)

    def _ndcg(self, search: Search, queries: Floats) -> NDArray[np.float64] | None:
        """nDCG@10 of each query; None without qrels."""
        if self._questions.judged is None:
            return None
        ranked = self._documents(search, queries)
        pairs = zip(ranked, self._questions.judged, strict=True)
        return np.array([ndcg(ranking, judged) for ranking, judged in pairs])

    def _documents(self, search: Search, queries: Floats) -> list[list[str]]:
        """The ten best documents of each query, a document by its best chunk, as `Searcher` ranks them."""
        answers: list[list[str]] = [[] for _ in queries]
        waiting, wide = np.arange(len(queries)), self._k
        most = min(K, len(self._doc_ids))
        while len(waiting):
            _, rows = search(queries[waiting], wide)
            short = []
            for query, of_query in zip(waiting.tolist(), rows, strict=True):
                best = list(dict.fromkeys(self._document[of_query[of_query >= 0]].tolist()))[:K]
                answers[query] = [self._doc_ids[number] for number in best]
                if len(best) < most and wide < self._source.n_rows:
                    short.append(query)
            waiting, wide = np.array(short, np.int64), min(4 * wide, self._source.n_rows)
        return answers

    def _report(self, rows: list[SweepRow], words: list[WordRow]) -> SweepReport:
        source, spec = self._source, self._source.spec
        kept = "the raw vectors" if source.is_raw else f"the index's vectors, after the filter '{spec.filter.name}'"
        return SweepReport(
            source=source.name,
            model=source.model,
            encoder=source.encoder_spec,
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
