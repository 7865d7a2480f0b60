"""Random conditions on fields of every kind, and rows that they select some of."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from ragidx.indexer.store.rows import KINDS
from ragidx.retriever.where.conditions import Condition, field

SCHEMA = {"year": "int", "price": "float", "open": "bool", "name": "string", "tags": "list", "added": "timestamp"}
ROWS: dict[str, list[Any]] = {
    "year": [1900, 2000, None, 2**62 + 1],
    "price": [1.5, None, -2.0, 3.0],
    "open": [True, False, None, True],
    "name": ["law", "Ünï", None, 'say "no"\n'],
    "tags": [["a", "b"], [], None, ["b"]],
    "added": [datetime(2024, 1, 31, 12), datetime(2024, 2, 1), None, datetime(1, 1, 1)],
}
TABLE = pa.table({name: pa.array(values, KINDS[SCHEMA[name]]) for name, values in ROWS.items()})

NAMES = st.sampled_from(sorted(SCHEMA))
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**70), 2**70) | st.sampled_from([1900, 2000, 1999.5, 2**62 + 1]),
    "float": st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1.5, 3, -2]),
    "bool": st.booleans(),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.sampled_from(["law", "Ünï"]),
    "list": st.sampled_from(["a", "b", "Ünï", ""]),
    "timestamp": st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)) | st.sampled_from(["2024", "2024-01-31"]),
}


@st.composite
def comparisons(draw: st.DrawFn) -> Condition:
    name = draw(NAMES)
    one, kind = field(name), SCHEMA[name]
    op = draw(st.sampled_from(["is_in", "is_null", "==", "<", "contains", "starts_with"]))
    values = draw(st.lists(LITERALS[kind], min_size=1, max_size=3))
    if op == "is_null":
        return one.is_null()
    if op == "is_in" or (kind == "list" and op != "contains") or (kind == "bool" and op != "=="):
        return one.is_in(values)
    if op in ("contains", "starts_with") and (kind == "string" or (op == "contains" and kind == "list")):
        return one.contains(values[0]) if op == "contains" else one.starts_with(values[0])
    return one < values[0] if op == "<" else one == values[0]


def joined(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    pairs = st.tuples(inner, inner)
    return pairs.map(lambda two: two[0] & two[1]) | pairs.map(lambda two: two[0] | two[1]) | inner.map(lambda one: ~one)


CONDITIONS = st.recursive(comparisons(), joined, max_leaves=8)
