"""Numbers that are not finite, which no JSON has: refused of a program by name, left out of a file and counted.

An index of an earlier version, which took them, is answered without them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import ragidx
from ragidx import CorpusError, Document, Index, QueryError, SpecError
from ragidx.corpora import whole_documents
from ragidx.indexer.store import rows
from ragidx.pipelines.cli.help import error_text
from ragidx.pipelines.cli.main import cli

from ..raising import message_of

ODD = [math.nan, math.inf, -math.inf, np.float64("nan")]


def strict(text: str) -> Any:
    """JSON as other programs read it."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("number", ODD)
def test_a_document_with_one_is_refused_by_name(tmp_path: Path, number: float) -> None:
    index = Index.create(tmp_path / "index")

    message = message_of(CorpusError, lambda: index.add([Document("b", "The eel."), Document("a", "x", {"p": number})]))

    hint = "give texts, finite numbers, true, false, None, times, and lists and dicts of them"
    assert message == f"a: the field 'p': {number} is not a finite number\n  hint: {hint}"
    with pytest.raises(CorpusError, match="the field 'p'"), index.batch() as batch:
        batch.add([Document("a", "x", {"p": number})])
    assert (index.count(), index.generation) == (0, 1)


@pytest.mark.parametrize("written", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_a_line_of_add_with_one_is_refused(tmp_path: Path, written: str) -> None:
    Index.create(tmp_path / "index")
    lines = f'{{"id": "a", "text": "The eel."}}\n{{"id": "b", "text": "The eel.", "p": {written}}}\n'

    done = CliRunner().invoke(cli, ["add", "-", "--index", str(tmp_path / "index")], input=lines)

    assert isinstance(done.exception, CorpusError)
    assert done.exception.where == "<stdin>:2: b"
    assert "the field 'p': " in done.exception.message
    assert "is not a finite number" in done.exception.message
    assert Index(tmp_path / "index").count() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "-", "--timeout", "nan"], "--timeout: timeout=nan is no time\n  hint: give seconds, such as 60"),
        (["serve", "--deadline", "nan"], "--deadline: deadline=nan is no time\n  hint: give seconds, such as 30"),
        (["serve", "--deadline", "inf"], "--deadline: deadline=inf is no time\n  hint: give seconds, such as 30"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_time_that_is_none_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    """Ranges of options let NaN pass: a service answered each question with 500, and a lock was waited for forever."""
    if arguments[0] == "serve":
        pytest.importorskip("uvicorn", reason="needs the extra 'serve'")
    Index.create(tmp_path / "index")

    done = CliRunner().invoke(cli, [*arguments, "--index", str(tmp_path / "index")], input='{"id": "a", "text": "x"}\n')

    assert isinstance(done.exception, SpecError)
    assert error_text(done.exception) == message


@pytest.mark.parametrize("value", [*ODD, [1.0, math.nan], {"deep": [math.inf]}])
def test_metadata_of_vectors_with_one_are_refused_by_name(tmp_path: Path, value: object) -> None:
    index = Index.create(tmp_path / "index", dim=2)

    message = message_of(CorpusError, lambda: index.add_vectors(["a"], [[1, 0]], metadata=[{"p": value}]))

    assert message.startswith("id 'a': the field 'p' cannot be kept: not a finite number\n")
    assert index.count() == 0


@pytest.mark.parametrize("number", ODD)
def test_a_vector_with_one_is_refused_by_name_and_so_is_a_question(tmp_path: Path, number: float) -> None:
    index = Index.create(tmp_path / "index", dim=2)
    index.add_vectors(["b"], [[1, 0]])

    message = message_of(CorpusError, lambda: index.add_vectors(["a"], [[1, number]]))

    assert message.startswith("id 'a': the vector holds a number that is not finite\n")
    for ask in (lambda: index.search(vector=[1, number]), lambda: index.rank_documents(vectors=[[1, number]])):
        with pytest.raises(QueryError, match="finite"):
            ask()
    assert index.count() == 1


def _json_lines(folder: Path) -> None:
    (folder / "a.jsonl").write_text('{"id": "a", "text": "The eel.", "p": NaN, "q": [{"r": 1e400}], "n": 1}\n')


def _front_matter(folder: Path) -> None:
    (folder / "a.md").write_text("---\np: .nan\nq:\n  r: -.inf\nn: 1\n---\nThe eel.\n")


def _parquet(folder: Path) -> None:
    pq.write_table(_table(), folder / "a.parquet")


def _arrow(folder: Path) -> None:
    with pa.ipc.new_file(str(folder / "a.arrow"), _table().schema) as file:
        file.write_table(_table())


def _table() -> Any:
    return pa.table(
        {"id": ["a"], "text": ["The eel."], "p": [math.inf], "missing": [math.nan], "q": [[{"r": math.inf}]], "n": [1]}
    )


@pytest.mark.parametrize("write", [_json_lines, _front_matter, _parquet, _arrow])
def test_of_a_file_the_value_is_left_out_and_counted(tmp_path: Path, write: Callable[[Path], None]) -> None:
    (tmp_path / "docs").mkdir()
    write(tmp_path / "docs")

    index = ragidx.build(tmp_path / "docs", tmp_path / "index")

    assert index.report is not None
    assert index.report.skipped == {"the field 'p'": 1, "the field 'q'": 1}
    [found] = index.documents()
    assert {name: value for name, value in found.metadata.items() if not name.startswith("file.")} == {"n": 1}


def test_a_cell_of_csv_that_says_so_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.csv").write_text("id,text,p\na,The eel.,NaN\nb,The sea.,1e400\n")

    index = ragidx.build(tmp_path / "docs", tmp_path / "index")

    assert index.values("p") == [("1e400", 1), ("NaN", 1)]


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """An index as versions before wrote it: a document has numbers that are not finite."""
    index = Index.create(tmp_path / "old")
    with monkeypatch.context() as as_before:
        for module in (rows, whole_documents):
            as_before.setattr(module, "math", SimpleNamespace(isfinite=lambda number: True), raising=False)
        index.add(
            [Document("a", "The eel.", {"p": math.nan, "q": 1.5}), Document("b", "The eel too.", {"p": -math.inf})]
        )
    return index


def test_an_old_index_that_holds_some_is_answered_without_them(old: Index) -> None:
    assert {hit.doc_id: dict(hit.metadata) for hit in old.search("eel")} == {"a": {"q": 1.5}, "b": {}}
    assert [one.metadata.get("p") for one in old.get(["a", "b"])] == [None, None]
    assert (old.values("p"), old.count("p is null"), old.verify()) == ([], 2, [])
    found = CliRunner().invoke(cli, ["query", "eel", "--json", "--index", str(old.path)])
    assert (found.exit_code, len(strict(found.stdout)["hits"])) == (0, 2)
