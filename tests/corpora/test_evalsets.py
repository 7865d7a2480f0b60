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
from ragidx.corpora.evalsets import (
    SentencePairs,
    has_pairs,
    has_queries,
    load_pairs,
    load_qrels,
    load_queries,
    load_run,
    place_in_qrels,
    run_lines,
)

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
        (
            r'{"_id": "q", "text": "who \ud800"}',
            "the text of query 'q' is no Unicode text at character 4\n  hint: repair the text",
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
        f"{tmp_path / 'queries.jsonl'}: no such file\n  hint: name it queries.jsonl, queries.tsv, topics.tsv,"
        " topics.txt, topics.xml, with .gz or .zst behind or not; the folder holds no file"
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
        ("q1\td9\t1_0", "the relevance '1_0' is not an integer\n  hint: grades are whole numbers, 0: not relevant"),
        ("q1\td9\t0.5", "the relevance '0.5' is not an integer\n  hint: grades are whole numbers, 0: not relevant"),
        (
            "q1\td9\t10001",
            "the relevance 10001 is more than 10,000\n  hint: grades are small whole numbers, 0: not relevant",
        ),
        ("q1\td1\t1", "query 'q1' and document 'd1' are judged twice, with different grades\n  hint: keep one of them"),
    ],
)
def test_a_line_that_is_no_judgement_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = packed(tmp_path / "test.tsv", f"query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td1\t2\n{line}\n")

    assert told(load_qrels, file) == f"test.tsv:4: {message}"


def test_a_split_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    packed(tmp_path / "qrels" / "train.tsv", "q1\td1\t1\n")

    assert message_of(CorpusError, lambda: load_qrels(tmp_path)) == (
        f"{tmp_path / 'qrels' / 'test.tsv'}: no such file\n  hint: name it test.tsv, qrels.tsv, qrels.txt, qrels,"
        " with .gz or .zst behind or not; the folder holds train.tsv"
    )


def test_the_place_of_a_judgement_is_the_first_line_with_the_id(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    text = "query-id\tcorpus-id\tscore\n1\t7\t1\n\n1\t2\t1\n2\t2\t1\n"
    file = packed(tmp_path / "qrels" / "dev.tsv", text)

    assert place_in_qrels(tmp_path, "2", split="dev") == f"{file}:4"
    assert place_in_qrels(file, "2", is_query=True) == f"{file}:5"


# topics


def test_queries_are_read_from_lines_of_id_and_text(tmp_path: Path) -> None:
    file = packed(tmp_path / "queries.tsv", "query_id\ttitle\tdescription\n7\twho signed?\tlong\n8\twhen? \n")

    assert load_queries(file) == load_queries(tmp_path) == {"7": "who signed?", "8": "when?"}


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_the_titles_of_trecs_topics_are_queries(tmp_path: Path, ending: str) -> None:
    text = (
        "<top>\n<num> Number: 301\n<title> International\n Organized Crime\n\n<desc> Description:\nIdentify\n</top>\n\n"
        "<TOP><NUM>302</NUM><TITLE>R&amp;D</TITLE></TOP>\n<top>\n<num>303\n<title>Topic: Hubble\n"
    )

    assert load_queries(packed(tmp_path / f"topics.txt{ending}", text)) == {
        "301": "International Organized Crime",
        "302": "R&D",
        "303": "Hubble",
    }


def test_topics_with_a_number_as_attribute_are_read(tmp_path: Path) -> None:
    text = '<?xml version="1.0"?>\n<topics>\n<topic number="1">\n<query>virus origin</query>\n</topic>\n</topics>\n'

    assert load_queries(packed(tmp_path / "topics.xml", text)) == load_queries(tmp_path) == {"1": "virus origin"}


def test_a_topic_without_a_title_is_named_by_the_line_it_begins_on(tmp_path: Path) -> None:
    file = packed(tmp_path / "t.txt", "<top>\n<num>1\n<title>a\n</top>\n<top>\n<num>2\n<desc>b\n</top>\n")

    assert told(load_queries, file) == "t.txt:5: the topic has no <num> or no <title>\n  hint: give each topic both"


@pytest.mark.parametrize("line", ["q2 who signed?", "q2\t ", "\ttext"])
def test_a_line_without_id_or_text_is_named(tmp_path: Path, line: str) -> None:
    assert told(load_queries, packed(tmp_path / "q.tsv", f"q1\ttext\n{line}\n")) == (
        f"q.tsv:2: the line is not an id, a tab and a text\n  hint: {A_QUERY}; or an id, a tab and the text"
    )


def test_what_ir_datasets_exports_is_read(tmp_path: Path) -> None:
    packed(
        tmp_path / "queries.jsonl",
        '{"query_id": "1", "text": "a"}\n{"query_id": "2", "title": "b", "narrative": "c"}\n',
    )
    packed(tmp_path / "qrels", "1 0 d1 2\n2 Q0 d2 0\n")

    assert has_queries(tmp_path)
    assert load_queries(tmp_path) == {"1": "a", "2": "b"}
    assert load_qrels(tmp_path) == {"1": {"d1": 2}, "2": {"d2": 0}}


def test_a_folder_without_queries_has_none(tmp_path: Path) -> None:
    assert not has_queries(tmp_path)


# pairs

TWO = SentencePairs(["A girl sings.", "Two, or more."], ["A girl is singing.", "None"], [4.5, 0.0])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("test.tsv", "4.5\tA girl sings.\tA girl is singing.\n0\tTwo, or more.\tNone\n"),
        ("test.tsv.gz", "score\tsentence1\tsentence2\n4.5\tA girl sings.\tA girl is singing.\n"
                        "0\tTwo, or more.\tNone\n"),
        ("test.tsv", "id\tsentence2\tsentence1\tscore\n7\tA girl is singing.\tA girl sings.\t4.5\n"
                     "8\tNone\tTwo, or more.\t0\n"),
        ("test.csv", 'score,sentence1,sentence2\n4.5,A girl sings.,A girl is singing.\n0,"Two, or more.",None\n'),
        ("sts-test.csv", "main-captions\tMSRvid\t2012test\t0024\t4.5\tA girl sings.\tA girl is singing.\n"
                         "main-news\theadlines\t2015\t001\t0\tTwo, or more.\tNone\textra\n"),
        ("test.jsonl.zst", '{"score": 4.5, "sentence1": "A girl sings.", "sentence2": "A girl is singing."}\n'
                           '{"sentence2": "None", "sentence1": "Two, or more.", "score": 0}\n'),
    ],
)  # fmt: skip
def test_pairs_are_read_from_a_file_and_from_its_folder(tmp_path: Path, name: str, text: str) -> None:
    file = packed(tmp_path / name, text)

    assert has_pairs(tmp_path, "test")
    assert not has_pairs(tmp_path, "dev")
    assert load_pairs(file) == load_pairs(tmp_path) == TWO


A_PAIR = "write a score and two sentences, with tabs between them"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("4.5\tA girl sings.", "the line has 2 columns"),
        ("high\ta\tb", "the score 'high' is not a number"),
        ("1_0\ta\tb", "the score '1_0' is not a number"),
        ("nan\ta\tb", "the score 'nan' is not finite"),
        ("4.5\ta\t ", "'sentence2' is empty"),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = packed(tmp_path / "sts.tsv", f"score\tsentence1\tsentence2\n1\ta\tb\n{line}\n")

    assert told(load_pairs, file) == f"sts.tsv:3: {message}\n  hint: {A_PAIR}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"score": 1, "sentence1": "a"}', "the field 'sentence2' is missing (found: 'score', 'sentence1')\n"
                                           f"  hint: {A_PAIR}"),
        (r'{"score": 1, "sentence1": "a", "sentence2": "\udc00"}', "a sentence is no Unicode text\n"
                                                                    "  hint: repair the text"),
        ("4.5", 'the line is not a JSON object but 4.5\n  hint: write one JSON object a line: {"score": 4.2,'
                ' "sentence1": "...", "sentence2": "..."}'),
    ],
)  # fmt: skip
def test_a_record_that_is_no_pair_is_named(tmp_path: Path, line: str, message: str) -> None:
    first = '{"score": 1, "sentence1": "a", "sentence2": "b"}'

    assert told(load_pairs, packed(tmp_path / "sts.jsonl", f"{first}\n{line}\n")) == f"sts.jsonl:2: {message}"


def test_a_header_without_a_score_is_named(tmp_path: Path) -> None:
    assert told(load_pairs, packed(tmp_path / "sts.tsv", "sentence1\tsentence2\tlabel\na\tb\t1\n")) == (
        f"sts.tsv:1: no column is named 'score' (there are: sentence1, sentence2, label)\n  hint: {A_PAIR}"
    )


# runs


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_the_run_of_any_tool_is_read(tmp_path: Path, ending: str) -> None:
    file = packed(tmp_path / f"bm25.run{ending}", "q1 Q0 d2 1 0.75 tool\nq1\t0\td1\t2\t-1e-3\ttool\nq2 Q0 d1 0 3 t\n")

    assert load_run(file) == {"q1": {"d2": 0.75, "d1": -0.001}, "q2": {"d1": 3.0}}


def test_a_run_that_was_written_is_read_as_it_was(tmp_path: Path) -> None:
    run = {"q1": {"d2": 1 / 3, "d1": 0.1}, "q2": {"d1": -2.0}}
    lines = run_lines((query_id, hits.items()) for query_id, hits in run.items())

    assert load_run(packed(tmp_path / "own.run", "".join(lines))) == run


A_HIT = "write `query Q0 document rank score tag`, with spaces between them"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 Q0 d2 2 0.5", f"the line has 5 columns\n  hint: {A_HIT}"),
        ("q1 Q0 d2 2 high tag", f"the score 'high' is not a number\n  hint: {A_HIT}"),
        (
            "q1 Q0 d2 2 -1e39 tag",
            "the score '-1e39' is more than float32 holds, in which runs are ranked\n  hint: write smaller ones",
        ),
        ("q1 Q0 d2 2 inf tag", f"the score 'inf' is not finite\n  hint: {A_HIT}"),
        ("q1 Q0 d1 2 0.5 tag", "the document 'd1' appears twice for the query 'q1'\n  hint: keep one of them"),
    ],
)
def test_a_line_that_is_no_hit_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = packed(tmp_path / "a.run", f"q1 Q0 d1 1 0.7 tag\n{line}\n")

    assert told(load_run, file) == f"a.run:2: {message}"


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
