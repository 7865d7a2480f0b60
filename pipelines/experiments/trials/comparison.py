"""Whether one index answers worse than another: both are asked the same queries, each by its default search.

two indexes and judged queries -> nDCG@10 of each query -> new - old: its interval, p and one-sided lower bound

Without given queries, sentences that are taken out of their documents ask for them. Both indexes are then asked without
these sentences: copies by links, in which the chunks that held them are encoded again. The indexes are not touched.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.indexer import atomic
from ragidx.indexer.arrays import Doubles, Floats
from ragidx.indexer.store import Store
from ragidx.indexer.writing.adoption import adopt
from ragidx.pipelines.experiments.evaluate.significance import LEVEL, K, difference, lower_bound, ndcg, queries_needed
from ragidx.pipelines.experiments.evaluate.synthetic import synthetic, taken_out
from ragidx.pipelines.experiments.evaluate.tasks import Judged, check_documents, check_together, task_of
from ragidx.pipelines.ingest.corpus import chunker_of
from ragidx.pipelines.maintain.delete import writer_on
from ragidx.retriever.ranking import Queries, needs_vectors
from ragidx.retriever.searcher import Searcher
from ragidx.retriever.shaping import shaped_hits

WAIT_S = 60.0
"""For another writer of an index, when what was found better is committed."""

NOT_WORSE, WORSE, UNDECIDED = "not worse", "worse", "undecided"
GIVEN = "given"

_SEED = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two indexes answer the same queries, by nDCG@10.

    Attributes:
        queries: given, or what they were made of: sentence.
        n_queries: that are judged.
        seed: of what was drawn.
        old, new: means of the two.
        difference: new - old; `low` and `high` are its 95 % interval, `p` how often chance alone does as much.
        detectable: the difference that p finds four times in five.
        lower_bound: the difference is above this with 95 % confidence, one-sided.
        margin: that may be lost.
        queries_needed: that would decide it if both were equally good.
    """

    queries: str
    n_queries: int
    seed: int
    old: float
    new: float
    difference: float
    low: float
    high: float
    p: float
    detectable: float
    lower_bound: float
    margin: float
    queries_needed: int

    @property
    def verdict(self) -> str:
        """What follows."""
        if not self.old and not self.new:
            return UNDECIDED  # no answer has anything relevant: equal for any two indexes
        return NOT_WORSE if self.lower_bound > -self.margin else WORSE if self.high < -self.margin else UNDECIDED

    @property
    def is_loss(self) -> bool:
        """Whether the new one is shown to be worse at all, by the margin or less."""
        return self.difference < 0 and self.p < LEVEL


def questions(store: Store, queries: str | Path | None, qrels: str | Path | None) -> Judged:
    """The queries of files, read and checked, or what sentences of an index ask.

    Raises:
        CorpusError: the files have faults or are of another corpus, or fewer than 20 documents have a sentence that
            asks for them alone.
        SpecError: queries without judgements, or the reverse.
    """
    check_together(queries, qrels)
    if queries is None:
        return synthetic(lambda: (chunk for _, chunk in store.chunks()), seed=_SEED, where=str(store.path))
    judged = task_of(store.path, queries=queries, qrels=qrels).judged
    assert judged is not None  # it is an index
    for _ in check_documents(judged, (chunk.doc_id for _, chunk in store.chunks())):
        pass  # documents that neither index has change no difference
    return judged


def compare(old: Searcher, new: Searcher, asked: Judged, margin: float, folder: Path) -> Comparison:
    """How much better the new index answers; in `folder`, on their file system, copies are made and removed."""
    with without_queries([old, new], asked, folder) as both:
        before, now = (by_query(searcher, asked) for searcher in both)
    return compared(before, now, asked, margin)


def compared(before: Doubles, now: Doubles, asked: Judged, margin: float) -> Comparison:
    """How much better the second of two systems answers, (q,) nDCG@10 of each."""
    apart, found = now - before, difference(now, before)
    return Comparison(
        queries=asked.synthetic or GIVEN,
        n_queries=len(asked.texts),
        seed=_SEED,
        old=float(before.mean()),
        new=float(now.mean()),
        difference=found.mean,
        low=found.low,
        high=found.high,
        p=found.p,
        detectable=found.detectable,
        lower_bound=lower_bound(apart),
        margin=margin,
        queries_needed=queries_needed(apart, margin),
    )


@contextlib.contextmanager
def without_queries(searchers: Sequence[Searcher], asked: Judged, folder: Path) -> Iterator[list[Searcher]]:
    """Copies of indexes without the sentences that ask, for the length of the block; else the indexes themselves."""
    if asked.synthetic is None:
        yield list(searchers)
        return
    copies = [folder / str(number) for number in range(len(searchers))]
    try:
        yield [_taken_out(*one, asked) for one in zip(searchers, copies, strict=True)]
    finally:
        for path in copies:
            atomic.remove(path)


def _taken_out(searcher: Searcher, folder: Path, made: Judged) -> Searcher:
    """A copy of the index in `folder` without the sentences that ask."""
    atomic.remove(folder)  # of a process that was killed
    adopt(folder, searcher.store, {})
    store, writer = writer_on(Store.open(folder))
    with writer:
        changed = taken_out(made, (chunk for _, chunk in store.chunks()))
        rows = [row for row, chunk in store.chunks() if chunk.id in changed]
        chunker = chunker_of(searcher.encoder, searcher.spec.chunk)
        texts = {name: chunker.encoded_text(chunk) for name, chunk in changed.items()}
        new = [
            dataclasses.replace(row, text=chunk.text, heading=chunk.heading, whole=None)
            for row, chunk in ((row, changed[row.chunk_id]) for row in store.rows(rows))
            if texts[row.chunk_id].strip()
        ]
        vectors = searcher.embedder.embed_document([texts[row.chunk_id] for row in new])
        full = np.flatnonzero(vectors.any(axis=1))  # of the others nothing is left
        writer.delete_rows(np.array(rows, np.int64))
        writer.add_rows([new[place] for place in full.tolist()], vectors[full])
        writer.commit({}, store.manifest.n_documents)
    return Searcher.open(folder, searcher.place)


def by_query(searcher: Searcher, asked: Judged, vectors: Floats | None = None, **search: Any) -> Doubles:
    """(q,) nDCG@10 of each query.

    Args:
        searcher: the index.
        asked: queries with judgements.
        vectors: of the queries, where they are known.
        search: options; by default those of the index.
    """
    texts = list(asked.texts.values())
    options = searcher.options(k=K, per_document=1, fold=False, **search)
    if vectors is None and needs_vectors(options):
        vectors = searcher.encode(texts)
    answers = shaped_hits(searcher.store, Queries(vectors, texts), options)
    pairs = zip(answers, asked.qrels.values(), strict=True)
    return np.array([ndcg([hit.doc_id for hit in hits], relevance) for hits, relevance in pairs])
