"""`ragidx evaluate` as a user runs it: the table, JSON, files, progress, and what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from ..conftest import Done
from ..experiments.evaluate.conftest import WORDS, write_beir, write_qrels, write_run

Run = Callable[..., Done]
FIRST = ("--filter", "none", "--cache", "none")


@pytest.fixture
def beir(folder: Path) -> Path:
    """`beir`: 24 documents, each of which answers a query."""
    return write_beir(folder / "beir")


@pytest.mark.usefixtures("beir")
def test_the_table_has_the_best_row_first_and_says_what_it_means(run: Run) -> None:
    done = run("evaluate", "beir", *FIRST, "--chunk-size", "none")

    lines = done.out.splitlines()
    assert lines[0] == "beir: 24 documents, 24 chunks, 24 queries; mini, classical"
    assert lines[2].split() == [
        "bytes", "ndcg@10", "difference", "p", "detectable", "recall@10", "recall@100", "mrr@10", "map", "p@10",
        "judged@10",
    ]  # fmt: skip
    rows = [line.split() for line in lines[3:6]]
    assert sorted(row[0] for row in rows) == ["dense", "hybrid", "lexical"]
    means = [float(next(cell for cell in row[1:] if cell.startswith("0."))) for row in rows]
    assert means == sorted(means, reverse=True)
    assert "ndcg@10: mean and 95 % interval." in done.out
    assert (done.status, done.err) == (0, "Without judgements, and left out: 1 x query.\n")


@pytest.mark.usefixtures("beir")
def test_options_that_are_repeated_make_the_grid(run: Run) -> None:
    done = run(
        "evaluate", "beir", "--filter", "truncation", "--filter", "random", "--dim", "8", "--dim", "16", "--mode",
        "dense", "--reference", "random dim=8", "--measure", "mrr@10", "--cache", "none", "--json",
    )  # fmt: skip

    (task,) = json.loads(done.out)["tasks"]
    assert [row["name"] for row in task["rows"]] == [
        "truncation dim=16", "truncation dim=8", "random dim=16", "random dim=8"
    ]  # fmt: skip
    assert (task["reference"], task["measure"], task["n_queries"]) == (3, "mrr@10", 24)
    assert [row["against"] is None for row in task["rows"]] == [False, False, False, True]


@pytest.mark.usefixtures("beir")
def test_a_narrow_terminal_has_the_measures_that_there_is_room_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("ragidx.pipelines.cli.console.width", lambda stream: 100)

    lines = click.unstyle(run("evaluate", "beir", *FIRST).out).splitlines()

    table = lines[2 : lines.index("", 3)]
    assert max(map(len, table)) <= 100
    assert "recall@10" in table[0]
    assert "judged@10" not in table[0]


@pytest.mark.usefixtures("beir")
def test_json_is_one_document_and_progress_is_lines(run: Run) -> None:
    done = run("evaluate", "beir", *FIRST, "--json")

    assert done.out.isascii()
    assert set(json.loads(done.out)["tasks"][0]["rows"][0]["means"]) == {
        "ndcg@10", "recall@10", "recall@100", "mrr@10", "map", "p@10", "judged@10"
    }  # fmt: skip
    told = [json.loads(line) for line in done.err.splitlines()]
    stages = [line["stage"] for line in told if "stage" in line]
    assert stages[0] == {"number": 1, "total": 0, "name": "encoding with mini", "left_s": None}
    assert [stage["number"] for stage in stages] == list(range(1, len(stages) + 1))
    assert stages[-1]["number"] == stages[-1]["total"]
    assert stages[-1]["left_s"] > 0
    assert any("progress" in line for line in told)


def test_one_query_is_valid_json(run: Run, folder: Path) -> None:
    write_run(folder / "a.run", {"q0": ["d0"]})
    write_run(folder / "b.run", {"q0": ["d1"]})
    write_qrels(folder / "qrels.tsv", {"q0": {"d0": 1}})

    done = run("evaluate", "a.run", "b.run", "--qrels", "qrels.tsv", "--json")

    assert json.loads(done.out)["tasks"][0]["rows"][1]["against"]["verdict"] == "too few"
    done = run("evaluate", "a.run", "b.run", "--qrels", "qrels.tsv")
    assert (done.status, done.err) == (0, "Nothing can be concluded from fewer than 20 queries, here 1.\n")


@pytest.mark.slow
@pytest.mark.usefixtures("beir")
def test_out_names_what_was_written(run: Run, folder: Path) -> None:
    done = run("evaluate", "beir", *FIRST, "--mode", "dense", "--out", "results/first")

    assert done.err.endswith("Written to results/first: results.csv and what belongs to it\n")
    assert (folder / "results/first/results.csv").read_text().startswith("task,row,model,")


@pytest.mark.usefixtures("beir")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["beir", "--margin", "0"], "Error: --margin: margin=0 allows no loss\n  hint: give a number above 0\n"),
        (
            ["beir", "--weight", "2"],
            "Error: --weight: weight=2 is not from 0 to 1\n  hint: 0 is words alone, 1 cosines\n",
        ),
        (
            ["beir", *("--dim " + " --dim ".join(map(str, range(1, 502)))).split()],
            "Error: the grid has 1,003 configurations, more than 1,000\n"
            "  hint: name fewer values, or say that you mean it: --yes\n",
        ),
        (
            ["beir", *FIRST, "--mode", "dense", "--reference", "sparse"],
            "Error: unknown word of --reference: 'sparse'\n"
            "  hint: known: aligned-values, bidirectional, bos, causal, center, classical, dense, echo, endpoint, eos, "
            "flat, last, llm2vec, mean, metaeol, mini, model, no-center, none, own, prompteol, reba, "
            "sentence-transformers, table, trainable, weighted_mean, z\n",
        ),
        (
            ["beir", *FIRST, "--mode", "dense", "--reference", "mini tau=3"],
            "Error: --reference: no row is named 'mini tau=3'\n  hint: give words of one of: mini dense\n",
        ),
        (
            ["beir/corpus.jsonl"],
            "Error: beir/corpus.jsonl: nothing says which documents answer which query of this corpus\n"
            "  hint: give --queries and --qrels, or make queries of the corpus itself: --without-labels\n",
        ),
        (
            ["beir", "--out", "beir/corpus.jsonl"],
            "Error: beir/corpus.jsonl: a file has this name\n  hint: name another folder with --out\n",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_one_message(run: Run, arguments: list[str], message: str) -> None:
    assert run("evaluate", *arguments) == (2, "", message)


def test_without_ir_measures_nothing_is_encoded(
    beir: Path, run_process: Run, without: Callable[..., dict[str, str]]
) -> None:
    done = run_process("evaluate", str(beir), env=without("ir_measures"))

    assert done == (
        2,
        "",
        "Error: measures of rankings need ir-measures, which is not installed\n"
        "  hint: pip install '.[eval]' in a checkout of ragidx\n",
    )


@pytest.mark.usefixtures("beir")
def test_plain_progress_comes_now_and_then_with_the_time_that_is_left(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragidx.pipelines.cli.console.PLAIN_EVERY_S", 10)
    started = time.perf_counter()
    ticks = iter(range(10**6))
    monkeypatch.setattr("ragidx.pipelines.cli.stages.time.perf_counter", lambda: started + 6 * next(ticks))

    done = run("evaluate", "beir", *FIRST, "--mode", "dense", "--dim", "256")

    assert any(line.startswith("stage 2 of ") for line in done.err.splitlines()), done.err


@pytest.mark.usefixtures("beir")
def test_at_a_terminal_each_stage_takes_the_place_of_the_one_before(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragidx.pipelines.cli.console.is_terminal", lambda: True)

    done = run("evaluate", "beir", *FIRST)

    stages = [part for part in done.err.split("\r") if part.startswith("stage ")]
    assert stages[-1].startswith("stage 4 of 4: none, 384 dimensions, flat, ETA 0:00:")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cache", "said"),
    [
        ("none", "Interrupted.\n"),
        ("kept", "Interrupted: encoded vectors are kept in the cache, and the same command continues.\n"),
    ],
)
def test_ctrl_c_ends_it_and_leaves_nothing_behind(folder: Path, cache: str, said: str) -> None:
    write_beir(folder / "large", [f"{word}{n}" for word in WORDS for n in range(40)])
    (folder / "tmp").mkdir()
    # Where the tests run in the background SIGINT is ignored, and a child would inherit that.
    code = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from ragidx.pipelines.cli.main import main\nmain(sys.argv[1:])"
    command = [sys.executable, "-c", code, "evaluate", "large", "--cache", cache, "--json"]
    process = subprocess.Popen(
        command, cwd=folder, env=os.environ | {"TMPDIR": str(folder / "tmp")}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    while '"words"' not in (line := process.stderr.readline()):
        assert line, "it ended before"

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (130, "")
    assert err.endswith(said)
    assert list((folder / "tmp").iterdir()) == []
