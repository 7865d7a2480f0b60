"""Conditions on lists and on times: whole items, moments, and what does not apply to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import QueryError
from ragidx.indexer.store.rows import KINDS
from ragidx.retriever.where.answers import mask
from ragidx.retriever.where.binding import bind

from ...raising import message_of

SCHEMA = {"tags": "list", "opened": "timestamp", "year": "int"}
MOMENT = datetime(2024, 1, 31, 12, tzinfo=UTC)
LISTS = [["tls", "http"], ["notls"], None, [], ["tls"]]
TIMES = [MOMENT, MOMENT + timedelta(microseconds=1), None, datetime(1, 1, 1), datetime(9999, 12, 31)]
TABLE = pa.table({"tags": pa.array(LISTS, KINDS["list"]), "opened": pa.array(TIMES, KINDS["timestamp"])})


def rows(text: str, table: pa.Table = TABLE) -> list[int]:
    return [int(row) for row in mask(bind(text, SCHEMA), table).nonzero()[0]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('tags contains "tls"', [0, 4]),
        ('tags CONTAINS "TLS"', []),
        ('not tags contains "tls"', [1, 3]),
        ("tags is null", [2]),
        ('tags in ("http", "notls")', [0, 1]),
        ('tags not in ("http", "notls")', [3, 4]),
        ('tags contains "http" or tags contains "notls"', [0, 1]),
        ('opened == "2024-01-31T12:00:00"', [0]),
        ('opened == "2024-01-31T14:00:00+02:00"', [0]),
        ('opened >= "2024-01-31T12:00:00Z"', [0, 1, 4]),
        ('opened > "2024-01-31T12:00:00Z"', [1, 4]),
        ('opened < "2024-01-31"', [3]),
        ('opened >= "2024" and opened < "2024-02"', [0, 1]),
        ('opened != "2024-01-31T12:00:00"', [1, 3, 4]),
        ('opened in ("0001-01-01", "2024-01-31T12:00:00.000001")', [1, 3]),
        ('opened not in ("0001-01-01")', [0, 1, 4]),
        ("opened is null", [2]),
    ],
)
def test_a_condition_selects_the_rows_that_it_names(text: str, expected: list[int]) -> None:
    assert rows(text) == expected
    assert rows(text, TABLE.slice(0, 0)) == []


@pytest.mark.parametrize("text", ['tags contains "a"', 'opened == "2024-01-31"'])
def test_a_column_that_a_table_lacks_is_null_in_every_row(text: str) -> None:
    assert rows(text, pa.table({"year": [1]})) == []
    assert rows(f"not {text}", pa.table({"year": [1]})) == []


LIST_HINT = "use contains, with one whole item; in, is null or is not null"
TIME_HINT = 'write it as "2024", "2024-01-31" or "2024-01-31T12:00:00"; without a zone it is in UTC'


@pytest.mark.parametrize(
    ("text", "at", "message", "hint"),
    [
        ('tags == "tls"', 6, "== does not apply to 'tags', a list of texts", LIST_HINT),
        ('tags starts with "t"', 6, "starts with does not apply to 'tags', a list of texts", LIST_HINT),
        ('tags matches "t"', 6, "matches does not apply to 'tags', a list of texts", LIST_HINT),
        ("tags contains 5", 15, "'tags' is a list of texts, and 5 is a number", 'write it in quotes: "5"'),
        ('opened > "soon"', 10, "'opened' is a time, and \"soon\" is none in ISO form", TIME_HINT),
        (
            'opened > "0001-01-01T00:00+14:00"',
            10,
            "'opened' is a time, and \"0001-01-01T00:00+14:00\" is none in ISO form",
            TIME_HINT,
        ),
        ("opened > 2024", 10, "'opened' is a time, and 2024 is a number", TIME_HINT),
        (
            'opened contains "2024"',
            8,
            "contains reads text, and 'opened' is a time",
            "use == != < <= > >= or in",
        ),
    ],
)
def test_a_mistake_is_shown_where_it_is(text: str, at: int, message: str, hint: str) -> None:
    said = message_of(QueryError, lambda: bind(text, SCHEMA))

    assert said == (f"condition, character {at}: {message}\n  {text}\n  {' ' * (at - 1)}^\n  hint: {hint}")


ITEMS = st.lists(st.sampled_from(["", "a", "ab", "A", 'q"', "é"]), max_size=4)


@pytest.mark.slow
@given(lists=st.lists(st.none() | ITEMS, max_size=8), item=st.sampled_from(["", "a", "ab", "A", 'q"', "é"]))
def test_contains_selects_what_python_selects(lists: list[list[str] | None], item: str) -> None:
    table = pa.table({"tags": pa.array(lists, KINDS["list"])})
    written = item.replace('"', '\\"')

    assert rows(f'tags contains "{written}"', table) == [
        row for row, items in enumerate(lists) if items is not None and item in items
    ]


@pytest.mark.slow
@given(
    times=st.lists(st.none() | st.datetimes(), max_size=8),
    bound=st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)),
    hours=st.integers(-12, 14),
)
def test_a_bound_in_any_zone_selects_what_python_selects(
    times: list[datetime | None], bound: datetime, hours: int
) -> None:
    table = pa.table({"opened": pa.array(times, KINDS["timestamp"])})
    shown = bound.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=hours))).isoformat()

    assert rows(f'opened >= "{shown}"', table) == [
        row for row, time in enumerate(times) if time is not None and time >= bound
    ]
