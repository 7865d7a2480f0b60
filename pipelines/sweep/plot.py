"""The picture of a sweep: quality on top, below it bytes a vector and the time of a query, against the dimension.

Colours are filters, markers index types; both come from a palette that colour-blind readers can tell apart (Okabe and
Ito 2008). Bars are 95 % intervals, hollow marks real losses against the full width, which is the dashed line. Storage
and time depend on the filter only by noise, so there a point is the median over the filters; widths beside each other
that are stored alike, such as 255 and 256, are one point. Without qrels the top panel has the overlap. Needs the extra
`plot`; the same report gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann.index_types import padded
from ragidx.pipelines.pictures import check_plot, saved, style
from ragidx.pipelines.sweep.report import SweepReport, SweepRow

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
_FULL = "#555555"
_APART = 1.12  # ticks nearer than this ratio would lie over each other
_LEAST_RANGE = 6.0  # of an axis, from end to end: always two of 1, 2, 5, 10, and two doublings
_NUDGE = 0.05  # of an octave, between lines of equal width
_SPREAD = 0.2  # of all lines of a width, at most


def draw(report: SweepReport, format: str) -> bytes:
    """The picture as a file of this format, svg or png.

    Raises:
        SpecError: another format, or a report without rows.
        RagidxError: matplotlib is not installed.
    """
    check_plot(format)
    if not report.rows:
        raise SpecError("a sweep without rows has no picture", "measure a width first")
    from matplotlib.figure import Figure

    spines = {"axes_spines_top": False, "axes_spines_right": False}
    with style(font_size=9, axes_grid=True, grid_color="#e4e4e4", grid_linewidth=0.6, **spines):
        figure = Figure(figsize=(7.2, 7.6), layout="constrained")
        quality, storage, latency = figure.subplots(3, 1, sharex=True, gridspec_kw={"height_ratios": [1.7, 0.9, 1.0]})
        _draw_quality(quality, report)
        sizes = [row.disk_bytes / report.n_chunks for row in report.rows]
        _draw_costs(storage, report, sizes, sizes, 2, "bytes a vector\non disk")
        medians, high = zip(*((row.single.p50_ms, row.single.p95_ms) for row in report.rows), strict=True)
        label = "ms a query, one thread\nmedian to 95th percentile"
        _draw_costs(latency, report, medians, high, 10, label)
        _scale_dimensions(latency, quality, report)
        figure.suptitle(_title(report), fontsize=10)
        figure.legend(handles=_legend(report), loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
        return saved(figure, format)


def _filters(report: SweepReport) -> list[str]:
    """Those that have a line: the reference has none of its own where others begin at it."""
    names = list(dict.fromkeys(row.filter for row in report.rows))
    return [name for name in names if name != "none"] or names


def _types(report: SweepReport) -> list[str]:
    return list(dict.fromkeys(_kind(row) for row in report.rows))


def _kind(row: SweepRow) -> str:
    """What the index is called in the picture: as it was asked for, flat where it became that."""
    return "flat" if row.index_type == "flat" else row.requested


def _line(report: SweepReport, name: str, kind: str) -> list[SweepRow]:
    """The rows of a filter and a type, narrow ones first; what truncation leaves whole is the reference."""
    wanted = {name, "none"} if name == "truncation" else {name}
    return sorted((r for r in report.rows if r.filter in wanted and _kind(r) == kind), key=lambda row: row.dim)


def _draw_quality(axes: Axes, report: SweepReport) -> None:
    from matplotlib.ticker import MaxNLocator

    judged = report.reference_ndcg is not None
    names, kinds = _filters(report), _types(report)
    lines = len(names) * len(kinds)
    nudge = min(_NUDGE, _SPREAD / lines) if judged else 0.0  # intervals beside each other; points may overlap
    for number, name in enumerate(names):
        for kind_number, kind in enumerate(kinds):
            rows = _line(report, name, kind)
            style = (_COLOURS[number % len(_COLOURS)], _MARKERS[kind_number % len(_MARKERS)], _LINES[kind_number % 4])
            shift = 2 ** (nudge * (number * len(kinds) + kind_number - (lines - 1) / 2))
            _draw_line(axes, rows, style, shift)
    if report.reference_ndcg is not None:
        axes.axhspan(report.reference_ndcg.low, report.reference_ndcg.high, color=_FULL, alpha=0.08, linewidth=0)
        axes.axhline(report.reference_ndcg.mean, color=_FULL, linewidth=0.9, dashes=(5, 3))
    else:
        low = min(0.98, *(row.overlap for row in report.rows)) - 0.03
        axes.set_ylim(low, 1 + 0.03 * (1 - low))  # room for the points at 1, which is the most that a share can be
        axes.set_yticks([tick for tick in MaxNLocator(6).tick_values(low, 1.0) if low <= tick <= 1 + 1e-9])
    axes.set_ylabel("nDCG@10" if judged else "overlap@10 with full width")


def _draw_line(axes: Axes, rows: Sequence[SweepRow], style: tuple[str, str, object], shift: float) -> None:
    colour, marker, dashes = style
    across = [row.dim * shift for row in rows]
    values = [row.overlap if row.ndcg is None else row.ndcg.mean for row in rows]
    axes.plot(across, values, color=colour, linewidth=1.4, linestyle=dashes, zorder=3)
    for x, value, row in zip(across, values, rows, strict=True):
        if row.ndcg is not None:
            axes.plot([x, x], [row.ndcg.low, row.ndcg.high], color=colour, linewidth=1.0, alpha=0.55, zorder=2)
        lost = row.against_full is not None and row.against_full.verdict == "worse"
        face = "white" if lost else colour
        axes.plot(
            [x], [value], marker=marker, color=colour, markerfacecolor=face, markersize=6, linestyle="none", zorder=4
        )


def _draw_costs(
    axes: Axes, report: SweepReport, values: Sequence[float], highest: Sequence[float], base: int, label: str
) -> None:
    """A value of each row, and a bar up to its highest; a line for each index type."""
    for number, kind in enumerate(_types(report)):
        dims, found = _by_dim(report, kind, values)
        axes.vlines(dims, found, _by_dim(report, kind, highest)[1], color="black", linewidth=0.9, alpha=0.5)
        axes.plot(dims, found, color="black", marker=_MARKERS[number % len(_MARKERS)], markersize=5, linewidth=1.2)
        axes.lines[-1].set_linestyle(_LINES[number % len(_LINES)])  # type: ignore[arg-type]  # of matplotlib's stubs
    axes.set_yscale("log", base=base)
    _plain(axes, base)
    axes.set_ylabel(label)


def _by_dim(report: SweepReport, kind: str, values: Sequence[float]) -> tuple[list[int], list[float]]:
    """For each width of a type the median of a value over the filters, and over widths that are stored alike."""
    found: dict[int, list[float]] = {}
    ticks = _ticks(report)
    for row, value in zip(report.rows, values, strict=True):
        if _kind(row) == kind:
            found.setdefault(_stored_as(row.dim, ticks), []).append(value)
    dims = sorted(found)
    return dims, [median(found[dim]) for dim in dims]


def _stored_as(dim: int, ticks: Sequence[int]) -> int:
    """The tick beside a width that takes the same bytes, and so the same time; else the width itself."""
    return next((tick for tick in ticks if dim < tick < dim * _APART and padded(tick) == padded(dim)), dim)


def _plain(axes: Axes, base: int) -> None:
    """Numbers as people write them: at doublings, or at 1, 2 and 5 of each decade; at least two of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    low, high = axes.get_ylim()
    wider = max(1.0, (_LEAST_RANGE * low / high) ** 0.5)
    axes.set_ylim(low / wider, high * wider)
    axes.yaxis.set_major_locator(LogLocator(base=base, subs=(1, 2, 5) if base == 10 else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _scale_dimensions(lowest: Axes, top: Axes, report: SweepReport) -> None:
    """Doublings of the width are equally far apart; ticks are at the measured widths."""
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

    ticks = _ticks(report)
    between = [row.dim for row in report.rows if row.dim not in ticks]
    lowest.set_xscale("log", base=2)
    lowest.set_xlim(min(row.dim for row in report.rows) / 1.25, ticks[0] * 1.25)
    lowest.xaxis.set_major_locator(FixedLocator(ticks))
    lowest.xaxis.set_minor_locator(FixedLocator(between))  # marks without a number, which would lie over others
    lowest.xaxis.set_minor_formatter(NullFormatter())
    lowest.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    lowest.set_xlabel("dimensions")
    above = top.secondary_xaxis("top")
    above.xaxis.set_major_locator(FixedLocator(ticks))
    above.xaxis.set_minor_locator(NullLocator())
    above.xaxis.set_major_formatter(lambda value, _: f"τ = {report.hidden / value:.3g}")
    above.tick_params(length=0, labelsize=8, colors=_FULL)
    above.spines["top"].set_visible(False)


def _ticks(report: SweepReport) -> list[int]:
    """Widths, falling, without those that are too near to a wider one."""
    dims = sorted({row.dim for row in report.rows}, reverse=True)
    ticks = [dims[0]]
    for dim in dims[1:]:
        if ticks[-1] / dim >= _APART:
            ticks.append(dim)
    return ticks


def _legend(report: SweepReport) -> list[Artist]:
    from matplotlib.lines import Line2D

    handles: list[Artist] = [
        Line2D([], [], color=_COLOURS[number % len(_COLOURS)], linewidth=2.2, label=name)
        for number, name in enumerate(_filters(report))
    ]
    kinds = _types(report)
    if len(kinds) > 1:
        handles += [
            Line2D([], [], color="black", marker=_MARKERS[n % len(_MARKERS)], linestyle=_LINES[n % 4], label=kind)  # type: ignore[arg-type]  # of matplotlib's stubs
            for n, kind in enumerate(kinds)
        ]
    if report.reference_ndcg is None:
        return handles
    hollow = Line2D([], [], color="black", marker="o", markerfacecolor="white", linestyle="none")
    hollow.set_label("measurably worse than full width")
    return [*handles, Line2D([], [], color=_FULL, linewidth=0.9, dashes=(5, 3), label="full width, exact"), hollow]


def _title(report: SweepReport) -> str:
    source = report.source.rstrip("/").rpartition("/")[2] or report.source
    plain = re.sub(r"[^\x20-\x7e]", "?", f"{source}" + (f", {report.model.rpartition('/')[2]}" if report.model else ""))
    return f"{plain.replace('$', '')}: {report.n_chunks:,} chunks, {report.n_queries:,} queries"
