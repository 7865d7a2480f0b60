"""`ragidx compact`, `shrink` and `reindex`, and `info` of what they make: what is shown, and how they end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragidx.indexer.ann import index_types, tuning
from ragidx.indexer.store import Store
from ragidx.pipelines.cli import console, describe, progress
from ragidx.pipelines.vectors import RowWriter

from ..conftest import Done
from .conftest import INDEX, fields

pytestmark = pytest.mark.slow

Run = Callable[..., Done]


def recall_of(index: Path) -> float:
    """What was measured when its one segment was made."""
    (segment,) = Store.open(index).manifest.segments
    assert segment.ann is not None
    assert segment.ann.recall is not None
    return segment.ann.recall


@pytest.mark.usefixtures("given")
def test_compact_tells_what_it_rewrote_and_then_that_there_is_nothing_to_do(run: Run) -> None:
    first, second, everything = run("compact"), run("compact"), run("compact", "--all")
    size = sum(path.stat().st_size for path in INDEX.rglob("*") if path.is_file())

    assert fields(first) == {
        "index": "ragidx-index (generation 4)",
        "holds": "430 chunks in 1 segment",
        "vectors": "16 dimensions, flat (exact search)",
        "rewritten": "3 segments, 20 dead rows dropped",
    }
    assert first.out.splitlines()[-1] == (
        f"folder     {console.n_bytes(size)}: the last 3 generations are kept for `ragidx rollback`; "
        "each commit removes the oldest"
    )
    assert fields(second) == fields(everything)
    assert fields(second) == {
        "index": "ragidx-index (generation 4, unchanged)",
        "holds": "430 chunks in 1 segment",
        "vectors": "16 dimensions, flat (exact search)",
    }


@pytest.mark.usefixtures("given")
def test_compact_for_machines(run: Run) -> None:
    before = Store.open(INDEX).manifest

    done = run("compact", "--json")

    report = json.loads(done.out)
    sizes = report.pop("bytes_before"), report.pop("bytes_after")
    assert report.pop("folder_bytes") > sum(sizes)
    assert (done.status, done.err) == (0, "")
    assert sizes[0] > sizes[1] > sum(e.bytes for e in Store.open(INDEX).manifest.segments[0].files.values()) - 1
    assert before.generation == 3
    assert report == {
        "index": "ragidx-index",
        "generation": 4,
        "committed": True,
        "dim": 16,
        "index_type": "auto",
        "segment_types": ["flat"],
        "recall": None,
        "n_chunks": 430,
        "n_segments": 1,
        "n_rewritten": 3,
        "n_dropped": 20,
    }


@pytest.mark.usefixtures("mini_index")
def test_shrink_makes_the_index_narrower_and_says_so_once(run: Run) -> None:
    first, second = run("shrink", "--dim", "64"), run("shrink", "--dim", "64", "--json")

    assert fields(first) == {
        "index": "ragidx-index (generation 2)",
        "holds": "6 chunks in 1 segment",
        "vectors": "64 dimensions, flat (exact search)",
        "rewritten": "1 segment",
    }
    assert json.loads(second.out)["committed"] is False
    assert json.loads(second.out)["dim"] == 64
    shown = fields(run("info"))
    assert shown["vectors"] == "64 x float16, flat (exact search)"
    assert shown["filter"] == "truncation, 64 dimensions, the first coordinates"
    assert [line.split()[:1] + line.split()[4:5] for line in run("history").out.splitlines()[1:]] == [
        ["2", "64"],
        ["1", "255"],
    ]
    assert run("query", "who signed the lease?").out != ""
    assert run("rollback", "1").status == 0
    assert fields(run("info"))["vectors"] == "255 x float16, flat (exact search)"


@pytest.mark.usefixtures("given", "large")
def test_reindex_makes_another_index_and_info_tells_how_it_is_searched(run: Run) -> None:
    done = run("reindex", "graph", "--index-type", "hnsw", "--target-recall", "0.5", "--max-memory", "2GB")

    assert fields(done) == {
        "index": "graph (generation 1)",
        "holds": "430 chunks in 1 segment",
        "vectors": f"16 dimensions, hnsw: HNSW16, ann_recall@10 {recall_of(Path('graph')):.3f} measured",
        "rewritten": "3 segments, 20 dead rows dropped",
    }
    shown = fields(run("info", "--index", "graph"))
    recall = recall_of(Path("graph"))
    assert shown["vectors"] == f"16 x float16, hnsw: HNSW16, ann_recall@10 {recall:.3f} measured"
    assert shown["model"] == "none: precomputed vectors, made by mine"
    manifest = json.loads(run("info", "--index", "graph", "--json").out)
    assert manifest["index"] == {
        "index_type": "hnsw",
        "target_recall": 0.5,
        "max_memory": 2_000_000_000,
        "lexical": "auto",
    }
    (segment,) = manifest["segments"]
    assert segment["ann"]["factory"] == "HNSW16"
    assert segment["ann"]["recall"] >= 0.5
    assert Store.open(INDEX).manifest.generation == 3


def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows there are, an index is made of them."""
    for module in (index_types, tuning):
        monkeypatch.setattr(module, "MIN_ROWS", 1)


@pytest.mark.usefixtures("mini_index")
def test_a_build_names_the_index_that_it_made_and_its_recall(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    of_any_size(monkeypatch)

    told = fields(run("build", "corpus", "--index", "graph", "--index-type", "hnsw"))
    for_machines = json.loads(run("build", "corpus", "--index", "graph", "--json").out)  # which changes nothing

    recall = recall_of(Path("graph"))
    assert told["searched"] == f"hnsw: HNSW16, ann_recall@10 {recall:.3f} measured"
    searched = [for_machines[name] for name in ("index_type", "segment_types", "recall")]
    assert searched == ["hnsw", ["HNSW16"], recall]
    assert for_machines["committed"] is False
    assert "searched" not in fields(run("build", "corpus"))  # every vector is compared


@pytest.mark.usefixtures("given", "large")
def test_info_tells_apart_what_large_and_small_segments_have(run: Run) -> None:
    run("reindex", "codes", "--index-type", "SQ8")
    with RowWriter("codes", dim=16) as writer:
        writer.add_vectors(["one", "more"], np.eye(16)[:2])
        writer.commit()

    shown = fields(run("info", "--index", "codes"))

    assert re.fullmatch(r"16 x float16, SQ8: SQ8, flat, ann_recall@10 [01]\.\d{3} measured", shown["vectors"])
    compacted = fields(run("compact", "--index", "codes"))["vectors"]
    assert compacted == f"16 dimensions, SQ8, ann_recall@10 {recall_of(Path('codes')):.3f} measured"


@pytest.mark.usefixtures("mini_index")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("shrink",), "Error: Missing option '--dim'.\n"),
        (
            ("shrink", "--dim", "300"),
            "Error: --dim: dim 300 is not from 1 to 255, the dimensions stored in the index\n"
            "  hint: give at most 255; for more, build again with a larger --dim and --rebuild, "
            "or go back with `ragidx rollback` if it was shrunk\n",
        ),
        (("reindex",), "Error: Missing argument 'DIR'.\n"),
    ],
)
def test_a_mistake_ends_with_status_2_and_changes_nothing(command: tuple[str, ...], message: str, run: Run) -> None:
    before = Store.open(INDEX).manifest

    done = run(*command)

    assert (done.status, done.out) == (2, "")
    assert done.err.endswith(message)
    assert Store.open(INDEX).manifest == before
    assert not Path("new").exists()


@pytest.mark.usefixtures("given")
def test_progress_goes_to_stderr_as_json_lines_or_plain_ones(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_JSON_EVERY_S", 0)
    monkeypatch.setattr("ragidx.pipelines.cli.console.PLAIN_EVERY_S", 0)

    machine, plain = run("reindex", "one", "--json"), run("reindex", "two")

    assert [json.loads(line) for line in machine.err.splitlines()] == [
        {"progress": {"stage": "copying rows", "rows": 450, "done": done}} for done in (300, 400, 450)
    ]
    assert json.loads(machine.out)["index"] == "one"
    lines = plain.err.splitlines()
    assert [line.partition(", ETA")[0] for line in lines] == [
        "copying rows: 67 %, 300 of 450 rows",
        "copying rows: 89 %, 400 of 450 rows",
        "copying rows: 100 %, 450 of 450 rows",
    ]


def test_each_segment_starts_its_own_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Two segments in turn get an index of one kind, of other sizes: a bar never runs past its end or backwards."""
    monkeypatch.setattr(console, "is_terminal", lambda: True)
    shown: list[tuple[Any, Any]] = []

    with progress.ProgressLine(as_json=False) as line:
        for stage, rows, done in (("HNSW16", 300, 300), ("HNSW16", 500, 100), ("HNSW16", 500, 500), ("HNSW16", 500, 1)):
            line.on_stage(stage, rows, done)
            (task,) = line._bar.tasks
            shown.append((task.description, task.completed))

    assert shown == [("making the index HNSW16", share) for share in (1.0, 0.2, 1.0, 0.002)]
    assert capsys.readouterr().out == ""


def test_what_segments_have_is_told_in_short() -> None:
    assert describe.searched("flat", ["flat", "flat"], None) == "flat"
    assert describe.searched("auto", [], None) == "auto"
    assert describe.searched("auto", ["HNSW16", "flat", "HNSW16"], 0.9567) == (
        "auto: HNSW16 2x, flat, ann_recall@10 0.957 measured"
    )


def test_a_report_of_a_build_names_how_it_is_searched_where_not_all_vectors_are_compared() -> None:
    assert describe.searched_field("auto", ["flat"], None) == []
    assert describe.searched_field("auto", [], None) == []
    assert describe.searched_field("hnsw", ["HNSW16", "flat"], 0.96) == [
        ("searched", "hnsw: HNSW16, flat, ann_recall@10 0.960 measured")
    ]
