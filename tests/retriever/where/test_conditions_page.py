"""docs/conditions.md: what its tables say is what an index answers, and every name it gives is one of the language."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import QueryError
from ragidx.corpora.records import FILE_FIELDS
from ragidx.pipelines.index import Index
from ragidx.retriever.where.answers import COMPARISONS, TEXT_TESTS
from ragidx.retriever.where.parser import MAX_CHARS, MAX_DEPTH, MAX_VALUES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "conditions.md").read_text("utf-8")


def _tables() -> list[list[list[str]]]:
    """The cells of each table, its head first, as they are shown."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        found.append([[cell.strip().replace("\\|", "|") for cell in line] for line in lines])
    return found


def _code(cell: str) -> str:
    return cell[3:-3] if cell.startswith("`` ") else cell.strip("`")


DOCUMENTS = {_code(row[0]): row[1] for row in _tables()[0][2:]}
EXAMPLES = [(_code(row[0]), row[1]) for table in _tables()[1:] for row in table[2:] if table[0][0] != "metadata"]
NESTED = [(_code(row[0]), _code(row[1])) for table in _tables() for row in table[2:] if table[0][0] == "metadata"]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, tiny_model: Callable[..., Path]) -> Index:
    """An index of the page's documents, each a Markdown file with its metadata in front."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "corpus").mkdir()
    for name, metadata in DOCUMENTS.items():
        fields = re.findall(r"`([^`]+)` ([^,]+)", metadata)
        front = "".join(f"{field}: {value}\n" for field, value in fields)
        head = f"---\n{front}---\n" if fields else ""
        (folder / "corpus" / f"{name}.md").write_text(f"{head}# The {name.title()}\n\nWhat is told of it.\n")
    ragidx.build(folder / "corpus", folder / "index", model=str(tiny_model("llama")), method="classical", filter="none")
    return Index(folder / "index")


def test_the_page_has_its_examples() -> None:
    assert len(DOCUMENTS) == 5
    assert len(EXAMPLES) > 25


@pytest.mark.slow
@pytest.mark.parametrize(("condition", "finds"), EXAMPLES, ids=[condition for condition, _ in EXAMPLES])
def test_each_example_finds_what_the_page_says(condition: str, finds: str, reader: Index) -> None:
    where = eval(condition, {"field": ragidx.field, "date": date}) if "field(" in condition else condition

    [hits] = reader.search_vectors(np.ones((1, reader.info().dim)), k=9, where=where)

    assert sorted(hit.doc_id.removesuffix(".md") for hit in hits) == sorted(finds.split(", "))


def test_each_example_of_nested_metadata_is_found_by_its_condition() -> None:
    index = ragidx.Index(None)
    index.add([ragidx.Document(condition, "A mill.", json.loads(metadata)) for metadata, condition in NESTED])

    assert len(NESTED) == 4
    for _, condition in NESTED:
        assert [hit.doc_id for hit in index.search("a mill", fold=False, where=condition)] == [condition]


def _value(shown: str) -> object:
    return datetime.fromisoformat(f"{shown}Z") if re.match(r"\d{4}-", shown) else json.loads(shown)


def test_the_metadata_of_the_page_are_those_of_the_index(reader: Index) -> None:
    [hits] = reader.search_vectors(np.ones((1, reader.info().dim)), k=9)

    told = {
        f"{name}.md": {field: _value(value) for field, value in re.findall(r"`([^`]+)` ([^,]+)", metadata)}
        for name, metadata in DOCUMENTS.items()
    }
    own = {"title", *FILE_FIELDS}
    found = {hit.doc_id: {name: hit.metadata[name] for name in hit.metadata if name not in own} for hit in hits}
    assert found == told


def test_the_page_names_all_of_the_language_and_its_bounds() -> None:
    words = [*TEXT_TESTS, *COMPARISONS, "in", "not in", "is null", "is not null", "and", "or", "not"]

    assert [word for word in words if word not in " ".join(condition for condition, _ in EXAMPLES)] == []
    assert f"{MAX_CHARS:,} characters" in PAGE
    assert f"{MAX_DEPTH} brackets" in PAGE
    assert f"{MAX_VALUES:,} values" in PAGE


def test_a_value_of_another_type_is_the_error_the_page_says(reader: Index) -> None:
    with pytest.raises(QueryError, match=r"'year' is a number, and \"1840\" is text"):
        reader.search_vectors(np.ones((1, reader.info().dim)), where='year == "1840"')
