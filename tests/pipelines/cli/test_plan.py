"""`ragidx build --plan`: its fields, tables and advice, and the exit status."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragidx.indexer.specs import EncoderSpec, FilterSpec
from ragidx.pipelines.cli import plan_tables
from ragidx.pipelines.cli.plan_tables import advice, duration
from ragidx.pipelines.ingest.report import PLANNING
from ragidx.pipelines.plan.footprint import IndexFootprint
from ragidx.pipelines.plan.plan import Plan
from ragidx.pipelines.plan.speed import Speed

from ..conftest import Done

pytestmark = pytest.mark.slow

Run = Callable[..., Done]

TINY = ("--model", "tiny", "--method", "classical", "--tau", "2", "--device", "cpu", "--dtype", "float32")
SIZE = r"\d[\d.]* (?:B|KiB|MiB|GiB|TiB)"
TIME = r"[\d.]+ (?:s|min|h)(?: \d+ (?:s|min))?"


@pytest.mark.usefixtures("small_corpus", "model")
def test_a_plan_tells_what_a_build_would_do_and_does_nothing(run: Run) -> None:
    done = run("build", "corpus", "--plan", "--index-type", "flat", *TINY)

    lines = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    assert re.fullmatch(r"corpus     corpus: 4 files, \d+ B, read whole", lines[0])
    assert lines[1:6] == [
        "model      tiny: classical, mean pooling, causal attention, last layer",
        "filter     EmbedFilter, 16 dimensions, tau 2, the middle of the spectrum",
        "documents  6: 6 new, 0 changed, 0 unchanged",
        "chunks     6: 6 to encode, 0 reused",
        "tokens     264, 44 a chunk",
    ]
    for line, shape in zip(
        lines[6:],
        [
            r"speed      [\d,]+ tokens/s \(cpu, float32\), measured on 6 chunks",
            rf"time       {TIME}, {TIME} of it encoding(, {TIME} loading the model)?, {TIME} the lexical part",
            rf"disk       {SIZE}: vectors 192 B, texts {SIZE}, lexical {SIZE}, the filter {SIZE}; 312 B more until it "
            rf"is committed, {SIZE} free",
            rf"memory     {SIZE} or so, the model included; a search reads 192 B of vectors",
            "Nothing was built.",
        ],
        strict=True,
    ):
        assert re.fullmatch(shape, line), line
    assert not Path("ragidx-index").exists()


@pytest.mark.usefixtures("small_corpus", "model")
def test_a_plan_for_machines_is_one_json_object(run: Run) -> None:
    done = run("build", "corpus", "--plan", "--json", *TINY)

    found = json.loads(done.out)
    assert done.status == 0
    assert list(found) == [field.name for field in dataclasses.fields(Plan)]
    assert found["n_chunks"] == 6
    assert found["speed"]["device"] == "cpu"
    assert found["footprint"]["search_bytes"] == 192  # six chunks, 16 dimensions of 2 bytes
    steps = [json.loads(line)["progress"] for line in done.err.splitlines()]
    assert {step["stage"] for step in steps} == {PLANNING}
    assert (steps[-1]["last"], steps[-1]["n_documents"], steps[-1]["n_cut"]) == (True, 6, 6)


@pytest.mark.usefixtures("index")
def test_a_plan_of_an_index_that_is_up_to_date(run: Run) -> None:
    done = run("build", "corpus", "--plan")

    lines = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    assert "documents  6: 0 new, 0 changed, 6 unchanged" in lines
    assert "chunks     0: 0 to encode, 0 reused" in lines
    assert "speed      nothing to encode" in lines


@pytest.mark.usefixtures("small_corpus", "model")
def test_a_plan_names_what_would_be_cut_and_left_out(run: Run) -> None:
    Path("corpus/long.txt").write_text("The river reaches the sea. " * 60)
    Path("corpus/empty.txt").write_text(" \n")
    Path("corpus/broken.jsonl").write_text("{\n")

    done = run("build", "corpus", "--plan", "--chunk-size", "none", *TINY)

    assert "cut        1 longer than the model reads" in done.out.splitlines()
    assert re.search(r"^skipped    1 x ", done.out, re.MULTILINE)
    assert done.out.splitlines()[-1] == (
        "To lose no text: --chunk-size cuts documents into parts that the model reads whole."
    )


def test_a_plan_of_nothing_is_the_builds_error(run: Run, folder: Path) -> None:
    (folder / "empty").mkdir()

    assert run("build", "empty", "--plan") == run("build", "empty")


# by hand

FOOTPRINT = IndexFootprint(
    n_chunks=6,
    index_bytes=10 << 10,
    vector_bytes=1 << 10,
    ann_bytes=3584,
    text_bytes=2 << 10,
    lexical_bytes=512,
    filter_bytes=3 << 10,
    journal_bytes=312,
    free_bytes=2 << 30,
    search_bytes=192,
    build_bytes=1 << 30,
    limit_bytes=2 << 30,
    max_memory=None,
)
PLAN = Plan(
    corpus="corpus",
    index="index",
    model="tiny",
    method="echo",
    encoder=EncoderSpec(model="tiny", method="echo"),
    filter=FilterSpec(tau=2),
    dim=16,
    index_type="auto",
    index_recipe="flat",
    target_recall=0.95,
    n_files=4,
    corpus_bytes=600,
    share_read=1.0,
    n_documents=6,
    n_added=6,
    n_changed=0,
    n_unchanged=0,
    n_removed=0,
    n_chunks=6,
    n_to_encode=6,
    n_tokens=264,
    n_truncated=0,
    n_empty=0,
    skipped={},
    speed=Speed(1000.0, 6, "cpu", "float32", tuned=False),
    load_seconds=0.3,
    encode_seconds=61.0,
    lexical_seconds=0.0,
    seconds=70.0,
    footprint=FOOTPRINT,
)


def _printed(capsys: pytest.CaptureFixture[str], footprint: IndexFootprint = FOOTPRINT, **changes: Any) -> list[str]:
    plan_tables.print_plan(dataclasses.replace(PLAN, footprint=footprint, **changes))
    return capsys.readouterr().out.splitlines()


def _advice(**changes: Any) -> list[str]:
    return advice(dataclasses.replace(PLAN, footprint=dataclasses.replace(FOOTPRINT, **changes)))


def test_a_plan_that_nothing_stands_in_the_way_of_has_no_advice() -> None:
    assert advice(PLAN) == []


def test_the_parts_of_the_disk_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        "disk       10.0 KiB: vectors 1.0 KiB, their index 3.5 KiB, texts 2.0 KiB, lexical 512 B, the filter 3.0 KiB; "
        "312 B more until it is committed, 2.0 GiB free"
    ) in _printed(capsys)


def test_advice_where_the_disk_is_too_small() -> None:
    assert _advice(index_bytes=3 << 30, journal_bytes=1 << 30) == [
        "The disk of the index has 2.0 GiB left, and the build needs 4.0 GiB: choose another folder with --index."
    ]


def test_advice_where_memory_is_too_small() -> None:
    assert _advice(build_bytes=3 << 30) == [
        "This process may use 2.0 GiB of memory, and the build needs 3.0 GiB: use a smaller model, or --dtype bfloat16."
    ]


def test_advice_where_small_segments_take_more_than_the_memory_of_searches() -> None:
    assert _advice(max_memory=192) == []
    assert _advice(max_memory=191) == [
        "A search reads 192 B of vectors, more than --max-memory 191 B: segments of fewer than 10,000 vectors are "
        "searched exactly."
    ]


def test_loading_the_model_and_making_an_index_are_times_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert "time       1 min 10 s, 1 min 1 s of it encoding" in _printed(capsys)
    assert (
        "time       1 min 10 s, 1 min 1 s of it encoding, 5.2 s loading the model, 0.5 s the lexical part; making "
        "HNSW16 comes on top"
    ) in _printed(capsys, load_seconds=5.2, lexical_seconds=0.5, index_recipe="HNSW16")


def test_an_estimate_is_shown_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _printed(capsys, share_read=0.1, n_chunks=4000, n_removed=None)

    assert "corpus     corpus: 4 files, 600 B, 10 % read, a sample; the rest is estimated" in lines
    assert "chunks     4,000: 6 to encode, 3,994 reused" in lines


def test_a_speed_that_tuning_may_better_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        "speed      1,000 tokens/s (cpu, float32), measured on 6 chunks; the build tunes, and may be faster"
    ) in _printed(capsys, n_to_encode=4000)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.0, "0.0 s"), (9.94, "9.9 s"), (10.4, "10 s"), (60.0, "1 min"), (3599.6, "1 h"), (3660.0, "1 h 1 min")],
)
def test_a_time_for_people(seconds: float, told: str) -> None:
    assert duration(seconds) == told
