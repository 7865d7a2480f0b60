"""The files of a sweep: sweep.json, sweep.csv, and with the extra `plot` sweep.svg and sweep.png."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

from ragidx.corpora.errors import RagidxError, install
from ragidx.indexer import atomic
from ragidx.pipelines.results import check_folder, write_result
from ragidx.pipelines.sweep.report import SweepReport

PICTURES = ("svg", "png")

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


def write_out(report: SweepReport, out: Path) -> SweepReport:
    """Write the files of a sweep; each appears whole or not at all.

    Returns:
        The report, with a note where no picture could be drawn.

    Raises:
        RagidxError: a file cannot be written.
    """
    drawn = importlib.util.find_spec("matplotlib") is not None
    if not drawn:
        report = dataclasses.replace(report, notes=(*report.notes, NO_PICTURE))
    data = {
        "sweep.json": json.dumps(report.to_json(), indent=2, allow_nan=False).encode("ascii") + b"\n",
        "sweep.csv": report.to_csv().encode(),
    }
    if drawn:
        from ragidx.pipelines.sweep.plot import draw

        data |= {f"sweep.{format}": draw(report, format) for format in PICTURES}
    for name, content in data.items():
        write_result(out / name, content, _ELSEWHERE)
    return report
