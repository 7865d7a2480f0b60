"""The configurations of a grid, measured on one data set: each width of each filter, searched in each mode.

source, series and judged queries -> a real index of each width in a temporary folder -> the documents of each query, by
their best chunk -> measures by query. BM25 is made once for equal chunks, and serves every width. The first measure of
EmbedFilter is repeated with ten random projections of the same width: what the choice of directions adds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.evalsets import Run, SentencePairs
from ragidx.indexer import atomic
from ragidx.indexer.ann.index_types import AUTO, DEFAULT_RECALL, FLAT, MIN_ROWS, IndexOptions, padded
from ragidx.indexer.arrays import Bools, Doubles, Floats
from ragidx.pipelines.base.stages import Stages
from ragidx.pipelines.experiments.evaluate.cells import (
    Costs,
    FullWidth,
    Search,
    WordIndex,
    costs_of,
    documents,
    factory_of,
    index_of,
    search_of,
    vector_bytes,
    words_of,
)
from ragidx.pipelines.experiments.evaluate.chance import PROJECTIONS, Chance, random_projection
from ragidx.pipelines.experiments.evaluate.measures import (
    NEARNESS,
    measures_of,
    of_rankings,
    of_similarities,
    own_first,
)
from ragidx.pipelines.experiments.evaluate.options import ANSWERS
from ragidx.pipelines.experiments.evaluate.report import Configuration
from ragidx.pipelines.experiments.evaluate.sources.series import Series, full_width
from ragidx.pipelines.experiments.evaluate.sources.source import NOTHING_TO_SEARCH, VectorSource
from ragidx.pipelines.experiments.evaluate.tasks import Judged
from ragidx.retriever.options import DENSE, HYBRID, LEXICAL, WEIGHT, SearchOptions
from ragidx.retriever.rows import FolderRows, Queries

_LENGTHS = ("method", "template", "copies", "max_length", "compute_matched")  # on which depends where chunks end
_OF_ENCODER = (*_LENGTHS, "pooling", "attention", "layer")

EXACT = "exact"
"""In place of an index type: float32 vectors of which none is stored, all compared."""


@dataclass(frozen=True)
class Searches:
    """How vectors are searched: the part of a grid that no vector depends on."""

    modes: tuple[str, ...]
    index_types: tuple[str, ...] = (FLAT,)
    fusions: tuple[str, ...] = ("z",)
    weights: tuple[float, ...] = ()
    target_recall: float = DEFAULT_RECALL

    def of(self, mode: str, own_weight: float | None = None) -> list[SearchOptions]:
        """The searches of a mode; where no weight is named, that of the index, else the default."""
        if mode != HYBRID:
            return [SearchOptions(mode=mode)]
        weights = self.weights or (WEIGHT if own_weight is None else own_weight,)
        pairs = [(fusion, weight) for fusion in self.fusions for weight in weights]
        return [SearchOptions(mode=mode, fusion=fusion, weight=weight) for fusion, weight in pairs]


@dataclass(frozen=True)
class MeasuredConfiguration:
    """One configuration, measured.

    Attributes:
        configuration: the configuration that was measured.
        values: values of each measure, (q,) by query.
        bytes: size of a chunk in bytes; None: unknown.
        tokens: tokens that the model reads of a text, on average; None: unknown.
        chance: means of the first measure with random projections.
        run: the answers to each query; empty where they are not kept, or there are none.
        costs: time and size on disk; None: not measured.
    """

    configuration: Configuration
    values: dict[str, Doubles]
    bytes: float | None = None
    tokens: float | None = None
    chance: tuple[float, ...] = ()
    run: Run = field(default_factory=dict)
    costs: Costs | None = None


@dataclass(frozen=True)
class _Opened:
    """A source that is measured, and what its rows share: the queries' vectors, the words, exact search."""

    source: VectorSource
    vectors: Floats
    doc_ids: list[str]
    words: WordIndex | None
    full: FullWidth | None


class Rankings:
    """Measures sources on queries; shares what does not depend on the encoder.

    Args:
        judged: the queries; without judgements only agreement with exact search is measured.
        searches: modes and index types.
        folder: a temporary folder for the indexes.
        tell: called when a configuration begins.
        measure: the measure by which EmbedFilter is compared with random projections; None: it is not.
        depth: number of documents that are kept of each query.
        drop_self: the document with the query's id is no answer.
        keep_runs: whether answers are kept.
        costs: whether time and disk are measured, and agreement with exact search, which then is the first dense row.

    Attributes:
        notes: notes on what was left out.
    """

    def __init__(
        self,
        judged: Judged,
        searches: Searches,
        folder: Path,
        tell: Stages,
        *,
        measure: str | None = None,
        depth: int = ANSWERS,
        drop_self: bool = False,
        keep_runs: bool = False,
        costs: bool = False,
    ) -> None:
        self._texts, self._ids = list(judged.texts.values()), list(judged.texts)
        self._qrels, self._searches = judged.qrels, searches
        self._folder, self._tell = folder, tell
        self._measure, self._depth, self._drop_self, self._keep_runs = measure, depth, drop_self, keep_runs
        self._with_costs = costs
        self._words: dict[bytes, WordIndex] = {}
        self._has_own = False
        self.notes: list[str] = []

    def measure(
        self, source: VectorSource, series: Sequence[Series], vectors: Floats | None = None
    ) -> Iterator[MeasuredConfiguration]:
        """All configurations of a source: words alone, where no equal chunks were measured, then each width.

        Args:
            source: the source whose rows are searched.
            series: filters and widths.
            vectors: (q, dim) vectors of the queries, in the space of the source; None: their texts are encoded.

        Raises:
            CorpusError: there is nothing to search.
            SpecError: no index of any width can be made.
        """
        if not source.n_rows:
            raise CorpusError(NOTHING_TO_SEARCH, "add documents", where=source.name)
        doc_ids = source.doc_ids()
        if vectors is None and set(self._searches.modes) != {LEXICAL}:
            vectors = source.encode(self._texts)
        words, is_new = self._words_of(source)
        if words is not None and LEXICAL in self._searches.modes and is_new:
            self._tell("words")
            queries, options = Queries(None, self._texts), SearchOptions(mode=LEXICAL)
            costs = costs_of(words.store, queries, options, 0, words) if self._with_costs else None
            answers, n_bytes = search_of(words.store, queries, options), words.bytes / source.n_rows
            configuration = Configuration(mode=LEXICAL)
            if len(self._words) > 1:  # of other chunks
                configuration = replace(configuration, model=source.model, **_of_encoder(source, _LENGTHS))
            yield self._measured(configuration, answers, doc_ids, bytes=n_bytes, costs=costs)
        if vectors is None:
            return
        if empty := int(np.count_nonzero(~vectors.any(axis=1))):
            self._note(
                f"Unanswered by dense search, since {source.model} gives no vectors for them: {empty:,} x query."
            )
        full = None
        if self._with_costs:
            self._tell("the exact answers at full width")
            full = FullWidth(source, vectors)
            whole = replace(configuration_of(source, full_width(source), source.dim), index_type=EXACT, mode=DENSE)
            everything = dict.fromkeys(NEARNESS, np.ones(len(self._ids)))
            # No index, so it has no bytes.
            yield self._measured(whole, full.rank, doc_ids, tokens=source.tokens, more=everything)
        opened, some = _Opened(source, vectors, doc_ids, words, full), False
        for one in series:
            for width in one.widths:
                for measured in self._of_width(one, width, opened):
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
        each, drawn = len(self._searches.index_types), self._measure is not None
        of_words = 0 if set(self._searches.modes) == {DENSE} else 1 + (LEXICAL in self._searches.modes)
        widths = sum(len(one.widths) * (each + (drawn and _is_embedfilter(one))) for one in series)
        return of_words + self._with_costs + widths

    def _of_width(self, series: Series, width: int, opened: _Opened) -> Iterator[MeasuredConfiguration]:
        source, words = opened.source, opened.words
        queries = series.narrow(opened.vectors, width, of_queries=True)
        base = configuration_of(source, series, width)
        modes = [mode for mode in self._searches.modes if mode == DENSE or (mode == HYBRID and words is not None)]
        searches = [options for mode in modes for options in self._searches.of(mode, source.spec.weight)]
        drawn = self._drawn(series, width, searches, opened)
        made: set[str] = set()

        def blocks() -> Iterator[Floats]:
            return (series.narrow(block, width) for block in source.blocks())

        for index_type in self._searches.index_types:
            self._tell(f"{series.name}, {width:,} dimensions, {index_type}")
            try:
                index = IndexOptions(index_type, self._searches.target_recall)
                store, seconds = index_of(self._folder / "cell", blocks(), width, index)
            except SpecError as fault:
                self._note(f"{index_type} at {width:,} dimensions is skipped: {fault.message}.")
                continue
            finally:
                atomic.remove(self._folder / "cell")  # its mapping stays
            if self._is_repeated(store, index_type, made):
                continue
            if words is not None:
                store.lexical = words.store.lexical
            for options in searches:
                configuration, n_bytes = replace(base, index_type=index_type, mode=options.mode), vector_bytes(store)
                of_words = words if options.mode == HYBRID else None
                if of_words is not None:
                    configuration = replace(configuration, fusion=options.fusion, weight=options.weight)
                    n_bytes += of_words.bytes
                asked = Queries(queries, self._texts)
                more: dict[str, Doubles] = {}
                if options.mode == DENSE and opened.full is not None:
                    more = opened.full.agreement(store, queries, blocks())
                yield self._measured(
                    configuration,
                    search_of(store, asked, options),
                    opened.doc_ids,
                    bytes=n_bytes / source.n_rows,
                    tokens=source.tokens,
                    chance=drawn.get(options, ()),
                    costs=costs_of(store, asked, options, seconds, of_words) if self._with_costs else None,
                    more=more,
                    empty=np.asarray(~queries.any(axis=1)) if options.mode == DENSE else None,
                )

    def _drawn(
        self, series: Series, width: int, searches: Sequence[SearchOptions], opened: _Opened
    ) -> dict[SearchOptions, tuple[float, ...]]:
        """What random projections reach, by search."""
        if self._measure is None or not _is_embedfilter(series):
            return {}
        self._tell(f"random projections, {width:,} dimensions")
        words = None if opened.words is None else opened.words.store
        chance = Chance(
            *(opened.source, opened.vectors, self._texts, self._qrels, words, self._measure),
            depth=self._depth,
            drop_self=self._drop_self,
        )
        return chance.means(width, searches, series.means)

    def _is_repeated(self, store: FolderRows, index_type: str, made: set[str]) -> bool:
        """Whether another type became the same index; noted where there are too few rows for one."""
        factory = factory_of(store)
        if factory == FLAT and index_type not in (FLAT, AUTO):
            self._note(
                f"{index_type} is measured as flat: {store.n_rows:,} chunks are fewer than the {MIN_ROWS:,} from which"
                " on an index is made."
            )
        repeated = factory in made
        made.add(factory)
        return repeated

    def _words_of(self, source: VectorSource) -> tuple[WordIndex | None, bool]:
        """The words of a source's chunks, and whether they are new; None: they are not searched, or there are none."""
        if set(self._searches.modes) == {DENSE}:
            return None, False
        content = hashlib.sha256()
        for chunk in source.chunks():
            content.update(f"{chunk.id}\0{chunk.heading}\0{chunk.text}\0".encode("utf-8", "surrogatepass"))
        key, is_new = content.digest(), content.digest() not in self._words
        if is_new:
            self._tell("indexing the words")
            self._words[key] = words_of(self._folder / "words", source)
        return None if self._words[key].store.lexical is None else self._words[key], is_new

    def _measured(
        self,
        configuration: Configuration,
        search: Search,
        doc_ids: Sequence[str],
        *,
        bytes: float | None = None,
        tokens: float | None = None,
        chance: tuple[float, ...] = (),
        costs: Costs | None = None,
        more: Mapping[str, Doubles] = MappingProxyType({}),
        empty: Bools | None = None,
    ) -> MeasuredConfiguration:
        run: Run = {}
        if self._qrels or self._keep_runs:
            run = documents(search, self._ids, doc_ids, self._depth + self._drop_self)
            if empty is not None:
                run = {name: {} if nothing else run[name] for name, nothing in zip(self._ids, empty, strict=True)}
            if self._drop_self:
                run = {name: {doc_id: hits[doc_id] for doc_id in hits if doc_id != name} for name, hits in run.items()}
            elif self._qrels and not self._has_own and (own := own_first(run, self._qrels)):
                self._has_own = True  # once, of the first configuration
                self._note(own)
        values = {**(of_rankings(run, self._qrels, measures_of(self._depth)) if self._qrels else {}), **more}
        kept = run if self._keep_runs else {}
        return MeasuredConfiguration(configuration, values, bytes, tokens, chance, kept, costs)

    def _note(self, message: str) -> None:
        if message not in self.notes:
            self.notes.append(message)


class Similarities:
    """Measures sources on pairs of sentences; a source's rows are the first sentences, then the second ones."""

    def __init__(self, pairs: SentencePairs, tell: Stages, *, measure: str) -> None:
        self._pairs, self._tell, self._measure = pairs, tell, measure
        self.notes: list[str] = []  # nothing is left out

    def measure(
        self, source: VectorSource, series: Sequence[Series], vectors: Floats | None = None
    ) -> Iterator[MeasuredConfiguration]:
        """Each width of each series."""
        vectors = np.concatenate(list(source.blocks()))
        for one in series:
            for width in one.widths:
                self._tell(f"{one.name}, {width:,} dimensions")
                chance: tuple[float, ...] = ()
                if _is_embedfilter(one):
                    drawn = [random_projection(source.dim, width, seed, one.means) for seed in range(PROJECTIONS)]
                    chance = tuple(float(self._values(vectors, by, width)[self._measure].mean()) for by in drawn)
                configuration = configuration_of(source, one, width)
                yield MeasuredConfiguration(
                    configuration, self._values(vectors, one, width), 2.0 * padded(width), source.tokens, chance
                )

    def count(self, series: Sequence[Series]) -> int:
        """Stages that `measure` will tell of."""
        return sum(len(one.widths) for one in series)

    def _values(self, vectors: Floats, series: Series, width: int) -> dict[str, Doubles]:
        first, second = np.split(series.narrow(vectors, width), 2)
        return of_similarities(np.einsum("ij,ij->i", first, second), self._pairs.scores)


def _is_embedfilter(series: Series) -> bool:
    """Whether it is made of raw vectors here: of those that an index stores filtered, no raw ones are known."""
    return series.name == "embedfilter" and series.map is not None


def configuration_of(source: VectorSource, series: Series, width: int) -> Configuration:
    """What made the vectors of a width."""
    return Configuration(
        model=source.model or None,
        **_of_encoder(source, _OF_ENCODER),
        instruction=source.instruction,
        filter=series.name,
        offset=series.offset,
        center=series.means is not None or source.spec.filter.center,
        tau=source.hidden / width,
        dim=width,
        questions=source.questions,
    )


def _of_encoder(source: VectorSource, names: Sequence[str]) -> dict[str, Any]:
    encoder = source.spec.encoder
    return {} if encoder is None else {name: getattr(encoder, name) for name in names}
