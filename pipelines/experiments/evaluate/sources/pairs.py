"""Pairs of sentences as a source: their raw vectors, the first sentences before the second ones.

Both go the way of a query, with the encoder's instruction: there is no document, and models that were trained with an
instruction expect one on both sides (as MTEB encodes pairs).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ragidx.corpora.evalsets import SentencePairs
from ragidx.corpora.records import Chunk
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.specs import FilterSpec
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors
from ragidx.pipelines.experiments.evaluate.sources.source import VectorSource, mean_tokens


class PairsSource(VectorSource):
    """The sentences of pairs, encoded when this is made.

    Args:
        name: path of the pairs' file.
        pairs: the pairs that are compared.
        vectors: the raw vectors of the encoder.
    """

    def __init__(self, name: Path, pairs: SentencePairs, vectors: RawVectors) -> None:
        self.name, self.spec = str(name), vectors.resolved.spec
        self.instruction = vectors.resolved.encoder_spec.instruction
        self.hidden = self.dim = vectors.resolved.hidden
        self.n_documents = len(pairs.scores)
        self._vectors, self._texts = vectors, [*pairs.first, *pairs.second]
        self._raw = vectors.queries(self._texts)
        self._searched = np.arange(len(self._texts))

    @functools.cached_property
    def tokens(self) -> float | None:
        """Of all sentences, which are read as queries."""
        return mean_tokens(self.encoder, self._texts, self.encoder.query_instruction(None))

    def _rows(self, numbers: Ints) -> Floats:
        return self._raw[numbers].copy()

    def _questions(self, spec: FilterSpec, drawn: Sequence[int]) -> Floats:
        return self.rows(np.array(drawn, np.int64))  # both sides of a pair are questions

    def _stored_chunks(self) -> Iterator[Chunk]:
        return (Chunk(str(number), 0, len(text), text) for number, text in enumerate(self._texts))

    def _names(self, column: str) -> list[str]:
        return self._texts if column == "text" else [str(number) for number in range(len(self._texts))]
