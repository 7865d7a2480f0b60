"""Evaluation sets and runs: what is read, what is written, and every message."""

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import CorpusError, RagidxError, SpecError
from ragidx.corpora.evalsets import load_qrels, load_queries, load_sts, read_run, write_run

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


def test_files_that_are_missing_empty_or_broken_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(QUERIES.encode())[:-12])
    (tmp_path / "bad.jsonl.zst").write_bytes(b"not zstd at all")
    (tmp_path / "latin.jsonl").write_bytes(b'{"_id": "q1", "text": "x"}\n{"_id": "q2", "text": "\xe9"}')

    assert told(load_queries, tmp_path / "none.jsonl") == "none.jsonl: no such file\n  hint: check the path"
    assert told(load_queries, tmp_path / "empty.jsonl") == (
        "empty.jsonl: the file holds no query\n  hint: check that it is the right one"
    )
    assert told(load_queries, tmp_path / "latin.jsonl") == (
        "latin.jsonl:2: the line is not UTF-8\n  hint: write the file as UTF-8"
    )
    assert told(load_queries, tmp_path / "cut.jsonl.gz") == (
        "cut.jsonl.gz: the file cannot be read: Compressed file ended before the end-of-stream marker was reached\n"
        "  hint: create the file again"
    )
    assert told(load_queries, tmp_path / "bad.jsonl.zst") == (
        "bad.jsonl.zst: the file cannot be read: zstd decompress error: Unknown frame descriptor\n"
        "  hint: create the file again"
    )


def test_a_query_whose_id_no_run_can_hold_is_named(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"_id": "\\ud800", "text": "x"}')

    assert told(load_queries, tmp_path / "q.jsonl") == (
        "q.jsonl:1: the id '\\ud800' is not Unicode text\n  hint: give every query a string of its own as '_id'"
    )


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


def test_qrels_of_nothing_but_a_header_are_refused(tmp_path: Path) -> None:
    file = packed(tmp_path / "test.tsv", "query-id\tcorpus-id\tscore\n")

    assert told(load_qrels, file) == "test.tsv: the file holds no judgement\n  hint: check that it is the right one"


def test_sts_pairs_are_read(tmp_path: Path) -> None:
    file = packed(tmp_path / "test.tsv", 'score\tsentence1\tsentence2\n4.75\tA "b\tc\n0\td\te\n')

    assert load_sts(file) == load_sts(tmp_path) == [(4.75, 'A "b', "c"), (0.0, "d", "e")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sentence1\tsentence2\tscore\n",
            "test.tsv:1: the header is ['sentence1', 'sentence2', 'score']\n"
            "  hint: the first line is 'score', 'sentence1', 'sentence2' with tabs",
        ),
        (
            "score\tsentence1\tsentence2\n1\ta\n",
            "test.tsv:2: the line has 2 columns\n  hint: write score, sentence and sentence with tabs",
        ),
        (
            "score\tsentence1\tsentence2\nnan\ta\tb\n",
            "test.tsv:2: the score 'nan' is not a finite number\n  hint: write scores as decimal numbers",
        ),
        (
            "score\tsentence1\tsentence2\n",
            "test.tsv: the file holds no pair\n  hint: check that it is the right one",
        ),
    ],
)
def test_a_file_that_is_no_sts_is_named(tmp_path: Path, text: str, message: str) -> None:
    assert told(load_sts, packed(tmp_path / "test.tsv", text)) == message


def test_a_run_is_written_in_trec_form(tmp_path: Path) -> None:
    write_run(tmp_path / "run.trec", [("q1", [("d2", 0.75), ("d1", 0.1)]), ("q2", [])])

    assert (tmp_path / "run.trec").read_text() == "q1 Q0 d2 1 0.75 ragidx\nq1 Q0 d1 2 0.1 ragidx\n"
    assert [path.name for path in tmp_path.iterdir()] == ["run.trec"]


ids = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=5)
scores = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.slow
@given(run=st.dictionaries(ids, st.dictionaries(ids, scores, min_size=1, max_size=5), max_size=4))
def test_a_run_comes_back_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, run: dict) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.trec"
    ordered = {query: dict(sorted(hits.items(), key=lambda hit: -hit[1])) for query, hits in run.items()}

    write_run(path, ((query, hits.items()) for query, hits in ordered.items()))

    assert read_run(path) == ordered
    assert [list(hits) for hits in read_run(path).values()] == [list(hits) for hits in ordered.values()]


def test_a_run_that_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    path = packed(tmp_path / "run.trec", "old\n")

    assert message_of(CorpusError, lambda: write_run(path, [("q1", [("d1", 1.0)]), ("q2", [("a b.md", 1.0)])])) == (
        "the document id 'a b.md' is empty or holds white space, which a TREC run cannot carry\n"
        "  hint: rename the file, or give ids without white space"
    )
    assert path.read_text() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["run.trec"]


def test_a_query_id_with_white_space_is_refused(tmp_path: Path) -> None:
    assert message_of(CorpusError, lambda: write_run(tmp_path / "run.trec", [("q\u00a01", [])])) == (
        "the query id 'q\\xa01' is empty or holds white space, which a TREC run cannot carry\n"
        "  hint: rename the query, or give ids without white space"
    )


@pytest.mark.parametrize("name", ["", "two words"])
def test_the_name_of_a_run_is_one_word(tmp_path: Path, name: str) -> None:
    said = message_of(SpecError, lambda: write_run(tmp_path / "run.trec", [], name))

    assert said == f"the run's name {name!r} is empty or holds white space\n  hint: give one word"


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ([("q", [("a", 1.0), ("b", 2.0)])], "rank 2 of query 'q': 'b' 2.0 after a score of 1.0"),
        ([("q", [("a", float("nan"))])], "rank 1 of query 'q': 'a' nan after a score of inf"),
        ([("q", [("a", 1.0), ("a", 1.0)])], "rank 2 of query 'q': 'a' 1.0 after a score of 1.0"),
        ([("q", []), ("q", [])], "query 'q' appears twice in the run"),
    ],
)
def test_hits_out_of_order_are_a_programmers_mistake(tmp_path: Path, run: list, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        write_run(tmp_path / "run.trec", run)


def test_a_run_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(RagidxError) as missing:
        write_run(tmp_path / "none" / "run.trec", [])
    with pytest.raises(RagidxError) as folder:
        write_run(tmp_path, [])

    assert str(missing.value) == (
        f"{tmp_path / 'none' / 'run.trec'}: the run cannot be written: No such file or directory\n"
        "  hint: choose another place, or free space"
    )
    assert str(folder.value) == (
        f"{tmp_path}: the run cannot be written: Is a directory\n  hint: choose another place, or free space"
    )


def test_a_pipe_is_written_straight_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    write_run(pipe, [("q", [("d", 1.0)])])

    assert os.read(reading, 100) == b"q Q0 d 1 1.0 ragidx\n"
    assert pipe.is_fifo()
    os.close(reading)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 d1 1", "the line has 3 columns\n  hint: a TREC run has six: query Q0 document rank score name"),
        ("q1 Q0 d2 2 inf x", "the score 'inf' is not a finite number\n  hint: write scores as decimal numbers"),
        ("q1 Q0 d1 2 0.5 x", "document 'd1' appears twice for query 'q1'\n  hint: keep one of them"),
    ],
)
def test_a_line_that_is_no_hit_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = packed(tmp_path / "run.trec", f"q1 Q0 d1 1 0.9 x\n{line}\n")

    assert told(read_run, file) == f"run.trec:2: {message}"


def test_a_deeply_nested_line_is_a_fault_and_no_crash(tmp_path: Path) -> None:
    file = packed(tmp_path / "questions.jsonl", "[" * 100_000 + "\n" + json.dumps({"_id": "a", "text": "b"}))

    assert told(load_queries, file).startswith("questions.jsonl:1: the line is not JSON")
