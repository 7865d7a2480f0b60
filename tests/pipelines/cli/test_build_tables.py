"""The table of a build and the notes below it, from reports made by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragidx.indexer.filters.anisotropy import MeanCosines
from ragidx.indexer.specs import EncoderSpec, IndexSpec, Precomputed
from ragidx.indexer.store import Store
from ragidx.pipelines.cli import describe
from ragidx.pipelines.cli.build_notes import notes
from ragidx.pipelines.cli.build_report import tell_report
from ragidx.pipelines.ingest.report import BuildReport, OverMemory, QueryModelCheck
from ragidx.pipelines.vectors import RowWriter

ENCODER = EncoderSpec(model="tiny")
TEXTS = BuildReport(
    index="i",
    spec=IndexSpec(encoder=ENCODER),
    dim=16,
    generation=2,
    n_documents=6,
    n_chunks=6,
    seconds=2.0,
    index_bytes=2048,
    device="cpu",
    dtype="float32",
)
VECTORS = BuildReport(
    index="i", spec=IndexSpec(precomputed=Precomputed()), dim=8, committed=True, n_chunks=3, n_documents=3, seconds=2.0
)


def _told(capsys: pytest.CaptureFixture[str], report: BuildReport, **changes: Any) -> dict[str, str]:
    """Name and value of each line."""
    tell_report(dataclasses.replace(report, **changes), as_json=False)
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()}


@pytest.mark.parametrize(
    ("changes", "chunks", "time"),
    [
        (
            {"n_encoded": 6, "encode_seconds": 0.5},
            "6: 6 encoded, 0 reused",
            "2.0 s, 0.50 s of it encoding (12 chunks/s; ",
        ),
        ({"n_chunks_reused": 1, "n_chunks_unchanged": 5}, "6: 0 encoded, 1 reused, 5 unchanged", "2.0 s ("),
        ({"n_chunks_unchanged": 6}, "6: 6 unchanged", "2.0 s ("),
    ],
)
def test_chunks_are_told_by_how_they_came_about_and_a_rate_where_some_were_encoded(
    changes: dict[str, Any], chunks: str, time: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = _told(capsys, TEXTS, **changes)

    assert told["index"] == "i (generation 2, unchanged)"
    assert (told["chunks"], told["time"]) == (chunks, f"{time}cpu, float32)")


def test_how_alike_vectors_are_is_told_once_where_no_filter_changes_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "cosines" not in _told(capsys, TEXTS)
    assert _told(capsys, TEXTS, mean_cosines=MeanCosines(0.9981, -0.0042, 2))["cosines"] == (
        "0.998 before the filter, -0.004 after: the mean of all pairs of 2 chunks"
    )
    assert _told(capsys, TEXTS, mean_cosines=MeanCosines(0.5, 0.5, 1200))["cosines"] == (
        "0.500: the mean of all pairs of 1,200 chunks"
    )


def test_an_index_that_was_made_is_named_with_its_recall(capsys: pytest.CaptureFixture[str]) -> None:
    assert "searched" not in _told(capsys, TEXTS, index_type="auto", segment_types=["flat"])
    assert _told(capsys, TEXTS, index_type="hnsw", segment_types=["HNSW16"], recall=0.95)["searched"] == (
        "hnsw: HNSW16, ann_recall@10 0.950 measured"
    )


@pytest.mark.parametrize(
    ("check", "questions"),
    [
        (QueryModelCheck(ENCODER), "by tiny, unchanged"),
        (QueryModelCheck(ENCODER, 0), "by tiny, not checked: the rows have no texts"),
        (
            QueryModelCheck(ENCODER, 3, 1.0, 0.99),
            "by tiny: 3 texts encoded again, cosine 1.0000 (median), 0.9900 (least)",
        ),
    ],
)
def test_the_model_of_questions_is_told_with_what_was_checked(
    check: QueryModelCheck, questions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _told(capsys, VECTORS, queries=check)["questions"] == questions


def test_a_rate_is_told_of_many_rows_that_were_all_taken_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert _told(capsys, VECTORS, n_added=10_000)["time"] == "2.0 s, 5,000 vectors/s"
    assert _told(capsys, VECTORS, n_added=9_999)["time"] == "2.0 s"
    assert _told(capsys, VECTORS, n_added=10_000, n_unchanged=1, encode_seconds=0.5)["time"] == (
        "1.5 s (and 0.5 s for the model)"
    )


# notes


def test_vectors_that_are_cut_are_told() -> None:
    assert [*notes(dataclasses.replace(VECTORS, input_dim=32))] == [
        "Cut: the vectors of the file have 32 dimensions, the index keeps the first 8."
    ]


@pytest.mark.parametrize(
    ("types", "remedy"), [(["flat"], ""), (["flat"] * 2, "; `ragidx compact` merges the 2 segments")]
)
def test_small_segments_that_take_more_memory_than_was_allowed_are_told(types: list[str], remedy: str) -> None:
    report = dataclasses.replace(VECTORS, segment_types=types, over_memory=OverMemory(1 << 20, 900))

    assert [*notes(report)] == [
        "Over --max-memory: a search reads 1.0 MiB of vectors, more than 900 B; segments of fewer than 10,000 vectors "
        f"are searched exactly{remedy}."
    ]


def test_a_report_names_at_most_twelve_reasons_and_one_without_change_no_files() -> None:
    places = {f"reason {n}": [f"{n}.x", f"{n}.y", f"{n}.z"] for n in range(15)}
    skips = {"skipped": dict.fromkeys(places, 4), "skipped_places": places}

    first = [*notes(dataclasses.replace(TEXTS, committed=True, **skips))]
    again = [*notes(dataclasses.replace(TEXTS, committed=False, **skips))]

    assert first[:5] == ["Skipped: 4 x reason 0", "    0.x", "    0.y", "    0.z", "    and 1 more"]
    assert again == [line for line in first if not line.startswith(" ")]
    assert again[-1] == "Skipped for 3 more reasons: --json lists all of them."
    assert len(again) == 13


# the largest file


@pytest.mark.parametrize(
    ("of_largest", "of_others", "told"),
    [
        (200, 800, [("largest", "all.jsonl, 200 chunks")]),
        (200, 799, []),  # of fewer than 1,000 chunks nobody asks
        (1000, 0, []),
        (100, 900, []),  # not more than a tenth
    ],
)
def test_the_largest_file_is_named_where_that_says_something(
    of_largest: int, of_others: int, told: list[tuple[str, str]], tmp_path: Path
) -> None:
    ids = [f"all.jsonl#{n}" for n in range(of_largest)] + [f"{n}.txt" for n in range(of_others)]
    with RowWriter(tmp_path, dim=2) as writer:
        writer.add_vectors(ids, np.ones((len(ids), 2)))
        writer.commit()

    assert describe.largest(Store.open(tmp_path)) == told
