"""Random conditions select in an engine what they select in the index, or are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings

import ragidx
from ragidx.corpora.errors import QueryError
from ragidx.pipelines.index import Index
from ragidx.retriever.where.conditions import Condition

from ....condition_trees import CONDITIONS, ROWS


@pytest.fixture(scope="module")
def both(
    places: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Index, ragidx.RemoteIndex]]:
    """An index with the rows of the conditions, and the table that has them."""
    index = Index.create(tmp_path_factory.mktemp("trees") / "index")
    for number in range(4):
        held = {name: values[number] for name, values in ROWS.items() if values[number] is not None}
        held = {name: one.replace(tzinfo=UTC) if isinstance(one, datetime) else one for name, one in held.items()}
        index.add(ragidx.Document(f"row {number}", "A text.", held))
    assert index.export(places("trees")).refused == {}
    with ragidx.connect(places("trees")) as remote:
        yield index, remote


def selected(index: Index | ragidx.RemoteIndex, where: str | Condition) -> list[str]:
    return sorted(name for batch in index.to_batches(["doc_id"], where=where) for name in batch[0].to_pylist())


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(condition=CONDITIONS)
def test_a_random_tree_as_value_and_as_text_selects_what_it_does_in_the_index(
    both: tuple[Index, ragidx.RemoteIndex], condition: Condition
) -> None:
    index, remote = both

    def told(where: str | Condition) -> list[str] | str:
        try:
            return selected(remote, where)
        except QueryError as fault:
            return fault.message

    found = told(condition)

    assert told(str(condition)) == found
    refused = isinstance(found, str) and any(why in found for why in ("cannot compare", "no texts with NUL"))
    assert refused or found == selected(index, condition)


def test_a_missing_value_is_in_no_list_and_not_outside_one(both: tuple[Index, ragidx.RemoteIndex]) -> None:
    index, remote = both
    year, is_open = ragidx.field("year"), ragidx.field("open")
    for where in [
        ~(is_open.is_in([False]) & is_open.is_in([True])),
        ~(year.is_in([1900, 5]) & year.is_in([2000, 7])),
        ~(((year == 1900) | (year == 5)) & ((year == 2000) | (year == 7))),
        ((year != 1900) & (year != 5)) | ((year != 2000) & (year != 7)),
    ]:
        assert selected(remote, where) == selected(index, where) == ["row 0", "row 1", "row 3"], where


def test_a_test_in_python_becomes_the_values_that_pass(both: tuple[Index, ragidx.RemoteIndex]) -> None:
    index, remote = both
    tests = [
        ragidx.field("year").passes(lambda year: year % 2000 == 0),
        ~ragidx.field("name").passes(lambda name: '"' in name),
        ragidx.field("added").passes(lambda time: time.year == 2024),
        ragidx.field("open").passes(lambda is_open: not is_open),
        ragidx.field("price").passes(lambda price: False),
    ]
    for where in tests:
        assert selected(remote, where) == selected(index, where), where
    assert selected(remote, tests[1]) == ["row 0", "row 1"]
    with pytest.raises(QueryError, match="an engine tests no lists"):
        selected(remote, ragidx.field("tags").passes(bool))


def test_a_condition_deeper_than_a_text_is_refused(both: tuple[Index, ragidx.RemoteIndex]) -> None:
    index, remote = both
    deep = ragidx.field("year") == 2000
    for _ in range(50):
        deep = ~deep
    assert selected(remote, deep) == selected(index, deep) == ["row 1"]

    with pytest.raises(QueryError, match="an engine takes a condition of 50 levels at most"):
        selected(remote, ~deep)
