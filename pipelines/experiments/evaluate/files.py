"""The files of an evaluation: results.csv and .json, per_query.parquet, runs, and with the extra `plot` a picture."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ragidx.corpora.errors import CorpusError, RagidxError, install
from ragidx.corpora.evalsets import run_lines
from ragidx.corpora.records import json_text
from ragidx.indexer import atomic
from ragidx.pipelines.base.pictures import FORMATS
from ragidx.pipelines.base.results import check_folder, write_result
from ragidx.pipelines.experiments.evaluate.report import EvaluationReport

NO_PICTURE = f"No picture: matplotlib is not installed ({install('plot')})."

_ELSEWHERE = "name another folder with `out`"


def check_out(out: Path) -> None:
    """Whether files can be written into this folder, before anything is measured; it is made if it is not there.

    Raises:
        RagidxError: it is a file, or cannot be made or written to.
    """
    if out.exists() and not out.is_dir():
        raise RagidxError("a file has this name", _ELSEWHERE, where=str(out))
    try:
        atomic.make_folder(out)
    except RagidxError as fault:  # its hint is about an index
        raise RagidxError(fault.message, _ELSEWHERE, where=fault.where) from fault
    check_folder(out, _ELSEWHERE)


def write_out(report: EvaluationReport, out: Path) -> EvaluationReport:
    """Write the files; each appears whole or not at all.

    Returns:
        The report, with notes where no picture could be drawn, or an id holds white space, which a run cannot carry.

    Raises:
        RagidxError: a file cannot be written.
    """
    earlier = _earlier_runs(out)
    data = {"results.csv": report.to_csv().encode(), "per_query.parquet": _by_query(report)}
    data["results.json"] = json_text(report.to_json(), indent=2).encode("ascii") + b"\n"
    for place, task in enumerate(report.tasks, start=1):
        folder = _run_folder(len(report.tasks), place, task.name)
        for number, run in enumerate(task.runs, start=1):
            try:
                if run:
                    lines = run_lines((query_id, hits.items()) for query_id, hits in run.items())
                    data[f"{folder}/{number}.run"] = "".join(lines).encode()
            except CorpusError as fault:
                note = f"No runs of {task.name} are written: {fault.message}."
                report = dataclasses.replace(report, notes=(*report.notes, note))
                break
    if importlib.util.find_spec("matplotlib") is None:
        report = dataclasses.replace(report, notes=(*report.notes, NO_PICTURE))
    else:
        from ragidx.pipelines.experiments.evaluate.plot import draw

        data |= {f"results.{format}": draw(report, format) for format in FORMATS}
    for name, content in data.items():
        atomic.make_folder((out / name).parent)
        write_result(out / name, content, _ELSEWHERE)
    for name in earlier - data.keys():  # of rows that are no more
        atomic.remove(out / name)
    return report


def _run_folder(n_tasks: int, place: int, name: str) -> str:
    return "runs" if n_tasks == 1 else f"runs/{place}-{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}"


def _earlier_runs(out: Path) -> set[str]:
    """Runs of the results that are in the folder, by its `results.json`: others are the user's."""
    try:
        tasks = json.loads((out / "results.json").read_bytes())["tasks"]
        return {
            f"{_run_folder(len(tasks), place, task['name'])}/{number}.run"
            for place, task in enumerate(tasks, start=1)
            for number in range(1, len(task["rows"]) + 1)
        }
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _by_query(report: EvaluationReport) -> bytes:
    """A row for each query of each row: task, number of the row from 1, query, and its measures."""
    tables = []
    for task in report.tasks:
        shape = (len(task.rows), len(task.query_ids))
        columns = {
            "task": [task.name] * (shape[0] * shape[1]),
            "row": np.repeat(np.arange(1, shape[0] + 1), shape[1]),
            "query": list(task.query_ids) * shape[0],
            **{name: values.ravel() for name, values in task.values.items()},
        }
        tables.append(pa.table(columns))
    file = io.BytesIO()
    pq.write_table(pa.concat_tables(tables, promote_options="default"), file)
    return file.getvalue()
