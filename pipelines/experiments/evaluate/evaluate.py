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

from ragidx.corpora.errors import CorpusError, ModelError, RagidxError, SpecError
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.indexer.ann.alone import check_has_vectors
from ragidx.indexer.ann.index_types import DEFAULT_RECALL
from ragidx.indexer.arrays import Floats
from ragidx.indexer.specs import MODEL, TABLE
from ragidx.indexer.store.generations import committed
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.evaluate.axes import FILTER_FIELDS, Axes, check_reference
from ragidx.pipelines.experiments.evaluate.conclusions import measure_of, overall, report_of, rows_of_runs
from ragidx.pipelines.experiments.evaluate.files import check_out, write_out
from ragidx.pipelines.experiments.evaluate.grid import MeasuredConfiguration, Rankings, Similarities
from ragidx.pipelines.experiments.evaluate.measures import ir_measures
from ragidx.pipelines.experiments.evaluate.options import Grid, Judge, Questions, as_list, check_moved
from ragidx.pipelines.experiments.evaluate.report import EvaluationReport, TaskReport
from ragidx.pipelines.experiments.evaluate.significance import FEWEST_DATA_SETS
from ragidx.pipelines.experiments.evaluate.sources.corpus import CorpusSource
from ragidx.pipelines.experiments.evaluate.sources.pairs import PairsSource
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors, cache_folder
from ragidx.pipelines.experiments.evaluate.sources.series import fitted_sample
from ragidx.pipelines.experiments.evaluate.sources.source import IndexSource, VectorSource
from ragidx.pipelines.experiments.evaluate.synthetic import synthetic, taken_out
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
from ragidx.retriever.options import DENSE

KNOWN = (*(name for name in ENCODING_OPTIONS if name not in Grid.__annotations__), *FILTER_FIELDS)
"""Options that all of a grid has."""


def evaluate(
    *sources: str | os.PathLike[str],
    grid: Grid = Grid(),
    questions: Questions = Questions.read(),
    judge: Judge = Judge(),
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

        ragidx.evaluate("scifact/", grid=Grid(filter=["none", "pca"], tau=4), judge=Judge(measure="recall@100"))

    All combinations are measured, from one encoding for each encoder.

    Args:
        sources: data sets: BEIR folders, files or folders of pairs, indexes, other corpora, or TREC runs.
        grid: the values that are combined; by default those that a build takes, in all three modes.
        questions: the queries that ask, and what judges them; by default those of a BEIR folder.
        judge: the measure, reference and margin of what is concluded; by default of ndcg@10, of pairs spearman.
        costs: measure time and size on disk, too, of dense search beside exact search at full width; by default of
            tau = 1, 2, 4, 8, 16 for an index's own filter, else EmbedFilter for decoders, else truncation and PCA.
            Without queries held-out chunks ask. Search with words is a data set of its own in the report.
        target_recall: the ann_recall@10 that approximate indexes are tuned to.
        cache: folder of raw vectors; "": the user's; None: nothing is kept.
        yes: measure more than 1,000 configurations.
        out: a folder for results.csv, per_query.parquet, runs and a picture.
        on_progress: called when a stage begins.
        on_build: called while a corpus is encoded.
        options: options of the encoder and the corpus, as of `build`; filter_seed, filter_sample, filter_topk and
            filter_power of filters.

    Returns:
        Rows for each data set.

    Raises:
        RagidxError: of the subclass that says what to do.
    """
    check_moved("evaluate", options, "grid", "questions", "judge")
    check_names("evaluate", options, KNOWN)
    if not isinstance(questions, Questions):
        raise SpecError(f"{questions!r} is no Questions", "give `grid=Grid(questions=...)`", where="`questions`")
    axes = Axes.of(grid, options, costs=costs, target_recall=target_recall)
    axes.check_size(yes=yes)
    is_log, qrels = questions.log is not None, questions.qrels
    if questions.without_labels and TABLE in as_list(grid.questions):
        hint = "give `queries` and `qrels`; `ragidx train questions` compares both without"
        raise SpecError("the table has learnt from the sentences that would ask", hint, where="`questions`")
    if is_log and judge.all_pairs:
        raise SpecError("queries without judgements say no row is better", "remove it", where="`all_pairs`")
    if questions.vectors is not None and not costs:
        raise SpecError("they ask where costs are measured", "add `costs=True`", where="`questions.vectors`")
    tasks = with_names([task_of(source, questions, costs=costs) for source in dict.fromkeys(map(Path, sources))])
    if not tasks:
        raise SpecError("there is nothing to evaluate", "name a data set, an index or runs")
    if any(task.kind != PAIRS and (not costs or (task.judged and task.judged.qrels)) for task in tasks):
        ir_measures()
    for task in tasks:
        measure_of(task, judge, is_log=is_log)  # before anything is encoded
    if out is not None:
        check_out(Path(out))
    runs, others = [task for task in tasks if task.kind == RUN], [task for task in tasks if task.kind != RUN]
    beside = len(others) == 1 and others[0].judged is not None and not is_log  # a run of the same queries
    if runs and not beside and qrels is None:
        raise no_judgements(runs[0])
    if judge.reference is not None and others and all(task.kind != INDEX for task in others):
        check_reference(judge.reference, grid, [task.name for task in runs])
    measuring = _Measuring(
        axes=axes,
        questions=questions,
        judge=judge,
        tell=Stages(on_progress, len(others) * len(axes.encoders)),
        cache=cache_folder(cache),
        on_build=on_build,
        out=None if out is None else Path(out),
    )
    reports = [report for task in others for report in measuring.task(task, runs if beside else ())]
    if runs and not beside and qrels is not None:
        judgements = load_qrels(qrels, split=questions.split)
        rows, notes = rows_of_runs(runs, judgements, judge.answers, drop_self=questions.drop_self)
        reports.insert(0, report_of(runs[0], rows, list(judgements), (0, 0), notes, judge))
    over_sets, notes = () if costs else overall(reports), []
    if len(reports) >= FEWEST_DATA_SETS and not over_sets and not costs:
        notes.append("No test over the data sets: some of them do not have the row of the reference.")
    report = EvaluationReport(tuple(reports), over_sets, tuple(notes))
    return report if out is None else write_out(report, Path(out))


@dataclass(frozen=True, kw_only=True)
class _Measuring:
    """Measures tasks one after the other."""

    axes: Axes
    questions: Questions
    judge: Judge
    tell: Stages
    cache: Path | None
    on_build: OnProgress | None
    out: Path | None
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
            drop_self, answers = self.questions.drop_self, self.judge.answers
            of_runs, run_notes = rows_of_runs(runs, task.judged.qrels, answers, drop_self=drop_self)
            run_notes.append(f"The rows are measured by their first {answers:,} documents, runs whole.")
        costs = self.axes.costs
        with tempfile.TemporaryDirectory(prefix="ragidx-evaluate-") as temporary:
            folder, sizes = Path(temporary), (0, 0)
            measure = measure_of(task, self.judge, is_log=self.questions.log is not None)
            rows: list[MeasuredConfiguration] = []
            meter: Rankings | Similarities | None = None
            fault: RagidxError | None = None
            n_chunks = set[int]()
            for options in self.axes.encoders:
                try:
                    with self._opened(task, options, folder) as source:
                        task, vectors = self._with_queries(task, source)
                        sizes = source.n_documents, source.n_rows
                        n_chunks.add(source.n_rows)
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
        if len(n_chunks) > 1:
            self._note(f"The rows are not of the same chunks: there are {min(n_chunks):,} to {max(n_chunks):,}.")
        query_ids = [str(n) for n in range(sizes[0])]
        if task.judged is not None:
            query_ids = list(task.judged.qrels or task.judged.texts)
        rows += of_runs
        self._note(*run_notes)
        dense = [one for one in rows if not costs or one.configuration.mode == DENSE]
        yield report_of(task, dense, query_ids, sizes, self.notes, self.judge)
        if len(dense) < len(rows):
            with_words = [one for one in rows if one.configuration.mode != DENSE]
            task, judge = replace(task, name=f"{task.name}, with words"), replace(self.judge, reference=None)
            yield replace(report_of(task, with_words, query_ids, sizes, [], judge), notes=())

    def _with_queries(self, task: Task, source: VectorSource) -> tuple[Task, Floats | None]:
        """The task with what asks a source, which then is searched without it: queries that are made, or rows that are
        held out; and the vectors of the queries where they are known.
        """
        asked = self.questions
        if asked.without_labels and task.pairs is None:
            self.tell("making queries")
            made = task.judged or synthetic(source.chunks, kind=asked.kind, seed=asked.seed, where=source.name)
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
        assert given is not None
        assert asked.queries is not None  # an index has no queries of its own
        names = list(load_queries(asked.queries))
        if len(given) != len(names):
            what, where = f"there are {len(given):,} vectors and {len(names):,} queries", str(asked.queries)
            raise CorpusError(what, "give a vector for each query, in the order of their file", where=where)
        return task, given[[row for row, name in enumerate(names) if name in task.judged.texts]]

    def _meter(self, task: Task, folder: Path, measure: str) -> Rankings | Similarities:
        if task.pairs is not None:
            return Similarities(task.pairs, self.tell, measure=measure)
        assert task.judged is not None
        searches, costs = self.axes.searches, self.axes.costs
        if costs and not task.judged.qrels:
            searches = replace(searches, modes=(DENSE,))
        return Rankings(
            task.judged,
            searches,
            folder,
            self.tell,
            measure=measure if task.judged.qrels else None,
            depth=self.judge.answers,
            drop_self=self.questions.drop_self,
            keep_runs=(self.out is not None or not task.judged.qrels) and not costs,
            costs=costs,
        )

    @contextlib.contextmanager
    def _opened(self, task: Task, options: Mapping[str, Any], folder: Path) -> Iterator[VectorSource]:
        if task.kind == INDEX:
            asked_by = {"questions": MODEL} if self.questions.without_labels else {}  # the table knows their sentences
            check_has_vectors(committed(task.path).index, "evaluate", str(task.path))
            yield IndexSource(task.path, {**self.axes.options, **asked_by, **options}, self.questions.vectors)
            return
        if "questions" in options:
            raise SpecError("a corpus has no table of questions", "evaluate the index that has it", where="`questions`")
        if self.questions.vectors is not None:
            raise SpecError(
                "of a corpus the queries are encoded by the model that encodes the documents",
                "remove it, or name an index of precomputed vectors",
                where="`questions.vectors`",
            )
        resolved = resolve_against(build_options("evaluate", filter="none", **self.axes.options, **options))
        # An instruction is of queries: documents are encoded once, also where nothing is kept.
        cache = folder / "vectors" if self.cache is None and "instruction" in options else self.cache
        with RawVectors(resolved, cache) as vectors:
            self.tell(f"encoding with {resolved.encoder_spec.model}")
            if task.pairs is not None:
                yield PairsSource(task.path, task.pairs, vectors)
            else:
                sample = fitted_sample(self.axes.filters, self.axes.fields)
                yield CorpusSource(task.path, folder, vectors, fitted=sample, out=self.out, on_build=self.on_build)

    def _note(self, *notes: str) -> None:
        self.notes.extend(note for note in notes if note not in self.notes)
