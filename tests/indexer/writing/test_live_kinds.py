"""The types of fields, by the rows that are alive: after any commits they are those of a new index of the same rows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import FIELD_KINDS
from ragidx.indexer.store.rows import kind_of, schema_of
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import merging
from ragidx.indexer.writing.history import rollback
from ragidx.indexer.writing.live_kinds import mixed_fields
from ragidx.indexer.writing.rewrite import compact

VALUES: list[Any] = [None, 1, 2.5, "x", True, ["a"], 2**70, datetime(2024, 5, 1, tzinfo=UTC)]
DOCUMENTS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.fixed_dictionaries({}, optional={"y": st.sampled_from(VALUES), "z": st.sampled_from(VALUES)}),
)


def put(kit: Any, path: Path, documents: dict[str, dict[str, Any]], gone: set[str] = frozenset()) -> None:
    with kit.writer(path) as writer:
        for name in {*documents, *gone}:
            writer.delete_document(name)
        for name, metadata in documents.items():
            kit.add(writer, kit.rows(name, [f"text {name}", "and more"], **metadata))
        writer.commit({}, 0, changed=True)


def expected(documents: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The schema of some documents, as a new index has it."""
    values = [(name, kind_of(value)) for one in documents.values() for name, value in one.items()]
    return schema_of((name, kind) for name, kind in values if kind is not None)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    steps=st.lists(st.tuples(DOCUMENTS, st.sets(st.sampled_from("abcdef")), st.booleans()), min_size=1, max_size=8),
    small=st.integers(1, 16),
)
def test_after_any_changes_fields_have_the_types_of_a_dictionary_of_the_documents(
    tmp_path_factory: Any, kit: Any, steps: list[Any], small: int
) -> None:
    path, held = tmp_path_factory.mktemp("kinds") / "index", dict[str, dict[str, Any]]()
    with mock.patch.object(merging, "MAX_SMALL", small):
        for documents, gone, compacts in steps:
            held = {name: one for name, one in held.items() if name not in gone} | documents
            put(kit, path, documents, gone)
            if compacts:
                compact(path)

            store = Store.open(path)
            assert store.manifest.schema == expected(held)
            live = [row for row in store.rows(range(store.n_rows)) if row.start == 0]
            kinds = expected(held)
            assert {row.doc_id: set(row.metadata) for row in live} == {
                name: {field for field, value in one.items() if value is not None} for name, one in held.items()
            }
            exact = {"int", "bool", "list", "timestamp"}
            for row in live:
                for field, value in row.metadata.items():
                    if kinds[field] in exact or isinstance(held[row.doc_id][field], str):
                        assert value == held[row.doc_id][field]
    assert verify(path) == []
    assert set(mixed_fields(Store.open(path))) == {
        name
        for name, kind in expected(held).items()
        if kind == "string" and len({kind_of(one[name]) for one in held.values() if one.get(name) is not None}) > 1
    }


def test_what_another_reader_must_know_is_said_where_a_field_has_several_columns(kit: Any, tmp_path: Path) -> None:
    put(kit, tmp_path / "index", {"a": {"y": 1}})
    put(kit, tmp_path / "index", {"b": {"y": 1.5}})
    assert Store.open(tmp_path / "index").manifest.requires == ()  # a reader that widens reads that

    put(kit, tmp_path / "index", {"c": {"y": "x"}, "d": {"y": 2}})
    assert Store.open(tmp_path / "index").manifest.requires == (FIELD_KINDS,)
    put(kit, tmp_path / "index", {}, {"c"})
    compact(tmp_path / "index", everything=True)
    store = Store.open(tmp_path / "index")
    assert (store.manifest.requires, store.manifest.schema) == ((FIELD_KINDS,), {"y": "float"})


def test_a_rollback_brings_back_the_types_that_were(kit: Any, tmp_path: Path) -> None:
    put(kit, tmp_path / "index", {"a": {"y": "x"}})
    put(kit, tmp_path / "index", {"a": {"y": 1}})

    assert rollback(tmp_path / "index", 1).schema == {"y": "string"}
    assert Store.open(tmp_path / "index").rows([0])[0].metadata == {"y": "x"}


def test_a_small_commit_reads_few_batches_of_a_large_segment(kit: Any, tmp_path: Path, monkeypatch: Any) -> None:
    many = {f"d{n}": {"y": n, "rare": "once"} if n == 0 else {"y": n} for n in range(3000)}
    put(kit, tmp_path / "index", many)
    numbers: list[int] = []
    read = Segment.batches

    def counted(self: Segment, names: Any, chosen: Any = None, kinds: Any = ()) -> Any:
        for batch in read(self, names, chosen, kinds):
            numbers.extend([len(batch)] if kinds else [])
            yield batch

    monkeypatch.setattr(Segment, "batches", counted)
    put(kit, tmp_path / "index", {"d2000": {"y": 7}})

    assert len(numbers) <= 4
