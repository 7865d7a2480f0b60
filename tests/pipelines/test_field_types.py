"""A field of a program's documents has one type, as long as a document has a value of it."""

from __future__ import annotations

from pathlib import Path

from ragidx import CorpusError, Document, Index

from ..raising import message_of


def test_a_field_has_another_type_once_no_document_has_a_value_of_the_old_one(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index")
    index.add([Document("a", "The mill.", {"y": "1990"}), Document("b", "The lake.", {"y": "1991"})])

    message = message_of(CorpusError, lambda: index.add([Document("a", "The mill.", {"y": 1990})]))
    assert message.startswith("a: the field 'y' holds values of the type string in this index, and this is a int\n")
    index.add([Document("a", "The mill.", {"y": 1990}), Document("b", "The lake.", {"y": 1991})])  # all at once
    assert (index.schema["y"], index.count("y > 1990")) == ("int", 1)
    index.delete(["a", "b"])
    index.compact(everything=True)
    index.refresh()
    assert "y" not in index.schema
    index.add([Document("a", "The mill.", {"y": ["x"]})])
    assert index.schema["y"] == "list"
    with index.batch() as batch:
        batch.delete(["a"])
        batch.add([Document("c", "The bees.", {"y": True})])
    index.reindex(index.path.parent / "other")
    assert (Index(index.path.parent / "other").schema["y"], index.verify()) == ("bool", [])
