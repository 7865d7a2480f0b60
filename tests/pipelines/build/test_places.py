"""Where a chunk is in its file: pages and lines of hits, and what follows when they move."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import ragidx
from ragidx.corpora.records import Document, Place
from ragidx.indexer.store.store import Store
from ragidx.pipelines.build.corpus import document_hash

from ...corpora.readers.test_pdf import pdf


def pages_of(index: Path) -> list[tuple[str, int | None]]:
    store = Store.open(index)
    rows = [row for segment in store.segments for row in segment.rows(range(segment.entry.rows))]
    return [(row.text, row.page) for row in sorted(rows, key=lambda row: row.start)]


def test_a_hit_knows_the_page_on_which_it_begins(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2", reason="needs the extra 'docs'")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    pages = [[f"The {name} is a lake.", "It is deep, and it is cold."] for name in ("Baikal", "Vostok", "Tahoe")]
    (corpus / "a.pdf").write_bytes(pdf(pages))

    ragidx.build(corpus, tmp_path / "index", chunk_size=8)

    found = pages_of(tmp_path / "index")
    assert {page for text, page in found if "lake" in text} == {1, 2, 3}
    assert [page for _, page in found] == sorted(page or 0 for _, page in found)
    (hit,) = ragidx.Retriever.open(tmp_path / "index").search("Vostok lake", 1, mode="lexical")
    assert (hit.page, hit.line) == (2, None)


def test_the_place_of_a_chunk_is_that_of_its_first_character() -> None:
    document = Document("a", "one\ntwo\nthree\nfour", line=5, places=(Place(4, page=2), Place(8, line=40)))

    assert list(document.positions([0, 3, 4, 8, 14])) == [(5, None), (5, None), (6, 2), (40, 2), (41, 2)]


def test_a_document_is_another_one_when_its_pages_move() -> None:
    plain = Document("a", "one two")
    places = [(), (Place(0, page=1),), (Place(0, page=2),), (Place(4, page=1),), (Place(0, line=1),)]

    hashes = {document_hash(dataclasses.replace(plain, places=each)) for each in places}

    assert len(hashes) == len(places)
