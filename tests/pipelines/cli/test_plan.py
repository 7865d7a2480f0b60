"""`ragidx build --plan`: its fields, tables and advice, and the exit status."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.pipelines.cli import plan_tables
from ragidx.pipelines.cli.plan_tables import advice, duration
from ragidx.pipelines.ingest.report import PLANNING
from ragidx.pipelines.plan.plan import Plan, plan

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
        lines[6:10],
        [
            r"speed      [\d,]+ tokens/s \(cpu, float32\), measured on 6 chunks",
            rf"time       {TIME}, {TIME} of it encoding(, {TIME} loading the model)?, "
            rf"{TIME} the words",
            rf"disk       {SIZE}: vectors 192 B, texts {SIZE}, words {SIZE}, the filter {SIZE}; 312 B more until it is "
            rf"committed, {SIZE} free",
            rf"memory     {SIZE} or so, the model included",
        ],
        strict=True,
    ):
        assert re.fullmatch(shape, line), line
    assert lines[10] == ""
    assert lines[11].split() == ["index", "type", "disk", "memory", "to", "search", "memory", "to", "build", "exact"]
    assert re.fullmatch(rf"flat \*      {SIZE} +192 B +{SIZE} +yes", lines[12])
    assert lines[13:] == [
        "The other types take as much: they differ from 10,000 chunks a segment on.",
        "* as requested; nothing was built",
    ]
    assert not Path("ragidx-index").exists()


@pytest.mark.usefixtures("small_corpus", "model")
def test_a_plan_for_machines_is_one_json_object(run: Run) -> None:
    done = run("build", "corpus", "--plan", "--json", *TINY)

    found = json.loads(done.out)
    assert done.status == 0
    assert list(found) == [field.name for field in dataclasses.fields(Plan)]
    assert found["n_chunks"] == 6
    assert found["speed"]["device"] == "cpu"
    assert found["footprint"]["index_types"][0]["index_type"] == found["index_type"]
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


# advice


@pytest.fixture
def found(small_corpus: Path, model: Path) -> Plan:
    """The plan of a small corpus by echo, which nothing stands in the way of."""
    made = plan(
        small_corpus,
        small_corpus.parent / "index",
        model=str(model),
        method="echo",
        filter=ragidx.FilterSpec(tau=2),
        device="cpu",
    )
    assert advice(made) == []
    return made


def _with_footprint(f: Plan, **changes: Any) -> Plan:
    return dataclasses.replace(f, footprint=dataclasses.replace(f.footprint, **changes))


def test_the_parts_of_the_disk_add_up(found: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    kib, (first, *others) = 1 << 10, found.footprint.index_types
    graph = (dataclasses.replace(first, exact=False, recipe="HNSW16"), *others)
    parts = {"index_bytes": 10 * kib, "vector_bytes": 1 * kib, "text_bytes": 2 * kib, "filter_bytes": 3 * kib}
    parts["lexical_bytes"] = kib // 2

    plan_tables.print_plan(_with_footprint(found, **parts, index_types=graph))

    told = "disk       10.0 KiB: vectors 1.0 KiB, texts 2.0 KiB, words 512 B, the filter 3.0 KiB, HNSW16 3.5 KiB; "
    assert told in capsys.readouterr().out


def test_advice_where_the_disk_is_too_small(found: Plan) -> None:
    assert advice(_with_footprint(found, index_bytes=3 << 30, journal_bytes=1 << 30, free_bytes=2 << 30)) == [
        "The disk of the index has 2.0 GiB left, and the build needs 4.0 GiB: choose another folder with --index."
    ]


def test_advice_where_memory_is_too_small(found: Plan) -> None:
    assert advice(_with_footprint(found, build_bytes=3 << 30, limit_bytes=2 << 30)) == [
        "This process may use 2.0 GiB of memory, and the build needs 3.0 GiB: use a smaller model, or --dtype bfloat16."
    ]


def test_loading_the_model_is_a_time_of_its_own(found: Plan) -> None:
    slow = dataclasses.replace(found, seconds=70.0, encode_seconds=61.0, load_seconds=5.2, lexical_seconds=0)
    quick = dataclasses.replace(slow, load_seconds=0.3)

    assert plan_tables._time(slow).endswith(" min 1 s of it encoding, 5.2 s loading the model")
    assert plan_tables._time(quick).endswith(" of it encoding")


def test_an_estimate_is_shown_as_one(found: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    sampled = dataclasses.replace(found, share_read=0.1, n_chunks=4000, n_removed=None)
    plan_tables.print_plan(sampled)

    out = capsys.readouterr().out
    assert "10 % read, a sample; the rest is estimated" in out
    assert "chunks     4,000: " in out


def test_the_time_is_without_the_making_of_an_index(found: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    plan_tables.print_plan(dataclasses.replace(found, index_recipe="HNSW16"))

    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("time"))
    assert line.endswith(" the words; making HNSW16 comes on top")


def test_where_memory_is_limited_each_index_type_says_whether_it_fits(
    found: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    types = tuple(dataclasses.replace(one, fits=one.index_type != "flat") for one in found.footprint.index_types)
    plan_tables.print_plan(_with_footprint(found, max_memory=3 << 20, index_types=types))

    lines = capsys.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("index type"))
    assert lines[head].endswith("exact  fits into 3.0 MiB")
    assert lines[head + 1].endswith("yes    yes")
    assert lines[head + 2].split()[0] == "flat"
    assert lines[head + 2].endswith("yes    no")


@pytest.mark.usefixtures("small_corpus", "model")
@pytest.mark.parametrize(("memory", "fits"), [("1KB", "yes"), ("192", "yes"), ("191", "no")])
def test_a_plan_with_little_memory_for_a_small_index_says_whether_its_vectors_fit(
    memory: str, fits: str, run: Run
) -> None:
    done = run("build", "corpus", "--plan", "--max-memory", memory, *TINY)  # six chunks, 16 numbers of 2 bytes

    head, row, same = done.out[done.out.index("index type") :].splitlines()[:3]
    assert (done.status, done.err) == (0, "")
    assert re.search(r"exact  fits into \S+ \S+$", head)
    assert (row.split()[:2], row.split()[-1]) == (["auto", "*"], fits)
    assert same == "The other types take as much: they differ from 10,000 chunks a segment on."
    advice = (
        "A search reads 192 B of vectors, more than --max-memory 191 B: segments of fewer than 10,000 vectors are "
        "searched exactly."
    )
    assert (advice in done.out.splitlines()) == (fits == "no")


def test_a_speed_that_tuning_may_better_says_so(found: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    many = dataclasses.replace(found, n_to_encode=4000)
    assert many.speed is not None
    plan_tables.print_plan(dataclasses.replace(many, speed=dataclasses.replace(many.speed, tuned=False)))

    assert "; the build tunes, and may be faster\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.0, "0.0 s"), (9.94, "9.9 s"), (10.4, "10 s"), (60.0, "1 min"), (3599.6, "1 h"), (3660.0, "1 h 1 min")],
)
def test_a_time_for_people(seconds: float, told: str) -> None:
    assert duration(seconds) == told
