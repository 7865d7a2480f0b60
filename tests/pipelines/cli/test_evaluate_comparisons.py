"""What `ragidx evaluate` prints of all pairs of rows, and of rows over data sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Done

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
    assert (
        done.out.count("       from     difference    p  detectable\ndense  lexical  +0.000 equal  1  0.000\n\n") == 5
    )
    assert done.out.endswith(
        "\nOver 5 data sets, from lexical:\n\n"
        "       difference  p\n"
        "dense  +0.000      1\n\n"
        "p: Wilcoxon's signed-rank test, corrected for the number of rows.\n"
    )
