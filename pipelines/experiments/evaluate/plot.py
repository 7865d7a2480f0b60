"""The picture of an evaluation: quality against bytes a chunk, a panel for each data set, and time where it is known;
where rows read more tokens or fewer, quality against these, too.

A line is a configuration at several widths, or that reads several lengths or copies; a point is a row with its 95 %
interval; colours are configurations, of a palette that colour-blind readers can tell apart (Okabe and Ito 2008). The
star is the cheapest that is not worse than the best, the grey bars are what random projections of the same width reach,
the dashed line is exact search at full width. Needs the extra `plot`; the same report gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragidx.pipelines.base.pictures import check_plot, saved, style
from ragidx.pipelines.experiments.evaluate.report import WIDTH, EvaluationReport, EvaluationRow, TaskReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_CHANCE = "#bbbbbb"
_APART = 1.15  # ticks nearer than this ratio would lie over each other


@dataclass(frozen=True)
class _Cost:
    """What quality is drawn against, of rows that have it; rows that differ in the fields `along` alone are a line."""

    name: str
    of: Callable[[EvaluationRow], float | None]
    along: tuple[str, ...]


_BYTES = _Cost("bytes a chunk", lambda row: row.bytes, WIDTH)


def _tokens(task: TaskReport) -> _Cost:
    lengths = {row.configuration.max_length for row in task.rows if row.tokens is not None}
    return _Cost("tokens read of a text", lambda row: row.tokens, ("max_length" if len(lengths) > 1 else "copies",))


def draw(report: EvaluationReport, format: str) -> bytes:
    """The picture as a file of this format, svg or png.

    Raises:
        SpecError: another format.
        RagidxError: matplotlib is not installed.
    """
    check_plot(format)
    spines = {"axes_spines_top": False, "axes_spines_right": False}
    with style(font_size=9, axes_grid=True, grid_color="#e4e4e4", grid_linewidth=0.6, **spines):
        from matplotlib.figure import Figure

        drawn = []
        for task in report.tasks:
            timed = any(row.costs is not None for row in task.rows)
            drawn += [(task, _draw_quality, 3.2), (task, _draw_times, 1.7)] if timed else [(task, _draw_quality, 3.8)]
            drawn += [(task, _draw_tokens, 3.8)] * task.reads_differently
        heights = [height for _, _, height in drawn]
        figure = Figure(figsize=(7.2, 0.6 + sum(heights)), layout="constrained")
        panels = figure.subplots(len(drawn), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
        for axes, (task, draw_panel, _) in zip(panels, drawn, strict=True):
            draw_panel(axes, task)
        return saved(figure, format)


def _draw_quality(axes: Axes, task: TaskReport) -> None:
    if all(row.bytes is None for row in task.rows):
        _draw_bars(axes, task)
    else:
        _draw_costs(axes, task, _BYTES)
    _set_title(axes, task)


def _draw_tokens(axes: Axes, task: TaskReport) -> None:
    _draw_costs(axes, task, _tokens(task))
    _set_title(axes, task)


def _set_title(axes: Axes, task: TaskReport) -> None:
    synthetic = ", synthetic queries" if task.synthetic else ""
    axes.set_title(_plain(f"{task.name}: {len(task.query_ids):,} queries{synthetic}"), fontsize=10)


def _lines(task: TaskReport, cost: _Cost) -> list[tuple[list[EvaluationRow], str, str]]:
    """Rows that differ in their cost alone, with a colour and a marker."""
    lines: dict[tuple[object, ...], list[EvaluationRow]] = {}
    for row in task.rows:
        if cost.of(row) is not None:
            lines.setdefault(row.configuration.line(*cost.along), []).append(row)
    return [
        (
            sorted(rows, key=lambda row: cost.of(row) or 0),
            _COLOURS[number % len(_COLOURS)],
            _MARKERS[number // len(_COLOURS) % len(_MARKERS)],
        )
        for number, rows in enumerate(lines.values())
    ]


def _draw_costs(axes: Axes, task: TaskReport, cost: _Cost) -> None:
    for rows, colour, marker in _lines(task, cost):
        across, means = [cost.of(row) or 0 for row in rows], [row.interval.mean for row in rows]
        label = _label(rows, cost)
        axes.plot(across, means, color=colour, marker=marker, markersize=5, linewidth=1.3, label=label, zorder=3)
        for row in rows:
            axes.vlines(cost.of(row) or 0, row.interval.low, row.interval.high, color=colour, alpha=0.5, linewidth=1)
            if row.chance is not None:
                axes.vlines(cost.of(row) or 0, *row.chance, color=_CHANCE, linewidth=6, zorder=1)
    for row in task.rows:
        if cost.of(row) is None:
            axes.axhspan(row.interval.low, row.interval.high, color="black", alpha=0.05, linewidth=0)
            axes.axhline(row.interval.mean, color="black", linewidth=0.9, dashes=(5, 3), label=_label([row], cost))
    if cost is _BYTES and task.choice is not None and task.choice.number is not None:
        row = task.rows[task.choice.number]
        axes.plot(row.bytes or 0, row.interval.mean, marker="*", color="black", markersize=13, linestyle="none",
                  label="cheapest not worse", zorder=5)  # fmt: skip
    _scale(axes, task, cost)
    axes.set_ylabel(task.measure)
    axes.legend(frameon=False, fontsize=7.5, loc="center left", bbox_to_anchor=(1, 0.5))


def _draw_times(axes: Axes, task: TaskReport) -> None:
    """Medians, and bars up to the 95th percentile."""
    for rows, colour, marker in _lines(task, _BYTES):
        timed = [(row.bytes or 0, row.costs.single) for row in rows if row.costs is not None]
        across, medians = [bytes_ for bytes_, _ in timed], [times.p50_ms for _, times in timed]
        axes.plot(across, medians, color=colour, marker=marker, markersize=5, linewidth=1.3, zorder=3)
        axes.vlines(across, medians, [times.p95_ms for _, times in timed], color=colour, alpha=0.5, linewidth=1)
    _scale(axes, task, _BYTES)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:,.10g}" if f"{value:e}"[0] in "25" else "")
    axes.set_ylabel("ms a query, one thread\nmedian to 95th percentile")


def _scale(axes: Axes, task: TaskReport, cost: _Cost) -> None:
    """Doublings are equally far apart; numbers are at the rows, without those that would lie over others."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_xscale("log", base=2)
    ticks: list[float] = []
    for value in sorted({found for row in task.rows if (found := cost.of(row))}):
        if not ticks or value / ticks[-1] >= _APART:
            ticks.append(value)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel(cost.name)


def _draw_bars(axes: Axes, task: TaskReport) -> None:
    """Rows whose cost is unknown, best on top."""
    rows = sorted(task.rows, key=lambda row: row.interval.mean)
    for place, row in enumerate(rows):
        axes.hlines(place, row.interval.low, row.interval.high, color=_COLOURS[0], alpha=0.5, linewidth=1.2)
        axes.plot(row.interval.mean, place, marker="o", color=_COLOURS[0], linestyle="none")
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_xlabel(task.measure)


def _label(rows: list[EvaluationRow], cost: _Cost) -> str:
    """The name without what the axis is of."""
    along = tuple(f"{name}=" for name in cost.along)
    words = [word for word in rows[0].name.split() if not word.startswith(along)]
    return _plain(" ".join(words) or rows[0].name)


def _plain(text: str) -> str:
    """What the font has, and no mathematics."""
    return re.sub(r"[^\x20-\x7e]", "?", text).replace("$", "")
