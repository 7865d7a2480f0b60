"""The options of a search: checked, and the condition parsed, once, before anything is encoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import QueryError
from ragidx.retriever.fusion import Widths
from ragidx.retriever.options import SearchOptions, search_options
from ragidx.retriever.ranking import Queries
from ragidx.retriever.where.conditions import Compare


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Three rows of width 4, and no model that could encode a question."""
    with ragidx.IndexWriter(tmp_path / "index", dim=4) as writer:
        writer.add(["a", "b", "c"], np.eye(3, 4), metadata=[{"year": 1}, {"year": 2}, {"year": 3}])
        writer.commit()
    return tmp_path / "index"


def test_the_options_hold_the_parsed_condition(index: Path) -> None:
    reader = ragidx.IndexReader.open(index)

    options = search_options(reader.store, np.int64(2), "year >= 2", dim=3)

    assert options == SearchOptions(2, Compare("year", ">=", 2), Widths(3))
    assert type(options.k) is int


def test_options_made_once_serve_many_searches(index: Path) -> None:
    reader = ragidx.IndexReader.open(index)
    options = search_options(reader.store, 2, "year >= 2", dim=2, rerank_dim=3)

    for query in np.eye(3, 4, dtype=np.float32):
        expected = reader.search([query.tolist()], 2, "year >= 2", dim=2, rerank_dim=3)
        assert reader.hits(Queries(query[None]), options) == expected
        assert reader.documents(Queries(query[None]), options) == [[(hit.doc_id, hit.score) for hit in expected[0]]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": 0}, "`k`: k=0 asks for no hit\n  hint: give 1 or more"),
        ({"where": 3}, "condition: the condition is 3, no text\n  hint: write one such as 'year >= 1900'"),
        (
            {"dim": 5},
            "`dim`: dim 5 is not from 1 to 4, the dimensions stored in the index\n"
            "  hint: give at most 4; for more, build again with a larger `dim` and `rebuild=True`",
        ),
    ],
)
def test_wrong_options_are_refused_before_a_model_is_looked_for(
    index: Path, wrong: dict[str, object], message: str
) -> None:
    retriever = ragidx.Retriever.open(index)

    with pytest.raises(QueryError) as fault:
        retriever.search("a question", **wrong)  # type: ignore[arg-type]

    assert str(fault.value) == message
