"""Tables in engines: rows are those of the index, before and after it changes; conditions mean what they mean there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import ragidx
from ragidx.corpora.errors import IndexFormatError, QueryError, SpecError
from ragidx.pipelines.index import Index
from ragidx.pipelines.integrations.engines.layout import AboutTable, rows_of, vectors_of
from ragidx.pipelines.integrations.engines.table import Table
from ragidx.pipelines.integrations.engines.target import Target
from ragidx.retriever.where.binding import bind

from ....raising import message_of

Place = Callable[[str], str]

CONDITIONS = r"""
year == 1790
year != 1790
not year == 1790
year > 1789.5
year == 1790.5
year < 1e30
year in (1790, 2.5)
not year in (1790)
year is null
year is not null
not (year > 0 or alive == true)
share >= 0.5
share < 1
alive == true
alive != true
not alive == false
`a.b` == 'x'
`a.b` contains '%_'
`a.b` starts with '5'
text == 'a field'
Year == 'capital'
vector == 'v'
`"; drop table` == "it's"
tags contains 'water'
not tags contains 'water'
tags is null
file.source is null
when == "2024-01-31"
when > "2024-02"
not when > "2024-02"
heading == ''
doc_id == 'o\'neil"s'
doc_id in ('mill', 'bees') and not year > 1800
not (doc_id == 'mill' and year == 1790)
doc_id >= 'mill'
doc_id matches '^b.+s$'
not doc_id matches '^b'
"""

REFUSED: dict[str, tuple[str, ...]] = {
    "postgresql": ("matches",),
    "qdrant": ("doc_id >= ", "matches"),
    "milvus": ("matches",),
}
"""What a condition has that an engine cannot express."""


def opened(to: str) -> Table:
    return Target.parse(to).open()


def rows(table: Table | Index, where: str | None = None) -> list[dict[str, Any]]:
    """All rows, in the order of their ids."""
    if isinstance(table, Index):
        store = table.searcher.store
        batches: Sequence[Any] = list(rows_of(store, AboutTable.of(store)))
    else:
        about = table.about()
        assert about is not None
        batches = list(table.select(None if where is None else bind(where, about.fields)))
    found = [
        row | {"vector": vector.tobytes()}
        for batch in batches
        for row, vector in zip(batch.drop_columns(["vector"]).to_pylist(), vectors_of(batch), strict=True)
    ]
    return sorted(found, key=lambda row: str(row["chunk_id"]))


def test_the_rows_are_those_of_the_index(index: Index, place: Place) -> None:
    report = index.export(place("chunks"))
    assert (report.n_rows, report.n_written, report.n_deleted, report.refused) == (6, 6, 0, {})
    table = opened(place("chunks"))
    assert table.about() == AboutTable.of(index.searcher.store)
    assert table.count() == 6
    assert rows(table) == rows(index)
    ids = [row["chunk_id"] for row in rows(index)]
    found = [
        row["doc_id"]
        for batch in table.select(columns=["doc_id"], ids=("chunk_id", ids[:2]))
        for row in batch.to_pylist()
    ]
    assert sorted(found) == sorted(row["doc_id"] for row in rows(index)[:2])
    table.close()


def test_again_writes_what_changed(index: Index, place: Place) -> None:
    index.export(place("chunks"))
    assert index.export(place("chunks")).n_written == 0
    index.add([ragidx.Document("mill", "The new mill makes paper."), ragidx.Document("new", "Something new.")])
    index.delete(["dead"])  # whose fields others have, too
    report = index.export(place("chunks"))
    table = opened(place("chunks"))
    assert rows(table) == rows(index)
    assert (report.n_rows, report.n_written, report.generation) == (6, 2, index.generation)
    assert table.about() == AboutTable.of(index.searcher.store)
    table.close()


def test_a_new_field_is_a_new_column(index: Index, place: Place) -> None:
    index.export(place("chunks"))
    index.add([ragidx.Document("new", "Something new.", {"colour": "red"})])
    index.export(place("chunks"))
    table = opened(place("chunks"))
    assert rows(table) == rows(index)
    table.close()


def test_a_table_of_an_earlier_export_has_what_fields_say_until_the_index_changes(index: Index, place: Place) -> None:
    to, store, document = place("chunks"), index.searcher.folder, index.get(["räven"])[0]
    about, batches = AboutTable.of(store), list(rows_of(store, AboutTable.of(store)))
    table = opened(to)
    table.replace((batch.drop_columns(["_metadata"]) for batch in batches), replace(about, has_metadata=False))
    table.close()

    with ragidx.connect(to) as remote:
        [found] = remote.get(["räven"])
        assert (found.text, found.metadata["owner.team"], "none" in found.metadata) == (document.text, "mills", False)
        assert remote.search("räven", 1, mode="dense", where="owner.team == 'mills'")[0].metadata == found.metadata
    assert index.export(to).n_written == 0
    index.add([ragidx.Document("new", "Something new.")])
    assert index.export(to).n_written == 7
    with ragidx.connect(to) as remote:
        assert remote.get(["räven"]) == [document]


def test_metadata_that_cannot_be_read_are_an_error_of_their_row(index: Index, place: Place) -> None:
    to, store = place("chunks"), index.searcher.folder
    at = (columns := next(rows_of(store, AboutTable.of(store))).schema).get_field_index("_metadata")
    table = opened(to)
    broken = (
        batch.set_column(at, columns.field(at), pa.array(["[]"] * len(batch), pa.large_string()))
        for batch in rows_of(store, AboutTable.of(store))
    )
    table.replace(broken, AboutTable.of(store))
    table.close()

    with ragidx.connect(to) as remote:
        said = message_of(IndexFormatError, lambda: remote.get(["mill"]))
    why = "a row has metadata that are none: 'list' object has no attribute 'items'"
    assert said == f"mill:0-39: {why}\n  hint: export again, with `replace=True`"


def test_vectors_of_another_model_are_refused(index: Index, place: Place, tmp_path: Any) -> None:
    index.export(place("chunks"))
    other = Index.create(tmp_path / "other", filter="none")
    other.add([ragidx.Document("one", "One document.")])
    with pytest.raises(SpecError, match="made in another way"):
        other.export(place("chunks"))
    table = opened(place("chunks"))
    assert rows(table) == rows(index)
    table.close()
    other.export(place("chunks"), replace=True)
    table = opened(place("chunks"))
    assert rows(table) == rows(other)
    table.close()
    index.export(place("beside"))
    table = opened(place("chunks"))
    assert rows(table) == rows(other)
    table.close()


@pytest.mark.parametrize("where", CONDITIONS.strip().splitlines())
def test_conditions_mean_what_they_mean_in_the_index(exported: tuple[Index, str], engine: str, where: str) -> None:
    index, to = exported
    table = opened(to)
    condition = bind(where, index.schema)
    vector = index.searcher.encode(["where do bees fly?"])[0]
    if any(part in where for part in REFUSED.get(engine, ())):
        with pytest.raises(QueryError, match=r"cannot compare '.*' by") as fault:
            table.nearest(vector, 10, condition)
        assert fault.value.hint == "write the condition in another way, or ask the index"
    else:
        found = (row["doc_id"] for batch in index.to_batches(["doc_id"], where=where) for row in batch.to_pylist())
        expected = sorted(set(found))
        assert [row["doc_id"] for row in rows(table, where)] == expected
        assert table.count(condition) == len(expected)
        assert sorted(table.nearest(vector, 10, condition).column("doc_id").to_pylist()) == expected
    table.close()


def test_too_many_dimensions_are_refused(index: Index, engine: str, place: Place) -> None:
    limit = {"postgresql": 16_000, "qdrant": 65_536, "milvus": 32_768}.get(engine)
    if limit is None:
        pytest.skip("this engine has no limit")
    table, about = opened(place("dimensions")), AboutTable.of(index.searcher.store)
    table.check(replace(about, dim=limit))
    assert message_of(SpecError, lambda: table.check(replace(about, dim=limit + 1))) == (
        f"{table.target.shown}: its vectors can have {limit:,} dimensions, and these have {limit + 1:,}\n"
        "  hint: build the index with fewer: `dim`"
    )
    table.close()


def test_words_are_found(exported: tuple[Index, str]) -> None:
    index, to = exported
    table = opened(to)
    if not table.has_words:
        pytest.skip("this engine does not rank by words")
    found = table.by_words("bees; or flowers' antennas", 10, None)
    assert set(found.column("doc_id").to_pylist()) == {"bees", "tower"}
    assert found.column("score").to_pylist() == sorted(found.column("score").to_pylist(), reverse=True)
    assert table.by_words("bees flowers antennas", 10, bind("year > 0", index.schema)).column("doc_id").to_pylist() == [
        "tower"
    ]
    table.close()


def test_words_of_another_language_are_made_anew(index: Index, place: Place, tmp_path: Any) -> None:
    index.export(place("chunks"))
    about = AboutTable.of(index.searcher.store)
    with Index.create(tmp_path / "german", stemmer="german") as other:
        other.add(list(index.documents()))
        other.export(place("chunks"))
        assert AboutTable.of(other.searcher.store).stemmer != about.stemmer
    table = opened(place("chunks"))
    held = table.about()
    assert held is not None
    assert held.stemmer == "german"
    assert table.count() == 6
    table.close()


def test_fields_that_an_engine_has_for_itself(index: Index, place: Place) -> None:
    names = ["ctid", "xmin", "tableoid", "select", "user", "RowID", "Timestamp", "_id", "id", "_words", "words"]
    index.add([ragidx.Document("own", "A note.", dict.fromkeys(names, "x"))])
    index.export(place("user"))
    with ragidx.connect(place("user")) as remote:
        [hit] = remote.search("a note", 1, where=" and ".join(f'{name} == "x"' for name in names))
        assert {name: hit.metadata[name] for name in names} == dict.fromkeys(names, "x")


@pytest.mark.parametrize("where", ["n == 0", "n in (0, 3)", "n in (-0.0)", "n not in (0)", "n != 0", "n < 0", "n >= 0"])
def test_both_zeros_are_one_number(zeros: tuple[Index, str], where: str) -> None:
    index, to = zeros
    expected = sorted(name for batch in index.to_batches(["doc_id"], where=where) for name in batch[0].to_pylist())
    with_zeros = where.endswith(("== 0", "3)", "0.0)", ">= 0")) and "not" not in where
    assert ({"plus", "minus"} <= set(expected)) == with_zeros
    table = opened(to)
    assert [row["doc_id"] for row in rows(table, where)] == expected
    table.close()


@pytest.fixture(scope="module")
def zeros(places: Place, tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, str]:
    """An index with a field that has both zeros, and the target that has its rows."""
    index = Index.create(tmp_path_factory.mktemp("zeros") / "index")
    numbers = {"plus": 0.0, "minus": -0.0, "more": 1.5, "less": -2.5}
    index.add([ragidx.Document(name, f"A number: {name}.", {"n": number}) for name, number in numbers.items()])
    index.export(places("zeros"))
    assert index.values("n")[0] == (0.0, 2)
    return index, places("zeros")
