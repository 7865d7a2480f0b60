"""Evaluation sets and runs: BEIR queries and qrels, TREC qrels and runs, STS pairs.

    queries.jsonl  {"_id": "q1", "text": "who signed?"}         -> {"q1": "who signed?"}
    qrels/*.tsv    query-id  corpus-id  score (BEIR), or TREC    -> {"q1": {"d1": 2}}
    run            q1 Q0 d1 1 0.75 ragidx (TREC)                 <-> {"q1": {"d1": 0.75}}
    sts.tsv        score  sentence1  sentence2                   -> [(4.5, "...", "...")]

Each may end in .gz or .zst. Lines end with LF alone (U+2028 is text). Several faults of a file are reported together.
Measures are not computed here, and the corpus of a BEIR folder is read as any other corpus.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias, TypeVar

import zstandard

from ragidx.corpora.errors import CorpusError, RagidxError, SpecError, check_machine, lone_surrogate

Qrels: TypeAlias = dict[str, dict[str, int]]
"""query id -> document id -> relevance."""
Run: TypeAlias = dict[str, dict[str, float]]
"""query id -> document id -> score, best first."""

_ENDINGS = ("", ".gz", ".zst")
_FAULTS_SHOWN = 10
_A_QUERY = 'write one JSON object a line: {"_id": "q1", "text": "..."}'
_T = TypeVar("_T")


class _FaultError(Exception):
    """One line cannot be read; `_parsed` collects these."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def load_queries(path: str | os.PathLike[str]) -> dict[str, str]:
    """Query id -> text, in the order of the file.

    Args:
        path: a JSONL file with `_id` (or `id`) and `text`, or a BEIR folder that holds `queries.jsonl`.

    Raises:
        CorpusError: the file is missing, unreadable or empty, or has lines that are not queries.
    """
    file = _file(Path(path), "queries.jsonl")
    queries: dict[str, str] = {}
    for query_id, text in _parsed(file, _query, _lines(file)):
        queries[query_id] = text
    return _not_empty(queries, file, "query")


def load_qrels(path: str | os.PathLike[str], *, split: str = "test") -> Qrels:
    """Judged pairs: query id -> document id -> relevance.

    Args:
        path: a BEIR file (tab separated, with a header), a TREC file (`query 0 document relevance`), or a BEIR
            folder, of which `qrels/<split>.tsv` is read.
        split: which file of a folder.

    Raises:
        CorpusError: the file is missing, unreadable or empty, has lines that are not judgements, or judgements differ.
    """
    folder = Path(path)
    file = _file(folder / "qrels" if (folder / "qrels").is_dir() else folder, f"{split}.tsv")
    qrels: Qrels = {}
    for query_id, doc_id, relevance in _parsed(file, _judgement, _after_header(_lines(file), "query-id")):
        qrels.setdefault(query_id, {})[doc_id] = relevance
    return _not_empty(qrels, file, "judgement")


def load_sts(path: str | os.PathLike[str]) -> list[tuple[float, str, str]]:
    """(score, sentence, sentence) of every pair of a tab separated file with the header `score sentence1 sentence2`.

    Raises:
        CorpusError: the file is missing, unreadable or empty, has another header, or has lines that are not pairs.
    """
    file = _file(Path(path), "test.tsv")
    lines = _lines(file)
    header = next(lines, (1, ""))[1].split("\t")
    if header != ["score", "sentence1", "sentence2"]:
        raise CorpusError(
            f"the header is {header}",
            "the first line is 'score', 'sentence1', 'sentence2' with tabs",
            where=f"{file}:1",
        )
    return _not_empty(list(_parsed(file, _pair, lines)), file, "pair")


def read_run(path: str | os.PathLike[str]) -> Run:
    """A TREC run: query id -> document id -> score, in the order of the file.

    Raises:
        CorpusError: the file is missing or unreadable, has lines that are not hits, or a document twice for a query.
    """
    file = _file(Path(path), "run.trec")
    run: Run = {}
    for query_id, doc_id, score in _parsed(file, _hit, _lines(file)):
        run.setdefault(query_id, {})[doc_id] = score
    return run


def write_run(
    path: str | os.PathLike[str], run: Iterable[tuple[str, Iterable[tuple[str, float]]]], name: str = "ragidx"
) -> None:
    """Writes `query Q0 document rank score name` lines; the file appears whole or not at all.

    Ranks start at 1, and scores have enough digits to read the same number back. A pipe or device is written directly.

    Args:
        path: replaced if it is a file.
        run: for each query its documents and scores, best first.
        name: the last column, what the run is called.

    Raises:
        CorpusError: an id is empty or holds white space, which the format cannot carry.
        SpecError: `name` is empty or holds white space.
        RagidxError: the file cannot be written.
        ValueError: scores rise or are not finite, or a document or a query appears twice.
    """
    if not name or name.split() != [name]:
        raise SpecError(f"the run's name {name!r} is empty or holds white space", "give one word")
    target = Path(path)
    straight = target.exists() and not target.is_file() and not target.is_dir()
    written = target if straight else target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with written.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(_run_lines(run, name))
            file.flush()
            if not straight:
                os.fsync(file.fileno())
        if not straight:
            written.replace(target)
    except OSError as fault:
        raise RagidxError(
            f"the run cannot be written: {fault.strerror}",
            "choose another place, or free space",
            where=str(target),
        ) from fault
    finally:
        if not straight:
            with contextlib.suppress(OSError):
                written.unlink(missing_ok=True)


def _run_lines(run: Iterable[tuple[str, Iterable[tuple[str, float]]]], name: str) -> Iterator[str]:
    queries: set[str] = set()
    for query_id, hits in run:
        if query_id in queries:
            raise ValueError(f"query {query_id!r} appears twice in the run")
        queries.add(query_id)
        _refuse_white_space("query", query_id)
        documents: set[str] = set()
        last = math.inf
        for rank, (doc_id, score) in enumerate(hits, start=1):
            _refuse_white_space("document", doc_id)
            value = float(score)
            if doc_id in documents or not math.isfinite(value) or value > last:
                raise ValueError(f"rank {rank} of query {query_id!r}: {doc_id!r} {value!r} after a score of {last!r}")
            documents.add(doc_id)
            last = value
            yield f"{query_id} Q0 {doc_id} {rank} {value!r} {name}\n"


def _refuse_white_space(what: str, name: str) -> None:
    if not name or name.split() != [name]:
        hint = "rename the file" if what == "document" else "rename the query"
        raise CorpusError(
            f"the {what} id {name!r} is empty or holds white space, which a TREC run cannot carry",
            f"{hint}, or give ids without white space",
        )


def _file(path: Path, name: str) -> Path:
    """`path` itself, or `name` in it, packed or not."""
    wanted = path / name if path.is_dir() else path
    for ending in _ENDINGS:
        candidate = wanted.with_name(wanted.name + ending)
        if candidate.exists() and not candidate.is_dir():
            return candidate
    hint = f"the folder holds no {name}, .gz and .zst included" if path.is_dir() else "check the path"
    raise CorpusError("no such file", hint, where=str(wanted))


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """(number, line) of the lines that are not blank; numbers start at 1."""
    number = 0
    try:
        with _open(file) as stream:
            for number, raw in enumerate(stream, start=1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as fault:
        raise CorpusError("the line is not UTF-8", "write the file as UTF-8", where=f"{file}:{number}") from fault
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as fault:
        check_machine(fault, file)
        raise CorpusError(f"the file cannot be read: {fault}", "create the file again", where=str(file)) from fault


def _open(file: Path) -> io.BufferedIOBase:
    if file.suffix == ".gz":
        return gzip.open(file)
    if file.suffix == ".zst":
        return io.BufferedReader(zstandard.open(str(file)))
    return file.open("rb")


def _after_header(lines: Iterator[tuple[int, str]], first: str) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        if number > 1 or line.split("\t")[0] != first:
            yield number, line


def _parsed(
    file: Path, parse: Callable[[str, dict[str, object]], _T], lines: Iterator[tuple[int, str]]
) -> Iterator[_T]:
    """The parsed lines. `parse` also gets a dictionary, to remember what it has seen.

    Raises:
        CorpusError: at the end, with the first faults and their number.
    """
    seen: dict[str, object] = {}
    faults: list[tuple[int, _FaultError]] = []
    for number, line in lines:
        try:
            yield parse(line, seen)
        except _FaultError as fault:
            faults.append((number, fault))
    if len(faults) == 1:
        raise CorpusError(str(faults[0][1]), faults[0][1].hint, where=f"{file}:{faults[0][0]}")
    if faults:
        shown = [f"\n  line {number}: {fault}" for number, fault in faults[:_FAULTS_SHOWN]]
        more = f"\n  and {len(faults) - _FAULTS_SHOWN} more" if len(faults) > _FAULTS_SHOWN else ""
        raise CorpusError(f"{len(faults)} lines have faults{''.join(shown)}{more}", faults[0][1].hint, where=str(file))


def _query(line: str, seen: dict[str, object]) -> tuple[str, str]:
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
    _remember(seen, str(query_id), text, f"the query '{query_id}' appears twice", twice=False)
    return str(query_id), text


def _judgement(line: str, seen: dict[str, object]) -> tuple[str, str, int]:
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
    pair = f"query '{query_id}' and document '{doc_id}'"
    _remember(seen, f"{query_id}\t{doc_id}", relevance, f"{pair} are judged twice, with different grades", twice=True)
    return query_id, doc_id, relevance


def _hit(line: str, seen: dict[str, object]) -> tuple[str, str, float]:
    columns = line.split()
    if len(columns) != 6:
        raise _FaultError(
            f"the line has {len(columns)} columns", "a TREC run has six: query Q0 document rank score name"
        )
    query_id, _, doc_id, _, number, _ = columns
    score = _number(number)
    pair = f"document '{doc_id}' appears twice for query '{query_id}'"
    _remember(seen, f"{query_id}\t{doc_id}", score, pair, twice=False)
    return query_id, doc_id, score


def _pair(line: str, seen: dict[str, object]) -> tuple[float, str, str]:
    columns = line.split("\t")
    if len(columns) != 3:
        raise _FaultError(f"the line has {len(columns)} columns", "write score, sentence and sentence with tabs")
    return _number(columns[0]), columns[1], columns[2]


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _FaultError(f"the score {text!r} is not a finite number", "write scores as decimal numbers")
    return value


def _remember(seen: dict[str, object], key: str, value: object, message: str, *, twice: bool) -> None:
    """Remember `key`; a second time is a fault, unless `twice` allows it with the same value."""
    if key in seen and not (twice and seen[key] == value):
        raise _FaultError(message, "keep one of them")
    seen[key] = value


_Sized = TypeVar("_Sized", dict[str, str], Qrels, list[tuple[float, str, str]])


def _not_empty(loaded: _Sized, file: Path, what: str) -> _Sized:
    if not loaded:
        raise CorpusError(f"the file holds no {what}", "check that it is the right one", where=str(file))
    return loaded
