"""A trial: a candidate beside what an index has, asked the same queries, and committed if it answers as it should.

    asked = queries_of(index, queries, qrels)        given ones, or sentences that are taken out of documents
    with Trial(index, "adapt", asked) as trial:      nobody else tries anything on this index
        comparison = trial.against(candidate)        nDCG@10 of each query -> new - old: interval, p, lower bound
        trial.commit(change, verdict, comparison)    one commit, and what the manifest keeps of it

Each index is asked by its default search. Where sentences ask, both are asked without them: copies by links, in which
the chunks that held them are encoded again. Until the commit the index is not touched; what others commit meanwhile
stays, unless the index is made anew: then nothing is committed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Doubles, Floats
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import UPGRADES
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.writing import rewrite
from ragidx.indexer.writing.adoption import adopt
from ragidx.indexer.writing.rewrite import NewForm
from ragidx.pipelines.experiments.evaluate.measures import ndcg
from ragidx.pipelines.experiments.evaluate.options import MARGIN, Questions
from ragidx.pipelines.experiments.evaluate.significance import (
    FEWEST_QUERIES,
    LEVEL,
    K,
    difference,
    lower_bound,
    queries_needed,
)
from ragidx.pipelines.experiments.evaluate.synthetic import synthetic, taken_out
from ragidx.pipelines.experiments.evaluate.tasks import Judged, check_documents, check_together, task_of
from ragidx.pipelines.ingest.corpus import chunker_of
from ragidx.pipelines.maintain.delete import writer_on
from ragidx.retriever.rows import Queries, needs_vectors
from ragidx.retriever.searcher import Searcher
from ragidx.retriever.shaping import shaped_hits

WAIT_S = 60.0
"""For another writer of an index, when what was found better is committed."""

NOT_WORSE, WORSE, UNDECIDED = "not worse", "worse", "undecided"
BETTER, NOT_BETTER = "better", "not shown to be better"
FORCED = "forced"
GIVEN = "given"

_SEED = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two indexes answer the same queries, by nDCG@10.

    Attributes:
        queries: kind of the queries: given, or what they were made of, such as sentence.
        n_queries: number of judged queries.
        seed: random seed of the sampled queries.
        old, new: means of the two.
        difference: new - old; `low` and `high` are its 95 % interval, `p` how often chance alone does as much.
        detectable: the difference that p finds four times in five.
        lower_bound: the difference is above this with 95 % confidence, one-sided.
        margin: nDCG@10 that may be lost.
        queries_needed: number of queries that would decide it if both were equally good.
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

    @classmethod
    def of(cls, before: Doubles, now: Doubles, judged: Judged, margin: float) -> Comparison:
        """How much better the second of two systems answers, (q,) nDCG@10 of each."""
        apart, paired = now - before, difference(now, before)
        return cls(
            queries=judged.synthetic or GIVEN,
            n_queries=len(judged.texts),
            seed=_SEED,
            old=float(before.mean()),
            new=float(now.mean()),
            difference=paired.mean,
            low=paired.low,
            high=paired.high,
            p=paired.p,
            detectable=paired.detectable,
            lower_bound=lower_bound(apart),
            margin=margin,
            queries_needed=queries_needed(apart, margin),
        )

    @property
    def verdict(self) -> str:
        """What follows, where nothing but the margin may be lost."""
        if self.n_queries < FEWEST_QUERIES or (not self.old and not self.new):
            return UNDECIDED  # where no answer has anything relevant, any two indexes are equal
        return NOT_WORSE if self.lower_bound > -self.margin else WORSE if self.high < -self.margin else UNDECIDED

    @property
    def gain(self) -> str:
        """Whether the new one is shown to be better."""
        return BETTER if self.n_queries >= FEWEST_QUERIES and self.lower_bound > 0 else NOT_BETTER

    @property
    def is_loss(self) -> bool:
        """Whether the new one is shown to be worse at all, by the margin or less."""
        return self.difference < 0 and self.p < LEVEL


def decided(verdict: str, *, force: bool) -> str:
    """The verdict, or that the candidate is taken all the same."""
    return verdict if verdict in (NOT_WORSE, BETTER) or not force else FORCED


@dataclass(frozen=True, kw_only=True)
class TrialReport:
    """What became of an index.

    Attributes:
        index: folder of the index.
        generation: number of the committed generation.
        committed: whether the candidate was taken.
        verdict: not worse, or better where that is needed; forced; or why all stays as it was.
        comparison: comparison of the answers before and after; None where there was none.
        seconds: seconds of the whole trial.
    """

    index: str
    generation: int
    committed: bool
    verdict: str
    comparison: Comparison | None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON types."""
        return dataclasses.asdict(self)


def queries_of(index: Searcher, queries: str | Path | None, qrels: str | Path | None, *, force: bool = False) -> Judged:
    """The queries of files, read and checked, or what sentences of an index ask.

    Raises:
        CorpusError: the files have faults or are of another corpus, or fewer than 20 are judged without `force`, or
            fewer than 20 documents have a sentence that asks for them alone.
        SpecError: queries without judgements, or the reverse.
    """
    store = index.folder
    check_together(queries, qrels)
    if queries is None:
        return synthetic(lambda: (chunk for _, chunk in store.chunks()), seed=_SEED, where=str(store.path))
    judged = task_of(store.path, Questions.read(queries, qrels)).judged
    assert judged is not None  # it is an index
    for _ in check_documents(judged, (chunk.doc_id for _, chunk in store.chunks())):
        pass  # documents that neither index has change no difference
    if len(judged.qrels) < FEWEST_QUERIES and not force:
        raise CorpusError(
            f"{len(judged.qrels)} queries are judged: nothing can be concluded from fewer than {FEWEST_QUERIES}",
            "judge more, or none, or decide without: `force=True`",
            where=str(qrels),
        )
    return judged


class Trial(contextlib.ExitStack):
    """An open index, and one candidate. Closing it removes what was made beside the index.

    Args:
        index: the index as it is open now.
        name: name of what is tried, and of its note in the manifest.
        asked: queries with judgements.
        margin: nDCG@10 that may be lost.

    Attributes:
        folder: folder inside the index for what is tried; removed in the end.

    Raises:
        BusyError: something is being tried on this index.
    """

    def __init__(self, index: Searcher, name: str, asked: Judged | None, margin: float = MARGIN) -> None:
        super().__init__()
        self._index, self._path, self._name = index, index.store.path, name
        self._asked, self._margin = asked, margin
        self.folder = self._path / UPGRADES / name
        atomic.make_folder(self.folder.parent)
        self.enter_context(Lock(self.folder.parent))
        self.callback(atomic.remove, self.folder)

    @property
    def asked(self) -> Judged:
        """The queries."""
        assert self._asked is not None
        return self._asked

    def now(self) -> Searcher:
        """The index with what was committed meanwhile.

        Raises:
            SpecError: it was made anew.
        """
        now = Searcher.open(self._path, self._index.place, self._index)
        self._check_same(now.folder)
        return now

    def changed(self, index: Searcher, change: Callable[[Store], NewForm]) -> Searcher:
        """A copy of an index, by links, in another form."""
        folder = self.folder / "index"
        atomic.remove(folder)  # of a process that was killed
        adopt(folder, index.folder, {})
        rewrite.replace(folder, change)
        return Searcher.open(folder, index.place)

    def against(self, candidate: Searcher) -> Comparison:
        """How much better a candidate answers than the index as it is now."""
        with self.without(self.asked, self.now(), candidate) as (old, new):
            return Comparison.of(by_query(old, self.asked), by_query(new, self.asked), self.asked, self._margin)

    @contextlib.contextmanager
    def without(self, asked: Judged | None, *indexes: Searcher) -> Iterator[list[Searcher]]:
        """Copies of indexes without the sentences that ask, for the length of the block; else these."""
        if asked is None or asked.synthetic is None:
            yield list(indexes)
            return
        copies = [self.folder / f"copy-{number}" for number in range(len(indexes))]
        try:
            yield [_taken_out(*one, asked) for one in zip(indexes, copies, strict=True)]
        finally:
            for path in copies:
                atomic.remove(path)

    def commit(
        self,
        change: Callable[[Store], NewForm | Store],
        verdict: str,
        comparison: Comparison | None,
        about: Mapping[str, Json],
    ) -> Manifest:
        """Commit the candidate, and what the manifest keeps of the trial.

        Args:
            change: function that gives another form of the index, or another index to take its place; called with the
                committed state, when nobody else can write.
            verdict: reason for which it is committed.
            comparison: comparison that showed it.
            about: the note's other fields.

        Raises:
            BusyError: another process writes the index for too long.
            SpecError: it was made anew meanwhile.
        """
        atomic.remove(self.folder)  # a rewrite may need its room
        with Lock(self._path, WAIT_S):
            store = Store.open(self._path)
            self._check_same(store)
            made = change(store)
            found = {} if comparison is None else dataclasses.asdict(comparison)
            notes: dict[str, Json] = {
                self._name: {"verdict": verdict, "of": store.manifest.generation, **about, **found}
            }
            if isinstance(made, Store):
                return adopt(self._path, made, notes)
            return rewrite.rewritten(store, self._path, dataclasses.replace(made, notes=notes)).manifest

    def _check_same(self, store: Store) -> None:
        if store.manifest.fingerprint != self._index.store.manifest.fingerprint:
            message = "the index was made anew meanwhile, with other options"
            raise SpecError(message, "run it again", where=str(self._path))


def _taken_out(searcher: Searcher, folder: Path, made: Judged) -> Searcher:
    """A copy of the index in `folder` without the sentences that ask."""
    atomic.remove(folder)  # of a process that was killed
    adopt(folder, searcher.folder, {})
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
        writer.delete_rows(np.array(rows, np.int64))
        writer.add_rows(new, vectors)
        writer.commit({}, store.manifest.n_documents)
    return Searcher.open(folder, searcher.place)


def by_query(searcher: Searcher, asked: Judged, vectors: Floats | None = None, **search: Any) -> Doubles:
    """(q,) nDCG@10 of each query.

    Args:
        searcher: the index that is searched.
        asked: queries with judgements.
        vectors: vectors of the queries, where they are known.
        search: options; by default those of the index.
    """
    texts = list(asked.texts.values())
    options = searcher.options(k=K, per_document=1, fold=False, **search)
    if vectors is None and needs_vectors(options):
        vectors = searcher.encode(texts)
    answers = shaped_hits(searcher.store, Queries(vectors, texts), options)
    pairs = zip(answers, asked.qrels.values(), strict=True)
    return np.array([ndcg([hit.doc_id for hit in hits], relevance) for hits, relevance in pairs])
