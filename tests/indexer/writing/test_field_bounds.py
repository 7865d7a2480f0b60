"""An index has a bounded number of fields."""

from __future__ import annotations

import json

import pytest

from ragidx.indexer.store import Store
from ragidx.indexer.writing import field_bounds
from ragidx.indexer.writing.field_bounds import FieldBounds


@pytest.fixture
def three(monkeypatch) -> None:
    """An index has room for three fields."""
    monkeypatch.setattr(field_bounds, "MAX_FIELDS", 3)


def seen_of(index) -> list[dict]:
    """What conditions see of each row."""
    store = Store.open(index)
    columns = [f"meta.{name}" for name in store.manifest.schema]
    rows = (row for table in store.tables(columns) for row in table.to_pylist())
    return [{name.removeprefix("meta."): value for name, value in row.items() if value is not None} for row in rows]


@pytest.mark.usefixtures("three")
def test_fields_beyond_the_bound_share_one_as_json(kit, tmp_path):
    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, kit.rows("a", ["x", "y"], one=1, two="b", three=True, four=["é"], five=2.5))
        kit.add(writer, kit.rows("b", ["z"], one=2, six="c"))
        manifest = writer.commit({}, 2)

    assert sorted(manifest.schema) == ["more_fields", "one", "three", "two"]
    assert writer.fields.shared == {"four", "five", "six"}
    first = {"one": 1, "two": "b", "three": True, "more_fields": '{"four":"[\\"é\\"]","five":2.5}'}
    assert seen_of(tmp_path / "index") == [first, first, {"one": 2, "more_fields": '{"six":"c"}'}]
    whole = {"one": 1, "two": "b", "three": True, "four": ["é"], "five": 2.5}
    assert [row.metadata for row in Store.open(tmp_path / "index").rows(range(3))] == [
        whole,
        whole,
        {"one": 2, "six": "c"},
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("three")
def test_the_fields_of_the_index_come_first_and_a_rebuild_begins_anew(kit, tmp_path):
    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, kit.rows("a", ["x"], one=1, two=2))
        writer.commit({}, 1)

    with kit.writer(tmp_path / "index") as writer:
        writer.known_documents().keep("a")
        kit.add(writer, kit.rows("b", ["y"], four=4, five=5, two=3))
        writer.commit({}, 2)
    assert seen_of(tmp_path / "index")[1:] == [{"four": 4, "two": 3, "more_fields": '{"five":5}'}]

    with kit.writer(tmp_path / "index", replace=True) as writer:
        kit.add(writer, kit.rows("b", ["y"], four=4, five=5, two=3))
        writer.commit({}, 1)
    assert seen_of(tmp_path / "index") == [{"four": 4, "five": 5, "two": 3}]


@pytest.mark.usefixtures("three")
def test_what_is_known_of_every_file_is_not_counted(kit):
    bounds = FieldBounds({"one": "int", "two": "int", "three": "int", "file.size": "int"})

    (row,) = bounds.bounded(kit.rows("a", ["x"], **{"file.path": "a", "file.size": 3, "one": 1}))

    assert row.metadata == {"file.path": "a", "file.size": 3, "one": 1}


@pytest.mark.usefixtures("three")
def test_a_field_of_the_shared_name_is_one_of_those_that_share(kit):
    bounds = FieldBounds({"one": "int", "two": "int", "x": "int", "more_fields": "int"})

    (row,) = bounds.bounded(kit.rows("a", ["x"], one=1, more_fields=2, three=3))

    assert json.loads(row.seen["more_fields"]) == {"more_fields": 2, "three": 3}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("commits", [1, 2])
def test_a_field_of_the_shared_name_may_have_held_numbers(kit, tmp_path, commits):
    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, kit.rows("a", ["x"], more_fields=5))
        if commits == 2:
            writer.commit({}, 1)
        else:
            kit.add(writer, kit.rows("b", ["y"], one=1, two=2, three=3, four=4))
            writer.commit({}, 2)
    if commits == 2:
        with kit.writer(tmp_path / "index") as writer:
            writer.known_documents().keep("a")
            kit.add(writer, kit.rows("b", ["y"], one=1, two=2, three=3, four=4))
            writer.commit({}, 2)

    first, second = seen_of(tmp_path / "index")
    assert (first, json.loads(second["more_fields"])) == ({"more_fields": "5"}, {"four": 4})


def test_what_has_no_room_in_the_shared_field_is_counted(kit, monkeypatch):
    monkeypatch.setattr(field_bounds, "MAX_FIELDS", 0)
    bounds = FieldBounds({})

    (row,) = bounds.bounded(kit.rows("a", ["x"], **{f"f{n}": "x" * 99 for n in range(200)}))

    kept = json.loads(row.seen["more_fields"])
    assert len(row.seen["more_fields"]) <= 10_000
    assert len(row.metadata) == 200
    assert (len(kept) + bounds.n_left_out, len(bounds.shared)) == (200, 200)


@pytest.mark.slow
def test_a_row_of_200_000_fields_is_one_field_more(kit, tmp_path):
    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, kit.rows("a", ["x"] * 9, **{f"f{n}": n for n in range(200_000)}))
        manifest = writer.commit({}, 1)

    assert len(manifest.schema) == 1_001
