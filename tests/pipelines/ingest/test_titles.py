"""Titles in front of chunks: what finds them, what a second build encodes, and indexes that were built without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import ragidx
from ragidx import ChunkSpec, Document, Index
from ragidx.corpora.spec import ChunkSpec as Stored
from ragidx.indexer.specs import IndexSpec

TEXT = "The tower held the nose of the ship. It was forty metres high. A lift went up inside of it."


def write(folder: Path, titles: Mapping[str, str | None]) -> Path:
    rows = [{"id": name, "title": title, "text": f"{TEXT} {name}."} for name, title in titles.items()]
    path = folder / "masts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def found(index: Index, question: str, **how: object) -> list[str]:
    return [hit.doc_id.partition("#")[2] for hit in index.search(question, per_document=1, **how)]


def test_a_title_is_found_by_words_and_by_vectors_and_no_text_has_it(tmp_path: Path) -> None:
    corpus = write(tmp_path, {"a": None, "b": "Zeppelin mooring masts", "c": "Lighthouse keepers"})

    index = ragidx.build(corpus, tmp_path / "index", chunks=ChunkSpec(size=16))

    assert found(index, "zeppelin", mode="lexical") == ["b"]
    assert found(index, "zeppelin", mode="dense")[0] == "b"
    assert {chunk.heading for chunk in index.chunks()} == {"", "Zeppelin mooring masts", "Lighthouse keepers"}
    assert "".join(chunk.text for chunk in index.chunks()).count("Zeppelin") == 0
    plain = ragidx.build(corpus, tmp_path / "plain", chunks=ChunkSpec(size=16, titles=False))
    assert [chunk.id for chunk in plain.chunks()] == [chunk.id for chunk in index.chunks()]
    assert found(plain, "zeppelin", mode="lexical") == ["b"]


def test_another_title_is_encoded_again_and_nothing_else(tmp_path: Path) -> None:
    corpus = write(tmp_path, {"a": "Zeppelin masts", "b": "Lighthouses"})
    first = ragidx.build(corpus, tmp_path / "index", chunks=ChunkSpec(size=16)).report
    n_before = first.n_chunks

    write(tmp_path, {"a": "Zeppelin masts", "b": "Water towers"})
    second = ragidx.build(corpus, tmp_path / "index")

    assert (second.report.n_changed, second.report.n_encoded) == (1, n_before // 2)
    assert found(second, "lighthouses", mode="lexical") == []
    assert found(second, "water", mode="lexical") == ["b"]


def test_an_index_that_was_built_without_goes_on_without_until_it_is_rebuilt(tmp_path: Path) -> None:
    corpus = write(tmp_path, {"a": "Zeppelin masts"})
    plain = ChunkSpec(size=16, titles=False)
    ragidx.build(corpus, tmp_path / "index", chunks=plain)

    def has_titles() -> object:
        return Index(tmp_path / "index").info().spec["chunk"]["titles"]  # type: ignore[index]

    assert ragidx.build(corpus, tmp_path / "index").report.n_encoded == 0
    Index(tmp_path / "index").add(Document("p", TEXT, {"title": "Piers"}))
    assert not has_titles()
    with pytest.raises(ragidx.SpecError, match=r"`chunks.titles` is off in the index, on now"):
        ragidx.build(corpus, tmp_path / "index", chunks=ChunkSpec(titles=True))
    ragidx.build(corpus, tmp_path / "index", rebuild=True)
    assert has_titles()
    assert found(Index(tmp_path / "index"), "piers", mode="lexical") == [""]


def test_what_older_indexes_store_of_their_chunks_is_read_and_has_the_fingerprint_that_it_had() -> None:
    old = {"size": 256, "overlap": 0, "headings": False}

    assert Stored.from_json(old) == Stored(titles=False)
    assert IndexSpec().fingerprint() == "a620f0d3134ef2b4a3ac529f06bb848282d91f62b8f31f8dee92d96f3ab88146"


@pytest.mark.parametrize(
    "document",
    [Document("m", TEXT, {"title": "Zeppelin masts"}), Document("m", TEXT, heading="Zeppelin masts")],
    ids=["metadata", "heading"],
)
def test_a_document_of_a_program_has_a_title_in_its_metadata_or_its_heading(document: Document) -> None:
    index = Index(None, create={"chunks": ChunkSpec(size=16)})

    index.add([document, Document("b", TEXT)])

    assert [hit.doc_id for hit in index.search("zeppelin", mode="lexical", per_document=1)] == ["m"]
    assert index.search("zeppelin", mode="dense")[0].doc_id == "m"
    assert index.get(["m"]) == [document]
