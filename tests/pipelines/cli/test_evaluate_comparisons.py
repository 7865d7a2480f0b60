"""What `ragidx evaluate` prints of all pairs of rows, and of rows over data sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Done
from ..experiments.evaluate.conftest import write_qrels, write_run

TEXTS = {"a": "The heron waits by the river.", "b": "A ledger records who paid.", "c": "Bread rises in the oven."}


@pytest.mark.slow
def test_all_pairs_and_five_data_sets_have_tables_of_their_own(folder: Path, run: Callable[..., Done]) -> None:
    names = [f"s{number}" for number in range(5)]
    for name in names:
        (folder / name / "qrels").mkdir(parents=True)
        lines = [json.dumps({"_id": doc_id, "text": text}) for doc_id, text in TEXTS.items()]
        (folder / name / "corpus.jsonl").write_text("\n".join(lines))
        (folder / name / "queries.jsonl").write_text('{"_id": "1", "text": "which heron waits?"}\n')
        (folder / name / "qrels" / "test.tsv").write_text("1\ta\t1\n")

    done = run(
        "evaluate", *names, "--mode", "lexical", "--mode", "dense", "--filter", "none", "--all-pairs", "--cache", "none"
    )

    assert done.status == 0
    assert done.out.count("\nNot shown to differ: 1 of 1 pairs of rows; --json has all of them.\n\n") == 5
    assert done.out.endswith(
        "\nOver 5 data sets, from lexical:\n\n"
        "       difference  p\n"
        "dense  +0.000      1\n\n"
        "p: Wilcoxon's signed-rank test, corrected for the number of rows.\n"
    )


def test_of_all_pairs_those_are_printed_that_differ(folder: Path, run: Callable[..., Done]) -> None:
    queries = [f"q{n}" for n in range(30)]
    write_qrels(folder / "qrels.tsv", {query: {"yes": 1} for query in queries})
    for name, answers in (("a", ["no", "yes"]), ("b", ["no", "yes"]), ("c", ["yes", "no"])):
        write_run(folder / f"{name}.run", dict.fromkeys(queries, answers))

    done = run("evaluate", "a.run", "b.run", "c.run", "--qrels", "qrels.tsv", "--all-pairs")

    lines = done.out.splitlines()
    at = lines.index("Not shown to differ: 1 of 3 pairs of rows; --json has all of them.")
    assert [line.split()[:2] for line in lines[at - 2 : at]] == [["c.run", "a.run"], ["c.run", "b.run"]]
    assert "paired permutation test against the reference, a.run, corrected" in " ".join(lines)
