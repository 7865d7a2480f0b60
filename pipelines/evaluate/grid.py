"""The configurations of a grid, measured on one data set: each width of each filter, searched in each mode.

source, series and judged queries -> a real index of each width in a temporary folder -> the documents of each query, by
their best chunk -> measures by query. BM25 is made once for equal chunks, and serves every width. The first measure of
EmbedFilter is repeated with ten random projections of the same width: what the choice of directions adds.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ragidx.corpora.evalsets import Pairs, Qrels, Run
from ragidx.indexer import atomic
from ragidx.indexer.ann.index_types import FLAT, IndexOptions, padded
from ragidx.indexer.arrays import Doubles, Floats
from ragidx.indexer.store.files import ANN, VECTORS
from ragidx.indexer.store.store import Store
from ragidx.indexer.widening import until_enough
from ragidx.pipelines.evaluate.cells import index_of
from ragidx.pipelines.evaluate.chance import PROJECTIONS, Chance, random_projection
from ragidx.pipelines.evaluate.measures import DEPTH, of_rankings, of_similarities
from ragidx.pipelines.evaluate.report import Configuration
from ragidx.pipelines.evaluate.sources.series import Series
from ragidx.pipelines.evaluate.sources.source import Source
from ragidx.retriever.options import DENSE, HYBRID, LEXICAL, SearchOptions, Z
from ragidx.retriever.ranking import Queries, rank


@dataclass(frozen=True, slots=True)
class Stage:
    """What an evaluation is at.

    Attributes:
        number: of the stage.
        total: of all; 0 until it is known.
        name: for people.
        left_s: until the last one ends, at the pace so far; None: unknown.
    """

    number: int
    total: int
    name: str
    left_s: float | None = None


OnStage: TypeAlias = Callable[[Stage], None]


class Stages:
    """Counts stages; those that are to come are known when the series are."""

    def __init__(self, on_progress: OnStage | None) -> None:
        self._on_progress = on_progress
        self._number = self._before = 0
        self._started = time.perf_counter()
        self.total = 0

    def __call__(self, name: str) -> None:
        """A stage begins."""
        self._number += 1
        if self._on_progress is not None:
            done, left_s = self._number - 1 - self._before, None
            if self.total and done:
                taken = time.perf_counter() - self._started
                left_s = taken / done * (self.total - self._number + 1)
            self._on_progress(Stage(self._number, self.total, name, left_s))

    def expect(self, more: int) -> None:
        """So many stages of similar length are to come."""
        self.total = self._number + more
        self._before, self._started = self._number, time.perf_counter()


@dataclass(frozen=True)
class Searches:
    """How vectors are searched: the part of a grid that no vector depends on."""

    modes: tuple[str, ...]
    index_types: tuple[str, ...] = (FLAT,)
    fusions: tuple[str, ...] = ("z",)
    weights: tuple[float, ...] = (0.5,)

    def of(self, mode: str) -> list[SearchOptions]:
        """The searches of a mode."""
        if mode != HYBRID:
            return [SearchOptions(mode=mode)]
        pairs = [(fusion, weight) for fusion in self.fusions for weight in self.weights]
        return [SearchOptions(mode=mode, fusion=fusion, weight=weight) for fusion, weight in pairs]


@dataclass(frozen=True)
class Measured:
    """One configuration, measured.

    Attributes:
        configuration: what was measured.
        values: of each measure, (q,) by query.
        bytes: a chunk.
        chance: means of the first measure with random projections.
        run: its answers; empty where they are not kept, or there are none.
    """

    configuration: Configuration
    values: dict[str, Doubles]
    bytes: float | None = None
    chance: tuple[float, ...] = ()
    run: Run = field(default_factory=dict)


class Rankings:
    """Measures sources on judged queries; shares what does not depend on the encoder.

    Args:
        texts: of the queries, by id.
        qrels: of each.
        searches: modes and index types.
        folder: temporary.
        tell: called when a configuration begins.
        measure: that EmbedFilter is compared with random projections by; None: it is not.
        drop_self: the document with the query's id is no answer.
        keep_runs: whether answers are kept.
    """

    def __init__(
        self,
        texts: dict[str, str],
        qrels: Qrels,
        searches: Searches,
        folder: Path,
        tell: Stages,
        *,
        measure: str | None,
        drop_self: bool = False,
        keep_runs: bool = False,
    ) -> None:
        self._texts, self._qrels, self._searches = list(texts.values()), qrels, searches
        self._ids = list(texts)
        self._folder, self._tell = folder, tell
        self._measure, self._drop_self, self._keep_runs = measure, drop_self, keep_runs
        self._words: dict[bytes, Store] = {}

    def measure(self, source: Source, series: Sequence[Series]) -> Iterator[Measured]:
        """All configurations of a source: words alone, where no equal chunks were measured, then each width."""
        vectors = source.encode(self._texts) if set(self._searches.modes) != {LEXICAL} else None
        doc_ids = source.doc_ids()
        words = self._words_of(source)
        if words is not None and LEXICAL in self._searches.modes and words[1]:
            self._tell("words")
            chunked_by = source.model if len(self._words) > 1 else None  # other models cut otherwise
            answers = self._answers(words[0], doc_ids, None, SearchOptions(mode=LEXICAL))
            yield self._measured(
                Configuration(model=chunked_by, mode=LEXICAL), answers, _posting_bytes(words[0]) / source.n_rows
            )
        if vectors is None:
            return
        store = None if words is None else words[0]
        chance = Chance(source, vectors, self._texts, self._qrels, store, self._measure or "", self._drop_self)
        for one in series:
            for width in one.widths:
                yield from self._of_width(one, width, chance, doc_ids)

    def count(self, series: Sequence[Series]) -> int:
        """Stages that `measure` will tell of."""
        each = len(self._searches.index_types)
        of_words = 0 if set(self._searches.modes) == {DENSE} else 1 + (LEXICAL in self._searches.modes)
        return of_words + sum(len(one.widths) * (each + (one.name == "embedfilter")) for one in series)

    def _of_width(self, series: Series, width: int, chance: Chance, doc_ids: list[str]) -> Iterator[Measured]:
        source, words = chance.source, chance.words
        queries, base = series.narrow(chance.vectors, width), configuration_of(source, series, width)
        modes = [mode for mode in self._searches.modes if mode == DENSE or (mode == HYBRID and words is not None)]
        searches = [options for mode in modes for options in self._searches.of(mode)]
        drawn: dict[float, tuple[float, ...]] = {}
        if series.name == "embedfilter" and self._measure is not None:
            self._tell(f"random projections, {width:,} dimensions")
            weights = dict.fromkeys(_weight(one) for one in searches)
            drawn = chance.means(width, [weight for weight in weights if weight is not None])
        for index_type in self._searches.index_types:
            self._tell(f"{series.name}, {width:,} dimensions, {index_type}")
            store = self._store((series.narrow(block, width) for block in source.blocks()), width, index_type)
            if words is not None:
                store.lexical = words.lexical
            for options in searches:
                configuration = replace(base, index_type=index_type, mode=options.mode)
                n_bytes = _vector_bytes(store)
                if options.mode == HYBRID and words is not None:
                    configuration = replace(configuration, fusion=options.fusion, weight=options.weight)
                    n_bytes += _posting_bytes(words) / source.n_rows
                answers = self._answers(store, doc_ids, queries, options)
                yield self._measured(configuration, answers, n_bytes, drawn.get(_weight(options) or 0, ()))

    def _store(self, blocks: Iterator[Floats], width: int, index_type: str) -> Store:
        folder = self._folder / "cell"
        try:
            return index_of(folder, blocks, width, IndexOptions(index_type))[0]
        finally:
            atomic.remove(folder)  # its mapping stays

    def _words_of(self, source: Source) -> tuple[Store, bool] | None:
        """The words of a source's chunks, and whether they are new; None: they are not searched, or there are none."""
        if set(self._searches.modes) == {DENSE}:
            return None
        content = hashlib.sha256()
        for chunk in source.chunks():
            content.update(f"{chunk.id}\0{chunk.heading}\0{chunk.text}\0".encode("utf-8", "surrogatepass"))
        key, is_new = content.digest(), content.digest() not in self._words
        if is_new:
            self._tell("indexing the words")
            blocks = (np.ones((len(block), 1), np.float32) for block in source.blocks())
            folder = self._folder / f"words-{len(self._words)}"
            self._words[key] = index_of(folder, blocks, 1, IndexOptions(FLAT), source.texts())[0]
            atomic.remove(folder)
        store = self._words[key]
        return None if store.lexical is None else (store, is_new)

    def _answers(self, store: Store, doc_ids: list[str], vectors: Floats | None, options: SearchOptions) -> Run:
        """The best documents for each query, with the score of their best chunk."""
        queries = Queries(vectors, self._texts)
        most = min(DEPTH + self._drop_self, len(set(doc_ids)))

        def ask(numbers: Sequence[int], wide: int) -> list[tuple[dict[str, float], int]]:
            """Documents with their scores, and the number of chunks that they are from."""
            answers = []
            for chunks in rank(store, queries.of(numbers), wide, None, options):
                best: dict[str, float] = {}
                for chunk in chunks:
                    best.setdefault(doc_ids[chunk.row], chunk.score)
                answers.append((best, len(chunks)))
            return answers

        wide = min(DEPTH + self._drop_self, store.n_rows)
        answers = until_enough(
            ask(range(len(self._ids)), wide),
            wide,
            ask,
            lambda answer, wide: len(answer[0]) < most and answer[1] == wide,
        )
        run: Run = {}
        for query_id, (best, _) in zip(self._ids, answers, strict=True):
            if self._drop_self:
                best.pop(query_id, None)
            run[query_id] = dict(list(best.items())[:DEPTH])
        return run

    def _measured(
        self, configuration: Configuration, answers: Run, cost: float, chance: tuple[float, ...] = ()
    ) -> Measured:
        values = of_rankings(answers, self._qrels)
        return Measured(configuration, values, cost, chance, answers if self._keep_runs else {})


class Similarities:
    """Measures sources on pairs of sentences; a source's rows are the first sentences, then the second ones."""

    def __init__(self, pairs: Pairs, tell: Stages, *, measure: str) -> None:
        self._pairs, self._tell, self._measure = pairs, tell, measure

    def measure(self, source: Source, series: Sequence[Series]) -> Iterator[Measured]:
        """Each width of each series."""
        vectors = np.concatenate(list(source.blocks()))
        for one in series:
            for width in one.widths:
                self._tell(f"{one.name}, {width:,} dimensions")
                chance: tuple[float, ...] = ()
                if one.name == "embedfilter":
                    drawn = [random_projection(source.dim, width, seed) for seed in range(PROJECTIONS)]
                    chance = tuple(float(self._values(vectors, by, width)[self._measure].mean()) for by in drawn)
                configuration = configuration_of(source, one, width)
                yield Measured(configuration, self._values(vectors, one, width), 2.0 * padded(width), chance)

    def count(self, series: Sequence[Series]) -> int:
        """Stages that `measure` will tell of."""
        return sum(len(one.widths) for one in series)

    def _values(self, vectors: Floats, series: Series, width: int) -> dict[str, Doubles]:
        first, second = np.split(series.narrow(vectors, width), 2)
        return of_similarities(np.einsum("ij,ij->i", first, second), self._pairs.scores)


def configuration_of(source: Source, series: Series, width: int) -> Configuration:
    """What made the vectors of a width."""
    encoder = source.spec.encoder
    made = (
        {}
        if encoder is None
        else {name: getattr(encoder, name) for name in ("method", "pooling", "attention", "layer", "copies")}
    )
    return Configuration(
        model=source.model or None,
        **made,
        filter=series.name,
        offset=series.offset,
        tau=source.hidden / width,
        dim=width,
    )


def _weight(options: SearchOptions) -> float | None:
    """Of the cosine in a sum of z-scores; None: places are summed."""
    if options.mode == DENSE:
        return 1.0
    return options.weight if options.fusion == Z else None


def _vector_bytes(store: Store) -> float:
    parts = store.manifest.segments
    total = sum(part.files[name].bytes for part in parts for name in (VECTORS, ANN) if name in part.files)
    return total / store.n_rows


def _posting_bytes(store: Store) -> int:
    parts = store.manifest.segments
    return sum(part.files[part.lexical].bytes for part in parts if part.lexical is not None)
