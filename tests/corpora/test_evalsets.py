"""Evaluation sets and runs: what is read, what is written, and every message."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.evalsets import load_qrels, load_queries, run_lines

from ..raising import message_of

A_QUERY = 'write one JSON object a line: {"_id": "q1", "text": "..."}'
QUERIES = '{"_id": "q1", "text": "who signed?"}\n\n{"id": 7, "text": "a\u2028b", "metadata": {}}\r\n'


def packed(path: Path, text: str) -> Path:
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)
    return path


def told(load: Callable[[Path], object], path: Path) -> str:
    """The message, with the folder of the test left out."""
    return message_of(CorpusError, lambda: load(path)).replace(f"{path.parent}{os.sep}", "")


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_queries_are_read_from_a_file_and_from_its_folder(tmp_path: Path, ending: str) -> None:
    file = packed(tmp_path / f"queries.jsonl{ending}", QUERIES)

    assert load_queries(file) == load_queries(tmp_path) == {"q1": "who signed?", "7": "a\u2028b"}


def test_a_byte_order_mark_is_no_part_of_the_first_query(tmp_path: Path) -> None:
    assert load_queries(packed(tmp_path / "q.jsonl", "\ufeff" + QUERIES))["q1"] == "who signed?"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"id": "q", "body": "x"}',
            "the field 'text' is missing (found: 'id', 'body')\n"
            "  hint: rename the field that holds the query to 'text'",
        ),
        ("{}", "the field '_id' is missing (found: none)\n  hint: give every query '_id' and 'text'"),
        ("[1]", f"the line is not a JSON object but [1]\n  hint: {A_QUERY}"),
        (
            '{"_id": ',
            f"the line is not JSON (Expecting value: line 1 column 9 (char 8))\n  hint: {A_QUERY}",
        ),
        (
            '{"_id": 1.5, "text": "x"}',
            "the id 1.5 is not a string\n  hint: give every query a string of its own as '_id'",
        ),
        ('{"_id": "q", "text": " "}', "the text of query 'q' is ' '\n  hint: give every query a text"),
        ('{"_id": "q", "text": null}', "the text of query 'q' is None\n  hint: give every query a text"),
        ('{"_id": "q1", "text": "x"}', "the query 'q1' appears twice\n  hint: keep one of them"),
        (
            '{"_id": "\\ud800", "text": "x"}',
            "the id '\\ud800' is not Unicode text\n  hint: give every query a string of its own as '_id'",
        ),
    ],
)
def test_a_line_that_is_no_query_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = packed(tmp_path / "questions.jsonl", QUERIES + line)

    assert told(load_queries, file) == f"questions.jsonl:4: {message}"


def test_several_faults_are_told_together_the_first_ten_and_a_count(tmp_path: Path) -> None:
    file = packed(tmp_path / "questions.jsonl", QUERIES + '{"_id": "x"}\n' * 12)

    lines = [f"\n  line {number}: the field 'text' is missing (found: '_id')" for number in range(4, 14)]
    assert told(load_queries, file) == (
        f"questions.jsonl: 12 lines have faults{''.join(lines)}\n  and 2 more\n"
        "  hint: rename the field that holds the query to 'text'"
    )


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("none.jsonl", None, "no such file\n  hint: check the path"),
        ("empty.jsonl", b"", "the file holds no query\n  hint: check that it is the right one"),
        ("test.tsv", b"query-id\tcorpus-id\tscore\n", "the file holds no judgement\n"
         "  hint: check that it is the right one"),
        ("latin.jsonl:2", b'{"_id": "q1", "text": "x"}\n{"_id": "q2", "text": "\xe9"}', "the line is not UTF-8\n"
         "  hint: write the file as UTF-8"),
        ("cut.jsonl.gz", gzip.compress(QUERIES.encode(), mtime=0)[:-12], "the file cannot be read: "
         "Truncated compressed stream\n  hint: create the file again"),
        ("bad.jsonl.zst", b"not zstd at all", "the file cannot be read: ZSTD decompress failed: Unknown frame "
         "descriptor\n  hint: create the file again"),
    ],
)  # fmt: skip
def test_files_that_are_missing_empty_or_broken_are_named(
    tmp_path: Path, name: str, data: bytes | None, message: str
) -> None:
    path = tmp_path / name.partition(":")[0]
    if data is not None:
        path.write_bytes(data)

    assert told(load_qrels if path.suffix == ".tsv" else load_queries, path) == f"{name}: {message}"


def test_a_folder_without_queries_is_named(tmp_path: Path) -> None:
    assert message_of(CorpusError, lambda: load_queries(tmp_path)) == (
        f"{tmp_path / 'queries.jsonl'}: no such file\n  hint: the folder holds no queries.jsonl, .gz and .zst included"
    )


def test_qrels_are_read_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    beir = packed(tmp_path / "qrels" / "dev.tsv.gz", "query-id\tcorpus-id\tscore\nq1\ta b\t2\nq1\td2\t0\nq2\td1\t1\n")
    trec = packed(tmp_path / "qrels.txt", "q1 0 d1 2\nq1\t0\td2\t-1\n")

    assert load_qrels(beir) == load_qrels(tmp_path, split="dev") == {"q1": {"a b": 2, "d2": 0}, "q2": {"d1": 1}}
    assert load_qrels(trec) == {"q1": {"d1": 2, "d2": -1}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "q1 d1",
            "the line has 2 columns\n  hint: write query, document and relevance with tabs, or TREC's four columns",
        ),
        ("q1\td9\t0.5", "the relevance '0.5' is not an integer\n  hint: grades are whole numbers, 0: not relevant"),
        ("q1\td1\t1", "query 'q1' and document 'd1' are judged twice, with different grades\n  hint: keep one of them"),
    ],
)
def test_a_line_that_is_no_judgement_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = packed(tmp_path / "test.tsv", f"query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td1\t2\n{line}\n")

    assert told(load_qrels, file) == f"test.tsv:4: {message}"


def test_a_run_is_written_in_trec_form() -> None:
    lines = run_lines([("q1", [("d2", 0.75), ("d1", np.float32(0.1))]), ("q2", [])])

    assert list(lines) == ["q1 Q0 d2 1 0.75 ragidx\n", "q1 Q0 d1 2 0.10000000149011612 ragidx\n"]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            [("q1", [("a b.md", 1.0)])],
            "the document id 'a b.md' is empty or holds white space, which a TREC run cannot carry\n"
            "  hint: rename the file, or give ids without white space",
        ),
        (
            [("q\u00a01", [])],
            "the query id 'q\\xa01' is empty or holds white space, which a TREC run cannot carry\n"
            "  hint: rename the query, or give ids without white space",
        ),
    ],
)
def test_an_id_that_no_run_can_hold_is_refused(run: list, message: str) -> None:
    assert message_of(CorpusError, lambda: list(run_lines(run))) == message


def test_a_deeply_nested_line_is_a_fault_and_no_crash(tmp_path: Path) -> None:
    file = packed(tmp_path / "questions.jsonl", "[" * 100_000 + "\n" + json.dumps({"_id": "a", "text": "b"}))

    assert told(load_queries, file).startswith("questions.jsonl:1: the line is not JSON")
