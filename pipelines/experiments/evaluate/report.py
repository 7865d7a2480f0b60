"""What an evaluation gives: one kind of row for every configuration, measured on every data set.

`EvaluationReport` -> tasks -> rows -> JSON, CSV. A row says what was measured (`Configuration`), its cost (bytes a
chunk) and how good it is, with an interval; its difference from the reference has a p that is corrected for the number
of rows.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragidx.corpora.evalsets import Run
from ragidx.indexer.arrays import Doubles
from ragidx.pipelines.experiments.evaluate.cells import Costs
from ragidx.pipelines.experiments.evaluate.choice import Choice
from ragidx.pipelines.experiments.evaluate.significance import Interval, MeanDifference


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The choices of a user; None where one does not apply, as a model to lexical search."""

    model: str | None = None
    method: str | None = None
    template: str | None = None
    pooling: str | None = None
    attention: str | None = None
    layer: int | None = None
    copies: int | None = None
    max_length: int | None = None
    compute_matched: bool | None = None
    instruction: str | None = None
    filter: str | None = None
    center: bool | None = None
    tau: float | None = None
    offset: int | None = None
    dim: int | None = None
    index_type: str | None = None
    mode: str | None = None
    fusion: str | None = None
    weight: float | None = None
    questions: str | None = None
    run: str | None = None

    def line(self, *along: str) -> tuple[object, ...]:
        """What configurations have in common that differ in some fields alone, by default in width."""
        return tuple(getattr(self, name) for name in COLUMNS if name not in (along or WIDTH))


_FOLLOWING = (
    *("tau", "template", "attention", "pooling", "layer", "copies", "max_length", "compute_matched", "offset"),
    *("instruction", "method"),
)
WIDTH = ("dim", "tau")
COLUMNS = tuple(field.name for field in dataclasses.fields(Configuration))
_COSTS = [
    *("factory", "effort_beam", "effort_lists", "effort_factor", "disk_bytes", "build_seconds"),
    *(f"{name}_{part}" for name in ("single", "batch") for part in ("p50_ms", "p95_ms", "p99_ms", "calls")),
    *("queries_per_s", "threads"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRow:
    """One configuration on one data set.

    Attributes:
        configuration: the configuration that was measured.
        name: a name that tells the row from the others.
        bytes: size of a chunk in bytes: the stored vector, and the words where they are searched; None: unknown.
        tokens: tokens that the model reads of a text, on average, with the template and all copies; None: unknown.
        means: the mean of each measure, by its name.
        interval: mean and interval of the task's `measure`.
        against: the difference from the reference; None: the row is the reference, or nothing is judged.
        chance: lowest and highest mean of that measure with random projections of the same width, searched exactly, for
            a row of EmbedFilter; None: not measured.
        costs: time and size on disk; None: not measured.
    """

    configuration: Configuration
    name: str
    bytes: float | None
    means: Mapping[str, float]
    interval: Interval
    against: MeanDifference | None
    tokens: float | None = None
    chance: tuple[float, float] | None = None
    costs: Costs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """All configurations on one data set.

    Attributes:
        name: name of the data set.
        kind: corpus, index, pairs or run.
        synthetic: what the queries were made of, sentence or title; None: they were given.
        n_documents: number of documents that are searched; of pairs, the number of pairs.
        n_chunks: number of chunks that are searched.
        query_ids: ids of the queries that are measured.
        measure: the measure that intervals and tests are of.
        reference: the place of the row that the others are compared with.
        rows: the rows, in the order of the grid.
        values: values of each measure, (rows, queries).
        choice: the cheapest row that is not worse than the best; None: there is one row, or nothing is judged.
        pairs: each row against each before it, (place, place before) -> difference; empty where not asked for.
        runs: the answers of each row; empty where they were not asked for.
        notes: notes on what was left out, and what cannot be concluded.
    """

    name: str
    kind: str
    synthetic: str | None
    n_documents: int
    n_chunks: int
    query_ids: tuple[str, ...]
    measure: str
    reference: int
    rows: tuple[EvaluationRow, ...]
    values: Mapping[str, Doubles]
    choice: Choice | None
    pairs: Mapping[tuple[int, int], MeanDifference] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def reads_differently(self) -> bool:
        """Whether rows differ in how many tokens the model reads of a text."""
        return len({row.tokens for row in self.rows} - {None}) > 1


@dataclass(frozen=True, slots=True)
class Overall:
    """One row over all data sets, against the reference of the first.

    Attributes:
        name: name of the row, on the first data set.
        mean: mean of the differences from the reference.
        p: the p of Wilcoxon's signed-rank test over the data sets, corrected for the number of rows.
    """

    name: str
    mean: float
    p: float


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The report of an evaluation.

    Attributes:
        tasks: a report for each data set.
        overall: rows that all data sets have, where there are five data sets or more.
        notes: notes on all data sets.
    """

    tasks: tuple[TaskReport, ...]
    overall: tuple[Overall, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as JSON, without the values by query and the runs."""
        tasks = []
        for task in self.tasks:
            left = {"rows", "values", "runs", "query_ids", "choice", "pairs"}
            data = {one.name: getattr(task, one.name) for one in dataclasses.fields(task) if one.name not in left}
            data["n_queries"] = len(task.query_ids)
            data["rows"] = [dataclasses.asdict(row) for row in task.rows]
            data["choice"] = None if task.choice is None else dataclasses.asdict(task.choice)
            data["pairs"] = [
                {"row": task.rows[row].name, "other": task.rows[other].name, **dataclasses.asdict(apart)}
                for (row, other), apart in task.pairs.items()
            ]
            tasks.append(data)
        overall = [dataclasses.asdict(one) for one in self.overall]
        return {"tasks": tasks, "overall": overall, "notes": list(self.notes)}

    def to_csv(self) -> str:
        """The report as CSV: a line for each row of each data set."""
        measures = list(dict.fromkeys(name for task in self.tasks for name in task.values))
        columns = ["task", "row", *COLUMNS, "bytes", "tokens", *measures, "measure", "low", "high"]
        columns += ["synthetic", "difference", "p", "detectable", "verdict", "chance_low", "chance_high"]
        if any(row.costs is not None for task in self.tasks for row in task.rows):
            columns += _COSTS
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
        writer.writeheader()
        for task in self.tasks:
            for number, row in enumerate(task.rows, start=1):
                writer.writerow({"row": number, **_cells(task, row)})
        return text.getvalue()


def _cells(task: TaskReport, row: EvaluationRow) -> dict[str, object]:
    cells: dict[str, object] = {
        "task": task.name,
        "synthetic": task.synthetic or "",
        "bytes": row.bytes,
        "tokens": row.tokens,
        "measure": task.measure,
    }
    cells |= {name: value for name in COLUMNS if (value := getattr(row.configuration, name)) is not None}
    cells |= {name: f"{mean:.6f}" for name, mean in row.means.items()}
    cells |= {"low": f"{row.interval.low:.6f}", "high": f"{row.interval.high:.6f}"}
    if row.against is not None:
        apart = row.against
        cells |= {"difference": f"{apart.mean:.6f}", "p": f"{apart.p:.6g}", "verdict": apart.verdict}
        cells["detectable"] = f"{apart.detectable:.6f}"
    if row.chance is not None:
        cells |= {"chance_low": f"{row.chance[0]:.6f}", "chance_high": f"{row.chance[1]:.6f}"}
    if row.costs is not None:
        for name, value in dataclasses.asdict(row.costs).items():
            inner = {f"{name}_{part}": one for part, one in value.items()} if isinstance(value, dict) else {name: value}
            cells |= {column: one for column, one in inner.items() if column in _COSTS}
    return cells


def names_of(configurations: Sequence[Configuration]) -> list[str]:
    """Short names: the values that differ, joined.

    >>> names_of([Configuration(mode="dense", dim=64), Configuration(mode="hybrid", dim=64)])
    ['dense', 'hybrid']
    """
    said = {one.instruction for one in configurations if one.instruction}
    if len(said) == 1:  # it is there, or not
        configurations = [
            dataclasses.replace(one, instruction=one.instruction and "instruction") for one in configurations
        ]
    names = _names(configurations, configurations, {None})
    if len(set(names)) < len(set(configurations)):  # one has a value where another has none
        names = _names(configurations, [one for one in configurations if one.model is not None], set())
    return names


def words_of(name: str) -> list[str]:
    """The words of a row's name, of which some find it.

    >>> words_of("dense 'Write a text: {text}' dim=64")
    ['dense', 'Write', 'a', 'text:', '{text}', 'dim=64']
    """
    return re.sub(r"\\n|['\"]", " ", name).split()


def _names(configurations: Sequence[Configuration], compared: Sequence[Configuration], left: set[None]) -> list[str]:
    """Of what differs among those that are compared, values that are left out not counted."""
    varying = [name for name in COLUMNS if len({getattr(one, name) for one in compared} - left) > 1]
    for name in _FOLLOWING:  # often follow from the others, such as the pooling from the model
        fewer = [other for other in varying if other != name]
        if name in varying and _n_different(configurations, fewer) == _n_different(configurations, varying):
            varying = fewer
    return [one.run or _named(one, varying) or _named(one, ["model", "mode"]) for one in configurations]


def _named(one: Configuration, names: Sequence[str]) -> str:
    return " ".join(shown(name, value) for name in names if (value := getattr(one, name)) is not None)


def _n_different(configurations: Sequence[Configuration], names: Sequence[str]) -> int:
    return len({tuple(getattr(one, name) for name in names) for one in configurations})


def shown(name: str, value: object) -> str:
    """A field of a configuration, in the name of a row."""
    if name == "model" and str(value).startswith("/"):
        return "/".join(str(value).split("/")[-2:])
    if isinstance(value, bool) or (name == "instruction" and value == ""):
        return ("" if value else "no-") + name.replace("_", "-")
    if isinstance(value, int | float):
        return f"{name}={value:g}"
    return repr(value) if name in ("template", "instruction") and " " in str(value) else str(value)
