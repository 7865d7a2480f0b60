"""What a tuning measures: each layer of each method encoded once, each configuration searched once.

sample and encodings -> a `VectorSource` for each layer -> `Measurements`: dense search of any `VectorsChoice`, and all
searches of some of them, by query.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.corpora.records import Chunk
from ragidx.indexer.arrays import Doubles, Floats, Ints
from ragidx.indexer.specs import FilterSpec, filter_kind
from ragidx.pipelines.base.stages import Stages
from ragidx.pipelines.experiments.evaluate.grid import MeasuredConfiguration, Rankings, Searches
from ragidx.pipelines.experiments.evaluate.report import Configuration
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors
from ragidx.pipelines.experiments.evaluate.sources.series import Series, WidthChoice, series_of
from ragidx.pipelines.experiments.evaluate.sources.source import VectorSource
from ragidx.pipelines.experiments.tune.sample import TuneSample
from ragidx.pipelines.experiments.tune.search import SearchChoice, VectorsChoice
from ragidx.retriever.options import DENSE


@dataclass(frozen=True)
class EncodedSample:
    """A sample as a method encodes it.

    Attributes:
        vectors: the raw vectors of the encoder, opened for its last layer.
        layers: numbers of the layers, in their order; None: the model's own, the only one.
        texts: texts of the chunks, as they are encoded.
        chunks: (L, n, hidden) vectors of the chunks, raw.
        queries: (L, q, hidden) vectors of the queries, raw.
        questions: (L, m, hidden) vectors of sentences of the sample, raw: the mean of questions is theirs.
    """

    vectors: RawVectors
    layers: tuple[int | None, ...]
    texts: list[str]
    chunks: Floats
    queries: Floats
    questions: Floats


class LayerSource(VectorSource):
    """A layer of a sample as a source of evaluations: chunks and queries with vectors that are there already."""

    def __init__(self, encoding: EncodedSample, layer: int | None, sample: TuneSample) -> None:
        resolved, place = encoding.vectors.resolved, encoding.layers.index(layer)
        own = resolved.encoder_spec if layer is None else dataclasses.replace(resolved.encoder_spec, layer=layer)
        self.spec = dataclasses.replace(resolved.spec, encoder=own)
        self._raw: Floats = encoding.chunks[place]
        self._queries: Floats = encoding.queries[place]
        self._of_questions: Floats = encoding.questions[place]
        self.name, self.hidden, self.dim = "sample", self._raw.shape[1], self._raw.shape[1]
        self.n_documents = sample.n_documents
        self._vectors, self._chunks, self._texts = encoding.vectors, sample.chunks, encoding.texts
        self._searched = np.arange(len(sample.chunks))

    def encode(self, queries: Sequence[str]) -> Floats:
        """(q, hidden) vectors of the sample's queries, raw; `queries` are those."""
        return self._queries

    def _questions(self, spec: FilterSpec, drawn: Sequence[int]) -> Floats:
        return self._of_questions

    def _rows(self, numbers: Ints) -> Floats:
        return self._raw[numbers]

    def _stored_chunks(self) -> Iterator[Chunk]:
        return iter(self._chunks)

    def _names(self, column: str) -> list[str]:
        if column == "text":
            return self._texts
        return [chunk.doc_id if column == "doc_id" else chunk.id for chunk in self._chunks]


class Measurements:
    """A `Bench` of real searches.

    Args:
        sample: the sample that is searched.
        encodings: the encoded sample, by method.
        searches: all searches that are tried.
        measure: the measure that decides.
        folder: a temporary folder for the indexes.
        tell: called when a configuration begins.
    """

    def __init__(
        self,
        sample: TuneSample,
        encodings: Mapping[str, EncodedSample],
        searches: Searches,
        measure: str,
        folder: Path,
        tell: Stages,
    ) -> None:
        self._sample, self._encodings, self._measure = sample, encodings, measure
        self._dense, self._all = (Rankings(sample.judged, one, folder, tell) for one in (Searches((DENSE,)), searches))
        self.by_vectors: dict[VectorsChoice, MeasuredConfiguration | None] = {}
        self.by_search: dict[VectorsChoice, dict[SearchChoice, MeasuredConfiguration]] = {}
        self.faults: dict[str, None] = {}
        self._series: dict[tuple[object, ...], Series] = {}

    def dense(self, vectors: VectorsChoice) -> Doubles | None:
        """(q,) values of dense search; None: there are no such vectors, and `faults` says why."""
        if vectors not in self.by_vectors:
            try:
                self.by_vectors[vectors] = next(self._dense.measure(*self._of(vectors)))
            except (SpecError, ModelError) as fault:
                self.faults[f"Left out: {vectors.filter}, {vectors.dim:,} dimensions: {fault.message}."] = None
                self.by_vectors[vectors] = None
        found = self.by_vectors[vectors]
        return None if found is None else found.values[self._measure]

    def searches(self, vectors: VectorsChoice) -> dict[SearchChoice, Doubles]:
        """(q,) values of every search."""
        if vectors not in self.by_search:
            rows = self._all.measure(*self._of(vectors))
            self.by_search[vectors] = {_search_of(row.configuration): row for row in rows}
        return {one: row.values[self._measure] for one, row in self.by_search[vectors].items()}

    def _of(self, vectors: VectorsChoice) -> tuple[LayerSource, list[Series]]:
        source = LayerSource(self._encodings[vectors.method], vectors.layer, self._sample)
        key = (vectors.filter, vectors.dim, vectors.offset)
        if vectors.center or key not in self._series:
            widths = WidthChoice() if vectors.filter == "none" else WidthChoice((vectors.dim,))
            fields = {"offset": vectors.offset}
            (series,) = series_of(source, [vectors.filter], widths, fields, center=vectors.center)
            if vectors.center or filter_kind(vectors.filter).calibrated:
                return source, [series]
            self._series[key] = series
        return source, [self._series[key]]


def _search_of(configuration: Configuration) -> SearchChoice:
    assert configuration.mode is not None
    return SearchChoice(configuration.mode, configuration.fusion, configuration.weight)
