"""The picture of an evaluation: quality against bytes a chunk, a panel for each data set.

A line is a configuration at several widths, a point a width with its 95 % interval; colours are configurations, of a
palette that colour-blind readers can tell apart (Okabe and Ito 2008). The star is the cheapest that is not worse than
the best, the grey bars are what random projections of the same width reach. Needs the extra `plot`; the same report
gives the same bytes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ragidx.pipelines.evaluate.report import Report, Row, TaskReport
from ragidx.pipelines.pictures import check_plot, saved, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_CHANCE = "#bbbbbb"


def draw(report: Report, format: str) -> bytes:
    """The picture as a file of this format, svg or png.

    Raises:
        SpecError: another format.
        RagidxError: matplotlib is not installed.
    """
    check_plot(format)
    from matplotlib.figure import Figure

    spines = {"axes_spines_top": False, "axes_spines_right": False}
    with style(font_size=9, axes_grid=True, grid_color="#e4e4e4", grid_linewidth=0.6, **spines):
        figure = Figure(figsize=(7.2, 0.6 + 3.8 * len(report.tasks)), layout="constrained")
        panels = figure.subplots(len(report.tasks), 1, squeeze=False)[:, 0]
        for axes, task in zip(panels, report.tasks, strict=True):
            if all(row.bytes is None for row in task.rows):
                _draw_bars(axes, task)
            else:
                _draw_costs(axes, task)
            synthetic = ", synthetic queries" if task.synthetic else ""
            title = f"{task.name}: {len(task.query_ids):,} queries{synthetic}"
            axes.set_title(re.sub(r"[^\x20-\x7e]", "?", title).replace("$", ""), fontsize=10)
        return saved(figure, format)


def _draw_costs(axes: Axes, task: TaskReport) -> None:
    lines: dict[tuple[object, ...], list[Row]] = {}
    for row in task.rows:
        lines.setdefault(row.configuration.line(), []).append(row)
    for number, rows in enumerate(lines.values()):
        rows.sort(key=lambda row: row.bytes or 0)
        colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number // len(_COLOURS) % len(_MARKERS)]
        across, means = [row.bytes or 0 for row in rows], [row.interval.mean for row in rows]
        axes.plot(across, means, color=colour, marker=marker, markersize=5, linewidth=1.3, label=_label(rows), zorder=3)
        for row in rows:
            axes.vlines(row.bytes or 0, row.interval.low, row.interval.high, color=colour, alpha=0.5, linewidth=1)
            if row.chance is not None:
                axes.vlines(row.bytes or 0, *row.chance, color=_CHANCE, linewidth=6, zorder=1)
    if task.choice is not None and task.choice.number is not None:
        row = task.rows[task.choice.number]
        axes.plot(row.bytes or 0, row.interval.mean, marker="*", color="black", markersize=13, linestyle="none",
                  label="cheapest not worse", zorder=5)  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("bytes a chunk")
    axes.set_ylabel(task.measure)
    axes.legend(frameon=False, fontsize=7.5, loc="center left", bbox_to_anchor=(1, 0.5))


def _draw_bars(axes: Axes, task: TaskReport) -> None:
    """Rows whose cost is unknown, best on top."""
    rows = sorted(task.rows, key=lambda row: row.interval.mean)
    for place, row in enumerate(rows):
        axes.hlines(place, row.interval.low, row.interval.high, color=_COLOURS[0], alpha=0.5, linewidth=1.2)
        axes.plot(row.interval.mean, place, marker="o", color=_COLOURS[0], linestyle="none")
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_xlabel(task.measure)


def _label(rows: list[Row]) -> str:
    """The name without the width, which is the axis."""
    words = [word for word in rows[0].name.split() if not word.startswith(("dim=", "tau="))]
    return re.sub(r"[^\x20-\x7e]", "?", " ".join(words) or rows[0].name).replace("$", "")
