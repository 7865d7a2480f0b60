"""The line of progress, by a clock that stands still: what it counts, and when it says how long the rest will take."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from ragidx.pipelines.cli.progress import ProgressLine
from ragidx.pipelines.ingest.report import DERIVING, PLANNING, Progress

Tell = Callable[..., str]


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tell:
    """`tell(progress, at=seconds)`: the plain line of that moment; every call is of the same build."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("ragidx.pipelines.cli.progress.time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr("ragidx.pipelines.cli.console.PLAIN_EVERY_S", 0.0)
    line = ProgressLine(as_json=False)

    def told(progress: Progress, at: float) -> str:
        clock.now = 1000.0 + at
        line.callback(progress)
        return capsys.readouterr().err

    return told


def _encoded(n: int, of: int = 1000, seconds: float = 1.0) -> Progress:
    """A build that has cut all of its corpus, and encoded so many chunks."""
    return Progress(total_bytes=100, n_bytes=100, n_cut=of, n_chunks=n, n_encoded=n, n_tokens=10 * n, seconds=seconds)


def test_one_of_a_kind_is_told_in_the_singular(tell: Tell) -> None:
    assert tell(_encoded(1), at=1) == "indexing: 0 %, 1 chunk, 1 s a chunk, 10 tokens/s, ETA -\n"
    assert tell(Progress(stage=PLANNING, n_documents=1, n_cut=1), at=2) == "planning: 1 document, 1 chunk, ETA -\n"
    assert tell(Progress(stage="fitting filter pca", n_sample=1), at=3) == (
        "fitting filter pca: 0 %, 0 of 1 chunk, ETA -\n"
    )
    assert tell(Progress(stage=f"{DERIVING} SQ8", n_rows=1), at=4) == f"{DERIVING} SQ8: 0 %, 0 of 1 row, ETA -\n"


def test_a_slow_model_has_seconds_a_chunk_and_what_takes_its_time_is_named(tell: Tell) -> None:
    assert tell(_encoded(10, seconds=4.0), at=1) == "indexing: 1 %, 10 chunks, 0.4 s a chunk, 25 tokens/s, ETA -\n"
    assert tell(Progress(doing="loading the model"), at=2) == "loading the model: 0 chunks, ETA -\n"


def test_the_time_left_is_that_of_the_pace_since_the_first_chunk(tell: Tell) -> None:
    assert tell(_encoded(0), at=0).endswith("ETA -\n")
    assert tell(_encoded(1), at=60).endswith("ETA -\n")  # a minute for loading the model is not the pace of the rest

    assert tell(_encoded(101), at=70).endswith("101 chunks, 101 chunks/s, 1,010 tokens/s, ETA 0:01:30\n")  # 899 by 10/s
    assert tell(_encoded(501), at=80).endswith("ETA 0:00:20\n")  # 499 by 25/s
    assert tell(_encoded(1000), at=90).endswith("ETA 0:00:00\n")


def test_too_little_is_no_pace(tell: Tell) -> None:
    tell(_encoded(1), at=0)

    assert tell(_encoded(500), at=1.9).endswith("ETA -\n")  # too short
    assert tell(_encoded(20), at=3600).endswith("ETA -\n")  # 1.9 % since the first chunk
    assert tell(_encoded(22), at=3600).endswith("ETA 1 day, 22:34:17\n")


def test_what_was_known_before_the_first_chunk_is_no_part_of_the_pace(tell: Tell) -> None:
    known = _encoded(0)
    known.n_chunks = 500
    tell(known, at=1)
    first = _encoded(100)
    first.n_chunks = 600
    tell(first, at=10)
    then = _encoded(200)
    then.n_chunks = 700

    assert tell(then, at=20).endswith("ETA 0:00:30\n")


def test_a_build_that_encodes_nothing_tells_its_time_too(tell: Tell) -> None:
    tell(Progress(total_bytes=100, n_bytes=1), at=0)

    assert tell(Progress(total_bytes=100, n_bytes=51), at=10) == "indexing: 51 %, 0 chunks, ETA 0:00:10\n"


def test_a_stage_has_its_own_pace(tell: Tell) -> None:
    tell(_encoded(1), at=0)
    tell(_encoded(1000), at=100)
    making = Progress(stage=f"{DERIVING} SQ8", n_rows=1000, n_encoded=1000)
    tell(making, at=100)
    making.n_derived = 250

    assert tell(making, at=110) == f"{DERIVING} SQ8: 25 %, 250 of 1,000 rows, ETA 0:00:30\n"


def test_the_pace_of_a_fit_is_that_since_its_sample_was_drawn(tell: Tell) -> None:
    progress = Progress(stage="fitting filter pca", n_sample=4000)
    tell(progress, at=0)
    progress.n_encoded = 1
    tell(progress, at=100)
    progress.n_encoded = 1001

    assert tell(progress, at=120).endswith("ETA 0:01:00\n")


def test_a_plan_counts_documents_and_chunks(tell: Tell) -> None:
    tell(Progress(stage=PLANNING, total_bytes=100), at=0)
    progress = Progress(stage=PLANNING, total_bytes=100, n_bytes=50, n_documents=1200, n_cut=4000)

    assert tell(progress, at=20) == "planning: 50 %, 1,200 documents, 4,000 chunks, ETA 0:00:20\n"


def test_without_a_total_no_time_is_told(tell: Tell) -> None:
    tell(Progress(n_bytes=1, n_encoded=1), at=0)

    assert tell(Progress(n_bytes=2, n_encoded=2, n_chunks=2, seconds=2), at=60).endswith("ETA -\n")
