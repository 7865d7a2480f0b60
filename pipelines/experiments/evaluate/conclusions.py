"""What rows mean: intervals, differences from the reference, and the cheapest row that is not worse than the best."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.corpora.evalsets import Qrels
from ragidx.indexer.arrays import Doubles
from ragidx.pipelines.experiments.evaluate.choice import Choice, cheapest
from ragidx.pipelines.experiments.evaluate.grid import MeasuredConfiguration
from ragidx.pipelines.experiments.evaluate.measures import (
    AGREEMENT,
    CORRELATIONS,
    MEASURES,
    NEARNESS,
    agreement,
    measures_of,
    of_rankings,
    own_first,
)
from ragidx.pipelines.experiments.evaluate.options import Judge
from ragidx.pipelines.experiments.evaluate.report import (
    Configuration,
    EvaluationRow,
    Overall,
    TaskReport,
    names_of,
    words_of,
)
from ragidx.pipelines.experiments.evaluate.significance import (
    FEWEST_DATA_SETS,
    Interval,
    MeanDifference,
    all_pairs,
    differences,
    holm_p,
    intervals,
    over_data_sets,
    too_few,
)
from ragidx.pipelines.experiments.evaluate.tasks import PAIRS, Task, check_run
from ragidx.retriever.options import HYBRID

UNLIKE = "unlike"
"""The verdict on rows that the queries cannot compare."""


def measure_of(task: Task, judge: Judge, *, is_log: bool = False) -> str:
    """The measure that intervals and tests are of; of a log of queries, that intervals are of.

    Raises:
        SpecError: it is none of this kind of data, or of more documents than are kept.
    """
    known = CORRELATIONS if task.kind == PAIRS else measures_of(judge.answers)
    if task.judged is not None and not task.judged.qrels:
        known = AGREEMENT if is_log else NEARNESS
    measure = known[0] if judge.measure is None else judge.measure
    if measure in MEASURES and measure not in known and known == measures_of(judge.answers):
        raise SpecError(
            f"{measure} is of more documents than the {judge.answers:,} that are kept of each query",
            f"give `answers={measure.partition('@')[2]}`",
            where="`measure`",
        )
    if measure not in known:
        raise unknown_name("measure", measure, known)
    return measure


def rows_of_runs(
    runs: Sequence[Task], qrels: Qrels, answers: int, *, drop_self: bool = False
) -> tuple[list[MeasuredConfiguration], list[str]]:
    """Finished runs, measured whole, and notes on them.

    Raises:
        CorpusError: a run answers no query that is judged.
    """
    notes = [note for task in runs for note in check_run(task, qrels)]
    rows = []
    for task in runs:
        run = task.run or {}
        if drop_self:
            run = {name: {doc_id: hits[doc_id] for doc_id in hits if doc_id != name} for name, hits in run.items()}
        elif own := own_first(run, qrels):
            notes.append(own)
        rows.append(MeasuredConfiguration(Configuration(run=task.name), of_rankings(run, qrels, measures_of(answers))))
    return rows, notes


def report_of(
    task: Task,
    rows: Sequence[MeasuredConfiguration],
    query_ids: list[str],
    sizes: tuple[int, int],
    notes: list[str],
    judge: Judge,
) -> TaskReport:
    """Rows with their intervals and differences, and the choice among them."""
    names = names_of([one.configuration for one in rows])
    place = _place(names, judge.reference, [one.configuration for one in rows], task)
    is_log = not rows[0].values
    if is_log:
        rows = [dataclasses.replace(one, values=agreement(one.run, rows[place].run)) for one in rows]
    first = measure_of(task, judge, is_log=is_log)
    is_quality = first not in (*NEARNESS, *AGREEMENT)
    if is_quality:
        notes += too_few(len(query_ids), "pairs" if task.kind == PAIRS else "queries")
    values = {name: np.stack([one.values[name] for one in rows]) for name in rows[0].values}
    matrix = values[first]
    against: list[MeanDifference | None] = [None] * len(rows)
    if is_quality:
        apart = differences(np.delete(matrix, place, axis=0), matrix[place])
        against = [*apart[:place], None, *apart[place:]]
        if task.synthetic is not None:
            against = [one and _of_its_kind(one, rows[number], rows[place]) for number, one in enumerate(against)]
    shown = [
        EvaluationRow(
            configuration=one.configuration,
            name=name,
            bytes=one.bytes,
            tokens=one.tokens,
            means={measured: float(by_query.mean()) for measured, by_query in one.values.items()},
            interval=_within(interval, of_pairs=task.kind == PAIRS),
            against=difference,
            chance=(min(one.chance), max(one.chance)) if one.chance else None,
            costs=one.costs,
        )
        for one, name, interval, difference in zip(rows, names, intervals(matrix), against, strict=True)
    ]
    return TaskReport(
        name=task.name,
        kind=task.kind,
        synthetic=task.synthetic,
        n_documents=sizes[0],
        n_chunks=sizes[1],
        query_ids=tuple(query_ids),
        measure=first,
        reference=place,
        rows=tuple(shown),
        values=values,
        choice=_choice(rows, matrix, judge.margin, place, task) if is_quality else None,
        pairs=_pairs(rows, matrix, task) if judge.all_pairs else {},
        runs=tuple(one.run for one in rows) if any(one.run for one in rows) else (),
        notes=tuple(notes),
    )


def _within(interval: Interval, *, of_pairs: bool) -> Interval:
    """A correlation is no lower than -1 and no higher than 1; intervals of few pairs are, as its values are linear."""
    return Interval(interval.mean, max(-1.0, interval.low), min(1.0, interval.high)) if of_pairs else interval


def overall(tasks: Sequence[TaskReport]) -> tuple[Overall, ...]:
    """The rows that all data sets have, over the data sets; empty: these are too few, or lack the reference."""
    means = [{row.configuration: row.interval.mean for row in task.rows} for task in tasks]
    shared = [row for row in tasks[0].rows if all(row.configuration in of_task for of_task in means)]
    reference = tasks[0].rows[tasks[0].reference]
    if len(tasks) < FEWEST_DATA_SETS or reference not in shared:
        return ()
    others = [row for row in shared if row is not reference]
    base = np.array([of_task[reference.configuration] for of_task in means])
    values = [np.array([of_task[row.configuration] for of_task in means]) for row in others]
    corrected = holm_p([over_data_sets(one, base) for one in values])
    return tuple(
        Overall(row.name, float((one - base).mean()), p) for row, one, p in zip(others, values, corrected, strict=True)
    )


def _pairs(rows: Sequence[MeasuredConfiguration], matrix: Doubles, task: Task) -> dict[tuple[int, int], MeanDifference]:
    pairs = all_pairs(matrix)
    if task.synthetic is None:
        return pairs
    return {(one, other): _of_its_kind(apart, rows[one], rows[other]) for (one, other), apart in pairs.items()}


def _of_its_kind(apart: MeanDifference, row: MeasuredConfiguration, reference: MeasuredConfiguration) -> MeanDifference:
    """Made queries share words with their document: they say nothing of search by words against search without."""
    if row.configuration.mode == reference.configuration.mode:
        return apart
    return dataclasses.replace(apart, verdict=UNLIKE)


def _choice(
    rows: Sequence[MeasuredConfiguration], matrix: Doubles, margin: float, place: int, task: Task
) -> Choice | None:
    """Among rows with known bytes, the others being no indexes; by made queries, among those of one mode."""
    mode = rows[place].configuration.mode
    numbers = [
        number
        for number, one in enumerate(rows)
        if one.bytes is not None and (task.synthetic is None or one.configuration.mode == mode)
    ]
    if len(numbers) < 2 or matrix.shape[1] < 2 or not matrix.any():  # one query decides nothing, nor do none that count
        return None
    costs, lines = [rows[number].bytes or 0.0 for number in numbers], [rows[n].configuration.line() for n in numbers]
    choice = cheapest(matrix[numbers], costs, lines, margin=margin)
    return Choice(
        None if choice.number is None else numbers[choice.number],
        margin,
        tuple(dataclasses.replace(one, number=numbers[one.number]) for one in choice.tested),
    )


def _place(names: Sequence[str], reference: str | None, rows: Sequence[Configuration], task: Task) -> int:
    """The first row whose name has all words of the reference; without one the first, of hybrid search by made
    queries.
    """
    if reference is None:
        hybrid = (place for place, one in enumerate(rows) if one.mode == HYBRID)
        return 0 if task.synthetic is None else next(hybrid, 0)
    wanted = words_of(reference)
    for place, name in enumerate(names):
        if all(word in words_of(name) for word in wanted):
            return place
    raise SpecError(
        f"no row is named '{reference}'", f"give words of one of: {'; '.join(names[:10])}", where="`reference`"
    )
