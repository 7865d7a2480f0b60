"""`ragidx sweep` as a user runs it: the table, JSON, files, progress, and what goes wrong."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragidx.pipelines.vectors import build_vectors

from ..conftest import Done

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("briefly")]

Run = Callable[..., Done]


@pytest.fixture
def given_index(folder: Path) -> Path:
    """`own`: an index of 40 vectors of 8 dimensions, made elsewhere."""
    np.save(folder / "own.npy", np.random.default_rng(0).standard_normal((40, 8)).astype("f4"))
    build_vectors(folder / "own.npy", folder / "own", index_type="flat")
    return folder / "own"


@pytest.fixture
def judged(small_corpus: Path, folder: Path) -> None:
    """`queries.jsonl` and `qrels.tsv` for `corpus`: each query is in the words of one document."""
    asked = {"q1": "who signed the lease of the house by the lake", "q2": "bees dance where the flowers are"}
    (folder / "queries.jsonl").write_text("".join(json.dumps({"_id": k, "text": v}) + "\n" for k, v in asked.items()))
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tlease.txt\t1\nq2\tfacts.jsonl#bees\t1\n")


@pytest.mark.usefixtures("given_index")
def test_the_table_has_a_line_for_each_width(run: Run) -> None:
    done = run("sweep", "own", "--filter", "truncation", "--tau", "1", "--tau", "2")

    lines = done.out.splitlines()
    assert (done.status, done.err) == (0, "There are no queries: 4 held-out chunks were asked.\n")
    assert lines[:2] == ["own: 40 documents, 36 chunks, 4 queries", ""]
    assert lines[2].split() == ["bytes", "disk", "made", "ms", "q/s", "overlap@10", "ann_recall@10"]
    assert re.fullmatch(r"none dim=8 exact +1\.000 \[1\.000, 1\.000\] +1\.000", lines[3])
    timed = r" +\d+ +\d+ B +\d\.\d\d s  \d+\.\d\d +[\d,]+ +"
    assert re.fullmatch(rf"none dim=8 flat{timed}1\.000 \[1\.000, 1\.000\] +1\.000", lines[4])
    assert re.fullmatch(rf"truncation dim=4 flat{timed}0\.\d+ \[0\.\d+, [01]\.\d+\] +1\.000", lines[5])
    assert " ".join(lines[6:]) == (
        f" ms: one query, one thread, median. q/s: in batches, {lines[7].partition('batches, ')[2]} overlap@10: share"
        " of the first ten that exact search at full width has too. ann_recall@10: share of those that exact search at"
        " the same width has. Without qrels the overlap tells how near a width stays to the full one, not whether it is"
        " good enough: give --queries and --qrels."
    )


@pytest.mark.usefixtures("judged")
def test_with_qrels_the_table_says_which_differences_are_real(run: Run) -> None:
    done = run(
        *("sweep", "corpus", "--model", "mini-decoder", "--queries", "queries.jsonl", "--qrels", "qrels.tsv"),
        *("--dim", "32", "--dim", "1"),
    )

    assert done.status == 0
    vectors, _, with_words = done.out.partition("\ncorpus, with words: 6 documents, ")
    lines = vectors.splitlines()
    assert lines[0] == "corpus: 6 documents, 6 chunks, 2 queries; mini-decoder, classical"
    assert lines[2].split()[4:] == [
        "q/s", "ndcg@10", "random", "difference", "p", "detectable", "overlap@10", "ann_recall@10"
    ]  # fmt: skip
    assert "reference" in lines[3]
    drawn = r"\d\.\d{3} to \d\.\d{3}"
    assert re.search(
        rf"^embedfilter dim=32 flat .* \d\.\d{{3}} \[\d\.\d{{3}}, \d\.\d{{3}}\]  {drawn}  [+-]\d\.\d{{3}} ", lines[5]
    )
    assert "random: ten random projections of the same width in place of EmbedFilter" in " ".join(lines)
    assert "p: paired permutation test against the reference" in " ".join(lines)
    assert re.search(r"^lexical +\d+ .* reference", with_words, re.MULTILINE)
    assert re.search(r"^embedfilter dim=1 hybrid +\d+ ", with_words, re.MULTILINE)
    assert done.err == "Nothing can be concluded from fewer than 20 queries, here 2.\n"


@pytest.mark.usefixtures("given_index")
def test_json_is_one_document_and_progress_is_lines(run: Run) -> None:
    done = run("sweep", "own", "--filter", "truncation", "--dim", "8", "--json")

    data = json.loads(done.out)
    assert done.out.isascii()
    exact, flat = data["tasks"][0]["rows"]
    assert (exact["configuration"]["index_type"], exact["costs"]) == ("exact", None)
    assert flat["configuration"]["dim"] == 8
    assert flat["means"]["ann_recall@10"] == 1.0
    assert flat["costs"]["single"]["p50_ms"] > 0
    assert data["tasks"][0]["choice"] is None
    stages = [json.loads(line)["stage"] for line in done.err.splitlines()]
    assert (stages[-1]["number"], stages[-1]["total"], stages[-1]["name"]) == (2, 2, "none, 8 dimensions, flat")


@pytest.mark.usefixtures("small_corpus")
def test_json_of_a_corpus_tells_how_far_the_encoding_is(run: Run) -> None:
    done = run("sweep", "corpus", "--dim", "8", "--json")

    kinds = [next(iter(json.loads(line))) for line in done.err.splitlines()]
    assert kinds[0] == "stage"
    assert "progress" in kinds


@pytest.mark.usefixtures("given_index")
def test_out_has_the_table_and_the_picture(run: Run, folder: Path) -> None:
    done = run("sweep", "own", "--filter", "truncation", "--dim", "8", "--out", "report/first")

    assert done.err.endswith("\nWritten to report/first: results.csv and what belongs to it\n")
    assert sorted(path.name for path in (folder / "report/first").iterdir()) == [
        "per_query.parquet", "results.csv", "results.json", "results.png", "results.svg"
    ]  # fmt: skip


@pytest.mark.usefixtures("given_index")
def test_without_matplotlib_the_rest_is_written_and_the_extra_named(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec

    def missing(name: str, *rest: Any) -> Any:
        return None if name == "matplotlib" else real(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", missing)

    done = run("sweep", "own", "--filter", "truncation", "--dim", "8", "--out", "report")

    assert done.err.splitlines()[1] == (
        "No picture: matplotlib is not installed (pip install '.[plot]' in a checkout of ragidx)."
    )
    assert not list((folder / "report").glob("*.png"))


@pytest.mark.usefixtures("given_index")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["own", "--out", "own.npy"], "Error: own.npy: a file has this name\n  hint: name another folder with --out\n"),
        (["own", "--dim", "9", "--filter", "truncation"],
         "Error: --dim: dim=9 is more than the 8 dimensions there are\n  hint: give at most 8\n"),
        (["own", "--chunk-size", "64"],
         "Error: own: the index says how its vectors are made: --chunk-size cannot be chosen\n"
         "  hint: remove it, or name a corpus in place of the index\n"),
        (["nowhere"], "Error: nowhere: no such file or folder\n  hint: check the path\n"),
        (["own", "--queries", "none.jsonl"], "Error: none.jsonl: "),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_told_in_one_block(run: Run, arguments: list[str], message: str) -> None:
    done = run("sweep", *arguments)

    assert (done.status, done.out) == (2, "")
    assert message in done.err


def test_ctrl_c_leaves_nothing_behind(given_index: Path, folder: Path) -> None:
    (folder / "tmp").mkdir()
    # Where the tests run in the background SIGINT is ignored, and a child would inherit that.
    code = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from ragidx.pipelines.cli.main import main\nmain()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "sweep", "own", "--json", "--filter", "truncation"],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "8 dimensions, flat" in line:
            break
    process.send_signal(signal.SIGINT)

    out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (130, "")
    assert err.endswith("Interrupted: encoded vectors are kept in the cache, and the same command continues.\n")
    assert list((folder / "tmp").iterdir()) == []


def test_plain_progress_comes_now_and_then(run: Run, given_index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragidx.pipelines.cli.console.PLAIN_EVERY_S", 30)
    started = time.perf_counter()
    ticks = iter(range(10**6))
    monkeypatch.setattr("ragidx.pipelines.cli.stages.time.perf_counter", lambda: started + 6 * next(ticks))

    done = run("sweep", str(given_index), "--filter", "truncation", "--dim", "8", "--dim", "4")

    assert "stage 2 of 3: none, 8 dimensions, flat" in done.err
    assert "stage 1" not in done.err


def test_at_a_terminal_each_stage_takes_the_place_of_the_one_before(
    run: Run, given_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragidx.pipelines.cli.console.is_terminal", lambda: True)

    done = run("sweep", str(given_index), "--filter", "truncation", "--dim", "8")

    # Colours and movements are left out where standard error is no terminal, as in a test; the return stays.
    *stages, note = (part for part in done.err.split("\r") if part)
    assert [stage.partition(", ETA")[0] for stage in stages] == [
        "stage 1 of 2: the exact answers at full width",
        "stage 2 of 2: none, 8 dimensions, flat",
    ]
    assert note == "There are no queries: 4 held-out chunks were asked.\n"
