"""`ragidx adapt` as a user runs it: what is printed, JSON, exit statuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ..adapting import write_corpus
from ..conftest import Done

pytestmark = pytest.mark.slow

Run = Callable[..., Done]


@pytest.fixture
def sample(run: Run, folder: Path) -> None:
    """`ragidx-index`, with vectors that its text can mend."""
    write_corpus(folder / "docs")
    assert run("build", "docs", "--filter", "truncation", "--dim", "64", "--no-lexical", "--quiet").status == 0


@pytest.mark.usefixtures("sample")
def test_a_gain_is_shown_and_committed_and_what_is_not_better_is_left(run: Run) -> None:
    done = run("adapt", "--cache", "cache")

    assert (done.status, done.err) == (0, "")
    shown = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert list(shown) == ["index", "pairs", "nDCG@10", "difference", "committed", "time"]
    assert shown["index"] == "ragidx-index (generation 2)"
    assert re.match(r"\d+ sentence, \d+ heading; held out: MRR 0\.\d+, mapped 0\.\d+ \[", shown["pairs"])
    assert shown["nDCG@10"].endswith(", of 90 synthetic queries")
    assert shown["committed"] == "yes; `ragidx rollback 1` goes back while generation 1 is kept"
    info = run("info").out
    assert "truncation, 64 dimensions, the first coordinates, adapted to the corpus" in info
    brief = ("adapt", "--cache", "cache", "--epochs", "1", "--limit", "40", "--seed", "3")
    assert "1.000 now" in run(*brief).out
    again = run(*brief, "--json")
    report = json.loads(again.out)
    assert (again.status, report["committed"], report["verdict"]) == (1, False, "not shown to be better")
    stages = [json.loads(line)["stage"]["name"] for line in again.err.splitlines()]
    assert stages[-3:] == ["training", "mapping the vectors of a copy", "asking both"]
    assert run("verify").status == 0
    assert run("query", "who signed the lease?").status == 0


def test_what_goes_wrong_is_said_in_a_line(run: Run, folder: Path) -> None:
    assert run("adapt").err.startswith("Error: ragidx-index: ")
    assert run("adapt", "corpus").err.endswith(
        "Error: unexpected argument 'corpus': name the index with --index FOLDER\n"
    )
