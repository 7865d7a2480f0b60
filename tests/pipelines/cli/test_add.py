"""`ragidx add`: a program's documents from a file of JSON Lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ragidx import ChunkSpec, CorpusError, Document, Index
from ragidx.pipelines.cli.main import cli


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.create(tmp_path / "index", chunks=ChunkSpec(size=16))


def test_the_command_adds_what_the_member_adds(index: Index, tmp_path: Path) -> None:
    lines = ['{"id": "a", "text": "The mill.", "n": 1}', "", '{"id": "b", "text": "# Lake", "markdown": true}']
    (tmp_path / "faq.jsonl").write_text("\n".join(lines))
    other = Index.create(tmp_path / "other", chunks=ChunkSpec(size=16))
    other.add([Document("a", "The mill.", {"n": 1}), Document("b", "# Lake", markdown=True)])

    done = CliRunner().invoke(cli, ["add", str(tmp_path / "faq.jsonl"), "--index", str(index.path), "--json"])
    again = CliRunner().invoke(cli, ["add", "-", "--index", str(index.path)], input=lines[0])

    assert json.loads(done.stdout) == {
        "index": str(index.path), "generation": 2, "n_added": 2, "n_changed": 0, "n_unchanged": 0, "blank": []
    }  # fmt: skip
    assert (again.exit_code, again.stderr) == (0, "0 added, 0 changed, 1 unchanged; generation 2\n")
    assert index.refresh()
    assert list(index.documents()) == list(other.documents())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is no JSON: "),
        ("[]", "is no JSON object"),
        ('{"text": "x"}', "the field 'id' is no text"),
        ('{"id": "a", "text": 1}', "the field 'text' is no text"),
    ],
)
def test_a_line_that_is_no_document_is_named(line: str, message: str, index: Index, tmp_path: Path) -> None:
    (tmp_path / "faq.jsonl").write_text(f'{{"id": "z", "text": "The mill."}}\n{line}\n')

    done = CliRunner().invoke(cli, ["add", str(tmp_path / "faq.jsonl"), "--index", str(index.path)])

    assert isinstance(done.exception, CorpusError)
    assert str(done.exception).startswith(f"{tmp_path / 'faq.jsonl'}:2: {message}")
    assert not index.refresh()


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_whole_number_of_more_than_64_bits_comes_back(number: int, index: Index, tmp_path: Path) -> None:
    line = '{"id": "%s", "text": "The mill.", "n": %d}'
    (tmp_path / "faq.jsonl").write_text(line % ("b", number) + "\n" + line % ("a", 2**63 - 1) + "\n")

    done = CliRunner().invoke(cli, ["add", str(tmp_path / "faq.jsonl"), "--index", str(index.path)])

    assert done.exception is None
    assert index.refresh()
    assert {one.id: one.metadata["n"] for one in index.documents()} == {"a": 2**63 - 1, "b": number}
    assert index.schema["n"] == "float"


def test_lines_without_a_text_are_named_and_the_others_added(index: Index, tmp_path: Path) -> None:
    (tmp_path / "faq.jsonl").write_text('{"id": "a", "text": "The mill."}\n\n{"id": "b", "text": " "}\n')
    arguments = ["add", str(tmp_path / "faq.jsonl"), "--index", str(index.path)]

    done = CliRunner().invoke(cli, arguments)
    again = CliRunner().invoke(cli, [*arguments, "--json"])

    skipped = f"Skipped: 1 document without a text: {tmp_path / 'faq.jsonl'}:3\n"
    assert (done.exit_code, done.stderr) == (0, skipped + "1 added, 0 changed, 0 unchanged; generation 2\n")
    assert json.loads(again.stdout)["blank"] == [f"{tmp_path / 'faq.jsonl'}:3"]
