"""`ragidx train questions`, and a query by the table, as a user runs them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ragidx.pipelines.cli.demo import sample_corpus

from ..conftest import Done

pytestmark = pytest.mark.slow

Run = Callable[..., Done]
WORDS = ("river", "mill", "lease", "tower", "bees")
QUESTION = "why were pigeons chased out of an antenna?"


def test_a_table_is_shown_and_answers(run: Run) -> None:
    some = [word for subject in ("astronomy/*", "history/*", "*.tsv") for word in ("--include", subject)]
    options = ("--model", "mini-decoder", "--method", "llm2vec", "--chunk-size", "96", "--quiet")
    assert run("build", str(sample_corpus()), *some, *options).status == 0
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
    assert re.fullmatch(r"[\d,]+ tokens and \d+ pairs, \d+\.\d KiB", shown["table"])
    assert re.match(r"0\.\d+ by the model, 0\.\d+ by the table, of 31 synthetic queries", shown["nDCG@10"])
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


def test_a_table_of_a_model_is_a_file_that_a_build_takes(run: Run, folder: Path) -> None:
    lines = [json.dumps({"text": f"The {word} has the number {number}."}) for number in range(300) for word in WORDS]
    (folder / "texts.jsonl").write_text("\n".join(lines))
    (folder / "notes").mkdir()
    (folder / "notes" / "a.md").write_text("The mill stands by the river.\n")
    learn = ("--text", "texts.jsonl", "--epochs", "1", "--cache", "none")

    done = run("train", "questions", "mini-decoder", *learn, "--out", "own.questions")

    assert (done.status, done.err) == (0, "")
    shown = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in done.out.splitlines())
    assert list(shown) == ["file", "table", "learnt from", "1 - cosine", "cosine", "time", "to use it"]
    assert shown["to use it"] == "ragidx build CORPUS --model mini-decoder --questions own.questions"
    built = run(*shown["to use it"].replace("CORPUS", "notes").split()[1:])
    assert built.out.startswith("index      ragidx-index (generation 2)\n")
    assert "by the table; the index has a table of them" in run("info").out

    mini = run("train", "mini", *learn, "--teacher", "mini-decoder", "--dim", "32", "--stored", "8", "--out", "own")
    assert (mini.status, mini.err) == (0, "")
    assert "32 dimensions, of which a build stores 8" in mini.out
    assert mini.out.endswith("to use it    ragidx build CORPUS --model own\n")
    assert "8 dimensions" in run("build", "notes", "--model", "own", "--index", "small").out

    for wrong, message in (
        (("train", "questions", "mini-decoder"), "a table of a model learns from texts: give one --text FILE|DIR"),
        (("train", "questions", "mini-decoder", "--queries", "q"), "--queries is of an index: remove it"),
        (("train", "questions", "--out", "f"), "--out is of a model: remove it"),
        (("build", "notes", "--plan", "--questions", "own.questions"), "--plan and --questions exclude each other"),
    ):
        refused = run(*wrong)
        assert (refused.status, refused.err.splitlines()[-1]) == (2, f"Error: {message}")
