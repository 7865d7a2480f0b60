"""The picture of a sweep: what is drawn in it, and that the same report gives the same bytes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ragidx.corpora.errors import SpecError
from ragidx.pipelines.evaluate.cells import Times
from ragidx.pipelines.evaluate.significance import difference, interval
from ragidx.pipelines.sweep.plot import _stored_as, draw
from ragidx.pipelines.sweep.report import SweepReport

from ...raising import message_of
from .conftest import made_report, made_row

pytestmark = pytest.mark.slow


def _report(
    *, judged: bool = True, types: tuple[str, ...] = ("flat",), source: str = "corpora/lease", rows: int = 4
) -> SweepReport:
    base = 0.5 + 0.1 * np.sin(np.arange(30))
    made = []
    for name, first in (("none", 0), ("embedfilter", 1), ("truncation", 1)):
        for step in range(first, rows if first else 1):
            for number, kind in enumerate(types):
                values = base - 0.05 * step
                made.append(
                    made_row(
                        256 >> step,
                        filter=name,
                        requested=kind,
                        index_type="HNSW16" if kind == "hnsw" else kind,
                        disk_bytes=1000 * (2 * (256 >> step) + 144 * number),
                        overlap=1 - 0.1 * step,
                        single=Times(0.1 * (step + 1) / (number + 1), 0.2, 0.3, 100),
                        ndcg=interval(values) if judged else None,
                        against_full=difference(values, base) if judged else None,
                    )
                )
    return made_report(made, base if judged else None, source)


def _words(svg: bytes) -> list[str]:
    """What is written in the picture: matplotlib keeps each text as a comment beside its outlines."""
    return [text.strip() for text in re.findall(r"<!--(.*?)-->", svg.decode())]


def _number(word: str) -> float:
    return float(word.replace(",", ""))


@pytest.mark.wheel
def test_the_picture_names_what_it_shows() -> None:
    words = _words(draw(_report(), "svg"))

    for text in ("lease, mini: 1,000 chunks, 30 queries", "nDCG@10", "dimensions", "embedfilter", "truncation"):
        assert text in words
    assert {"256", "128", "64", "32"} <= set(words)
    assert {"τ = 1", "τ = 2", "τ = 4", "τ = 8"} <= set(words)
    assert {"full width, exact", "measurably worse than full width"} <= set(words)
    assert "none" not in words  # the reference is the dashed line
    assert "hnsw" not in words


def test_several_index_types_have_a_legend_of_their_own() -> None:
    words = _words(draw(_report(types=("flat", "hnsw")), "svg"))

    assert {"flat", "hnsw"} <= set(words)


def test_without_qrels_the_overlap_is_drawn() -> None:
    words = _words(draw(_report(judged=False), "svg"))

    assert "overlap@10 with full width" in words
    assert not {"nDCG@10", "full width, exact", "measurably worse than full width"} & set(words)


def test_ticks_never_lie_over_each_other() -> None:
    report = _report()
    near = replace(report.rows[1], dim=255)
    crowded = replace(report, rows=(*report.rows, near))

    assert "255" not in _words(draw(crowded, "svg"))


def test_widths_that_are_stored_alike_are_one_point_below() -> None:
    assert [_stored_as(dim, [256, 128]) for dim in (256, 255, 249, 248, 240, 128)] == [256, 256, 256, 248, 240, 128]


def test_an_overlap_has_no_tick_above_1() -> None:
    numbers = {word for word in _words(draw(_report(judged=False, rows=1), "svg")) if re.fullmatch(r"[01]\.\d+", word)}

    assert "1.00" in numbers
    assert max(map(float, numbers)) == 1


@pytest.mark.parametrize("width", [1, 3, 96, 384])
def test_of_one_width_the_axis_of_bytes_has_two_doublings(width: int) -> None:
    one = _report(rows=1)
    row = replace(one.rows[0], dim=width, disk_bytes=2 * 1000 * width)
    alone = replace(one, rows=(row,))

    words = _words(draw(alone, "svg"))

    between = words[words.index("nDCG@10") + 1 : words.index("bytes a vector")]
    assert len(between) >= 2
    assert min(map(_number, between)) <= 2 * width <= max(map(_number, between))


@pytest.mark.parametrize("source", ["$x^2$", "Привет/мир", "-", "/"])
def test_any_source_can_stand_in_the_title(source: str) -> None:
    assert draw(_report(source=source), "png").startswith(b"\x89PNG")


def test_a_single_row_is_a_picture() -> None:
    assert draw(_report(rows=1), "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("format", ["svg", "png"])
def test_the_same_report_gives_the_same_bytes(format: str) -> None:
    assert draw(_report(), format) == draw(_report(), format)


def test_a_report_without_rows_has_no_picture() -> None:
    empty = _report(rows=1)
    bare = replace(empty, rows=())

    said = message_of(SpecError, lambda: draw(bare, "png"))

    assert said == "a sweep without rows has no picture\n  hint: measure a width first"
