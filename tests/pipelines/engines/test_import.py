"""Tables and files that are read back: the rows of an export as they were, and those that others wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import CorpusError, IndexFormatError, SpecError
from ragidx.pipelines.engines.about import About
from ragidx.pipelines.index import Index

from ..conftest import Done


def rows_of(index: Index) -> dict[str, tuple[Any, ...]]:
    """All that the index has of each row, by its id; vectors bit for bit. What is read has no empty lists."""
    store = index.searcher.store
    return {
        row.chunk_id: (
            row.doc_id,
            row.start,
            row.end,
            row.text,
            row.heading,
            row.line,
            row.page,
            {name: value for name, value in row.metadata.items() if value != []},
            v.tobytes(),
        )
        for row, v in zip(store.rows(store.live), store.vectors(store.live), strict=True)
    }


def test_an_export_comes_back_as_it_was(exported: tuple[Index, str], tmp_path: Path) -> None:
    index, to = exported
    back = ragidx.build(index=tmp_path / "back", vectors=to)
    assert rows_of(back) == rows_of(index)
    assert back.report is not None
    assert (back.report.n_chunks, back.report.skipped) == (6, {})
    assert (back.spec.encoder, back.spec.filter, back.spec.weights) == (
        index.spec.encoder,
        index.spec.filter,
        index.spec.weights,
    )
    for question in ("where do bees fly?", "an old mill"):
        told = [
            [(hit.chunk_id, hit.score, hit.dense) for hit in one.search(question, mode="dense")]
            for one in (back, index)
        ]
        assert told[0] == told[1]
    assert back.build(vectors=to).committed is False
    with pytest.raises(SpecError, match="the vectors say which model made them"):
        back.build(vectors=to, model="mini")


def test_a_file_of_an_export_comes_back_too(index: Index, tmp_path: Path) -> None:
    file = tmp_path / "chunks.parquet"
    index.export(str(file))
    back = ragidx.build(index=tmp_path / "back", vectors=file)
    assert rows_of(back) == rows_of(index)
    other = Index.create(tmp_path / "other", filter="none")
    other.add([ragidx.Document("one", "One document.")])
    other.export(str(file), replace=True)
    with pytest.raises(CorpusError, match="256"):
        back.build(vectors=file)
    assert rows_of(back) == rows_of(index)


def test_given_vectors_come_back(place: Callable[[str], str], tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", dim=3)
    vectors = np.array([[1, 0, 0], [0.6, 0.8, 0], [0, 0, 1]], np.float32)
    index.add_vectors(["a", "b", "c"], vectors, texts=["A.", None, "C."], metadata=[{"heading": "h"}, {}, {"end": 3}])
    index.export(place("given"))
    back = ragidx.build(index=tmp_path / "back", vectors=place("given"))
    found = [back.search(vector=vector, k=1)[0] for vector in vectors]
    assert [(hit.chunk_id, hit.text) for hit in found] == [("a", "A."), ("b", ""), ("c", "C.")]
    assert found[2].metadata == {"end": 3}
    assert back.spec.encoder is None


def test_a_table_that_is_not_there(place: Callable[[str], str], tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="there is no row of vectors"):
        ragidx.build(index=tmp_path / "back", vectors=place("nothing"))


def test_what_it_says_is_not_trusted(index: Index) -> None:
    about = About.of(index.searcher.store)
    data = about.to_bytes()
    for broken in (
        b"",
        b"{}",
        b"[]",
        data.replace(b'"dim": ', b'"dim": "x", "was": '),
        data.replace(b'"format": 1', b'"format": 2'),
    ):
        with pytest.raises(IndexFormatError, match="what it says of its vectors cannot be read"):
            About.from_bytes(broken, "here")
    outside = About(**{**vars(about), "files": {"../outside": b"x"}})
    with pytest.raises(IndexFormatError, match="cannot be read"):
        About.from_bytes(outside.to_bytes(), "here")


def test_the_command(exported: tuple[Index, str], run: Callable[..., Done]) -> None:
    done = run("build", "--vectors", exported[1], "--quiet")
    assert (done.status, done.err) == (0, "")
    assert "bees" in run("query", "where do bees fly?").out
