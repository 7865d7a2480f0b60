"""Axes of what a model reads: each makes a table of two rows that differ; no document is encoded twice for nothing."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.pipelines.experiments.evaluate.report import Configuration, TaskReport, names_of

from ....measuring import evaluated
from ....raising import message_of
from ...conftest import Done
from .conftest import WORDS, text_of, write_lines, write_qrels

pytestmark = pytest.mark.slow

TASK = "Retrieve sentences of the same meaning"


@pytest.fixture
def measured(sts: Path, tiny_model: Callable[..., Path]) -> Callable[..., TaskReport]:
    """Pairs of sentences, by a random model of two layers."""

    def measure(**axes: Any) -> TaskReport:
        report = evaluated(sts, model=str(tiny_model()), filter="none", dtype="float32", cache=None, **axes)
        return report.tasks[0]

    return measure


@pytest.mark.parametrize(
    ("axes", "names"),
    [
        ({"method": "classical", "template": ["Say: {text}", "{text}"]}, ["'Say: {text}'", "{text}"]),
        ({"method": "classical", "max_length": [3, 64]}, ["max_length=3", "max_length=64"]),
        ({"method": "classical", "max_length": [3, None]}, ["max_length=3", "{}"]),
        ({"method": "reba", "copies": [1, 3]}, ["copies=1", "copies=3"]),
        ({"method": "echo", "copies": 3, "max_length": 9, "compute_matched": [False, True]},
         ["no-compute-matched", "compute-matched"]),
        ({"method": "classical", "instruction": ["", TASK]}, ["no-instruction", "instruction"]),
        ({"method": "classical", "instruction": ["Say it", TASK]}, ["'Say it'", f"'{TASK}'"]),
    ],
)  # fmt: skip
def test_each_axis_has_two_rows_that_differ(
    measured: Callable[..., TaskReport], axes: dict[str, Any], names: list[str], tiny_model: Callable[..., Path]
) -> None:
    task = measured(**axes)

    model = "/".join(tiny_model().parts[-2:])
    assert [row.name for row in task.rows] == [name.format(model) if name == "{}" else name for name in names]
    assert not np.array_equal(*task.values["spearman"])
    first, second = (row.tokens for row in task.rows)
    assert first != second
    axis = next(name for name, values in axes.items() if isinstance(values, list))
    assert [getattr(row.configuration, axis) for row in task.rows] == axes[axis]


def test_tokens_are_those_that_the_method_reads(
    measured: Callable[..., TaskReport], sts: Path, tiny_model: Callable[..., Path]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model())
    texts = [text for line in (sts / "test.tsv").read_text().splitlines() for text in line.split("\t")[1:]]
    alone = np.array([len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]])
    around = len(tokenizer("")["input_ids"])

    echo = measured(method="echo", copies=[1, 2, 3]).rows
    cut = measured(method="echo", copies=3, max_length=6, compute_matched=[False, True]).rows
    (plain,) = measured(method="classical").rows

    assert plain.tokens == pytest.approx(alone.mean() + around)
    assert np.diff([row.tokens or 0 for row in echo]) == pytest.approx(alone.mean())
    start = (echo[0].tokens or 0) - alone.mean()
    expected = [start + 3 * np.minimum(alone, most).mean() for most in (6, 2)]
    assert [row.tokens for row in cut] == pytest.approx(expected)


def test_an_index_has_the_instruction_as_an_axis_and_counts_no_tokens(beir: Path, tmp_path: Path) -> None:
    ragidx.build(beir, tmp_path / "index").close()

    (task,) = evaluated(
        tmp_path / "index", queries=beir, qrels=beir, mode="dense", instruction=["", "task:SciFact"]
    ).tasks

    assert [row.name for row in task.rows] == ["no-instruction", "instruction"]
    assert str(task.rows[1].configuration.instruction).startswith("Given a scientific claim")
    assert [row.tokens for row in task.rows] == [None, None]
    assert "`max_length` cannot be chosen" in message_of(
        SpecError, lambda: evaluated(tmp_path / "index", queries=beir, qrels=beir, max_length=3)
    )


@pytest.mark.parametrize("kept", [True, False])
def test_documents_are_encoded_once_for_all_instructions(
    beir: Path, tmp_path: Path, encoded: list[str], kept: bool
) -> None:
    evaluated(
        beir, model="mini-decoder", instruction=["", TASK], mode="dense", chunks=ragidx.ChunkSpec(size=None),
        cache=tmp_path / "cache" if kept else None,
    )  # fmt: skip

    assert [encoded.count(text_of(word)) for word in WORDS[1:]] == [1] * (len(WORDS) - 1)
    assert len(encoded) == 3 * len(WORDS)  # the queries twice


def test_what_a_method_cannot_have_is_left_out_with_a_note(measured: Callable[..., TaskReport]) -> None:
    copies = measured(method="echo", copies=3, template=["echo-copies", "Say: {text}"])
    matched = measured(method="classical", compute_matched=[False, True], max_length=6)

    assert [len(task.rows) for task in (copies, matched)] == [1, 1]
    assert any("template=Say: {text}, copies=3: the template 'Say: {text}' does not repeat" in n for n in copies.notes)
    assert any("compute_matched=True: the template 'classical' holds the text once" in n for n in matched.notes)
    assert "does not repeat the text" in message_of(
        SpecError, lambda: measured(method="echo", copies=3, template=["Say: {text}", "Tell: {text}"])
    )


def test_methods_that_repeat_nothing_are_there_once_beside_matched_copies(measured: Callable[..., TaskReport]) -> None:
    task = measured(method=["classical", "echo"], max_length=6, compute_matched=[False, True])

    assert [row.name for row in task.rows] == [
        "classical no-compute-matched", "echo no-compute-matched", "echo compute-matched"
    ]  # fmt: skip


def test_a_row_is_found_by_words_of_its_template(measured: Callable[..., TaskReport]) -> None:
    task = measured(method="classical", template=["Say: {text}", "Tell it\nagain: {text}"], reference="Tell again:")

    assert [row.name for row in task.rows] == ["'Say: {text}'", r"'Tell it\nagain: {text}'"]
    assert task.reference == 1


def test_words_of_shorter_chunks_are_another_row(beir: Path) -> None:
    (task,) = evaluated(beir, max_length=[8, 16, 32], mode="lexical", cache=None).tasks

    assert [row.configuration.max_length for row in task.rows] == [None, 16, 32]
    assert len({row.name for row in task.rows}) == 3
    assert any(note.startswith("The rows are not of the same chunks: ") for note in task.notes)


def test_names_tell_a_value_from_none() -> None:
    rows = [Configuration(mode="lexical"), *(Configuration(model="m", max_length=n, mode="dense") for n in (None, 8))]

    assert names_of(rows) == ["lexical", "m dense", "max_length=8"]


def test_the_product_of_all_axes_is_counted_before_anything_is_encoded(beir: Path, encoded: list[str]) -> None:
    axes = {"method": "echo", "template": ["a {text}", "b {text}"], "max_length": range(1, 101)}
    axes |= {"compute_matched": [False, True], "instruction": ["", "a", "b"], "mode": "dense"}

    assert message_of(SpecError, lambda: evaluated(beir, **axes)).startswith(
        "the grid has 1,200 configurations, more than 1,000\n"
    )
    assert not encoded


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
def test_recall_at_1000_is_of_a_thousand_documents(tmp_path: Path, mode: str) -> None:
    # 500 documents with all words of the query, then 400 with two of them, 299 without any, and one of many chunks.
    texts = {f"a{n}": "alpha beta gamma" for n in range(500)} | {f"b{n}": "alpha beta" for n in range(400)}
    texts |= {f"c{n}": f"number {n}" for n in range(299)}
    texts["long"] = "\n\n".join(f"alpha beta gamma {n}. " * 40 for n in range(40))
    write_lines(tmp_path / "corpus.jsonl", [{"_id": name, "title": "", "text": text} for name, text in texts.items()])
    write_lines(tmp_path / "queries.jsonl", [{"_id": f"q{n}", "text": "alpha beta gamma"} for n in range(2)])
    (tmp_path / "qrels").mkdir()
    judged = {"b0": 1, "b399": 1, "c0": 1, "c1": 1}
    write_qrels(tmp_path / "qrels" / "test.tsv", {"q0": judged, "q1": {"a0": 1, "b1": 1}})
    options: dict[str, Any] = {"mode": mode, "cache": None}

    (task,) = evaluated(tmp_path, measure="recall@1000", answers=1000, out=tmp_path / "out", **options).tasks

    (run,) = task.runs
    assert [len(hits) for hits in run.values()] == [901 if mode == "lexical" else 1000] * 2
    found = [sum(name in run[query] for name in names) for query, names in (("q0", judged), ("q1", ["a0", "b1"]))]
    assert task.values["recall@1000"].tolist() == [[found[0] / 4, found[1] / 2]]
    assert mode != "lexical" or found == [2, 2]
    assert task.values["recall@100"][0, 0] == 0
    assert message_of(SpecError, lambda: evaluated(tmp_path, measure="recall@1000", **options)) == (
        "`measure`: recall@1000 is of more documents than the 100 that are kept of each query\n"
        "  hint: give `answers=1000`"
    )


def test_fewer_answers_have_fewer_measures(beir: Path) -> None:
    (task,) = evaluated(beir, mode="lexical", answers=20, cache=None).tasks

    assert list(task.values) == ["ndcg@10", "recall@10", "mrr@10", "map", "p@10", "judged@10"]
    assert message_of(SpecError, lambda: evaluated(beir, answers=9)) == (
        "`answers`: answers=9 is too little to measure\n  hint: give a whole number from 10 on"
    )


def test_the_command_prints_writes_and_compares_what_was_read(
    sts: Path, tmp_path: Path, tiny_model: Callable[..., Path], run: Callable[..., Done]
) -> None:
    options = ("--model", str(tiny_model()), "--method", "echo", "--filter", "none", "--dtype", "float32")
    lengths = ("--max-length", "6", "--compute-matched", "yes", "--compute-matched", "no")

    done = run(
        *("evaluate", str(sts), *options, *lengths, "--reference", "compute-matched", "--cache", "none"),
        *("--out", str(tmp_path / "out")),
    )

    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].endswith(", echo")
    assert lines[2].split()[:3] == ["bytes", "tokens", "spearman"]
    assert {line.split()[0] for line in lines[3:5]} == {"compute-matched", "no-compute-matched"}
    assert "reference, compute-matched," in " ".join(lines)
    with (tmp_path / "out" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["max_length"], row["compute_matched"]) for row in rows] == [("6", "True"), ("6", "False")]
    saved = json.loads((tmp_path / "out" / "results.json").read_text())["tasks"][0]["rows"]
    assert [row["tokens"] for row in saved] == [float(row["tokens"]) for row in rows]
