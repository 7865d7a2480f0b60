"""The demo: what `query` answers, and each hit's place by vectors and by words."""

from __future__ import annotations

from pathlib import Path

import pytest

import ragidx
from ragidx.pipelines.cli import demo


@pytest.mark.slow
def test_the_answers_are_those_of_a_query_and_the_places_those_of_its_parts(tmp_path: Path) -> None:
    index, answers = demo.run(tmp_path / "index")

    retriever = ragidx.Index(tmp_path / "index")
    assert (index.info().n_documents, index.info().n_chunks) == (124, 276)
    for question, found in zip(demo.QUESTIONS, answers, strict=True):
        assert [one.hit for one in found] == retriever.search(question, 3)
        for one in found:
            for place, mode in ((one.dense_place, "dense"), (one.lexical_place, "lexical")):
                ranked = retriever.search(question, 100, mode=mode, fold=False)
                ids = [hit.chunk_id for hit in ranked]
                assert (ids[place - 1] if place else None) == (one.hit.chunk_id if place else None)
                assert place is not None or one.hit.chunk_id not in ids
