"""Adapt: the stored vectors of an index get a map that was trained on its own documents, where answers get better.

an index -> queries that judge it: the user's, or sentences of 300 documents -> pairs of the other documents, a sentence
or a heading and the chunk without it, and the user's own pairs -> a linear map of the stored vectors, under
the contrastive loss -> a copy of the index with mapped vectors, by links -> both are asked -> one commit, or none

No document of the index is encoded again: the map goes over what is stored, and over what is encoded from then on. The
vectors of the pairs are kept in the user's cache, so that the same call continues a run that was killed.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import numpy as np

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.spec import Json
from ragidx.indexer.ann.alone import check_has_vectors
from ragidx.indexer.arrays import Floats
from ragidx.indexer.devices import check_models
from ragidx.indexer.filters.filter import Filter, coordinates, stored_units
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store import Store
from ragidx.indexer.writing.rewrite import NewForm
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.evaluate.options import MARGIN
from ragidx.pipelines.experiments.evaluate.significance import FEWEST_QUERIES
from ragidx.pipelines.experiments.evaluate.synthetic import N_QUERIES, synthetic
from ragidx.pipelines.experiments.evaluate.tasks import Judged, check_together
from ragidx.pipelines.experiments.train.frozen import (
    AT_ONCE,
    Score,
    Sides,
    encoded,
    listed,
    options_of,
    scores,
)
from ragidx.pipelines.experiments.train.heads import linear
from ragidx.pipelines.experiments.train.own_pairs import own_pairs, without
from ragidx.pipelines.experiments.train.pairs import FEWEST_PAIRS, TrainingPairs, joined, read_pairs
from ragidx.pipelines.experiments.trials.trial import (
    NOT_BETTER,
    Comparison,
    Trial,
    TrialReport,
    by_query,
    decided,
    queries_of,
)
from ragidx.pipelines.ingest.corpus import chunker_of
from ragidx.pipelines.ingest.options import build_options, checked
from ragidx.pipelines.ingest.resolve import fingerprint_of, resolve_against
from ragidx.retriever.models import FILTER_FILE, QUESTIONS_FILE, stored_filter
from ragidx.retriever.options import HYBRID
from ragidx.retriever.searcher import Searcher
from ragidx.retriever.trial_keywords import AdaptKeywords

NOTE = "adapt"
"""Of the manifest: what the map was trained on, and what it was worth."""

WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Of the cosine in hybrid search, from which the one of the index is chosen."""


@dataclass(frozen=True, kw_only=True)
class AdaptReport(TrialReport):
    """What became of an index.

    Attributes:
        is_mapped: whether mapped vectors were compared; else another weight alone, which is better by itself.
        pairs: number of training pairs, by what they are made of.
        n_dropped: number of the user's pairs that were left out because they hold a query, or a part of a document that
            the queries ask for.
        scores: scores of held-out pairs, before and after.
        weight: weight of the cosine in hybrid search; None: the index has no words, or too few documents to choose it.
        encoding_seconds: seconds of encoding, with what was in the cache.
        training_seconds: seconds of training, without encoding.
    """

    comparison: Comparison
    is_mapped: bool
    pairs: Mapping[str, int]
    n_dropped: int
    scores: tuple[Score, ...]
    weight: float | None
    encoding_seconds: float
    training_seconds: float


@dataclass(frozen=True)
class _Asked:
    """Queries that decide; others that choose how vectors and words are weighed, None where nothing is weighed; and
    those of both that are sentences of documents.
    """

    test: Judged
    choice: Judged | None
    made: Judged | None

    def compare(
        self, trial: Trial, old: Searcher, new: Searcher, table: Searcher | None
    ) -> tuple[bool, float | None, Comparison]:
        """Whether mapped vectors are best, or another weight alone; the weight; and how much better answers then are.
        `table` encodes the questions of the index as it is, None: the model.
        """
        own, chosen = (
            None if table is None or part is None else table.encode(list(part.texts.values()))
            for part in (self.test, self.choice)
        )
        with trial.without(self.made, old, new) as copies:
            both = copies if self.test.synthetic is not None else [old, new]
            is_mapped, weight = True, None
            if self.choice is not None:
                kept, of_old = _weighed(copies[0], self.choice, chosen)
                mapped, of_new = _weighed(copies[1], self.choice, None)
                is_mapped, weight = (True, of_new) if mapped >= kept else (False, of_old)
            before = by_query(both[0], self.test, own)
            now = by_query(both[is_mapped], self.test, None if is_mapped else own, weight=weight)
        return is_mapped, weight, Comparison.of(before, now, self.test, MARGIN)


def _weighed(index: Searcher, asked: Judged, vectors: Floats | None) -> tuple[float, float]:
    """The weight nearest to the index's own that is within a standard error of the best one, with its nDCG@10 before
    it; `vectors` are those of the queries, None: the model's.
    """
    vectors = index.encode(list(asked.texts.values())) if vectors is None else vectors
    own = index.options().weight
    found = {one: by_query(index, asked, vectors, weight=one) for one in {*WEIGHTS, own}}
    best = max(found.values(), key=lambda values: float(values.mean()))

    def is_as_good(one: float) -> bool:
        apart = best - found[one]
        return bool(apart.mean() <= apart.std(ddof=1) / math.sqrt(len(apart)))

    weight = next(filter(is_as_good, sorted(found, key=lambda one: (abs(one - own), one))))
    return float(found[weight].mean()), weight


def _asked(shown: Searcher, queries: str | Path | None, qrels: str | Path | None, *, force: bool) -> _Asked:
    """The user's queries, or sentences of documents: of half of them at most, the others are for pairs."""
    store, is_weighed = shown.folder, shown.options().mode == HYBRID
    given = None if queries is None and qrels is None else queries_of(shown, queries, qrels, force=force)
    if given is not None and not is_weighed:
        return _Asked(given, None, None)
    n = (N_QUERIES if given is None else 0) + (N_QUERIES // 2 if is_weighed else 0)
    n = min(n, max(FEWEST_QUERIES, store.manifest.n_documents // 2))
    try:
        sentences = synthetic(lambda: (chunk for _, chunk in store.chunks()), n=n, where=str(store.path))
    except CorpusError:
        if given is None:
            raise
        return _Asked(given, None, None)
    if given is not None:
        return _Asked(given, sentences, sentences)
    names = list(sentences.texts)
    if not is_weighed or len(names) < 3 * FEWEST_QUERIES:
        return _Asked(sentences, None, sentences)
    test = sentences.some([name for place, name in enumerate(names) if place % 3 < 2])
    return _Asked(test, sentences.some(names[2::3]), sentences)


def adapt(shown: Searcher, *, on_progress: OnStage | None = None, **options: Unpack[AdaptKeywords]) -> AdaptReport:
    """Train a map of the vectors of an index on its own documents, and commit it where answers get better.

    The arguments are those of `Index.adapt`; `shown` is the index, and where its model is now.

    Raises:
        CorpusError: files of pairs, queries or judgements have faults, or fewer than 20 queries are judged or can be
            made.
        SpecError: the index has no model, an option is wrong, there are too few pairs, or the index was made anew
            meanwhile.
        ModelError: the index's model is not here, or does not load.
        BusyError: the index is being adapted or upgraded, or another process writes it for too long at the end.
        RagidxError: of the subclass that says what to do; the committed state is what it was.
    """
    check_has_vectors(shown.store.manifest.index, "adapt", str(shown.store.path))
    began, table, shown = time.perf_counter(), shown, shown.by_model()
    how = checked("adapt", AdaptKeywords, options)
    limit, seed, force = how["limit"], how["seed"], how["force"]
    check_together(how["queries"], how["qrels"])
    check_models("`adapt`")
    if shown.spec.precomputed is not None:
        raise SpecError(
            "the index holds precomputed vectors, and a text without one of its sentences has none",
            "build an index of the texts with their model: `ragidx build CORPUS --model M`",
            where=str(shown.store.path),
        )
    resolved = resolve_against(build_options("adapt", **options_of(shown), filter="none"))
    given = read_pairs(paths) if (paths := listed(how["pairs"])) else None
    _ = shown.model_files  # that they are the index's own
    judged, tell = _asked(shown, how["queries"], how["qrels"], force=force), Stages(on_progress)
    with Trial(shown, NOTE, judged.test) as trial:
        every, n_dropped = _pairs(shown, [judged.test, *filter(None, [judged.choice])], given, limit, seed)
        held, rest = every.held_and_rest(limit, seed)
        tell.expect(4 + sum(2 * -(-len(part) // AT_ONCE) for part in (held, rest)))
        before = stored_filter(shown.store, shown.spec.filter)
        held_out, trained_on = (_stored(encoded(part, resolved, how["cache"], tell), before) for part in (held, rest))
        ready = time.perf_counter()
        tell("training")
        linear_map = linear(trained_on, rest.batches(how["epochs"], seed), shown.store.manifest.dim, seed=seed)
        trained = time.perf_counter()
        sides = held_out.queries, held_out.positives
        pair_scores = scores({"as they are": sides, "mapped": (linear_map(sides[0]), linear_map(sides[1]))})
        tell("mapping the vectors of a copy")
        now = trial.now()
        candidate = trial.changed(now, lambda store: _changed(store, linear_map, None))
        tell("asking both")
        is_mapped, weight, comparison = judged.compare(trial, now, candidate, None if table is shown else table)
        report = AdaptReport(
            index=str(shown.store.path),
            generation=now.store.manifest.generation,
            committed=False,
            verdict=decided(comparison.gain, force=force),
            comparison=comparison,
            is_mapped=is_mapped,
            pairs=_counts(rest),
            n_dropped=n_dropped,
            scores=pair_scores,
            weight=weight,
            encoding_seconds=ready - began,
            training_seconds=trained - ready,
            seconds=time.perf_counter() - began,
        )
        if report.verdict == NOT_BETTER:
            return report
        tell("mapping the vectors of the index")
        about: dict[str, Json] = {"mapped": is_mapped, "weight": weight, "pairs": dict(report.pairs), "seed": seed}
        kept_map = linear_map if is_mapped else None
        done = trial.commit(lambda store: _changed(store, kept_map, weight), report.verdict, comparison, about)
    seconds = time.perf_counter() - began
    return dataclasses.replace(report, generation=done.generation, committed=True, seconds=seconds)


def _pairs(
    shown: Searcher, asked: Sequence[Judged], given: TrainingPairs | None, limit: int, seed: int
) -> tuple[TrainingPairs, int]:
    """What is learnt from, of documents that no query asks for; and how many of the user's pairs are dropped."""
    store, n_dropped = shown.folder, 0
    out_of = {doc_id for part in asked for relevance in part.qrels.values() for doc_id in relevance}
    every = own_pairs(store, chunker_of(shown.encoder, shown.spec.chunk), without=out_of, limit=limit, seed=seed)
    if given is not None:
        texts = (chunk.text for _, chunk in store.chunks() if chunk.doc_id in out_of)
        apart = without(given, [text for part in asked for text in part.texts.values()], texts)
        n_dropped = len(given) - len(apart)
        every = joined(every, apart)
    if len(every) < FEWEST_PAIRS:
        raise CorpusError(
            f"{len(every):,} pairs can be made of documents that no query asks for: nothing is learnt from fewer "
            f"than {FEWEST_PAIRS}",
            "give a larger corpus, or `pairs`",
            where=str(store.path),
        )
    return every, n_dropped


def _stored(raw: Sides, before: Filter | None) -> Sides:
    """What the index would store of these."""
    return Sides(stored_units(raw.queries, before and before.of_queries()), stored_units(raw.positives, before))


def _counts(pairs: TrainingPairs) -> dict[str, int]:
    counts = np.bincount(pairs.groups, minlength=len(pairs.names)).tolist()
    return {name: count for name, count in zip(pairs.names, counts, strict=True) if count}


def _changed(store: Store, made: Filter | None, weight: float | None) -> NewForm:
    """The index with one more map behind its filter, or with another weight alone."""
    base = store.manifest
    spec = IndexSpec.from_json(dict(base.spec), where=str(store.path))
    spec = dataclasses.replace(spec, weight=spec.weight if weight is None else weight)
    blobs = {name: store.blob(name) for name in base.files}
    if made is None:
        return NewForm(spec.to_json(), base.fingerprint, base.dim, base.index, blobs, ())
    before = stored_filter(store, spec.filter) or coordinates(base.dim, np.arange(base.dim))
    after = before.followed(made)
    assert after.then is not None
    filter_ = dataclasses.replace(spec.filter, adapted=after.then.content())
    spec = dataclasses.replace(spec, filter=filter_, questions="")  # a table is of the vectors as they were
    blobs.pop(QUESTIONS_FILE, None)
    blobs[FILTER_FILE] = after.to_bytes()
    fingerprint = fingerprint_of(spec, blobs)
    return NewForm(
        spec.to_json(), fingerprint, base.dim, base.index, blobs, convert=lambda rows: l2_normalize(made(rows)).vectors
    )
