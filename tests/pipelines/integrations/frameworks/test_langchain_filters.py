"""Filters of the LangChain store: what they find, quoted names and values, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="needs the extra 'langchain'")

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import DeterministicFakeEmbedding

import ragidx
from ragidx.frameworks.langchain import RagidxVectorStore

from ....raising import message_of

ODD = "`a\\b\" 'c\n"
DOCUMENTS: dict[str, dict[str, Any]] = {
    "lease": {"year": 1840, "score": 4.5, "open": True, "lang": "en", "tags": ["law", "house"], "in": "Kent"},
    "mill": {"year": 1790, "score": 5.0, "open": False, "lang": "de", "tags": ["mill"]},
    "tower": {"year": 1958, "open": True, "lang": "fr", "when": datetime(2024, 2, 1, tzinfo=UTC)},
    "bees": {"year": 1946, "score": 5.0, "doc_id": "mill", "heading": "H", "when": datetime(2023, 1, 1, tzinfo=UTC)},
    "note": {ODD: ODD, "lang": None, "file.source": "x"},
}


@pytest.fixture(scope="module", params=[True, False], ids=["vectors", "texts"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RagidxVectorStore:
    embedding = DeterministicFakeEmbedding(size=6) if request.param else None
    store = RagidxVectorStore(tmp_path_factory.mktemp("filters") / "index", embedding)
    store.add_texts([f"the {name}" for name in DOCUMENTS], list(DOCUMENTS.values()), ids=list(DOCUMENTS))
    return store


def found(store: RagidxVectorStore, asked: Any) -> set[str | None]:
    return {document.id for document in store.similarity_search("the", k=9, filter=asked)}


EVERY = set(DOCUMENTS)
EXAMPLES: list[tuple[Any, set[str]]] = [
    ({"lang": "en"}, {"lease"}),
    ({"lang": "en", "year": 1840}, {"lease"}),
    ({"year": {"$gte": 1840, "$lt": 1958}}, {"lease", "bees"}),
    ({"year": {"$gt": 1840}}, {"tower", "bees"}),
    ({"year": {"$lte": 1790.5}}, {"mill"}),
    ({"score": {"$eq": 5}}, {"mill", "bees"}),
    ({"open": False}, {"mill"}),
    ({"lang": {"$ne": "en"}}, {"mill", "tower", "bees", "note"}),  # those without the field, too
    ({"lang": {"$nin": ["en", "de"]}}, {"tower", "bees", "note"}),
    ({"lang": {"$in": ("en", "de", "xx")}}, {"lease", "mill"}),
    ({"lang": {"$in": ["en", None]}}, {"lease", "bees", "note"}),
    ({"lang": {"$nin": ["en", None]}}, {"mill", "tower"}),
    ({"lang": None}, {"bees", "note"}),
    ({"lang": {"$ne": None}}, {"lease", "mill", "tower"}),
    ({"lang": {"$in": []}}, set()),
    ({"lang": {"$nin": []}}, EVERY),
    ({"lang": {"$exists": True}}, {"lease", "mill", "tower"}),
    ({"lang": {"$exists": False}}, {"bees", "note"}),
    ({"tags": "mill"}, {"mill"}),
    ({"tags": {"$in": ["mill", "law"]}}, {"lease", "mill"}),
    ({"tags": {"$ne": "mill"}}, EVERY - {"mill"}),
    ({"when": {"$gte": "2024"}}, {"tower"}),
    ({"when": datetime(2024, 2, 1, tzinfo=UTC)}, {"tower"}),
    ({"$or": [{"lang": "en"}, {"year": {"$gt": 1950}}]}, {"lease", "tower"}),
    ({"$and": [{"lang": "en"}, {"year": {"$gt": 1950}}]}, set()),
    ({"$not": {"year": {"$gte": 1840}}}, {"mill", "note"}),
    ({"year": {"$not": {"$gte": 1840}}}, {"mill", "note"}),
    ({"$not": {"$or": [{"lang": "en"}, {"$not": {"open": True}}]}}, {"tower"}),
    ({"$not": {"lang": "en", "year": 1840}}, EVERY - {"lease"}),
    ({"$not": {"lang": {"$exists": True}}}, {"bees", "note"}),
    ({ODD: ODD}, {"note"}),
    ({ODD: {"$ne": ODD}}, EVERY - {"note"}),
    ({"in": "Kent"}, {"lease"}),
    ({"doc_id": "mill"}, {"bees"}),  # the field of the metadata, not the document's id
    ({"heading": "H"}, {"bees"}),
    ({"file.source": "x"}, {"note"}),
    ({"lang": '" or year > 0 or "" == "'}, set()),
    ({"nothing": 1}, set()),
    ({"nothing": {"$ne": 1}}, EVERY),
    ({"nothing": {"$gt": 1}}, set()),
    ({"$not": {"nothing": {"$gt": 1}}}, EVERY),
    ({"nothing": {"$exists": False}}, EVERY),
    ({"nothing": None}, EVERY),
    ({"$not": {}}, set()),
    ({}, EVERY),
    (None, EVERY),
    ('doc_id == "mill" or year > 1950', {"mill", "tower"}),
    ((ragidx.field("doc_id") == "mill") | (ragidx.field("year") > 1950), {"mill", "tower"}),
]


@pytest.mark.parametrize(
    ("asked", "expected"), EXAMPLES, ids=lambda value: ascii(sorted(value) if isinstance(value, set) else value)[:50]
)
def test_a_filter_finds(store: RagidxVectorStore, asked: Any, expected: set[str]) -> None:
    assert found(store, asked) == expected


def passes(asked: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """What a filter says of a document, in Python."""
    return all(_part(name, value, metadata) for name, value in asked.items())


def _part(name: str, value: Any, metadata: Mapping[str, Any]) -> bool:
    if name in ("$and", "$or"):
        return (all if name == "$and" else any)(passes(part, metadata) for part in value)
    if name == "$not":
        return not passes(value, metadata)
    return all(_test(operator, one, metadata.get(name)) for operator, one in value.items())


def _test(operator: str, value: Any, held: Any) -> bool:
    if operator == "$not":
        return not all(_test(inner, one, held) for inner, one in value.items())
    if operator in ("$eq", "$ne"):
        return (held == value) == (operator == "$eq")
    if operator in ("$in", "$nin"):
        return (held in value) == (operator == "$in")
    if operator == "$exists":
        return (held is not None) == value
    return (
        held is not None
        and {"$gt": held > value, "$gte": held >= value, "$lt": held < value, "$lte": held <= value}[operator]
    )


def operators_of(values: st.SearchStrategy[Any], *, ordered: bool) -> st.SearchStrategy[dict[str, Any]]:
    one = st.sampled_from(["$eq", "$ne"]).flatmap(lambda name: st.fixed_dictionaries({name: st.none() | values}))
    some = st.sampled_from(["$in", "$nin"]).flatmap(
        lambda name: st.fixed_dictionaries({name: st.lists(st.none() | values, max_size=3)})
    )
    order = st.sampled_from(["$gt", "$gte", "$lt", "$lte"]).flatmap(lambda name: st.fixed_dictionaries({name: values}))
    tests = one | some | st.fixed_dictionaries({"$exists": st.booleans()})
    tests = tests | order if ordered else tests
    return tests | st.fixed_dictionaries({"$not": tests})


LEAVES = st.one_of(
    st.fixed_dictionaries({"year": operators_of(st.sampled_from([1790, 1840, 1900, 1946.5, -1]), ordered=True)}),
    st.fixed_dictionaries({"score": operators_of(st.sampled_from([4.5, 5, 4.75]), ordered=True)}),
    st.fixed_dictionaries({"lang": operators_of(st.sampled_from(["en", "de", "", 'e"n\\']), ordered=True)}),
    st.fixed_dictionaries({"open": operators_of(st.booleans(), ordered=False)}),
    st.fixed_dictionaries({ODD: operators_of(st.sampled_from([ODD, "a"]), ordered=True)}),
    st.fixed_dictionaries({"nothing": operators_of(st.integers(0, 3), ordered=True)}),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.sampled_from(["$and", "$or"]).flatmap(
            lambda name: st.fixed_dictionaries({name: st.lists(inner, min_size=1, max_size=3)})
        ),
        st.fixed_dictionaries({"$not": inner}),
        st.tuples(inner, inner).map(lambda both: {**both[0], **both[1]}),
    ),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=60, phases=[Phase.generate])
@given(FILTERS)
def test_a_filter_finds_what_python_says(store: RagidxVectorStore, asked: dict[str, Any]) -> None:
    assert found(store, asked) == {name for name, metadata in DOCUMENTS.items() if passes(asked, metadata)}


def test_a_list_may_be_longer_than_a_condition_s(store: RagidxVectorStore) -> None:
    values = list(range(1000, 2100))

    assert found(store, {"year": {"$in": values}}) == {"lease", "mill", "tower", "bees"}
    assert found(store, {"year": {"$nin": values}}) == {"note"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"year": {"$gtt": 1}},
            "`filter`: unknown operator '$gtt'; did you mean '$gt'?\n"
            "  hint: known: $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists, $not",
        ),
        ({"$nor": [{}]}, "`filter`: unknown operator '$nor'; did you mean '$or'?\n  hint: known: $and, $or, $not"),
        ({"a": {"b": 1}}, "`filter`: unknown operator 'b'\n  hint: known: $eq, $ne, $gt, $gte"),
        ({"$or": []}, '`filter`: $or is [], no list of filters\n  hint: give {"$or": [filter, filter]}'),
        ({"$or": ["a"]}, "`filter`: 'a' is no filter\n  hint: give a dict, such as"),
        ({"year": {}}, "`filter`: the field 'year' is compared with nothing\n  hint: give a value, or an operator"),
        ({"year": [1, 2]}, "`filter`: the field 'year' is compared with [1, 2]\n  hint: for one of several values"),
        ({"year": {"$in": 3}}, "`filter`: $in of the field 'year' is 3, no list\n  hint: give {\"$in\": [1, 2]}"),
        ({"year": {"$in": "ab"}}, "`filter`: $in of the field 'year' is 'ab', no list"),
        ({"year": {"$exists": 1}}, "`filter`: $exists of the field 'year' is 1\n  hint: give true or false"),
        ({"year": {"$gt": None}}, "`filter`: the field 'year' is compared with None\n  hint: give a text, a number"),
        ({"year": float("nan")}, "`filter`: the field 'year' is compared with nan\n  hint: give a text, a number"),
        (
            reduce(lambda inner, _: {"$not": inner}, range(101), {"year": 1}),
            "`filter`: the filter is more than 100 deep",
        ),
        ({1: 2}, "`filter`: the field 1 is no text\n  hint: give the name of a field"),
        (print, "`filter`: <built-in function print> is no filter\n  hint: give a dict, "),
        ({"year": "1840"}, "condition, field 'year': 'year' is a number, and \"1840\" is text"),
        ("yaer > 3", "condition, character 1: unknown field 'yaer'; did you mean 'year'?"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_a_filter_that_is_wrong_is_refused(store: RagidxVectorStore, asked: Any, message: str) -> None:
    assert message_of(ragidx.QueryError, lambda: found(store, asked)).startswith(message)


def test_a_filter_deletes_what_it_finds(tmp_path: Path) -> None:
    store = RagidxVectorStore(tmp_path / "index", DeterministicFakeEmbedding(size=6))
    assert store.delete(filter={"lang": "en"})  # nothing is there
    store.add_texts(list(DOCUMENTS), list(DOCUMENTS.values()), ids=list(DOCUMENTS))

    assert store.delete(filter={"lang": {"$ne": "en"}, "year": {"$lt": 1950}})
    assert store.delete(["lease", "note"], filter="year > 1800")

    assert found(store, None) == {"tower", "note"}
