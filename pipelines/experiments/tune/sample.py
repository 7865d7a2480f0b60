"""The part of a corpus that a tuning is measured on: the documents that answer the queries, and others, by random keys.

corpus or index, read once -> documents by random keys, cut into chunks -> queries, judged or made of these
documents -> `TuneSample`: as many chunks and queries as there is time to encode. Nothing is encoded here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from ragidx.corpora.records import Chunk
from ragidx.corpora.sources import BY_RULE
from ragidx.indexer.filters.fitting import DocumentSample, lowest
from ragidx.pipelines.experiments.evaluate.options import Questions
from ragidx.pipelines.experiments.evaluate.significance import FEWEST_QUERIES
from ragidx.pipelines.experiments.evaluate.sources.source import IndexSource
from ragidx.pipelines.experiments.evaluate.synthetic import N_QUERIES, synthetic, taken_out
from ragidx.pipelines.experiments.evaluate.tasks import Judged
from ragidx.pipelines.ingest.corpus import Reading
from ragidx.pipelines.ingest.options import BuildOptions
from ragidx.pipelines.ingest.report import Progress, Skips
from ragidx.pipelines.ingest.workers.chunks import Cutter, Draft, cut_ahead

T = TypeVar("T")

MOST_CHUNKS = 4000
"""Chunks of a sample at most."""

_CHARS_A_CHUNK = 8 * 512
_SHARE = 0.75  # of a sample, for the documents that answer queries


@dataclass(frozen=True)
class TuneSample:
    """The chunks and queries that are encoded.

    Attributes:
        chunks: the chunks, without what synthetic queries took out of them.
        judged: the queries, with their judgements.
        n_documents: number of documents that the chunks are of.
        of_documents: number of documents in the whole corpus.
        notes: notes on what could not be drawn.
    """

    chunks: tuple[Chunk, ...]
    judged: Judged
    n_documents: int
    of_documents: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawn:
    """The documents that a sample may hold, by id: those that answer queries, then others, those with low keys first.

    Attributes:
        documents: the chunks of each document.
        of_documents: number of documents in the whole corpus.
        judged: queries, in the order of their random keys; synthetic ones are taken out of the documents.
        notes: notes on what was skipped or could not be drawn.
    """

    documents: Mapping[str, Sequence[Chunk]]
    of_documents: int
    judged: Judged
    notes: tuple[str, ...] = ()

    def sample(self, n: int) -> TuneSample:
        """As many queries and chunks as there is time for, but no fewer than 20 queries with their documents."""
        documents, judged = self.documents, self.judged
        queries, taken, left = list[str](), dict[str, None](), n
        for query, relevance in judged.qrels.items():
            answers = [name for name, gain in relevance.items() if gain > 0 and name in documents]
            fresh = [name for name in answers if name not in taken]
            cost = 1 + sum(len(documents[name]) for name in fresh)
            if not answers or (len(queries) >= FEWEST_QUERIES and left - cost < (1 - _SHARE) * n):
                continue
            left -= cost
            queries.append(query)
            taken |= dict.fromkeys(fresh)
        for name, chunks in documents.items():
            if name not in taken and len(chunks) <= left:
                left -= len(chunks)
                taken[name] = None
        return TuneSample(
            chunks=tuple(chunk for name in documents if name in taken for chunk in documents[name]),
            judged=judged.some(queries),
            n_documents=len(taken),
            of_documents=self.of_documents,
            notes=self.notes,
        )


def some_queries(judged: Judged, seed: int) -> Judged:
    """At most 300 queries, in the order of their random keys."""
    names = list(judged.qrels)
    return judged.some([names[place] for place in lowest(seed, names, N_QUERIES)])


def from_corpus(
    corpus: Path, options: BuildOptions, cutter: Cutter, asked: Judged | Questions, progress: Progress, seed: int
) -> Drawn:
    """Documents of a corpus, with judged queries, or such as are made of them.

    Raises:
        CorpusError: there is no document, or too few have a sentence that can be asked for.
    """
    reading = Reading.alone(corpus, corpus / "ragidx-index", options)
    skips, drawn = Skips(), _Lowest[Draft](asked, seed)
    for draft in reading.drafts(None, skips.add, progress.add_bytes):
        drawn.add(draft.id, draft.n_chars, draft)
        progress.tell()
    reading.check_something_was_read(drawn.n_added, skips)
    groups = [[item.row.chunk for item in items] for items in cut_ahead(drawn.items(), cutter) if items]
    notes = [f"Skipped: {count:,} x {reason}." for reason, count in skips.counts.items() if reason not in BY_RULE]
    return _drawn({group[0].doc_id: group for group in groups}, drawn.n_added, asked, str(corpus), notes)


def from_index(index: IndexSource, asked: Judged | Questions, seed: int) -> Drawn:
    """Documents of an index; `asked` as of `from_corpus`.

    Raises:
        CorpusError: too few documents have a sentence that can be asked for.
    """
    drawn = _Lowest[tuple[str, list[Chunk]]](asked, seed)
    for name, group in itertools.groupby(index.chunks(), key=lambda chunk: chunk.doc_id):
        chunks = list(group)
        drawn.add(name, sum(len(chunk.text) for chunk in chunks), (name, chunks))
    return _drawn(dict(drawn.items()), drawn.n_added, asked, index.name)


def _drawn(
    documents: Mapping[str, Sequence[Chunk]],
    of_documents: int,
    asked: Judged | Questions,
    where: str,
    notes: Sequence[str] = (),
) -> Drawn:
    if isinstance(asked, Judged):
        return Drawn(documents, of_documents, asked, tuple(notes))
    every = itertools.chain.from_iterable
    made = synthetic(lambda: every(documents.values()), kind=asked.kind, seed=asked.seed, where=where)
    changed = taken_out(made, every(documents.values()))
    left = {name: [changed.get(chunk.id, chunk) for chunk in group] for name, group in documents.items()}
    return Drawn(left, of_documents, made, (*notes, *made.notes))


class _Lowest(Generic[T]):
    """The documents that answer queries, and of the others those with the lowest random keys."""

    def __init__(self, asked: Judged | Questions, seed: int) -> None:
        relevance = asked.qrels.values() if isinstance(asked, Judged) else []
        self._wanted = {name for one in relevance for name, gain in one.items() if gain > 0}
        self._own: list[T] = []
        self._others = DocumentSample[T](seed, n=MOST_CHUNKS, n_chars=MOST_CHUNKS * _CHARS_A_CHUNK)
        self.n_added = 0

    def add(self, name: str, n_chars: int, item: T) -> None:
        """A document; one of no characters is only counted."""
        self.n_added += 1
        if name not in self._wanted:
            self._others.add(name, n_chars, item)
        elif n_chars:
            self._own.append(item)

    def items(self) -> list[T]:
        """The documents that are kept."""
        return [*self._own, *self._others.items()]
