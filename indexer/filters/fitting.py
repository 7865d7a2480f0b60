"""Statistics of a sample of the corpus, for fitted filters.

documents -> DocumentSample -> (chunks, cut by the caller) -> Sample(embeddings (n, d), counts (V,)) -> mean, principal
components, token counts. A sample is drawn by hashes of a seed and of names, so it does not depend on the order of the
documents, on the machine, or on a library's random numbers. Statistics are float64. The filters are in
`ragidx.indexer.filters.filter`.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from ragidx.corpora.chunking.sentences import sentences
from ragidx.corpora.errors import SpecError
from ragidx.indexer.arrays import Doubles, Floats, Ints, slices
from ragidx.indexer.digests import digest
from ragidx.indexer.filters.unembedding import Spectrum, decompose

T = TypeVar("T")

N_QUESTIONS = 300
"""Sentences of the corpus that are encoded as questions, for their mean."""

_BLOCK = 4096
# A direction whose standard deviation is below this share of the embeddings' length is rounding alone: float32 has
# seven digits, and a forward pass keeps some six of them.
_NOISE = 1e-6
_CHARACTERS = 30, 300  # of a sentence that is encoded as a question


def random_key(seed: int, name: str) -> bytes:
    """What `name` drew: 16 bytes that look random, and are the same everywhere."""
    return digest(f"{seed}\0{name}")


def lowest(seed: int, names: Iterable[str], n: int) -> list[int]:
    """The places of the `n` names with the lowest random keys, the lowest first; of equal names the first counts first.

    >>> lowest(0, ["a", "b", "c"], 2), lowest(0, ["c", "b", "a"], 2)
    ([2, 0], [0, 2])
    """
    drawn = ((random_key(seed, name), place) for place, name in enumerate(names))
    return [place for _, place in heapq.nsmallest(n, drawn)]


class DocumentSample(Generic[T]):
    """The documents with the lowest random keys of all that are added: as many as are wanted, or as hold enough text.

    Kept is the shortest row of documents, by rising random key, that has `n` of them or `n_chars` characters. No
    document that has left it can be needed later, so what is held is bounded by `n_chars` and one document more.
    """

    def __init__(self, seed: int, *, n: int, n_chars: int) -> None:
        self._seed, self._n, self._n_chars = seed, n, n_chars
        self._held: list[tuple[int, int, int, T]] = []  # a heap, the highest key first
        self._chars = 0
        self.n_added = 0  # documents, blank ones included

    def add(self, doc_id: str, n_chars: int, item: T) -> None:
        """Add a document to the draw, as any item. A blank one, of no characters, has no chunk and is not kept."""
        self.n_added += 1
        if not n_chars:
            return
        place = -int.from_bytes(random_key(self._seed, doc_id))
        heapq.heappush(self._held, (place, -self.n_added, n_chars, item))
        self._chars += n_chars
        while len(self._held) > self._n or self._chars - self._held[0][2] >= self._n_chars:
            self._chars -= heapq.heappop(self._held)[2]

    def items(self) -> list[T]:
        """The items of the documents that are kept, by rising random key."""
        return [item for *_, item in sorted(self._held, key=lambda held: held[:2], reverse=True)]


def as_questions(texts: Iterable[str], seed: int) -> list[str]:
    """Sentences to encode as questions, for their mean: one of each of the first 300 texts.

    It has 30 to 300 characters, and is drawn by a seed; where a text has none, it is the beginning of the text.
    """
    drawn = []
    for text in itertools.islice(filter(str.strip, texts), N_QUESTIONS):
        found = [text[start:end] for start, end in sentences(text)]
        found = [one for one in found if _CHARACTERS[0] <= len(one) <= _CHARACTERS[1]]
        drawn.append(found[lowest(seed, found, 1)[0]] if found else text.strip()[: _CHARACTERS[1]])
    return drawn


@dataclass(frozen=True, eq=False)
class FilterSample:
    """A sample of the corpus; a filter needs some of the fields, or none."""

    embeddings: Floats | None = None  # (n, d), raw: neither filtered nor normalised
    ids: Sequence[Sequence[int]] | None = None  # of the tokens of each chunk's text, special tokens excluded
    questions: Floats | None = None  # (m, d), raw, of sentences of the corpus that were encoded as questions

    def means(self) -> tuple[Doubles, Doubles]:
        """Means of documents and of questions, (d,) each, summed in float64; of embeddings that are not zero.

        Raises:
            SpecError: all of them are.
        """
        assert self.embeddings is not None
        assert self.questions is not None
        documents, questions = (rows[rows.any(axis=1)] for rows in (self.embeddings, self.questions))
        if not (len(documents) and len(questions)):
            raise _nothing("embedding")
        return documents.mean(axis=0, dtype=np.float64), questions.mean(axis=0, dtype=np.float64)

    def components(self, width: int, name: str) -> tuple[Doubles, Spectrum]:
        """Mean (d,) and principal components, as columns by falling standard deviation, which is their value.

        Summed in float64. Embeddings that are zero, of texts without a pooled token, are skipped. The filter `name`
        uses `width` components.

        Raises:
            SpecError: all embeddings are zero, or they vary in fewer than `width` directions; n of them vary in n - 1
                at most. A direction without variance cannot be scaled to variance 1, and a coordinate that is the same
                for all says nothing.
        """
        assert self.embeddings is not None
        rows = self.embeddings[self.embeddings.any(axis=1)]
        if not len(rows):
            raise _nothing("embedding")
        mean = rows.mean(axis=0, dtype=np.float64)
        covariance = np.zeros((len(mean), len(mean)))
        for block in slices(rows, _BLOCK):
            centred = block - mean
            covariance += centred.T @ centred / len(rows)
        components = decompose(covariance)
        length = np.sqrt(np.trace(covariance) + mean @ mean)
        varying = min(len(rows) - 1, int(np.count_nonzero(components.values > _NOISE * length)))
        if width > varying:
            raise SpecError(
                f"filter '{name}' is to keep {width} directions, and the {len(rows)} chunks that it is fitted on"
                f" vary in {varying}",
                "give a smaller `dim`, a larger `filter_sample` or a larger corpus, or take another filter",
                where="`filter`",
            )
        return mean, components

    def token_counts(self, vocabulary: int) -> Ints:
        """How often each of `vocabulary` tokens occurs; ids beyond the rows of the head do not count.

        Raises:
            SpecError: no token occurs.
        """
        assert self.ids is not None
        counts = np.zeros(vocabulary, dtype=np.int64)
        for ids in self.ids:
            found = np.asarray(ids, dtype=np.int64)
            np.add.at(counts, found[found < vocabulary], 1)
        if not counts.any():
            raise _nothing("token")
        return counts


def _nothing(what: str) -> SpecError:
    return SpecError(
        f"the sample of the corpus has no {what} to fit a filter on", "take another filter", where="`filter`"
    )
