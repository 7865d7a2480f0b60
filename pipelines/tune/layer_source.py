"""One layer of a sample as a source of evaluations: its chunks, and their vectors at that layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from ragidx.corpora.records import Chunk
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.encoders.protocol import Encoder
from ragidx.indexer.filters.fitting import Sample, lowest
from ragidx.indexer.specs import FilterSpec
from ragidx.pipelines.evaluate.sources.raw_vectors import RawVectors
from ragidx.pipelines.evaluate.sources.source import Source


class LayerSource(Source):
    """Chunks and queries with vectors that are there already.

    Args:
        vectors: of the encoder of the last layer.
        layer: that the vectors are of, from 1 on, -1 for the last; None: the encoder's own, which has no others.
        chunks: of the sample.
        texts: of them, as they are encoded.
        raw: (n, hidden) of them.
        queries: (q, hidden) of all that will be asked, in their order.
    """

    def __init__(
        self,
        vectors: RawVectors,
        layer: int | None,
        chunks: Sequence[Chunk],
        texts: Sequence[str],
        raw: Floats,
        queries: Floats,
    ) -> None:
        spec, encoder = vectors.resolved.spec, vectors.resolved.encoder_spec
        self.spec = (
            spec if layer is None else dataclasses.replace(spec, encoder=dataclasses.replace(encoder, layer=layer))
        )
        self.name, self.hidden, self.dim = "sample", raw.shape[1], raw.shape[1]
        self.n_documents = len({chunk.doc_id for chunk in chunks})
        self._vectors, self._layer, self._chunks, self._texts = vectors, layer, chunks, texts
        self._raw, self._queries = raw, queries
        self._searched = np.arange(len(chunks))

    @property
    def encoder(self) -> Encoder:
        """That of the last layer: files and tokens are the same."""
        return self._vectors.encoder

    def encode(self, queries: Sequence[str]) -> Floats:
        """Raw; the queries are those that were encoded."""
        if len(queries) != len(self._queries):
            raise ValueError(f"{len(queries)} queries are asked, {len(self._queries)} were encoded")
        return self._queries

    def sample(self, spec: FilterSpec, *, tokens: bool) -> Sample:
        """Of the chunks with the lowest lots."""
        chosen = np.sort(np.array(lowest(spec.seed, self._names("chunk_id"), spec.sample), np.int64))
        if not tokens:
            return Sample(embeddings=self.rows(chosen))
        return Sample(ids=self.encoder.tokenizer.ids([self._texts[row] for row in chosen.tolist()]))

    def _rows(self, numbers: Ints) -> Floats:
        return self._raw[numbers]

    def _encode_texts(self, texts: Sequence[str]) -> Floats:
        if self._layer is None:
            return self._vectors.texts(texts)
        every = self._vectors.layers(texts)
        return np.array(every[self._layer if self._layer < 0 else self._layer - 1])

    def _stored_chunks(self) -> Iterator[Chunk]:
        return iter(self._chunks)

    def _names(self, column: str) -> list[str]:
        return [chunk.doc_id if column == "doc_id" else chunk.id for chunk in self._chunks]
