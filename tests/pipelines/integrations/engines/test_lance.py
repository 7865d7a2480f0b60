"""What is LanceDB's alone: the tag of what is read, and what a write that broke off leaves."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.pipelines.index import Index
from ragidx.pipelines.integrations.engines.layout import KEY

lancedb = pytest.importorskip("lancedb", reason="needs lancedb, of the extra 'test'")
lance = pytest.importorskip("ragidx.pipelines.integrations.engines.lance")

OTHER = [ragidx.Document(f"new{number}", f"The new mill, part {number}.") for number in range(3)]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "lance")


@pytest.fixture
def target(folder: str) -> str:
    return f"lancedb:{folder}#chunks"


@pytest.fixture
def other(tmp_path: Path) -> Index:
    made = Index.create(tmp_path / "other")
    made.add(OTHER)
    return made


def answers(target: str, text: str = "the mill") -> set[str]:
    with ragidx.connect(target) as remote:
        return {hit.doc_id for hit in remote.search(text, 10, fold=False)}


def begun_replacement(database: Any, other: Index, tmp_path: Path) -> None:
    """What a replacement that broke off leaves: its rows, without the index of words and the tag."""
    other.export(f"lancedb:{tmp_path / 'elsewhere'}#chunks")
    rows = lancedb.connect(str(tmp_path / "elsewhere")).open_table("chunks").to_arrow()
    database.create_table("chunks", rows, mode="overwrite")


def test_a_question_makes_no_folder(folder: str, target: str) -> None:
    with pytest.raises(SpecError, match="there is no such table"):
        answers(target)
    assert not Path(folder).exists()


def test_a_replacement_that_broke_off_is_not_seen(
    index: Index, other: Index, folder: str, target: str, tmp_path: Path
) -> None:
    index.export(target)
    before = answers(target)
    begun_replacement(lancedb.connect(folder), other, tmp_path)
    assert answers(target) == before
    assert index.export(target).n_written == 0


def test_an_export_after_a_replacement_that_broke_off(
    index: Index, other: Index, folder: str, target: str, tmp_path: Path
) -> None:
    index.export(target)
    begun_replacement(lancedb.connect(folder), other, tmp_path)
    index.delete(["dead"])
    index.add(OTHER[:1])
    report = index.export(target)
    assert (report.n_written, report.n_deleted) == (1, 1)
    with ragidx.connect(target) as remote:
        assert {one.id for one in remote.documents()} == {one.id for one in index.documents()}
    assert "new0" in answers(target)


def test_an_update_that_broke_off_is_not_seen_and_then_repaired(index: Index, folder: str, target: str) -> None:
    index.export(target)
    before = answers(target)
    table = lancedb.connect(folder).open_table("chunks")
    stray = table.to_arrow().slice(0, 1).set_column(0, "chunk_id", [["stray"]])
    table.add(stray.set_column(1, "doc_id", [["stray"]]))
    table.delete("doc_id = 'mill'")
    assert answers(target) == before
    index.delete(["dead"])
    report = index.export(target)
    assert (report.n_written, report.n_deleted) == (1, 2)
    with ragidx.connect(target) as remote:
        assert {one.id for one in remote.documents()} == {one.id for one in index.documents()}


def test_old_versions_can_be_removed(index: Index, other: Index, folder: str, target: str) -> None:
    index.export(target)
    other.export(target, replace=True)
    index.export(target, replace=True)
    with pytest.warns(UserWarning, match="removes every version except the latest"):
        lancedb.connect(folder).open_table("chunks").optimize(cleanup_older_than=timedelta(0))
    assert "mill" in answers(target)


def test_a_table_without_the_tag_is_read_at_its_latest_version(index: Index, folder: str, target: str) -> None:
    index.export(target)
    lancedb.connect(folder).open_table("chunks").tags.delete("ragidx")
    assert "mill" in answers(target)
    index.add(OTHER[:1])
    assert index.export(target).n_written == 1
    assert "new0" in answers(target)


def test_a_first_export_that_broke_off_is_continued(index: Index, folder: str, target: str) -> None:
    index.export(target)
    table = lancedb.connect(folder).open_table("chunks")
    table.drop_index("text_idx")
    table.tags.delete("ragidx")
    assert index.export(target).n_written == 0
    assert "mill" in answers(target)


def test_a_table_that_others_put_in_its_place_is_theirs(index: Index, folder: str, target: str) -> None:
    index.export(target)
    database = lancedb.connect(folder)
    database.create_table("chunks", [{"id": "a", "vector": [1.0, 0.0]}], mode="overwrite")
    with pytest.raises(SpecError, match="it is a table that ragidx did not write"):
        answers(target)
    with pytest.raises(SpecError, match="it is a table that ragidx did not write"):
        index.export(target)
    assert database.open_table("chunks").count_rows() == 1


def test_a_table_that_grows_gets_the_approximate_index(
    index: Index, folder: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lance, "INDEXED", 7)
    for number in range(3):
        index.export(target)
        table = lancedb.connect(folder).open_table("chunks")
        indexed = {column for one in table.list_indices() for column in one.columns}
        assert indexed == ({"text"} if number == 0 else {"text", "vector"})
        index.add([ragidx.Document(f"new{number}", "Something new.")])
    assert "bees" in answers(target, "bees")


def test_documents_and_hits_of_files_have_their_metadata(tmp_path: Path, target: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "mill.md").write_text("---\nyear: 1790\n---\n# A mill\n\nIt stands by the river.")
    built = ragidx.build(tmp_path / "docs", tmp_path / "built")
    built.export(target)
    with ragidx.connect(target) as remote:
        assert list(remote.documents()) == list(built.documents())
        assert [hit.metadata for hit in remote.search("mill")] == [hit.metadata for hit in built.search("mill")]
        assert "file.path" in built.search("mill")[0].metadata


def test_a_table_whose_about_cannot_be_read_can_be_replaced(index: Index, folder: str, target: str) -> None:
    index.export(target)
    table = lancedb.connect(folder).open_table("chunks")
    table.update_field_metadata({"path": "vector", "metadata": {KEY: "{}"}})
    table.tags.update("ragidx", table.version)
    with pytest.raises(IndexFormatError, match="what it says of its vectors cannot be read"):
        answers(target)
    with pytest.raises(IndexFormatError, match="what it says of its vectors cannot be read"):
        index.export(target)
    assert index.export(target, replace=True).n_written == 6
    assert "mill" in answers(target)


def test_numbers_that_are_not_finite_fulfil_no_comparison_and_are_not_shown(
    index: Index, folder: str, target: str
) -> None:
    index.add([ragidx.Document("nan", "Not a number."), ragidx.Document("more", "One more.", {"share": 0.75})])
    index.export(target)
    table = lancedb.connect(folder).open_table("chunks")
    table.update(where="doc_id = 'nan'", values_sql={"share": "cast('NaN' as double)"})
    table.tags.update("ragidx", table.version)
    with ragidx.connect(target) as remote:
        assert remote.count("share > 0") == 3
        assert remote.count("share >= 0.5") == 3
        assert remote.count("not share > 0") == 1
        [hit] = remote.search("what?", 1, where="doc_id == 'nan'")
        assert "share" not in hit.metadata
