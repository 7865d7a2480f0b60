"""Evaluation sets and runs: queries, judgements, pairs of sentences with scores, runs.

    queries.jsonl  {"_id": "q1", "text": "who signed?"}         -> {"q1": "who signed?"}
    topics         q1<tab>who signed?, or <top> ... </top>       -> {"q1": "who signed?"}
    qrels/*.tsv    query-id  corpus-id  score (BEIR), or TREC    -> {"q1": {"d1": 2}}
    test.tsv       score  sentence1  sentence2                   -> Pairs
    run.txt        q1 Q0 d1 1 0.75 tag (TREC)                    -> {"q1": {"d1": 0.75}}, and back

Also what `ir_datasets export` writes. Files may end in .gz or .zst. Lines end with LF alone (U+2028 is text). Faults of
a file are reported together. Measures are not computed here, and the corpus of a folder is read as any other corpus.
"""

from __future__ import annotations

import csv
import html
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ragidx.corpora.errors import CorpusError, lone_surrogate
from ragidx.corpora.evalset_files import LineError, file_at, is_file, lines_of, take_lines

Qrels: TypeAlias = dict[str, dict[str, int]]
"""query id -> document id -> relevance."""

Run: TypeAlias = dict[str, dict[str, float]]
"""query id -> document id -> score, higher is better."""


class SentencePairs(NamedTuple):
    """Pairs of sentences, and how alike people find those of a pair."""

    first: list[str]
    second: list[str]
    scores: list[float]


_QUERIES = ("queries.jsonl", "queries.tsv", "topics.tsv", "topics.txt", "topics.xml")
_QRELS = ("qrels.tsv", "qrels.txt", "qrels")
_PAIRS = ("{}.tsv", "{}.csv", "{}.jsonl", "sts-{}.tsv", "sts-{}.csv")

_IDS = ("_id", "id", "query_id")
_TEXTS = ("text", "query", "title")  # TREC's topics have the latter two
_HEADS = ("query-id", "query_id", "qid")
_COLUMNS = ("score", "sentence1", "sentence2")
_STS = (4, 5, 6)  # the places of these in the files of STS-Benchmark, which have no header

_MOST = 3.4028234e38
_MOST_GRADE = 10_000  # libraries of measures count documents by grade

_A_PAIR = "write a score and two sentences, with tabs between them"
_A_HIT = "write `query Q0 document rank score tag`, with spaces between them"
_A_QUERY = 'write one JSON object a line: {"_id": "q1", "text": "..."}'


def load_queries(path: str | os.PathLike[str]) -> dict[str, str]:
    """Query id -> text, in the order of the file.

    Args:
        path: a file of JSON lines with `_id`, `id` or `query_id`, and `text`, `query` or `title`; of lines of id, tab
            and text, further columns not being read; or of TREC topics, of which the title or query is read. Or a
            folder that holds `queries.jsonl`, `queries.tsv` or `topics.txt`, say.

    Raises:
        CorpusError: the file is missing, unreadable or empty, or has lines that are not queries.
    """
    file = file_at(Path(path), *_QUERIES)
    queries: dict[str, str] = {}
    first = next((line for _, line in lines_of(file)), "").lstrip()
    is_topics = first.startswith("<")
    is_json = first.startswith("{") or ".jsonl" in file.suffixes
    as_query = _query if is_json else _topic if is_topics else _tabbed_query

    def add(line: str) -> None:
        query_id, text = as_query(line)
        if query_id in queries:
            raise LineError(f"the query '{query_id}' appears twice", "keep one of them")
        queries[query_id] = text

    take_lines(file, "query", _topics(file) if is_topics else _without_head(file), add)
    return queries


def has_queries(folder: Path) -> bool:
    """Whether `load_queries` finds a file in a folder."""
    return any(is_file(folder / name) for name in _QUERIES)


def has_qrels(folder: Path, split: str = "test") -> bool:
    """Whether `load_qrels` finds a file in a folder, or a folder of such files."""
    return (folder / "qrels").is_dir() or any(is_file(folder / name) for name in (f"{split}.tsv", *_QRELS))


def load_qrels(path: str | os.PathLike[str], *, split: str = "test") -> Qrels:
    """Judged pairs: query id -> document id -> relevance.

    Args:
        path: a BEIR file (tab separated, with a header), a TREC file (`query 0 document relevance`), a BEIR folder, of
            which `qrels/<split>.tsv` is read, or a folder that holds `<split>.tsv`, `qrels.tsv`, `qrels.txt` or
            `qrels`.
        split: name of a split: one file of a folder.

    Raises:
        CorpusError: the file is missing, unreadable or empty, has lines that are not judgements, or judgements differ.
    """
    file = _qrels_file(Path(path), split)
    qrels: Qrels = {}

    def add(line: str) -> None:
        query_id, doc_id, relevance = _judgement(line)
        if qrels.setdefault(query_id, {}).setdefault(doc_id, relevance) != relevance:
            pair = f"query '{query_id}' and document '{doc_id}'"
            raise LineError(f"{pair} are judged twice, with different grades", "keep one of them")

    take_lines(file, "judgement", _without_head(file), add)
    return qrels


def place_in_qrels(path: str | os.PathLike[str], name: str, *, is_query: bool = False, split: str = "test") -> str:
    """The file and line of the first judgement of a document, or of a query: `qrels/test.tsv:17`.

    Args:
        path: as for `load_qrels`, which has read it.
        name: the id of the document or the query.
        is_query: whether the id is that of a query; else that of a document.
        split: name of a split: one file of a folder.
    """
    file = _qrels_file(Path(path), split)
    column = 0 if is_query else 1
    lines = (number for number, line in _without_head(file) if _judgement(line)[column] == name)
    return f"{file}:{next(lines, 1)}"


def load_pairs(path: str | os.PathLike[str], *, split: str = "test") -> SentencePairs:
    """Pairs of sentences with scores, a pair a line.

    Args:
        path: a file of columns, separated by tabs or, where there is none, by commas: score, sentence and sentence; or
            those of STS-Benchmark; or others, with a header that names `score`, `sentence1` and `sentence2`. Or JSON
            lines with these names. Or a folder, of which the file of the split is read: `test.tsv`, `sts-test.csv`.
        split: name of a split: one file of a folder.

    Raises:
        CorpusError: the file is missing, unreadable or empty, or has lines that are not pairs.
    """
    file = file_at(Path(path), *_pair_files(split))
    pairs = SentencePairs([], [], [])
    first = next((line for _, line in lines_of(file)), "")
    as_json, split_line = first.lstrip().startswith("{"), _tabbed if "\t" in first else _comma_separated
    try:
        head = [] if as_json else split_line(first)
    except LineError:  # it is named with its number when it is read
        head = []
    has_head = bool({"sentence1", "sentence2"}.intersection(head))
    places = (0, 1, 2)

    def add(line: str) -> None:
        cells = _json_cells(line) if as_json else split_line(line)
        if len(cells) <= max(places):
            raise LineError(f"the line has {len(cells)} {'column' if len(cells) == 1 else 'columns'}", _A_PAIR)
        score, *sentences = (cells[place] for place in places)
        if empty := [name for name, text in zip(_COLUMNS[1:], sentences, strict=True) if not text.strip()]:
            raise LineError(f"'{empty[0]}' is empty", _A_PAIR)
        if lone_surrogate("".join(sentences)) is not None:
            raise LineError("a sentence is no Unicode text", "repair the text")
        pairs.scores.append(_number(score, "score", _A_PAIR))
        pairs.first.append(sentences[0])
        pairs.second.append(sentences[1])

    lines = lines_of(file)
    if has_head:
        number, _ = next(lines)
        missing = [name for name in _COLUMNS if name not in head]
        if missing:
            columns = f"no column is named '{missing[0]}' (there are: {', '.join(head)})"
            raise CorpusError(columns, _A_PAIR, where=f"{file}:{number}")
        places = (head.index("score"), head.index("sentence1"), head.index("sentence2"))
    elif len(head) > max(_STS) and not _is_number(head[0]):
        places = _STS
    take_lines(file, "pair", lines, add)
    return pairs


def has_pairs(folder: Path, split: str) -> bool:
    """Whether `load_pairs` finds a file in a folder."""
    return any(is_file(folder / name) for name in _pair_files(split))


def load_run(path: str | os.PathLike[str]) -> Run:
    """What some system found: query id -> document id -> score.

    Args:
        path: a TREC run, `query Q0 document rank score tag`.

    Raises:
        CorpusError: the file is missing, unreadable or empty, has lines that are not of a run, or has a document twice.
    """
    file = file_at(Path(path))
    run: Run = {}

    def add(line: str) -> None:
        columns = line.split()
        if len(columns) != 6:
            raise LineError(f"the line has {len(columns)} columns", _A_HIT)
        query_id, _, doc_id, _, score, _ = columns
        if doc_id in run.setdefault(query_id, {}):
            raise LineError(f"the document '{doc_id}' appears twice for the query '{query_id}'", "keep one of them")
        value = run[query_id][doc_id] = _number(score, "score", _A_HIT)
        if abs(value) > _MOST:
            raise LineError(
                f"the score {score!r} is more than float32 holds, in which runs are ranked", "write smaller ones"
            )

    take_lines(file, "hit", lines_of(file), add)
    return run


def run_lines(run: Iterable[tuple[str, Iterable[tuple[str, float]]]]) -> Iterator[str]:
    """Lines `query Q0 document rank score ragidx`: ranks from 1, scores with all their digits.

    Args:
        run: query id -> document id -> score, best first.

    Raises:
        CorpusError: an id is empty or holds white space, which the format cannot carry.
    """
    for query_id, hits in run:
        _refuse_white_space(query_id, "query", "rename the query")
        for rank, (doc_id, score) in enumerate(hits, start=1):
            _refuse_white_space(doc_id, "document", "rename the file")
            yield f"{query_id} Q0 {doc_id} {rank} {float(score)!r} ragidx\n"


def _refuse_white_space(name: str, what: str, hint: str) -> None:
    if name.split() != [name]:
        raise CorpusError(
            f"the {what} id {name!r} is empty or holds white space, which a TREC run cannot carry",
            f"{hint}, or give ids without white space",
        )


def _qrels_file(path: Path, split: str) -> Path:
    return file_at(path / "qrels" if (path / "qrels").is_dir() else path, f"{split}.tsv", *_QRELS)


def _pair_files(split: str) -> list[str]:
    return [name.format(split) for name in _PAIRS]


def _without_head(file: Path) -> Iterator[tuple[int, str]]:
    """The lines but for a first one that names the columns."""
    return ((number, line) for number, line in lines_of(file) if number > 1 or line.split("\t")[0] not in _HEADS)


def _topics(file: Path) -> Iterator[tuple[int, str]]:
    """The whole of each of TREC's topics, with the number of the line it begins on."""
    begun, parts = 0, [""]
    for number, line in itertools.chain(lines_of(file), [(0, "<top>")]):
        if _TOP.match(line):
            if begun:
                yield begun, "\n".join(parts)
            begun, parts = number, []
        parts.append(line)


_TOP = re.compile(r"\s*<top(?:ic)?[\s>]", re.IGNORECASE)
_NUM = re.compile(r"<num>\s*(?:Number:)?\s*([^\s<]+)|<topic\b[^>]*\bnumber=[\"']([^\"']+)", re.IGNORECASE)
_TITLE = re.compile(r"<(?:title|query)>\s*(?:Topic:)?([^<]*)", re.IGNORECASE)


def _topic(topic: str) -> tuple[str, str]:
    number, title = _NUM.search(topic), _TITLE.search(topic)
    text = " ".join(html.unescape(title[1]).split()) if title else ""
    if number is None or not text:
        raise LineError("the topic has no <num> or no <title>", "give each topic both")
    return number[1] or number[2], text


def _tabbed_query(line: str) -> tuple[str, str]:
    query_id, text = (*line.split("\t"), "")[:2]
    if not query_id.strip() or not text.strip():
        raise LineError("the line is not an id, a tab and a text", f"{_A_QUERY}; or an id, a tab and the text")
    return query_id.strip(), text.strip()


def _tabbed(line: str) -> list[str]:
    return line.split("\t")


def _comma_separated(line: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error as fault:
        raise LineError(f"the line is not comma-separated ({fault})", _A_PAIR) from fault


def _json_cells(line: str) -> list[str]:
    record = _record(line, '{"score": 4.2, "sentence1": "...", "sentence2": "..."}')
    if missing := [name for name in _COLUMNS if name not in record]:
        raise LineError(f"the field '{missing[0]}' is missing (found: {_named(record)})", _A_PAIR)
    return [str(record[name]) for name in _COLUMNS]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(_plain(text)))
    except ValueError:
        return False


def _plain(text: str) -> str:
    """The text of a number, without what Python alone reads as one.

    Raises:
        ValueError: it has an underscore.
    """
    if "_" in text:  # 1_0 is 10 to Python, and to no other program
        raise ValueError(text)
    return text


def _number(text: str, what: str, hint: str) -> float:
    try:
        value = float(_plain(text))
    except ValueError as fault:
        raise LineError(f"the {what} {text!r} is not a number", hint) from fault
    if not math.isfinite(value):
        raise LineError(f"the {what} {text!r} is not finite", hint)
    return value


def _query(line: str) -> tuple[str, str]:
    record = _record(line, '{"_id": "q1", "text": "..."}')
    query_id = next((record[name] for name in _IDS if record.get(name) is not None), None)
    if query_id is None:
        raise LineError(f"the field '_id' is missing (found: {_named(record)})", "give every query '_id' and 'text'")
    text_field = next((name for name in _TEXTS if name in record), None)
    if text_field is None:
        raise LineError(
            f"the field 'text' is missing (found: {_named(record)})", "rename the field that holds the query to 'text'"
        )
    text = record[text_field]
    if isinstance(query_id, bool) or not isinstance(query_id, str | int):
        raise LineError(f"the id {query_id!r} is not a string", "give every query a string of its own as '_id'")
    if lone_surrogate(str(query_id)) is not None:
        raise LineError(f"the id {query_id!a} is not Unicode text", "give every query a string of its own as '_id'")
    if not isinstance(text, str) or not text.strip():
        raise LineError(f"the text of query '{query_id}' is {text!r}", "give every query a text")
    if (at := lone_surrogate(text)) is not None:
        raise LineError(f"the text of query '{query_id}' is no Unicode text at character {at}", "repair the text")
    return str(query_id), text


def _record(line: str, example: str) -> dict[str, Any]:
    hint = f"write one JSON object a line: {example}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as fault:
        raise LineError(f"the line is not JSON ({fault})", hint) from fault
    if not isinstance(record, dict):
        raise LineError(f"the line is not a JSON object but {line[:40]}", hint)
    return record


def _named(record: dict[str, Any]) -> str:
    return ", ".join(f"'{name}'" for name in record) or "none"


def _judgement(line: str) -> tuple[str, str, int]:
    columns = line.split("\t") if line.count("\t") == 2 else line.split()
    if len(columns) not in (3, 4):
        raise LineError(
            f"the line has {len(columns)} columns",
            "write query, document and relevance with tabs, or TREC's four columns",
        )
    query_id, doc_id, grade = columns[0], columns[-2], columns[-1]
    try:
        relevance = int(_plain(grade))
    except ValueError as fault:
        raise LineError(
            f"the relevance {grade!r} is not an integer", "grades are whole numbers, 0: not relevant"
        ) from fault
    if relevance > _MOST_GRADE:
        raise LineError(
            f"the relevance {grade} is more than {_MOST_GRADE:,}", "grades are small whole numbers, 0: not relevant"
        )
    return query_id, doc_id, relevance
