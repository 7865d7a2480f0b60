"""Upgrade: an index gets another model, filter or chunks, unless its answers would get worse.

an index and other options -> another index of the same documents, inside its folder, by the ordinary build
    -> both are asked the same queries -> one commit that puts the new one in place of the old, or both stay

The index is locked for the last step alone: what was committed meanwhile is brought over, and files are linked. A
process that is killed at any moment leaves the index as it was, or upgraded; the same call resumes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ragidx.corpora.errors import IndexFormatError, RagidxError, SpecError
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer import atomic
from ragidx.indexer.devices import check_devices
from ragidx.indexer.differences import differences
from ragidx.indexer.encoders import methods
from ragidx.indexer.encoders.methods import continued_options, filter_spec, located
from ragidx.indexer.lexical.spec import OFF
from ragidx.indexer.options import EncoderOptions
from ragidx.indexer.specs import HEAD, IndexSpec
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import UPGRADES
from ragidx.indexer.store.generations import committed
from ragidx.pipelines.experiments.evaluate.options import MARGIN, check_margin
from ragidx.pipelines.experiments.evaluate.tasks import Judged, check_together
from ragidx.pipelines.experiments.trials.trial import FORCED, NOT_WORSE, Trial, TrialReport, decided, queries_of
from ragidx.pipelines.ingest.build import build_beside
from ragidx.pipelines.ingest.options import QUERY_OPTIONS, RUN_OPTIONS, BuildOptions, build_options, check_names
from ragidx.pipelines.ingest.report import BuildReport, OnProgress
from ragidx.pipelines.ingest.resolve import resolve_against
from ragidx.pipelines.plan.plan import Plan, plan
from ragidx.retriever.models import ModelPlace
from ragidx.retriever.searcher import Searcher

NOTE = "upgrade"
"""Of the manifest: what an upgrade compared."""

OPTIONS = ("model", *QUERY_OPTIONS, "chunks", "workers")
"""The names that an upgrade takes: how vectors are made, and by how many processes."""

SAME = "same"
"""A verdict, beside those of a comparison: there was nothing to do."""


@dataclass(frozen=True, kw_only=True)
class UpgradeReport(TrialReport):
    """What became of an index.

    Attributes:
        beside: the folder of the new index, where both stay.
        build: report of the build of the new index.
        before, after: the fingerprints of both.
        locked_seconds: how long no other process could write.
    """

    before: str
    after: str
    beside: str | None = None
    build: BuildReport | None = None
    locked_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON types."""
        build = None if self.build is None else self.build.to_json()
        return dataclasses.asdict(dataclasses.replace(self, build=None)) | {"build": build}


class Upgrade:
    """An index, and how its vectors are to be made.

    Args:
        shown: the index, and where its model is now.
        options: options of the encoder, the filter and the chunks; with the model of the index, those that are not
            named are its own, and so are always the chunks and what is known of sources and words.

    Attributes:
        is_needed: whether the options make other vectors than the index has.
        folder: where the new index is made.

    Raises:
        SpecError: the index holds precomputed vectors, or an option is wrong.
        ModelError: the model is not there.
    """

    def __init__(self, shown: Searcher, options: Mapping[str, Any]) -> None:
        check_names("upgrade", options, OPTIONS)
        self._shown, self._index = shown.by_model(), shown.store.path  # the new index has no table of questions
        self._options = _whole(shown, build_options("upgrade", **options))
        spec = resolve_against(build_options("upgrade", **self._options)).spec
        self.is_needed = bool(differences(_plain(shown.spec), spec))
        self.folder = self._index / UPGRADES / spec.fingerprint()[:16]

    def plan(self, on_progress: OnProgress | None = None) -> Plan:
        """What making the new index takes."""
        return plan(None, self._index, rebuild=True, on_progress=on_progress, **self._options)

    @staticmethod
    def check(queries: str | Path | None, qrels: str | Path | None, *, margin: float) -> None:
        """What can be said of the options of `run` before anything is read.

        Raises:
            SpecError: the margin is no loss, or there are queries without judgements, or the reverse.
        """
        check_margin(margin)
        check_together(queries, qrels)

    def run(
        self,
        *,
        queries: str | Path | None = None,
        qrels: str | Path | None = None,
        margin: float = MARGIN,
        force: bool = False,
        on_progress: OnProgress | None = None,
    ) -> UpgradeReport:
        """Make the new index, compare, and swap; the arguments are those of `Index.upgrade`.

        Raises:
            CorpusError: a source cannot be read, queries and judgements have faults, or fewer than 20 are judged or
                can be made.
            ModelError: the index's own model is not here, or does not load.
            QueryError: it gives no vector for a query.
            BusyError: the index is being upgraded, or at the end another process writes it for too long.
            RagidxError: as a build; the committed state is what it was.
        """
        started, before = time.perf_counter(), self._shown.store.manifest
        self.check(queries, qrels, margin=margin)
        report = UpgradeReport(
            index=str(self._index),
            generation=before.generation,
            committed=False,
            verdict=SAME,
            comparison=None,
            before=before.fingerprint,
            after=before.fingerprint,
        )
        if not self.is_needed:
            atomic.remove(self.folder)  # of an upgrade that was killed after its commit
            return report
        judged = None
        if not force or queries is not None or qrels is not None:
            judged = queries_of(self._shown, queries, qrels, force=force)
            self._try_old(judged)
        with Trial(self._shown, NOTE, judged, margin) as trial:
            build = self._build(on_progress)
            comparison = None if judged is None else trial.against(self._new())
            verdict = FORCED if comparison is None else decided(comparison.verdict, force=force)
            after = committed(self.folder).fingerprint
            report = dataclasses.replace(report, verdict=verdict, after=after, comparison=comparison, build=build)
            if verdict not in (NOT_WORSE, FORCED):
                return dataclasses.replace(report, beside=str(self.folder), seconds=time.perf_counter() - started)
            seen, locked = committed(self._index).generation, 0.0
            self._build(on_progress)  # so that little is left to do while the index is locked

            def swap(current: Store) -> Store:
                nonlocal locked
                locked = time.perf_counter()
                if current.manifest.generation != seen:
                    self._build(on_progress)
                return Store.open(self.folder)

            about = {"from": before.fingerprint, "to": after}
            manifest = trial.commit(swap, verdict, comparison, about)
            locked_s = time.perf_counter() - locked
            atomic.remove(self.folder)
        return dataclasses.replace(
            report,
            generation=manifest.generation,
            committed=True,
            locked_seconds=locked_s,
            seconds=time.perf_counter() - started,
        )

    def _build(self, on_progress: OnProgress | None) -> BuildReport:
        try:
            return build_beside(self._index, self.folder, on_progress=on_progress, **self._options)
        except IndexFormatError as fault:
            if not fault.where.startswith(str(self.folder)):
                raise
            hint = f"remove the folder {self.folder}, and run the upgrade again"
            raise type(fault)(fault.message, hint, where=fault.where) from fault

    def _try_old(self, asked: Judged) -> None:
        """Whether the old model answers, which is needed when the new index is made: hours later."""
        old = Searcher(self._shown.store, self._shown.place)  # a new one: no model is held meanwhile that nobody uses
        try:
            old.encode(list(asked.texts.values()))
        except RagidxError as fault:
            hint = f"{fault.hint}; or swap without a comparison: `force=True`, and no `queries`"
            raise type(fault)(fault.message, hint, where=fault.where) from fault

    def _new(self) -> Searcher:
        device, run = check_devices(self._options["device"])[0], self._options
        return Searcher.open(self.folder, ModelPlace(device=device, dtype=run["dtype"], endpoint=run["endpoint"]))


def _plain(spec: IndexSpec) -> IndexSpec:
    """How the vectors of an index are made before they are adapted to the corpus, which an upgrade does not do."""
    return dataclasses.replace(spec, filter=dataclasses.replace(spec.filter, adapted=""))


def _whole(shown: Searcher, options: BuildOptions) -> dict[str, Any]:
    """Every option of the new index: as it was named, else the index's own, else that of another model."""
    stored, old, index = shown.spec.encoder, _plain(shown.spec), shown.store.manifest.index
    if stored is None or old.precomputed is not None:
        raise SpecError(
            "the index holds precomputed vectors: there is no text to encode",
            "build again from vectors of the new model: `ragidx build --vectors FILE --rebuild`",
            where=str(shown.store.path),
        )
    current = shown.place.model or (shown.model_files.name if stored.model == "mini" else stored.model)
    is_own = options.model in (None, current, stored.model if shown.place.model else current)
    model = options.model or current
    encoder, run = options.encoder, {name: getattr(options, name) for name in RUN_OPTIONS}
    if is_own:
        place = shown.place
        moved = {name: value for name in ("adapters", "pooler") if (value := getattr(place, name)) is not None}
        encoder = continued_options(stored, cast(EncoderOptions, moved | options.encoder))
        run["endpoint"] = options.endpoint or place.endpoint
    named = () if options.filter is None else options.filter.given
    if is_own and old.filter.name.startswith(HEAD) and "name" not in named:
        raise SpecError(
            "the filter of the index is a trained head, and the new index needs its file",
            "name it, or another filter: `filter=head:FILE`",
            where=str(shown.store.path),
        )
    files = located(model, encoder)
    filter_ = filter_spec(files, methods.resolve(files, **encoder), options.filter, old.filter if is_own else None)
    return {
        **encoder,
        **run,
        "model": model,
        "filter": dataclasses.replace(filter_),  # with every field named
        "chunks": (options.chunks or ChunkSpec()).over(old.chunk),
        "index_type": old.index_type,
        "target_recall": index.target_recall,
        "max_memory": index.max_memory,
        "codes_only": index.codes_only,
        "lexical": index.lexical != OFF,
        "stemmer": None if index.lexical == OFF else index.lexical,
        "workers": options.workers,
    }
