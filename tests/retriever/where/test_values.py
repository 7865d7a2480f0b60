"""Conditions that a program writes: what they are as text, what they select, and every mistake."""

# ruff: noqa: E501, E712, PLW0177, SIM201, SIM300 - what is compared, and how, is what is tested
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import ragidx
from ragidx.corpora.errors import QueryError
from ragidx.retriever.where.answers import mask
from ragidx.retriever.where.binding import bind
from ragidx.retriever.where.conditions import Condition, field
from ragidx.retriever.where.parser import parse

from ...condition_trees import CONDITIONS, SCHEMA, TABLE
from ...raising import message_of


class Colour(StrEnum):
    LAW = "law"


def rows(condition: str | Condition) -> list[int]:
    return [int(row) for row in mask(bind(condition, SCHEMA), TABLE).nonzero()[0]]


@pytest.mark.parametrize(
    ("condition", "text", "expected"),
    [
        (field("year") == 1900, "year == 1900", [0]),
        (field("year") != 1900, "year != 1900", [1, 3]),
        (field("year") < 1999.5, "year < 1999.5", [0]),
        (field("year") <= 2000, "year <= 2000", [0, 1]),
        (2000 <= field("year"), "year >= 2000", [1, 3]),
        (field("year") > np.int64(1900), "year > 1900", [1, 3]),
        (np.float32(1.5) < field("price"), "price > 1.5", [3]),
        (field("open") == True, "open == true", [0, 3]),
        (field("open") == np.bool_(True), "open == true", [0, 3]),
        (field("year").is_in([1900, 2000]), "year in (1900, 2000)", [0, 1]),
        (field("year").is_in([]), "year is null and not year is null", []),
        (~field("year").is_in(()), "not (year is null and not year is null)", [0, 1, 2, 3]),
        (field("name").is_in({"law"}), 'name in ("law")', [0]),
        (field("name") == Colour.LAW, 'name == "law"', [0]),
        (field("name").contains("n"), 'name contains "n"', [1, 3]),
        (field("name").starts_with("Ü"), 'name starts with "Ü"', [1]),
        (field("name").matches(r"\s"), r'name matches "\\s"', [3]),
        (field("name") == 'say "no"\n', r'name == "say \"no\"\n"', [3]),
        (field("tags").contains("b"), 'tags contains "b"', [0, 3]),
        (field("tags").is_in(["a", "c"]), 'tags in ("a", "c")', [0]),
        (~field("tags").is_in(["a", "c"]), 'not tags in ("a", "c")', [1, 3]),
        (field("year").is_null(), "year is null", [2]),
        (~field("year").is_null(), "not year is null", [0, 1, 3]),
        (field("added") >= date(2024, 2, 1), 'added >= "2024-02-01T00:00:00"', [1]),
        (field("added") == datetime(2024, 1, 31, 12, tzinfo=UTC), 'added == "2024-01-31T12:00:00+00:00"', [0]),
        (field("added") < "2024", 'added < "2024"', [3]),
        (
            (field("year") == 1900) & (field("price") > 1) & ~(field("open") == False),
            "year == 1900 and price > 1 and not open == false",
            [0],
        ),
        (
            ((field("year") == 1900) | (field("price") > 1)) & (field("year") > 0),
            "(year == 1900 or price > 1) and year > 0",
            [0, 3],
        ),
        (~((field("year") == 1900) | (field("price") > 1)), "not (year == 1900 or price > 1)", []),
    ],
)
def test_a_value_is_what_its_text_is_and_selects_the_same(condition: Condition, text: str, expected: list[int]) -> None:
    assert str(condition) == text
    assert repr(condition) == f"<ragidx.Condition {text}>"
    assert rows(condition) == rows(text) == expected


def test_odd_names_are_written_in_backticks() -> None:
    assert str(field("a`b\\") == 1) == "`a\\`b\\\\` == 1"
    assert str(field("Null") == 1) == "`Null` == 1"
    assert str(field("x.y-z") == 1) == "x.y-z == 1"
    assert parse(str(field("two\nlines") == 1)) == (field("two\nlines") == 1)


def test_a_text_is_made_a_value_and_a_value_is_itself() -> None:
    text = ragidx.condition("year == 1900 or price > 1")

    assert text == (field("year") == 1900) | (field("price") > 1)
    assert rows(text & (field("price") > 2)) == [3]
    assert ragidx.condition(text) is text
    with pytest.raises(QueryError, match="character 6: expected a comparison"):
        ragidx.condition("year = 5")
    with pytest.raises(QueryError, match="condition, character 1: unknown field 'yaer'"):
        bind((field("year") == 1) & ragidx.condition("yaer == 5"), SCHEMA)


def test_conditions_are_equal_by_value() -> None:
    one, same, other = ((field("a") == value) & ~field("b").is_null() for value in (1, 1, 2))

    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "a == 1 and not b is null"
    assert parse(str(one)) == one


JOIN = 'join conditions by & and |, negate by ~, each in brackets: (field("a") >= 1) & ~(field("b") == 2)'
TRUTH = f"condition: a condition is neither true nor false, as and, or, not and a < b < c ask\n  hint: {JOIN}"
GIVE = "give a text, a finite number, true, false or a time; one of several by is_in([1, 2])"
A, B = field("a"), field("b")


def alone(name: str) -> str:
    said = "a field without a comparison is no condition"
    return f"condition, field '{name}': {said}\n  hint: write field('{name}') == True; {JOIN}"


def beside(shown: str) -> str:
    return f"condition: {shown} beside & or | is no condition\n  hint: {JOIN}"


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: (A == 1) and (B == 2), TRUTH),
        (lambda: (A == 1) or (B == 2), TRUTH),
        (lambda: not (A == 1), TRUTH),
        (lambda: 1 < A < 3, TRUTH),
        (lambda: 1 < A == 3, TRUTH),
        (lambda: A in [1, 2], TRUTH),
        (lambda: A == 1 & B == 2, alone("b")),
        (lambda: A == "x" | B == "y", alone("b")),
        (lambda: (A == 1) & B == 2, beside("field('b')")),
        (lambda: A == np.int64(1) & B, alone("b")),
        (lambda: A and B == 2, alone("a")),
        (lambda: not A, alone("a")),
        (lambda: ~A, alone("a")),
        (lambda: A & (B == 2), alone("a")),
        (lambda: A | B, alone("a")),
        (lambda: (A == 1) & True, beside("True")),
        (lambda: False | (A == 1), beside("False")),
        (lambda: None & (A == 1), beside("None")),
        (lambda: (A == 1) & "b == 2", beside("'b == 2'")),
        (
            lambda: "x" in A,
            "condition, field 'a': Python's `in` makes no condition\n"
            "  hint: write field('a').contains(...) or .is_in([...])",
        ),
        (
            lambda: A == None,  # noqa: E711
            "condition, field 'a': is compared with None\n  hint: write field('a').is_null(), or ~field('a').is_null()",
        ),
        (
            lambda: A == B,
            f"condition, field 'a': is compared with field('b')\n  hint: a field is compared with a value; {JOIN}",
        ),
        (
            lambda: A == (B == 1),
            "condition, field 'a': is compared with <ragidx.Condition b == 1>\n"
            f"  hint: a field is compared with a value; {JOIN}",
        ),
        (lambda: A == float("nan"), f"condition, field 'a': is compared with nan\n  hint: {GIVE}"),
        (lambda: A < np.float32("inf"), f"condition, field 'a': is compared with inf\n  hint: {GIVE}"),
        (lambda: A == [1], f"condition, field 'a': is compared with [1]\n  hint: {GIVE}"),
        (lambda: A == np.array([1, 2]), f"condition, field 'a': is compared with array([1, 2])\n  hint: {GIVE}"),
        (lambda: A.is_in([1, None]), "condition, field 'a': is compared with None\n  hint: write field('a').is_null()"),
        (
            lambda: A.is_in("ab"),
            "condition, field 'a': 'ab' is no list of values\n  hint: give several: is_in([\"a\", \"b\"])",
        ),
        (
            lambda: A == "\ud800",
            "condition, field 'a': is compared with '\\ud800'\n"
            "  hint: the text holds half of a surrogate pair: write the character itself",
        ),
        (lambda: field(""), "condition: '' names no field\n  hint: give its name, as field(\"year\")"),
        (lambda: field(3), "condition: 3 names no field\n  hint: give its name, as field(\"year\")"),
    ],
)  # fmt: skip
def test_what_python_would_read_in_another_way_is_an_error(write: Callable[[], Any], message: str) -> None:
    assert message_of(QueryError, write).startswith(message)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (field("yaer") > 5, "condition, field 'yaer': unknown field 'yaer'; did you mean 'year'?\n  hint: fields: added, "),
        (field("year") == "5", "condition, field 'year': 'year' is a number, and \"5\" is text\n  hint: compare it with"),
        (field("year") == True, "condition, field 'year': 'year' is a number, and true is a truth value\n"),
        (field("name") < 3, "condition, field 'name': 'name' is text, and 3 is a number\n  hint: write it in quotes: \"3\""),
        (
            field("name") == date(2024, 1, 31),
            "condition, field 'name': 'name' is text, and \"2024-01-31T00:00:00\" is a time\n",
        ),
        (field("open") > True, "condition, field 'open': > does not apply to 'open', a truth value\n  hint: use == or !="),
        (field("tags") == "a", "condition, field 'tags': == does not apply to 'tags', a list of texts\n  hint: use contains"),
        (field("year").contains("1"), "condition, field 'year': contains reads text, and 'year' is a number\n"),
        (field("name").matches("(a"), "condition, field 'name': the regular expression is broken: missing ): (a\n"),
        (field("added") > "soon", "condition, field 'added': 'added' is a time, and \"soon\" is none in ISO form\n"),
        (field("price") == 2**53 + 1, "condition, field 'price': 'price' has fractions, and rounds whole numbers past"),
        (field("price") == 10**400, "condition, field 'price': 1000"),
        (True, "condition: True is no condition\n  hint: write a text such as 'year >= 1900', or compare a field: rag"),
        (field("open"), "condition: field('open') is no condition\n"),
        ({"year": 5}, "condition: {'year': 5} is no condition\n"),
    ],
)  # fmt: skip
def test_a_mistake_names_the_field(condition: Any, message: str) -> None:
    assert message_of(QueryError, lambda: bind(condition, SCHEMA)).startswith(message)


def chain(turns: int) -> Condition:
    """The year is 2000, turned round so often."""
    condition = field("year") == 2000
    for _ in range(turns):
        condition = ~(condition & (field("year") > 0))
    return condition


def test_a_condition_is_a_thousand_deep_and_no_more() -> None:
    deep = chain(500)
    assert deep.depth == 1000
    assert rows(deep) == [1]
    assert deep == chain(500)
    assert "year == 2000" in repr(deep)
    assert deep.fields == {"year"}

    assert message_of(QueryError, lambda: bind(~deep, SCHEMA)) == (
        "condition: the condition is more than 1,000 deep\n"
        "  hint: of many conditions take one by is_in, or join all by the same sign"
    )


def test_many_conditions_joined_by_one_sign_are_not_deep() -> None:
    many = field("year") == 0
    for number in range(1, 3000):
        many = many | (field("year") == number)

    assert many.depth == 1
    assert rows(many) == [0, 1]


def test_a_test_in_python_sees_each_value_and_no_null() -> None:
    seen: list[Any] = []

    def test(value: Any) -> bool:
        seen.append(value)
        return value in ("law", 1900, ["b"])

    for name, expected in (("name", [0]), ("year", [0]), ("tags", [3])):
        assert rows(field(name).passes(test)) == expected
        assert rows(~field(name).passes(test)) == [row for row in (0, 1, 3) if row not in expected]
    assert None not in seen
    assert mask(bind(field("name").passes(test), SCHEMA), TABLE.drop(["name"])).tolist() == [False] * 4


def test_a_table_of_many_rows_is_answered_row_by_row() -> None:
    table = pa.table({"year": pa.array(range(600_000), pa.int64())})

    found = mask(bind((field("year") >= 262_140) & (field("year") < 524_290), SCHEMA), table)

    assert found.nonzero()[0].tolist() == list(range(262_140, 524_290))


@pytest.mark.slow
@settings(deadline=None)
@given(CONDITIONS)
def test_a_random_tree_as_text_and_as_value_selects_the_same(condition: Condition) -> None:
    text = str(condition)

    assert str(parse(text)) == text
    assert rows(text) == rows(condition)
    assert bind(text, SCHEMA) == bind(condition, SCHEMA)  # so engines translate the same


def test_a_search_takes_either_form(tmp_path: Path) -> None:
    with ragidx.Index.create(tmp_path / "index", dim=2) as index:
        vectors = [[1, number] for number in range(3)]
        index.add_vectors(["a", "b", "c"], vectors, metadata=[{"year": 1990 + number} for number in range(3)])
        late, text = ragidx.field("year") >= 1991, "year >= 1991"

        for where in (late, text):
            assert {hit.doc_id for hit in index.search(vector=[1, 1], where=where)} == {"b", "c"}
            assert [document.id for document in index.documents(where=where)] == ["b", "c"]
            assert index.count(where) == 2
            assert index.values("year", where=where) == [(1991, 1), (1992, 1)]
            assert sum(batch.num_rows for batch in index.to_batches(["doc_id"], where=where)) == 2
            assert index.delete(where=where, dry_run=True).n_documents == 2
            assert {hit.doc_id for hit in ragidx.search([index], vector=[1, 1], where=where)} == {"b", "c"}
        with pytest.raises(QueryError, match="False is no condition"):
            index.search(vector=[1, 1], where=(ragidx.field("year") == 1) == True)  # type: ignore[arg-type]
        with index.batch() as batch:
            batch.delete(where=late)
        assert index.count() == 1


def test_a_field_is_there_without_pyarrow_and_numpy() -> None:
    code = "import ragidx, sys; ragidx.field('a') == 1; print({'pyarrow', 'numpy'} & set(sys.modules))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
