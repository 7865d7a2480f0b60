"""`ragidx train questions`, and a query by the table, as a user runs them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from ragidx.pipelines.demo import sample_corpus

from ..conftest import Done

pytestmark = pytest.mark.slow

Run = Callable[..., Done]
QUESTION = "why were pigeons chased out of an antenna?"


def test_a_table_is_shown_and_answers(run: Run) -> None:
    assert run("build", str(sample_corpus()), "--model", "mini-decoder", "--method", "llm2vec", "--quiet").status == 0
    alone = run("query", QUESTION, "--questions", "table")
    assert alone.status != 0
    assert "the index has no table of questions" in alone.err
    done = run("train", "questions", "--epochs", "2", "--force")

    assert (done.status, done.err) == (0, "")
    shown = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in done.out.splitlines())
    assert list(shown) == [
        *("index", "table", "learnt from", "nDCG@10", "difference", "a question", "questions", "time")
    ]
    assert shown["index"] == "ragidx-index (generation 2)"
    assert re.fullmatch(r"[\d,]+ tokens and \d+ pairs, \d\.\d MiB", shown["table"])
    assert re.match(r"0\.\d+ by the model, 0\.\d+ by the table, of 124 synthetic queries", shown["nDCG@10"])
    assert re.match(r"[\d.]+ ms by the table, [\d.]+ ms by the model", shown["a question"])
    assert re.fullmatch(
        r"by the table \((forced|not worse)\); `ragidx query --questions model` takes the model", shown["questions"]
    )
    assert "by the table; the index has a table of them" in run("info").out
    found = [json.loads(run("query", QUESTION, "--json", *more).out)["hits"] for more in ([], ["--questions", "model"])]
    assert [hits[0]["doc_id"] for hits in found] == ["astronomy/cosmic-microwave-background.md"] * 2
    assert found[0][0]["score"] != found[1][0]["score"]
    wrong = run("query", QUESTION, "--questions", "words")
    assert "'words' is neither table nor model" in wrong.err
    again = run("train", "questions", "--epochs", "1", "--margin", "0.0001", "--json")
    report = json.loads(again.out)
    assert (again.status, report["generation"], report["questions"]) == (0, 3, "model")
    assert run("rollback", "1").status == 0
    assert "questions" not in run("info").out
