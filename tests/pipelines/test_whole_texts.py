"""The text of a document comes back as its reader gave it, character for character."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragidx
from ragidx.corpora.errors import IndexFormatError
from ragidx.corpora.records import Document
from ragidx.corpora.whole_documents import gaps_of, joined

from ..corpora.conftest import reading
from ..corpora.markers.places import Places
from ..corpora.test_places import FORMATS, NEEDS
from ..raising import message_of

TEXTS = st.text(st.sampled_from("ab. \n\n\t\u00a0é東"), min_size=1, max_size=60)


@given(TEXTS, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=8))
def test_spans_and_gaps_are_the_text(text: str, drawn: list[tuple[int, int]]) -> None:
    spans = sorted((min(start, len(text)), min(start + size, len(text))) for start, size in drawn)
    parts = [(start, text[start:end]) for start, end in spans]

    assert joined("a", parts, gaps_of(text, spans)) == text


@pytest.mark.parametrize("gaps", ["[", "[[1]]", '{"a": 1}', "[[0, 1]]", "7"])
def test_gaps_that_are_none_are_damage(gaps: str) -> None:
    assert message_of(IndexFormatError, lambda: joined("a", [(0, "x")], gaps)).startswith("a: the document is damaged")


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["auto", 2])
def test_each_text_of_every_format_comes_back(workers: int | str, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for ending, made in FORMATS.items():
        if ending not in NEEDS or importlib.util.find_spec(NEEDS[ending]):
            (folder / f"places.{ending}").write_bytes(made(Places()))
    (folder / "a.txt").write_text("\n\n  One.\t\tTwo. " * 300 + " \n")
    given = {document.id: document.text for document in reading(folder).documents}

    index = ragidx.build(folder, tmp_path / "index", filter=ragidx.FilterSpec(dim=16), workers=workers)

    assert {document.id: document.text for document in index.documents()} == given
    assert len(given) > len(FORMATS) - len(NEEDS)


@pytest.mark.slow
def test_rewriting_keeps_what_lies_between_chunks(tmp_path: Path) -> None:
    text = "The owl sleeps. \t The mill turns.\u00a0\n" * 200
    (tmp_path / "a.txt").write_text(text)
    index = ragidx.build(tmp_path / "a.txt", tmp_path / "index", filter=ragidx.FilterSpec(dim=32))
    index.add(Document("b", "One."))
    index.compact(everything=True)
    index.shrink(16)
    index.reindex(tmp_path / "other")

    for path in ("index", "other"):
        assert ragidx.Index(tmp_path / path).get(["a.txt"])[0].text == text
