"""The configurations of a grid, measured on one data set: each width of each filter, searched in each mode.

source, series and judged queries -> a real index of each width in a temporary folder -> the documents of each query, by
their best chunk -> measures by query. BM25 is made once for equal chunks, and serves every width. The first measure of
EmbedFilter is repeated with ten random projections of the same width: what the choice of directions adds.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.evalsets import Pairs, Qrels, Run
from ragidx.indexer import atomic
from ragidx.indexer.ann.faiss_files import faiss
from ragidx.indexer.ann.index_types import AUTO, DEFAULT_RECALL, FLAT, MIN_ROWS, Effort, IndexOptions, padded
from ragidx.indexer.arrays import Doubles, Floats
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.store.files import ANN, VECTORS
from ragidx.indexer.store.store import Store
from ragidx.indexer.widening import until_enough
from ragidx.pipelines.evaluate.cells import (
    Costs,
    FullWidth,
    Times,
    exact_search,
    index_of,
    share_found,
    timed,
    timed_singly,
)
from ragidx.pipelines.evaluate.measures import ANN_RECALL, DEPTH, OVERLAP, of_rankings, of_similarities
from ragidx.pipelines.evaluate.report import Configuration
from ragidx.pipelines.evaluate.significance import K
from ragidx.pipelines.evaluate.sources.series import Series, full_width
from ragidx.pipelines.evaluate.sources.source import Source
from ragidx.retriever.fusion import Scored
from ragidx.retriever.options import DENSE, HYBRID, LEXICAL, SearchOptions
from ragidx.retriever.ranking import Queries, rank

CHANCES = 10
"""Random projections beside a row of EmbedFilter."""

Search: TypeAlias = Callable[[Sequence[int], int], Iterable[Sequence[Scored]]]
"""Some of the queries, by their numbers, and k -> the k best chunks for each."""


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
    target_recall: float = DEFAULT_RECALL

    def index(self, index_type: str) -> IndexOptions:
        """How an index of a type is made."""
        return IndexOptions(index_type, self.target_recall)

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
        costs: time and size on disk; None: not measured.
    """

    configuration: Configuration
    values: dict[str, Doubles]
    bytes: float | None = None
    chance: tuple[float, ...] = ()
    run: Run = field(default_factory=dict)
    costs: Costs | None = None


@dataclass(frozen=True)
class _Words:
    """The words of chunks: an index without useful vectors, the bytes of its postings, and the seconds it took."""

    store: Store
    bytes: int
    seconds: float


@dataclass(frozen=True)
class _Opened:
    """A source that is measured, and what its rows share."""

    source: Source
    doc_ids: list[str]
    vectors: Floats | None
    words: _Words | None
    full: FullWidth | None



class Rankings:
    """Measures sources on judged queries; shares what does not depend on the encoder.

    Args:
        texts: of the queries, by id.
        qrels: of each; empty: only agreement with exact search is measured.
        searches: modes and index types.
        folder: temporary.
        tell: called when a configuration begins.
        drop_self: the document with the query's id is no answer.
        keep_runs: whether answers are kept.
        chance: whether EmbedFilter is compared with random projections.
        costs: whether time and disk are measured, and agreement with exact search, which then is the first dense row.
        vectors: (q, dim) of the queries, in the space of the source; None: their texts are encoded.

    Attributes:
        notes: on what was left out.
    """

    def __init__(
        self,
        texts: dict[str, str],
        qrels: Qrels,
        searches: Searches,
        folder: Path,
        tell: Stages,
        *,
        drop_self: bool = False,
        keep_runs: bool = False,
        chance: bool = True,
        costs: bool = False,
        vectors: Floats | None = None,
    ) -> None:
        self._texts, self._qrels, self._searches = list(texts.values()), qrels, searches
        self._ids = list(texts)
        self._folder, self._tell = folder, tell
        self._drop_self, self._keep_runs, self._chance = drop_self, keep_runs, chance
        self._with_costs, self._vectors = costs, vectors
        self._words: dict[bytes, _Words] = {}
        self.notes: list[str] = []

    def measure(self, source: Source, series: Sequence[Series]) -> Iterator[Measured]:
        """All configurations of a source: words alone, where no equal chunks were measured, then each width.

        Raises:
            CorpusError: there is nothing to search.
            SpecError: no index type can be made at any width.
        """
        if not source.n_rows:
            raise CorpusError("there is no vector to search", "add documents", where=source.name)
        vectors = self._vectors
        if vectors is None and set(self._searches.modes) != {LEXICAL}:
            vectors = source.encode(self._texts)
        known = len(self._words)
        words = self._words_of(source)
        opened = _Opened(source, source.doc_ids(), vectors, words, self._full_width(source, vectors))
        if words is not None and LEXICAL in self._searches.modes and len(self._words) > known:
            self._tell("words")
            yield self._of_words(opened, words)
        if vectors is None:
            return
        if opened.full is not None:
            yield self._of_full_width(opened, opened.full)
        some = False
        for one in series:
            for width in one.widths:
                for measured in self._of_width(opened, one, width):
                    some = True
                    yield measured
        if not some and DENSE in self._searches.modes:
            raise SpecError(
                "no index of any width could be made: " + " ".join(self.notes),
                "take another `index_type`",
                where="`index_type`",
            )

    def count(self, series: Sequence[Series]) -> int:
        """Stages that `measure` will tell of."""
        of_words = 0 if set(self._searches.modes) == {DENSE} else 1 + (LEXICAL in self._searches.modes)
        widths = sum(len(one.widths) for one in series) * len(self._searches.index_types)
        return widths + of_words + self._with_costs

    def _full_width(self, source: Source, vectors: Floats | None) -> FullWidth | None:
        if vectors is None or not self._with_costs:
            return None
        self._tell("the exact answers at full width")
        series = full_width(source)
        return FullWidth(
            lambda: (series.narrow(block, source.dim) for block in source.blocks()),
            series.narrow(vectors, source.dim),
            min(K, source.n_rows),
        )

    def _of_full_width(self, opened: _Opened, full: FullWidth) -> Measured:
        """No index: its bytes are unknown, and nobody chooses it."""
        source, ones = opened.source, np.ones(len(self._ids))
        configuration = configuration_of(source, full_width(source), source.dim)
        configuration = replace(configuration, index_type="exact", mode=DENSE)
        return self._measured(configuration, self._answers(full.rank, opened), more={OVERLAP: ones, ANN_RECALL: ones})

    def _of_words(self, opened: _Opened, words: _Words) -> Measured:
        options, costs = SearchOptions(mode=LEXICAL), None
        search = _search(words.store, Queries(None, self._texts), options)
        if self._with_costs:
            times = timed_singly(search, len(self._ids), K)
            costs = Costs(factory=None, effort=None, disk_bytes=words.bytes, build_seconds=words.seconds, single=times)
        cost, answers = words.bytes / opened.source.n_rows, self._answers(search, opened)
        return self._measured(Configuration(mode=LEXICAL), answers, bytes=cost, costs=costs)

    def _of_width(self, opened: _Opened, series: Series, width: int) -> Iterator[Measured]:
        source, words = opened.source, opened.words
        assert opened.vectors is not None
        queries = series.narrow(opened.vectors, width)
        base, chance, exact = configuration_of(source, series, width), self._chance_of(opened, series, width), None
        if opened.full is not None:
            stored = (series.narrow(block, width).astype("<f2").astype(np.float32) for block in source.blocks())
            exact = np.minimum(exact_search(stored, queries, min(K, source.n_rows))[0], 1)  # as a search limits them
        made: set[str] = set()
        for index_type in self._searches.index_types:
            self._tell(f"{series.name}, {width:,} dimensions, {index_type}")
            try:
                blocks = (series.narrow(block, width) for block in source.blocks())
                store, seconds = self._store(blocks, width, self._searches.index(index_type))
            except SpecError as fault:
                self._note(f"{index_type} at {width:,} dimensions is skipped: {fault.message}.")
                continue
            if self._is_repeated(store, index_type, made):
                continue
            if words is not None:
                store.lexical = words.store.lexical
            more: dict[str, Doubles] = {}
            if opened.full is not None and exact is not None:
                scores, rows = store.nearest(queries, min(K, source.n_rows))
                more = {OVERLAP: opened.full.overlap(rows), ANN_RECALL: share_found(scores, exact)}
            for mode in self._searches.modes:
                if mode == LEXICAL or (mode == HYBRID and words is None):
                    continue
                of_words = words if mode == HYBRID else None
                n_bytes = (_vector_bytes(store) + (0 if of_words is None else of_words.bytes)) / source.n_rows
                for options in self._searches.of(mode):
                    fusion, weight = (options.fusion, options.weight) if mode == HYBRID else (None, None)
                    yield self._measured(
                        replace(base, index_type=index_type, mode=mode, fusion=fusion, weight=weight),
                        self._answers(_search(store, Queries(queries, self._texts), options), opened),
                        bytes=n_bytes,
                        chance=chance if mode == DENSE else (),
                        costs=self._costs(store, queries, options, seconds, of_words),
                        more=more if mode == DENSE else {},
                    )

    def _is_repeated(self, store: Store, index_type: str, made: set[str]) -> bool:
        """Whether another type became the same index; noted where there are too few rows for one."""
        index = store.manifest.segments[0].ann
        if index is None and index_type not in (FLAT, AUTO):
            self._note(
                f"{index_type} is measured as flat: {store.n_rows:,} chunks are fewer than the {MIN_ROWS:,} from which"
                " on an index is made."
            )
        recipe = FLAT if index is None else str(index.recipe)
        repeated = recipe in made
        made.add(recipe)
        return repeated

    def _costs(
        self, store: Store, queries: Floats, options: SearchOptions, seconds: float, words: _Words | None
    ) -> Costs | None:
        if not self._with_costs:
            return None
        index, n_queries = store.manifest.segments[0].ann, len(queries)
        batch: Times | None = None
        rate: float | None = None
        if options.mode == DENSE:
            single, batch, rate = timed(lambda numbers, k: store.nearest(queries[numbers], k), n_queries, K)
        else:
            single = timed_singly(_search(store, Queries(queries, self._texts), options), n_queries, K)
        return Costs(
            factory=FLAT if index is None else str(index.recipe),
            effort=Effort() if index is None else index.effort,
            disk_bytes=_vector_bytes(store) + (0 if words is None else words.bytes),
            build_seconds=seconds + (0 if words is None else words.seconds),
            single=single,
            batch=batch,
            queries_per_s=rate,
            threads=faiss().omp_get_max_threads(),
        )

    def _chance_of(self, opened: _Opened, series: Series, width: int) -> tuple[float, ...]:
        """Means of the first measure with random projections of the same width, searched exactly."""
        source, vectors = opened.source, opened.vectors
        if not self._chance or series.name != "embedfilter" or DENSE not in self._searches.modes or vectors is None:
            return ()
        means = []
        for seed in range(CHANCES):
            drawn = random_projection(source.dim, width, seed)
            store, _ = self._store((drawn.narrow(block, width) for block in source.blocks()), width, IndexOptions(FLAT))
            queries = Queries(drawn.narrow(vectors, width))
            answers = self._answers(_search(store, queries, SearchOptions(mode=DENSE)), opened)
            means.append(float(next(iter(of_rankings(answers, self._qrels).values())).mean()))
        return tuple(means)

    def _store(self, blocks: Iterator[Floats], width: int, index: IndexOptions) -> tuple[Store, float]:
        folder = self._folder / "cell"
        try:
            return index_of(folder, blocks, width, index)
        finally:
            atomic.remove(folder)  # its mapping stays

    def _words_of(self, source: Source) -> _Words | None:
        """The words of a source's chunks; None: they are not searched, or there are none."""
        if set(self._searches.modes) == {DENSE}:
            return None
        content = hashlib.sha256()
        for chunk in source.chunks():
            content.update(f"{chunk.id}\0{chunk.heading}\0{chunk.text}\0".encode("utf-8", "surrogatepass"))
        key = content.digest()
        if key not in self._words:
            self._tell("indexing the words")
            blocks = (np.ones((len(block), 1), np.float32) for block in source.blocks())
            folder = self._folder / "words"
            store, seconds = index_of(folder, blocks, 1, IndexOptions(FLAT), source.texts())
            atomic.remove(folder)  # its mapping stays
            parts = store.manifest.segments
            n_bytes = sum(part.files[part.lexical].bytes for part in parts if part.lexical is not None)
            self._words[key] = _Words(store, n_bytes, seconds)
        return None if self._words[key].store.lexical is None else self._words[key]

    def _answers(self, search: Search, opened: _Opened) -> Run:
        """The best documents for each query, with the score of their best chunk."""
        if not self._qrels:
            return {}
        doc_ids = opened.doc_ids
        most = min(DEPTH + self._drop_self, len(set(doc_ids)))

        def ask(numbers: Sequence[int], wide: int) -> list[tuple[dict[str, float], int]]:
            """Documents with their scores, and the number of chunks that they are from."""
            answers = []
            for chunks in search(numbers, wide):
                best: dict[str, float] = {}
                for chunk in chunks:
                    best.setdefault(doc_ids[chunk.row], chunk.score)
                answers.append((best, len(chunks)))
            return answers

        wide = min(DEPTH + self._drop_self, len(doc_ids))
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
        self,
        configuration: Configuration,
        answers: Run,
        *,
        bytes: float | None = None,
        chance: tuple[float, ...] = (),
        costs: Costs | None = None,
        more: Mapping[str, Doubles] = MappingProxyType({}),
    ) -> Measured:
        values = {**(of_rankings(answers, self._qrels) if self._qrels else {}), **more}
        return Measured(configuration, values, bytes, chance, answers if self._keep_runs else {}, costs)

    def _note(self, message: str) -> None:
        if message not in self.notes:
            self.notes.append(message)


class Similarities:
    """Measures sources on pairs of sentences; a source's rows are the first sentences, then the second ones."""

    def __init__(self, pairs: Pairs, tell: Stages, *, chance: bool = True) -> None:
        self._pairs, self._tell, self._chance = pairs, tell, chance

    def measure(self, source: Source, series: Sequence[Series]) -> Iterator[Measured]:
        """Each width of each series."""
        vectors = np.concatenate(list(source.blocks()))
        for one in series:
            for width in one.widths:
                self._tell(f"{one.name}, {width:,} dimensions")
                chance: tuple[float, ...] = ()
                if self._chance and one.name == "embedfilter":
                    drawn = [random_projection(source.dim, width, seed) for seed in range(CHANCES)]
                    chance = tuple(float(self._values(vectors, by, width)["spearman"].mean()) for by in drawn)
                configuration = configuration_of(source, one, width)
                yield Measured(configuration, self._values(vectors, one, width), 2.0 * padded(width), chance)

    def count(self, series: Sequence[Series]) -> int:
        """Stages that `measure` will tell of."""
        return sum(len(one.widths) for one in series)

    def _values(self, vectors: Floats, series: Series, width: int) -> dict[str, Doubles]:
        first, second = np.split(series.narrow(vectors, width), 2)
        return of_similarities(np.einsum("ij,ij->i", first, second), self._pairs.scores)


def random_projection(hidden: int, width: int, seed: int) -> Series:
    """Random orthonormal directions."""
    drawn = np.random.default_rng(seed).standard_normal((hidden, width))
    return Series("random-projection", (width,), Filter(np.linalg.qr(drawn)[0].astype(np.float32)))


def configuration_of(source: Source, series: Series, width: int) -> Configuration:
    """What made the vectors of a width."""
    encoder = source.spec.encoder
    made = (
        {}
        if encoder is None
        else {name: getattr(encoder, name) for name in ("method", "pooling", "attention", "layer")}
    )
    return Configuration(
        model=source.model or None,
        **made,
        filter=series.name,
        offset=series.offset,
        tau=source.hidden / width,
        dim=width,
    )


def _search(store: Store, queries: Queries, options: SearchOptions) -> Search:
    return lambda numbers, k: rank(store, queries.of(numbers), k, None, options)


def _vector_bytes(store: Store) -> int:
    parts = store.manifest.segments
    return sum(part.files[name].bytes for part in parts for name in (VECTORS, ANN) if name in part.files)
