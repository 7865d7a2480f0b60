"""Haystack's filters find in an index what they find in Haystack's own store, over a grid of them; or are refused."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # before the import, which reads it
pytest.importorskip("haystack", reason="the extra 'haystack' is not installed")

from haystack import Document
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.errors import FilterError

import ragidx
from ragidx.frameworks.haystack import RagidxDocumentStore, RagidxRetriever

NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)
METAS: list[dict[str, Any]] = [
    {"n": 1, "f": 0.5, "b": True, "s": "law", "d": "2024-01-31", "l": ["a", "b"]},
    {"n": -2, "f": 1.0, "b": False, "s": 'say "no"\\', "d": "2024-01-31T00:00:00", "l": ["a"]},
    {"n": 2**53 + 1, "f": -1e300, "s": "", "d": "2024-02-01T10:00:00+02:00"},
    {"n": 0, "f": 2.0, "b": True, "s": "o'clock\nZ", "d": "2023-12-31", "na`me \\": "x"},
    {"s": "2024-01-31", "doc_id": "mine"},
    {},
]
# Beside these, what a field of an index does not hold exactly, or a filter reaches step by step.
ODD: list[dict[str, Any]] = [
    {"n": None, "m": 1, "x": {"y": 3, "z": {"w": "deep"}}, "when": NOON},
    {"m": "1", "x": {"y": "3"}, "odd.name": 3},
    {"m": True, "x": "flat"},
    {"m": 1.0, "big": 2**70},
]
VALUES: list[Any] = [
    *(None, 0, 1, -2, 2.0, 0.5, 2**53 + 1, 2**53, 2**70, 10**400, float("inf"), float("nan"), True, False),
    *("law", "", "1", "3", 'say "no"\\', "o'clock\nZ", "x", "\ud800", "mine", "id 3", "text 1", "deep", "The mill"),
    *("2024-01-31", "2024-01-31T00:00:00Z", "2024-02-01T08:00:00+00:00", "2024-01-30T24:00", "20240131", "2024"),
    *(datetime(2024, 1, 31), NOON, ["a", "b"], [], {"y": 3, "z": {"w": "deep"}}, (1, 2), b"x"),
]
LISTS: list[list[Any]] = [
    *([], [None], [1, "law", None], [0, True, 2.0], ["2024-01-31", 5], ["2024-02-01T08:00:00Z"], [["a"], "a"]),
    *([2**53 + 1, 0.5], ["id 1", "id 2"], [datetime(2024, 1, 31)], ['say "no"\\'], ["\ud800"], ["The mill", None]),
]
FIELDS = ["meta.n", "meta.f", "meta.b", "meta.s", "meta.d", "meta.l", "meta.na`me \\", "meta.doc_id", "n"]
OF_A_STORE = ["meta.m", "meta.x", "meta.x.y", "meta.x.z.w", "meta.odd.name", "meta.none", "meta.big", "meta.when"]
OF_A_DOCUMENT = ["id", "content", "blob", "score", "nosuch.thing", "s"]
OF_TEXTS = ["meta.t", "meta.source", "meta.heading"]

Find = Callable[[dict[str, Any]], list[str]]


def comparisons(fields: list[str]) -> Iterator[dict[str, Any]]:
    """All values with `==`, `<` and `in`; the other operators differ by a sign or a `not`, and take some of them."""
    for place, field in enumerate(fields):
        for operator, values in (("==", VALUES), ("<", VALUES), ("in", LISTS)):
            yield from ({"field": field, "operator": operator, "value": value} for value in values)
        for operator, values in (("!=", VALUES), (">", VALUES), (">=", VALUES), ("<=", VALUES), ("not in", LISTS)):
            yield from ({"field": field, "operator": operator, "value": value} for value in values[place % 4 :: 4])


def nested(atoms: list[dict[str, Any]], draw: random.Random, depth: int = 3) -> dict[str, Any]:
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(atoms)
    parts = [nested(atoms, draw, depth - 1) for _ in range(draw.choice((0, 1, 2, 2, 3)))]
    return {"operator": draw.choice(("AND", "OR", "NOT")), "conditions": parts}


def compare(theirs: Find, ours: Find, filters: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Those that both find documents by; and why others are refused here that are not there."""
    found, refused = [], Counter[str]()
    for one in filters:
        try:
            expected: list[str] | None = theirs(one)
        except (FilterError, TypeError, OverflowError):
            expected = None
        try:
            got = ours(one)
        except FilterError as fault:
            if expected is not None:
                refused[str(fault)] += 1
            continue
        assert got == expected, one
        found.append(one)
    return found, refused


@pytest.mark.slow
def test_a_store_finds_what_haystacks_own_finds(tmp_path: Path) -> None:
    documents = [
        Document(
            id=f"id {number}",
            content=None if number == 5 else "" if number == 4 else f"text {number}",
            meta=meta,
            embedding=None if number % 3 == 2 else [1.0, number, 2.0],
        )
        for number, meta in enumerate([*METAS, *ODD])
    ]
    own, memory = RagidxDocumentStore(tmp_path / "store"), InMemoryDocumentStore()
    own.write_documents(documents)
    memory.write_documents(documents)

    def ours(filters: dict[str, Any]) -> list[str]:
        return [document.id for document in own.filter_documents(filters)]

    def theirs(filters: dict[str, Any]) -> list[str]:
        return [document.id for document in memory.filter_documents(filters)]

    found, refused = compare(theirs, ours, list(comparisons([*FIELDS, *OF_A_STORE, *OF_A_DOCUMENT])))
    draw = random.Random(7)
    deep, refused_deep = compare(theirs, ours, [nested(found, draw) for _ in range(120)])

    assert len(found) > 1000
    assert len(deep) == 120
    assert refused_deep == Counter()
    assert [why for why in refused if "compares numbers and ISO dates" not in why] == []


@pytest.mark.slow
def test_a_retriever_of_texts_finds_what_haystacks_own_finds_in_its_documents(tmp_path: Path) -> None:
    (tmp_path / "mill.md").write_text("# The mill\n\nIt turned for nine years by the river.\n")
    index = ragidx.build(tmp_path / "mill.md", tmp_path / "index")
    times = [{"t": NOON}, {"t": datetime(2024, 1, 31, tzinfo=UTC)}, {}, {}, {}, {}]
    index.add(
        ragidx.Document(f"id {number}", f"text {number} about the river", meta | time)
        for number, (meta, time) in enumerate(zip(METAS, times, strict=True))
    )
    retriever, memory = RagidxRetriever(index, top_k=100, fold=False), InMemoryDocumentStore()
    memory.write_documents(retriever.run("river")["documents"])

    def ours(filters: dict[str, Any]) -> list[str]:
        return sorted(document.id for document in retriever.run("river", filters)["documents"])

    def theirs(filters: dict[str, Any]) -> list[str]:
        return sorted(document.id for document in memory.filter_documents(filters))

    found, refused = compare(theirs, ours, list(comparisons([*FIELDS, *OF_TEXTS])))
    draw = random.Random(7)
    deep, refused_deep = compare(theirs, ours, [nested(found, draw) for _ in range(80)])

    assert memory.count_documents() == 7
    assert len(found) > 500
    assert len(deep) == 80
    assert refused_deep == Counter()
    assert [why for why in refused if "compares numbers and ISO dates" not in why] == []


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> ragidx.Index:
    index = ragidx.Index.create(tmp_path_factory.mktemp("rows") / "index", dim=2)
    days = [f"2024-{1 + day // 28:02}-{1 + day % 28:02}" for day in range(300)]
    index.add_vectors(range(300), [[1, day] for day in range(300)], metadata=[{"day": day} for day in days])
    return index


def test_dates_that_are_text_are_compared_as_dates(index: ragidx.Index) -> None:
    store = RagidxDocumentStore(index.path)
    later = {"field": "meta.day", "operator": ">=", "value": "2024-03-01T00:00:00"}

    assert store.count_documents_by_filter(later) == 300 - 2 * 28
    assert store.count_documents_by_filter({"operator": "NOT", "conditions": [later]}) == 2 * 28


@pytest.mark.slow
def test_a_list_may_be_longer_than_that_of_a_condition_as_text(index: ragidx.Index) -> None:
    store = RagidxDocumentStore(index.path)
    many = {"field": "meta.day", "operator": "in", "value": [f"not a date {number}" for number in range(2000)]}

    assert store.filter_documents(many) == []
    assert len(store.filter_documents({"operator": "NOT", "conditions": [many]})) == 300


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        (["a"], "a filter is a dict"),
        ({"field": "meta.day", "operator": "=", "value": 1}, "unknown operator '='; there are !=,"),
        ({"field": "meta.day", "operator": ["=="], "value": 1}, "unknown operator"),
        ({"field": 3, "operator": "==", "value": 1}, "'field' is a text"),
        ({"operator": "XOR", "conditions": []}, "unknown operator 'XOR'; there are AND, NOT, OR"),
        ({"operator": "AND", "conditions": {"field": "meta.day"}}, "'conditions' is a list"),
        ({"operator": "AND", "conditions": ["a"]}, "a filter is a dict"),
        ({"field": "meta.none", "operator": "in", "value": (1, 2)}, "the value of 'in' is a list"),
        ({"field": "meta.none", "operator": "<", "value": "soon"}, "compares numbers and ISO dates, and 'soon'"),
        ({"field": "meta.none", "operator": "<", "value": [1]}, "compares numbers and ISO dates"),
        ({"field": "meta.day", "operator": "<", "value": 3}, "cannot compare 'day', which is of type string, to 3"),
        ({"field": "embedding", "operator": "==", "value": [1.0, 2.0]}, "kept in half precision"),
    ],
)
def test_what_is_malformed_or_compares_unlike_things_is_refused(index: ragidx.Index, filters: Any, why: str) -> None:
    with pytest.raises(FilterError, match=why):
        RagidxDocumentStore(index.path).filter_documents(filters)


def test_malformed_filters_are_refused_before_there_is_an_index(tmp_path: Path) -> None:
    with pytest.raises(FilterError, match="'value' key missing"):
        RagidxDocumentStore(tmp_path / "none").filter_documents({"field": "meta.a", "operator": "=="})


def test_filters_may_be_deeper_than_a_condition_as_text(index: ragidx.Index) -> None:
    deep: dict[str, Any] = {"field": "meta.day", "operator": "==", "value": "2024-01-01"}
    for _ in range(100):
        deep = {"operator": "NOT", "conditions": [deep]}

    assert RagidxDocumentStore(index.path).count_documents_by_filter(deep) == 1
    with pytest.raises(FilterError, match="more than 100 deep"):
        RagidxDocumentStore(index.path).count_documents_by_filter({"operator": "NOT", "conditions": [deep]})
