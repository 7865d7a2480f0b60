"""Evaluate: which configuration is better on some data, whether the difference is real, and what the cheapest costs.

data sets x encoders -> raw vectors, from the cache or encoded once -> each filter and width -> each search -> measures
by query -> `Report`: intervals, differences from the reference with corrected p, the cheapest row that is not worse.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import ModelError, RagidxError, SpecError, unknown_name
from ragidx.corpora.evalsets import load_qrels
from ragidx.indexer.ann.index_types import FLAT, check_index_type
from ragidx.indexer.encoders.methods import filter_spec
from ragidx.indexer.specs import ENCODER_OPTIONS, FILTERS, FilterSpec
from ragidx.pipelines.evaluate.choice import MARGIN
from ragidx.pipelines.evaluate.conclusions import Wanted, measure_of, overall, report_of, report_of_runs, rows_of_runs
from ragidx.pipelines.evaluate.files import check_out, write_out
from ragidx.pipelines.evaluate.grid import Measured, OnStage, Rankings, Searches, Similarities, Stages
from ragidx.pipelines.evaluate.measures import check_installed
from ragidx.pipelines.evaluate.report import Report, TaskReport
from ragidx.pipelines.evaluate.sources.corpus import CorpusSource
from ragidx.pipelines.evaluate.sources.pairs import PairsSource
from ragidx.pipelines.evaluate.sources.raw_vectors import RawVectors, default_cache
from ragidx.pipelines.evaluate.sources.series import Series, WidthChoice, fitted_sample, series_of
from ragidx.pipelines.evaluate.sources.source import IndexSource, Source
from ragidx.pipelines.evaluate.synthetic import Synthetic, synthetic, taken_out
from ragidx.pipelines.evaluate.tasks import (
    INDEX,
    PAIRS,
    RUN,
    Judged,
    Task,
    check_documents,
    no_judgements,
    task_of,
    with_names,
)
from ragidx.pipelines.ingest.options import CORPUS_OPTIONS, RUN_OPTIONS, build_options, check_names
from ragidx.pipelines.ingest.report import OnProgress
from ragidx.pipelines.ingest.resolve import resolve_against
from ragidx.retriever.options import DENSE, FUSIONS, HYBRID, LEXICAL, MODES, WEIGHT, Z

MOST_CELLS = 1000
"""Configurations of a grid without a word of consent."""

_ENCODER_AXES = ("model", "method", "pooling", "attention", "layer", "copies")
_REPEATING = {"echo", "reba"}
_OPTIONS = (
    *(name for name in ENCODER_OPTIONS if name not in _ENCODER_AXES),
    *(*RUN_OPTIONS, "chunks", *CORPUS_OPTIONS, "records", "fields"),
)


@dataclass(frozen=True)
class _Asked:
    """What a grid is made of, checked."""

    encoders: tuple[Mapping[str, Any], ...]
    filters: tuple[str, ...] | None
    offsets: tuple[int | None, ...]
    widths: WidthChoice
    searches: Searches
    options: Mapping[str, Any]

    def n_cells(self) -> int:
        """Of one data set, at most."""
        widths = max(1, len(self.widths.dims) + len(self.widths.taus))
        vectors = len(self.filters or (1,)) * len(self.offsets) * widths * len(self.searches.index_types)
        searches = sum(len(self.searches.of(mode)) for mode in self.searches.modes if mode != LEXICAL)
        return len(self.encoders) * vectors * searches + (LEXICAL in self.searches.modes)


def evaluate(
    *sources: str | os.PathLike[str],
    model: str | Sequence[str] | None = None,
    method: str | Sequence[str] | None = None,
    pooling: str | Sequence[str] | None = None,
    attention: str | Sequence[str] | None = None,
    layer: int | Sequence[int] | None = None,
    copies: int | Sequence[int] | None = None,
    filter: str | Sequence[str] | None = None,
    tau: float | Sequence[float] | None = None,
    dim: int | Sequence[int] | None = None,
    offset: int | Sequence[int] | None = None,
    index_type: str | Sequence[str] = FLAT,
    mode: str | Sequence[str] | None = None,
    fusion: str | Sequence[str] = Z,
    weight: float | Sequence[float] = WEIGHT,
    queries: str | os.PathLike[str] | None = None,
    qrels: str | os.PathLike[str] | None = None,
    split: str = "test",
    drop_self: bool = False,
    without_labels: bool = False,
    kind: str = "sentence",
    seed: int = 0,
    measure: str | None = None,
    reference: str | None = None,
    margin: float = MARGIN,
    all_pairs: bool = False,
    cache: str | os.PathLike[str] | None = "",
    yes: bool = False,
    out: str | os.PathLike[str] | None = None,
    on_progress: OnStage | None = None,
    on_build: OnProgress | None = None,
    **options: Any,
) -> Report:
    """Measure every configuration of a grid, and say which differences are real.

    Each of the first options may be a list; all combinations are measured, from one encoding for each encoder.

    Args:
        sources: data sets: BEIR folders, files or folders of pairs, indexes, other corpora, or TREC runs.
        model: as of `build`, as the next five.
        method: of the encoder.
        pooling: of the encoder.
        attention: of the encoder.
        layer: of the encoder.
        copies: of echo and reba.
        filter: names; None: what a build takes.
        tau: widths as shares of the hidden width; neither: what a build takes.
        dim: widths.
        offset: first columns of EmbedFilter.
        index_type: names or factory strings.
        mode: dense, lexical, hybrid; None: all three.
        fusion: of hybrid search.
        weight: of the cosine in hybrid search.
        queries: of corpora and indexes; None: those of a BEIR folder.
        qrels: that judge them.
        split: of a BEIR folder or a folder of pairs.
        drop_self: a document with the query's id is no answer.
        without_labels: make queries of the corpus in place of judged ones.
        kind: of these: sentence or title.
        seed: of what is drawn.
        measure: that intervals and tests are of; None: ndcg@10, of pairs spearman.
        reference: words of the name of the row that the others are compared with; None: the first.
        margin: that the cheapest row may lose against the best.
        all_pairs: compare each row with each other, not with the reference alone.
        cache: folder of raw vectors; "": the user's; None: nothing is kept.
        yes: measure more than 1,000 configurations.
        out: a folder for results.csv, per_query.parquet, runs and a picture.
        on_progress: called when a stage begins.
        on_build: called while a corpus is encoded.
        options: of the encoder and the corpus, as of `build`.

    Returns:
        Rows for each data set.

    Raises:
        RagidxError: of the subclass that says what to do.
    """
    check_names("evaluate", options, _OPTIONS)
    axes = {
        "model": model,
        "method": method,
        "pooling": pooling,
        "attention": attention,
        "layer": layer,
        "copies": copies,
    }
    asked = _Asked(
        encoders=_encoders({name: _listed(value) for name, value in axes.items() if value is not None}),
        filters=None if filter is None else tuple(_listed(filter)),
        offsets=tuple(_listed(offset)) if offset is not None else (None,),
        widths=WidthChoice(tuple(_listed(() if dim is None else dim)), tuple(_listed(() if tau is None else tau))),
        searches=_searches(mode, index_type, fusion, weight),
        options=options,
    )
    if asked.n_cells() > MOST_CELLS and not yes:
        raise SpecError(
            f"the grid has {asked.n_cells():,} configurations, more than {MOST_CELLS:,}",
            "name fewer values, or say that you mean it: `yes=True`",
        )
    for name in asked.filters or ():
        if name not in FILTERS:
            raise unknown_name("filter", name, FILTERS)
    wanted = Wanted(measure, reference, margin, all_pairs)
    tasks = [
        task_of(source, queries=queries, qrels=qrels, split=split, labelled=not without_labels)
        for source in dict.fromkeys(map(Path, sources))
    ]
    if not tasks:
        raise SpecError("there is nothing to evaluate", "name a data set, an index or runs")
    tasks = with_names(tasks)
    if any(task.kind != PAIRS for task in tasks):
        check_installed()
    tell = Stages(on_progress)
    if out is not None:
        check_out(Path(out))
    folder = None if cache is None else default_cache() if cache == "" else Path(cache)
    made_queries = (kind, seed) if without_labels else None
    measuring = _Measuring(asked, tell, folder, on_build, wanted, drop_self=drop_self, out=out, queries=made_queries)
    runs, others = [task for task in tasks if task.kind == RUN], [task for task in tasks if task.kind != RUN]
    beside = len(others) == 1 and others[0].judged is not None  # a run of the same queries
    reports = [measuring.task(task, runs if beside else ()) for task in others]
    if runs and not beside:
        if qrels is None:
            raise no_judgements(runs[0])
        reports.insert(0, report_of_runs(runs, load_qrels(qrels, split=split), wanted))
    report = Report(tuple(reports), overall(reports))
    return report if out is None else write_out(report, Path(out))


class _Measuring:
    """Measures tasks one after the other."""

    def __init__(
        self,
        asked: _Asked,
        tell: Stages,
        cache: Path | None,
        on_build: OnProgress | None,
        wanted: Wanted,
        *,
        drop_self: bool,
        out: str | os.PathLike[str] | None,
        queries: tuple[str, int] | None,
    ) -> None:
        self._asked, self._tell, self._cache, self._on_build, self._wanted = asked, tell, cache, on_build, wanted
        self._queries = queries  # the kind and seed of those that are made; None: they are given
        self._drop_self, self._out = drop_self, None if out is None else Path(out)
        self._notes: list[str] = []

    def task(self, task: Task, runs: Sequence[Task] = ()) -> TaskReport:
        """All rows of a data set, then those of finished runs of its queries.

        Raises:
            RagidxError: no configuration could be measured; the first one's fault.
        """
        self._notes = [] if task.judged is None else list(task.judged.notes)
        if task.judged is not None and task.judged.left_out:
            self._notes.append(f"Without judgements, and left out: {task.judged.left_out:,} x query.")
        with tempfile.TemporaryDirectory(prefix="ragidx-evaluate-") as temporary:
            folder, sizes, measure = Path(temporary), (0, 0), measure_of(task, self._wanted)
            rows: list[Measured] = []
            meter: Rankings | Similarities | None = None
            made: Synthetic | None = None
            fault: RagidxError | None = None
            for options in self._asked.encoders:
                try:
                    with self._opened(task, options, folder) as source:
                        sizes = source.n_documents, source.n_rows
                        if self._queries is not None and task.pairs is None:
                            self._tell("making queries")
                            if made is None:
                                kind, seed = self._queries
                                made = synthetic(source.chunks, kind=kind, seed=seed)
                                task = replace(task, judged=Judged(made.queries, made.qrels), synthetic=kind)
                                self._note(*made.notes)
                            source.change(taken_out(made, source.chunks()))
                        meter = meter or self._meter(task, folder, measure)
                        if task.judged is not None:
                            self._note(*check_documents(task.judged, source.doc_ids()))
                        self._note(*source.notes)
                        series = self._series(source)
                        self._tell.expect(meter.count(series))
                        rows += meter.measure(source, series)
                except (SpecError, ModelError) as raised:
                    if len(self._asked.encoders) == 1:
                        raise
                    fault = fault or raised
                    shown = ", ".join(f"{name}={value}" for name, value in options.items())
                    self._note(f"Left out: {shown}: {raised.message}.")
        if not rows and fault is not None:
            raise fault
        query_ids = list(task.judged.qrels) if task.judged is not None else [str(n) for n in range(sizes[0])]
        if runs and task.judged is not None:
            of_runs, notes = rows_of_runs(runs, task.judged.qrels)
            rows += of_runs
            self._note(*notes)
        return report_of(task, rows, query_ids, sizes, self._notes, self._wanted)

    def _meter(self, task: Task, folder: Path, measure: str) -> Rankings | Similarities:
        if task.pairs is not None:
            return Similarities(task.pairs, self._tell, measure=measure)
        assert task.judged is not None
        return Rankings(
            task.judged.texts,
            task.judged.qrels,
            self._asked.searches,
            folder,
            self._tell,
            measure=measure,
            drop_self=self._drop_self,
            keep_runs=self._out is not None,
        )

    @contextlib.contextmanager
    def _opened(self, task: Task, options: Mapping[str, Any], folder: Path) -> Iterator[Source]:
        if task.kind == INDEX:
            yield IndexSource(task.path, {**self._asked.options, **options})
            return
        resolved = resolve_against(build_options("evaluate", filter="none", **self._asked.options, **options))
        with RawVectors(resolved, self._cache) as vectors:
            self._tell(f"encoding with {resolved.encoder_spec.model}")
            if task.pairs is not None:
                yield PairsSource(task.path, task.pairs, vectors)
            else:
                sample = fitted_sample(self._asked.filters, {})
                yield CorpusSource(task.path, folder, vectors, fitted=sample, out=self._out, on_build=self._on_build)

    def _series(self, source: Source) -> list[Series]:
        """Filters and widths: those that were named, else what a build of this model takes."""
        asked = self._asked
        has_offsets, has_widths = asked.offsets != (None,), bool(asked.widths.dims or asked.widths.taus)
        if not source.is_raw and has_offsets:
            raise SpecError(
                "the index holds vectors after its filter, whose first direction is fixed",
                "remove it, or evaluate the corpus, or an index that was built with `filter=none`",
                where="`offset`",
            )
        as_it_is = isinstance(source, IndexSource) and asked.filters is None and not has_widths and not has_offsets
        if not source.is_raw or as_it_is:
            widths = asked.widths if has_widths else WidthChoice((source.dim,))
            return series_of(source, asked.filters or [source.spec.filter.name], widths, {})
        series, fault = list[Series](), None
        names = asked.filters or (None,)
        having = [name for name in names if name is None or "offset" in FILTERS[name].fields]
        pairs = dict.fromkeys(
            (name, offset if name in having or not having else None)
            for name, offset in itertools.product(names, asked.offsets)
        )
        for name, offset in pairs:
            try:
                series += self._of_filter(source, name, offset)
            except (SpecError, ModelError) as raised:
                fault = fault or raised
                self._note(f"Left out of {source.model}: filter {name}: {raised.message}.")
        if not series and fault is not None:
            raise fault
        unique = {(one.name, one.offset, one.widths): one for one in series}
        self._note(*(note for one in series for note in one.left_out))
        return list(unique.values())

    def _of_filter(self, source: Source, name: str | None, offset: int | None) -> list[Series]:
        encoder, widths = source.spec.encoder, self._asked.widths
        if encoder is None:
            spec = FilterSpec(name or "none")
        else:
            spec = filter_spec(source.files, encoder, None if name is None else FilterSpec(name))
        fields = {"offset": offset if offset is not None else spec.offset}
        if not (widths.dims or widths.taus):
            widths = WidthChoice((spec.width(source.hidden),))
        if spec.name == "none":
            widths = WidthChoice()
        if FILTERS[spec.name].nested:
            return series_of(source, [spec.name], widths, fields)
        every = widths.of(source.hidden, source.hidden)
        return [one for width in every for one in series_of(source, [spec.name], WidthChoice((width,)), fields)]

    def _note(self, *notes: str) -> None:
        self._notes += [note for note in notes if note not in self._notes]


def _searches(
    mode: str | Sequence[str] | None,
    index_type: str | Sequence[str],
    fusion: str | Sequence[str],
    weight: float | Sequence[float],
) -> Searches:
    modes = tuple(_listed(mode)) if mode is not None else (LEXICAL, DENSE, HYBRID)
    types, fusions, weights = (tuple(_listed(one)) for one in (index_type, fusion, weight))
    for what, values, known in (("mode", modes, MODES), ("fusion", fusions, FUSIONS)):
        for value in values:
            if value not in known:
                raise unknown_name(what, value, known)
    for name in types:
        check_index_type(name)
    for number in weights:
        if not 0 <= number <= 1:
            raise SpecError(f"weight={number:g} is not from 0 to 1", "0 is words alone, 1 cosines", where="`weight`")
    return Searches(modes, types, fusions, weights)


def _listed(value: Any) -> list[Any]:
    """A value, or several, each once."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [value]
    return list(dict.fromkeys(value))


def _encoders(axes: Mapping[str, Sequence[Any]]) -> tuple[Mapping[str, Any], ...]:
    """All combinations; beside a method that repeats a text, others are there once."""
    encoders: list[Mapping[str, Any]] = []
    repeating = set(axes.get("method", ())) & _REPEATING
    for values in itertools.product(*axes.values()):
        options = dict(zip(axes, values, strict=True))
        if repeating and options["method"] not in repeating:
            options.pop("copies", None)
        if options not in encoders:
            encoders.append(options)
    return tuple(encoders)
