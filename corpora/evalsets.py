"""Evaluation sets and runs: queries, judgements, pairs of sentences with scores, runs.

    queries.jsonl  {"_id": "q1", "text": "who signed?"}         -> {"q1": "who signed?"}
    topics         q1<tab>who signed?, or <top> ... </top>       -> {"q1": "who signed?"}
    qrels/*.tsv    query-id  corpus-id  score (BEIR), or TREC    -> {"q1": {"d1": 2}}
    test.tsv       score  sentence1  sentence2                   -> Pairs
    run.txt        q1 Q0 d1 1 0.75 tag (TREC)                    -> {"q1": {"d1": 0.75}}, and back

Files may end in .gz or .zst. Lines end with LF alone (U+2028 is text). Faults of a file are reported together.
Measures are not computed here, and the corpus of a BEIR folder is read as any other corpus.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from ragidx.corpora.errors import CorpusError, check_machine, lone_surrogate

Qrels: TypeAlias = dict[str, dict[str, int]]
"""query id -> document id -> relevance."""

Run: TypeAlias = dict[str, dict[str, float]]
"""query id -> document id -> score, higher is better."""


class Pairs(NamedTuple):
    """Pairs of sentences, and how alike people find those of a pair."""

    first: list[str]
    second: list[str]
    scores: list[float]


_ENDINGS = ("", ".gz", ".zst")
QUERY_FILES = ("queries.jsonl", "queries.tsv", "topics.txt")
QREL_FILES = ("qrels.tsv", "qrels.txt", "qrels")

_FAULTS_SHOWN = 10
_A_PAIR = "write a score and two sentences, with tabs between them"
_A_HIT = "write `query Q0 document rank score tag`, with spaces between them"
_A_QUERY = 'write one JSON object a line: {"_id": "q1", "text": "..."}'


class _FaultError(Exception):
    """One line cannot be read; `_take` collects these."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def load_queries(path: str | os.PathLike[str]) -> dict[str, str]:
    """Query id -> text, in the order of the file.

    Args:
        path: a JSONL file with `_id` (or `id`) and `text`, lines of id, tab and text, TREC topics, of which the title
            is the query, or a folder that holds one of `QUERY_FILES`.

    Raises:
        CorpusError: the file is missing, unreadable or empty, or has lines that are not queries.
    """
    file = _file(Path(path), *QUERY_FILES)
    queries: dict[str, str] = {}
    first = next((line for _, line in _lines(file)), "").lstrip()
    as_query = _query if first.startswith("{") else _tabbed_query

    def add(line: str) -> None:
        query_id, text = as_query(line)
        if query_id in queries:
            raise _FaultError(f"the query '{query_id}' appears twice", "keep one of them")
        queries[query_id] = text

    _take(file, "query", _topics(file) if first.startswith("<") else _lines(file), add)
    return queries


def load_qrels(path: str | os.PathLike[str], *, split: str = "test") -> Qrels:
    """Judged pairs: query id -> document id -> relevance.

    Args:
        path: a BEIR file (tab separated, with a header), a TREC file (`query 0 document relevance`), a BEIR
            folder, of which `qrels/<split>.tsv` is read, or a folder that holds one of `QREL_FILES`.
        split: which file of a folder.

    Raises:
        CorpusError: the file is missing, unreadable or empty, has lines that are not judgements, or judgements differ.
    """
    folder = Path(path)
    file = _file(folder / "qrels" if (folder / "qrels").is_dir() else folder, f"{split}.tsv", *QREL_FILES)
    qrels: Qrels = {}

    def add(line: str) -> None:
        query_id, doc_id, relevance = _judgement(line)
        if qrels.setdefault(query_id, {}).setdefault(doc_id, relevance) != relevance:
            pair = f"query '{query_id}' and document '{doc_id}'"
            raise _FaultError(f"{pair} are judged twice, with different grades", "keep one of them")

    lines = ((number, line) for number, line in _lines(file) if number > 1 or line.split("\t")[0] != "query-id")
    _take(file, "judgement", lines, add)
    return qrels


def load_pairs(path: str | os.PathLike[str], *, split: str = "test") -> Pairs:
    """Pairs of sentences with scores, as of STS-Benchmark.

    Args:
        path: a file of score, sentence and sentence, separated by tabs, or by commas where it ends in .csv; a header
            may name the columns `score`, `sentence1` and `sentence2`, in any order and among others. Or a folder, of
            which `<split>.tsv` or `<split>.csv` is read.
        split: which file of a folder.

    Raises:
        CorpusError: the file is missing, unreadable or empty, or has lines that are not pairs.
    """
    file = _file(Path(path), f"{split}.tsv", f"{split}.csv")
    separated = "," if ".csv" in file.suffixes else "\t"
    pairs, places = Pairs([], [], []), [0, 1, 2]

    def add(line: str) -> None:
        columns = next(csv.reader([line], delimiter=separated)) if separated == "," else line.split(separated)
        if not pairs.scores and "sentence1" in columns:
            places[:] = [_place(columns, name) for name in ("score", "sentence1", "sentence2")]
            return
        if len(columns) <= max(places):
            raise _FaultError(f"the line has {len(columns)} columns", _A_PAIR)
        score, first, second = (columns[place] for place in places)
        pairs.scores.append(_number(score, "score", _A_PAIR))
        pairs.first.append(first)
        pairs.second.append(second)

    _take(file, "pair", _lines(file), add)
    return pairs


def load_run(path: str | os.PathLike[str]) -> Run:
    """What some system found: query id -> document id -> score.

    Args:
        path: a TREC run, `query Q0 document rank score tag`.

    Raises:
        CorpusError: the file is missing, unreadable or empty, has lines that are not of a run, or has a document twice.
    """
    file = _file(Path(path))
    run: Run = {}

    def add(line: str) -> None:
        columns = line.split()
        if len(columns) != 6:
            raise _FaultError(f"the line has {len(columns)} columns", _A_HIT)
        query_id, _, doc_id, _, score, _ = columns
        if doc_id in run.setdefault(query_id, {}):
            raise _FaultError(f"the document '{doc_id}' appears twice for the query '{query_id}'", "keep one of them")
        run[query_id][doc_id] = _number(score, "score", _A_HIT)

    _take(file, "hit", _lines(file), add)
    return run


def run_lines(run: Iterable[tuple[str, Iterable[tuple[str, float]]]]) -> Iterator[str]:
    """Lines `query Q0 document rank score ragidx`: ranks from 1, scores with all their digits.

    Args:
        run: for each query its documents and scores, best first.

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


def _file(path: Path, *names: str) -> Path:
    """`path` itself, or the first of some names in it, packed or not."""
    wanted = [path / name for name in names] if path.is_dir() else [path]
    for candidate in (one.with_name(one.name + ending) for one in wanted for ending in _ENDINGS):
        if candidate.exists() and not candidate.is_dir():
            return candidate
    hint = f"the folder holds no {' or '.join(names)}, .gz and .zst included" if path.is_dir() else "check the path"
    raise CorpusError("no such file", hint, where=str(wanted[0]))


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """(number, line) of the lines that are not blank; numbers start at 1."""
    number = 0
    try:
        with io.BufferedReader(pa.input_stream(str(file))) as stream:  # unpacked by the ending
            for number, raw in enumerate(stream, start=1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as fault:
        raise CorpusError("the line is not UTF-8", "write the file as UTF-8", where=f"{file}:{number}") from fault
    except OSError as fault:
        check_machine(fault, file)
        raise CorpusError(f"the file cannot be read: {fault}", "create the file again", where=str(file)) from fault


def _take(file: Path, what: str, lines: Iterable[tuple[int, str]], add: Callable[[str], None]) -> None:
    """Give each line to `add`.

    Raises:
        CorpusError: there is no line, or `add` refused some: at the end, with the first faults and their number.
    """
    faults: list[tuple[int, _FaultError]] = []
    number = 0
    for number, line in lines:
        try:
            add(line)
        except _FaultError as fault:
            faults.append((number, fault))
    if not number:
        raise CorpusError(f"the file holds no {what}", "check that it is the right one", where=str(file))
    if len(faults) == 1:
        raise CorpusError(str(faults[0][1]), faults[0][1].hint, where=f"{file}:{faults[0][0]}")
    if faults:
        shown = [f"\n  line {number}: {fault}" for number, fault in faults[:_FAULTS_SHOWN]]
        more = f"\n  and {len(faults) - _FAULTS_SHOWN} more" if len(faults) > _FAULTS_SHOWN else ""
        raise CorpusError(f"{len(faults)} lines have faults{''.join(shown)}{more}", faults[0][1].hint, where=str(file))


def _topics(file: Path) -> Iterator[tuple[int, str]]:
    """Each of TREC's topics as a line of its number, a tab and its title; with the number of the line it begins on."""
    begun, parts = 0, list[str]()
    for number, line in _lines(file):
        if _TOP.match(line):
            begun, parts = number, []
        parts.append(line)
        if begun and _END.search(line):
            whole = "\n".join(parts)
            name, title = _NUM.search(whole), _TITLE.search(whole)
            yield begun, f"{name[1] if name else ''}\t{' '.join(title[1].split()) if title else ''}"
            begun = 0


_TOP, _END = re.compile(r"\s*<top>", re.IGNORECASE), re.compile(r"</top>", re.IGNORECASE)
_NUM = re.compile(r"<num>\s*(?:Number:)?\s*([^\s<]+)", re.IGNORECASE)
_TITLE = re.compile(r"<title>\s*(?:Topic:)?([^<]*)", re.IGNORECASE)


def _tabbed_query(line: str) -> tuple[str, str]:
    query_id, tab, text = line.partition("\t")
    if not tab or not query_id.strip() or not text.strip():
        raise _FaultError("the line is not an id, a tab and a text", f"{_A_QUERY}; or an id, a tab and the text")
    return query_id.strip(), text.strip()


def _place(columns: list[str], name: str) -> int:
    if name not in columns:
        raise _FaultError(f"no column is named '{name}' (there are: {', '.join(columns)})", _A_PAIR)
    return columns.index(name)


def _number(text: str, what: str, hint: str) -> float:
    try:
        value = float(text)
    except ValueError as fault:
        raise _FaultError(f"the {what} {text!r} is not a number", hint) from fault
    if not math.isfinite(value):
        raise _FaultError(f"the {what} {text!r} is not finite", hint)
    return value


def _query(line: str) -> tuple[str, str]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as fault:
        raise _FaultError(f"the line is not JSON ({fault})", _A_QUERY) from fault
    if not isinstance(record, dict):
        raise _FaultError(f"the line is not a JSON object but {line[:40]}", _A_QUERY)
    found = ", ".join(f"'{name}'" for name in record) or "none"
    query_id = record.get("_id", record.get("id"))
    if query_id is None:
        raise _FaultError(f"the field '_id' is missing (found: {found})", "give every query '_id' and 'text'")
    if "text" not in record:
        raise _FaultError(
            f"the field 'text' is missing (found: {found})", "rename the field that holds the query to 'text'"
        )
    text = record["text"]
    if isinstance(query_id, bool) or not isinstance(query_id, str | int):
        raise _FaultError(f"the id {query_id!r} is not a string", "give every query a string of its own as '_id'")
    if lone_surrogate(str(query_id)) is not None:
        raise _FaultError(f"the id {query_id!a} is not Unicode text", "give every query a string of its own as '_id'")
    if not isinstance(text, str) or not text.strip():
        raise _FaultError(f"the text of query '{query_id}' is {text!r}", "give every query a text")
    return str(query_id), text


def _judgement(line: str) -> tuple[str, str, int]:
    columns = line.split("\t") if line.count("\t") == 2 else line.split()
    if len(columns) not in (3, 4):
        raise _FaultError(
            f"the line has {len(columns)} columns",
            "write query, document and relevance with tabs, or TREC's four columns",
        )
    query_id, doc_id, grade = columns[0], columns[-2], columns[-1]
    try:
        relevance = int(grade)
    except ValueError as fault:
        raise _FaultError(
            f"the relevance {grade!r} is not an integer", "grades are whole numbers, 0: not relevant"
        ) from fault
    return query_id, doc_id, relevance
