"""A field of a program's documents has one type, as long as a document has a value of it."""

from __future__ import annotations

import json
from pathlib import Path

import ragidx
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


def test_hits_and_documents_have_the_whole_numbers_of_a_field_with_fractions(tmp_path: Path) -> None:
    numbers = {"a": 2**53 + 1, "b": 1.5, "c": -(2**63), "d": 1e300, "e": 3, "f": None, "g": -(2**53) - 3}
    files = {"a.jsonl": "", "b.csv": "id,text,n\n", "c.json": ""}
    lines = [json.dumps({"id": name, "text": f"A number, {name}.", "n": number}) for name, number in numbers.items()]
    files["a.jsonl"] = "\n".join(lines)
    files["b.csv"] += "\n".join(f'{name},"A number, {name}.",{number or ""}' for name, number in numbers.items())
    files["c.json"] = f"[{','.join(lines)}]"
    (tmp_path / "corpus").mkdir()
    for name, text in files.items():
        (tmp_path / "corpus" / name).write_text(text)
    expected = {f"{file}#{name}": number for file in files for name, number in numbers.items() if number is not None}

    index = ragidx.build(tmp_path / "corpus", tmp_path / "index")
    index.add([Document(f"{name}", f"A number, {name}.", {"n": number}) for name, number in numbers.items()])
    expected |= {name: number for name, number in numbers.items() if number is not None}

    def shown() -> dict[str, object]:
        hits = {
            hit.doc_id: hit.metadata["n"] for hit in index.search("a number", 99, fold=False, where="n is not null")
        }
        assert hits == {one.id: one.metadata["n"] for one in index.documents(where="n is not null")}
        assert {name for name, number in hits.items() if isinstance(number, int)} == {
            name for name in expected if name[-1] in "aceg"
        }
        return hits

    assert shown() == expected
    index.delete(["e", "b.csv#a"])  # of a segment with dead rows
    del expected["e"], expected["b.csv#a"]
    assert shown() == expected
    index.compact(everything=True)
    index.refresh()
    assert shown() == expected
