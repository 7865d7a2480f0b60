"""The edges of every type: a table gives them back, and compares them as the index does."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import QueryError
from ragidx.pipelines.index import Index
from ragidx.pipelines.integrations.engines.target import Target
from ragidx.retriever.where.binding import bind

EDGES: dict[str, list[Any]] = {
    "when": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
    ],
    "whole": [-(2**63), 2**63 - 1, 2**53 + 1, -(2**53) - 1, 0],
    "share": [5e-324, -1.7976931348623157e308, 0.1, -0.0, 2.0**63],
    "text": ["", "\\", "'", '"', "%_", "\n\r\t", "\u2028", "🦊", "\ufeff", "\x01", "a\\'b", "null"],
    "list": [[""], ["'", "a,b"], ["\\", '"'], ["%"], ["{}"]],
    "truth": [True, False],
}
SIGNS = {"list": ["contains"], "truth": ["==", "!="], "text": ["==", "!=", "contains", "starts with"]}


@pytest.fixture(scope="module")
def edges(places: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, str]:
    """An index with the edges of every type, and the target that has its rows."""
    index = Index.create(tmp_path_factory.mktemp("edges") / "index")
    index.add(
        ragidx.Document(f"{field}{number}", "A text.", {field: value})
        for field, values in EDGES.items()
        for number, value in enumerate(values)
    )
    assert index.export(places("edges")).refused == {}
    return index, places("edges")


def test_they_come_back(edges: tuple[Index, str], tmp_path: Path) -> None:
    index, to = edges
    expected = {one.id: repr(one.metadata) for one in index.documents()}
    with ragidx.connect(to) as remote:
        assert {one.id: repr(one.metadata) for one in remote.documents()} == expected
    back = ragidx.build(index=tmp_path / "back", vectors=to)
    assert {one.id: repr(one.metadata) for one in back.documents()} == expected


@pytest.mark.parametrize("field", sorted(EDGES))
def test_they_are_compared_as_in_the_index(edges: tuple[Index, str], field: str) -> None:
    index, to = edges
    n_refused = 0
    with closing(Target.parse(to).open()) as table:
        for value in EDGES[field]:
            literal = json.dumps(value[0] if field == "list" else value, default=str, ensure_ascii=False)
            conditions = [f"{field} {sign} {literal}" for sign in SIGNS.get(field, ["==", "!=", "<", "<=", ">", ">="])]
            conditions += [] if field == "list" else [f"{field} in ({literal})", f"{field} not in ({literal})"]
            for where in conditions:
                try:
                    batches = list(table.select(bind(where, index.schema), ["doc_id"]))
                except QueryError:  # the engine cannot express it
                    n_refused += 1
                    continue
                found = sorted(name for batch in batches for name in batch[0].to_pylist())
                expected = index.to_batches(["doc_id"], where=where)
                assert found == sorted(name for batch in expected for name in batch[0].to_pylist()), where
    assert n_refused <= 16
