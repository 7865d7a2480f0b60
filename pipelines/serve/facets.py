"""What the page offers to narrow an answer down by: fields that tell passages apart, and how many of the index have it.

First come source, type, folder and time of the files, then the documents' own fields, those that most passages have
first. Times, and dates that are text, are offered by year. A field that few passages have is not offered.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ragidx.corpora.records import OF_FILE
from ragidx.retriever.contents import batches, values
from ragidx.retriever.rows import Rows
from ragidx.retriever.searcher import Searcher
from ragidx.retriever.where.conditions import Condition, field

FACETS, VALUES = 8, 12  # fields, and values of each, that are offered
_ROWS = 200_000  # of larger indexes no values are counted
_LEAST_SHARE = 0.05  # of the passages, that have a field which is offered
_FIRST = ("file.source", "file.ext", "file.folder", "file.modified")  # with their commonest values, if there are more
_OWN = {"chunk_id", "doc_id", "text", "heading", "start", "end", "line", "page", "vector", *OF_FILE}
_DATE = "^[0-9]{4}-[0-9]{2}"


class Facet(NamedTuple):
    """A field with what it can be narrowed down to: as it is shown, as a condition, and passages of the index."""

    field: str
    values: list[tuple[str, Condition, int]]


def facets_of(state: Searcher) -> list[Facet]:
    """The fields that are offered."""
    n_chunks = state.store.manifest.n_chunks
    if n_chunks > _ROWS:
        return []
    found = []
    for name, kind in state.schema.items():
        if name in _FIRST or name not in _OWN:
            facet = Facet(name, _counted(state.store, name, kind))
            n_having = sum(count for *_, count in facet.values)
            if len(facet.values) > 1 and n_having >= _LEAST_SHARE * n_chunks:
                found.append((name not in _FIRST, -min(n_having, n_chunks), facet))
    order = {name: place for place, name in enumerate(_FIRST)}
    found.sort(key=lambda one: (one[0], order.get(one[2].field, 0), one[1]))
    return [facet for *_, facet in found[:FACETS]]


def has_value(name: str, value: Any) -> Condition:
    """The condition that a field has a value, or all items of a list.

    >>> print(has_value("section title", 'a "b"'), has_value("tags", ["x", "y"]), sep=", ")
    `section title` == "a \\"b\\"", tags contains "x" and tags contains "y"
    """
    items = map(field(name).contains, value) if isinstance(value, list) else [field(name) == value]
    return reduce(Condition.__and__, items)


def _counted(store: Rows, name: str, kind: str) -> list[tuple[str, Condition, int]]:
    """The values of a field, with their conditions and counts; empty where there are too many."""
    if kind in ("string", "bool", "int", "list"):
        counted = values(store, name, limit=VALUES + 1)
        if len(counted) <= VALUES or name in _FIRST:
            nothing = "(top)" if name == "file.folder" else "(none)"
            conditions = [has_value(name, [value] if kind == "list" else value) for value, _ in counted]
            shown = [str(value) or nothing for value, _ in counted]
            return list(zip(shown, conditions, (count for _, count in counted), strict=True))[:VALUES]
    if kind not in ("string", "timestamp"):
        return []
    years, one = _years(store, name), field(name)
    return [
        (year, (one >= year) & (one < f"{int(year) + 1:04}"), years[year])
        for year in sorted(years, reverse=True)[:VALUES]
    ]


def _years(store: Rows, name: str) -> Counter[str]:
    """How many passages have a time of each year; none where a text is no date."""
    found = Counter[str]()
    for batch in batches(store, [name]):
        column = pc.drop_null(batch.column(0))
        if pa.types.is_timestamp(column.type):
            column = pc.cast(pc.year(column.cast(pa.timestamp("us"))), pa.large_string())
        elif not pc.all(pc.match_substring_regex(column, _DATE), min_count=0).as_py():
            return Counter()
        for pair in pc.value_counts(pc.utf8_slice_codeunits(column, 0, 4)).to_pylist():
            found[pair["values"]] += pair["counts"]
    return found
