"""`ragidx upgrade`: what it shows before and after, exit statuses, and the way on after a kill."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify

from ...embedding_server import EmbeddingServer, running
from ..conftest import Done
from .conftest import INDEX

pytestmark = pytest.mark.slow

Run = Callable[..., Done]
QUERIES = ("--queries", "queries.jsonl", "--qrels", "qrels.tsv")


def fields(done: Done) -> dict[str, str]:
    """Name and value of each line on standard output."""
    return dict(line.split(maxsplit=1) for line in done.out.splitlines())


@pytest.fixture
def judged(folder: Path, run: Run) -> None:
    """`ragidx-index`, of 25 short documents, by vectors alone; `queries.jsonl` asks for each, `qrels.tsv` judges."""
    Path("corpus").mkdir()
    things = ["lamp", "bridge", "violin", "harbour", "glacier"]
    names = [f"{thing} of {place}" for thing in things for place in ("Lisbon", "Oslo", "Kyoto", "Lima", "Cairo")]
    for name in names:
        Path("corpus", f"{name}.txt").write_text(f"The {name} is old.")
    lines = (json.dumps({"_id": name, "text": f"where is the {name}?"}) for name in names)
    Path("queries.jsonl").write_text("\n".join(lines))
    Path("qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{n}\t{n}.txt\t1\n" for n in names))
    assert run("build", "corpus", "--no-lexical", "--quiet").status == 0


@pytest.mark.usefixtures("judged")
def test_it_shows_what_it_takes_then_what_was_compared_and_the_way_back(run: Run) -> None:
    done = run("upgrade", "--dim", "128", *QUERIES)

    assert done.status == 0
    assert re.fullmatch(
        r"time: [\d.]+ s, .* of it encoding.*\ndisk: .* more until it is committed, .* free\n", done.err
    )
    shown = fields(done)
    assert list(shown) == ["index", "new", "nDCG@10", "difference", "swapped", "time"]
    assert shown["index"] == "ragidx-index (generation 2)"
    assert shown["new"] == "mini, 128 dimensions"
    assert shown["nDCG@10"] == "1.000 before, 1.000 now, of 25 queries"
    assert (
        shown["difference"] == "+0.000 [+0.000, +0.000], p 1.0000, 0.000 detectable; above +0.000 with 95 % confidence"
    )
    assert shown["swapped"] == "yes; `ragidx rollback 1` goes back while generation 1 is kept"
    assert re.fullmatch(r"[\d.]+ s, [\d.]+ s of it locked for other writers", shown["time"])
    assert run("upgrade", "--dim", "128") == (
        0,
        "index  ragidx-index (generation 2, unchanged): its vectors are made like that already\n",
        "",
    )


@pytest.mark.usefixtures("judged")
def test_a_worse_one_is_named_with_what_takes_and_what_removes_it(run: Run) -> None:
    worse = ("upgrade", "--filter", "random", "--dim", "1")

    done = run(*worse, *QUERIES)

    folder = next(path for path in (INDEX / "upgrade").iterdir() if path.is_dir())
    assert done.status == 1
    assert fields(done)["swapped"] == "no: the new one is worse by more than 0.01"
    assert done.err.endswith(
        f"The new index stays in {folder}: the same command with --force takes it,\n    rm -r {folder}    removes it.\n"
    )
    assert Store.open(INDEX).manifest.generation == 1
    forced = run(*worse, "--force")
    assert (forced.status, list(fields(forced))) == (0, ["index", "new", "swapped", "time"])
    assert Store.open(INDEX).manifest.dim == 1


@pytest.mark.usefixtures("judged")
def test_what_queries_cannot_decide_says_how_many_would(run: Run) -> None:
    done = run("upgrade", "--dim", "6", *QUERIES, "--margin", "0.000001")

    assert done.status == 1
    assert re.fullmatch(
        r"no: a loss of more than 1e-06 cannot be ruled out; if both are equally good, "
        r"some [\d,]+ queries would show it",
        fields(done)["swapped"],
    )
    Path("queries.jsonl").write_text("\n".join(Path("queries.jsonl").read_text().splitlines()[:19]))
    done = run("upgrade", "--dim", "6", *QUERIES)
    assert (done.status, done.out) == (2, "")
    assert done.err.endswith(
        "Error: qrels.tsv: 19 queries are judged: nothing can be concluded from fewer than 20\n"
        "  hint: judge more, or none, or decide without: --force\n"
    )


@pytest.mark.usefixtures("judged")
def test_where_neither_finds_anything_relevant_the_judgements_are_named(run: Run) -> None:
    Path("qrels.tsv").write_text(Path("qrels.tsv").read_text().replace("\t1\n", "\t0\n"))

    done = run("upgrade", "--dim", "5", *QUERIES)

    assert (done.status, fields(done)["swapped"]) == (
        1,
        "no: neither finds anything relevant, which shows nothing; check the queries and their judgements",
    )


@pytest.mark.usefixtures("judged")
def test_how_the_new_model_runs_says_nothing_of_the_old_one(run: Run, server: EmbeddingServer) -> None:
    served = ("upgrade", "--endpoint", server.url, *QUERIES, "--margin", "0.99")

    assert run(*served, "--model", "openai:m").status == 0
    assert run("upgrade", "--model", "mini", *QUERIES, "--margin", "0.99").status == 0  # without the address
    done = run(*served, "--dim", "128")

    assert (done.status, done.err) == (
        2,
        "Error: --endpoint: 'mini' is no model of a server\n"
        "  hint: name it as --model openai:NAME, or remove --endpoint\n",
    )


@pytest.mark.usefixtures("judged", "server")
def test_a_model_that_stays_is_asked_where_it_is_now(run: Run) -> None:
    with running() as before:
        assert (
            run("build", "corpus", "--no-lexical", "--rebuild", "--model", "openai:m", "--endpoint", before.url).status
            == 0
        )
    with running() as now:
        done = run("upgrade", "--endpoint", now.url, "--chunk-size", "100", *QUERIES)

    assert done.status == 0
    assert fields(done)["nDCG@10"].endswith("of 25 queries")


@pytest.mark.usefixtures("judged")
def test_for_machines_it_is_one_document(run: Run) -> None:
    done = run("upgrade", "--dim", "128", *QUERIES, "--json")

    report: dict[str, Any] = json.loads(done.out)
    assert (report["committed"], report["verdict"], report["comparison"]["n_queries"]) == (True, "not worse", 25)
    assert report["build"]["n_encoded"] == 25
    assert run("upgrade", "--dim", "6", "--force", "--quiet").err == ""
    assert Store.open(INDEX).manifest.dim == 6


@pytest.mark.usefixtures("judged")
def test_messages_name_options(run: Run) -> None:
    assert run("upgrade", "--dim", "6", "--queries", "queries.jsonl").err.endswith(
        "Error: queries and what judges them go together\n  hint: give both, --queries and --qrels, or neither\n"
    )
    assert run("upgrade", "--dim", "6").err.endswith(  # each document is one sentence
        ": nothing can be concluded from fewer than 20\n  hint: give a larger corpus, or queries and judgements\n"
    )
    assert run("upgrade", "--dim", "6", "--force", "--margin", "0").err.endswith(
        "Error: --margin: margin=0 allows no loss\n  hint: give a number above 0\n"
    )
    assert run("upgrade", "--dim", "6", "--margin", "inf").err == (  # before the plan
        "Error: --margin: margin=inf allows any loss\n  hint: give a number above 0\n"
    )
    assert run("upgrade", "index").err.endswith(
        "Error: unexpected argument 'index': name the index with --index FOLDER\n"
    )


# The command as a process that kills itself when the new index is built.
KILLED = """
import os, signal
from ragidx.pipelines.cli.main import main
from ragidx.pipelines.experiments.trials import upgrade

upgrade.Trial.against = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main()
"""


@pytest.mark.usefixtures("judged")
def test_after_a_kill_the_same_command_goes_on(run: Run, run_process: Run) -> None:
    command = ("upgrade", "--dim", "128", *QUERIES)
    assert run_process(*command, code=KILLED).status == -9
    assert Store.open(INDEX).manifest.generation == 1
    assert verify(INDEX) == []

    report = json.loads(run(*command, "--json").out)

    assert (report["committed"], report["build"]["n_encoded"]) == (True, 0)
    assert verify(INDEX) == []
