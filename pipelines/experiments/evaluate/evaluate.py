"""Evaluate: which configuration is better on some data, whether the difference is real, and what the cheapest costs.

data sets x encoders -> raw vectors, from the cache or encoded once -> each filter and width -> each search -> measures
by query -> `EvaluationReport`: intervals, differences from the reference with corrected p, the cheapest row that is not
worse.

With `costs` every width is a real index, which is written, mapped, searched, timed and removed; what dense rows are
compared with then is the full width in float32, every vector of it. Nothing stays behind but raw vectors in the cache,
and what `out` names.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import CorpusError, ModelError, RagidxError, SpecError, unknown_name
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.indexer.ann.index_types import DEFAULT_RECALL, FLAT
from ragidx.indexer.arrays import Floats
from ragidx.indexer.specs import MODEL, TABLE
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.evaluate.axes import (
    AXES,
    FILTER_FIELDS,
    Axes,
    as_list,
    check_reference,
)
from ragidx.pipelines.experiments.evaluate.choice import MARGIN
from ragidx.pipelines.experiments.evaluate.conclusions import Wanted, measure_of, overall, report_of, rows_of_runs
from ragidx.pipelines.experiments.evaluate.files import check_out, write_out
from ragidx.pipelines.experiments.evaluate.grid import MeasuredConfiguration, Rankings, Similarities
from ragidx.pipelines.experiments.evaluate.measures import DEPTH, ir_measures
from ragidx.pipelines.experiments.evaluate.report import EvaluationReport, TaskReport
from ragidx.pipelines.experiments.evaluate.significance import FEWEST_DATA_SETS
from ragidx.pipelines.experiments.evaluate.sources.corpus import CorpusSource
from ragidx.pipelines.experiments.evaluate.sources.pairs import PairsSource
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors, cache_folder
from ragidx.pipelines.experiments.evaluate.sources.series import fitted_sample
from ragidx.pipelines.experiments.evaluate.sources.source import IndexSource, VectorSource
from ragidx.pipelines.experiments.evaluate.synthetic import KINDS, synthetic, taken_out
from ragidx.pipelines.experiments.evaluate.tasks import (
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
from ragidx.pipelines.ingest.options import ENCODING_OPTIONS, build_options, check_names
from ragidx.pipelines.ingest.report import OnProgress
from ragidx.pipelines.ingest.resolve import resolve_against
from ragidx.retriever.options import DENSE, Z

KNOWN = (*AXES, *(name for name in ENCODING_OPTIONS if name not in AXES), *FILTER_FIELDS)
"""The axes of a grid, and the options that all of it has."""


def evaluate(
    *sources: str | os.PathLike[str],
    model: str | Sequence[str] | None = None,
    method: str | Sequence[str] | None = None,
    pooling: str | Sequence[str] | None = None,
    attention: str | Sequence[str] | None = None,
    layer: int | Sequence[int] | None = None,
    copies: int | Sequence[int] | None = None,
    questions: str | Sequence[str] | None = None,
    filter: str | Sequence[str] | None = None,
    tau: float | Sequence[float] | None = None,
    dim: int | Sequence[int] | None = None,
    offset: int | Sequence[int] | None = None,
    center: bool | Sequence[bool] | None = None,
    index_type: str | Sequence[str] = FLAT,
    mode: str | Sequence[str] | None = None,
    fusion: str | Sequence[str] = Z,
    weight: float | Sequence[float] | None = None,
    queries: str | os.PathLike[str] | None = None,
    qrels: str | os.PathLike[str] | None = None,
    split: str = "test",
    drop_self: bool = False,
    without_labels: bool = False,
    query_log: str | os.PathLike[str] | None = None,
    query_vectors: str | os.PathLike[str] | None = None,
    kind: str = "sentence",
    seed: int = 0,
    measure: str | None = None,
    reference: str | None = None,
    margin: float = MARGIN,
    all_pairs: bool = False,
    costs: bool = False,
    target_recall: float = DEFAULT_RECALL,
    cache: str | os.PathLike[str] | None = "",
    yes: bool = False,
    out: str | os.PathLike[str] | None = None,
    on_progress: OnStage | None = None,
    on_build: OnProgress | None = None,
    **options: Any,
) -> EvaluationReport:
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
        questions: of an index that has a table: table, model.
        filter: names; None: what a build takes.
        tau: widths as shares of the hidden width; neither: what a build takes.
        dim: widths.
        offset: first columns of EmbedFilter.
        center: whether the filter takes the means of documents and questions off; None: what a build does.
        index_type: names or factory strings.
        mode: dense, lexical, hybrid; None: all three.
        fusion: of hybrid search.
        weight: of the cosine in hybrid search; None: 0.5, or what an index was adapted to.
        queries: of corpora and indexes; None: those of a BEIR folder.
        qrels: that judge them.
        split: of a BEIR folder or a folder of pairs.
        drop_self: a document with the query's id is no answer.
        without_labels: make queries of the corpus in place of judged ones.
        query_log: questions that nobody judged: how alike the rows answer them, which says nothing of quality.
        query_vectors: with `costs`, of an index: the vectors of the queries, one for each in their order, as an .npy
            array or JSON; without `queries` they ask, and nothing judges them.
        kind: of made queries: sentence or title.
        seed: of what is drawn.
        measure: that intervals and tests are of; None: ndcg@10, of pairs spearman.
        reference: words of the name of the row that the others are compared with; None: the first.
        margin: that the cheapest row may lose against the best.
        all_pairs: compare each row with each other, not with the reference alone.
        costs: measure time and size on disk, too, of dense search beside exact search at full width; by default of
            tau = 1, 2, 4, 8, 16 for an index's own filter, else EmbedFilter for decoders, else truncation and PCA.
            Without queries held-out chunks ask. Search with words is a data set of its own in the report.
        target_recall: ann_recall@10 that approximate indexes are tuned to.
        cache: folder of raw vectors; "": the user's; None: nothing is kept.
        yes: measure more than 1,000 configurations.
        out: a folder for results.csv, per_query.parquet, runs and a picture.
        on_progress: called when a stage begins.
        on_build: called while a corpus is encoded.
        options: of the encoder and the corpus, as of `build`; filter_seed, filter_sample and filter_topk of filters.

    Returns:
        Rows for each data set.

    Raises:
        RagidxError: of the subclass that says what to do.
    """
    check_names("evaluate", options, KNOWN)
    values = {name: value for name, value in locals().items() if name in AXES and value is not None}
    axes = Axes.of(values, options, costs=costs, target_recall=target_recall)
    axes.check_size(yes=yes)
    _check_queries(queries, qrels, query_log, kind, seed, without_labels=without_labels)
    if without_labels and TABLE in as_list(questions):
        hint = "give `queries` and `qrels`; `ragidx train questions` compares both without"
        raise SpecError("the table has learnt from the sentences that would ask", hint, where="`questions`")
    wanted = Wanted(measure, reference, margin, all_pairs)
    if query_log is not None and all_pairs:
        raise SpecError("queries without judgements say no row is better", "remove it", where="`all_pairs`")
    if query_vectors is not None and not costs:
        raise SpecError("they ask where costs are measured", "add `costs=True`", where="`query_vectors`")
    files: dict[str, Any] = {"queries": queries, "qrels": qrels, "split": split, "query_log": query_log}
    tasks = [
        task_of(source, **files, labelled=not without_labels, costs=costs)
        for source in dict.fromkeys(map(Path, sources))
    ]
    if not tasks:
        raise SpecError("there is nothing to evaluate", "name a data set, an index or runs")
    tasks = with_names(tasks)
    if any(task.kind != PAIRS and (not costs or (task.judged and task.judged.qrels)) for task in tasks):
        ir_measures()
    for task in tasks:
        measure_of(task, wanted, is_log=query_log is not None)  # before anything is encoded
    if out is not None:
        check_out(Path(out))
    runs, others = [task for task in tasks if task.kind == RUN], [task for task in tasks if task.kind != RUN]
    beside = len(others) == 1 and others[0].judged is not None and query_log is None  # a run of the same queries
    if runs and not beside and qrels is None:
        raise no_judgements(runs[0])
    if reference is not None and others and all(task.kind != INDEX for task in others):
        check_reference(reference, values, [task.name for task in runs])
    measuring = _Measuring(
        axes=axes,
        tell=Stages(on_progress, len(others) * len(axes.encoders)),
        cache=cache_folder(cache),
        on_build=on_build,
        wanted=wanted,
        drop_self=drop_self,
        out=None if out is None else Path(out),
        is_log=query_log is not None,
        queries=(kind, seed) if without_labels else None,
        query_files=(queries, query_vectors),
    )
    reports = [report for task in others for report in measuring.task(task, runs if beside else ())]
    if runs and not beside and qrels is not None:
        judgements = load_qrels(qrels, split=split)
        rows, notes = rows_of_runs(runs, judgements, drop_self=drop_self)
        reports.insert(0, report_of(runs[0], rows, list(judgements), (0, 0), notes, wanted))
    over_sets, notes = () if costs else overall(reports), []
    if len(reports) >= FEWEST_DATA_SETS and not over_sets and not costs:
        notes.append("No test over the data sets: some of them do not have the row of the reference.")
    report = EvaluationReport(tuple(reports), over_sets, tuple(notes))
    return report if out is None else write_out(report, Path(out))


def _check_queries(
    queries: object, qrels: object, query_log: object, kind: str, seed: int, *, without_labels: bool
) -> None:
    """Whether what is said of the queries goes together.

    Raises:
        SpecError: it does not, or there is no such kind of made queries.
    """
    if query_log is not None and (without_labels or queries is not None or qrels is not None):
        raise SpecError("it asks in place of other queries", "remove the others, or it", where="`query_log`")
    if without_labels and (queries is not None or qrels is not None):
        where = "`qrels`" if queries is None else "`queries`"
        raise SpecError("queries are made of the corpus", "remove it, or `without_labels`", where=where)
    if not without_labels and (kind, seed) != (KINDS[0], 0):
        where = "`seed`" if seed else "`kind`"
        raise SpecError("it is for queries that are made of the corpus", "add `without_labels=True`", where=where)
    if kind not in KINDS:
        raise unknown_name("kind of query", kind, KINDS)


@dataclass(frozen=True, kw_only=True)
class _Measuring:
    """Measures tasks one after the other."""

    axes: Axes
    tell: Stages
    cache: Path | None
    on_build: OnProgress | None
    wanted: Wanted
    drop_self: bool
    out: Path | None
    is_log: bool  # of queries that nobody judged
    queries: tuple[str, int] | None  # the kind and seed of those that are made; None: they are given
    query_files: tuple[str | os.PathLike[str] | None, str | os.PathLike[str] | None]  # texts, vectors
    notes: list[str] = field(default_factory=list)  # of the present task

    def task(self, task: Task, runs: Sequence[Task] = ()) -> Iterator[TaskReport]:
        """All rows of a data set, then those of finished runs of its queries; where costs are measured, search with
        words by itself.

        Raises:
            RagidxError: no configuration could be measured; the first one's fault.
        """
        self.notes[:] = () if task.judged is None else task.judged.notes
        of_runs, run_notes = list[MeasuredConfiguration](), list[str]()
        if runs and task.judged is not None:  # before the others: a run of another set is an error
            of_runs, run_notes = rows_of_runs(runs, task.judged.qrels, drop_self=self.drop_self)
            run_notes.append(f"The rows are measured by their first {DEPTH} documents, runs whole.")
        costs, is_log = self.axes.costs, self.is_log
        with tempfile.TemporaryDirectory(prefix="ragidx-evaluate-") as temporary:
            folder, sizes = Path(temporary), (0, 0)
            measure = measure_of(task, self.wanted, is_log=is_log)
            rows: list[MeasuredConfiguration] = []
            meter: Rankings | Similarities | None = None
            fault: RagidxError | None = None
            for options in self.axes.encoders:
                try:
                    with self._opened(task, options, folder) as source:
                        task, vectors = self._with_queries(task, source)
                        sizes = source.n_documents, source.n_rows
                        meter = meter or self._meter(task, folder, measure)
                        if task.judged is not None and task.judged.qrels:
                            self._note(*check_documents(task.judged, source.doc_ids()))
                        series, notes = self.axes.series(source)
                        self.tell.expect(meter.count(series))
                        rows += meter.measure(source, series, vectors)
                        self._note(*source.notes, *notes, *meter.notes)
                except (SpecError, ModelError) as raised:
                    if len(self.axes.encoders) == 1:
                        raise
                    fault = fault or raised
                    self.tell.parts -= 1
                    shown = ", ".join(f"{name}={value}" for name, value in options.items())
                    self._note(f"Left out: {shown}: {raised.message}.")
        if not rows and fault is not None:
            raise fault
        query_ids = [str(n) for n in range(sizes[0])]
        if task.judged is not None:
            query_ids = list(task.judged.qrels or task.judged.texts)
        rows += of_runs
        self._note(*run_notes)
        dense = [one for one in rows if not costs or one.configuration.mode == DENSE]
        yield report_of(task, dense, query_ids, sizes, self.notes, self.wanted)
        if len(dense) < len(rows):
            with_words = [one for one in rows if one.configuration.mode != DENSE]
            task, wanted = replace(task, name=f"{task.name}, with words"), replace(self.wanted, reference=None)
            yield replace(report_of(task, with_words, query_ids, sizes, [], wanted), notes=())

    def _with_queries(self, task: Task, source: VectorSource) -> tuple[Task, Floats | None]:
        """The task with what asks a source, which then is searched without it: queries that are made, or rows that are
        held out; and the vectors of the queries where they are known.
        """
        if self.queries is not None and task.pairs is None:
            self.tell("making queries")
            kind, seed = self.queries
            made = task.judged or synthetic(source.chunks, kind=kind, seed=seed, where=source.name)
            self._note(*made.notes)
            source.change(taken_out(made, source.chunks()))
            return replace(task, judged=made), None
        given = source.given
        is_asked = task.judged is not None and any(task.judged.texts.values())
        if not self.axes.costs or (given is None and is_asked):
            return task, None
        if task.judged is None or not is_asked:
            vectors = source.hold_out() if given is None else given
            if given is None:
                self._note(f"There are no queries: {len(vectors):,} held-out chunks were asked.")
            return replace(task, judged=Judged({str(n): "" for n in range(1, len(vectors) + 1)}, {})), vectors
        file = self.query_files[0]
        assert given is not None
        assert file is not None  # an index has no queries of its own
        names = list(load_queries(file))
        if len(given) != len(names):
            hint = "give a vector for each query, in the order of their file"
            raise CorpusError(f"there are {len(given):,} vectors and {len(names):,} queries", hint, where=str(file))
        return task, given[[row for row, name in enumerate(names) if name in task.judged.texts]]

    def _meter(self, task: Task, folder: Path, measure: str) -> Rankings | Similarities:
        if task.pairs is not None:
            return Similarities(task.pairs, self.tell, measure=measure)
        assert task.judged is not None
        searches, costs = self.axes.searches, self.axes.costs
        if costs and not task.judged.qrels:
            searches = replace(searches, modes=(DENSE,))
        return Rankings(
            task.judged.texts,
            task.judged.qrels,
            searches,
            folder,
            self.tell,
            measure=measure if task.judged.qrels else None,
            drop_self=self.drop_self,
            keep_runs=(self.out is not None or not task.judged.qrels) and not costs,
            costs=costs,
        )

    @contextlib.contextmanager
    def _opened(self, task: Task, options: Mapping[str, Any], folder: Path) -> Iterator[VectorSource]:
        if task.kind == INDEX:
            asked_by = {"questions": MODEL} if self.queries is not None else {}  # the table knows their sentences
            yield IndexSource(task.path, {**self.axes.options, **asked_by, **options}, self.query_files[1])
            return
        if "questions" in options:
            raise SpecError("a corpus has no table of questions", "evaluate the index that has it", where="`questions`")
        if self.query_files[1] is not None:
            raise SpecError(
                "of a corpus the queries are encoded by the model that encodes the documents",
                "remove it, or name an index of precomputed vectors",
                where="`query_vectors`",
            )
        resolved = resolve_against(build_options("evaluate", filter="none", **self.axes.options, **options))
        with RawVectors(resolved, self.cache) as vectors:
            self.tell(f"encoding with {resolved.encoder_spec.model}")
            if task.pairs is not None:
                yield PairsSource(task.path, task.pairs, vectors)
            else:
                sample = fitted_sample(self.axes.filters, self.axes.fields)
                yield CorpusSource(task.path, folder, vectors, fitted=sample, out=self.out, on_build=self.on_build)

    def _note(self, *notes: str) -> None:
        self.notes.extend(note for note in notes if note not in self.notes)
