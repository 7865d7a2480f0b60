"""The picture of a spectrum: singular values, and below them each direction's share of Σ|Δ| for each group of tokens.

A point is a direction: dark where it carries the logits of the group (Δ < 0), light where it works against them. Shares
make groups comparable whose Δ have other scales. The line is the median over neighbours, the dashed one the share that
each direction would have if none were preferred; grey ranges are dropped by the filter. Needs the extra `plot`; the
same report gives the same bytes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.arrays import Doubles
from ragidx.pipelines.base.pictures import check_plot, saved, style
from ragidx.pipelines.experiments.lens.spectrum import SpectrumReport, TokenGroup

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_COLOURS = {"frequent": ("#b2182b", "#f0a58f"), "rare": ("#2166ac", "#9dcae1"), "random": ("#404040", "#b8b8b8")}
_LEFT_OUT = "#e9e4d8"
_LOWEST = 1e-5  # a smaller share is drawn on the lower edge
_POINTS = 1024  # directions from which on points are a bitmap, since an SVG holds each one by itself


def draw(report: SpectrumReport, format: str) -> bytes:
    """The picture as a file of this format.

    Raises:
        SpecError: the format is none of `FORMATS`.
        RagidxError: matplotlib is not installed.
    """
    check_plot(format)
    with style(font_size=8.5):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.6, 7.8), layout="constrained")
        ratios = [0.5] + [1.0] * len(report.groups)
        values, *rest = figure.subplots(len(ratios), 1, sharex=True, gridspec_kw={"height_ratios": ratios})
        _draw_values(values, report)
        shares = [np.abs(group.delta) / np.abs(group.delta).sum() for group in report.groups]
        lowest = max(_LOWEST, min(float(share[share > 0].min()) for share in shares))
        for axes, group, share in zip(rest, report.groups, shares, strict=True):
            _draw_group(axes, group, report, np.maximum(share, lowest))
            axes.set_ylim(lowest * 0.6, 3)
        values.set_xlim(-0.012 * report.values.size, 1.012 * report.values.size - 1)
        rest[-1].set_xlabel("direction, by falling singular value")
        figure.suptitle(_title(report), fontsize=9.5)
        figure.legend(handles=_legend(report), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
        data = saved(figure, format)
    return _shortened(data) if format == "svg" else data


def _shortened(svg: bytes) -> bytes:
    """Two decimals of a point are enough for a path; six make the file half as large again."""
    return re.sub(rb' d="[^"]*"', lambda path: re.sub(rb"(\.\d\d)\d+", rb"\1", path[0]), svg)


def _draw_values(axes: Axes, report: SpectrumReport) -> None:
    axes.plot(np.arange(report.values.size), report.values, color="black", linewidth=1.2)
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_ylabel("singular value")
    _shade(axes, report)


def _draw_group(axes: Axes, group: TokenGroup, report: SpectrumReport, shares: Doubles) -> None:
    dark, light = _COLOURS[group.name]
    for chosen, colour in ((group.delta >= 0, light), (group.delta < 0, dark)):
        _draw_points(axes, np.flatnonzero(chosen), shares, colour)
    axes.plot(np.arange(shares.size), median_around(shares), color=dark, linewidth=1.3, alpha=0.8)
    axes.axhline(1 / shares.size, color="black", linewidth=0.6, dashes=(4, 3))
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_ylabel("share of Σ|Δ|")
    axes.set_title(f"{len(group.ids)} {group.name} tokens: {_examples(group)}", loc="left", fontsize=8.5, color=dark)
    share = {part.name: f"{100 * part.share:.1f} %" for part in group.parts}
    axes.text(
        0.5,
        0.955,
        f"first 5 %: {share['first 5 %']}     middle half: {share['middle half']}     last 5 %: {share['last 5 %']}",
        transform=axes.transAxes,
        ha="center",
        va="top",
    )
    _shade(axes, report)


def _draw_points(axes: Axes, numbers: NDArray[np.int64], shares: Doubles, colour: str) -> None:
    """Points as very short lines with round ends: one path for all, so that the SVG stays small."""
    gap = np.full(numbers.size, np.nan)
    across = np.stack([numbers, numbers + 0.02, gap], axis=1).ravel()
    up = np.stack([shares[numbers], shares[numbers], gap], axis=1).ravel()
    axes.plot(
        across,
        up,
        color=colour,
        linewidth=2.8,
        solid_capstyle="round",
        snap=False,
        rasterized=bool(shares.size > _POINTS),
    )


def median_around(shares: Doubles) -> Doubles:
    """The median over a sixteenth of the spectrum around each direction, less of it at the ends.

    >>> median_around(np.array([4.0, 1.0, 2.0]))
    array([2.5, 2. , 1.5])
    """
    reach = max(1, shares.size // 32)
    return np.array([np.median(shares[max(0, i - reach) : i + reach + 1]) for i in range(shares.size)])


def _legend(report: SpectrumReport) -> list[Artist]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    dark, light = _COLOURS["random"]
    handles: list[Artist] = [
        Line2D([], [], color=dark, marker="o", markersize=3, linestyle="none", label="carries the logits (Δ < 0)"),
        Line2D([], [], color=light, marker="o", markersize=3, linestyle="none", label="works against them"),
        Line2D([], [], color=dark, linewidth=1.3, alpha=0.8, label="median of neighbours"),
        Line2D([], [], color="black", linewidth=0.6, dashes=(4, 3), label="none preferred"),
    ]
    return handles + ([] if report.kept is None else [Patch(color=_LEFT_OUT, label="dropped by the filter")])


def _shade(axes: Axes, report: SpectrumReport) -> None:
    """Grey over the directions that the filter drops."""
    if report.kept is None:
        return
    gone = np.setdiff1d(np.arange(report.values.size), np.array(report.kept))
    for run in np.split(gone, np.flatnonzero(np.diff(gone) > 1) + 1):
        if run.size:
            axes.axvspan(run[0] - 0.5, run[-1] + 0.5, color=_LEFT_OUT, linewidth=0, zorder=0)


def _title(report: SpectrumReport) -> str:
    how = ", the mean of log p taken away" if report.centred else ""
    return f"{report.model}: what each direction does to the logits of the average token{how}"


def _examples(group: TokenGroup) -> str:
    """A few of the tokens; only letters that the font of the picture surely has."""
    plain = [token for token in group.tokens if token.isascii() and "$" not in token]
    return " ".join(plain[:8]) + " …"
