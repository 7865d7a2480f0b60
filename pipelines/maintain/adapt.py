"""Adapt: the stored vectors of an index get a map that was trained on its own documents, where answers get better.

an index -> queries that judge it: those that are given, or sentences of 300 documents -> pairs of the other documents,
a sentence or a heading and the chunk without it, and pairs that are given -> a linear map of the stored vectors, under
the contrastive loss -> a copy of the index with mapped vectors, by links -> both are asked -> one commit, or none

No document of the index is encoded again: the map goes over what is stored, and over what is encoded from then on. The
vectors of the pairs are kept in the user's cache, so that a run that was killed goes on where it was.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Floats
from ragidx.indexer.devices import check_models
from ragidx.indexer.filters.filter import Filter, coordinates
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store.files import UPGRADES
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.store import Store
from ragidx.indexer.writing import rewrite
from ragidx.indexer.writing.adoption import adopt
from ragidx.indexer.writing.rewrite import Change
from ragidx.pipelines.evaluate.choice import MARGIN
from ragidx.pipelines.evaluate.significance import FEWEST_QUERIES
from ragidx.pipelines.evaluate.synthetic import N_QUERIES, synthetic
from ragidx.pipelines.evaluate.tasks import Judged, check_together
from ragidx.pipelines.ingest.corpus import chunker_of
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.ingest.resolve import fingerprint_of, resolve_against
from ragidx.pipelines.maintain.comparison import Comparison, by_query, compared, questions, without_queries
from ragidx.pipelines.stages import OnStage, Stages
from ragidx.pipelines.train.frozen import (
    AT_ONCE,
    EPOCHS,
    FEWEST_PAIRS,
    MOST_PAIRS,
    Score,
    Sides,
    check_numbers,
    encoded,
    held_and_rest,
    listed,
    options_of,
    scores,
)
from ragidx.pipelines.train.heads import linear
from ragidx.pipelines.train.own_pairs import own_pairs
from ragidx.pipelines.train.pairs import Pairs, joined, read_pairs
from ragidx.retriever.models import FILTER_FILE, stored_filter
from ragidx.retriever.options import HYBRID
from ragidx.retriever.searcher import Searcher

NOTE = "adapt"
"""Of the manifest: what the map was trained on, and what it was worth."""

WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Of the cosine in hybrid search, from which the one of the index is chosen."""

BETTER, NOT_BETTER, FORCED = "better", "not shown to be better", "forced"


@dataclass(frozen=True)
class AdaptReport:
    """What became of an index.

    Attributes:
        index: its folder.
        generation: of the committed state.
        committed: whether its vectors are mapped now.
        verdict: better, forced; or not shown to be better, where the index is as it was.
        pairs: that were trained on, by what they are of.
        scores: of pairs that were held out, before and after.
        weight: of the cosine in hybrid search; None: the index has no words, or too few documents to choose it.
        comparison: of the answers before and after.
        encoding_seconds: with what was in the cache.
        training_seconds: without encoding.
        seconds: of all.
    """

    index: str
    generation: int
    committed: bool
    verdict: str
    pairs: Mapping[str, int]
    scores: tuple[Score, ...]
    weight: float | None
    comparison: Comparison
    encoding_seconds: float
    training_seconds: float
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON types."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class _Asked:
    """Queries that decide, and others that choose how vectors and words are weighed; None: there are too few."""

    test: Judged
    choice: Judged | None

    def compare(self, old: Searcher, new: Searcher, folder: Path) -> tuple[float | None, Comparison]:
        """The weight that is best for the new index, and how much better it then answers than the old one."""
        parts = [part for part in (self.test, self.choice) if part is not None and part.synthetic is not None]
        both = [old, new] if self.test.synthetic is not None else [new]
        with without_queries(both, _together(parts), folder) as copies:
            weight = None
            if self.choice is not None and new.options().mode == HYBRID:
                weight = _weight(copies[-1], self.choice)
            one, other = copies if self.test.synthetic is not None else (old, new)
            before, now = by_query(one, self.test), by_query(other, self.test, weight=weight)
        return weight, compared(before, now, self.test, MARGIN)


def _weight(index: Searcher, asked: Judged) -> float:
    """The weight nearest to the index's own that is within a standard error of the best one."""
    vectors, own = index.encode(list(asked.texts.values())), index.options().weight
    found = {one: by_query(index, asked, vectors, weight=one) for one in WEIGHTS}
    best = max(found.values(), key=lambda values: float(values.mean()))

    def is_as_good(one: float) -> bool:
        apart = best - found[one]
        return bool(apart.mean() <= apart.std(ddof=1) / math.sqrt(len(apart)))

    return next(filter(is_as_good, sorted(WEIGHTS, key=lambda one: abs(one - own))))


def _asked(store: Store, queries: str | Path | None, qrels: str | Path | None) -> _Asked:
    """The queries that are given, or sentences of documents: of half of them at most, the others are for pairs."""
    given = None if queries is None and qrels is None else questions(store, queries, qrels)
    if given is not None and len(given.qrels) < FEWEST_QUERIES:
        few = f"nothing can be concluded from fewer than {FEWEST_QUERIES}"
        raise CorpusError(f"{len(given.qrels)} queries are judged: {few}", "judge more, or none", where=str(qrels))
    n = min(N_QUERIES // 2 + (N_QUERIES if given is None else 0), store.manifest.n_documents // 2)
    try:
        made = synthetic(lambda: (chunk for _, chunk in store.chunks()), n=n, where=str(store.path))
    except CorpusError:
        if given is None:
            raise
        return _Asked(given, None)
    if given is not None:
        return _Asked(given, made)
    names = list(made.texts)
    if len(names) < 3 * FEWEST_QUERIES:
        return _Asked(made, None)
    return _Asked(made.some([name for place, name in enumerate(names) if place % 3 < 2]), made.some(names[2::3]))


def _together(parts: Sequence[Judged]) -> Judged:
    texts = {name: text for part in parts for name, text in part.texts.items()}
    qrels = {name: relevance for part in parts for name, relevance in part.qrels.items()}
    return Judged(texts, qrels, synthetic=parts[0].synthetic if parts else None)


def adapt(
    shown: Searcher,
    *,
    pairs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    queries: str | Path | None = None,
    qrels: str | Path | None = None,
    limit: int = MOST_PAIRS,
    epochs: int = EPOCHS,
    seed: int = 0,
    force: bool = False,
    cache: str | os.PathLike[str] | None = "",
    on_progress: OnStage | None = None,
) -> AdaptReport:
    """Train a map of the vectors of an index on its own documents, and commit it where answers get better.

    Args:
        shown: the index, and where its model is now.
        pairs: files of JSON Lines with `query` and `positive`, or folders of them, to train on as well.
        queries: as of `ragidx.evaluate`, with their `qrels`, which judge it; None: sentences of 300 documents.
        qrels: as of `ragidx.evaluate`. No document that they judge is trained on.
        limit: pairs that are trained on, as many of each kind.
        epochs: how often each is seen.
        seed: of what is drawn.
        force: commit in any case.
        cache: folder of raw vectors; "": the user's; None: nothing is kept.
        on_progress: called when a stage begins.

    Raises:
        CorpusError: files of pairs, queries or judgements have faults, or fewer than 20 queries are judged or can be
            made.
        SpecError: the index has no model, an option is wrong, there are too few pairs, or the index was made anew
            meanwhile.
        ModelError: the index's model is not here, or does not load.
        BusyError: the index is being adapted or upgraded, or another process writes it for too long at the end.
        RagidxError: of the subclass that says what to do; the committed state is what it was.
    """
    began, store, index = time.perf_counter(), shown.store, shown.store.path
    check_numbers(limit=limit, epochs=epochs)
    check_together(queries, qrels)
    check_models("`adapt`")
    resolved = resolve_against(build_options("adapt", **options_of(shown), filter="none"))
    given = read_pairs(paths) if (paths := listed(pairs)) else None
    _ = shown.model_files  # that they are the index's own
    asked = _asked(store, queries, qrels)
    out_of = {doc_id for part in (asked.test, asked.choice) if part for one in part.qrels.values() for doc_id in one}
    own = own_pairs(store, chunker_of(shown.encoder, shown.spec.chunk), without=out_of, limit=limit, seed=seed)
    every = own if given is None else joined(own, given)
    if len(every) < FEWEST_PAIRS:
        raise CorpusError(
            f"{len(every):,} pairs can be made of documents that no query asks for: nothing is learnt from fewer than "
            f"{FEWEST_PAIRS}",
            "give a larger corpus, or `pairs`",
            where=str(index),
        )
    held, rest = held_and_rest(every, limit, seed)
    tell = Stages(on_progress)
    tell.expect(4 + sum(2 * -(-len(part) // AT_ONCE) for part in (held, rest)))
    before = stored_filter(store, shown.spec.filter)
    held_out, trained_on = (_stored(encoded(part, resolved, cache, tell), before) for part in (held, rest))
    ready = time.perf_counter()
    tell("training")
    made = linear(trained_on, rest.batches(epochs, seed), store.manifest.dim, seed=seed)
    trained = time.perf_counter()
    found = scores({"as they are": _both(held_out), "mapped": _both(_mapped(held_out, made))})
    tell("mapping the vectors of a copy")
    folder = index / UPGRADES / NOTE
    atomic.make_folder(folder.parent)
    with Lock(folder.parent):
        try:
            copy = Searcher(_copy(store, folder / "index", made), shown.place)
            tell("asking both")
            weight, comparison = asked.compare(shown, copy, folder / "copies")
        finally:
            atomic.remove(folder)
    verdict = BETTER if comparison.lower_bound > 0 else FORCED if force else NOT_BETTER
    report = AdaptReport(
        index=str(index),
        generation=store.manifest.generation,
        committed=False,
        verdict=verdict,
        pairs=_counts(rest),
        scores=found,
        weight=weight,
        comparison=comparison,
        encoding_seconds=ready - began,
        training_seconds=trained - ready,
        seconds=time.perf_counter() - began,
    )
    if verdict == NOT_BETTER:
        return report
    tell("mapping the vectors of the index")
    done = rewrite.replace(index, _change(made, store.manifest.fingerprint, weight, _note(report, seed)))
    return dataclasses.replace(
        report, generation=done.manifest.generation, committed=True, seconds=time.perf_counter() - began
    )


def _stored(raw: Sides, before: Filter | None) -> Sides:
    """What the index would store of these."""

    def stored(rows: Floats, one: Filter | None) -> Floats:
        units = l2_normalize(rows if one is None else one(rows)).vectors
        return units if one is None else one.mapped(units)

    return Sides(stored(raw.queries, before and before.of_queries()), stored(raw.positives, before))


def _mapped(sides: Sides, made: Filter) -> Sides:
    return Sides(made(sides.queries), made(sides.positives))


def _both(sides: Sides) -> tuple[Floats, Floats]:
    return sides.queries, sides.positives


def _counts(pairs: Pairs) -> dict[str, int]:
    counts = np.bincount(pairs.groups, minlength=len(pairs.names)).tolist()
    return {name: count for name, count in zip(pairs.names, counts, strict=True) if count}


def _copy(store: Store, folder: Path, made: Filter) -> Store:
    """A copy of the index with mapped vectors; what they need not is linked."""
    atomic.remove(folder)  # of a process that was killed
    adopt(folder, store, {})
    rewrite.replace(folder, _change(made, store.manifest.fingerprint, None, {}))
    return Store.open(folder)


def _change(
    made: Filter, fingerprint: str, weight: float | None, note: Mapping[str, Json]
) -> Callable[[Store], Change]:
    """The index with one more map behind its filter."""

    def decide(store: Store) -> Change:
        base, where = store.manifest, str(store.path)
        if base.fingerprint != fingerprint:
            raise SpecError("the index was made anew meanwhile, with other options", "run `adapt` again", where=where)
        spec = IndexSpec.from_json(dict(base.spec), where=where)
        before = stored_filter(store, spec.filter) or coordinates(base.dim, np.arange(base.dim))
        after = before.followed(made)
        assert after.then is not None
        adapted = dataclasses.replace(spec.filter, adapted=after.then.content())
        spec = dataclasses.replace(spec, filter=adapted, weight=spec.weight if weight is None else weight)
        blobs = {name: store.blob(name) for name in base.files} | {FILTER_FILE: after.to_bytes()}
        return Change(
            spec=spec.to_json(),
            fingerprint=fingerprint_of(spec, blobs),
            dim=made.dim,
            index=base.index,
            blobs=blobs,
            convert=lambda rows: l2_normalize(made(rows)).vectors,
            notes={NOTE: dict(note)} if note else {},
        )

    return decide


def _note(report: AdaptReport, seed: int) -> dict[str, Json]:
    """What the manifest keeps of it."""
    compared = dataclasses.asdict(report.comparison)
    return {"verdict": report.verdict, "of": report.generation, "pairs": dict(report.pairs), "seed": seed, **compared}
