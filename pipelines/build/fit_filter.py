"""Calibration in a build: a filter is fitted on a sample of the corpus, before anything of the corpus is stored.

Documents -> those with the lowest lots -> their chunks, cut as the build cuts them -> those with the lowest lots ->
embeddings or token ids -> the plan's filter. The sample depends on the seed, the corpus and the cutting alone, not on
the order of files. What is held is the text of the sample and its embeddings (sample x hidden width x 4 bytes). Their
vectors are handed back, so that no chunk goes through the model twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.corpora.records import Document
from ragidx.indexer.encoders.protocol import Batch
from ragidx.indexer.filters.fitting import DocumentSample, Sample, lowest
from ragidx.indexer.filters.unembedding import find_unembedding
from ragidx.indexer.specs import FILTERS, IndexSpec
from ragidx.pipelines.build.chunks import Cutter, Item
from ragidx.pipelines.build.resolve import Plan

_CHARS_A_TOKEN = 8  # more than a token of any language has on average: enough documents are drawn to fill the sample
_WHOLE_TOKENS = 2048  # of a document that is not cut, when it is guessed how much text a sample takes
_WINDOW = 4096  # texts that are rendered at once


@dataclass(frozen=True)
class Fitted:
    """The sample that a filter was fitted on.

    Attributes:
        n: how many chunks, equal texts included.
        items: one for each different text; none where the filter needed no embeddings.
        vectors: (len(items), k) float32, filtered; not normalised.
    """

    n: int
    items: list[Item]
    vectors: NDArray[np.float32]


def check_fit(plan: Plan, corpus: str | Path) -> None:
    """What can be told before the corpus is read.

    Raises:
        SpecError: the corpus cannot be read twice, or the filter's width is out of range.
        ModelError: the filter needs an unembedding matrix, and the model has none.
    """
    spec = plan.spec.filter
    if str(corpus) == "-":
        raise SpecError(
            f"filter '{spec.name}' is fitted on the corpus first, and standard input cannot be read twice",
            "write it to a file and build that, or take another filter",
            where="--filter",
        )
    spec.width(find_unembedding(plan.files).shape[1] if FILTERS[spec.name].head else plan.hidden)


def draw(found: Iterable[Document], spec: IndexSpec, on_document: Callable[[], None]) -> list[Document]:
    """The documents that the sample is taken from, by rising lot; the corpus streams through once."""
    size = spec.chunk.size or _WHOLE_TOKENS
    drawn = DocumentSample(spec.filter.seed, n=spec.filter.sample, n_chars=_CHARS_A_TOKEN * spec.filter.sample * size)
    for document in found:
        drawn.add(document)
        on_document()
    return drawn.documents()


def fit_filter(
    plan: Plan,
    drawn: Sequence[Document],
    chunker: Chunker,
    encode: Callable[[Sequence[str]], Iterator[Batch]],
    on_sample: Callable[[int], None],
) -> Fitted:
    """Fit the plan's filter on chunks of the documents that were drawn.

    Args:
        plan: its filter is set.
        drawn: as `draw` gives them.
        chunker: the build's.
        encode: texts through the plan's encoder, raw. It is not tuned first: a build that was killed shall find the
            same numbers again, and with them its vectors in the journal.
        on_sample: called with the number of texts before the first is encoded; not where none is.

    Raises:
        SpecError: the sample is too small for the width.
        ModelError: the model gave a number that is not finite.
    """
    spec = plan.spec.filter
    with Cutter(chunker) as cutter:
        cut = [items for document in drawn for items in cutter.submit(document, b"")]
        every = [item for items in [*cut, *cutter.drain()] for item in items]
    sample = [every[place] for place in lowest(spec.seed, (item.row.chunk_id for item in every), spec.sample)]
    if FILTERS[spec.name].head:
        plan.fit(Sample(ids=plan.encoder.tokenizer.ids([item.text for item in sample])))
        return Fitted(len(sample), [], np.zeros((0, plan.dim()), np.float32))
    different = {item.row.text_hash: item for item in sample}
    places = {key: place for place, key in enumerate(different)}
    on_sample(len(different))
    embeddings = _embeddings(list(different.values()), plan.encoder.hidden, encode)
    plan.fit(Sample(embeddings=embeddings[[places[item.row.text_hash] for item in sample]]))
    assert plan.filter is not None
    return Fitted(len(sample), list(different.values()), plan.filter(embeddings))


def _embeddings(
    items: Sequence[Item], hidden: int, encode: Callable[[Sequence[str]], Iterator[Batch]]
) -> NDArray[np.float32]:
    found = np.zeros((len(items), hidden), np.float32)
    for start in range(0, len(items), _WINDOW):
        for batch in encode([item.text for item in items[start : start + _WINDOW]]):
            found[[start + row for row in batch.rows]] = batch.vectors
    bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if bad.size:
        raise ModelError(
            "the model gave a vector that is not finite",
            "try --dtype float32; if it stays, exclude the document",
            where=items[bad[0]].row.chunk_id,
        )
    return found
