"""Embedder: texts or questions to stored vectors, by an encoder and a filter.

n texts -> (n, dim) float32: encoded, filtered on the encoder's device, normalised to length 1; in an index that was
adapted, mapped and normalised again. Builds, searches,
framework adapters and the check of precomputed vectors all use it, so equal texts have equal vectors everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragidx.indexer.arrays import Floats
from ragidx.indexer.encoders.protocol import EncodedRows, Encoder, check_finite, check_texts, collect
from ragidx.indexer.filters.anisotropy import Anisotropy
from ragidx.indexer.normalize import l2_normalize

if TYPE_CHECKING:
    from ragidx.indexer.filters.filter import Filter


@dataclass(frozen=True)
class Embedder:
    """An encoder and the filter behind it.

    Every vector has length 1. Where nothing of a text is pooled, or the tokenizer does not know most of it, so that the
    model takes all such texts for one, its vector is zero, and the caller decides what that means. A vector that is not
    finite is a `ModelError`.
    """

    encoder: Encoder
    filter: Filter | None = None  # for vectors of the encoder's width
    anisotropy: Anisotropy = field(default_factory=Anisotropy, compare=False)  # of the documents so far, but raw ones

    @property
    def dim(self) -> int:
        """Width of the vectors."""
        return self.encoder.hidden if self.filter is None else self.filter.dim

    def embed_document(self, texts: Sequence[str]) -> Floats:
        """(n, dim) of documents."""
        check_texts(texts)
        return collect(self.batches(texts), len(texts), self.dim)

    def embed_query(self, texts: Sequence[str], instruction: str | None = None) -> Floats:
        """(n, dim) of queries; `instruction` as in `Encoder.encode_query`."""
        check_texts(texts)
        asked = self.encoder.query_instruction(instruction)
        return collect(self.batches(texts, instruction=asked), len(texts), self.dim)

    def raw(self, texts: Sequence[str], instruction: str | None = None) -> Floats:
        """(n, hidden) neither filtered nor normalised; with an instruction, which may be empty, of queries."""
        check_texts(texts)
        batches = self.batches(texts, instruction=instruction, raw=True)
        return collect(batches, len(texts), self.encoder.hidden)

    encode_document, encode_query = embed_document, embed_query  # as an encoder calls what is not filtered

    def batches(
        self,
        texts: Sequence[str],
        *,
        instruction: str | None = None,
        raw: bool = False,
        tune: bool = True,
        names: Sequence[str] | None = None,
    ) -> Iterator[EncodedRows]:
        """Vectors as they come, in the order that suits the encoder.

        Args:
            texts: what to encode.
            instruction: None for documents; for queries the instruction, or the empty string.
            raw: neither filtered nor normalised, to fit or choose a filter.
            tune: as in `Encoder.batches`.
            names: names of the texts in messages; None: their number and beginning.
        """
        project = None if raw else self.filter
        if project is not None and instruction is not None:
            project = project.of_queries()
        batches = self.encoder.batches(list(texts), instruction=instruction, project=project, tune=tune)
        for batch in check_finite(batches, texts, names):
            vectors = batch.vectors if raw else self._finished(batch.vectors)
            if batch.unknown:
                vectors = vectors.copy()  # those of a server's answer cannot be written
                vectors[batch.unknown] = 0
            if instruction is None and not raw:
                self.anisotropy.add(vectors, batch.raw_sum)
            yield dataclasses.replace(batch, vectors=vectors)

    def _finished(self, filtered: Floats) -> Floats:
        units = l2_normalize(filtered).vectors
        return units if self.filter is None else self.filter.mapped(units)
